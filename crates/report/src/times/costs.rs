//! Times as costs: what the formats of other tools are made from, and the page.

use std::collections::BTreeMap;

use netplumb_model::recording::{Cost, Loss, Recording, Total};
use netplumb_model::timing::OWN_TIME;

use super::analysis::own;

/// The recording with the corrected own time of each node as its cost, in whole
/// nanoseconds. Where a correction is larger than what it is taken from, the cost is
/// nothing, and a loss says how much that comes to.
pub fn as_costs(recording: &Recording) -> Recording {
    let mut out = recording.clone();
    let quantity = out.quantity(&OWN_TIME);
    let mut costs: BTreeMap<_, Cost> = BTreeMap::new();
    let mut below_nothing = 0.0;
    for (timed, own) in recording.timed.iter().zip(own(recording)) {
        below_nothing += (-own.corrected_ns).max(0.0);
        let cost = costs
            .entry((timed.block, timed.direction, timed.context, timed.node))
            .or_insert(Cost {
                block: timed.block,
                quantity,
                direction: timed.direction,
                context: timed.context,
                node: timed.node,
                calls: 0,
                own: 0,
            });
        cost.calls += timed.times.count;
        cost.own += own.corrected_ns.max(0.0).round() as u64;
    }
    for cost in costs.values() {
        let totals = &mut out.blocks[cost.block as usize].totals;
        match totals.iter_mut().find(|t| t.quantity == quantity) {
            Some(total) => total.kernel += cost.own,
            None => totals.push(Total {
                quantity,
                kernel: cost.own,
                user: 0,
            }),
        }
    }
    out.costs = costs.into_values().collect();
    let below_nothing = below_nothing.round() as u64;
    if below_nothing > 0 {
        out.losses.push(Loss {
            cause: "ns of own time below nothing, set to nothing".into(),
            count: below_nothing,
            meaning:
                "the correction of some functions is larger than their own time; sums are as much \
                      too large"
                    .into(),
        });
    }
    out
}
