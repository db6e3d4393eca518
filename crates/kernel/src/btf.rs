//! A kernel's types (BTF): prototypes of its functions.
//!
//! The format is described in Documentation/bpf/btf.rst. The input may be damaged: nothing is followed without a bound.

use std::collections::HashMap;
use std::sync::Arc;

use netplumb_model::arch::Arch;
use object::{Object, ObjectSection};

use crate::prototype::{Parameter, Place, Prototype, Shape, Type};

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;
/// BTF_INT_SIGNED and BTF_INT_BOOL.
const IS_SIGNED: u32 = 1;
const IS_BOOL: u32 = 4;
/// Types that stand for each other, at most.
const MOST_NAMES: usize = 32;
/// How deep structures in structures are looked at, and the most members of each.
const MOST_WITHIN: usize = 3;
const MOST_MEMBERS: usize = 16;

/// The ELF section with BTF.
const SECTION: &str = ".BTF";

/// An error of a kernel's types.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BtfError {
    /// It has no types.
    #[error("it has no BTF")]
    Missing,
    /// They make no sense.
    #[error("its BTF is damaged")]
    Damaged,
}

/// Types of a kernel, or of a module of it.
#[derive(Debug)]
pub struct Btf {
    /// Those that it refers to.
    base: Option<Arc<Btf>>,
    bytes: Vec<u8>,
    strings: std::ops::Range<usize>,
    /// Where each type is, from the first that is not the base's.
    types: Vec<usize>,
    functions: HashMap<String, Vec<u32>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: usize,
    name: u32,
    kind: u32,
    count: usize,
    flag: bool,
    /// Its size, or the type that it refers to.
    of: u32,
}

impl Btf {
    /// Those in the ELF file of a kernel or module, the latter with the kernel's as `base`.
    ///
    /// # Errors
    /// It has none, or they are damaged.
    pub fn of_file(file: &[u8], base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        let elf = object::File::parse(file).map_err(|_| BtfError::Missing)?;
        let section = elf.section_by_name(SECTION).ok_or(BtfError::Missing)?;
        let bytes = section.data().map_err(|_| BtfError::Damaged)?;
        Btf::parse(bytes.to_vec(), base)
    }

    /// Those in the raw image of a kernel, which has no sections: the largest that begin like some.
    ///
    /// # Errors
    /// It has none, or they are damaged.
    pub fn find(image: &[u8]) -> Result<Btf, BtfError> {
        let begin = [&MAGIC.to_le_bytes()[..], &[1, 0], &[HEADER_BYTES as u8, 0, 0, 0]].concat();
        let size = |at: usize| {
            let length = |field| number(image, at + field).map(u64::from);
            let parts = [length(8)? + length(12)?, length(16)? + length(20)?];
            usize::try_from(parts[0].max(parts[1])).ok()
        };
        let found = memchr::memmem::find_iter(image, &begin);
        let found = found.filter_map(|at| Some((at, size(at)?.checked_add(HEADER_BYTES)?)));
        let fitting = found.filter_map(|(at, size)| image.get(at..at.checked_add(size)?));
        let section = fitting.max_by_key(|section| section.len());
        Btf::parse(section.ok_or(BtfError::Missing)?.to_vec(), None)
    }

