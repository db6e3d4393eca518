//! Notes that every footer has: the kernel, the packets, and losses.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::recording::{Block, Recording, env};

use crate::analysis::ClassView;
use crate::diff::facts;
use crate::footer::Note;
use crate::number::{counted, percent, printable, thousands};
use crate::shape::{Shape, shape};

/// Letters of a name.
const NAME_LETTERS: usize = 80;

/// The note on a run that did not finish.
pub(crate) const CUT_SHORT: &str =
    "the run did not finish: the blocks here are complete, others are missing";

/// A note on the part below a function: its meaning, and its share of the whole.
pub(crate) fn below(recording: &Recording) -> Option<Note> {
    let root = printable(recording.root()?, NAME_LETTERS);
    let quantity = recording.costs.first().map(|c| c.quantity);
    let totals = recording.blocks.iter().flat_map(|b| &b.totals);
    let totals = totals.filter(|t| Some(t.quantity) == quantity);
    // Times of functions are not part of a separately counted total.
    let totals = totals.filter(|_| shape(recording) == Shape::Costs);
    let all: u64 = totals.map(|t| t.kernel.saturating_add(t.user)).sum();
    let part: u64 = recording.costs.iter().map(|c| c.own).sum();
    let share = match all {
        0 => String::new(),
        all => format!(" ({:.2}% of all in the windows)", percent(part, all)),
    };
    Some(Note::new(
        "below",
        format!(
            "only {root} and what it calls{share}: its outermost calls from everywhere, including work \
             for no packet (other), as one tree, which shares refer to"
        ),
    ))
}

/// The losses, or that there were none (`nothing`); and that the run was cut short, if it was (`cut`).
pub(crate) fn lost(recording: &Recording, nothing: &str, cut: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = (recording.all_losses())
        .map(|loss| {
            let lost = printable(&loss.in_words(), 80);
            let text = format!("{lost}: {}", printable(&loss.meaning, 160));
            Note::warning("loss", text)
        })
        .collect();
    if notes.is_empty() {
        notes.push(Note::new("loss", nothing));
    }
    if !recording.complete {
        notes.push(Note::warning("cut short", cut));
    }
    notes
}

/// The arms of classes, in their order; all, if there are none.
pub(crate) fn arms_of(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<usize> {
    let mut arms: Vec<usize> = classes.iter().map(|class| class.arm).collect();
    arms.sort_unstable();
    arms.dedup();
    match arms.is_empty() {
        true => (0..recording.arms.len()).collect(),
        false => arms,
    }
}

/// The levels of a knob in which these arms differ; none if they don't.
pub(crate) fn levels(recording: &Recording, arms: &[usize], knob: &str) -> Option<String> {
    let mut levels: Vec<&str> = arms
        .iter()
        .filter_map(|arm| recording.arms[*arm].knobs.get(knob).map(String::as_str))
        .collect();
    levels.sort_unstable();
    levels.dedup();
    (levels.len() > 1).then(|| format!("{}, by arm", printable(&levels.join(" and "), 120)))
}

/// The values of a fact in these arms.
pub(crate) fn facts_of_arms(recording: &Recording, arms: &[usize], key: &str) -> String {
    match values_of_arms(recording, arms, key).as_slice() {
        [] => "?".into(),
        [one] => printable(one, 120),
        several => format!("{}, by arm", printable(&several.join(" and "), 240)),
    }
}

/// The same, each once.
pub(crate) fn values_of_arms<'r>(
    recording: &'r Recording,
    arms: &[usize],
    key: &str,
) -> Vec<&'r str> {
    let mut values: Vec<&str> = Vec::new();
    let of_all = || recording.environment.get(key).map(String::as_str);
    let of_arms = arms.iter().map(|arm| recording.fact(*arm, key));
    // A recording may have no arms yet.
    for value in of_arms.chain(arms.is_empty().then(of_all)) {
        values.extend(value.filter(|value| !values.contains(value)));
    }
    values
}

fn all(recording: &Recording) -> Vec<usize> {
    (0..recording.arms.len()).collect()
}

/// The hashes of the kernels of these arms, cut short.
pub(super) fn hashes(recording: &Recording, arms: &[usize]) -> String {
    let all = values_of_arms(recording, arms, env::KERNEL_HASH);
    match all.is_empty() {
        true => "?".into(),
        false => {
            let short: Vec<String> = all.into_iter().map(|hash| printable(hash, 12)).collect();
            short.join(" and ")
        }
    }
}

