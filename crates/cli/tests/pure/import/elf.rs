//! ELF files: one that a test makes up, and where the code of another is.

use std::fs;

/// Bytes of code that each function of [`large`] has.
pub(crate) const CODE_BYTES: u64 = 32;

/// An ELF file of this architecture with many functions, whose names are long (elf.h).
pub(crate) fn large(functions: u64) -> Vec<u8> {
    const HEADER: u64 = 64 + 56;
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut names = vec![0_u8];
    let mut symbols = vec![0_u8; 24];
    for n in 0..functions {
        symbols.extend((names.len() as u32).to_le_bytes());
        // STB_GLOBAL and STT_FUNC, in section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((n * CODE_BYTES).to_le_bytes());
        symbols.extend(CODE_BYTES.to_le_bytes());
        names.extend(format!("a_function_{n:0120}\0").bytes());
    }
    let code_bytes = functions * CODE_BYTES;
    let symbols_at = HEADER;
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let mut file = own[..20].to_vec();
    file.extend(1_u32.to_le_bytes());
    for word in [0, 64, sections_at] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 4]);
    for half in [64_u16, 56, 1, 64, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    // Code is mapped from the beginning of the file, whatever is there: PT_LOAD, PF_R and PF_X.
    file.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    for word in [0, 0, 0, code_bytes, code_bytes, 4096] {
        file.extend(u64::to_le_bytes(word));
    }
    file.extend(symbols);
    file.extend(names);
    file.resize(sections_at as usize, 0);
    // SHT_PROGBITS with SHF_ALLOC and SHF_EXECINSTR, SHT_SYMTAB and SHT_STRTAB.
    let names_bytes = sections_at - names_at;
    for (kind, flags, at, bytes, link, each) in [
        (0_u32, 0_u64, 0, 0, 0_u32, 0),
        (1, 6, 0, code_bytes, 0, 0),
        (2, 0, symbols_at, names_at - symbols_at, 3, 24),
        (3, 0, names_at, names_bytes, 0, 0),
    ] {
        file.extend([0, kind].iter().flat_map(|word| word.to_le_bytes()));
        for word in [flags, 0, at, bytes] {
            file.extend(u64::to_le_bytes(word));
        }
        file.extend([link, 1].iter().flat_map(|word| word.to_le_bytes()));
        for word in [8, each] {
            file.extend(u64::to_le_bytes(word));
        }
    }
    file
}

/// Where the code of an ELF file begins in it.
pub(crate) fn own_code(path: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    // Of its program headers (elf.h), the executable one that is loaded.
    let headers = (0..half(56)).map(|n| word(32) as usize + usize::from(n) * 56);
    let code = headers.filter(|at| bytes[*at] == 1 && bytes[at + 4] & 1 == 1);
    code.map(|at| word(at + 8)).next().unwrap()
}
