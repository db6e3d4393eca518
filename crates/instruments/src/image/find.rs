//! Finds the functions at some addresses of an ELF file, without reading all others.
//!
//! A profile meets some hundred addresses of files that have a million symbols. Each batch of
//! addresses takes one pass over the symbols: nothing is sorted, only names of what is found are
//! read, and of the file nothing is kept in memory. The result equals
//! [`Image::read`](super::Image::read) at these addresses.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, ParsedEhFrameHdr, UnwindSection};
use object::elf::{
    EM_AARCH64, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_X86_64, Machine, SHT_DYNSYM, SHT_SYMTAB,
    STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym64,
};
use object::read::elf::{FileHeader, SectionHeader, Sym, SymbolTable};
use object::read::{ReadCache, ReadCacheOps};
use object::{LittleEndian, Object, ObjectSection, ReadRef};

use super::debug::debug_path;
use super::dwarf::{LinesError, MAX_DWARF_BYTES, link_of};
use super::elf::{self, Elf, plainness};
use super::{ImageFunction, Segment, address_of, at_address};

/// Larger tables of symbols are not read: no real file has one.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// Where an ELF file is read from.
#[derive(Debug)]
enum Content {
    File(Rc<File>),
    Bytes(Vec<u8>),
}

/// Finds functions of an ELF file.
#[derive(Debug)]
pub struct Finder {
    content: Content,
    /// Its symbols, if they are in another file.
    debug: Option<File>,
    /// Symbols that it carries in a section (`.gnu_debugdata`).
    carried: Option<Vec<u8>>,
    segments: Vec<Segment>,
    id: Option<String>,
    machine: Machine,
}

impl Finder {
    /// For an open file, which was at `path`; none if it is not a 64-bit ELF file.
    pub fn of_file(file: &Rc<File>, path: &Path) -> Option<Finder> {
        let cache = ReadCache::new(&**file);
        let elf = parse(&cache)?;
        let debug = debug_path(Some(path), elf::id_of(&elf), || link_of(&elf));
        let debug = debug.and_then(|path| File::open(path).ok());
        Some(Finder {
            content: Content::File(Rc::clone(file)),
            debug,
            carried: elf::debugdata(&elf),
            segments: elf::segments(&elf),
            id: elf::id_of(&elf),
            machine: elf.elf_header().e_machine(LittleEndian),
        })
    }