    /// The types of a BTF section.
    ///
    /// # Errors
    /// They are damaged.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        let mut btf =
            Btf { base, bytes, strings: 0..0, types: Vec::new(), functions: HashMap::new() };
        btf.index().ok_or(BtfError::Damaged)?;
        Ok(btf)
    }

    /// The section that they were in.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn index(&mut self) -> Option<()> {
        let word = |at| number(&self.bytes, at);
        if word(0)? & 0xffff != u32::from(MAGIC) {
            return None;
        }
        let header = word(4)? as usize;
        if header < HEADER_BYTES {
            return None;
        }
        let part = |offset: u32, length: u32| {
            let start = header.checked_add(offset as usize)?;
            let end = start.checked_add(length as usize)?;
            (end <= self.bytes.len()).then_some(start..end)
        };
        let types = part(word(8)?, word(12)?)?;
        self.strings = part(word(16)?, word(20)?)?;
        let mut at = types.start;
        while at < types.end {
            let entry = self.entry_at(at)?;
            let count = entry.count;
            let more = match entry.kind {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | DATASEC | ENUM64 => count * 12,
                ENUM | FUNC_PROTO => count * 8,
                0 | 20.. => return None,
                _ => 0,
            };
            if entry.kind == FUNC {
                let id = self.first() + u32::try_from(self.types.len()).ok()?;
                let name = self.name(entry.name)?.to_string();
                self.functions.entry(name).or_default().push(id);
            }
            self.types.push(at);
            at += TYPE_BYTES + more;
        }
        (at == types.end).then_some(())
    }

    /// The number of the first type; 0 is `void`.
    fn first(&self) -> u32 {
        let base = self.base.as_ref();
        base.map_or(1, |base| base.first() + base.types.len() as u32)
    }

    /// How far the strings of what it refers to reach.
    fn first_string(&self) -> usize {
        let base = self.base.as_ref();
        base.map_or(0, |base| base.first_string() + base.strings.len())
    }

    fn entry_at(&self, at: usize) -> Option<Entry> {
        let info = number(&self.bytes, at + 4)?;
        Some(Entry {
            at,
            name: number(&self.bytes, at)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            flag: info >> 31 == 1,
            of: number(&self.bytes, at + 8)?,
        })
    }

    /// A type, and whose it is.
    fn entry(&self, id: u32) -> Option<(&Btf, Entry)> {
        match id.checked_sub(self.first()) {
            Some(own) => Some((self, self.entry_at(*self.types.get(own as usize)?)?)),
            None => self.base.as_ref()?.entry(id),
        }
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let Some(own) = (offset as usize).checked_sub(self.first_string()) else {
            return self.base.as_ref()?.name(offset);
        };
        let rest = self.bytes.get(self.strings.clone())?.get(own..)?;
        let end = memchr::memchr(0, rest)?;
        std::str::from_utf8(&rest[..end]).ok()
    }

    /// Whether there is a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// The prototype of the functions of a name; none if there are several.
    pub fn prototype(&self, name: &str, arch: Arch) -> Option<Prototype> {
        let mut all = self.functions.get(name)?.iter().map(|id| self.prototype_of(*id, arch));
        let first = all.next()??;
        all.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn prototype_of(&self, function: u32, arch: Arch) -> Option<Prototype> {
        let (_, function) = self.entry(function)?;
        let (owner, prototype) = self.entry(function.of)?;
        if prototype.kind != FUNC_PROTO {
            return None;
        }
        let mut parameters = Vec::with_capacity(prototype.count);
        for at in 0..prototype.count {
            let at = prototype.at + TYPE_BYTES + at * 8;
            let (name, of) = (number(&owner.bytes, at)?, number(&owner.bytes, at + 4)?);
            // `...` is a parameter without a type.
            if of == 0 {
                break;
            }
            let name = owner.name(name)?;
            parameters.push(Parameter {
                name: name.to_string(),
                of: self.plain(of)?.unwrap_or_default().called(name),
                place: Place::ByAbi,
            });
        }
        Some(Prototype { parameters, returns: self.plain(prototype.of)?, arch })
    }

    /// The type that another one stands for; none of `void`.
    fn plain(&self, mut id: u32) -> Option<Option<Type>> {
        let mut names = String::new();
        for _ in 0..MOST_NAMES {
            if id == 0 {
                return Some(None);
            }
            let (owner, entry) = self.entry(id)?;
            let bytes = u64::from(entry.of);
            return Some(Some(match entry.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => {
                    if entry.kind == TYPEDEF {
                        names = names + "_" + owner.name(entry.name)?;
                    }
                    id = entry.of;
                    continue;
                }
                PTR if owner.is_text(entry.of) => Type::scalar(Shape::Text, 8),
                PTR => Type::scalar(Shape::Pointer, 8),
                INT => {
                    let encoding = number(&owner.bytes, entry.at + TYPE_BYTES)? >> 24 & 0xf;
                    let shape = match encoding {
                        with if with & IS_BOOL != 0 => Shape::Bool,
                        with if with & IS_SIGNED != 0 => Shape::Signed,
                        _ => Shape::Unsigned,
                    };
                    Type::scalar(shape, bytes).called(&names)
                }
                ENUM | ENUM64 => Type::scalar(owner.names_of(entry)?, bytes),
                STRUCT | UNION => {
                    let fits = bytes <= 16;
                    Type::aggregate(bytes, fits && owner.has_wide(entry, 0).unwrap_or(false))
                }
                _ => Type::default(),
            }));
        }
        None
    }

    /// Whether a structure of at most 16 bytes has a number of 16 bytes, which aligns it.
    fn has_wide(&self, of: Entry, within: usize) -> Option<bool> {
        for member in 0..of.count.min(MOST_MEMBERS) {
            let mut id = number(&self.bytes, of.at + TYPE_BYTES + 12 * member + 4)?;
            for _ in 0..MOST_NAMES {
                let (owner, entry) = self.entry(id)?;
                match entry.kind {
                    TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = entry.of,
                    INT if entry.of == 16 => return Some(true),
                    STRUCT | UNION
                        if within < MOST_WITHIN && owner.has_wide(entry, within + 1)? =>
                    {
                        return Some(true);
                    }
                    _ => break,
                }
            }
        }
        Some(false)
    }

    /// Whether a type is `const char`.
    fn is_text(&self, mut id: u32) -> bool {
        let mut constant = false;
        for _ in 0..MOST_NAMES {
            let Some((owner, entry)) = self.entry(id) else {
                return false;
            };
            match entry.kind {
                CONST | VOLATILE | RESTRICT | TYPE_TAG => {
                    constant |= entry.kind == CONST;
                    id = entry.of;
                }
                INT => return constant && entry.of == 1 && owner.name(entry.name) == Some("char"),
                _ => return false,
            }
        }
        false
    }

    fn names_of(&self, of: Entry) -> Option<Shape> {
        let size = if of.kind == ENUM64 { 12 } else { 8 };
        let mut names = Vec::with_capacity(of.count);
        for n in 0..of.count {
            let at = of.at + TYPE_BYTES + n * size;
            let low = number(&self.bytes, at + 4)?;
            let value = match of.kind {
                ENUM64 => (u64::from(number(&self.bytes, at + 8)?) << 32 | u64::from(low)) as i64,
                _ if of.flag => i64::from(low as i32),
                _ => i64::from(low),
            };
            names.push((value, self.name(number(&self.bytes, at)?)?.to_string()));
        }
        Some(Shape::Enum { signed: of.flag, names: names.into() })
    }
}

