//! Source lines and instructions of the functions with the highest own cost, for the page.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netplumb_model::code::FunctionCode;
use netplumb_model::recording::SourceLine;

use super::{InstructionRow, LINE_LETTERS, decoded};
use crate::analysis::ClassView;
use crate::number::{per_packet, printable};
use crate::page::{PageCode, PageTable};
use crate::source::{of_instructions, place, text_of};
use crate::table::{Column, Table, Value};

/// Functions on a page.
const MOST_FUNCTIONS: usize = 60;
/// Instructions of all of them.
const MOST_INSNS: usize = 6_000;
const NAME_LETTERS: usize = 60;

/// The first class of an arm, and its functions' code with what it cost.
type OfArm<'a> = (&'a ClassView<'a>, Vec<(u64, &'a FunctionCode)>);

/// The functions with the highest own cost, of each arm in turn.
pub(crate) fn page(views: &[ClassView<'_>]) -> Vec<PageCode> {
    // The first class of each arm: instructions cover all of the arm's classes.
    let mut arms: BTreeMap<usize, OfArm<'_>> = BTreeMap::new();
    for view in views.iter().filter(|view| view.is_exact()) {
        arms.entry(view.arm).or_insert_with(|| {
            let of_arm = view.recording.code.iter();
            let of_arm = of_arm.filter(|code| code.arm as usize == view.arm);
            let mut all: Vec<(u64, &FunctionCode)> = of_arm.map(|code| (sum(code), code)).collect();
            all.sort_by_key(|(times, code)| (Reverse(*times), code.function));
            (view, all)
        });
    }
    let longest = arms.values().map(|(_, all)| all.len()).max().unwrap_or(0);
    let (mut pages, mut left) = (Vec::new(), MOST_INSNS);
    for rank in 0..longest {
        for (view, all) in arms.values() {
            let Some((times, code)) = all.get(rank) else {
                continue;
            };
            // A long function leaves room for the ones after it.
            if pages.len() < MOST_FUNCTIONS
                && let Some(rest) = left.checked_sub(code.insns.len())
            {
                left = rest;
                pages.push(of_function(view, code, *times));
            }
        }
    }
    pages
}

fn sum(code: &FunctionCode) -> u64 {
    code.insns.iter().map(|insn| insn.times).sum()
}

fn of_function(view: &ClassView<'_>, code: &FunctionCode, all: u64) -> PageCode {
    let recording = view.recording;
    let of = &recording.functions[code.function as usize];
    let name = printable(&of.name, NAME_LETTERS);
    let module = of
        .module
        .as_deref()
        .map_or(String::new(), |module| format!(" [{}]", printable(module, NAME_LETTERS)));
    let each = format!("{} per {}", per_packet(all, view.packets), view.per.word());
    PageCode {
        arm: printable(&recording.arms[view.arm].name, NAME_LETTERS),
        function: code.function,
        name: format!("{name}{module}"),
        each: each.clone(),
        instructions: instructions(view, code, all, &format!("Instructions of {name}: {each}")),
        lines: lines(view, code, all, &format!("Source lines of {name}")),
    }
}

/// The place of a line, without its folders.
fn short(view: &ClassView<'_>, source: SourceLine) -> String {
    let place = place(view.recording, source);
    match place.rsplit_once('/') {
        Some((_, name)) => name.to_owned(),
        None => place,
    }
}

fn instructions(view: &ClassView<'_>, code: &FunctionCode, all: u64, caption: &str) -> PageTable {
    let columns = vec![
        Column::figure("times", |row: &InstructionRow<'_>| {
            Value::Each(row.insn.times, view.packets)
        })
        .hint(format!("how often it was executed, per {}", view.per.word()))
        .page("times")
        .rank(0),
        Column::figure("share", |row: &InstructionRow<'_>| {
            Value::Share(row.insn.times as f64 / all.max(1) as f64)
        })
        .hint("of the function's own cost")
        .page("share")
        .rank(1),
        Column::figure("at", |row: &InstructionRow<'_>| {
            let offset = row.insn.offset;
            Value::Formatted(format!("+{offset:#x}"), Some(f64::from(offset)))
        })
        .hint("bytes from the beginning of the function")
        .page("at")
        .rank(2),
        Column::code("instruction", |row: &InstructionRow<'_>| {
            Value::Text(row.text.split_whitespace().collect::<Vec<_>>().join(" "))
        })
        .hint("as it was executed, in the syntax of the GNU assembler")
        .page("instruction")
        .rank(3),
        Column::text("line", |row: &InstructionRow<'_>| {
            row.insn.source.map_or(String::new(), |source| short(view, source))
        })
        .hint("the source line that it was made of")
        .page("line")
        .rank(4),
    ];
    Table::new(columns, decoded(view.recording, code)).page(caption)
}

/// The lines of a function in the order of their files; none without debug information.
fn lines(view: &ClassView<'_>, code: &FunctionCode, all: u64, caption: &str) -> Option<PageTable> {
    let lines = of_instructions(view, code.function);
    if lines.is_empty() {
        return None;
    }
    let columns = vec![
        Column::text("line", |(source, _): &(SourceLine, u64)| short(view, *source))
            .page("line")
            .rank(0),
        Column::figure("self", |(_, times): &(SourceLine, u64)| Value::Each(*times, view.packets))
            .hint(format!("instructions of the line, per {}", view.per.word()))
            .page("self")
            .rank(1),
        Column::figure("share", |(_, times): &(SourceLine, u64)| {
            Value::Share(*times as f64 / all.max(1) as f64)
        })
        .hint("of the function's own cost")
        .page("share")
        .rank(2),
        Column::code("text", |(source, _): &(SourceLine, u64)| {
            let text = text_of(view.recording, *source).unwrap_or_default();
            Value::Text(printable(text.trim_end(), LINE_LETTERS))
        })
        .page("text")
        .rank(3),
    ];
    let lines: Vec<(SourceLine, u64)> = lines.into_iter().collect();
    Some(Table::new(columns, lines).page(caption))
}
