//! Lines of source, from the debug information (DWARF) of an ELF file.
//!
//! Only executed code is looked up, afterwards: a file has a thousand times as many
//! functions as a command runs. The entries of a unit are walked in a row, not as a
//! tree, and everything is bounded by the caller's patience: what is read here may be
//! damaged, or made up to be slow.

use std::collections::{BTreeMap, btree_map};

use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, Range, RangeIter, Unit,
    UnitOffset,
};
use netplumb_model::loss::Loss;
use object::{Object, ObjectSection};

use super::dwarf::{Entry, LinesError, Patience, Slice, sections};
use super::elf::{Elf, is_code};
use files::{Files, UnitFiles};

mod files;

/// A definition is two or three entries away from its code's entry.
const MAX_ORIGINS: usize = 8;

/// A line: index into [`Lines::files`], and number.
pub type FileLine = (u32, u32);

/// Results, in the order of the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// Paths of source files as the compiler was given them, each once.
    pub files: Vec<String>,
    /// Where functions are defined.
    pub functions: Vec<Option<FileLine>>,
    /// Lines of instructions; inlined code has its own.
    pub code: Vec<Option<FileLine>>,
}

/// The loss for files whose lines could not be read, each with the reason.
pub fn loss_of(failed: &[String]) -> Option<Loss> {
    let why = failed.first()?;
    Some(Loss::new(
        "files without line information",
        failed.len() as u64,
        format!("{why}; function names and costs are not affected"),
    ))
}

/// The lines of some functions, by the addresses at which they begin, and of some
/// instructions. `file` is the ELF file with the debug information, addresses are the
/// file's own. It stops as soon as `go_on` returns false.
///
/// # Errors
/// What keeps them from being known. A file without debug information has none, which
/// is not an error.
pub fn lines(
    file: &[u8],
    functions: &[u64],
    code: &[u64],
    go_on: &dyn Fn() -> bool,
) -> Result<Lines, LinesError> {
    let elf = Elf::parse(file).map_err(|e| LinesError::Damaged(e.to_string()))?;
    let sections = sections(&elf)?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut search = Search {
        dwarf,
        functions: asked(functions),
        code: asked(code.iter().chain(functions)),
        files: Files::default(),
        patience: Patience { go_on, steps: 0 },
        // Debug information still has what the linker left out, as if it were at 0.
        first: elf.sections().filter(is_code).map(|s| s.address()).min().unwrap_or(0),
    };
    search.run()?;
    // The assembler's functions have no entry: theirs is the line of the first instruction.
    let first = |at: &u64| search.code.get(at).copied().flatten();
    Ok(Lines {
        functions: functions
            .iter()
            .map(|at| search.functions.get(at).copied().flatten().or_else(|| first(at)))
            .collect(),
        code: code.iter().map(first).collect(),
        files: search.files.names,
    })
}

/// Addresses, with the lines found for them.
type AddressLines = BTreeMap<u64, Option<FileLine>>;

fn asked<'a>(addresses: impl IntoIterator<Item = &'a u64>) -> AddressLines {
    addresses.into_iter().map(|at| (*at, None)).collect()
}

struct Search<'a, 'p> {
    dwarf: Dwarf<Slice<'a>>,
    functions: AddressLines,
    /// Instructions, and where functions begin.
    code: AddressLines,
    files: Files,
    patience: Patience<'p>,
    /// The address of the first code.
    first: u64,
}