/// A little-endian number of 32 bits.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section of types, which a test writes.
    #[derive(Default)]
    struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
        base: usize,
    }

    impl Writer {
        fn words(&mut self, words: &[u32]) {
            self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }

        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() && self.base == 0 {
                self.strings.push(0);
            }
            let at = self.base + self.strings.len();
            self.strings.extend(name.as_bytes());
            self.strings.push(0);
            at as u32
        }

        fn finish(&self) -> Vec<u8> {
            let mut out = vec![0x9f, 0xeb, 1, 0];
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            for word in [24, 0, types, types, strings] {
                out.extend(word.to_le_bytes());
            }
            out.extend(&self.types);
            out.extend(&self.strings);
            out
        }
    }

    /// `long get(const struct page *page, unsigned int order, enum mode mode, ...)`.
    fn kernel() -> (Vec<u8>, usize) {
        let mut w = Writer::default();
        let names: Vec<u32> = ["long", "page", "unsigned int", "mode", "READ", "NONE", "get"]
            .iter()
            .map(|name| w.name(name))
            .collect();
        let parameters: Vec<u32> = ["page", "order", "mode"].iter().map(|n| w.name(n)).collect();
        w.words(&[names[0], INT << 24, 8, 1 << 24 | 64]); // 1
        w.words(&[names[1], STRUCT << 24, 64]); // 2
        w.words(&[0, CONST << 24, 2]); // 3
        w.words(&[0, PTR << 24, 3]); // 4
        w.words(&[names[2], INT << 24, 4, 32]); // 5
        w.words(&[names[3], 1 << 31 | ENUM << 24 | 2, 4]); // 6
        w.words(&[names[4], 0, names[5], u32::MAX]);
        w.words(&[0, FUNC_PROTO << 24 | 4, 1]); // 7
        for (name, of) in parameters.iter().zip([4, 5, 6]) {
            w.words(&[*name, of]);
        }
        w.words(&[0, 0]);
        w.words(&[names[6], FUNC << 24, 7]); // 8
        (w.finish(), w.strings.len())
    }

    /// Check that a prototype is read with its names and types, and that one of a module is which uses
    /// the kernel's types.
    #[test]
    fn prototypes() {
        let (bytes, strings) = kernel();
        let kernel = Arc::new(Btf::parse(bytes, None).unwrap());
        let get = kernel.prototype("get", Arch::X86_64).unwrap();
        let registers = [0xffff_8880_0000_1000, 3, 0xffff_ffff, 0, 0, 0, 0, 0];
        assert_eq!(
            get.arguments(&registers, |_| None),
            "page=0xffff888000001000, order=3, mode=NONE"
        );
        assert_eq!(get.returned(-5_i64 as u64).unwrap(), "-5");
        assert_eq!(kernel.prototype("put", Arch::X86_64), None);
        let mut w = Writer { base: strings, ..Writer::default() };
        let (name, of) = (w.name("put"), w.name("count"));
        w.words(&[0, FUNC_PROTO << 24 | 1, 0, of, 5]); // 9
        w.words(&[name, FUNC << 24, 9]); // 10
        let module = Btf::parse(w.finish(), Some(kernel)).unwrap();
        let put = module.prototype("put", Arch::X86_64).unwrap();
        assert_eq!(put.arguments(&[7; 8], |_| None), "count=7");
        assert_eq!(put.returned(7), None);
        assert!(module.has_function("put") && !module.has_function("get"));
    }

    /// Check that a structure with a number of 16 bytes begins at an even register on arm64, and others do not.
    #[test]
    fn wide_structures() {
        let mut w = Writer::default();
        let names = ["long", "__int128", "s128", "set", "first", "wide", "pair", "last"];
        let [long, int128, s128, set, first, wide, pair, last] = names.map(|name| w.name(name));
        w.words(&[long, INT << 24, 8, 1 << 24 | 64]); // 1
        w.words(&[int128, INT << 24, 16, 1 << 24 | 128]); // 2
        w.words(&[s128, TYPEDEF << 24, 2]); // 3
        w.words(&[0, UNION << 24 | 2, 16, 0, 1, 0, 0, 3, 0]); // 4
        w.words(&[0, STRUCT << 24 | 1, 16, 0, 4, 0]); // 5
        w.words(&[0, STRUCT << 24 | 2, 16, 0, 1, 0, 0, 1, 64]); // 6
        w.words(&[0, FUNC_PROTO << 24 | 4, 1, first, 1]); // 7
        w.words(&[wide, 5, pair, 6, last, 1]);
        w.words(&[set, FUNC << 24, 7]); // 8
        let btf = Btf::parse(w.finish(), None).unwrap();
        let of = |arch| {
            let set = btf.prototype("set", arch).unwrap();
            set.arguments(&[1, 2, 3, 4, 5, 6, 7, 8], |_| None)
        };
        assert_eq!(of(Arch::Arm64), "first=1, wide=?, pair=?, last=7");
        assert_eq!(of(Arch::X86_64), "first=1, wide=?, pair=?, last=6");
    }

    /// Check that damaged types are refused or read in part, and never followed for ever.
    #[test]
    fn damaged() {
        let (bytes, _) = kernel();
        for length in 0..bytes.len() {
            let _ = Btf::parse(bytes[..length].to_vec(), None)
                .map(|btf| btf.prototype("get", Arch::X86_64));
        }
        for at in 0..bytes.len() {
            for value in [0, 4, 0x0c, 0x7f, 0xff] {
                let mut wrong = bytes.clone();
                wrong[at] = value;
                let _ = Btf::parse(wrong, None).map(|btf| btf.prototype("get", Arch::X86_64));
            }
        }
        assert!(matches!(Btf::of_file(b"no file", None), Err(BtfError::Missing)));
    }
}
