//! The running kernel's symbol table, in the format of `/proc/kallsyms`: maps addresses to
//! functions.

use std::sync::OnceLock;

use crate::symbol::Symbol;
use crate::vectors;

/// The size assumed for the last function of a module, the kernel or BPF programs, if the next
/// symbol is elsewhere.
const LAST_SIZE_MAX_BYTES: u64 = 64 << 10;

/// Prefixes of symbols that the compiler adds beside a function, and that don't stand for functions.
const NOISE_PREFIXES: [&str; 2] = ["__pfx_", "__cfi_"];

/// Why a symbol table could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KallsymsError {
    /// The kernel hides its addresses.
    #[error(
        "the kernel hides the addresses of symbols (all are zero): run as root, or with CAP_SYSLOG"
    )]
    Hidden,
    /// It has no functions.
    #[error("the symbol list has no functions: the kernel needs CONFIG_KALLSYMS=y")]
    Empty,
    /// A line is not in the format.
    #[error(
        "line {line} of the symbol list is not `address type name [module]`: {text:?}; it is \
         truncated, or not from /proc/kallsyms"
    )]
    Malformed {
        /// The line's number, from 1.
        line: usize,
        /// How the line begins.
        text: String,
    },
}

/// All functions of a kernel, sorted by address.
#[derive(Debug, Clone, Default)]
pub struct SymbolTable {
    symbols: Vec<Symbol>,
    /// All names and aliases with the indices of their symbols, sorted; built on first use.
    names: OnceLock<Vec<(Box<str>, u32)>>,
}

impl SymbolTable {
    /// Parses what `/proc/kallsyms` printed.
    ///
    /// Functions are the symbols of type `t`, `T`, `w` and `W`; symbols of the other types only
    /// bound them. Where several names share an address one is chosen, always the same: not the
    /// compiler's `__pfx_` and `__cfi_` marks nor the linker's section marks (`_stext`), then
    /// global before local before weak, then fewest leading underscores, then shortest, then
    /// first in the alphabet.
    pub fn parse(text: &[u8]) -> Result<Self, KallsymsError> {
        let mut lines = Vec::with_capacity(text.len() / 40);
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line = SymbolLine::parse(line).ok_or_else(|| malformed(index, line))?;
            if !is_mapping_mark(line.name) {
                lines.push(line);
            }
        }
        if !lines.iter().any(SymbolLine::is_function) {
            return Err(KallsymsError::Empty);
        }
        if lines.iter().all(|line| line.addr == 0) {
            return Err(KallsymsError::Hidden);
        }
        // A stable sort, fast for mostly sorted data.
        lines.sort_by_key(|line| line.addr);
        Ok(Self { symbols: vectors::split(merge(&lines)), names: OnceLock::new() })
    }

    /// The same with more lines of `/proc/kallsyms`, such as of programs that were loaded since. An empty text is not
    /// an error.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn with(&self, text: &[u8]) -> Result<Self, KallsymsError> {
        let more = match Self::parse(text) {
            Err(KallsymsError::Empty) => return Ok(self.clone()),
            other => other?,
        };
        // The new ones first: what was at such an address is there no more.
        let mut symbols = more.symbols;
        symbols.extend(self.symbols.iter().cloned());
        symbols.sort_by_key(|symbol| symbol.addr);
        symbols.dedup_by_key(|symbol| symbol.addr);
        Ok(Self { symbols, names: OnceLock::new() })
    }

    /// The same with one more function, unless one is there already.
    pub fn insert(&mut self, symbol: Symbol) {
        let at = self.symbols.partition_point(|s| s.addr < symbol.addr);
        if self.symbols.get(at).is_none_or(|s| s.addr != symbol.addr) {
            self.symbols.insert(at, symbol);
            self.names = OnceLock::new();
        }
    }

    /// The functions, sorted by address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether it is empty; never after parsing.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The function that the address is in.
    pub fn lookup(&self, addr: u64) -> Option<&Symbol> {
        self.lookup_index(addr).map(|index| &self.symbols[index])
    }

    /// The same, as an index into [`Self::symbols`].
    pub fn lookup_index(&self, addr: u64) -> Option<usize> {
        let index = self.symbols.partition_point(|symbol| symbol.addr <= addr).checked_sub(1)?;
        self.symbols[index].contains(addr).then_some(index)
    }

    /// The functions of that name, by address: several when different files have a static
    /// function of one name. An alias finds its function too.
    pub fn by_name(&self, name: &str) -> Vec<&Symbol> {
        let names = self.names.get_or_init(|| self.index_names());
        let first = names.partition_point(|(have, _)| have.as_ref() < name);
        names[first..]
            .iter()
            .take_while(|(have, _)| have.as_ref() == name)
            .map(|&(_, index)| &self.symbols[index as usize])
            .collect()
    }

    fn index_names(&self) -> Vec<(Box<str>, u32)> {
        let mut names: Vec<(Box<str>, u32)> = (0u32..)
            .zip(&self.symbols)
            .flat_map(|(index, symbol)| {
                std::iter::once(&symbol.name)
                    .chain(&symbol.aliases)
                    .map(move |name| (name.as_str().into(), index))
            })
            .collect();
        names.sort_unstable();
        names
    }
}

