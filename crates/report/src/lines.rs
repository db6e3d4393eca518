//! The cost of source lines, for functions whose lines are known.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::layers::APPLICATION;
use netplumb_model::recording::{FunctionId, Recording, SourceLine};

use crate::analysis::ClassView;
use crate::beside::LineTimes;
use crate::number::printable;
use crate::source::{
    PATH_LETTERS, definition, instructions, of_class, of_instructions, place, text_of,
};
use crate::summary::label;
use crate::table::{Column, Room, Table, Value};

pub mod json;

/// Letters of a line of source.
const TEXT_LETTERS: usize = 120;
/// The most lines of a function that are shown by default.
const SHOWN: usize = 40;

/// Why no lines of a function are known.
fn why_none(recording: &Recording, function: FunctionId, own: u64) -> &'static str {
    let function = &recording.functions[function as usize];
    let of_program = function.layer.as_deref() == Some(APPLICATION);
    match own {
        0 => "it has no cost of its own, only what it calls has",
        _ if !of_program && function.address != 0 => {
            "no lines are known: it is the kernel's code, whose debug information `plumb kernel add \
             KERNEL --debug` adds; runs after that have lines, --asm shows the instructions"
        }
        _ => {
            "no lines are known: a program has them where its file, or the debug file beside it, has debug \
             information (-g)"
        }
    }
}

/// The lines of a function that runs in a class.
struct ClassLines {
    lines: BTreeMap<SourceLine, u64>,
    /// What the function cost itself, including code of no known line.
    whole: u64,
    /// Whether both cover all packets of the arm, whatever their direction: code is kept once for an arm.
    of_arm: bool,
}

impl ClassLines {
    fn from_class(class: &ClassView<'_>, function: FunctionId, own: u64) -> ClassLines {
        let lines = of_class(class).remove(&function).unwrap_or_default();
        if lines.is_empty() && class.class.direction != Direction::Run {
            let lines = of_instructions(class, function);
            if !lines.is_empty() {
                return ClassLines {
                    lines,
                    whole: instructions(class, function).map(|insn| insn.times).sum(),
                    of_arm: true,
                };
            }
        }
        ClassLines { lines, whole: own, of_arm: false }
    }
}

/// Whether another program's or module's function of the same name ran in a class.
fn namesake_ran(class: &ClassView<'_>, function: FunctionId) -> bool {
    let name = |id: FunctionId| &class.recording.functions[id as usize].name;
    let mut ran = class.functions.iter();
    ran.any(|f| f.function != function && name(f.function) == name(function))
}

/// Whether a class is the first of its arm in which a function ran, or the first of all if it ran in none:
/// instructions are counted over all classes of an arm.
pub fn is_first(views: &[ClassView<'_>], class: &ClassView<'_>, function: FunctionId) -> bool {
    let of_arm = || views.iter().filter(|view| view.arm == class.arm);
    let ran = of_arm().find(|view| view.functions.iter().any(|f| f.function == function));
    let first = ran.or_else(|| of_arm().next());
    first.is_some_and(|first| first.class == class.class)
}

/// What the lines of a function cost in a class, as text: in the order of the file or, where there are
/// many, the largest. Nothing if another function of its name ran instead, which has a text of its own.
/// With the text of lines if `source`, as far as the recording has it, and with the time of the same
/// lines, if there is any. Lines of packets cover the whole arm, and are in the text of its `first` class.
pub fn render(
    class: &ClassView<'_>,
    function: FunctionId,
    columns: usize,
    first: bool,
    source: bool,
    times: Option<&LineTimes>,
) -> String {
    let recording = class.recording;
    let name = printable(class.name(function), 60);
    let mut out = format!("{}  {name}", label(class));
    if let Some(place) = definition(recording, function) {
        out.push_str(&format!(", {place}"));
    }
    out.push('\n');
    let Some(own) = class.functions.iter().find(|f| f.function == function) else {
        if namesake_ran(class, function) {
            return String::new();
        }
        out.push_str("  it did not run\n");
        return out;
    };
    let found = ClassLines::from_class(class, function, own.self_insns);
    if found.of_arm {
        if !first {
            return String::new();
        }
        out.push_str("  of all packets of the arm, whatever their direction\n");
    }
    let whole = found.whole;
    let mut lines: Vec<(SourceLine, u64)> = found.lines.into_iter().collect();
    if lines.is_empty() {
        out.push_str(&format!("  {}\n", why_none(recording, function, own.self_insns)));
        return out;
    }
    out.push_str(&times.map_or(String::new(), LineTimes::times_text));
    let known: u64 = lines.iter().map(|(_, insns)| insns).sum();
    let left_out = lines.len().saturating_sub(SHOWN);
    let mut rest = 0;
    if left_out > 0 {
        lines.sort_by_key(|(source, insns)| (std::cmp::Reverse(*insns), *source));
        rest = lines[SHOWN..].iter().map(|(_, insns)| insns).sum();
        lines.truncate(SHOWN);
        lines.sort_unstable();
    }
    let home = recording.functions[function as usize].source;
    let mut all = vec![
        Column::text("line", |(source, _): &(SourceLine, u64)| match home {
            // In the function's own file the number suffices.
            Some(home) if home.file == source.file => source.line.to_string(),
            _ => place(recording, *source),
        })
        .letters(PATH_LETTERS + 8)
        .people(0),
        Column::figure("self", |(_, insns): &(SourceLine, u64)| class.each(*insns)).people(1),
        Column::figure("share", |(_, insns): &(SourceLine, u64)| {
            Value::Share(*insns as f64 / whole.max(1) as f64)
        })
        .people(2),
    ];
    if let Some(times) = times {
        let share =
            move |(source, _): &(SourceLine, u64)| Value::Share(times.share(recording, *source));
        all.push(Column::figure("time", share).people(3));
        if times.is_of(class) {
            let each = move |(source, insns): &(SourceLine, u64)| {
                let ns = times.per_insn(class, *source, *insns);
                ns.map_or(Value::Missing, |ns| Value::Formatted(format!("{ns:.2}"), Some(ns)))
            };
            all.push(Column::figure("ns each", each).people(4));
        }
    }
    if source {
        let text = Column::text("text", |(source, _): &(SourceLine, u64)| {
            text_of(recording, *source).unwrap_or_default()
        });
        all.push(text.letters(TEXT_LETTERS).people(5));
    }
    out.push_str(&Table::new(all, lines).terminal(Room::new(columns, 0)));
    if left_out > 0 {
        out.push_str(&format!("  and {left_out} more lines with {}\n", class.cost_text(rest)));
    }
    if known < whole {
        out.push_str(&format!("  {} are of no line\n", class.cost_text(whole - known)));
    }
    out
}

#[cfg(test)]
mod tests;
