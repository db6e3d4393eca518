//! The functions and pages of an ELF file.

use std::collections::{BTreeMap, HashMap};

use gimli::{BaseAddresses, CieOrFde, EhFrame, UnwindSection};
use netplumb_kernel::compression::{Compression, unpack};
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, ET_EXEC, PF_X, PT_INTERP, PT_LOAD, SHF_EXECINSTR, STT_FUNC,
    STT_GNU_IFUNC, STT_NOTYPE,
};
use object::read::elf::{Dyn, ElfFile64, ElfSection64, FileHeader, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, ReadRef,
    RelocationTarget, SectionFlags,
};

use super::{Image, ImageFunction, PAGE_BYTES, Segment, at_address, page_hash};

/// The unpacked symbols of `.gnu_debugdata` are seldom more than some MB.
const MAX_DEBUGDATA_BYTES: u64 = 256 << 20;
/// More symbols than any real file has.
const MAX_FUNCTIONS: usize = 4 << 20;

/// A file is not an ELF file, or damaged.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {why}")]
pub struct ImageError {
    name: String,
    why: String,
}

pub(super) type Elf<'data, R = &'data [u8]> = ElfFile64<'data, LittleEndian, R>;

/// The build ID of an ELF file, in hexadecimal: the name of its debug file.
pub fn build_id(file: &[u8]) -> Option<String> {
    id_of(&Elf::parse(file).ok()?)
}

pub(super) fn id_of<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Option<String> {
    let id = elf.build_id().ok()??;
    Some(id.iter().map(|b| format!("{b:02x}")).collect())
}

fn parse<'data>(name: &str, file: &'data [u8]) -> Result<Elf<'data>, ImageError> {
    Elf::parse(file).map_err(|e| ImageError { name: name.to_string(), why: e.to_string() })
}

/// A file's functions.
pub(super) fn image(name: &str, file: &[u8], debug: Option<&[u8]>) -> Result<Image, ImageError> {
    let elf = parse(name, file)?;
    let mut functions = Functions::default();
    let mut named = Vec::new();
    gather(&elf, &elf, &mut named);
    if let Some(debug) = debug.and_then(|d| Elf::parse(d).ok()) {
        gather(&elf, &debug, &mut named);
    }
    let mini = debugdata(&elf);
    if let Some(mini) = mini.as_deref().and_then(|m| Elf::parse(m).ok()) {
        gather(&elf, &mini, &mut named);
    }
    let frames = frames(&elf);
    functions.add_symbols(named, &frames);
    for (start, end, name) in stubs(&elf) {
        functions.fill(start, end, name);
    }
    // Code without a name has an unwind table entry with its bounds: it is a function
    // of its own, and not the end of the one before.
    for (start, end) in frames {
        functions.fill(start, end, at_address(start));
    }
    Ok(Image {
        name: name.to_string(),
        entry: elf.entry(),
        program: is_program(&elf),
        functions: functions.sorted(),
        segments: segments(&elf),
    })
}

/// The symbols that a file without a symbol table of its own may carry (`.gnu_debugdata`): an ELF
/// file within it.
pub(super) fn debugdata<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Option<Vec<u8>> {
    let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
    unpack(Compression::Xz, packed, MAX_DEBUGDATA_BYTES).ok()
}

/// Whether a file is a program: it has a fixed place, asks for an interpreter, or is marked
/// as a program without one (DF_1_PIE of binutils' include/elf/common.h).
fn is_program(elf: &Elf<'_>) -> bool {
    let (endian, data) = (elf.endian(), elf.data());
    let segments = elf.elf_program_headers();
    let says_so = segments.iter().any(|segment| {
        let dynamic = segment.dynamic(endian, data).ok().flatten().unwrap_or(&[]);
        let mut flags = dynamic.iter().filter(|d| d.tag(endian) == DT_FLAGS_1);
        flags.any(|d| d.val(endian) & DF_1_PIE.0 != 0)
    });
    elf.elf_header().e_type(endian) == ET_EXEC
        || segments.iter().any(|s| s.p_type(endian) == PT_INTERP)
        || says_so
}

/// A symbol of code.
struct CodeSymbol {
    start: u64,
    size_bytes: u64,
    /// Its type is function: it is not just a place.
    function: bool,
    name: String,
    /// The end of its section, which it does not go beyond.
    limit: u64,
}

