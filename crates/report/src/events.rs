//! Counts of events: a document of their tables, and of the call graphs that caused them.

pub(crate) mod columns;
pub(crate) mod counted;
pub(crate) mod exact;
pub(crate) mod layers;
pub(crate) mod rows;

use std::iter;

use netplumb_model::class::Proto;
use netplumb_model::events::{BROKEN_DOWN, By, COUNT, INSTRUMENT};
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Recording, Total};
use netplumb_model::timing::OWN_CPU;

use crate::acting;
use crate::analysis;
use crate::document::Document;
use crate::footer::Note;
use crate::number::{counted, printable, thousands};
use crate::section::{Reader, Section};
use crate::summary::sent;
use crate::table::Table;
use crate::tree;
use crate::trust::common::{CUT_SHORT, kernel, ledger, lost};
use crate::trust::devices::devices;
#[cfg(test)]
pub(crate) use columns::declared;
use columns::with_unit;
use rows::{Divided, EventRow, divided, rows, shown};

/// Letters of an event's name.
const NAME_LETTERS: usize = 48;
/// Smaller branches of a call graph are left out.
const SMALLEST_PERCENT: f64 = 2.0;
/// Letters of an arm's name in a heading.
const ARM_LETTERS: usize = 200;

fn of_rows<'r>(rows: Vec<EventRow<'r>>) -> Table<'r, EventRow<'r>> {
    Table::new(columns::counts(&rows), rows)
}

fn ratios<'r>(recording: &'r Recording, experiment: Option<&Experiment>) -> Table<'r, Divided> {
    let rows = experiment.map_or_else(Vec::new, |e| divided(recording, &e.events.ratios));
    Table::new(columns::ratios(&rows), rows)
}

/// What was counted, in a line for each arm.
fn heading(recording: &Recording) -> Vec<String> {
    let line = |(number, arm): (usize, &Arm)| {
        let blocks = (recording.blocks.iter())
            .filter(|b| b.arm as usize == number && b.instrument == INSTRUMENT);
        let duration_ns: f64 = blocks.clone().map(|b| b.duration_ns as f64).sum();
        let (what, noun) = match arm.proto {
            Proto::Command => (printable(&arm.name, ARM_LETTERS), "run"),
            Proto::Work => (printable(&arm.name, ARM_LETTERS), "window"),
            _ => (format!("{}: {}", printable(&arm.name, 80), sent(arm)), "block"),
        };
        let blocks = counted(blocks.count(), noun);
        format!("Events of {what}, {blocks}, {}", with_unit(duration_ns))
    };
    recording.arms.iter().enumerate().map(line).collect()
}

/// The document of counts. `exact` has lines on the same arms, from
/// [`CrossQuantity`](crate::together::CrossQuantity).
pub fn document<'r>(
    recording: &'r Recording,
    experiment: Option<&'r Experiment>,
    exact: &[String],
) -> Document<'r> {
    let mut headline = heading(recording);
    headline.extend_from_slice(exact);
    let counts = Section::rows(NAME_LETTERS, move |reader| match reader {
        Reader::Program => of_rows(rows(recording)),
        Reader::People | Reader::Page => of_rows(shown(recording)),
    });
    let reasons = recording.not_measured.get(INSTRUMENT).into_iter().flatten();
    let reasons = reasons.map(|(name, why)| {
        format!("{}: {}", printable(name, NAME_LETTERS), printable(why, ARM_LETTERS))
    });
    let counts = counts.caption("Events").narrow(columns::WIDE, reasons.collect());
    let ratios = Section::rows(NAME_LETTERS, move |_| ratios(recording, experiment));
    let sections = vec![
        Section::data("arms", &recording.arms),
        counts.key("events").place("events", "Events"),
        ratios.caption("Ratios").key("ratios").place("events", "Events"),
        Section::text(move |_| callers(recording)),
    ];
    Document::new(recording, experiment, "Counts of events", sections, trust(recording))
        .headline(headline)
}

/// The costs beside the counts, as a separate recording.
fn graph(recording: &Recording) -> Recording {
    let mut graph = recording.clone();
    for (number, block) in (0..).zip(&mut graph.blocks) {
        let of_block = recording.costs.iter().filter(|cost| cost.block == number);
        if let Some(first) = of_block.clone().next() {
            block.totals = vec![Total {
                quantity: first.quantity,
                kernel: of_block.map(|cost| cost.own).sum(),
                user: 0,
            }];
        }
    }
    graph
}

