//! The debug information (DWARF) of an ELF file: the file that has it, its sections, and how long it may take to read.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;
use gimli::{DebuggingInformationEntry, DwarfSections, EndianSlice, LittleEndian};
use netplumb_kernel::compression::{Compression, unpack};
use object::{CompressionFormat, Object, ObjectSection, ReadRef};

use super::elf::Elf;

/// The debug information of one file is seldom more than a GiB, unpacked.
pub(super) const MAX_DWARF_BYTES: u64 = 1 << 30;
/// Steps between two checks of the caller's patience.
const STEPS: u32 = 4096;

/// Bytes of a section.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
/// An entry of a unit.
pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Why lines are missing.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// It is damaged, or of a kind that is not known.
    #[error("its debug information can't be read: {0}")]
    Damaged(String),
    /// It is too large to be read.
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

/// Whether an ELF file has debug information of its own.
pub fn has_lines(file: &[u8]) -> bool {
    Elf::parse(file).is_ok_and(|elf| elf.section_by_name(".debug_info").is_some())
}

/// The name and checksum of the file that has the debug information of another
/// (`.gnu_debuglink`); a plain name, without folders.
pub fn debug_link(file: &[u8]) -> Option<(String, u32)> {
    link_of(&Elf::parse(file).ok()?)
}

pub(super) fn link_of<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Option<(String, u32)> {
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

/// The caller's patience.
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
