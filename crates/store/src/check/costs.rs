//! Costs, and what was counted apart from them.

use std::collections::HashMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::Recording;

/// The costs of a block are its instructions, and their calls what was entered.
pub(super) fn add_up(recording: &Recording) -> Result<(), String> {
    // No overflow: the sum over all blocks has been formed.
    let mut sums = vec![(0_u64, 0_u64); recording.blocks.len()];
    for cost in &recording.costs {
        let sum = &mut sums[cost.block as usize];
        sum.0 += cost.self_insns;
        sum.1 += cost.calls;
    }
    for (row, (block, (insns, calls))) in recording.blocks.iter().zip(sums).enumerate() {
        let arm = &recording.arms[block.arm as usize];
        // Of a command, its own code has costs as well.
        let (expected, of) = match arm.proto {
            Proto::Command => (
                block.kernel_insns + block.user_insns,
                "kernel_insns and user_insns",
            ),
            _ => (block.kernel_insns, "kernel_insns"),
        };
        if insns != expected {
            return Err(format!(
                "table block, row {row}: its costs add up to {insns}, and {of} to {expected}"
            ));
        }
        if block.returned > block.entered {
            return Err(format!(
                "table block, row {row}: {} functions returned, and only {} were entered",
                block.returned, block.entered
            ));
        }
        // Calls of what was sampled are samples.
        if !super::is_sampled(arm) && calls != block.entered {
            return Err(format!(
                "table block, row {row}: {} functions were entered, and its costs have {calls} \
                 calls",
                block.entered
            ));
        }
    }
    Ok(())
}

/// The lines of a function are no more than the function.
pub(super) fn lines(recording: &Recording) -> Result<(), String> {
    if recording.line_costs.is_empty() {
        return Ok(());
    }
    let mut left: HashMap<(u32, u32), u64> = HashMap::new();
    for cost in &recording.costs {
        let function = recording.nodes[cost.node as usize].function;
        *left.entry((cost.block, function)).or_default() += cost.self_insns;
    }
    for (row, cost) in recording.line_costs.iter().enumerate() {
        let of = left.entry((cost.block, cost.function)).or_default();
        match of.checked_sub(cost.insns) {
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
