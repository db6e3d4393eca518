use object::write::{Object as Elf, Relocation as Reference, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, RelocationEncoding, RelocationFlags, RelocationKind, SectionKind,
    SymbolFlags, SymbolScope,
};

use super::*;

/// A module with these functions one after the other, in its text section, each a name and
/// code; after them `string`, to which the last function's last four bytes refer.
fn module(functions: &[(&str, Vec<u8>)], strings: &[u8], refers_to: i64, crc: u8) -> Vec<u8> {
    let mut file = Elf::new(BinaryFormat::Elf, Architecture::X86_64, object::Endianness::Little);
    let text = file.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    let data =
        file.add_section(Vec::new(), b".rodata.str1.1".to_vec(), SectionKind::ReadOnlyString);
    file.append_section_data(data, strings, 1);
    let mut end = 0;
    for (name, code) in functions {
        let value = file.append_section_data(text, code, 1);
        end = value + code.len() as u64;
        file.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value,
            size: code.len() as u64,
            kind: SymbolKind::Text,
            scope: SymbolScope::Compilation,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    let symbol = file.section_symbol(data);
    let flags = RelocationFlags::Generic {
        kind: RelocationKind::Absolute,
        encoding: RelocationEncoding::X86Signed,
        size: 32,
    };
    let reference = Reference { offset: end - 4, symbol, addend: refers_to, flags };
    file.add_relocation(text, reference).unwrap();
    let mut entry = [0; 64];
    entry[0] = crc;
    entry[8..12].copy_from_slice(b"kfoo");
    let versions = file.add_section(Vec::new(), b"__versions".to_vec(), SectionKind::ReadOnlyData);
    file.append_section_data(versions, &entry, 32);
    file.write().unwrap()
}

/// `call`, from the end of code of that length, to a place.
fn call(after: usize, to: usize) -> Vec<u8> {
    let mut code = vec![0xe8];
    code.extend((to as i32 - (after as i32 + 5)).to_le_bytes());
    code
}

/// `mov $string, %rdi; ret` with the bytes that the relocation fills last.
fn last() -> Vec<u8> {
    vec![0x48, 0xc7, 0xc7, 0, 0, 0, 0]
}

fn module_code(module: &[u8]) -> Code {
    code(module).unwrap()
}

/// Check that functions which call one another within a section and refer to strings are the
/// same wherever they have moved to, and that the one that grew is not.
#[test]
fn moved_is_the_same() {
    let small = vec![0xc3];
    let large = vec![0x90, 0x90, 0xc3];
    let before = module_code(&module(
        &[("grows", small.clone()), ("calls", call(1, 0)), ("says", last())],
        b"hello\0world\0",
        6,
        1,
    ));
    let after = module_code(&module(
        &[("grows", large), ("calls", call(3, 0)), ("says", last())],
        b"more\0hello\0world\0",
        11,
        1,
    ));
    let difference = compare(&before, &after);
    let grown =
        FunctionDifference { name: "grows".into(), before_bytes: Some(1), after_bytes: Some(3) };
    assert_eq!(difference.functions, [grown]);
    assert!(difference.versions.is_empty());
    assert_eq!((before.text_bytes, after.text_bytes), (13, 15));
    assert!(compare(&before, &before).is_empty());
}

/// Check that another callee, another string, another instruction and another version of an
/// imported symbol are differences.
#[test]
fn others_are_not() {
    let functions = |callee: usize, op: u8| {
        [
            ("one", vec![op, 0xc3]),
            ("two", vec![0x90, 0xc3]),
            ("calls", call(4, callee)),
            ("says", last()),
        ]
    };
    let before = module_code(&module(&functions(0, 0x90), b"a\0b\0", 0, 1));
    for (other, name) in [
        (module(&functions(2, 0x90), b"a\0b\0", 0, 1), "calls"),
        (module(&functions(0, 0x90), b"a\0b\0", 2, 1), "says"),
        (module(&functions(0, 0xf4), b"a\0b\0", 0, 1), "one"),
    ] {
        let difference = compare(&before, &module_code(&other));
        let names: Vec<&str> = difference.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, [name]);
    }
    let difference = compare(&before, &module_code(&module(&functions(0, 0x90), b"a\0b\0", 0, 2)));
    assert_eq!(difference.versions, ["kfoo"]);
    assert!(difference.functions.is_empty() && !difference.is_empty());
}

