//! Lines of source, from the debug information (DWARF) of an ELF file.
//!
//! Only what was executed is looked for, after it was: a file has a thousand times
//! as many functions as a command runs. The entries of a unit are walked in a row,
//! not as a tree, and everything is bounded by the caller's patience: what is read
//! here may be damaged, or made up to be slow.

use std::borrow::Cow;
use std::collections::{BTreeMap, btree_map};
use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, DwarfSections, EndianSlice,
    LittleEndian, Range, RangeIter, Unit, UnitOffset,
};
use netplumb_kernel::compression::{Compression, unpack};
use netplumb_model::loss::Loss;
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Object, ObjectSection, ReadRef};

use super::elf::is_code;
use files::{Files, UnitFiles};

mod files;

/// The debug information of one file is seldom more than a GiB, unpacked.
pub(super) const MAX_DWARF_BYTES: u64 = 1 << 30;
/// A definition is two or three entries from where its code is told of.
const MAX_ORIGINS: usize = 8;
/// So many steps are taken between two looks at the caller's patience.
const STEPS: u32 = 4096;

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Elf<'a> = ElfFile64<'a, object::LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Why there are no lines.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// It is damaged, or of a kind that is not known.
    #[error("its debug information can't be read: {0}")]
    Damaged(String),
    /// It is larger than is read.
    #[error("its debug information is more than {} MiB", MAX_DWARF_BYTES >> 20)]
    TooLarge,
    /// The caller did not want to wait longer.
    #[error("its debug information took too long to read")]
    TooSlow,
}

impl From<gimli::Error> for LinesError {
    fn from(error: gimli::Error) -> Self {
        LinesError::Damaged(error.to_string())
    }
}

/// A line: index into [`Lines::files`], and number.
pub type Line = (u32, u32);

/// What was found, in the order in which it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// Paths of source files, as the compiler was told them, each once.
    pub files: Vec<String>,
    /// Where functions are defined.
    pub functions: Vec<Option<Line>>,
    /// The lines that instructions were made of; of inlined code its own.
    pub code: Vec<Option<Line>>,
}

/// The loss of those files whose lines could not be read, each with why.
pub fn loss_of(failed: &[String]) -> Option<Loss> {
    let why = failed.first()?;
    Some(Loss::new(
        "files without line information",
        failed.len() as u64,
        format!("{why}; function names and costs are not affected"),
    ))
}

/// Whether an ELF file has debug information of its own.
pub fn has_lines(file: &[u8]) -> bool {
    Elf::parse(file).is_ok_and(|elf| elf.section_by_name(".debug_info").is_some())
}

/// The name and checksum of the file that has the debug information of another
/// (`.gnu_debuglink`); a plain name, without folders.
pub fn debug_link(file: &[u8]) -> Option<(String, u32)> {
    link_of(&Elf::parse(file).ok()?)
}

pub(super) fn link_of<'data, R: ReadRef<'data>>(
    elf: &ElfFile64<'data, object::LittleEndian, R>,
) -> Option<(String, u32)> {
    let (name, checksum) = elf.gnu_debuglink().ok()??;
    let name = String::from_utf8(name.to_vec()).ok()?;
    let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    plain.then_some((name, checksum))
}

/// The checksum that `.gnu_debuglink` has of a file.
pub fn debug_link_checksum(file: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(file);
    crc.sum()
}

/// The lines of some functions, by the addresses at which they begin, and of some
/// instructions. `file` is the ELF file with the debug information, addresses are
/// those that it speaks of. It is given up as soon as `go_on` says no.
///
/// # Errors
/// What keeps them from being known. Without debug information there are none, and
/// that is no error.
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
        // What the linker left out is still told of, as if it were at 0.
        first: elf.sections().filter(is_code).map(|s| s.address()).min().unwrap_or(0),
    };
    search.run()?;
    // What no entry tells of, the assembler's, has the line of its first instruction.
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