impl<'a> Search<'a, '_> {
    fn run(&mut self) -> Result<(), LinesError> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            self.patience.ask()?;
            // One that can't be read keeps no other from being read.
            let Ok(unit) = self.dwarf.unit(header) else {
                continue;
            };
            if !self.is_asked_for(&unit)? {
                continue;
            }
            let mut files = UnitFiles::default();
            tolerate(self.rows(&unit, &mut files))?;
            tolerate(self.definitions(&unit, &mut files))?;
        }
        Ok(())
    }

    /// Whether a requested address may be in a unit.
    fn is_asked_for(&mut self, unit: &Unit<Slice<'a>>) -> Result<bool, LinesError> {
        let mut entries = unit.entries();
        let Some(root) = entries.next_dfs()? else {
            return Ok(false);
        };
        let Ok(mut ranges) = self.ranges(unit, root) else {
            return Ok(true);
        };
        let mut any = false;
        loop {
            self.patience.step()?;
            match ranges.next() {
                Ok(Some(range)) => {
                    any = true;
                    if range.begin >= self.first
                        && within(&self.code, range).is_some_and(|mut at| at.next().is_some())
                    {
                        return Ok(true);
                    }
                }
                // A unit without ranges may have anything.
                Ok(None) => return Ok(!any),
                Err(_) => return Ok(true),
            }
        }
    }

    /// Look the instructions up in the unit's line table.
    fn rows(&mut self, unit: &Unit<Slice<'a>>, files: &mut UnitFiles) -> Result<(), LinesError> {
        let Some(program) = unit.line_program.clone() else {
            return Ok(());
        };
        let mut rows = program.rows();
        // From here on, until the next row: address, file and line.
        let mut before: Option<(u64, u64, u64)> = None;
        let mut sequence: Option<u64> = None;
        while let Some((header, row)) = rows.next_row()? {
            self.patience.step()?;
            let start = *sequence.get_or_insert(row.address());
            if row.end_sequence() {
                sequence = None;
            }
            if let Some((begin, file, line)) = before.take()
                && start >= self.first
            {
                let range = Range { begin, end: row.address() };
                let found: Vec<u64> = within(&self.code, range)
                    .into_iter()
                    .flatten()
                    .filter(|(_, line)| line.is_none())
                    .map(|(at, _)| *at)
                    .collect();
                for at in found {
                    self.patience.step()?;
                    let file = files.number(&self.dwarf, unit, header, file, &mut self.files);
                    self.code.insert(at, file.and_then(|f| numbered(f, line)));
                }
            }
            if !row.end_sequence()
                && let Some(line) = row.line()
            {
                before = Some((row.address(), row.file_index(), line.get()));
            }
        }
        Ok(())
    }

    /// Look for the entries of functions.
    fn definitions(
        &mut self,
        unit: &Unit<Slice<'a>>,
        files: &mut UnitFiles,
    ) -> Result<(), LinesError> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            self.patience.step()?;
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let mut found: Vec<u64> = Vec::new();
            let mut ranges = self.ranges(unit, entry)?;
            while let Some(range) = ranges.next()? {
                self.patience.step()?;
                if range.begin < self.first {
                    continue;
                }
                let asked = within(&self.functions, range).into_iter().flatten();
                found.extend(asked.filter(|(_, l)| l.is_none()).map(|(at, _)| *at));
            }
            if found.is_empty() {
                continue;
            }
            let Some(line) = self.definition(unit, entry, files)? else {
                continue;
            };
            for at in found {
                self.functions.insert(at, Some(line));
            }
        }
        Ok(())
    }

    /// The addresses of an entry.
    fn ranges(
        &self,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
    ) -> Result<RangeIter<Slice<'a>>, LinesError> {
        // gimli adds them up without looking.
        if let Some(begin) = entry.attr_value(gimli::DW_AT_low_pc)
            && let Some(begin) = self.dwarf.attr_address(unit, begin)?
            && let Some(AttributeValue::Udata(size)) = entry.attr_value(gimli::DW_AT_high_pc)
            && begin.checked_add(size).is_none()
        {
            return Err(LinesError::Damaged("a function without an end".into()));
        }
        Ok(self.dwarf.die_ranges(unit, entry)?)
    }

    /// Where a function is defined. An instance refers to its original, and a
    /// definition outside of its class to the declaration in it: each has what the next
    /// lacks.
    fn definition(
        &mut self,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        files: &mut UnitFiles,
    ) -> Result<Option<FileLine>, LinesError> {
        let (mut file, mut line) = (None, None);
        let mut next = take(entry, &mut file, &mut line);
        // The unit that the last entry is in, if it is another.
        let mut elsewhere: Option<Unit<Slice<'a>>> = None;
        for _ in 0..MAX_ORIGINS {
            let Some(reference) = next.take() else { break };
            if file.is_some() && line.is_some() {
                break;
            }
            let offset = match reference {
                Reference::Here(offset) => offset,
                Reference::Anywhere(offset) => {
                    // Numbers of files are another unit's there: both are, or none.
                    if file.is_some() || line.is_some() {
                        break;
                    }
                    let (other, offset) = self.unit_at(offset)?;
                    elsewhere = Some(other);
                    offset
                }
            };
            let entry = elsewhere.as_ref().unwrap_or(unit).entry(offset)?;
            next = take(&entry, &mut file, &mut line);
        }
        let (Some(file), Some(line)) = (file, line) else {
            return Ok(None);
        };
        let mut other_files = UnitFiles::default();
        let (unit, files) = match &elsewhere {
            Some(other) => (other, &mut other_files),
            None => (unit, files),
        };
        let Some(program) = unit.line_program.as_ref() else {
            return Ok(None);
        };
        let file = files.number(&self.dwarf, unit, program.header(), file, &mut self.files);
        Ok(file.and_then(|f| numbered(f, line)))
    }

    /// The unit that has an entry, and where in it.
    fn unit_at(
        &mut self,
        offset: DebugInfoOffset,
    ) -> Result<(Unit<Slice<'a>>, UnitOffset), LinesError> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            self.patience.step()?;
            if let Some(within) = offset.to_unit_offset(&header) {
                return Ok((self.dwarf.unit(header)?, within));
            }
        }
        Err(LinesError::Damaged("an entry that is not there".into()))
    }
}