/// The text of `/proc/kallsyms`, from which single functions are read: of the hundred thousand
/// that there are, a profile meets some hundred.
#[derive(Debug, Clone)]
pub struct SymbolText {
    text: Vec<u8>,
    /// The address of each line and where it begins, by address.
    lines: Vec<(u64, u32)>,
}

impl SymbolText {
    /// Index this text; only addresses are looked at.
    ///
    /// # Errors
    /// A line lacks an address, the text has no functions, or all addresses are hidden.
    pub fn new(text: Vec<u8>) -> Result<SymbolText, KallsymsError> {
        let mut lines = Vec::with_capacity(text.len() / 40);
        let (mut from, mut functions) = (0, false);
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let begins = from;
            from += line.len() + 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let end = line.iter().position(u8::is_ascii_whitespace);
            let address = end.and_then(|end| Some((parse_hex(&line[..end])?, line.get(end + 1)?)));
            let Some((address, kind)) = address else {
                return Err(malformed(index, line));
            };
            functions |= is_function(*kind);
            // Up to 4 GiB: no kernel prints as much.
            lines.push((address, u32::try_from(begins).unwrap_or(u32::MAX)));
        }
        if !functions {
            return Err(KallsymsError::Empty);
        }
        if lines.iter().all(|(address, _)| *address == 0) {
            return Err(KallsymsError::Hidden);
        }
        lines.sort_by_key(|(address, _)| *address);
        Ok(SymbolText { text, lines })
    }

    /// The function at an address, as [`SymbolTable::lookup`] finds it.
    pub fn lookup(&self, addr: u64) -> Option<Symbol> {
        let end = self.lines.partition_point(|(start, _)| *start <= addr);
        let (start, _) = *self.lines.get(end.checked_sub(1)?)?;
        let first = self.lines.partition_point(|(at, _)| *at < start);
        // All symbols that begin there, and the next one, which bounds them.
        let lines = self.lines[first..].iter().take(end - first + 1);
        let lines = lines.filter_map(|(_, begins)| self.line(*begins));
        let found = merge(&lines.collect::<Vec<_>>()).into_iter().next()?;
        found.contains(addr).then_some(found)
    }

    fn line(&self, begins: u32) -> Option<SymbolLine<'_>> {
        let rest = self.text.get(begins as usize..)?;
        SymbolLine::parse(rest.split(|&byte| byte == b'\n').next()?)
    }
}

/// One line, borrowed from the text.
#[derive(Clone, Copy)]
struct SymbolLine<'a> {
    addr: u64,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl<'a> SymbolLine<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let addr = parse_hex(words.next()?)?;
        let &[kind] = words.next()? else { return None };
        let name = std::str::from_utf8(words.next()?).ok()?;
        let module = match words.next() {
            None => None,
            Some(word) => {
                let word = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
                Some(std::str::from_utf8(word).ok()?)
            }
        };
        words.next().is_none().then_some(Self { addr, kind, name, module })
    }

    fn is_function(&self) -> bool {
        is_function(self.kind)
    }

    /// The order of names at an address; the least is preferred.
    fn rank(&self) -> (bool, u8, usize, usize, &'a str) {
        let binding = match self.kind {
            b'T' => 0,
            b't' => 1,
            _ => 2,
        };
        let underscores = self.name.len() - self.name.trim_start_matches('_').len();
        (is_noise(self.name), binding, underscores, self.name.len(), self.name)
    }
}

/// Whether a name marks code or data within a function of arm64, in a module (`$x`, `$d.1`).
fn is_mapping_mark(name: &str) -> bool {
    let mut rest = name.bytes();
    rest.next() == Some(b'$')
        && matches!(rest.next(), Some(b'a' | b'd' | b't' | b'x'))
        && matches!(rest.next(), None | Some(b'.'))
}

