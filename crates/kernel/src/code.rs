//! Whether two builds of a kernel module have the same code, and which functions differ.
//!
//! Two functions are the same if their instructions are, with what relocations and calls refer
//! to compared by name: a function that only moved, since one before it changed its size, is
//! the same.

mod branches;

use std::collections::{BTreeMap, HashMap};

use netplumb_model::arch::Arch;
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, Relocation, RelocationKind, RelocationTarget,
    SectionIndex, SectionKind, SymbolIndex, SymbolKind, elf,
};

/// The differences between two builds of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Functions whose code differs, by name.
    pub functions: Vec<FunctionDifference>,
    /// Symbols that both import with different versions (CRCs).
    pub versions: Vec<String>,
}

impl Difference {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.versions.is_empty()
    }
}

/// A function that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionDifference {
    /// The function's symbol.
    pub name: String,
    /// Its size in the first build, if it is in there.
    pub before_bytes: Option<u64>,
    /// Its size in the second.
    pub after_bytes: Option<u64>,
}

/// The code of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The size of all sections with instructions.
    pub text_bytes: u64,
    functions: BTreeMap<String, Body>,
    versions: BTreeMap<String, u32>,
}

/// A function's code, with what it refers to taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Body {
    /// Instructions; bytes that a relocation or a jump elsewhere fills are 0.
    bytes: Vec<u8>,
    /// The targets of these bytes, by offset.
    references: BTreeMap<u64, String>,
}

/// The code in a module's ELF file.
///
/// # Errors
/// It is not a whole ELF file of a known architecture; the text gives the reason.
pub fn code(module: &[u8]) -> Result<Code, String> {
    let file = ElfFile64::<Endianness>::parse(module)
        .map_err(|e| format!("not a whole ELF file ({e})"))?;
    let arch = match file.elf_header().e_machine.get(file.endian()) {
        elf::EM_X86_64 => Arch::X86_64,
        elf::EM_AARCH64 if file.is_little_endian() => Arch::Arm64,
        _ => return Err("neither for x86-64 nor for arm64".into()),
    };
    let places = Places::new(&file, arch);
    let mut code = Code { versions: versions(&file), ..Code::default() };
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let data = section.data().map_err(|e| format!("a section is damaged ({e})"))?;
        code.text_bytes += data.len() as u64;
        let relocations: BTreeMap<u64, Relocation> = section.relocations().collect();
        for function in places.functions_of(section.index()) {
            let range = function.begin as usize..(function.begin + function.size) as usize;
            let Some(bytes) = data.get(range) else {
                return Err(format!("{} leaves its section", function.name));
            };
            let body = body(function, bytes, &relocations, &places);
            // Static functions may share a name.
            let copies = (0..).map(|n| match n {
                0 => function.name.clone(),
                n => format!("{} ({})", function.name, n + 1),
            });
            let mut copies = copies.filter(|name| !code.functions.contains_key(name));
            if let Some(name) = copies.next() {
                code.functions.insert(name, body);
            }
        }
    }
    Ok(code)
}

/// The differences of the second from the first.
pub fn compare(before: &Code, after: &Code) -> Difference {
    let mut names: Vec<&String> = before.functions.keys().chain(after.functions.keys()).collect();
    names.sort();
    names.dedup();
    let size =
        |code: &Code, name: &str| code.functions.get(name).map(|body| body.bytes.len() as u64);
    let functions = names
        .into_iter()
        .filter(|name| before.functions.get(*name) != after.functions.get(*name))
        .map(|name| FunctionDifference {
            name: name.clone(),
            before_bytes: size(before, name),
            after_bytes: size(after, name),
        });
    let versions = before
        .versions
        .iter()
        .filter(|(name, crc)| after.versions.get(*name).is_some_and(|other| other != *crc));
    Difference {
        functions: functions.collect(),
        versions: versions.map(|(name, _)| name.clone()).collect(),
    }
}

#[derive(Debug)]
struct Function {
    name: String,
    section: SectionIndex,
    begin: u64,
    size: u64,
}

/// The target of a relocation.
#[derive(Debug)]
struct NamedTarget {
    name: String,
    /// The section and offset that it stands for, where its name is not enough.
    place: Option<(SectionIndex, u64)>,
}

/// The layout of a module.
struct Places<'a> {
    arch: Arch,
    functions: Vec<Function>,
    sections: HashMap<SectionIndex, (String, &'a [u8])>,
    symbols: HashMap<SymbolIndex, NamedTarget>,
}