/// An error in one unit does not keep others from being read.
fn tolerate(outcome: Result<(), LinesError>) -> Result<(), LinesError> {
    match outcome {
        Err(LinesError::Damaged(_)) => Ok(()),
        other => other,
    }
}

/// The addresses in a range, which may be upside down.
fn within(
    asked: &AddressLines,
    range: Range,
) -> Option<btree_map::Range<'_, u64, Option<FileLine>>> {
    (range.begin < range.end).then(|| asked.range(range.begin..range.end))
}

/// A line of a file; none for number 0, which stands for no line.
fn numbered(file: u32, line: u64) -> Option<FileLine> {
    let line = u32::try_from(line).ok().filter(|line| *line > 0)?;
    Some((file, line))
}

/// Another entry.
enum Reference {
    /// In this unit.
    Here(UnitOffset),
    /// In any unit.
    Anywhere(DebugInfoOffset),
}

/// Take the file and line of an entry where they are not known; returns what it refers to.
fn take(entry: &Entry<'_>, file: &mut Option<u64>, line: &mut Option<u64>) -> Option<Reference> {
    let mut reference = None;
    for attribute in entry.attrs() {
        let value = attribute.value();
        match attribute.name() {
            gimli::DW_AT_decl_file if file.is_none() => {
                *file = match value {
                    AttributeValue::FileIndex(index) => Some(index),
                    other => other.udata_value(),
                };
            }
            gimli::DW_AT_decl_line if line.is_none() => *line = value.udata_value(),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                reference = match value {
                    AttributeValue::UnitRef(offset) => Some(Reference::Here(offset)),
                    AttributeValue::DebugInfoRef(offset) => Some(Reference::Anywhere(offset)),
                    // In a file that several share (dwz), which is not read.
                    _ => None,
                };
            }
            _ => {}
        }
    }
    reference
}

#[cfg(test)]
mod tests;
