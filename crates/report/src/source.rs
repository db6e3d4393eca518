//! Lines of source in a recording: their cost, place and text.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::code::Instruction;
use netplumb_model::recording::{FunctionId, Recording, SourceLine};

use crate::analysis::ClassView;
use crate::number::printable;

/// Letters of a path: longer ones are cut.
pub(crate) const PATH_LETTERS: usize = 1_000;

/// The self cost by line of each function of a class, over all of its blocks. Only commands have
/// any.
pub(crate) fn of_class(class: &ClassView<'_>) -> BTreeMap<FunctionId, BTreeMap<SourceLine, u64>> {
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
    // A command's arm executed nothing else.
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

/// The lines of the instructions of a function that the arm of a class executed, whatever their class.
/// The kernel's have lines where its debug information was added.
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
pub(crate) fn instructions<'a>(
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

/// The text of a source line, if it is in the recording.
pub(crate) fn text_of(recording: &Recording, line: SourceLine) -> Option<String> {
    let text = recording.source_texts.get(&line.file)?;
    let line = text.lines().nth((line.line as usize).checked_sub(1)?)?;
    Some(line.replace('\t', "    "))
}
