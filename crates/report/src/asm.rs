//! The instructions of a function that were executed, with how often, and its jumps drawn.

mod jumps;
pub(crate) mod page;

use std::collections::BTreeMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction as Decoded,
    SymbolResolver, SymbolResult,
};
use netplumb_model::code::{FunctionCode, Instruction};
use netplumb_model::recording::{FunctionId, Recording, SourceLine};

use crate::analysis::ClassView;
use crate::beside::LineTimes;
use crate::lines::place;
use crate::number::{counted, per_packet, printable, thousands};
use crate::table::Value;

/// Letters of a source line that are shown.
const LINE_LETTERS: usize = 200;

/// Why a function has no instructions to show.
fn why_none(class: &ClassView<'_>) -> &'static str {
    match class.is_exact() {
        false => "instructions are known where they are counted, by --clock exact in the lab vm",
        true if class.recording.code.is_empty() => {
            "this recording has no instructions of functions"
        }
        true => "it did not run, or its code has no place in a file",
    }
}

/// Whether another function of the name has instructions in the arm of a class: that of another program
/// or module.
fn namesake(class: &ClassView<'_>, function: FunctionId) -> bool {
    let name = |id: FunctionId| &class.recording.functions[id as usize].name;
    let mut of_arm = (class.recording.code.iter()).filter(|code| code.arm as usize == class.arm);
    of_arm.any(|code| code.function != function && name(code.function) == name(function))
}

/// The instructions of a function in the arm of a class, as text: those of all its packets, whatever
/// their direction. With their source text if `source`. Nothing if another function of its name was
/// executed instead, which has a text of its own. With the time of lines above their instructions, if
/// there is any.
pub fn render(
    class: &ClassView<'_>,
    function: FunctionId,
    source: bool,
    times: Option<&LineTimes>,
) -> String {
    let recording = class.recording;
    let mut out = String::new();
    let arm = &recording.arms[class.arm].name;
    let of = &recording.functions[function as usize];
    let name = printable(&of.name, 60);
    let of_arm = |code: &&FunctionCode| code.arm as usize == class.arm && code.function == function;
    let mut found = false;
    for code in recording.code.iter().filter(of_arm) {
        found = true;
        let all: u64 = code.insns.iter().map(|insn| insn.times).sum();
        let module = of.module.as_deref().map_or(String::new(), |module| {
            format!(" [{}]", printable(module, 40))
        });
        out.push_str(&format!(
            "{}  {name}{module} at {:#x}, {} of {} bytes executed, {} instructions per {}\n",
            printable(arm, 60),
            code.address,
            thousands(code.insns.iter().map(|i| i.code().len() as u64).sum()),
            thousands(of.size_bytes),
            per_packet(all, class.packets),
            class.per.word(),
        ));
        out.push_str(&times.map_or(String::new(), LineTimes::told));
        listing(&mut out, class, (code, all), source, times);
    }
    if !found && !namesake(class, function) {
        out.push_str(&format!(
            "{}  {name}\n  {}\n",
            printable(arm, 60),
            why_none(class)
        ));
    }
    out
}

/// An instruction, ready to be shown.
struct Row<'a> {
    insn: &'a Instruction,
    text: String,
    /// Where it jumps to in the same function, as an offset.
    target: Option<u64>,
}