/// The call graph of the code that caused events, if it was requested.
fn callers(recording: &Recording) -> String {
    let by = recording.environment.get(BROKEN_DOWN).map(String::as_str);
    if by != Some(By::Stack.as_str()) {
        return String::new();
    }
    let mut out = String::new();
    let graph = graph(recording);
    let mut events: Vec<&str> = Vec::new();
    for scalar in recording.scalars_of(&COUNT) {
        let name = scalar.item.label.as_deref();
        events.extend(name.filter(|name| !events.contains(name)));
    }
    for event in events {
        let of_event = graph.below(event);
        for class in analysis::classes(&of_event).iter().filter(|c| c.total > 0) {
            let rule = if out.is_empty() { "" } else { "\n" };
            out.push_str(&format!(
                "{rule}{}: who caused it, per {}{}\n",
                printable(event, NAME_LETTERS),
                class.per.word(),
                match recording.arms.len() {
                    0 | 1 => String::new(),
                    _ => format!(", {}", printable(&class.arm().name, ARM_LETTERS)),
                }
            ));
            out.push_str(&tree::render(class, None, SMALLEST_PERCENT));
        }
    }
    out
}

/// The cost of counting each event.
fn cost(recording: &Recording) -> String {
    let own_ns: f64 = (recording.scalars_of(&OWN_CPU)).map(|s| s.value).sum();
    format!(
        "programs at the events, and naming the stacks, took {} of CPU time; events take longer by the programs",
        with_unit(own_ns)
    )
}

/// The meaning of the counts, and how far to trust them.
fn trust(recording: &Recording) -> Vec<Note> {
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 120));
    let scope = fact("events.scope").map_or_else(String::new, |scope| format!(", of {scope}"));
    let has_losses = recording.losses.get(INSTRUMENT).is_some_and(|all| !all.is_empty());
    let how = match has_losses {
        true => "no count is scaled",
        false => "none is lost, however many there are, and no count is scaled",
    };
    let mut notes = vec![
        Note::new("counted", format!("by the kernel, where events happen{scope}: {how}")),
        kernel(recording),
    ];
    if recording.environment.contains_key(BROKEN_DOWN) {
        notes.push(Note::new("cost", cost(recording)));
    }
    notes.extend(devices(recording));
    notes.extend(acting::footer(recording));
    if let Some(scope) = fact("events.scope_of_functions") {
        let text = format!("calls of functions are counted in {scope}, whatever else is not");
        notes.push(Note::new("functions", text));
    }
    if let Some(why) = fact("events.probed") {
        let text = format!("functions are probed by kprobes, which take longer: {why}");
        notes.push(Note::new("probes", text));
    }
    if recording.blocks.iter().any(|b| b.ledger.offered > 0) {
        notes.push(ledger(recording, iter::empty()));
    }
    let shared = rows(recording).iter().filter(|row| row.is_shared()).count();
    if shared > 0 {
        notes.push(Note::warning(
            "shared",
            format!(
                "{} counted part of the time, for lack of counters: compare none of these with others; count \
                 fewer at once",
                match shared {
                    1 => "1 event was".into(),
                    n => format!("{} events were", thousands(n as u64)),
                }
            ),
        ));
    }
    let missing = recording.not_measured.get(INSTRUMENT).map_or(0, |all| all.len());
    if missing > 0 {
        notes.push(Note::warning(
            "missing",
            format!(
                "{} the reason beside it; plumb doctor --events shows what this machine counts",
                match missing {
                    1 => "1 event was not counted, for".into(),
                    n => format!("{} events were not counted, each for", thousands(n as u64)),
                }
            ),
        ));
    }
    if rows(recording).iter().any(EventRow::has_interval) {
        notes.push(Note::new("interval", "95%, of the mean over blocks (Student's)"));
    }
    let losses = lost(recording, "none", CUT_SHORT);
    notes.extend(losses.into_iter().filter(|note| note.warning));
    notes
}

#[cfg(test)]
mod tests;
