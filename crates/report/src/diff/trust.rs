//! The footer under a comparison: the figures' meaning, the basis of the verdicts, and missing
//! data.

use std::collections::BTreeSet;

use netplumb_model::recording::{Recording, env};
use netplumb_stats::judge::FALSE_RATE;

use super::arms::NO_ARMS;
use super::{ClassDiff, Diff, ExactVerdict, Judge, facts};
use crate::footer::Note;
use crate::interval;
use crate::number::{counted, printable};
use crate::shape::{Shape, shape};
use crate::trust::common::below;
use crate::trust::devices::devices;

/// The notes of the footer.
pub(super) fn trust(diff: &Diff<'_>) -> Vec<Note> {
    let mut notes = of_all(diff);
    for (recording, side) in [(diff.sides.before, "before"), (diff.sides.after, "after")] {
        let note = below(recording);
        notes.extend(note.map(|note| Note::new("below", format!("{side}: {}", note.text))));
        let of_disks = devices(recording).into_iter();
        notes.extend(of_disks.map(|note| Note { text: format!("{side}: {}", note.text), ..note }));
    }
    notes
}

fn of_all(diff: &Diff<'_>) -> Vec<Note> {
    match diff.judge {
        _ if !diff.one_clock => vec![Note::new(
            "clocks",
            "instructions are counted to the instruction; nanoseconds are corrected for the \
             probes, and own time includes functions below that were not timed",
        )],
        Judge::Exact => of_counts(diff),
        Judge::Statistical => of_samples(diff),
    }
}

/// A fact of the machines of all pairs of arms: "max → cortex-a72", or the common value.
fn machines(diff: &Diff<'_>, key: &str) -> String {
    let pairs = diff.pairs();
    let none = pairs.is_empty().then_some(NO_ARMS);
    let mut all: Vec<String> = Vec::new();
    for pair in pairs.into_iter().chain(none) {
        let both = diff.sides.arms_of(pair);
        let [was, is] = both.map(|one| printable(one.fact(key).unwrap_or("?"), 120));
        let level = match was == is {
            true => is,
            false => format!("{was} → {is}"),
        };
        if !all.contains(&level) {
            all.push(level);
        }
    }
    match all.len() {
        1 => all.concat(),
        _ => format!("{}, by arm", all.join(" and ")),
    }
}

/// The same for figures that repeat exactly.
fn of_counts(diff: &Diff<'_>) -> Vec<Note> {
    let sides = diff.sides;
    let quick = |(recording, _): (&Recording, &str)| {
        recording.environment.get(env::QUICK).map(String::as_str) == Some("yes")
    };
    let quick = sides.recordings().any(quick);
    let exact = match quick {
        true => "kernel instructions executed, in quick mode within some tenths of a percent",
        false => "kernel instructions executed, to the instruction",
    };
    let mut notes = vec![
        Note::new(
            "clock",
            format!("{exact}; not time: no caches, no branch prediction, no contention"),
        ),
        Note::new(
            "machine",
            format!(
                "QEMU {} TCG, CPU {}, one vCPU; {}",
                machines(diff, env::QEMU),
                machines(diff, env::CPU),
                machines(diff, env::REP)
            ),
        ),
    ];
    let counted_classes = || diff.classes.iter().filter_map(|c| c.counted.as_ref());
    let blocks = || counted_classes().flat_map(|c| &c.blocks);
    let counts: BTreeSet<usize> = blocks().map(|b| b.blocks.len()).collect();
    let odd: usize = blocks().map(|b| b.odd.len()).sum();
    let varies = |c: &&ExactVerdict| c.blocks.iter().any(|b| !b.exact());
    let varying = counted_classes().filter(varies).count();
    let (least, most) = (counts.first().unwrap_or(&0), counts.last().unwrap_or(&0));
    let mut text = match least == most {
        true => format!("{most} a side"),
        false => format!("{least} to {most} a side"),
    };
    if odd == 0 && varying == 0 {
        text.push_str(", and the blocks of a side are equal to the instruction");
    }
    if odd > 0 {
        text.push_str(&format!(
            "; {odd} left out, in which something happened once (the others of that side and class \
             are equal to the instruction)"
        ));
    }
    if varying > 0 {
        text.push_str(&format!(
            "; in {varying} of {} they differ, and no change within their range is called one",
            counted(diff.classes.len(), "class")
        ));
    }
    notes.push(Note::new("blocks", text));
    notes.push(Note::new(
        "sums",
        "changes of functions, also of those too small to tell, add up to the change of the class",
    ));
    let same = std::ptr::eq(sides.before, sides.after);
    let mut lost = Vec::new();
    for (recording, side) in [(sides.before, "before "), (sides.after, "after ")] {
        if same && side == "after " {
            continue;
        }
        let side = if same { "" } else { side };
        lost.extend(recording.all_losses().map(|loss| {
            let (lost, meaning) = (printable(&loss.in_words(), 80), printable(&loss.meaning, 160));
            Note::new("loss", format!("{side}{lost}: {meaning}"))
        }));
    }
    if lost.is_empty() {
        lost.push(Note::new(
            "loss",
            "none: every call and return was matched, every instruction placed",
        ));
    }
    notes.extend(lost);
    notes
}