/// The symbols of `from`, an ELF file with the addresses of `of`.
fn gather(of: &Elf<'_>, from: &Elf<'_>, named: &mut Vec<CodeSymbol>) {
    let code = code(of);
    let tables = [from.symbol_table(), from.dynamic_symbol_table()];
    for symbol in tables.iter().flatten().flat_map(ObjectSymbolTable::symbols) {
        if symbol.is_undefined() || named.len() >= MAX_FUNCTIONS {
            continue;
        }
        let kind = symbol.elf_symbol().st_type();
        let function = kind == STT_FUNC || kind == STT_GNU_IFUNC;
        if !function && kind != STT_NOTYPE {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        let start = symbol.address();
        let Some((_, limit)) = code.iter().find(|(a, b)| (*a..*b).contains(&start)) else {
            continue;
        };
        if name.is_empty() || name.starts_with('$') {
            continue;
        }
        named.push(CodeSymbol {
            start,
            size_bytes: symbol.size(),
            function,
            name: name.to_string(),
            limit: *limit,
        });
    }
}

/// Where the sections with code begin and end.
pub(super) fn code<'data, R: ReadRef<'data>>(of: &Elf<'data, R>) -> Vec<(u64, u64)> {
    let sections = of.sections().filter(|section| is_code(section));
    sections.map(|s| (s.address(), s.address().saturating_add(s.size()))).collect()
}

pub(super) fn is_code<'data, R: ReadRef<'data>>(
    section: &ElfSection64<'data, '_, LittleEndian, R>,
) -> bool {
    match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & SHF_EXECINSTR.0 != 0,
        _ => false,
    }
}

/// Functions by where they begin; none over another.
#[derive(Default)]
struct Functions {
    by_start: BTreeMap<u64, (u64, String)>,
}

impl Functions {
    /// Add symbols: functions first, and mere places where no function is.
    fn add_symbols(&mut self, mut named: Vec<CodeSymbol>, frames: &[(u64, u64)]) {
        named.sort_by(|a, b| {
            (!a.function, a.start, plainness(&a.name), &a.name).cmp(&(
                !b.function,
                b.start,
                plainness(&b.name),
                &b.name,
            ))
        });
        let frames: HashMap<u64, u64> = frames.iter().copied().collect();
        let functions = named.partition_point(|n| n.function);
        for group in [&named[..functions], &named[functions..]] {
            for (index, symbol) in group.iter().enumerate() {
                let next = group[index + 1..]
                    .iter()
                    .find(|n| n.start > symbol.start)
                    .map_or(symbol.limit, |n| n.start.min(symbol.limit));
                // Aliases may differ in size: the longest is meant.
                let size = group[index..]
                    .iter()
                    .take_while(|n| n.start == symbol.start)
                    .map(|n| n.size_bytes)
                    .max()
                    .filter(|size| *size > 0)
                    .or_else(|| frames.get(&symbol.start).map(|end| end - symbol.start));
                let end = match size {
                    Some(size) => symbol.start.saturating_add(size),
                    // Without a size it goes on to the next, whatever that is.
                    None => next,
                };
                self.fill(symbol.start, end.min(next), symbol.name.clone());
            }
        }
    }

    /// Add a function where none is yet.
    fn fill(&mut self, start: u64, end: u64, name: String) {
        let before = self.by_start.range(..=start).next_back();
        if before.is_some_and(|(_, (end, _))| *end > start) {
            return;
        }
        let next = self.by_start.range(start..).next();
        let end = next.map_or(end, |(next, _)| end.min(*next));
        if end > start && self.by_start.len() < MAX_FUNCTIONS {
            self.by_start.insert(start, (end, name));
        }
    }

    fn sorted(self) -> Vec<ImageFunction> {
        self.by_start
            .into_iter()
            .map(|(start, (end, name))| ImageFunction { start, end, name })
            .collect()
    }
}

/// The plainest of several names for one place is shown: `write`, not `__write`.
pub(super) fn plainness(name: &str) -> (usize, usize) {
    let underscores = name.len() - name.trim_start_matches('_').len();
    // glibc's internal name of a function (include/libc-symbols.h).
    if name.starts_with("__GI_") {
        return (usize::MAX, name.len());
    }
    let mangled = name.starts_with("_Z") || name.starts_with("_R");
    (if mangled { 0 } else { underscores }, name.len())
}

