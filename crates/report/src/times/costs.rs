//! Times as costs, for the formats of other tools and the page.

use std::collections::BTreeMap;

use netplumb_model::loss::Loss;
use netplumb_model::recording::{Cost, Recording, Total};
use netplumb_model::timing::OWN_TIME;

use super::analysis::own;

/// The recording with the corrected own time of each node as its cost, in whole
/// nanoseconds. Where a correction is larger than the time, the cost is 0, and a loss
/// has the sum of these differences.
pub fn as_costs(recording: &Recording) -> Recording {
    let mut out = recording.clone();
    // Costs beside times between events have another quantity.
    if recording.calls().next().is_none() {
        return out;
    }
    let quantity = out.quantity(&OWN_TIME);
    let mut costs: BTreeMap<_, Cost> = BTreeMap::new();
    let mut below_nothing = 0.0;
    for ((span, call), own) in recording.calls().zip(own(recording)) {
        below_nothing += (-own.corrected_ns).max(0.0);
        let cost =
            costs.entry((span.block, span.direction, call.context, call.node)).or_insert(Cost {
                block: span.block,
                quantity,
                direction: span.direction,
                context: call.context,
                node: call.node,
                calls: 0,
                own: 0,
            });
        cost.calls += span.times.count;
        cost.own += own.corrected_ns.max(0.0).round() as u64;
    }
    for cost in costs.values() {
        let totals = &mut out.blocks[cost.block as usize].totals;
        match totals.iter_mut().find(|t| t.quantity == quantity) {
            Some(total) => total.kernel += cost.own,
            None => totals.push(Total { quantity, kernel: cost.own, user: 0 }),
        }
    }
    out.costs = costs.into_values().collect();
    let below_nothing = below_nothing.round() as u64;
    let loss = Loss::new(
        "ns of own time below nothing, set to nothing",
        below_nothing,
        "the correction of some functions is larger than their own time; sums are as much too large",
    );
    out.add_loss(OWN_TIME.instrument, loss);
    out
}
