//! Notes on times between events, which belong to no packet: their events, and a ledger of the times
//! that began.

use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Arm, Recording};
use netplumb_model::spans::{
    APART, BEGUN, ENDED, ENOUGH, INSTRUMENT, OPEN, PROGRAMS, RUNS, SEEN, SLOW, STACKS, THRESHOLD,
    UNMATCHED,
};

use super::{instrument, ns};
use crate::analysis::quantity;
use crate::footer::Note;
use crate::number::{printable, thousands};
use crate::page::{PageHeat, PageHeatCell};
use crate::scalars::{by_label, sum};
use crate::shape::{Shape, shape};

/// Facts of a recording that the instrument has.
const EVENTS: &str = "spans.events";
const KEY: &str = "spans.key";
const LIMIT: &str = "spans.slow";
const PROBES: &str = "spans.probes";
/// Letters of names of events.
const EVENT_LETTERS: usize = 300;
/// Columns of a picture over time.
const COLUMNS: u64 = 160;

/// Whether a recording has times between events.
pub(crate) fn is_of(recording: &Recording) -> bool {
    instrument(recording) == Some(INSTRUMENT)
}

/// The events, in their order.
pub(super) fn events(recording: &Recording) -> String {
    let events = recording.environment.get(EVENTS);
    events.map_or_else(|| "the events".into(), |events| printable(events, EVENT_LETTERS))
}

/// Figures that are only in the footer.
pub(super) const OF_FOOTER: [&Declared; 8] =
    [&BEGUN, &ENDED, &OPEN, &UNMATCHED, &APART, &SEEN, &PROGRAMS, &RUNS];

/// Notes for the footer.
pub(super) fn notes(recording: &Recording) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(key) = recording.environment.get(KEY) {
        notes.push(Note::new("paired by", printable(key, 100)));
    }
    if let Some(why) = recording.environment.get(PROBES) {
        let text =
            format!("functions are probed by kprobes, which take longer: {}", printable(why, 300));
        notes.push(Note::new("probes", text));
    }
    notes.extend(limit(recording).map(|limit| {
        let text = match limit {
            Limit::Applied(text) => text,
            Limit::Never(why) => format!("none: {why}"),
        };
        Note::new("slow", text)
    }));
    notes.push(Note::new("ledger", ledger(recording)));
    notes.extend(without_spans(recording));
    let apart = by_label(recording, &APART, |_| true);
    let apart: Vec<String> = (apart.iter())
        .map(|(cause, count)| format!("{} {}", printable(cause, 60), thousands(*count as u64)))
        .collect();
    if !apart.is_empty() {
        let text = format!("events of nothing that had begun: {}", apart.join(", "));
        notes.push(Note::new("apart", text));
    }
    let seen = by_label(recording, &SEEN, |_| true);
    let seen: Vec<String> = (seen.iter())
        .map(|(event, count)| format!("{} {}", printable(event, 80), thousands(*count as u64)))
        .collect();
    notes.push(Note::new("seen", seen.join(", ")));
    let (run_ns, runs) = (sum(recording, &PROGRAMS), sum(recording, &RUNS));
    notes.push(Note::new(
        "cost",
        match runs > 0.0 {
            true => format!(
                "{:.0} ns of programs at each event, {} in all, which is in what was measured; with what \
                 calls them it is more",
                run_ns / runs,
                ns(run_ns)
            ),
            false => "not known: the kernel did not count the programs' time".into(),
        },
    ));
    notes
}

/// The arms in which no time ended, so that they have no row, where others have: a scheduler without a queue,
/// for example, never inserts a request into it.
fn without_spans(recording: &Recording) -> Vec<Note> {
    let note = |(number, arm): (usize, &Arm)| {
        let is_of = |block: u32| {
            let block = recording.blocks.get(block as usize);
            block.is_some_and(|b| b.arm as usize == number)
        };
        let mut ended = (recording.scalars_of(&ENDED))
            .filter(|scalar| scalar.block().is_some_and(is_of))
            .peekable();
        ended.peek()?;
        if ended.any(|scalar| scalar.value > 0.0) {
            return None;
        }
        let seen = by_label(recording, &SEEN, is_of);
        let never: Vec<String> = (seen.iter())
            .filter(|(_, count)| **count == 0.0)
            .map(|(event, _)| printable(event, 80))
            .collect();
        let why = match never.is_empty() {
            true => "though each event occurred".into(),
            false => format!("as these did not occur: {}", never.join(", ")),
        };
        let name = printable(&arm.name, 60);
        let text = format!("none ended in {name}, which has no row, {why}");
        Some(Note::warning("ended", text))
    };
    match recording.arms.len() {
        // Its ledger shows it.
        1 => Vec::new(),
        _ => (recording.arms.iter().enumerate()).filter_map(note).collect(),
    }
}