/// The same for blocks that are a sample.
fn of_samples(diff: &Diff<'_>) -> Vec<Note> {
    // Only of the compared arms: there may be others.
    let blocks = |recording: &Recording, arm: fn(&ClassDiff) -> usize| {
        let is_of = |arm: usize| recording.blocks.iter().filter(move |b| b.arm as usize == arm);
        let counts: BTreeSet<usize> =
            (diff.classes.iter()).map(|class| is_of(arm(class)).count()).collect();
        match (counts.first(), counts.last()) {
            (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
            (Some(count), _) => count.to_string(),
            (None, _) => "none".into(),
        }
    };
    let of = match shape(diff.sides.before) {
        Shape::Rates => "arms",
        Shape::Counts => "events",
        Shape::Hosts => "hosts",
        Shape::Costs | Shape::Times => "functions, stages or wholes",
    };
    let corrections = match shape(diff.sides.before) {
        Shape::Times => {
            "; the uncertainty of the corrections is in it where the sides were calibrated apart"
        }
        // Nothing is subtracted from costs and rates.
        Shape::Costs | Shape::Rates | Shape::Counts | Shape::Hosts => "",
    };
    let sampled = diff.classes.iter().any(|c| c.sampled);
    let (test, over) = match sampled {
        true => (
            "t-test over blocks, by how these vary, moderated by how those of all functions do and \
             never less than counted samples vary by themselves",
            "",
        ),
        false => ("Welch's test over blocks", ", over blocks"),
    };
    let mut notes = vec![
        Note::new(
            "blocks",
            format!(
                "{} of each arm before, {} after; a block is one measurement, however many packets it has",
                blocks(diff.sides.before, |class| class.arms.before),
                blocks(diff.sides.after, |class| class.arms.after)
            ),
        ),
        Note::new(
            "verdicts",
            format!(
                "{test}, with at most {:.0}% of the differences found among all {of} being false, and \
                 an interval that excludes no change",
                FALSE_RATE * 100.0
            ),
        ),
        Note::new(
            "interval",
            format!(
                "95% on the ratio of the means (Fieller's{over}); `and more` has no upper end, and \
                 `any` neither end{corrections}"
            ),
        ),
        Note::new(
            "smallest",
            "`could see`: the smallest change that such a run finds in four of five tries",
        ),
    ];
    for apart in [false, true] {
        let classes = || diff.classes.iter().filter(|c| c.apart == apart);
        let rows = classes().flat_map(ClassDiff::rows);
        let judged = rows.filter_map(|r| Some((r.name.as_str(), r.judged.statistically()?)));
        let noise = interval::noise(judged, apart);
        notes.extend(noise.map(|text| Note::new("noise", text)));
    }
    if diff.classes.iter().any(ClassDiff::is_share) {
        let of = match diff.sides.after.root() {
            Some(_) => "the samples below the function",
            None => "all samples",
        };
        let text = format!(
            "of {of} in a block's window, since nobody counted packets: neither its length nor \
             how busy the machine was is in them; what takes less makes the shares of others larger"
        );
        notes.push(Note::new("shares", text));
    }
    if sampled && !facts::drifts(diff.sides) {
        notes.push(Note::new("drift", "none: what a guest executes is the same whenever it runs"));
    }
    if sampled && diff.classes.iter().any(|c| c.apart) {
        notes.push(Note::new(
            "drift",
            "sides that did not take turns differ only if they do by more than the halves of each \
             make likely, of all functions together and of each; the interval includes it",
        ));
    } else if diff.classes.iter().any(|c| c.apart) {
        notes.push(Note::new(
            "drift",
            "sides that did not take turns differ only if they do by more than a random walk with the \
             steps from block to block makes; the interval includes it",
        ));
    }
    notes
}
