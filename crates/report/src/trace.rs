//! Single calls: as trees on a terminal, as JSON, on the page; and in Perfetto's format, as also
//! for packets.

pub(crate) mod json;
pub(crate) mod page;
pub mod perfetto;
mod tree;

#[cfg(test)]
mod tests;

use netplumb_model::calls::{OfCalls, TIMED};
use netplumb_model::class::Context;
use netplumb_model::experiment::Experiment;
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{Block, Recording};
use netplumb_model::trace::{Flags, Step, Trace};

use crate::number::{counted, printable, thousands};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;
use tree::Tree;

/// Letters of a name in a heading.
const NAME_LETTERS: usize = 100;
/// The most lines of a tree, unless its call was selected.
const MOST_LINES: usize = 300;
/// Rows of calls in a table.
const MOST_ROWS: usize = 40;

/// Whether calls were traced.
pub fn is_of_calls(recording: &Recording) -> bool {
    OfCalls::in_recording(recording).is_some()
}

/// The kept calls that are shown as trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownCalls {
    /// The first, and the most expensive one.
    Typical,
    /// Calls by number, from 1; whole.
    Calls(Vec<u64>),
}

/// The calls of a block.
struct OfBlock<'r> {
    recording: &'r Recording,
    of: &'static OfCalls,
    number: u32,
    block: &'r Block,
    calls: Vec<&'r Trace>,
}

impl<'r> OfBlock<'r> {
    /// Blocks in which calls were traced.
    fn all(recording: &'r Recording) -> Vec<OfBlock<'r>> {
        let Some(quantities) = OfCalls::in_recording(recording) else {
            return Vec::new();
        };
        let numbers = recording.scalars_of(&quantities.calls);
        let numbers = numbers.filter_map(|s| s.block());
        let of = |number: u32| {
            let calls = recording.call_traces();
            Some(OfBlock {
                recording,
                of: quantities,
                number,
                block: recording.blocks.get(number as usize)?,
                calls: calls.filter(|t| t.block == Some(number)).collect(),
            })
        };
        numbers.filter_map(of).collect()
    }

    fn count(&self, quantity: &netplumb_model::quantity::Declared) -> u64 {
        let mut all = self.recording.scalars_of(quantity);
        all.find(|s| s.of == Subject::Block(self.number)).map_or(0, |s| s.value as u64)
    }

    /// A figure of the calls' distribution.
    fn cost(&self, label: &str) -> Option<u64> {
        let mut all = self.recording.scalars_of(&self.of.cost);
        let is = |s: &&netplumb_model::quantity::Scalar| {
            s.of == Subject::Block(self.number) && s.item.label.as_deref() == Some(label)
        };
        all.find(is).map(|s| s.value as u64)
    }

    /// The arm, and the block if there are several.
    fn place(&self) -> String {
        let arm = self.recording.arms.get(self.block.arm as usize);
        let arm = printable(arm.map_or("", |arm| &arm.name), NAME_LETTERS);
        let same = |b: &&Block| b.arm == self.block.arm && b.instrument == self.block.instrument;
        match self.recording.blocks.iter().filter(same).count() {
            0 | 1 => arm,
            _ => format!("{arm}, block {}", self.block.index + 1),
        }
    }

    /// The calls in sentences.
    fn sentences(&self, function: &str, only: Option<&str>) -> Vec<String> {
        let calls = self.count(&self.of.calls);
        if calls == 0 {
            return vec![format!("{}: {function} was not called", self.place())];
        }
        let mut line = format!(
            "{}: {} of {function}, {} {}",
            self.place(),
            counted(calls as usize, "call"),
            thousands(self.cost("sum").unwrap_or(0)),
            self.of.step.unit,
        );
        if let Some(median) = self.cost("median").filter(|_| calls > 1) {
            let part = |label| thousands(self.cost(label).unwrap_or(0));
            line += &format!(
                "; per call {} to {}, median {}, 99% at most {}",
                part("min"),
                part("max"),
                thousands(median),
                part("p99")
            );
        }
        let mut lines = vec![line];
        if let Some(only) = only {
            let matched = self.count(&self.of.matched);
            lines.push(format!(
                "{} of them {} `{}`",
                thousands(matched),
                if matched == 1 { "matches" } else { "match" },
                printable(only, NAME_LETTERS)
            ));
        }
        let (recursive, unfinished) =
            (self.count(&self.of.recursive), self.count(&self.of.unfinished));
        if recursive > 0 {
            let within = counted(recursive as usize, "call");
            lines.push(format!("{within} of itself within these, which are part of them"));
        }
        if unfinished > 0 {
            let open = counted(unfinished as usize, "call");
            lines.push(format!("{open} had not returned when the block ended"));
        }
        lines
    }
}

/// The traced function, as requested.
pub(crate) fn function<'e>(
    experiment: Option<&'e Experiment>,
    recording: &'e Recording,
) -> &'e str {
    let asked = experiment.and_then(|e| e.trace.as_ref()).map(|t| t.place().1);
    let first = || {
        let step = recording.call_traces().find_map(|t| t.steps.first())?;
        Some(recording.text_of_trace(step.name))
    };
    asked.or_else(first).unwrap_or("the function")
}

