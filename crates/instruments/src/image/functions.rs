//! Functions by the debug information (DWARF) of an ELF file: prototypes, and where one was inlined.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gimli::{AttributeValue, EndianSlice, LittleEndian, Unit, UnitOffset};
use netplumb_kernel::prototype::{Parameter, Place, Prototype, Shape, Type};
use netplumb_model::arch::Arch;

use object::elf::EM_AARCH64;
use object::read::elf::{ElfFile64, FileHeader};

use super::dwarf::{Entry, LinesError, Patience, Slice, has_lines, sections};
use super::{debug_file, readable};

/// References and types that stand for each other, at most.
const MAX_STEPS: usize = 16;
/// Numbers of the registers of arguments, in DWARF: rdi, rsi, rdx, rcx, r8, r9; x0 to x7.
fn dwarf_registers(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::X86_64 => &[5, 4, 1, 2, 8, 9],
        Arch::Arm64 => &[0, 1, 2, 3, 4, 5, 6, 7],
    }
}

/// The architecture of a file's code: files of others run in no guest.
fn arch_of(file: &[u8]) -> Result<Arch, LinesError> {
    let elf = ElfFile64::<object::LittleEndian>::parse(file)
        .map_err(|e| LinesError::Damaged(e.to_string()))?;
    Ok(match elf.elf_header().e_machine(object::LittleEndian) {
        EM_AARCH64 => Arch::Arm64,
        _ => Arch::X86_64,
    })
}
/// Functions that an error names.
const MOST_LISTED: usize = 8;
/// Structures within each other, at most.
const MAX_WITHIN: usize = 4;

