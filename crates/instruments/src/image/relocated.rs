//! A kernel module as if it had been loaded: its sections at addresses, and the references of its
//! debug information resolved. A module's file is relocatable, so in it every section begins at 0.

use std::collections::HashMap;

use object::elf::{R_X86_64_32, R_X86_64_32S, R_X86_64_64, SHF_ALLOC};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionFlags, SectionIndex, SymbolIndex,
};

use super::LinesError;

/// Where the first section is put; not at 0, where debug information has code that the linker left out.
const BEGIN: u64 = 0x10_0000;
/// The distance between sections, beyond their size.
const APART: u64 = 0x1000;
/// In an `Elf64_Shdr`, and in an `Elf64_Sym` (<https://refspecs.linuxfoundation.org/elf/gabi4+/>).
const SH_ADDR: usize = 16;
const SECTION_HEADER_BYTES: usize = 64;
const ST_VALUE: usize = 8;
const SYMBOL_BYTES: usize = 24;
/// In an `Elf64_Ehdr`.
const E_SHOFF: usize = 40;

/// The same file with addresses. A file that is not relocatable is left as it is.
///
/// # Errors
/// It is damaged.
pub fn relocated(file: &[u8]) -> Result<Vec<u8>, LinesError> {
    let damaged = |why: &str| LinesError::Damaged(why.to_owned());
    let elf = ElfFile64::<LittleEndian>::parse(file).map_err(|e| damaged(&e.to_string()))?;
    let mut out = file.to_vec();
    if elf.kind() != object::ObjectKind::Relocatable {
        return Ok(out);
    }
    let headers: [u8; 8] = (file.get(E_SHOFF..E_SHOFF + 8))
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| damaged("no section headers"))?;
    let headers = u64::from_le_bytes(headers) as usize;
    let mut put = |at: Option<usize>, bytes: &[u8]| {
        let end = at.and_then(|at| at.checked_add(bytes.len()));
        let place = at.zip(end).and_then(|(at, end)| out.get_mut(at..end));
        place
            .map(|place| place.copy_from_slice(bytes))
            .ok_or_else(|| LinesError::Damaged("something is outside of the file".into()))
    };

    let mut addresses: HashMap<SectionIndex, u64> = HashMap::new();
    let mut next = BEGIN;
    for section in elf.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        if sh_flags.0 & SHF_ALLOC.0 == 0 {
            continue;
        }
        addresses.insert(section.index(), next);
        let header = section.index().0.checked_mul(SECTION_HEADER_BYTES);
        let at = header.and_then(|header| headers.checked_add(header + SH_ADDR));
        put(at, &next.to_le_bytes())?;
        let end = next.saturating_add(section.size()).saturating_add(APART);
        next = end - end % APART;
    }

    // Of symbols, and of the sections that debug information refers to.
    let mut values: HashMap<SymbolIndex, u64> = HashMap::new();
    let table = elf.elf_symbol_table().section();
    let symbols = elf.section_by_index(table).ok().and_then(|s| s.file_range());
    for symbol in elf.symbols() {
        let section = symbol.section_index();
        let begin = section.and_then(|section| addresses.get(&section));
        let value = symbol.address().wrapping_add(*begin.unwrap_or(&0));
        values.insert(symbol.index(), value);
        if let (Some((table, _)), Some(_)) = (symbols, begin) {
            let entry = symbol.index().0.checked_mul(SYMBOL_BYTES);
            let at = entry.and_then(|entry| (table as usize).checked_add(entry + ST_VALUE));
            put(at, &value.to_le_bytes())?;
        }
    }

    for section in elf.sections() {
        let is_debug = section.name().is_ok_and(|name| name.starts_with(".debug_"));
        let Some((begin, size)) = section.file_range().filter(|_| is_debug) else {
            continue;
        };
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                continue;
            };
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let value = values.get(&symbol).copied().unwrap_or(0);
            let value = value.wrapping_add_signed(relocation.addend());
            let bytes: &[u8] = match r_type {
                R_X86_64_64 => &value.to_le_bytes(),
                R_X86_64_32 | R_X86_64_32S => &(value as u32).to_le_bytes(),
                _ => continue,
            };
            if offset >= size {
                return Err(damaged("a relocation is outside of its section"));
            }
            put((begin as usize).checked_add(offset as usize), bytes)?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::image::{Image, lines};

    /// Check that the lines of a relocatable file's functions are found, in whichever sections they
    /// are, and that a program is left as it is.
    #[test]
    fn functions_of_several_sections() {
        let place = tempfile::TempDir::new().unwrap();
        let [source, module] = ["module.c", "module.o"].map(|name| place.path().join(name));
        let text = "int counter;\n\
                    __attribute__((section(\".init.text\"))) int begin(int x)\n\
                    {\n\
                    \treturn x + 1;\n\
                    }\n\
                    int work(int x)\n\
                    {\n\
                    \tcounter += x;\n\
                    \treturn begin(x);\n\
                    }\n";
        std::fs::write(&source, text).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-g", "-O1", "-fno-inline", "-c", "-o"]);
        let status = gcc.arg(&module).arg(&source).status().unwrap();
        assert!(status.success(), "{status}");
        let file = relocated(&std::fs::read(&module).unwrap()).unwrap();
        let image = Image::read("module", &file, None).unwrap();
        let begins = ["begin", "work"].map(|name| {
            let found = image.functions.iter().find(|f| f.name == name);
            found.unwrap_or_else(|| panic!("{name} of {:?}", image.functions)).start
        });
        assert!(begins[0] != begins[1] && begins.iter().all(|at| *at >= BEGIN));
        let found = lines(&file, &begins, &begins, &|| true).unwrap();
        let defined: Vec<Option<u32>> =
            (found.functions.iter()).map(|line| line.map(|(_, number)| number)).collect();
        assert_eq!(defined, [Some(2), Some(6)]);
        assert!(found.files.iter().any(|path| path.ends_with("module.c")));
        // Done twice, it would be shifted twice.
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(relocated(&program).unwrap(), program);
    }

    /// Check that a file cut short is an error, wherever it is cut.
    #[test]
    fn cut_short() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert!(relocated(&program[..40]).is_err());
        assert!(relocated(b"").is_err());
    }
}