/// Whose call it is: its thread, where that is known, and its context.
fn whose(recording: &Recording, call: &Trace) -> String {
    let first = call.steps.first();
    let thread = first.map_or("", |s| recording.text_of_trace(s.command));
    let context = first.map_or(Context::Task, |s| s.context);
    match (thread, context) {
        ("", context) => context.to_string(),
        (thread, Context::Task) => printable(thread, NAME_LETTERS),
        (thread, context) => format!("{context}, in {}", printable(thread, NAME_LETTERS)),
    }
}

/// The calls for a terminal, of all arms or of some.
pub fn render(
    recording: &Recording,
    experiment: Option<&Experiment>,
    arms: &[String],
    shown: &ShownCalls,
    columns: usize,
) -> String {
    let function = printable(function(experiment, recording), NAME_LETTERS);
    let only = experiment.and_then(|e| e.trace.as_ref()).and_then(|t| t.only.as_ref());
    let only = only.map(ToString::to_string);
    let mut out = String::new();
    let mut remarked = Flags::default();
    for of in OfBlock::all(recording) {
        let arm = recording.arms.get(of.block.arm as usize);
        if !arms.is_empty() && arm.is_none_or(|arm| !arms.contains(&arm.name)) {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        for line in of.sentences(&function, only.as_deref()) {
            out.push_str(&continued(&line, 2, columns));
            out.push('\n');
        }
        let most = of.calls.iter().max_by_key(|call| {
            let total = call.steps.first().map_or(0, |s| s.total);
            (total, std::cmp::Reverse(call.number))
        });
        let trees: Vec<&Trace> = match shown {
            ShownCalls::Typical => {
                let mut trees: Vec<&Trace> = of.calls.first().copied().into_iter().collect();
                trees.extend(most.filter(|most| trees.iter().all(|t| t.number != most.number)));
                trees
            }
            ShownCalls::Calls(numbers) => {
                let asked = |call: &&Trace| numbers.contains(&(call.number + 1));
                of.calls.iter().copied().filter(asked).collect()
            }
        };
        let limit = match shown {
            ShownCalls::Typical => MOST_LINES,
            ShownCalls::Calls(_) => usize::MAX,
        };
        if of.calls.len() > 1 && *shown == ShownCalls::Typical {
            out.push('\n');
            out.push_str(&table(&of, columns));
        }
        for call in trees {
            out.push_str(&format!(
                "\ncall {}, {}\n",
                thousands(call.number + 1),
                whose(recording, call)
            ));
            let tree = Tree::from_trace(call);
            remarked = call.steps.iter().fold(remarked, |all, s| all.with(s.flags));
            out.push_str(&tree.render(recording, limit));
        }
    }
    let notes = [
        (
            Flags::ASIDE,
            "came in between: an interrupt or softirqs, in no total of the calls above it",
        ),
        (
            Flags::CUT,
            "more below: deeper than --depth, or more than a call has room for; it is in the totals",
        ),
    ];
    let notes: Vec<&str> =
        (notes.iter().filter(|(flag, _)| remarked.has(*flag))).map(|(_, text)| *text).collect();
    if !notes.is_empty() {
        out.push('\n');
        for note in notes {
            out.push_str(&continued(note, 2, columns));
            out.push('\n');
        }
    }
    out
}

/// The calls that were kept, a row each.
fn table(of: &OfBlock<'_>, columns: usize) -> String {
    let first = |call: &Trace| call.steps.first().copied();
    let recording = of.recording;
    let mut rows: Vec<&Trace> = of.calls.clone();
    rows.sort_by_key(|call| {
        let total = first(call).map_or(0, |s| s.total);
        (std::cmp::Reverse(total), call.number)
    });
    let left = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let mut out = Table::new(calls(recording), rows).terminal(Room::new(columns, NAME_LETTERS));
    if left > 0 {
        out.push_str(&format!("  ({} more)\n", thousands(left as u64)));
    }
    out
}

/// The columns of calls.
pub(crate) fn calls(recording: &Recording) -> Vec<Column<'_, &Trace>> {
    let count = |read: fn(&Step) -> u64| {
        move |call: &&Trace| {
            let first = call.steps.first();
            first.map_or(Value::Missing, |step| Value::Count(read(step)))
        }
    };
    let timed = OfCalls::in_recording(recording) == Some(&TIMED);
    let (title, total, own, elapsed) = match timed {
        true => (
            "ns",
            "its time, without interrupts, other tasks and what tracing costs",
            "the time of the function itself",
            "nanoseconds from its begin to its end, also of interrupts, other tasks and tracing",
        ),
        false => (
            "instructions",
            "the call and its callees",
            "the function without its callees",
            "instructions from its begin to its end, also of interrupts and other tasks",
        ),
    };
    vec![
        Column::figure("call", |call: &&Trace| Value::Count(call.number + 1))
            .hint("number of the call in its block")
            .people(0),
        Column::figure(title, count(|step| step.total)).hint(total).people(1),
        Column::figure("self", count(|step| step.own)).hint(own).people(2),
        Column::figure("elapsed", count(|step| step.elapsed)).hint(elapsed).people(3),
        Column::figure("switched", count(|step| u64::from(step.switches)))
            .hint("how often its task was switched out")
            .people(4),
        Column::text("of", move |call: &&Trace| whose(recording, call))
            .hint("the thread or context that made it")
            .people(5),
    ]
}