/// A note on arms of several architectures, and the options in which their kernels differ; none
/// with a single one.
pub(crate) fn architectures(recording: &Recording) -> Vec<Note> {
    architectures_of(recording, &all(recording))
}

/// The same for some arms.
pub(crate) fn architectures_of(recording: &Recording, arms: &[usize]) -> Vec<Note> {
    if values_of_arms(recording, arms, env::ARCH).len() < 2 {
        return Vec::new();
    }
    let of_all = facts_of_arms(recording, arms, env::ARCH);
    let mut notes = vec![Note::new("arch", format!("{of_all}: {}", facts::OTHER_CODE))];
    let of_arms = recording.notes.values().map(|notes| &notes.facts);
    let keys = std::iter::once(&recording.environment).chain(of_arms);
    let keys: BTreeSet<&String> = keys.flat_map(BTreeMap::keys).collect();
    let options = keys.into_iter().filter(|key| key.starts_with(env::CONFIG));
    let differing: Vec<String> = options
        .filter_map(|key| {
            let values = values_of_arms(recording, arms, key);
            let text = || printable(&values.join(" and "), 120);
            (values.len() > 1).then(|| format!("{} {}", facts::option(key), text()))
        })
        .collect();
    if !differing.is_empty() {
        notes.push(Note::new("config", format!("by arm: {}", differing.join(", "))));
    }
    notes
}

/// The kernel and the lab.
pub(crate) fn kernel(recording: &Recording) -> Note {
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 120));
    let of = |knob: &str, key: &str| {
        let arms = all(recording);
        let known = !values_of_arms(recording, &arms, key).is_empty();
        let fact = || known.then(|| facts_of_arms(recording, &arms, key));
        levels(recording, &arms, knob).or_else(fact)
    };
    let mut text = of("kernel", env::KERNEL).unwrap_or("not known".into());
    if let Some(mitigations) = of("mitigations", env::MITIGATIONS) {
        text.push_str(&format!(", mitigations {mitigations}"));
    }
    let lab = fact(env::LAB).unwrap_or("vm".into());
    Note::new("kernel", format!("{text}; lab {lab}"))
}

/// The blocks of these arms, and of their repeats with other seeds; of all arms if there are none.
pub(crate) fn blocks_of(recording: &Recording, arms: impl Iterator<Item = usize>) -> Vec<&Block> {
    let mut arms: BTreeSet<usize> = arms.collect();
    // One of several random seeds is shown for all.
    let family = |arm: usize| {
        let arm = &recording.arms[arm];
        arm.repeats().unwrap_or(&arm.name)
    };
    let families: BTreeSet<&str> = arms.iter().map(|arm| family(*arm)).collect();
    arms.extend((0..recording.arms.len()).filter(|arm| families.contains(family(*arm))));
    let shown = |block: &&Block| arms.is_empty() || arms.contains(&(block.arm as usize));
    recording.blocks.iter().filter(shown).collect()
}

/// The ledger of the packets of these arms; of all arms if there are none.
pub(crate) fn ledger(recording: &Recording, arms: impl Iterator<Item = usize>) -> Note {
    let blocks = blocks_of(recording, arms);
    let offered: u64 = blocks.iter().map(|b| b.ledger.offered).sum();
    let delivered: u64 = blocks.iter().map(|b| b.ledger.delivered).sum();
    let mut dropped: BTreeMap<&str, u64> = BTreeMap::new();
    for block in &blocks {
        for (cause, packets) in &block.ledger.dropped {
            *dropped.entry(cause).or_default() += packets;
        }
    }
    let invalid = blocks.iter().filter(|b| !b.ledger.closes()).count();
    let mut line = format!("{} offered, {} delivered", thousands(offered), thousands(delivered));
    for (cause, packets) in dropped {
        line.push_str(&format!(", {} dropped ({})", thousands(packets), printable(cause, 60)));
    }
    if invalid > 0 {
        line.push_str(&format!(
            "; INVALID: in {invalid} of {} packets are missing without a cause",
            counted(blocks.len(), "block")
        ));
    }
    Note { warning: invalid > 0, ..Note::new("packets", line) }
}
