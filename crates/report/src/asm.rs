//! The instructions of a function that were executed, with how often, and its jumps drawn.

mod arm64;
mod jumps;
pub(crate) mod page;
mod x86;

use std::collections::BTreeMap;
use std::ops::Range;

use netplumb_model::arch::Arch;
use netplumb_model::code::{FunctionCode, Instruction};
use netplumb_model::recording::{Function, FunctionId, Recording, SourceLine};

use crate::analysis::ClassView;
use crate::beside::LineTimes;
use crate::number::{counted, per_packet, printable, thousands};
use crate::source::{place, text_of};
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

/// Whether another program's or module's function of the same name has instructions in the arm of a class.
fn namesake(class: &ClassView<'_>, function: FunctionId) -> bool {
    let name = |id: FunctionId| &class.recording.functions[id as usize].name;
    let mut of_arm = (class.recording.code.iter()).filter(|code| code.arm as usize == class.arm);
    of_arm.any(|code| code.function != function && name(code.function) == name(function))
}

/// An instruction at this address, with zeros for the bytes that encode addresses outside of its function's `own`
/// range: the rest is the same in every build of the same code. On arm64 the low bits of an address remain, since
/// nothing marks them as part of one.
pub(crate) fn without_addresses(arch: Arch, code: &[u8], at: u64, own: &Range<u64>) -> Vec<u8> {
    match arch {
        Arch::X86_64 => x86::without_addresses(code, at, own),
        Arch::Arm64 => arm64::without_addresses(code, at, own),
    }
}

/// The instructions of a function in the arm of a class, as text, for all of the arm's packets, whatever
/// their direction. With their source text if `source`, and with the time of lines above their
/// instructions, if there is any. Nothing if another function of its name was executed instead, which has
/// a text of its own.
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
        let module = of
            .module
            .as_deref()
            .map_or(String::new(), |module| format!(" [{}]", printable(module, 40)));
        out.push_str(&format!(
            "{}  {name}{module} at {:#x}, {} of {} bytes executed, {} instructions per {}\n",
            printable(arm, 60),
            code.address,
            thousands(code.insns.iter().map(|i| i.code().len() as u64).sum()),
            thousands(size_bytes(recording, code)),
            per_packet(all, class.packets),
            class.per.word(),
        ));
        out.push_str(&times.map_or(String::new(), LineTimes::times_text));
        listing(&mut out, class, (code, all), source, times);
    }
    if !found && !namesake(class, function) {
        out.push_str(&format!("{}  {name}\n  {}\n", printable(arm, 60), why_none(class)));
    }
    out
}

/// The instructions of a function in the arm of a class, as keys of JSON; nothing if they are not known.
pub(crate) fn json(class: &ClassView<'_>, function: FunctionId) -> Vec<(&'static str, Value)> {
    let recording = class.recording;
    let mut codes = recording.code.iter();
    let of_arm = |code: &&FunctionCode| code.arm as usize == class.arm && code.function == function;
    let Some(code) = codes.find(of_arm) else {
        return Vec::new();
    };
    let rows = decoded(recording, code).into_iter().map(|row| {
        let insn = row.insn;
        let place = insn.source.and_then(|source| recording.source(source));
        let bytes = insn.code().iter().map(|byte| format!("{byte:02x}"));
        let text: Vec<&str> = row.text.split_whitespace().collect();
        Value::object([
            ("offset", Value::Count(insn.offset.into())),
            ("times", Value::Count(insn.times)),
            ("code", Value::Text(bytes.collect())),
            ("text", Value::Text(text.join(" "))),
            ("jumps_to", row.target.map_or(Value::Absent, Value::Count)),
            ("file", place.map_or(Value::Absent, |(file, _)| Value::Text(file.into()))),
            ("line", place.map_or(Value::Absent, |(_, line)| Value::Count(line.into()))),
        ])
    });
    vec![
        ("address", Value::Text(format!("{:#x}", code.address))),
        ("size_bytes", Value::Count(size_bytes(recording, code))),
        ("instructions", Value::List(rows.collect())),
    ]
}