/// Check that bytes other than a module's are refused, and a truncated module, too.
#[test]
fn damaged() {
    assert!(code(b"text").is_err());
    let whole = module(&[("says", last())], b"a\0", 0, 1);
    for end in [8, 64, whole.len() / 2] {
        assert!(code(&whole[..end]).is_err(), "{end}");
    }
}

/// A module of arm64 with these functions one after the other; the first instruction of `calls` refers to
/// `name` with an addend.
fn module_of_arm64(functions: &[(&str, &[u32])], name: &str, addend: i64) -> Vec<u8> {
    let little = object::Endianness::Little;
    let mut file = Elf::new(BinaryFormat::Elf, Architecture::Aarch64, little);
    let text = file.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    let symbol = |name: &str, value, size, section| Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size,
        kind: SymbolKind::Text,
        scope: SymbolScope::Compilation,
        weak: false,
        section,
        flags: SymbolFlags::None,
    };
    let other = file.add_symbol(symbol(name, 0, 0, SymbolSection::Undefined));
    for (name, words) in functions {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let value = file.append_section_data(text, &code, 4);
        let section = SymbolSection::Section(text);
        file.add_symbol(symbol(name, value, code.len() as u64, section));
        if *name == "calls" {
            let reference = Reference {
                offset: value,
                symbol: other,
                addend,
                flags: RelocationFlags::Elf { r_type: elf::R_AARCH64_CALL26 },
            };
            file.add_relocation(text, reference).unwrap();
        }
    }
    file.write().unwrap()
}

/// Check that functions of arm64 are compared by their instructions and these instructions' targets, wherever they are:
/// with relocations and without, and that a register, an addend or a callee is a difference.
#[test]
fn of_arm64() {
    const BL: u32 = 0x9400_0000;
    const RET: u32 = 0xd65f_03c0;
    const NOP: u32 = 0xd503_201f;
    // `cbz` of a register, this many instructions back.
    let back = |words: u32, register: u32| 0xb400_0000 | ((1 << 19) - words) << 5 | register;
    let plain = |first: &[u32], middle: u32, register: u32| {
        let jumps = [middle, back(1 + first.len() as u32, register), RET];
        let functions = [("first", first), ("jumps", &jumps), ("calls", &[BL, RET])];
        module_of_arm64(&functions, "printk", 0)
    };
    let before = module_code(&plain(&[RET], NOP, 3));
    assert_eq!(before.text_bytes, 24);
    let names = |other: &[u8]| -> Vec<String> {
        let found = compare(&before, &module_code(other)).functions;
        found.into_iter().map(|function| function.name).collect()
    };
    assert!(names(&plain(&[RET], NOP, 3)).is_empty());
    // All behind it has moved.
    assert_eq!(names(&plain(&[NOP, RET], NOP, 3)), ["first"]);
    assert_eq!(names(&plain(&[RET], RET, 3)), ["jumps"]);
    assert_eq!(names(&plain(&[RET], NOP, 4)), ["jumps"]);
    let jumps = [NOP, back(2, 3), RET];
    let functions: [(&str, &[u32]); 3] =
        [("first", &[RET]), ("jumps", &jumps), ("calls", &[BL, RET])];
    assert_eq!(names(&module_of_arm64(&functions, "kfree", 0)), ["calls"]);
    assert_eq!(names(&module_of_arm64(&functions, "printk", 8)), ["calls"]);
    assert!(names(&module_of_arm64(&functions, "printk", 0)).is_empty());
}