/// The limit above which a time is slow.
enum Limit {
    /// "longer than 10.0ms".
    Applied(String),
    /// Why no limit was applied.
    Never(String),
}

/// The limit for slow times, if one was requested.
fn limit(recording: &Recording) -> Option<Limit> {
    let slow = recording.environment.get(LIMIT)?;
    let last = recording.scalars_of(&THRESHOLD).last().map(|s| s.value);
    let is_share = slow.starts_with('p');
    let slow = printable(slow, 30);
    Some(match (is_share, last) {
        (true, Some(at)) => Limit::Applied(format!(
            "longer than {slow} of all that ended before, which was {} in the end",
            ns(at)
        )),
        (true, None) => Limit::Never(format!(
            "{slow} is known once {ENOUGH} have ended, and {} did; measure for longer, or use a time \
             like 10ms",
            thousands(sum(recording, &ENDED).max(0.0) as u64)
        )),
        (false, at) => Limit::Applied(format!("longer than {}", at.map_or(slow, ns))),
    })
}

/// Why a call graph of times between events is empty; none if it is not, or for any other
/// recording.
pub fn nothing(recording: &Recording) -> Option<String> {
    let quantity = quantity(recording);
    let is_of = |of: &Declared| shape(recording) == Shape::Costs && quantity.is(of);
    if !recording.costs.is_empty() || recording.blocks.is_empty() {
        return None;
    }
    match limit(recording) {
        _ if is_of(&STACKS) => Some("none ended".into()),
        Some(Limit::Applied(text)) if is_of(&SLOW) => Some(format!("none took {text}")),
        Some(Limit::Never(why)) if is_of(&SLOW) => Some(format!("none is slow: {why}")),
        _ => None,
    }
}

/// The ledger: begun = ended + open + unmatched.
fn ledger(recording: &Recording) -> String {
    let whole = |of: &Declared| sum(recording, of).max(0.0) as u64;
    let (begun, ended, unmatched) = (whole(&BEGUN), whole(&ENDED), whole(&UNMATCHED));
    // At the end of each block, or of the last one where they follow each other.
    let open = whole(&OPEN);
    let causes = by_label(recording, &UNMATCHED, |_| true);
    let causes: Vec<String> = (causes.iter())
        .map(|(cause, count)| format!("{} {}", printable(cause, 60), thousands(*count as u64)))
        .collect();
    let causes = match causes.is_empty() {
        true => String::new(),
        false => format!(" ({})", causes.join(", ")),
    };
    let text = format!(
        "{} begun = {} ended + {} open + {} unmatched{causes}",
        thousands(begun),
        thousands(ended),
        thousands(open),
        thousands(unmatched)
    );
    // A run that was killed has not counted what was open.
    match begun == ended + open + unmatched || !recording.complete {
        true => text,
        false => format!("INVALID: {text} is not so: events were missed"),
    }
}

/// A picture of times over time.
pub(super) fn heat(recording: &Recording) -> Option<PageHeat> {
    let end_ns = (recording.slices.iter())
        .map(|slice| slice.begin_ns.saturating_add(slice.duration_ns))
        .max()?;
    // No slice is longer than a column, or there would be gaps.
    let longest = recording.slices.iter().map(|slice| slice.duration_ns).max();
    let column_ns = end_ns.div_ceil(COLUMNS).max(longest.unwrap_or(0)).max(1);
    let mut cells: std::collections::BTreeMap<(u64, u16), u64> = Default::default();
    for slice in &recording.slices {
        let column = (slice.begin_ns + slice.duration_ns / 2) / column_ns;
        for (bucket, count) in &slice.buckets {
            let cell = cells.entry((column, *bucket)).or_default();
            *cell = cell.saturating_add(*count);
        }
    }
    let cells =
        cells.into_iter().map(|((column, bucket), count)| PageHeatCell { column, bucket, count });
    Some(PageHeat {
        title: format!("From {}", events(recording)),
        column_ns,
        cells: cells.collect(),
    })
}