/// An instruction, ready to be shown.
struct InstructionRow<'a> {
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
    let ends: Vec<(u64, Option<u64>)> =
        rows.iter().map(|row| (u64::from(row.insn.offset), row.target)).collect();
    let drawn = jumps::draw(&ends);
    let figure = |insn: &Instruction| per_packet(insn.times, class.packets);
    let width = rows.iter().map(|row| figure(row.insn).len()).max().unwrap_or(0).max(5);
    let offset = |insn: &Instruction| format!("+{:#x}", insn.offset);
    let offsets = rows.iter().map(|row| offset(row.insn).len()).max().unwrap_or(0).max(2);
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
            let bytes = counted(gap as usize, "byte");
            out.push_str(&format!("  {:>width$}  {:>6}  {bytes} not executed\n", "", ""));
        }
        before = Some(insn.end());
        let text = format!(
            "  {:>width$}  {:>6}  {:<offsets$}  {art}  {}",
            figure(insn),
            Value::Share(insn.times as f64 / all.max(1) as f64).cell_text(),
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
    let text = text.map_or(String::new(), |text| format!("  {}", printable(&text, LINE_LETTERS)));
    let time = times.map_or(String::new(), |times| {
        let share = Value::Share(times.share(recording, line)).cell_text();
        format!("  {share} of the time")
    });
    let place = place(recording, line);
    let short = place.rsplit_once('/').map_or(place.as_str(), |(_, name)| name);
    format!("\n  {short}{time}{text}\n")
}

fn decoded<'a>(recording: &Recording, code: &'a FunctionCode) -> Vec<InstructionRow<'a>> {
    let names = Names::from_code(recording, code);
    let mut disassemble: Box<dyn Disassemble> = match recording.arch(code.arm as usize) {
        Arch::X86_64 => Box::new(x86::Disassembler::new(names)),
        Arch::Arm64 => Box::new(arm64::Disassembler::new(names)),
    };
    let size = size_bytes(recording, code);
    let row = |insn: &'a Instruction| {
        let at = code.address.wrapping_add(u64::from(insn.offset));
        let (text, jump) = disassemble.one(insn.code(), at);
        let offset = jump.map(|to| to.wrapping_sub(code.address));
        InstructionRow { insn, text: printable(&text, 120), target: offset.filter(|to| *to < size) }
    };
    code.insns.iter().map(row).collect()
}

/// Whether the recording's addresses and sizes of functions hold in an arm. They do not if its architecture is
/// not the first arm's: then only executed code is known.
fn has_addresses(recording: &Recording, arm: u32) -> bool {
    recording.arch(arm as usize) == recording.arch(0)
}

/// The size of a function, or of its known part.
fn size_bytes(recording: &Recording, code: &FunctionCode) -> u64 {
    match has_addresses(recording, code.arm) {
        true => recording.functions[code.function as usize].size_bytes,
        false => code.insns.last().map_or(0, Instruction::end),
    }
}

/// A disassembler of an architecture.
trait Disassemble {
    /// An instruction at this address: its text, and its jump target, if the instruction encodes one.
    fn one(&mut self, code: &[u8], at: u64) -> (String, Option<u64>);
}

/// Names of the targets of calls and jumps.
struct Names {
    /// The function's own addresses.
    begin: u64,
    size_bytes: u64,
    /// Where functions begin, their sizes and names.
    functions: BTreeMap<u64, (u64, String)>,
}

impl Names {
    fn from_code(recording: &Recording, code: &FunctionCode) -> Names {
        let own = &recording.functions[code.function as usize];
        // Programs' files have addresses of their own; the kernel and its modules share theirs.
        let is_kernel = |address: u64| address >> 63 == 1;
        let is_near = |address: u64, f: &Function| match is_kernel(code.address) {
            true => is_kernel(address),
            false => !is_kernel(address) && f.module == own.module,
        };
        let of = |address: u64, size: u64, f: &Function| {
            (size > 0 && is_near(address, f)).then(|| (address, (size, f.name.clone())))
        };
        let functions = match has_addresses(recording, code.arm) {
            true => (recording.functions.iter())
                .filter_map(|f| of(f.address, f.size_bytes, f))
                .collect(),
            false => (recording.code.iter())
                .filter(|other| other.arm == code.arm)
                .filter_map(|other| {
                    let function = &recording.functions[other.function as usize];
                    of(other.address, size_bytes(recording, other), function)
                })
                .collect(),
        };
        Names { begin: code.address, size_bytes: size_bytes(recording, code), functions }
    }

    /// The name of an address in an instruction; `branches` if the instruction goes there.
    fn name(&self, address: u64, branches: bool) -> Option<String> {
        let offset = address.wrapping_sub(self.begin);
        if branches && offset < self.size_bytes {
            return Some(format!("+{offset:#x}"));
        }
        let (begin, (size, name)) = self.functions.range(..=address).next_back()?;
        let offset = address - begin;
        (offset < *size).then(|| match offset {
            0 => name.clone(),
            _ => format!("{name}+{offset:#x}"),
        })
    }
}

#[cfg(test)]
mod tests;