    /// For a file in memory.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Option<Finder> {
        let elf = Elf::parse(&bytes[..]).ok()?;
        let (carried, segments) = (elf::debugdata(&elf), elf::segments(&elf));
        let (id, machine) = (elf::id_of(&elf), elf.elf_header().e_machine(LittleEndian));
        Some(Finder { content: Content::Bytes(bytes), debug: None, carried, segments, id, machine })
    }

    /// Its build ID, in hexadecimal.
    pub fn build_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether it has code of an architecture, by the name that `uname -m` has for it. Architectures
    /// without a name here may have any file.
    pub fn is_of(&self, architecture: &str) -> bool {
        let machine = match architecture {
            "x86_64" => EM_X86_64,
            "aarch64" => EM_AARCH64,
            "riscv64" => EM_RISCV,
            "ppc64le" => EM_PPC64,
            "loongarch64" => EM_LOONGARCH,
            _ => return true,
        };
        self.machine == machine
    }

    /// The address of the code at an offset of the file, if code is there.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        address_of(&self.segments, offset)
    }

    /// The contents of the file with its debug information: of itself, or of its debug file.
    ///
    /// # Errors
    /// It is too large.
    pub(crate) fn debug_info(&self) -> Result<Option<Vec<u8>>, LinesError> {
        let Content::File(own) = &self.content else {
            return Ok(None);
        };
        let has = |file: &&File| {
            let cache = ReadCache::new(*file);
            parse(&cache).is_some_and(|elf| elf.section_by_name(".debug_info").is_some())
        };
        let file = [Some(&**own), self.debug.as_ref()];
        let Some(file) = file.into_iter().flatten().find(has) else {
            return Ok(None);
        };
        let size = file.metadata().map_or(0, |known| known.len());
        // Anyone may have made it, of any size.
        let Some(size) = usize::try_from(size).ok().filter(|n| *n as u64 <= MAX_DWARF_BYTES) else {
            return Err(LinesError::TooLarge);
        };
        let mut bytes = vec![0; size];
        Ok(file.read_exact_at(&mut bytes, 0).is_ok().then_some(bytes))
    }

    /// The functions at some addresses, in their order; none where no function is known.
    pub(crate) fn functions(&self, addresses: &[u64]) -> Vec<Option<ImageFunction>> {
        let found = self.find_all(addresses).into_iter();
        found.map(|found| found.map(ImageFunction::from)).collect()
    }

    /// The same for very many addresses: in one function, they share its name.
    pub fn find_all(&self, addresses: &[u64]) -> Vec<Option<FileFunction>> {
        let mut asked = addresses.to_vec();
        asked.sort_unstable();
        asked.dedup();
        let found = match &self.content {
            Content::File(file) => self.find(&ReadCache::new(&**file), &asked),
            Content::Bytes(bytes) => self.find(&ReadCache::new(Cursor::new(bytes)), &asked),
        };
        let found = found.unwrap_or_else(|| vec![None; asked.len()]);
        let of = |address| Some(asked.binary_search(address).ok().map(|at| found[at].clone()));
        addresses.iter().map(|at| of(at).flatten().flatten()).collect()
    }

    fn find<R: ReadCacheOps>(
        &self,
        cache: &ReadCache<R>,
        asked: &[u64],
    ) -> Option<Vec<Option<FileFunction>>> {
        let elf = parse(cache)?;
        let code = elf::code(&elf);
        let mut symbols = Symbols::new(asked, &code);
        symbols.add(&elf);
        if let Some(debug) = &self.debug {
            let debug = ReadCache::new(debug);
            if let Some(debug) = parse(&debug) {
                symbols.add(&debug);
            }
        }
        let carried = self.carried.as_deref();
        if let Some(carried) = carried.and_then(|bytes| Elf::parse(bytes).ok()) {
            symbols.add(&carried);
        }
        symbols.spread();
        // Read when they are needed first.
        let (mut table, mut stubs) = (None, None);
        let mut frames = |address: u64| table.get_or_insert_with(|| Frames::read(&elf)).at(address);
        let found = (0..asked.len()).map(|at| {
            let address = asked[at];
            let function = symbols.functions.extent(at, &code, &mut frames);
            if let Some((found, name)) = function.filter(|(found, _)| found.has(address)) {
                return Some(found.called(name));
            }
            // Where functions are, mere places and frames are not.
            let before = function.map_or(0, |(found, _)| found.end);
            let after = symbols.functions.next[at];
            let place = symbols.places.extent(at, &code, &mut frames);
            let place = place.filter(|(found, _)| found.start >= before);
            let cut = |found: Extent| Extent { end: found.end.min(after), ..found };
            if let Some((found, name)) = place.map(|(found, name)| (cut(found), name))
                && found.has(address)
            {
                return Some(found.called(name));
            }
            let before = place.map_or(before, |(found, _)| found.end.max(before));
            let after = after.min(symbols.places.next[at]);
            let is_stub = |(start, end, _): &&(u64, u64, String)| (*start..*end).contains(&address);
            let stub = match in_stubs(&elf, address) {
                true => (stubs.get_or_insert_with(|| elf::stubs(&elf)).iter()).find(is_stub),
                false => None,
            };
            if let Some((start, end, name)) = stub {
                let (start, end) = (*start, *end);
                return Some(Extent { start, end }.called(&Rc::from(name.as_str())));
            }
            let frame = frames(address).filter(|frame| frame.start >= before)?;
            let frame = Extent { end: frame.end.min(after), ..frame };
            Some(frame.called(&at_address(frame.start).into()))
        });
        Some(found.collect())
    }
}

/// Read little of an ELF file; none if its tables are larger than any real one's.
fn parse<R: ReadCacheOps>(cache: &ReadCache<R>) -> Option<Elf<'_, &ReadCache<R>>> {
    let header = object::elf::FileHeader64::<LittleEndian>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, cache).ok()?;
    let is_table = |kind| kind == SHT_SYMTAB || kind == SHT_DYNSYM;
    let tables = sections.iter().filter(|s| is_table(s.sh_type(endian)));
    let bytes = tables.map(|s| s.sh_size(endian)).max().unwrap_or(0);
    (bytes <= MAX_TABLE_BYTES).then(|| Elf::parse(cache).ok())?
}