impl<'a> Places<'a> {
    fn new(file: &ElfFile64<'a, Endianness>, arch: Arch) -> Self {
        let mut functions = Vec::new();
        let mut symbols = HashMap::new();
        for symbol in file.symbols() {
            let name = symbol.name().unwrap_or_default().to_owned();
            // Labels of the compiler's are numbered throughout the file.
            let is_label = symbol.kind() == SymbolKind::Section || name.starts_with(".L");
            let named = NamedTarget {
                name: name.clone(),
                place: symbol
                    .section_index()
                    .filter(|_| is_label)
                    .map(|section| (section, symbol.address())),
            };
            symbols.insert(symbol.index(), named);
            if let (SymbolKind::Text, Some(section), 1..) =
                (symbol.kind(), symbol.section_index(), symbol.size())
            {
                functions.push(Function {
                    name,
                    section,
                    begin: symbol.address(),
                    size: symbol.size(),
                });
            }
        }
        functions
            .sort_by(|a, b| (a.section.0, a.begin, &a.name).cmp(&(b.section.0, b.begin, &b.name)));
        let sections = file.sections().map(|section| {
            let name = section.name().unwrap_or_default().to_owned();
            (section.index(), (name, section.data().unwrap_or_default()))
        });
        Places { arch, functions, sections: sections.collect(), symbols }
    }

    fn functions_of(&self, section: SectionIndex) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(move |function| function.section == section)
    }

    /// The content at an offset of a section: a function and how far into it, a string, or the section.
    fn describe(&self, section: SectionIndex, offset: u64) -> String {
        let within = self
            .functions_of(section)
            .find(|function| offset >= function.begin && offset < function.begin + function.size);
        if let Some(function) = within {
            return format!("{}+{:#x}", function.name, offset - function.begin);
        }
        let Some((name, data)) = self.sections.get(&section) else {
            return format!("section {}", section.0);
        };
        let rest = data.get(offset as usize..).unwrap_or_default();
        // A constant's place depends on all others: only its value counts.
        if let Some((_, size)) = name.split_once(".cst") {
            let size = size.parse().unwrap_or_default();
            return format!("{:02x?}", rest.get(..size));
        }
        if name.contains(".str") {
            let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            return format!("{:?}", String::from_utf8_lossy(&rest[..end]));
        }
        name.clone()
    }
}

fn body(
    function: &Function,
    bytes: &[u8],
    relocations: &BTreeMap<u64, Relocation>,
    places: &Places<'_>,
) -> Body {
    let mut out = bytes.to_vec();
    let mut references = BTreeMap::new();
    let end = function.begin + function.size;
    for (offset, relocation) in relocations.range(function.begin..end) {
        let at = offset - function.begin;
        // On arm64 a relocation covers some bits of an instruction, which are 0 until it is done.
        if places.arch == Arch::X86_64 {
            let size = u64::from(relocation.size().max(32)) / 8;
            let to = (at + size).min(function.size);
            out[at as usize..to as usize].fill(0);
        }
        references.insert(at, target(relocation, places));
    }
    for branch in branches::within(places.arch, bytes, function.begin) {
        let at = branch.at as u64;
        if (function.begin..end).contains(&branch.target) || references.contains_key(&at) {
            continue;
        }
        let field = out.iter_mut().skip(branch.at).take(branch.bytes);
        for (byte, kept) in field.zip(branch.other_bits.to_le_bytes()) {
            *byte &= kept;
        }
        references.insert(at, places.describe(function.section, branch.target));
    }
    Body { bytes: out, references }
}

fn target(relocation: &Relocation, places: &Places<'_>) -> String {
    let addend = relocation.addend();
    let RelocationTarget::Symbol(index) = relocation.target() else {
        return format!("{:?}{addend:+}", relocation.target());
    };
    match places.symbols.get(&index) {
        Some(NamedTarget { place: Some((section, address)), .. }) => {
            // Relative to the next instruction: the addend has the field's size in it.
            let relative = match relocation.kind() {
                _ if places.arch != Arch::X86_64 => 0,
                RelocationKind::Relative | RelocationKind::PltRelative => {
                    i64::from(relocation.size()) / 8
                }
                _ => 0,
            };
            let offset = *address as i64 + addend + relative;
            places.describe(*section, offset.max(0) as u64)
        }
        Some(NamedTarget { name, .. }) => format!("{name}{addend:+}"),
        None => format!("symbol {}{addend:+}", index.0),
    }
}

/// The CRCs of imported symbols, in entries of 64 bytes (`struct modversion_info`,
/// include/linux/module.h).
fn versions(file: &ElfFile64<'_, Endianness>) -> BTreeMap<String, u32> {
    let section = file.section_by_name("__versions");
    let data = section.and_then(|section| section.data().ok()).unwrap_or_default();
    let (entries, _) = data.as_chunks::<64>();
    entries
        .iter()
        .filter_map(|entry| {
            let (crc, name) = entry.split_first_chunk::<8>()?;
            let name = name.split(|byte| *byte == 0).next()?;
            let name = String::from_utf8_lossy(name).into_owned();
            (!name.is_empty()).then_some((name, u64::from_le_bytes(*crc) as u32))
        })
        .collect()
}

#[cfg(test)]
mod tests;
