//! The trust footer: the meaning of the figures, their conditions, and missing
//! data.
//!
//! Footers of times are in `times/trust.rs`, of benches in `rates/trust.rs`: notes of `footer.rs`, which
//! every output shows.

mod blind;
mod blocks;
pub(crate) mod common;
pub(crate) mod devices;
mod imported;
mod profiled;
mod sampled;
mod varying;

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::hosts::{COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS, PAYLOAD, Side};
use netplumb_model::quantity::{Declared, Scalar};
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::{DEFERRED, FREQUENCY, SAMPLED};

use common::{
    CUT_SHORT, architectures_of, arms_of, below, blocks_of, facts_of_arms, hashes, ledger, levels,
    lost,
};

use devices::devices;

use crate::acting;
use crate::analysis::{ClassView, NO_LAYER, other_work};
use crate::drift;
use crate::footer::Note;
use crate::number::{per_packet, percent, printable, thousands};
use crate::scalars::of_run;
use crate::shape::{Shape, shape, varying};
use crate::times;

/// Notes under a result. `classes` are the shown ones.
pub fn footer(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<Note> {
    if shape(recording) == Shape::Times {
        return times::trust::footer(recording, &times::classes(recording));
    }
    let mut notes = of_costs(recording, classes);
    // Below the note on the figures.
    notes.splice(1..1, below(recording));
    notes.extend(drift::notes(recording));
    notes
}

fn of_costs(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<Note> {
    if let Some(quantity) = varying(recording) {
        if recording.environment.contains_key(env::IMPORTED) {
            return imported::footer(recording, &quantity, classes);
        }
        if quantity.is(&SAMPLED) || quantity.is(&DEFERRED) {
            return sampled::footer(recording, &quantity, classes);
        }
        // Recordings of other programs have fewer facts.
        if of_run(recording, &FREQUENCY).is_some() {
            return profiled::footer(recording, classes);
        }
        return varying::footer(recording, &quantity, classes);
    }
    let fact = |key: &str| printable(recording.environment.get(key).map_or("?", |v| v), 120);
    let exact = if fact(env::QUICK) == "yes" {
        "instructions executed, quick mode (no instruction clock): within some tenths of a percent"
    } else {
        "instructions executed, to the instruction"
    };
    let whose = match is_of_commands(recording) {
        true => "the kernel's and the command's own ",
        false => "kernel ",
    };
    let shown = arms_of(recording, classes);
    let of_shown = |key: &str| facts_of_arms(recording, &shown, key);
    let kernel = format!(
        "{} ({}), mitigations {}",
        levels(recording, &shown, "kernel").unwrap_or_else(|| of_shown(env::KERNEL)),
        hashes(recording, &shown),
        levels(recording, &shown, "mitigations").unwrap_or_else(|| of_shown(env::MITIGATIONS))
    );
    let machine = format!(
        "QEMU {} TCG, CPU {}{}, one vCPU; {}",
        fact(env::QEMU),
        of_shown(env::CPU),
        lacking(recording),
        of_shown(env::REP)
    );
    let clock = format!("{whose}{exact}; not time: no caches, no branch prediction, no contention");
    let arms = || classes.iter().map(|class| class.arm);
    let mut notes = vec![
        Note::new("clock", clock),
        Note::new("kernel", kernel),
        Note::new("machine", machine),
        match is_of_commands(recording) {
            true => Note::new("runs", thousands(blocks_of(recording, arms()).len() as u64)),
            false => ledger(recording, arms()),
        },
    ];
    if !classes.is_empty() {
        notes.push(blocks(classes));
        notes.push(layers(classes, "instructions"));
    }
    notes.splice(3..3, architectures_of(recording, &shown));
    notes.extend(hosts(recording, classes));
    notes.extend(devices(recording));
    if !is_of_commands(recording) {
        notes.push(others(recording, classes));
    }
    notes.extend(acting::footer(recording));
    notes.extend(lost(
        recording,
        "none: every call and return was matched, every instruction placed",
        CUT_SHORT,
    ));
    notes
}

/// Features of the CPU's model that this QEMU lacks, in words.
fn lacking(recording: &Recording) -> String {
    let lacks = recording.environment.get(env::CPU_LACKS);
    lacks.map_or_else(String::new, |names| {
        format!(" without {} (this QEMU has none)", printable(names, 120))
    })
}

/// The share of some classes that is in no layer.
fn layers(classes: &[ClassView<'_>], what: &str) -> Note {
    let whole: u64 = classes.iter().map(|c| c.total).sum();
    let unnamed: u64 = classes.iter().map(|c| c.layer_insns(NO_LAYER)).sum();
    let verb = if what.ends_with('s') { "are" } else { "is" };
    Note::new("layers", format!("{:.2}% of the {what} {verb} in no layer", percent(unnamed, whole)))
}

/// Whether it is about commands, not packets.
/// Whether commands were run, and no packets sent by the lab.
pub(crate) fn is_of_commands(recording: &Recording) -> bool {
    recording.arms.iter().any(|a| a.proto == Proto::Command)
}

fn blocks(classes: &[ClassView<'_>]) -> Note {
    let mut differing = Vec::new();
    for class in classes {
        // Merged blocks are not all of one size.
        let each = class.per_by_block().into_iter().zip(&class.by_block);
        let each: Vec<f64> = each.map(|(per, insns)| per.each(*insns as f64)).collect();
        let low = each.iter().copied().min_by(f64::total_cmp);
        let high = each.iter().copied().max_by(f64::total_cmp);
        let (Some(low), Some(high)) = (low, high) else {
            continue;
        };
        if low != high {
            // As many decimals as it takes to distinguish them.
            let rounded =
                |decimals: usize| (format!("{low:.decimals$}"), format!("{high:.decimals$}"));
            let (low, high) = (2..6).map(rounded).find(|(l, h)| l != h).unwrap_or(rounded(6));
            differing.push(format!("{} {low} to {high}", class.class));
        }
    }
    // A run that was cut short has more of one arm than of another.
    let counts = || classes.iter().map(|c| c.by_block.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let text = if differing.is_empty() {
        format!("{count} of each class, every one with the same count")
    } else {
        format!(
            "{count} of each class; per {} they range: {} (the kernel's own state changes: a ring, a slab \
             or random numbers are refilled, a timer expires, a clock is read at another value)",
            classes.first().map_or("packet", |c| c.class.proto.unit()),
            differing.join(", ")
        )
    };
    Note::new("blocks", text)
}

/// A note on two hosts: the subject of classes, and data beside their functions.
fn hosts(recording: &Recording, classes: &[ClassView<'_>]) -> Option<Note> {
    let bytes: u64 = recording.scalars_of(&PAYLOAD).map(|scalar| scalar.value as u64).sum();
    classes.iter().find(|class| class.payload_bytes.is_some())?;
    let sum = |quantity: &Declared, side: Side| {
        let of_side = |scalar: &&Scalar| scalar.item.label.as_deref() == Some(side.called());
        let scalars = recording.scalars_of(quantity).filter(of_side);
        scalars.map(|scalar| scalar.value as u64).sum::<u64>()
    };
    let sides = Side::ALL.iter().map(|side| {
        format!(
            "{} {} in the kernel + {} in programs",
            side.called(),
            thousands(sum(&COUNTED_IN_KERNEL, *side)),
            thousands(sum(&COUNTED_IN_PROGRAMS, *side))
        )
    });
    Some(Note::new(
        "hosts",
        format!(
            "tx is all that the sender's kernel did for packets, rx the receiver's; a packet is a frame \
             that the sender put on the wire, and all carried {} bytes of payload. Instructions of all \
             blocks: {}",
            thousands(bytes),
            sides.collect::<Vec<_>>().join("; ")
        ),
    ))
}

/// Work in the windows for no packet.
fn others(recording: &Recording, classes: &[ClassView<'_>]) -> Note {
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
        return Note::new("apart", "nothing else ran in the windows");
    }
    let parts: Vec<String> =
        sums.iter().map(|(c, n)| format!("{c} {}", per_packet(*n, packets))).collect();
    Note::new(
        "apart",
        format!(
            "in the windows, but for no packet (timers, waiting, other tasks), per packet: {}",
            parts.join(", ")
        ),
    )
}
