//! Costs, and totals that were counted independently.

use std::collections::HashMap;

use netplumb_model::class::{Direction, Proto};
use netplumb_model::quantity::Calls;
use netplumb_model::recording::{Cost, Recording};

/// The costs of a block add up to its total, by quantity, and their calls to the entries.
pub(super) fn add_up(recording: &Recording) -> Result<(), String> {
    // No overflow: the sum over all blocks was checked.
    let mut sums: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
    let idles = |cost: &Cost| {
        let arm = recording.blocks[cost.block as usize].arm;
        let proto = recording.arms[arm as usize].proto;
        cost.direction == Direction::Other && proto == Proto::Work
    };
    // CPUs that idle do no work, and are in no total of a profile.
    for cost in recording.costs.iter().filter(|cost| !idles(cost)) {
        let sum = sums.entry((cost.block, cost.quantity)).or_default();
        sum.0 += cost.own;
        sum.1 += cost.calls;
    }
    for (row, block) in (0..).zip(&recording.blocks) {
        let arm = &recording.arms[block.arm as usize];
        for total in &block.totals {
            let (own, calls) = sums.remove(&(row, total.quantity)).unwrap_or_default();
            let quantity = &recording.quantities[total.quantity as usize];
            // For a command or a profile, user code also has costs.
            let (expected, of) = match arm.proto {
                Proto::Command | Proto::Work => (total.kernel + total.user, "kernel and user"),
                _ => (total.kernel, "kernel"),
            };
            if own != expected {
                return Err(format!(
                    "table total, block {row}: costs add up to {own} {}, and {of} to {expected}",
                    quantity.unit
                ));
            }
            // For samples, calls are samples; for times between events, how many there are.
            let are_entries = quantity.calls == Calls::Entries;
            if are_entries && !super::is_sampled(recording, block) && calls != block.entered {
                return Err(format!(
                    "table block, row {row}: {} functions were entered, and its costs have \
                     {calls} calls",
                    block.entered
                ));
            }
        }
        if block.returned > block.entered {
            return Err(format!(
                "table block, row {row}: {} functions returned, but only {} were entered",
                block.returned, block.entered
            ));
        }
    }
    match sums.keys().min() {
        Some((block, quantity)) => Err(format!(
            "table cost: block {block} has costs of quantity {quantity}, and no total of it"
        )),
        None => Ok(()),
    }
}

/// The lines of a function don't cost more than the function.
pub(super) fn lines(recording: &Recording) -> Result<(), String> {
    if recording.line_costs.is_empty() {
        return Ok(());
    }
    let mut left: HashMap<(u32, u32), u64> = HashMap::new();
    for cost in &recording.costs {
        let function = recording.nodes[cost.node as usize].function;
        *left.entry((cost.block, function)).or_default() += cost.own;
    }
    for (row, cost) in recording.line_costs.iter().enumerate() {
        let of = left.entry((cost.block, cost.function)).or_default();
        match of.checked_sub(cost.own) {
            Some(rest) => *of = rest,
            None => {
                return Err(format!(
                    "table line_cost, row {row}: the lines of function {} cost more than it does",
                    cost.function
                ));
            }
        }
    }
    Ok(())
}
