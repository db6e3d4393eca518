//! The dependencies of an ELF file.

use std::fs::File;
use std::path::Path;

use netplumb_model::arch::Arch;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRTAB, ELFCLASS64, ELFDATA2MSB, EM_386,
    EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64,
};
use object::endian::LittleEndian;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Pod, ReadCache, ReadRef};

use super::BundleError;

/// The magic of ELF files.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// Longer than any valid search path or library name.
const MAX_STRING_BYTES: u64 = 64 << 10;
/// Offsets of class and byte order in the header.
const EI_CLASS: usize = 4;
const EI_DATA: usize = 5;

/// The dependencies of an ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The dynamic loader, if it is dynamically linked.
    pub(super) interpreter: Option<String>,
    /// The libraries that it needs directly (DT_NEEDED).
    pub(super) libraries: Vec<String>,
    /// Its name as a dependency of others (DT_SONAME).
    pub(super) soname: Option<String>,
    /// Directories of DT_RPATH, which also apply to the dependencies of its libraries.
    pub(super) rpath: Vec<String>,
    /// Directories of DT_RUNPATH, which apply only to itself.
    pub(super) runpath: Vec<String>,
}

/// Read the dependencies of the ELF file at `host`; `path` is its name in errors.
pub(super) fn read(host: &Path, path: &Path, arch: Arch) -> Result<Needs, BundleError> {
    let damaged =
        |why: &str| BundleError::Damaged { path: path.to_path_buf(), why: why.to_string() };
    let file = File::open(host)
        .map_err(|source| BundleError::Unreadable { path: path.to_path_buf(), source })?;
    // Read only the needed pages: programs can be large.
    let cache = ReadCache::new(file);
    let data = &cache;
    let ident: &[u8; 16] = at(data, 0).ok_or_else(|| damaged("it is cut short"))?;
    if !ident.starts_with(MAGIC) {
        return Err(damaged("it is not an ELF file"));
    }
    let wrong = |machine: String| BundleError::WrongArchitecture {
        path: path.to_path_buf(),
        machine,
        arch,
    };
    // e_machine has the same offset in both classes.
    let machine: &[u8; 2] = at(data, 18).ok_or_else(|| damaged("it is cut short"))?;
    let number = if ident[EI_DATA] == ELFDATA2MSB.0 {
        u16::from_be_bytes(*machine)
    } else {
        u16::from_le_bytes(*machine)
    };
    let machine = match arch {
        Arch::X86_64 => EM_X86_64,
        Arch::Arm64 => EM_AARCH64,
    };
    if number != machine.0 {
        return Err(wrong(machine_name(number)));
    }
    if ident[EI_DATA] == ELFDATA2MSB.0 {
        return Err(wrong(format!("big-endian {}", machine_name(number))));
    }
    if ident[EI_CLASS] != ELFCLASS64.0 {
        let narrow = match arch {
            Arch::X86_64 => "x32",
            Arch::Arm64 => "ILP32",
        };
        return Err(wrong(narrow.into()));
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(|e| damaged(&e.to_string()))?;
    let endian = header.endian().map_err(|e| damaged(&e.to_string()))?;
    let kind = header.e_type(endian);
    if kind != ET_EXEC && kind != ET_DYN {
        return Err(damaged("it is neither a program nor a shared library"));
    }
    let segments = header.program_headers(endian, data).map_err(|e| damaged(&e.to_string()))?;

    let mut needs = Needs::default();
    for segment in segments {
        if let Ok(Some(interpreter)) = segment.interpreter(endian, data) {
            needs.interpreter = Some(text(interpreter));
        }
    }
    let Some(Ok(Some(dynamic))) =
        segments.iter().map(|s| s.dynamic(endian, data)).find(|d| !matches!(d, Ok(None)))
    else {
        return Ok(needs);
    };
    let value = |tag| dynamic.iter().find(|d| d.tag(endian) == tag).map(|d| d.val(endian));
    // The address of the string table, to be converted to an offset in the file.
    let strings = value(DT_STRTAB).and_then(|address| {
        segments.iter().find_map(|s| {
            if s.p_type(endian) != object::elf::PT_LOAD {
                return None;
            }
            let into = address.checked_sub(s.p_vaddr(endian))?;
            (into < s.p_filesz(endian)).then(|| s.p_offset(endian) + into)
        })
    });
    let Some(strings) = strings else {
        return Ok(needs);
    };
    let string = |offset: u64| -> Result<String, BundleError> {
        let start =
            strings.checked_add(offset).ok_or_else(|| damaged("a name is out of bounds"))?;
        let end = data.len().unwrap_or(0).min(start.saturating_add(MAX_STRING_BYTES));
        data.read_bytes_at_until(start..end, 0)
            .map(text)
            .map_err(|()| damaged("a name is out of bounds"))
    };
    let folders = |offset: Option<u64>| -> Result<Vec<String>, BundleError> {
        Ok(match offset {
            Some(offset) => string(offset)?.split(':').map(String::from).collect(),
            None => Vec::new(),
        })
    };
    for entry in dynamic.iter().filter(|d| d.tag(endian) == DT_NEEDED) {
        needs.libraries.push(string(entry.val(endian))?);
    }
    needs.soname = value(DT_SONAME).map(string).transpose()?;
    needs.rpath = folders(value(DT_RPATH))?;
    needs.runpath = folders(value(DT_RUNPATH))?;
    Ok(needs)
}

fn at<'a, T: Pod>(data: impl ReadRef<'a>, offset: u64) -> Option<&'a T> {
    data.read_at(offset).ok()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn machine_name(number: u16) -> String {
    [
        (EM_X86_64, "x86-64"),
        (EM_386, "32-bit x86"),
        (EM_AARCH64, "64-bit ARM"),
        (EM_ARM, "32-bit ARM"),
        (EM_PPC64, "64-bit PowerPC"),
        (EM_RISCV, "RISC-V"),
        (EM_S390, "S/390"),
    ]
    .iter()
    .find(|(known, _)| known.0 == number)
    .map_or_else(|| format!("machine {number}"), |(_, name)| (*name).into())
}
