//! Notes that every footer has: the kernel, the packets, and what was lost.

use std::collections::BTreeMap;

use netplumb_model::recording::{Recording, env};

use crate::footer::Note;
use crate::number::{counted, printable, thousands};

/// What was lost, or that nothing was; and that the run was cut short, if it was.
pub(crate) fn lost(recording: &Recording, nothing: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = (recording.all_losses())
        .map(|loss| {
            let (cause, meaning) = (printable(&loss.cause, 80), printable(&loss.meaning, 160));
            let text = format!("{} {cause}: {meaning}", thousands(loss.count));
            Note::warning("loss", text)
        })
        .collect();
    if notes.is_empty() {
        notes.push(Note::new("loss", nothing));
    }
    if !recording.complete {
        notes.push(Note::warning(
            "cut short",
            "the run did not finish: the blocks here are complete, others are missing",
        ));
    }
    notes
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

/// The kernel and the lab.
pub(crate) fn kernel(recording: &Recording) -> Note {
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 120));
    let of = |knob: &str, key: &str| levels(recording, knob).or_else(|| fact(key));
    let mut text = of("kernel", env::KERNEL).unwrap_or("not known".into());
    if let Some(mitigations) = of("mitigations", env::MITIGATIONS) {
        text.push_str(&format!(", mitigations {mitigations}"));
    }
    let lab = fact(env::LAB).unwrap_or("vm".into());
    Note::new("kernel", format!("{text}; lab {lab}"))
}

/// What became of the packets.
pub(crate) fn ledger(recording: &Recording) -> Note {
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
        "{} offered, {} delivered",
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
    Note {
        warning: invalid > 0,
        ..Note::new("packets", line)
    }
}
