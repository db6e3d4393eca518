//! Counts of events, judged by blocks: per run, packet or second.

use std::collections::BTreeSet;

use netplumb_model::class::{Class, Direction, Proto};
use netplumb_model::events::{COUNT, TIME};
use netplumb_model::recording::Recording;
use netplumb_stats::judge::{Pair, judge};

use super::arms::{ArmPair, Pairs};
use super::row::{DiffRow, Judged};
use super::{ClassDiff, Sides, labels};
use crate::events::counted::EventCount;
use crate::events::rows::counts;
use crate::number::printable;

/// An event before and after, still to be judged.
struct Pending<'a> {
    class: usize,
    name: &'a str,
    focus: &'a str,
    pair: Pair,
}

/// Pairs of arms, and in each the counts and the clocks.
pub(super) fn classes(sides: Sides<'_>, paired: &Pairs) -> Vec<ClassDiff> {
    let (before, after) = (counts(sides.before), counts(sides.after));
    let several = paired.pairs.len() > 1 || std::ptr::eq(sides.before, sides.after);
    let labels = match several {
        true => labels::labels(sides, &paired.pairs),
        false => vec![String::new(); paired.pairs.len()],
    };
    let (mut classes, mut pending) = (Vec::new(), Vec::new());
    for (arms, label) in paired.pairs.iter().zip(labels) {
        for is_time in [false, true] {
            let of = |all: &'_ [EventCount<'_>], arm: usize| -> Vec<usize> {
                let is = |c: &EventCount<'_>| c.arm == arm && !c.is_part() && c.is_time == is_time;
                (0..all.len()).filter(|n| is(&all[*n])).collect()
            };
            let was: Vec<&EventCount<'_>> =
                of(&before, arms.before).into_iter().map(|n| &before[n]).collect();
            let is: Vec<&EventCount<'_>> =
                of(&after, arms.after).into_iter().map(|n| &after[n]).collect();
            let (Some(first), false) = (is.first(), was.is_empty()) else {
                continue;
            };
            let label = match (is_time, label.as_str()) {
                (true, "") => "clocks".into(),
                (true, label) => format!("{label}; clocks"),
                (false, label) => label.into(),
            };
            let mut class = class(sides, *arms, label, is_time, first.per_all.word());
            let names = |all: &[&EventCount<'_>]| -> BTreeSet<String> {
                all.iter().map(|c| c.name.to_string()).collect()
            };
            let (known, new) = (names(&was), names(&is));
            class.one_side = known.symmetric_difference(&new).map(|n| printable(n, 80)).collect();
            for after in &is {
                let Some(before) = was.iter().find(|c| c.name == after.name) else {
                    continue;
                };
                pending.push(Pending {
                    class: classes.len(),
                    name: after.name,
                    focus: after.focus(),
                    pair: Pair {
                        before: before.each(),
                        after: after.each(),
                        shared: [0.0; 2],
                        apart: class.apart,
                        counting: None,
                    },
                });
            }
            classes.push(class);
        }
    }
    let pairs: Vec<Pair> = pending.iter().map(|p| p.pair.clone()).collect();
    for (one, judged) in pending.iter().zip(judge(&pairs)) {
        let row = DiffRow::new(one.name, one.focus, Judged::Statistically(judged));
        classes[one.class].functions.push(row);
    }
    classes.retain(|class| !class.functions.is_empty());
    classes
}

/// A note if events were counted only part of the time on a side.
pub(super) fn shared(sides: Sides<'_>) -> Option<String> {
    let all = counts(sides.before).into_iter().chain(counts(sides.after));
    let names: BTreeSet<String> =
        all.filter(EventCount::is_shared).map(|c| printable(c.name, 80)).collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        format!(
            "counted part of the time, for lack of counters, and not scaled: {}; count fewer at once to \
             compare them",
            names.join(", ")
        )
    })
}

fn class(
    sides: Sides<'_>,
    arms: ArmPair,
    label: String,
    is_time: bool,
    per: &'static str,
) -> ClassDiff {
    let of = |recording: &Recording, arm: usize| Class {
        proto: recording.arms.get(arm).map_or(Proto::Work, |arm| arm.proto),
        direction: Direction::Run,
    };
    let classes = [of(sides.before, arms.before), of(sides.after, arms.after)];
    let unit = if is_time { TIME.unit } else { COUNT.unit };
    ClassDiff::empty(sides, arms, classes, label, (per, unit.into()))
}