fn listing(
    out: &mut String,
    class: &ClassView<'_>,
    (code, all): (&FunctionCode, u64),
    source: bool,
    times: Option<&LineTimes>,
) {
    let rows = decoded(class.recording, code);
    let ends: Vec<(u64, Option<u64>)> = rows
        .iter()
        .map(|row| (u64::from(row.insn.offset), row.target))
        .collect();
    let drawn = jumps::draw(&ends);
    let figure = |insn: &Instruction| per_packet(insn.times, class.packets);
    let width = rows
        .iter()
        .map(|row| figure(row.insn).len())
        .max()
        .unwrap_or(0)
        .max(5);
    let offset = |insn: &Instruction| format!("+{:#x}", insn.offset);
    let offsets = rows
        .iter()
        .map(|row| offset(row.insn).len())
        .max()
        .unwrap_or(0)
        .max(2);
    let art = drawn.first().map_or(0, |art| art.chars().count());
    out.push_str(&format!(
        "  {:>width$}  {:>6}  {:<offsets$}  {:art$}  instruction\n",
        "times", "share", "at", ""
    ));
    let (mut before, mut line) = (None, None);
    for (row, art) in rows.iter().zip(&drawn) {
        let insn = row.insn;
        if (source || times.is_some()) && insn.source != line {
            line = insn.source;
            out.push_str(&of_source(class.recording, line, source, times));
        }
        if let Some(gap) = before.and_then(|end| u64::from(insn.offset).checked_sub(end))
            && gap > 0
        {
            let told = counted(gap as usize, "byte");
            out.push_str(&format!(
                "  {:>width$}  {:>6}  {told} not executed\n",
                "", ""
            ));
        }
        before = Some(insn.end());
        let text = format!(
            "  {:>width$}  {:>6}  {:<offsets$}  {art}  {}",
            figure(insn),
            Value::Share(insn.times as f64 / all.max(1) as f64).told(),
            offset(insn),
            row.text
        );
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

/// A source line above its instructions.
fn of_source(
    recording: &Recording,
    line: Option<SourceLine>,
    source: bool,
    times: Option<&LineTimes>,
) -> String {
    let Some(line) = line else {
        return "\n  (no line)\n".into();
    };
    let text = text_of(recording, line).filter(|_| source);
    let text = text.map_or(String::new(), |text| {
        format!("  {}", printable(&text, LINE_LETTERS))
    });
    let time = times.map_or(String::new(), |times| {
        let share = Value::Share(times.share(recording, line)).told();
        format!("  {share} of the time")
    });
    let place = place(recording, line);
    let short = place
        .rsplit_once('/')
        .map_or(place.as_str(), |(_, name)| name);
    format!("\n  {short}{time}{text}\n")
}

/// The text of a source line, if it is in the recording.
pub(crate) fn text_of(recording: &Recording, line: SourceLine) -> Option<String> {
    let text = recording.source_texts.get(&line.file)?;
    let line = text.lines().nth((line.line as usize).checked_sub(1)?)?;
    Some(line.replace('\t', "    "))
}

fn decoded<'a>(recording: &Recording, code: &'a FunctionCode) -> Vec<Row<'a>> {
    let mut formatter =
        GasFormatter::with_options(Some(Box::new(Names::of(recording, code))), None);
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_first_operand_char_index(8);
    options.set_uppercase_hex(false);
    let size = recording.functions[code.function as usize].size_bytes;
    let row = |insn: &'a Instruction| {
        let ip = code.address.wrapping_add(u64::from(insn.offset));
        let mut decoder = Decoder::with_ip(64, insn.code(), ip, DecoderOptions::NONE);
        let decoded = decoder.decode();
        let mut text = String::new();
        formatter.format(&decoded, &mut text);
        let offset = jump(&decoded).map(|to| to.wrapping_sub(code.address));
        Row {
            insn,
            text: printable(&text, 120),
            target: offset.filter(|to| *to < size),
        }
    };
    code.insns.iter().map(row).collect()
}

/// Where an instruction jumps to, if it says so itself.
fn jump(insn: &Decoded) -> Option<u64> {
    match insn.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            Some(insn.near_branch_target())
        }
        _ => None,
    }
}

/// Names of what calls and jumps go to.
struct Names {
    /// The function's own addresses.
    begin: u64,
    size_bytes: u64,
    /// Where functions begin, their sizes and names.
    functions: BTreeMap<u64, (u64, String)>,
}

impl Names {
    fn of(recording: &Recording, code: &FunctionCode) -> Names {
        let own = &recording.functions[code.function as usize];
        // Programs' files have addresses of their own; the kernel and its modules share theirs.
        let is_kernel = |address: u64| address >> 63 == 1;
        let near = recording.functions.iter().filter(|f| {
            f.size_bytes > 0
                && match is_kernel(code.address) {
                    true => is_kernel(f.address),
                    false => !is_kernel(f.address) && f.module == own.module,
                }
        });
        Names {
            begin: code.address,
            size_bytes: own.size_bytes,
            functions: near
                .map(|f| (f.address, (f.size_bytes, f.name.clone())))
                .collect(),
        }
    }
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        insn: &Decoded,
        _operand: u32,
        _insn_operand: Option<u32>,
        address: u64,
        _size: u32,
    ) -> Option<SymbolResult<'_>> {
        let branches = !matches!(insn.flow_control(), FlowControl::Next)
            && insn.near_branch_target() == address;
        if !branches && !insn.is_ip_rel_memory_operand() {
            return None;
        }
        let offset = address.wrapping_sub(self.begin);
        if branches && offset < self.size_bytes {
            return Some(SymbolResult::with_string(address, format!("+{offset:#x}")));
        }
        let (begin, (size, name)) = self.functions.range(..=address).next_back()?;
        let offset = address - begin;
        (offset < *size).then(|| match offset {
            0 => SymbolResult::with_str(address, name),
            _ => SymbolResult::with_string(address, format!("{name}+{offset:#x}")),
        })
    }
}

#[cfg(test)]
mod tests;