/// Whether calls of other files' functions go through an address.
fn in_stubs<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, address: u64) -> bool {
    let mut sections = elf.sections();
    sections.any(|section| {
        let from = section.address();
        (from..from.saturating_add(section.size())).contains(&address)
            && section.name().is_ok_and(|name| name.starts_with(".plt"))
    })
}

/// A function at an address of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFunction {
    /// Its first byte.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// Its symbol, as the file has it.
    pub name: Rc<str>,
}

impl From<FileFunction> for ImageFunction {
    fn from(found: FileFunction) -> ImageFunction {
        ImageFunction { start: found.start, end: found.end, name: found.name.as_ref().into() }
    }
}

/// The bounds of a function.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u64,
    end: u64,
}

impl Extent {
    fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn called(self, name: &Rc<str>) -> FileFunction {
        FileFunction { start: self.start, end: self.end, name: Rc::clone(name) }
    }
}

/// Symbols near addresses.
struct Symbols<'a> {
    /// Ascending.
    asked: &'a [u64],
    code: &'a [(u64, u64)],
    functions: Nearest,
    /// Symbols without a function's type: just places.
    places: Nearest,
}

/// The symbols of one kind next to addresses, by the address's index.
struct Nearest {
    /// The last that begins at the address or before it.
    last: Vec<Option<Last>>,
    /// Where the next one begins.
    next: Vec<u64>,
}

/// The symbols that begin at one place.
#[derive(Debug, Clone)]
struct Last {
    start: u64,
    /// The greatest of them: aliases may differ.
    size_bytes: u64,
    /// The plainest that was read.
    name: Option<Rc<str>>,
    /// Symbols of the current table whose names are not read yet.
    unread: Vec<usize>,
}

impl<'a> Symbols<'a> {
    fn new(asked: &'a [u64], code: &'a [(u64, u64)]) -> Symbols<'a> {
        Symbols {
            asked,
            code,
            functions: Nearest::new(asked.len()),
            places: Nearest::new(asked.len()),
        }
    }

    /// Add the symbols of a file with the same addresses.
    fn add<'data, R: ReadRef<'data>>(&mut self, from: &Elf<'data, R>) {
        for table in [from.elf_symbol_table(), from.elf_dynamic_symbol_table()] {
            self.pass(table);
        }
    }

    fn pass<'data, R: ReadRef<'data>>(
        &mut self,
        table: &SymbolTable<'data, object::elf::FileHeader64<LittleEndian>, R>,
    ) {
        let endian = LittleEndian;
        let mut within = (0, 0);
        for (index, symbol) in table.symbols().iter().enumerate() {
            let of = match symbol.st_type() {
                kind if kind == STT_FUNC || kind == STT_GNU_IFUNC => &mut self.functions,
                kind if kind == STT_NOTYPE => &mut self.places,
                _ => continue,
            };
            let start = symbol.st_value(endian);
            if symbol.is_undefined(endian) || symbol.st_name(endian) == 0 {
                continue;
            }
            // Most are in the same section.
            if !(within.0..within.1).contains(&start) {
                let has = |(from, to): &&(u64, u64)| (*from..*to).contains(&start);
                match self.code.iter().find(has) {
                    Some(section) => within = *section,
                    None => continue,
                }
            }
            of.offer(self.asked, start, symbol.st_size(endian), index);
        }
        let strings = table.strings();
        let name = |index: &usize| {
            let symbol: &Sym64<LittleEndian> = table.symbols().get(*index)?;
            let name = std::str::from_utf8(symbol.name(endian, strings).ok()?).ok()?;
            (!name.is_empty() && !name.starts_with('$')).then(|| Rc::from(name))
        };
        for of in [&mut self.functions, &mut self.places] {
            for last in of.last.iter_mut().flatten() {
                let names = std::mem::take(&mut last.unread);
                let names = names.iter().filter_map(name).chain(last.name.take());
                last.name = names.min_by(|a, b| {
                    let key = |name: &Rc<str>| (plainness(name), Rc::clone(name));
                    key(a).cmp(&key(b))
                });
            }
        }
    }

    /// What is nearest to one address may be nearest to its neighbour, too.
    fn spread(&mut self) {
        for of in [&mut self.functions, &mut self.places] {
            let mut before: Option<Last> = None;
            for last in &mut of.last {
                let start = |of: &Option<Last>| of.as_ref().map(|last| last.start);
                match start(last) < start(&before) {
                    true => last.clone_from(&before),
                    false => before.clone_from(last),
                }
            }
            let mut after = u64::MAX;
            for next in of.next.iter_mut().rev() {
                after = after.min(*next);
                *next = after;
            }
        }
    }
}

