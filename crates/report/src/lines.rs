//! What lines of source cost, of functions whose lines are known.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::code::Instruction;
use netplumb_model::layers::APPLICATION;
use netplumb_model::recording::{FunctionId, Recording, SourceLine};

use crate::analysis::ClassView;
use crate::asm::text_of;
use crate::beside::LineTimes;
use crate::number::printable;
use crate::summary::label;
use crate::table::{Column, Room, Table, Value};

pub mod json;

/// Letters of a path: longer ones are cut.
pub(crate) const PATH_LETTERS: usize = 1_000;
/// Letters of a line of source.
const TEXT_LETTERS: usize = 120;
/// Lines of a function that are shown at first sight.
const SHOWN: usize = 40;

/// The self cost by line of each function of a class, over all of its blocks. Only commands have
/// any.
pub fn of_class(class: &ClassView<'_>) -> BTreeMap<FunctionId, BTreeMap<SourceLine, u64>> {
    let mut lines: BTreeMap<FunctionId, BTreeMap<SourceLine, u64>> = BTreeMap::new();
    if class.class.direction != Direction::Run {
        return lines;
    }
    let recording = class.recording;
    for cost in &recording.line_costs {
        let block = recording.blocks.get(cost.block as usize);
        if block.is_some_and(|b| b.arm as usize == class.arm) {
            let function = lines.entry(cost.function).or_default();
            *function.entry(cost.source).or_default() += cost.own;
        }
    }
    // A command is all that its arm executed.
    for code in &recording.code {
        if code.arm as usize == class.arm && !lines.contains_key(&code.function) {
            let of_function = of_instructions(class, code.function);
            if !of_function.is_empty() {
                lines.insert(code.function, of_function);
            }
        }
    }
    lines
}

/// The lines of the instructions of a function that the arm of a class executed, whatever their class:
/// those of the kernel have lines where its debug information was added.
pub(crate) fn of_instructions(
    class: &ClassView<'_>,
    function: FunctionId,
) -> BTreeMap<SourceLine, u64> {
    let mut lines: BTreeMap<SourceLine, u64> = BTreeMap::new();
    for insn in instructions(class, function) {
        if let Some(source) = insn.source {
            *lines.entry(source).or_default() += insn.times;
        }
    }
    lines
}

/// The instructions of a function that the arm of a class executed.
fn instructions<'a>(
    class: &ClassView<'a>,
    function: FunctionId,
) -> impl Iterator<Item = &'a Instruction> {
    let arm = class.arm;
    let code = class.recording.code.iter();
    code.filter(move |code| code.arm as usize == arm && code.function == function)
        .flat_map(|code| &code.insns)
}

/// `FILE:LINE`, fit to be shown.
pub(crate) fn place(recording: &Recording, source: SourceLine) -> String {
    recording.source(source).map_or_else(
        || "?".into(),
        |(file, line)| format!("{}:{line}", printable(file, PATH_LETTERS)),
    )
}

/// Where a function is defined, as `FILE:LINE`, if that is known.
pub(crate) fn definition(recording: &Recording, function: FunctionId) -> Option<String> {
    let source = recording.functions.get(function as usize)?.source?;
    Some(place(recording, source))
}

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
            "no lines are known: they are those of programs' code, where the file, or the debug file \
             beside it, has debug information (-g)"
        }
    }
}

/// The lines of a function that runs in a class.
struct Found {
    lines: BTreeMap<SourceLine, u64>,
    /// What the function cost itself, of which lines are a part.
    whole: u64,
    /// Whether both are of all packets of the arm, whatever their direction: code is kept once for an arm.
    of_arm: bool,
}

impl Found {
    fn of(class: &ClassView<'_>, function: FunctionId, own: u64) -> Found {
        let lines = of_class(class).remove(&function).unwrap_or_default();
        if lines.is_empty() && class.class.direction != Direction::Run {
            let lines = of_instructions(class, function);
            if !lines.is_empty() {
                return Found {
                    lines,
                    whole: instructions(class, function).map(|insn| insn.times).sum(),
                    of_arm: true,
                };
            }
        }
        Found { lines, whole: own, of_arm: false }
    }
}

/// Whether another function of the name ran in a class: that of another program or module.
fn namesake_ran(class: &ClassView<'_>, function: FunctionId) -> bool {
    let name = |id: FunctionId| &class.recording.functions[id as usize].name;
    let mut ran = class.functions.iter();
    ran.any(|f| f.function != function && name(f.function) == name(function))
}

/// Whether a class is the first of its arm in which a function ran, or the first of all if it ran in none:
/// instructions are those of all classes of an arm.
pub fn is_first(views: &[ClassView<'_>], class: &ClassView<'_>, function: FunctionId) -> bool {
    let of_arm = || views.iter().filter(|view| view.arm == class.arm);
    let ran = of_arm().find(|view| view.functions.iter().any(|f| f.function == function));
    let first = ran.or_else(|| of_arm().next());
    first.is_some_and(|first| first.class == class.class)
}

/// What the lines of a function cost in a class, as text: in the order of the file, or
/// of the largest where there are many. Nothing if another function of its name ran instead, which has
/// a text of its own. With the text of lines if `source`, as far as the recording has it, and with the
/// time of the same lines, if there is any. Lines of packets are those of all of an arm, in the text of
/// its `first` class.
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
    let found = Found::of(class, function, own.self_insns);
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
    out.push_str(&times.map_or(String::new(), LineTimes::told));
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
            // Of its own file a number says it.
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
                ns.map_or(Value::Missing, |ns| Value::Told(format!("{ns:.2}"), Some(ns)))
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
    out.push_str(&Table::new(all, lines).terminal(Room::of(columns, 0)));
    if left_out > 0 {
        out.push_str(&format!("  and {left_out} more lines with {}\n", class.told(rest)));
    }
    if known < whole {
        out.push_str(&format!("  {} are of no line\n", class.told(whole - known)));
    }
    out
}

#[cfg(test)]
mod tests;