fn is_function(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

fn malformed(index: usize, line: &[u8]) -> KallsymsError {
    KallsymsError::Malformed {
        line: index + 1,
        text: String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned(),
    }
}

fn parse_hex(word: &[u8]) -> Option<u64> {
    if word.len() > 16 {
        return None;
    }
    word.iter()
        .try_fold(0u64, |value, &byte| Some(value << 4 | u64::from(char::from(byte).to_digit(16)?)))
}

/// Whether a name is a mark, not a function.
fn is_noise(name: &str) -> bool {
    NOISE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with('_')
            && ["text", "_start", "_end", "_begin"].iter().any(|end| name.ends_with(end))
}

/// Makes one symbol of all functions at an address, bounded by the next address of any symbol.
fn merge(lines: &[SymbolLine<'_>]) -> Vec<Symbol> {
    let mut symbols = Vec::with_capacity(lines.len());
    let mut names: Vec<&SymbolLine<'_>> = Vec::new();
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let together = rest.iter().take_while(|line| line.addr == first.addr).count();
        let (here, after) = rest.split_at(together);
        rest = after;
        // Per-CPU variables sit at zero and just above; no function does.
        if first.addr == 0 {
            continue;
        }
        names.clear();
        names.extend(here.iter().filter(|line| line.is_function()));
        names.sort_by_key(|line| line.rank());
        names.dedup_by_key(|line| line.name);
        let Some((best, aliases)) = names.split_first() else {
            continue;
        };
        symbols.push(Symbol {
            addr: first.addr,
            size: size(best, after),
            name: best.name.to_owned(),
            module: best.module.map(str::to_owned),
            aliases: aliases.iter().map(|line| line.name.to_owned()).collect(),
        });
    }
    symbols
}

/// Up to the next symbol; outside of the kernel's own text with a maximum, since the next symbol
/// may be in another module, or another BPF program, far away.
fn size(symbol: &SymbolLine<'_>, after: &[SymbolLine<'_>]) -> u64 {
    let Some(next) = after.first() else {
        return LAST_SIZE_MAX_BYTES;
    };
    let gap = next.addr - symbol.addr;
    match (symbol.module, next.module) {
        (None, None) => gap,
        _ => gap.min(LAST_SIZE_MAX_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &[u8] = include_bytes!("../testdata/kallsyms-6.1-small.txt");

    fn table() -> SymbolTable {
        SymbolTable::parse(SMALL).unwrap()
    }

    fn name(table: &SymbolTable, addr: u64) -> Option<&str> {
        table.lookup(addr).map(|symbol| symbol.name.as_str())
    }

    /// Check that programs loaded later are found among what was there, and that nothing new
    /// changes nothing.
    #[test]
    fn grows() {
        let table = table();
        let ip_output = table.by_name("ip_output")[0].addr;
        let grown =
            table.with(b"ffffffffc0a01000 t bpf_prog_6deef7357e7b4530_xdp_drop\t[bpf]\n").unwrap();
        assert_eq!(grown.len(), table.len() + 1);
        let program = grown.lookup(0xffff_ffff_c0a0_1010).unwrap();
        assert_eq!(program.module.as_deref(), Some("bpf"));
        assert!(program.name.ends_with("_xdp_drop"));
        assert_eq!(name(&grown, ip_output), Some("ip_output"));
        assert_eq!(table.with(b"").unwrap().len(), table.len());
        let error = table.with(b"nonsense").unwrap_err();
        assert!(matches!(error, KallsymsError::Malformed { line: 1, .. }), "{error}");
    }

    /// Check that an address finds its function from the first byte to the last and not beyond.
    #[test]
    fn looks_up() {
        let table = table();
        let start = table.by_name("ip_output")[0].addr;
        let size = table.by_name("ip_output")[0].size;
        assert_eq!(name(&table, start), Some("ip_output"));
        assert_eq!(name(&table, start + size - 1), Some("ip_output"));
        assert_ne!(name(&table, start + size), Some("ip_output"));
        assert_eq!(name(&table, 0), None);
        assert_eq!(name(&table, 0xffff_ffff_8000_0000), None);
        assert_eq!(name(&table, u64::MAX), None);
    }

    /// Check that looking up single functions gives the same as the whole table, at their first and last bytes and
    /// around them, and the same errors.
    #[test]
    fn one_by_one() {
        let table = table();
        let text = SymbolText::new(SMALL.to_vec()).unwrap();
        let mut grown = SymbolTable::default();
        for symbol in table.symbols() {
            let end = symbol.addr + symbol.size;
            for addr in [symbol.addr - 1, symbol.addr, end - 1, end] {
                let found = text.lookup(addr);
                assert_eq!(found.as_ref(), table.lookup(addr), "{addr:#x}");
                found.into_iter().for_each(|symbol| grown.insert(symbol));
            }
        }
        assert_eq!(grown.symbols(), table.symbols());
        assert_eq!(text.lookup(0), None);
        assert_eq!(text.lookup(u64::MAX), None);
        for wrong in [&b""[..], b"10 D d\n", b"0 t f\n", b"10 T a\nx", b"xyz T a\n"] {
            assert_eq!(
                SymbolText::new(wrong.to_vec()).unwrap_err(),
                SymbolTable::parse(wrong).unwrap_err()
            );
        }
    }

    /// Check that data only bounds functions.
    #[test]
    fn data_is_left_out() {
        let table = table();
        assert!(table.by_name("__per_cpu_start").is_empty());
        assert!(table.by_name("linux_banner").is_empty());
        assert!(table.symbols().is_sorted_by_key(|symbol| symbol.addr));
    }

    /// Check that the last function before the data ends where the data begins.
    #[test]
    fn ends_at_data() {
        let table = SymbolTable::parse(b"1000 T a\n1400 D b\n2000 T c\n").unwrap();
        assert_eq!(table.lookup(0x13ff).unwrap().name, "a");
        assert_eq!(table.lookup(0x1400), None);
    }

    /// Check that modules and BPF programs keep their owner and do not reach into the gap after.
    #[test]
    fn modules_and_bpf() {
        let table = table();
        let xmit = table.by_name("e1000_xmit_frame")[0];
        assert_eq!(xmit.module.as_deref(), Some("e1000"));
        let last = table.symbols().last().unwrap();
        assert_eq!(last.module.as_deref(), Some("bpf"));
        assert_eq!(last.size, LAST_SIZE_MAX_BYTES);
        let table = SymbolTable::parse(b"1000 t a\t[one]\n9000000 t b\t[two]\n").unwrap();
        assert_eq!(table.lookup(0x1000 + LAST_SIZE_MAX_BYTES), None);
    }

    /// Check that one of several names is chosen, whatever their order, and the others are kept.
    #[test]
    fn aliases() {
        let mut lines = ["10 T _stext", "10 t small", "10 W gg", "10 T longer", "10 T __long"];
        for _ in 0..lines.len() {
            lines.rotate_left(1);
            let table = SymbolTable::parse(lines.join("\n").as_bytes()).unwrap();
            let [symbol] = table.symbols() else { panic!() };
            assert_eq!(symbol.name, "longer");
            assert_eq!(symbol.aliases, ["__long", "small", "gg", "_stext"]);
            assert_eq!(table.by_name("gg"), [symbol]);
        }
    }

    /// Check that functions of one name are all found, in order of address.
    #[test]
    fn same_name_twice() {
        let table = SymbolTable::parse(b"30 t show\n10 t show\n20 T x\n").unwrap();
        let found: Vec<u64> = table.by_name("show").iter().map(|symbol| symbol.addr).collect();
        assert_eq!(found, [0x10, 0x30]);
    }

    /// Check the errors of hidden addresses, missing functions and a truncated line.
    #[test]
    fn bad_input() {
        let hidden = b"0000000000000000 T _text\n0000000000000000 t f\n";
        assert_eq!(SymbolTable::parse(hidden).unwrap_err(), KallsymsError::Hidden);
        assert_eq!(SymbolTable::parse(b"").unwrap_err(), KallsymsError::Empty);
        assert_eq!(SymbolTable::parse(b"10 D d\n").unwrap_err(), KallsymsError::Empty);
        for bad in [&b"10 T a\n20 T"[..], b"10 T a\nxyz T b", b"1 T a\n\xff\xfe", b"1 TT a\n1 T b"]
        {
            let error = SymbolTable::parse(bad).unwrap_err();
            assert!(matches!(error, KallsymsError::Malformed { .. }), "{error}");
        }
    }

    /// Check that each entry of a table of vectors is a function, and that another function of that name is left alone.
    #[test]
    fn vectors() {
        let text = b"ffff800008010800 t vectors\nffff80000801107c t el1t_64_sync\n\
                     ffff800008020004 t vectors\nffff800008020100 t x\n";
        let table = SymbolTable::parse(text).unwrap();
        let at = |addr| table.lookup(addr).unwrap().name.clone();
        assert_eq!(at(0xffff_8000_0801_0800), "vectors:el1t_64_sync");
        assert_eq!(at(0xffff_8000_0801_0a84), "vectors:el1h_64_irq");
        assert_eq!(at(0xffff_8000_0801_0c00), "vectors:el0t_64_sync");
        assert_eq!(at(0xffff_8000_0801_0ffc), "vectors:el0t_32_error");
        assert_eq!(at(0xffff_8000_0801_1000), "vectors");
        assert_eq!(at(0xffff_8000_0801_107c), "el1t_64_sync");
        assert_eq!(at(0xffff_8000_0802_0004), "vectors");
    }
}
