//! The trust footer: what the figures are, under which conditions, and what is
//! missing from them.

mod varying;

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::{Recording, env};

use crate::acting;
use crate::analysis::{ClassView, NO_LAYER, other_work};
use crate::number::{counted, per_packet, percent, printable, thousands};
use crate::shape::{Shape, shape, varying};
use crate::times;

/// Lines for under a result. `classes` are those that were shown.
pub fn footer(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<String> {
    if shape(recording) == Shape::Times {
        return times::trust::footer(recording, &times::classes(recording));
    }
    if let Some(quantity) = varying(recording) {
        return varying::footer(recording, &quantity, classes);
    }
    let fact = |key: &str| printable(recording.environment.get(key).map_or("?", |v| v), 120);
    let mut lines = Vec::new();
    let exact = if fact(env::QUICK) == "yes" {
        "instructions executed, quick mode (no instruction clock): within some tenths of a percent"
    } else {
        "instructions executed, to the instruction"
    };
    let whose = match commands(recording) {
        true => "the kernel's and the command's own ",
        false => "kernel ",
    };
    lines.push(format!(
        "clock     {whose}{exact}; not time: no caches, no branch prediction, no contention"
    ));
    lines.push(format!(
        "kernel    {} ({}), mitigations {}",
        levels(recording, "kernel").unwrap_or_else(|| fact(env::KERNEL)),
        printable(&fact(env::KERNEL_HASH), 12),
        levels(recording, "mitigations").unwrap_or_else(|| fact(env::MITIGATIONS))
    ));
    lines.push(format!(
        "machine   QEMU {} TCG, -cpu {}, one vCPU; {}",
        fact(env::QEMU),
        fact(env::CPU),
        fact(env::REP)
    ));
    lines.push(match commands(recording) {
        true => format!("runs      {}", thousands(recording.blocks.len() as u64)),
        false => ledger(recording),
    });
    lines.push(blocks(classes));
    lines.push(layers(classes, "instructions"));
    if !commands(recording) {
        lines.push(others(recording, classes));
    }
    lines.extend(acting::footer(recording));
    lines.extend(lost(
        recording,
        "none: every call and return was matched, every instruction placed",
    ));
    lines
}

/// How much of some classes is in no layer.
fn layers(classes: &[ClassView<'_>], what: &str) -> String {
    let whole: u64 = classes.iter().map(|c| c.total).sum();
    let unnamed: u64 = classes.iter().map(|c| c.layer_insns(NO_LAYER)).sum();
    let verb = if what.ends_with('s') { "are" } else { "is" };
    format!(
        "layers    {:.2}% of the {what} {verb} in no layer",
        percent(unnamed, whole)
    )
}

/// What was lost, or that nothing was; and that the run was cut short, if it was.
pub(crate) fn lost(recording: &Recording, nothing: &str) -> Vec<String> {
    let mut lines: Vec<String> = (recording.all_losses())
        .map(|loss| {
            format!(
                "loss      {} {}: {}",
                thousands(loss.count),
                printable(&loss.cause, 80),
                printable(&loss.meaning, 160)
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("loss      {nothing}"));
    }
    if !recording.complete {
        lines.push(
            "torn      the run was cut short: what is here is whole blocks, others are missing"
                .into(),
        );
    }
    lines
}

/// Whether it is about commands, not packets.
fn commands(recording: &Recording) -> bool {
    recording.arms.iter().any(|a| a.proto == Proto::Command)
}

/// The levels of a knob in which arms differ; none if they don't.
pub(crate) fn levels(recording: &Recording, knob: &str) -> Option<String> {
    let mut levels: Vec<&str> = recording
        .arms
        .iter()
        .filter_map(|a| a.knobs.get(knob).map(String::as_str))
        .collect();
    levels.sort_unstable();
    levels.dedup();
    (levels.len() > 1).then(|| format!("{}, by arm", printable(&levels.join(" and "), 120)))
}

/// What became of the packets.
pub(crate) fn ledger(recording: &Recording) -> String {
    let offered: u64 = recording.blocks.iter().map(|b| b.ledger.offered).sum();
    let delivered: u64 = recording.blocks.iter().map(|b| b.ledger.delivered).sum();
    let mut dropped: BTreeMap<&str, u64> = BTreeMap::new();
    for block in &recording.blocks {
        for (cause, packets) in &block.ledger.dropped {
            *dropped.entry(cause).or_default() += packets;
        }
    }
    let invalid = recording
        .blocks
        .iter()
        .filter(|b| !b.ledger.closes())
        .count();
    let mut line = format!(
        "packets   {} offered, {} delivered",
        thousands(offered),
        thousands(delivered)
    );
    for (cause, packets) in dropped {
        line.push_str(&format!(
            ", {} dropped ({})",
            thousands(packets),
            printable(cause, 60)
        ));
    }
    if invalid > 0 {
        line.push_str(&format!(
            "; INVALID: in {invalid} of {} packets are missing without a cause",
            counted(recording.blocks.len(), "block")
        ));
    }
    line
}

fn blocks(classes: &[ClassView<'_>]) -> String {
    let mut differing = Vec::new();
    for class in classes {
        let (Some(low), Some(high)) = (class.by_block.iter().min(), class.by_block.iter().max())
        else {
            continue;
        };
        if low != high {
            let packets = class.packets / class.by_block.len().max(1) as u64;
            let each = |insns: u64| insns as f64 / packets.max(1) as f64;
            // As many decimals as it takes to tell them apart.
            let told = |decimals: usize| {
                (
                    format!("{:.decimals$}", each(*low)),
                    format!("{:.decimals$}", each(*high)),
                )
            };
            let (low, high) = (2..6).map(told).find(|(l, h)| l != h).unwrap_or(told(6));
            differing.push(format!("{} {low} to {high}", class.class));
        }
    }
    // A run that was cut short has more of one arm than of another.
    let counts = || classes.iter().map(|c| c.by_block.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let count = if least == most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    };
    if differing.is_empty() {
        format!("blocks    {count} of each class, every one with the same count")
    } else {
        format!(
            "blocks    {count} of each class; per {} they range: {} (the kernel's own state moves on: \
             a ring, a slab or random numbers refilled, a timer or a clock reading another)",
            classes.first().map_or("packet", |c| c.class.proto.unit()),
            differing.join(", ")
        )
    }
}

/// Work in the windows that is no packet's.
fn others(recording: &Recording, classes: &[ClassView<'_>]) -> String {
    let mut arms: Vec<usize> = classes.iter().map(|c| c.arm).collect();
    arms.sort_unstable();
    arms.dedup();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for arm in &arms {
        for (context, insns) in other_work(recording, *arm) {
            *sums.entry(context.to_string()).or_default() += insns;
        }
    }
    let packets: u64 = recording
        .blocks
        .iter()
        .filter(|b| arms.contains(&(b.arm as usize)))
        .map(|b| b.ledger.offered)
        .sum();
    if sums.is_empty() {
        return "apart     nothing else ran in the windows".into();
    }
    let parts: Vec<String> = sums
        .iter()
        .map(|(c, n)| format!("{c} {}", per_packet(*n, packets)))
        .collect();
    format!(
        "apart     in the windows, but no packet's work (timers, waiting, other tasks), per packet: {}",
        parts.join(", ")
    )
}
