//! Counts of `exact` beside events, from other guests of the same arms.

use netplumb_model::class::{Context, Proto};
use netplumb_model::events::{EventRequest, INSTRUMENT};
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::INSTRUCTIONS;

use super::rows::counts;
use crate::number::{printable, thousands};

/// A line for each arm with counted instructions: per run or packet, with the calls of functions that
/// are among the events.
pub(crate) fn beside(whole: &Recording) -> Vec<String> {
    let quantity =
        (0_u32..).zip(&whole.quantities).find(|(_, quantity)| quantity.is(&INSTRUCTIONS));
    let Some((quantity, _)) = quantity else {
        return Vec::new();
    };
    let has_events = |arm: usize| {
        let mut blocks = whole.blocks.iter();
        blocks.any(|b| b.arm as usize == arm && b.instrument == INSTRUMENT)
    };
    let events = counts(whole);
    let mut lines = Vec::new();
    for (number, arm) in whole.arms.iter().enumerate() {
        let is_its =
            |b: &Block| b.arm as usize == number && b.instrument == INSTRUCTIONS.instrument;
        let blocks: Vec<&Block> = whole.blocks.iter().filter(|b| is_its(b)).collect();
        if blocks.is_empty() || !has_events(number) {
            continue;
        }
        let (per, word) = match arm.proto {
            Proto::Command => (blocks.len() as u64, "run"),
            _ => (blocks.iter().map(|b| b.ledger.offered).sum(), "packet"),
        };
        let each = |sum: u64| thousands((sum as f64 / per.max(1) as f64).round() as u64);
        let totals = blocks.iter().flat_map(|block| &block.totals);
        let totals = totals.filter(|total| total.quantity == quantity);
        let (kernel, user) = totals.fold((0, 0), |sum, t| (sum.0 + t.kernel, sum.1 + t.user));
        let mut line = format!("exactly, in other guests: {} instructions", each(kernel + user));
        line.push_str(&match user {
            0 => format!(" per {word}"),
            user => format!(
                " per {word}, {} of them the kernel's and {} of programs",
                each(kernel),
                each(user)
            ),
        });
        let asked = events.iter().filter(|event| event.arm == number);
        let mut functions: Vec<String> = Vec::new();
        for event in asked.filter(|event| !event.is_part()) {
            if let Ok(EventRequest::Kernel { function, .. }) = EventRequest::parse(event.name)
                && !functions.contains(&function)
            {
                functions.push(function);
            }
        }
        for function in functions {
            let costs = whole.costs.iter().filter(|cost| {
                let block = whole.blocks.get(cost.block as usize);
                let node = whole.nodes.get(cost.node as usize);
                let of = node.and_then(|n| whole.functions.get(n.function as usize));
                // For a command, as for events: without other tasks, in whose time it waits.
                let other = arm.proto == Proto::Command && cost.context == Context::OtherTask;
                block.is_some_and(is_its) && !other && of.is_some_and(|of| of.name == function)
            });
            let calls: u64 = costs.map(|cost| cost.calls).sum();
            let (calls, function) = (each(calls), printable(&function, 80));
            let word = if calls == "1" { "call" } else { "calls" };
            line.push_str(&format!("; {calls} {word} of {function}"));
        }
        if whole.arms.len() > 1 {
            line = format!("{}: {line}", printable(&arm.name, 80));
        }
        lines.push(line);
    }
    lines
}
