//! Times as costs: what the formats of other tools are made from, and the page.

use std::collections::BTreeMap;

use netplumb_model::recording::{Cost, Loss, Recording};

use super::analysis::own;

/// The recording with the corrected own time of each node as its cost, in whole
/// nanoseconds. Where a correction is larger than what it is taken from, the cost is
/// nothing, and a loss says how much that comes to.
pub fn as_costs(recording: &Recording) -> Recording {
    let mut costs: BTreeMap<_, Cost> = BTreeMap::new();
    let mut below_nothing = 0.0;
    for (timed, own) in recording.timed.iter().zip(own(recording)) {
        below_nothing += (-own.corrected_ns).max(0.0);
        let cost = costs
            .entry((timed.block, timed.direction, timed.context, timed.node))
            .or_insert(Cost {
                block: timed.block,
                direction: timed.direction,
                context: timed.context,
                node: timed.node,
                calls: 0,
                self_insns: 0,
            });
        cost.calls += timed.times.count;
        cost.self_insns += own.corrected_ns.max(0.0).round() as u64;
    }
    let mut out = recording.clone();
    for cost in costs.values() {
        out.blocks[cost.block as usize].kernel_insns += cost.self_insns;
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
