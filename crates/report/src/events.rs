//! Counts of events: as tables for terminals, CSV, JSON, Markdown and the page.

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
use serde::Serialize;

use crate::acting;
use crate::analysis;
use crate::claims::{self, Judged};
use crate::conclusions;
use crate::footer::{self, Note};
use crate::html::{facts, title, warnings};
use crate::json::{Common, pretty};
use crate::number::{counted, printable, thousands};
use crate::page::{Page, PageTable, SCHEMA};
use crate::summary::sent;
use crate::table::{Room, Table, Value};
use crate::text::{continued, prose};
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

/// For programs.
fn table(recording: &Recording) -> Table<'_, EventRow<'_>> {
    of_rows(rows(recording))
}

/// For people.
fn short_table(recording: &Recording) -> Table<'_, EventRow<'_>> {
    of_rows(shown(recording))
}

fn of_rows<'r>(rows: Vec<EventRow<'r>>) -> Table<'r, EventRow<'r>> {
    Table::new(columns::counts(&rows), rows)
}

fn ratios<'r>(
    recording: &'r Recording,
    experiment: Option<&Experiment>,
) -> Option<Table<'r, Divided>> {
    let ratios = &experiment?.events.ratios;
    let rows = divided(recording, ratios);
    (!rows.is_empty()).then(|| Table::new(columns::ratios(&rows), rows))
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

/// For a terminal. `exact` has lines on the same arms, from [`CrossQuantity`](crate::together::CrossQuantity).
pub fn terminal(
    recording: &Recording,
    experiment: Option<&Experiment>,
    exact: &[String],
    columns: usize,
) -> String {
    let mut out = String::new();
    for line in heading(recording).iter().chain(exact) {
        out.push_str(&continued(line, 3, columns));
        out.push('\n');
    }
    out.push('\n');
    let room = Room::new(columns, NAME_LETTERS);
    out.push_str(&short_table(recording).terminal(room));
    if columns < columns::WIDE {
        // Where the table has no room for reasons.
        for (name, why) in recording.not_measured.get(INSTRUMENT).into_iter().flatten() {
            let (name, why) = (printable(name, NAME_LETTERS), printable(why, ARM_LETTERS));
            out.push_str(&continued(&format!("   {name}: {why}"), 5, columns));
            out.push('\n');
        }
    }
    if let Some(ratios) = ratios(recording, experiment) {
        out.push('\n');
        out.push_str(&ratios.terminal(Room::new(columns, NAME_LETTERS)));
    }
    out.push_str(&callers(recording));
    out.push('\n');
    let judged = judged(recording, experiment);
    if let Some(experiment) = experiment {
        out.push_str(&claims::render(&judged, columns));
        out.push_str(&conclusions::render(experiment, &judged, None, columns));
    }
    out.push_str(&footer::terminal(&trust(recording), columns));
    out
}

/// An experiment's claims, judged by the counts.
fn judged(recording: &Recording, experiment: Option<&Experiment>) -> Vec<Judged> {
    experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording))
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
            out.push_str(&format!(
                "\n{}: who caused it, per {}{}\n",
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

/// As CSV (RFC 4180), a line for each event.
pub fn csv(recording: &Recording) -> String {
    table(recording).csv()
}

#[derive(Serialize)]
struct EventsJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    arms: &'a [Arm],
    events: Vec<Value>,
    ratios: Vec<Value>,
}

/// As JSON. docs/reference/json.md describes it for users.
pub fn json(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let ratios = ratios(recording, experiment);
    pretty(&EventsJson {
        common: Common::new(recording, experiment, judged(recording, experiment), trust(recording)),
        arms: &recording.arms,
        events: table(recording).json(),
        ratios: ratios.map_or_else(Vec::new, |ratios| ratios.json()),
    })
}

/// As GitHub-flavoured Markdown.
pub fn markdown(
    recording: &Recording,
    experiment: Option<&Experiment>,
    exact: &[String],
) -> String {
    let mut out = String::from("# Counts of events\n\n");
    for line in heading(recording).iter().chain(exact) {
        out.push_str(&format!("{}\n\n", prose(line, ARM_LETTERS * 2)));
    }
    short_table(recording).markdown(&mut out);
    if let Some(ratios) = ratios(recording, experiment) {
        ratios.markdown(&mut out);
    }
    conclusions::markdown(experiment, &judged(recording, experiment), &mut out);
    out.push_str("## How it was measured\n\n");
    out.push_str(&footer::markdown(&trust(recording)));
    out
}

/// The page; `exact` lines are from other guests, where the same was counted exactly.
pub fn page(recording: &Recording, experiment: Option<&Experiment>, exact: &[String]) -> Page {
    let mut headline = heading(recording);
    headline.extend_from_slice(exact);
    let mut events: Vec<PageTable> = vec![short_table(recording).page("Events")];
    events.extend(ratios(recording, experiment).map(|ratios| ratios.page("Ratios")));
    Page {
        schema: SCHEMA,
        title: title(recording, experiment),
        headline,
        warnings: warnings(recording),
        facts: facts(recording),
        trust: trust(recording),
        claims: claims::page(judged(recording, experiment)),
        events,
        ..Page::default()
    }
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
