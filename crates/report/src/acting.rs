//! Settings that could not act where they were measured, or were already in effect, as noted by the run:
//! the lack of a difference then shows nothing about them.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::experiment::Idle;
use netplumb_model::experiment::acting::{called, setting};
use netplumb_model::recording::Recording;

use crate::footer::Note;
use crate::number::printable;

/// The most letters of a reason.
const WHY_LIMIT: usize = 280;
const KNOB_LIMIT: usize = 60;
const FAILED_LIMIT: usize = 400;

/// An arm's settings that could not act, by their keys.
fn idle(recording: &Recording, arm: usize) -> BTreeMap<String, Idle> {
    let notes = recording.notes.get(&(arm as u32));
    notes
        .iter()
        .flat_map(|notes| &notes.inert)
        .map(|(key, why)| {
            let idle =
                Idle { knob: printable(called(key), KNOB_LIMIT), why: printable(why, WHY_LIMIT) };
            (key.to_string(), idle)
        })
        .collect()
}

/// The most arms that a note names.
const ARMS: usize = 4;

/// Notes for a footer: settings that could not act, had no effect or were rounded, why, and in which arms, unless in
/// all; and arms that could not be measured. A scan reports its settings itself.
pub(crate) fn footer(recording: &Recording) -> Vec<Note> {
    let arms = 0..recording.arms.len();
    let shown: Vec<usize> = arms
        .filter(|arm| {
            let arm = &recording.arms[*arm];
            arm.scanned().is_none() && arm.repeats().is_none()
        })
        .collect();
    // In the order in which they are shown.
    let mut found: BTreeMap<(&'static str, String), Vec<usize>> = BTreeMap::new();
    for arm in &shown {
        let mut add = |label, text| found.entry((label, text)).or_default().push(*arm);
        for idle in idle(recording, *arm).into_values() {
            add("idle", idle.to_string());
        }
        let notes = recording.notes.get(&(*arm as u32));
        for (key, why) in notes.iter().flat_map(|notes| &notes.facts) {
            let label = match key.split_once('.') {
                Some(("no_effect", _)) => "no effect",
                Some(("rounded", _)) => "rounded",
                _ => continue,
            };
            add(label, printable(why, WHY_LIMIT));
        }
    }
    let line = |((label, text), of): ((&'static str, String), Vec<usize>)| {
        let names = of.iter().take(ARMS);
        let names: Vec<String> =
            names.map(|arm| printable(&recording.arms[*arm].name, KNOB_LIMIT)).collect();
        let more = match of.len().saturating_sub(ARMS) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let which = match of.len() == shown.len() {
            true => String::new(),
            false => format!(" (in {}{more})", names.join(", ")),
        };
        Note::new(label, format!("{text}{which}"))
    };
    let mut notes: Vec<Note> = found.into_iter().map(line).collect();
    // And the arms that could not be measured at all.
    for (number, of_arm) in &recording.notes {
        let arm = recording.arms.get(*number as usize);
        for why in of_arm.failed.values().filter(|_| shown.contains(&(*number as usize))) {
            let name = arm.map_or_else(String::new, |arm| printable(&arm.name, KNOB_LIMIT));
            let why: Vec<&str> = why.lines().map(str::trim).collect();
            let text = format!("arm {name}: {}", printable(&why.join(" "), FAILED_LIMIT));
            notes.push(Note::warning("unavailable", text));
        }
    }
    notes
}

/// Why the scanned setting of an arm could not act; none if it could.
pub(crate) fn of_scanned(recording: &Recording, arm: usize) -> Option<String> {
    let (_, setting, _) = recording.arms[arm].scanned()?;
    let idle = idle(recording, arm);
    let of_setting = |key: &str| {
        let key = key.strip_prefix("sysctl.").unwrap_or(key);
        let rest = setting.strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with([':', '=']))
    };
    let found = idle.into_iter().find(|(key, _)| of_setting(key));
    found.map(|(_, idle)| idle.why)
}

/// The settings in which two arms differ and that could act in neither; and whether the
/// arms differ in nothing else.
pub(crate) fn between(
    (before, was): (&Recording, usize),
    (after, is): (&Recording, usize),
) -> (Vec<Idle>, bool) {
    let sides = [(before, was), (after, is)];
    let arms = sides.map(|(recording, arm)| &recording.arms[arm]);
    let known = sides.map(|(recording, arm)| idle(recording, arm));
    let level = |side: usize, key: &str| arms[side].knobs.get(key);
    let keys = arms.iter().flat_map(|arm| arm.knobs.keys());
    let differing: BTreeSet<&str> =
        keys.filter(|key| level(0, key) != level(1, key)).map(|key| setting(key)).collect();
    let has = |side: usize, of: &str| arms[side].knobs.keys().any(|key| setting(key) == of);
    let mut found = Vec::new();
    for key in &differing {
        let idle_where_set = (0..2).all(|side| !has(side, key) || known[side].contains_key(*key));
        let why = known.iter().find_map(|side| side.get(*key));
        found.extend(why.filter(|_| idle_where_set).cloned());
    }
    let sent = |side: usize| {
        let arm = arms[side];
        (arm.proto, arm.family, arm.link, arm.forward, arm.size_bytes)
    };
    let all = found.len() == differing.len() && sent(0) == sent(1);
    (found, all)
}

/// For the end of a sentence: "; gro could not act: one packet at a time leaves nothing to
/// merge". With a difference all the same and no other setting, an explanation of it: an
/// enabled setting may cost something even without work.
pub(crate) fn idle_text(idle: &[Idle], alone: bool, differs: bool) -> String {
    if idle.is_empty() {
        return String::new();
    }
    if !(alone && differs) {
        let all: Vec<String> = idle.iter().map(Idle::to_string).collect();
        return format!("; {}", all.join("; "));
    }
    let all: Vec<String> =
        (idle.iter()).map(|idle| format!("{}: {}", idle.knob, idle.why)).collect();
    format!("; {}; the difference is what having it costs", all.join("; "))
}