/// Stubs for calls of other files' functions: `foo@plt`.
pub(super) fn stubs<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Vec<(u64, u64, String)> {
    let mut slots: HashMap<u64, String> = HashMap::new();
    let table = elf.dynamic_symbol_table();
    for (address, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            continue;
        };
        let name =
            table.as_ref().and_then(|t| t.symbol_by_index(index).ok()).and_then(|s| s.name().ok());
        if let Some(name) = name.filter(|n| !n.is_empty()) {
            slots.insert(address, name.to_string());
        }
    }
    let mut stubs = Vec::new();
    for section in elf.sections() {
        let is_plt = section.name().is_ok_and(|n| n.starts_with(".plt"));
        if !is_plt || !is_code(&section) {
            continue;
        }
        let (base, code) = (section.address(), section.data().unwrap_or_default());
        let entry_bytes =
            if section.name() == Ok(".plt.got") && code.len() % 16 != 0 { 8 } else { 16 };
        for (n, stub) in code.chunks(entry_bytes).enumerate() {
            let start = base + (n * entry_bytes) as u64;
            let named = slot_of(stub, start).and_then(|slot| slots.get(&slot));
            let name = named.map_or_else(|| "[plt]".to_string(), |n| format!("{n}@plt"));
            stubs.push((start, start + stub.len() as u64, name));
        }
    }
    stubs
}

/// The slot that a stub at `start` jumps through: `jmp *disp32(%rip)`.
fn slot_of(stub: &[u8], start: u64) -> Option<u64> {
    let at = stub.windows(2).position(|w| w == [0xff, 0x25])?;
    let four: [u8; 4] = stub.get(at + 2..at + 6)?.try_into().ok()?;
    let next = start + at as u64 + 6;
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(four))))
}

/// Where each function with an unwind table entry begins and ends.
pub(super) fn frames<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Vec<(u64, u64)> {
    let Some(section) = elf.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let bases = bases(elf);
    let data = section.data().unwrap_or_default();
    let table = EhFrame::new(data, gimli::LittleEndian);
    let mut entries = table.entries(&bases);
    let mut frames = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (start, size) = (fde.initial_address(), fde.len());
        if size > 0 && frames.len() < MAX_FUNCTIONS {
            frames.push((start, start.saturating_add(size)));
        }
    }
    frames.sort_unstable();
    frames.dedup();
    frames
}

/// Bases of relative addresses in unwind tables.
pub(super) fn bases<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> BaseAddresses {
    let address_of = |name: &str| elf.section_by_name(name).map_or(0, |s| s.address());
    BaseAddresses::default()
        .set_eh_frame_hdr(address_of(".eh_frame_hdr"))
        .set_eh_frame(address_of(".eh_frame"))
        .set_text(address_of(".text"))
        .set_got(address_of(".got"))
}

/// The parts of a file that are executed where they are mapped.
pub(super) fn segments<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Vec<Segment> {
    let endian = LittleEndian;
    let all = elf.elf_program_headers().iter();
    let executed = all.filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian).0 & PF_X.0 != 0);
    let segment = |segment: &object::elf::ProgramHeader64<LittleEndian>| Segment {
        offset: segment.p_offset(endian),
        address: segment.p_vaddr(endian),
        size_bytes: segment.p_filesz(endian),
    };
    executed.map(segment).collect()
}

/// The address and hash of each page that holds code.
pub(super) fn pages(name: &str, file: &[u8]) -> Result<Vec<(u64, u64)>, ImageError> {
    let elf = parse(name, file)?;
    let page = PAGE_BYTES as u64;
    let mut pages = Vec::new();
    for segment in segments(&elf) {
        let into = segment.address % page;
        let first = segment.address - into;
        let Some(offset) = segment.offset.checked_sub(into) else {
            continue;
        };
        let count = (into + segment.size_bytes.min(file.len() as u64)).div_ceil(page);
        for n in 0..count {
            let Some(rest) = file.get((offset + n * page) as usize..) else {
                break;
            };
            let bytes = &rest[..rest.len().min(PAGE_BYTES)];
            pages.push((first + n * page, page_hash(bytes)));
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests;