impl Nearest {
    fn new(count: usize) -> Nearest {
        Nearest { last: vec![None; count], next: vec![u64::MAX; count] }
    }

    fn offer(&mut self, asked: &[u64], start: u64, size_bytes: u64, index: usize) {
        let at = asked.partition_point(|address| *address < start);
        if let Some(before) = at.checked_sub(1) {
            self.next[before] = self.next[before].min(start);
        }
        let Some(last) = self.last.get_mut(at) else {
            return;
        };
        match last {
            Some(last) if last.start > start => {}
            Some(last) if last.start == start => {
                last.size_bytes = last.size_bytes.max(size_bytes);
                last.unread.push(index);
            }
            _ => {
                *last = Some(Last { start, size_bytes, name: None, unread: vec![index] });
            }
        }
    }

    /// The last function before or at an address, by the address's index, and its name.
    fn extent(
        &self,
        at: usize,
        code: &[(u64, u64)],
        frames: &mut dyn FnMut(u64) -> Option<Extent>,
    ) -> Option<(Extent, &Rc<str>)> {
        let last = self.last.get(at)?.as_ref()?;
        let name = last.name.as_ref()?;
        let start = last.start;
        let section = code.iter().find(|(from, to)| (*from..*to).contains(&start));
        // Without a size it goes on to the next, whatever that is.
        let next = self.next[at].min(section.map_or(u64::MAX, |(_, end)| *end));
        let end = match last.size_bytes {
            0 => match frames(start).filter(|frame| frame.start == start) {
                Some(frame) => frame.end,
                None => next,
            },
            size => start.saturating_add(size),
        };
        let end = end.min(next);
        Some((Extent { start, end }, name))
    }
}

/// The unwind table, with the bounds of functions without a symbol.
enum Frames<'data> {
    /// With an index.
    Indexed {
        index: ParsedEhFrameHdr<Slice<'data>>,
        table: EhFrame<Slice<'data>>,
        bases: BaseAddresses,
    },
    /// All of it, ascending.
    All(Vec<(u64, u64)>),
}

type Slice<'data> = EndianSlice<'data, gimli::LittleEndian>;

impl<'data> Frames<'data> {
    fn read<R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Frames<'data> {
        let bases = elf::bases(elf);
        let data = |name: &str| elf.section_by_name(name)?.data().ok();
        let index = data(".eh_frame_hdr").and_then(|bytes| {
            let index = EhFrameHdr::new(bytes, gimli::LittleEndian);
            let index = index.parse(&bases, size_of::<u64>() as u8).ok()?;
            index.table().is_some().then_some(index)
        });
        match index.zip(data(".eh_frame")) {
            Some((index, bytes)) => {
                Frames::Indexed { index, table: EhFrame::new(bytes, gimli::LittleEndian), bases }
            }
            None => Frames::All(elf::frames(elf)),
        }
    }

    /// The entry of an address.
    fn at(&self, address: u64) -> Option<Extent> {
        match self {
            Frames::Indexed { index, table, bases } => {
                let of = EhFrame::cie_from_offset;
                let found = (index.table()?).fde_for_address(table, bases, address, of);
                let found = found.ok()?;
                let start = found.initial_address();
                Some(Extent { start, end: start.saturating_add(found.len()) })
            }
            Frames::All(all) => {
                let after = all.partition_point(|(start, _)| *start <= address);
                let (start, end) = *all.get(after.checked_sub(1)?)?;
                Some(Extent { start, end }).filter(|frame| frame.has(address))
            }
        }
    }
}

#[cfg(test)]
mod tests;