/// The prototypes of functions, by the addresses at which they begin. `file` is the ELF file with the
/// debug information. It stops as soon as `go_on` returns false.
///
/// # Errors
/// The debug information is damaged, or took too long.
pub fn prototypes(
    file: &[u8],
    addresses: &BTreeSet<u64>,
    go_on: &dyn Fn() -> bool,
) -> Result<BTreeMap<u64, Prototype>, LinesError> {
    let mut found = BTreeMap::new();
    if addresses.is_empty() {
        return Ok(found);
    }
    let arch = arch_of(file)?;
    each_unit(file, go_on, &mut |all, unit, patience| {
        let of = Reader { arch, ..Reader::new(all, unit)? };
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            patience.step()?;
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let begin = match entry.attr_value(gimli::DW_AT_low_pc) {
                Some(begin) => all.attr_address(unit, begin)?,
                None => None,
            };
            if let Some(begin) = begin.filter(|begin| addresses.contains(begin)) {
                let prototype = of.prototype(entry, begin)?;
                found.entry(begin).or_insert(prototype);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// The functions that a function was inlined into, by its name.
///
/// # Errors
/// As [`prototypes`].
pub fn inlined_into(
    file: &[u8],
    name: &str,
    go_on: &dyn Fn() -> bool,
) -> Result<BTreeSet<String>, LinesError> {
    let mut found = BTreeSet::new();
    each_unit(file, go_on, &mut |all, unit, patience| {
        let of = Reader::new(all, unit)?;
        let mut entries = unit.entries();
        // The function that has code, and how deep it is.
        let mut within: Option<(isize, UnitOffset)> = None;
        while let Some(entry) = entries.next_dfs()? {
            patience.step()?;
            if within.is_some_and(|(depth, _)| entry.depth() <= depth) {
                within = None;
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram => within = Some((entry.depth(), entry.offset())),
                gimli::DW_TAG_inlined_subroutine => {
                    let names = of.names(entry)?;
                    let is = names.iter().any(|of| {
                        *of == name || of.split_once('(').is_some_and(|(whole, _)| whole == name)
                    });
                    if let Some((_, function)) = within.filter(|_| is) {
                        let names = of.names(&unit.entry(function)?)?;
                        found.extend(names.into_iter().last());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    // Callers that were inlined in turn have no code of their own.
    found.remove(name);
    Ok(found)
}

/// The functions that a file's function was inlined into, in words; `path` is the file's. None if it was
/// not inlined, or that is not known.
pub(crate) fn inlined_in_words(
    path: Option<&Path>,
    file: &[u8],
    name: &str,
    go_on: &dyn Fn() -> bool,
) -> Option<String> {
    let debug = match has_lines(file) {
        true => None,
        false => debug_file(path, file),
    };
    let found = inlined_into(debug.as_deref().unwrap_or(file), name, go_on).ok()?;
    (!found.is_empty()).then(|| listed(&found))
}

/// Names in an error, and how many more there are.
pub fn listed(names: &BTreeSet<String>) -> String {
    let mut some: Vec<&str> = names.iter().take(MOST_LISTED).map(String::as_str).collect();
    let more = format!("{} more", names.len() - some.len());
    if names.len() > some.len() {
        some.push(&more);
    }
    some.join(", ")
}

type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type EachUnit<'e> =
    dyn FnMut(&Dwarf<'_>, &Unit<Slice<'_>>, &mut Patience<'_>) -> Result<(), LinesError> + 'e;

/// Look at each unit; one that can't be read keeps no other from being read.
fn each_unit(
    file: &[u8],
    go_on: &dyn Fn() -> bool,
    each: &mut EachUnit<'_>,
) -> Result<(), LinesError> {
    let elf = ElfFile64::parse(file).map_err(|e| LinesError::Damaged(e.to_string()))?;
    let sections = sections(&elf)?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut patience = Patience { go_on, steps: 0 };
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        patience.ask()?;
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        match each(&dwarf, &unit, &mut patience) {
            Err(LinesError::Damaged(_)) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Reads entries of a unit.
struct Reader<'r, 'a> {
    dwarf: &'r Dwarf<'a>,
    unit: &'r Unit<Slice<'a>>,
    /// It follows C's calling convention for all types, not only integers and pointers.
    is_c: bool,
    /// GCC made it.
    is_gnu: bool,
    /// Whose calls they are.
    arch: Arch,
}

impl<'r, 'a> Reader<'r, 'a> {
    fn new(dwarf: &'r Dwarf<'a>, unit: &'r Unit<Slice<'a>>) -> Result<Self, LinesError> {
        let mut entries = unit.entries();
        let root = entries.next_dfs()?;
        let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
        let is_c = match language {
            Some(AttributeValue::Language(language)) => [
                gimli::DW_LANG_C89,
                gimli::DW_LANG_C,
                gimli::DW_LANG_C99,
                gimli::DW_LANG_C11,
                gimli::DW_LANG_C17,
                gimli::DW_LANG_C_plus_plus,
                gimli::DW_LANG_C_plus_plus_03,
                gimli::DW_LANG_C_plus_plus_11,
                gimli::DW_LANG_C_plus_plus_14,
                gimli::DW_LANG_C_plus_plus_17,
                gimli::DW_LANG_C_plus_plus_20,
            ]
            .contains(&language),
            _ => false,
        };
        let mut of = Reader { dwarf, unit, is_c, is_gnu: false, arch: Arch::OWN };
        if let Some(producer) = root.and_then(|root| root.attr_value(gimli::DW_AT_producer)) {
            of.is_gnu = of.text(producer)?.starts_with("GNU");
        }
        Ok(of)
    }

    /// An entry, and the entries of the same unit that it is an instance of.
    fn chain(&self, entry: &Entry<'a>) -> Result<Vec<Entry<'a>>, LinesError> {
        let mut all = vec![entry.clone()];
        while all.len() < MAX_STEPS
            && let Some(last) = all.last()
        {
            let next = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
                .into_iter()
                .find_map(|of| last.attr_value(of));
            let Some(AttributeValue::UnitRef(offset)) = next else {
                break;
            };
            all.push(self.unit.entry(offset)?);
        }
        Ok(all)
    }

    fn text(&self, value: AttributeValue<Slice<'a>>) -> Result<String, LinesError> {
        let text = self.dwarf.attr_string(self.unit, value)?;
        Ok(text.to_string_lossy().into_owned())
    }

    /// The names of a function: the plain one, and the linker's made readable, if it has one.
    fn names(&self, entry: &Entry<'a>) -> Result<Vec<String>, LinesError> {
        let chain = self.chain(entry)?;
        let first = |of| chain.iter().find_map(|entry| entry.attr_value(of));
        let mut names = Vec::new();
        if let Some(name) = first(gimli::DW_AT_name) {
            names.push(self.text(name)?);
        }
        if let Some(name) = first(gimli::DW_AT_linkage_name) {
            names.push(readable(&self.text(name)?));
        }
        Ok(names)
    }

    /// The prototype of a function that begins at an address.
    fn prototype(&self, function: &Entry<'a>, begin: u64) -> Result<Prototype, LinesError> {
        let mut parameters = Vec::new();
        let mut entries = self.unit.entries_at_offset(function.offset())?;
        let _ = entries.next_dfs()?;
        while let Some(entry) = entries.next_dfs()? {
            match (entry.depth(), entry.tag()) {
                (..=0, _) | (1, gimli::DW_TAG_unspecified_parameters) => break,
                (1, gimli::DW_TAG_formal_parameter) => {
                    let chain = self.chain(entry)?;
                    let name = (chain.iter()).find_map(|e| e.attr_value(gimli::DW_AT_name));
                    let name = name.map_or(Ok(String::new()), |name| self.text(name))?;
                    let of = self.type_of(&chain, 0)?.unwrap_or_default();
                    parameters.push(Parameter {
                        of: self.passed(of.called(&name)),
                        name,
                        place: self.place(entry, begin)?,
                    });
                }
                _ => {}
            }
        }
        let mut returns = self.type_of(&self.chain(function)?, 0)?;
        // Other languages return small structures in their own ways.
        if let Some(of) = &mut returns
            && !self.is_c
            && of.shape == Shape::Struct
        {
            of.shape = Shape::Other;
        }
        Ok(Prototype { parameters, returns, arch: self.arch })
    }

    /// Where a parameter is when its function begins.
    fn place(&self, parameter: &Entry<'a>, begin: u64) -> Result<Place, LinesError> {
        let Some(location) = parameter.attr_value(gimli::DW_AT_location) else {
            // Nobody uses it. GCC's functions have it nevertheless, or else another name.
            return Ok(match self.is_gnu {
                true => Place::ByAbi,
                false => Place::Nowhere,
            });
        };
        let register = |expression: gimli::Expression<Slice<'a>>| {
            let [operation] = expression.0.slice() else {
                return None;
            };
            dwarf_registers(self.arch)
                .iter()
                .position(|register| gimli::DW_OP_reg0.0 + register == *operation)
                .map(|at| Place::Register(at as u8))
        };
        if let AttributeValue::Exprloc(expression) = location {
            // Where the function puts it, if it is on the stack.
            return Ok(register(expression).unwrap_or_default());
        }
        let Some(mut all) = self.dwarf.attr_locations(self.unit, location)? else {
            return Ok(Place::Nowhere);
        };
        while let Some(one) = all.next()? {
            if (one.range.begin..one.range.end).contains(&begin) {
                // A structure in two, or on the stack.
                let other = match self.is_gnu {
                    true => Place::ByAbi,
                    false => Place::Nowhere,
                };
                return Ok(register(one.data).unwrap_or(other));
            }
        }
        Ok(Place::Nowhere)
    }

    /// How it is passed: other languages pass large structures by address, and small ones in
    /// their own ways.
    fn passed(&self, of: Type) -> Type {
        let registers = match of.registers {
            Some(0) if !self.is_c && of.bytes > 16 => Some(1),
            Some(_) if !self.is_c && of.shape == Shape::Struct => None,
            other => other,
        };
        Type { registers, ..of }
    }

    /// The type of the first of these entries with one; none is `void`.
    fn type_of(&self, chain: &[Entry<'a>], within: usize) -> Result<Option<Type>, LinesError> {
        let mut reference = chain.iter().find_map(|entry| entry.attr_value(gimli::DW_AT_type));
        let mut names = String::new();
        for _ in 0..MAX_STEPS {
            let offset = match reference {
                None => return Ok(None),
                Some(AttributeValue::UnitRef(offset)) => offset,
                Some(_) => return Ok(Some(Type::default())),
            };
            let entry = self.unit.entry(offset)?;
            let size = entry.attr_value(gimli::DW_AT_byte_size);
            let bytes = size.and_then(|size| size.udata_value()).unwrap_or(0);
            return Ok(Some(match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {
                    if let Some(name) = entry.attr_value(gimli::DW_AT_name) {
                        names = names + "_" + &self.text(name)?;
                    }
                    reference = entry.attr_value(gimli::DW_AT_type);
                    continue;
                }
                gimli::DW_TAG_pointer_type if self.is_text(&entry)? => Type::scalar(Shape::Text, 8),
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => Type::scalar(Shape::Pointer, 8),
                gimli::DW_TAG_base_type => number(&entry, bytes).called(&names),
                gimli::DW_TAG_enumeration_type => Type::scalar(self.names_of(&entry)?, bytes),
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => self.structure(&entry, bytes, within)?,
                _ => Type::default(),
            }));
        }
        Ok(Some(Type::default()))
    }

    /// Whether an entry is a pointer to `const char`.
    fn is_text(&self, pointer: &Entry<'a>) -> Result<bool, LinesError> {
        let mut constant = false;
        let mut reference = pointer.attr_value(gimli::DW_AT_type);
        for _ in 0..MAX_STEPS {
            let Some(AttributeValue::UnitRef(offset)) = reference else {
                return Ok(false);
            };
            let entry = self.unit.entry(offset)?;
            match entry.tag() {
                gimli::DW_TAG_const_type => constant = true,
                gimli::DW_TAG_base_type => {
                    return Ok(constant && self.names(&entry)?.first().is_some_and(|n| n == "char"));
                }
                _ => return Ok(false),
            }
            reference = entry.attr_value(gimli::DW_AT_type);
        }
        Ok(false)
    }

    fn structure(
        &self,
        structure: &Entry<'a>,
        bytes: u64,
        within: usize,
    ) -> Result<Type, LinesError> {
        let by = structure.attr_value(gimli::DW_AT_calling_convention);
        if let Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) = by {
            return Ok(Type { registers: Some(1), bytes, ..Type::default() });
        }
        if bytes > 16 {
            return Ok(Type::aggregate(bytes, false));
        }
        let aligned = |entry: &Entry<'a>| {
            let align = entry.attr_value(gimli::DW_AT_alignment);
            align.and_then(|align| align.udata_value()) == Some(16)
        };
        // An argument is aligned by its members, not by its own type's attribute (AAPCS64, 6.8.2).
        let mut is_wide = within > 0 && aligned(structure);
        let mut entries = self.unit.entries_at_offset(structure.offset())?;
        let _ = entries.next_dfs()?;
        while let Some(entry) = entries.next_dfs()? {
            if entry.depth() <= 0 {
                break;
            }
            if (entry.depth(), entry.tag()) != (1, gimli::DW_TAG_member) {
                continue;
            }
            let of = match within < MAX_WITHIN {
                true => self.type_of(std::slice::from_ref(entry), within + 1)?,
                false => None,
            };
            is_wide |= aligned(entry) || of.as_ref().is_some_and(|of| of.is_wide);
            // Floating-point numbers are in registers of their own.
            let takes = of.and_then(|of| of.registers).unwrap_or(0);
            if takes == 0 {
                return Ok(Type::default());
            }
        }
        Ok(Type::aggregate(bytes, is_wide))
    }

    fn names_of(&self, of: &Entry<'a>) -> Result<Shape, LinesError> {
        let mut names: Vec<(i64, String)> = Vec::new();
        let mut entries = self.unit.entries_at_offset(of.offset())?;
        let _ = entries.next_dfs()?;
        while let Some(entry) = entries.next_dfs()? {
            if entry.depth() <= 0 {
                break;
            }
            if let Some(value) = entry.attr_value(gimli::DW_AT_const_value)
                && let Some(name) = entry.attr_value(gimli::DW_AT_name)
            {
                let value =
                    value.sdata_value().or_else(|| value.udata_value().map(|value| value as i64));
                names.extend(
                    value.map(|value| self.text(name).map(|name| (value, name))).transpose()?,
                );
            }
        }
        Ok(Shape::Enum { signed: names.iter().any(|(value, _)| *value < 0), names: names.into() })
    }
}

/// The type of a number.
fn number(of: &Entry<'_>, bytes: u64) -> Type {
    let encoding = match of.attr_value(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => encoding,
        _ => return Type::default(),
    };
    match encoding {
        gimli::DW_ATE_boolean => Type::scalar(Shape::Bool, bytes),
        gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => Type::scalar(Shape::Signed, bytes),
        gimli::DW_ATE_address => Type::scalar(Shape::Bits, bytes),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => {
            Type::scalar(Shape::Unsigned, bytes)
        }
        // In registers of their own, or on the stack.
        gimli::DW_ATE_float | gimli::DW_ATE_complex_float => Type {
            registers: Some(0),
            // Unlike a structure in memory.
            bytes: bytes.min(16),
            ..Type::default()
        },
        _ => Type::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use object::{Object, ObjectSymbol};

    use super::*;

    const PROGRAM: &str = r#"
enum mode { READ, WRITE = 7 };
struct pair { long a; int b; };
struct large { long a[4]; };
typedef unsigned int flags_t;
static inline __attribute__((always_inline)) int twice(int n) { return n * 2; }
__attribute__((noinline)) int scalars(const char *name, flags_t set, signed char c, _Bool yes, enum mode mode)
{ return twice(name[0] + set + c + yes + mode); }
__attribute__((noinline)) void structs(struct pair pair, struct large large, long last)
{ __asm__ volatile("" :: "r"(pair.a), "r"(large.a[0]), "r"(last)); }
__attribute__((noinline)) struct large in_memory(double d, long n)
{ struct large large = { { twice(n), d } }; return large; }
int main(int argc, char **argv)
{ struct pair p = { 1, 2 }; structs(p, in_memory(1, argc), 3); return scalars(argv[0], 1, 2, 1, READ); }
"#;

    fn compiled(optimise: &str) -> Option<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.c"), PROGRAM).unwrap();
        let done = Command::new("cc")
            .args(["-g", optimise, "-o", "p", "p.c"])
            .current_dir(folder.path())
            .status();
        if !done.is_ok_and(|status| status.success()) {
            netplumb_testkit::skip("no C compiler");
            return None;
        }
        Some(std::fs::read(folder.path().join("p")).unwrap())
    }

    fn address(file: &[u8], name: &str) -> u64 {
        let elf = object::File::parse(file).unwrap();
        let symbol = elf.symbols().find(|s| s.name() == Ok(name));
        symbol.unwrap().address()
    }

    /// Check that arguments of arm64 are in its eight registers.
    #[test]
    fn arguments_of_arm64() {
        let folder = tempfile::tempdir().unwrap();
        let program = "long sink;\n\
            long eight(long a, long b, long c, long d, long e, long f, long g, int h)\n\
            { sink = a; return a * b * c * d * e * f * g * h; }\n";
        std::fs::write(folder.path().join("p.c"), program).unwrap();
        for optimise in ["-O1", "-O2"] {
            let words = ["-g", optimise, "-nostdlib", "-static", "-Wl,-e,eight", "-o", "p", "p.c"];
            let done = Command::new("aarch64-linux-gnu-gcc")
                .args(words)
                .current_dir(folder.path())
                .status();
            if !done.is_ok_and(|status| status.success()) {
                return netplumb_testkit::skip("no C compiler for arm64");
            }
            let file = std::fs::read(folder.path().join("p")).unwrap();
            let at = address(&file, "eight");
            let found = prototypes(&file, &[at].into(), &|| true).unwrap();
            let arguments = found[&at].arguments(&[1, 2, 3, 4, 5, 6, 7, 8], |_| None);
            assert_eq!(arguments, "a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8");
        }
    }

    /// Check that arguments are in the registers where a compiler puts them, by name and type.
    #[test]
    fn arguments() {
        for optimise in ["-O0", "-O2"] {
            let Some(file) = compiled(optimise) else {
                return;
            };
            let names = ["scalars", "structs", "in_memory"];
            let addresses = names.map(|name| address(&file, name));
            let asked = addresses.into_iter().collect();
            let found = prototypes(&file, &asked, &|| true).unwrap();
            let call = |n: usize| {
                let all = found[&addresses[n]]
                    .arguments(&[0x1000, 0x21, 0xfe, 0x101, 7, 9, 0, 0], |_| None);
                (all, found[&addresses[n]].returned(-3_i64 as u64))
            };
            assert_eq!(
                call(0),
                ("name=0x1000, set=0x21, c=-2, yes=true, mode=WRITE".into(), Some("-3".into()))
            );
            assert_eq!(call(1), ("pair=?, large=?, last=254".into(), None));
            assert_eq!(found[&addresses[0]].texts(), 1);
            // The first register has the address for the returned structure.
            assert_eq!(call(2), ("d=?, n=33".into(), None));
        }
    }

    /// Check that the functions are found that another was inlined into, and none for an unknown one.
    #[test]
    fn inlined() {
        let Some(file) = compiled("-O2") else { return };
        let of = |name: &str| inlined_into(&file, name, &|| true).unwrap();
        let both: BTreeSet<String> = ["scalars".into(), "in_memory".into()].into();
        assert_eq!(of("twice"), both);
        assert_eq!(of("scalars"), BTreeSet::new());
        let slow = inlined_into(&file, "twice", &|| false);
        assert!(matches!(slow, Err(LinesError::TooSlow)));
    }
}