/// The sections with debug information of a file.
pub(super) fn sections<'a>(elf: &Elf<'a>) -> Result<DwarfSections<Cow<'a, [u8]>>, LinesError> {
    let mut left = MAX_DWARF_BYTES;
    DwarfSections::load(|id| section(elf, id.name(), &mut left))
}

/// A section, unpacked; empty if there is none.
fn section<'a>(elf: &Elf<'a>, name: &str, left: &mut u64) -> Result<Cow<'a, [u8]>, LinesError> {
    let Some(section) = elf.section_by_name(name) else {
        return Ok(Cow::Borrowed(&[]));
    };
    let damaged = |why: String| LinesError::Damaged(format!("{name}: {why}"));
    let packed = section.compressed_data().map_err(|e| damaged(e.to_string()))?;
    let bytes = match packed.format {
        CompressionFormat::None => Cow::Borrowed(packed.data),
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            ZlibDecoder::new(packed.data)
                .take(left.saturating_add(1))
                .read_to_end(&mut bytes)
                .map_err(|e| damaged(e.to_string()))?;
            Cow::Owned(bytes)
        }
        CompressionFormat::Zstandard => Cow::Owned(
            unpack(Compression::Zstd, packed.data, *left).map_err(|e| damaged(e.to_string()))?,
        ),
        _ => {
            return Err(damaged("unknown compression".into()));
        }
    };
    *left = left.checked_sub(bytes.len() as u64).ok_or(LinesError::TooLarge)?;
    Ok(bytes)
}

/// Addresses, and what was found of them.
type Asked = BTreeMap<u64, Option<Line>>;

fn asked<'a>(addresses: impl IntoIterator<Item = &'a u64>) -> Asked {
    addresses.into_iter().map(|at| (*at, None)).collect()
}

pub(super) struct Patience<'a> {
    pub(super) go_on: &'a dyn Fn() -> bool,
    pub(super) steps: u32,
}

impl Patience<'_> {
    /// One of many small steps.
    pub(super) fn step(&mut self) -> Result<(), LinesError> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.ask()
    }

    pub(super) fn ask(&mut self) -> Result<(), LinesError> {
        self.steps = 0;
        if (self.go_on)() { Ok(()) } else { Err(LinesError::TooSlow) }
    }
}

struct Search<'a, 'p> {
    dwarf: Dwarf<Slice<'a>>,
    functions: Asked,
    /// Instructions, and where functions begin.
    code: Asked,
    files: Files,
    patience: Patience<'p>,
    /// The address of the first code that there is.
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

    /// Whether anything that is asked for may be in a unit.
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
                // One that tells no ranges may have anything.
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

    /// Where a function is defined. An instance of it refers to what it is one of, and
    /// what is defined outside of its class to what is declared in it: each has what
    /// the next lacks.
    fn definition(
        &mut self,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        files: &mut UnitFiles,
    ) -> Result<Option<Line>, LinesError> {
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

/// What is wrong with one unit keeps no other from being read.
fn tolerate(outcome: Result<(), LinesError>) -> Result<(), LinesError> {
    match outcome {
        Err(LinesError::Damaged(_)) => Ok(()),
        other => other,
    }
}

/// Those that are in a range, which may be upside down.
fn within(asked: &Asked, range: Range) -> Option<btree_map::Range<'_, u64, Option<Line>>> {
    (range.begin < range.end).then(|| asked.range(range.begin..range.end))
}

/// A line of a file; what has number 0 is nobody's.
fn numbered(file: u32, line: u64) -> Option<Line> {
    let line = u32::try_from(line).ok().filter(|line| *line > 0)?;
    Some((file, line))
}

/// Another entry.
enum Reference {
    /// Of this unit.
    Here(UnitOffset),
    /// Of any.
    Anywhere(DebugInfoOffset),
}

/// Take the file and line of an entry, as far as they are not known; what it refers to.
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
