//! Gives places names: by the kernel's symbols, and by the files that were mapped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use netplumb_instruments::image::{Finder, readable};
use netplumb_instruments::samples::JIT;
use netplumb_instruments::samples::jit::names as names_in_map;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::{APPLICATION, LayerRules};
use netplumb_model::recording::{Function, FunctionId, THREAD_MODULE};
use rustc_hash::FxHashMap;

use crate::facts::Symbol;
use crate::frames::Place;
use crate::gather::Gathered;
use crate::jitdump;
use crate::made;
use crate::{ImportError, Options};

/// Code that has no name, not even its address.
const UNKNOWN: &str = "[unknown]";
/// The module of code that nothing was mapped at.
const NO_FILE: &str = "(no file)";
/// The module of memory without a file.
const ANON: &str = "[anon]";
/// The module of BPF programs, as /proc/kallsyms has it.
const BPF: &str = "bpf";
/// Symbols of this machine's kernel.
const KALLSYMS: &str = "/proc/kallsyms";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const NOTES: &str = "/sys/kernel/notes";
/// What perf's cache, and its list of build IDs, call the kernel.
const KERNEL: &str = "[kernel.kallsyms]";
/// Larger files are not read: their code has no names.
const MAX_FILE_BYTES: u64 = 512 << 20;
const MAX_KALLSYMS_BYTES: u64 = 256 << 20;
/// Functions that are only known by their address; of more, all are one.
const MAX_NAMELESS: usize = 20_000;

/// Functions, and which of them each place is in.
#[derive(Debug, Default)]
pub(crate) struct NamedFunctions {
    pub(crate) functions: Vec<Function>,
    /// Functions by the places' numbers.
    pub(crate) of: Vec<FunctionId>,
    /// By the places' numbers: whether only its address is known.
    pub(crate) nameless: Vec<bool>,
    /// Where the kernel's symbols come from, if there are any.
    pub(crate) kernel: Option<String>,
    /// Files of programs that give names.
    pub(crate) found: u64,
    /// Files that have changed since they were mapped.
    pub(crate) changed: u64,
    /// Files that aren't there, or can't be read.
    pub(crate) missing: u64,
    /// Files of names of code that was made which are not to be read, and lines of others that were not
    /// understood.
    pub(crate) unread_maps: u64,
    pub(crate) malformed: u64,
}

/// The kernel's symbols.
#[derive(Debug)]
pub(crate) struct Symbols {
    table: SymbolTable,
    from: String,
    /// What to subtract from an address.
    shift: u64,
}

/// A copy of `/proc/kallsyms` that was given.
pub(crate) fn given(path: &Path) -> Result<Symbols, ImportError> {
    let wrong = |why: String| ImportError::Kallsyms { path: path.into(), why };
    let text = bounded(path, MAX_KALLSYMS_BYTES).map_err(|e| wrong(e.to_string()))?;
    let table = SymbolTable::parse(&text).map_err(|e| wrong(e.to_string()))?;
    Ok(Symbols { table, from: path.display().to_string(), shift: 0 })
}

/// Give all places names.
pub(crate) fn names(all: &Gathered, options: &Options, given: Option<Symbols>) -> NamedFunctions {
    let mut naming = Naming {
        named: NamedFunctions::default(),
        by_key: FxHashMap::default(),
        layers: LayerRules::built_in(),
        nameless: 0,
    };
    let kernel = match given {
        Some(symbols) => at_reference(symbols, all),
        None => found(all, options),
    };
    naming.named.kernel = kernel.as_ref().map(|symbols| symbols.from.clone());
    naming.named.of = vec![0; all.places.len()];
    naming.named.nameless = vec![false; all.places.len()];
    let mut by_file: BTreeMap<u32, Vec<(usize, u64)>> = BTreeMap::new();
    let mut made: BTreeMap<i32, Vec<(usize, u64)>> = BTreeMap::new();
    for (number, place) in all.places.iter().enumerate() {
        let function = match *place {
            Place::File(file, offset) => {
                by_file.entry(file).or_default().push((number, offset));
                continue;
            }
            Place::Made(pid, address) => {
                made.entry(pid).or_default().push((number, address));
                continue;
            }
            Place::Thread(name) => naming.thread(all, name),
            Place::Kernel(address) => match named(kernel.as_ref(), address) {
                Some((index, symbols)) => naming.kernel(index, symbols),
                None => match (all.facts.symbol_in(KERNEL, address), all.facts.symbol(address)) {
                    (Some(symbol), _) => naming.made(symbol, None),
                    (_, Some(symbol)) => naming.made(symbol, Some(BPF)),
                    (None, None) => {
                        naming.named.nameless[number] = true;
                        naming.kernel_address(all, address)
                    }
                },
            },
            // A caller's address in code without frame pointers may be any number.
            Place::Nowhere => {
                naming.named.nameless[number] = true;
                naming.unknown(Some(NO_FILE.into()), Some(APPLICATION))
            }
            Place::Elsewhere => naming.function(Key::Elsewhere, || Function {
                name: "[guest or hypervisor]".into(),
                ..nowhere()
            }),
        };
        naming.named.of[number] = function;
    }
    drop(kernel);
    // One file at a time: they may be large.
    for (file, places) in by_file {
        naming.file(all, options, file, &places);
    }
    let place = made::Place::from_facts(&all.facts, options);
    for (pid, places) in made {
        naming.made_code(&place, pid, &places);
    }
    naming.named
}

/// The symbol at an address of the kernel.
fn named(symbols: Option<&Symbols>, address: u64) -> Option<(usize, &Symbols)> {
    let symbols = symbols?;
    let index = symbols.table.lookup_index(address.wrapping_sub(symbols.shift))?;
    // Modules of another boot are elsewhere.
    let module = &symbols.table.symbols()[index].module;
    (symbols.shift == 0 || module.is_none()).then_some((index, symbols))
}

/// Symbols of the kernel that was measured: from perf's cache, or this machine's if it is the same
/// kernel.
fn found(all: &Gathered, options: &Options) -> Option<Symbols> {
    let id = all.facts.build_ids.get(KERNEL);
    let cached = options.cache.as_ref().zip(id).and_then(|(cache, id)| {
        let path = cache.join(KERNEL).join(id).join("kallsyms");
        let text = bounded(&path, MAX_KALLSYMS_BYTES).ok()?;
        Some(Symbols {
            table: SymbolTable::parse(&text).ok()?,
            from: path.display().to_string(),
            shift: 0,
        })
    });
    if let Some(symbols) = cached {
        return at_reference(symbols, all);
    }
    let own_release = fs::read_to_string(RELEASE).ok()?;
    let same_release = all.facts.release().map(|release| release == own_release.trim());
    let same_arch = all.facts.arch().is_none_or(|arch| arch == std::env::consts::ARCH);
    let own_id = fs::read(NOTES).ok().and_then(|notes| gnu_build_id(&notes));
    let same_id = id.zip(own_id).is_none_or(|(id, own)| *id == own);
    if same_release == Some(false) || !same_arch || !same_id {
        return None;
    }
    let text = bounded(Path::new(KALLSYMS), MAX_KALLSYMS_BYTES).ok()?;
    let symbols =
        Symbols { table: SymbolTable::parse(&text).ok()?, from: KALLSYMS.into(), shift: 0 };
    let symbols = at_reference(symbols, all)?;
    // Without its name, it is the same if it is in the same place.
    (same_release == Some(true) || (symbols.shift == 0 && all.reference.is_some()))
        .then_some(symbols)
}

/// Symbols moved to where the kernel was that was measured; none if they are another kernel's.
fn at_reference(symbols: Symbols, all: &Gathered) -> Option<Symbols> {
    let Some((name, address)) = &all.reference else {
        return Some(symbols);
    };
    let own = symbols.table.by_name(name).first()?.addr;
    Some(Symbols { shift: address.wrapping_sub(own), ..symbols })
}

/// The build ID among the notes of a kernel.
fn gnu_build_id(mut notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let word = |at: usize, notes: &[u8]| {
        let bytes = notes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    loop {
        let (name, desc) = (word(0, notes)? as usize, word(4, notes)? as usize);
        let desc_at = 12 + name.checked_next_multiple_of(4)?;
        let end = desc_at.checked_add(desc.checked_next_multiple_of(4)?)?;
        if word(8, notes)? == NT_GNU_BUILD_ID && notes.get(12..16)? == b"GNU\0" {
            let id = notes.get(desc_at..desc_at + desc)?;
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(end..)?;
    }
}

/// The identity of a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Thread(u32),
    Kernel(usize),
    Made(u64),
    Jit(String),
    File(u32, u64),
    Address(Option<String>, u64),
    Unknown(Option<String>),
    Elsewhere,
}

struct Naming {
    named: NamedFunctions,
    by_key: FxHashMap<Key, FunctionId>,
    layers: LayerRules,
    nameless: usize,
}

impl Naming {
    fn function(&mut self, key: Key, make: impl FnOnce() -> Function) -> FunctionId {
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let id = self.named.functions.len() as FunctionId;
        self.named.functions.push(make());
        self.by_key.insert(key, id);
        id
    }

    fn thread(&mut self, all: &Gathered, name: u32) -> FunctionId {
        self.function(Key::Thread(name), || Function {
            name: all.names.get(name as usize).cloned().unwrap_or_default(),
            module: Some(THREAD_MODULE.into()),
            layer: Some(APPLICATION.into()),
            ..nowhere()
        })
    }

    fn kernel(&mut self, index: usize, symbols: &Symbols) -> FunctionId {
        if let Some(id) = self.by_key.get(&Key::Kernel(index)) {
            return *id;
        }
        let symbol = &symbols.table.symbols()[index];
        let layer = self.layers.layer(&symbol.name, symbol.module.as_deref());
        let new = Function {
            name: symbol.name.clone(),
            module: symbol.module.clone(),
            layer: layer.map(String::from),
            address: symbol.addr.wrapping_add(symbols.shift),
            size_bytes: symbol.size,
            source: None,
        };
        self.function(Key::Kernel(index), || new)
    }

    /// Code of the kernel that a record names: code made while it was sampled, or all of it.
    fn made(&mut self, (start, bytes, name): Symbol<'_>, module: Option<&str>) -> FunctionId {
        let layer = self.layers.layer(name, module).map(String::from);
        self.function(Key::Made(start), || Function {
            name: name.into(),
            module: module.map(String::from),
            layer,
            address: start,
            size_bytes: u64::from(bytes),
            source: None,
        })
    }

    /// Code of the kernel without a symbol, by its mapping.
    fn kernel_address(&mut self, all: &Gathered, address: u64) -> FunctionId {
        let mapped = all.kernel.iter().rev().find(|m| (m.start..m.end).contains(&address));
        let path = mapped.and_then(|m| all.files.get(m.file as usize));
        let module = path.filter(|path| *path != KERNEL).map(|path| {
            let base = base_name(path);
            let stem = base.split_once(".ko").map_or(base, |(stem, _)| stem);
            let bare = stem.trim_start_matches('[').trim_end_matches(']');
            // As the kernel names it.
            bare.replace('-', "_")
        });
        self.nameless(module, None, address)
    }

    /// All code of a module without known addresses.
    fn unknown(&mut self, module: Option<String>, layer: Option<&str>) -> FunctionId {
        self.function(Key::Unknown(module.clone()), || Function {
            name: UNKNOWN.into(),
            module,
            layer: layer.map(String::from),
            ..nowhere()
        })
    }

    /// A function that is only known by an address in it.
    fn nameless(&mut self, module: Option<String>, layer: Option<&str>, at: u64) -> FunctionId {
        let layer = layer.map(String::from);
        let key = Key::Address(module.clone(), at);
        if self.nameless == MAX_NAMELESS && !self.by_key.contains_key(&key) {
            return self.unknown(module, layer.as_deref());
        }
        let before = self.named.functions.len();
        let id = self.function(key, || Function {
            name: format!("[{at:#x}]"),
            module,
            layer,
            address: at,
            ..nowhere()
        });
        self.nameless += self.named.functions.len() - before;
        id
    }

    /// The places in memory in which a process made code, as it reported them.
    fn made_code(&mut self, place: &made::Place, pid: i32, places: &[(usize, u64)]) {
        let path = format!("/tmp/perf-{pid}.map");
        let mut names = FxHashMap::default();
        match place.open(Path::new(&path)) {
            Ok(Some(file)) => {
                let addresses = places.iter().map(|(_, address)| *address).collect();
                let (found, malformed) = names_in_map(&file, addresses);
                self.named.malformed += malformed;
                names = found;
            }
            Ok(None) => {}
            Err(_) => self.named.unread_maps += 1,
        }
        for (number, address) in places {
            self.named.of[*number] = match names.get(address) {
                Some(name) => self.jit(name),
                None => self.at_offset(ANON, *number, *address),
            };
        }
    }

    /// Code that a program made: the same wherever it is, and in whichever process.
    fn jit(&mut self, name: &str) -> FunctionId {
        self.function(Key::Jit(name.into()), || Function {
            name: name.into(),
            module: Some(JIT.into()),
            layer: Some(APPLICATION.into()),
            ..nowhere()
        })
    }

    /// The places in a file.
    fn file(&mut self, all: &Gathered, options: &Options, file: u32, places: &[(usize, u64)]) {
        let path = all.files.get(file as usize).map_or("", String::as_str);
        if let Some(name) = jitdump::name_of(path) {
            for (number, _) in places {
                self.named.of[*number] = self.jit(name);
            }
            return;
        }
        let bare = path.trim_end_matches(" (deleted)");
        let name = base_name(bare);
        if all.facts.table(path).is_some() {
            self.named.found += 1;
            for (number, offset) in places {
                self.named.of[*number] = match all.facts.symbol_in(path, *offset) {
                    Some((start, bytes, symbol)) => self.function(Key::File(file, start), || {
                        user(symbol, name, (start, u64::from(bytes)))
                    }),
                    None => self.at_offset(name, *number, *offset),
                };
            }
            return;
        }
        // All at once: each time takes a pass over the symbols.
        let functions = self.finder(all, options, bare).map(|finder| {
            let addresses = places.iter().map(|(_, offset)| finder.address_of(*offset));
            let addresses: Vec<Option<u64>> = addresses.collect();
            let known: Vec<u64> = addresses.iter().flatten().copied().collect();
            let mut found = finder.find_all(&known).into_iter();
            let each = addresses.into_iter();
            each.map(|at| at.and_then(|_| found.next().flatten())).collect::<Vec<_>>()
        });
        let mut functions = functions.unwrap_or_default().into_iter();
        for (number, offset) in places {
            self.named.of[*number] = match functions.next().flatten() {
                Some(function) => self.function(Key::File(file, function.start), || {
                    let at = (function.start, function.end - function.start);
                    user(&function.name, name, at)
                }),
                None => self.at_offset(name, *number, *offset),
            };
        }
    }

    /// A place in a file that no symbol covers.
    fn at_offset(&mut self, file: &str, number: usize, offset: u64) -> FunctionId {
        self.named.nameless[number] = true;
        self.nameless(Some(file.into()), Some(APPLICATION), offset)
    }

    /// The functions of a file that was mapped, if it is there and the same.
    fn finder(&mut self, all: &Gathered, options: &Options, path: &str) -> Option<Finder> {
        if !path.starts_with('/') || path.starts_with("//") {
            return None;
        }
        let id = all.facts.build_ids.get(path);
        let mut candidates: Vec<PathBuf> = Vec::new();
        match &options.symfs {
            Some(root) => candidates.push(root.join(path.trim_start_matches('/'))),
            None => candidates.push(path.into()),
        }
        let cached = options.cache.as_ref().zip(id).and_then(|(cache, id)| {
            let (folder, rest) = id.split_at_checked(2)?;
            Some(cache.join(".build-id").join(folder).join(rest).join("elf"))
        });
        candidates.extend(cached);
        let arch = all.facts.arch();
        let is_here = options.symfs.is_some() || arch == Some(std::env::consts::ARCH);
        let mut changed = false;
        for candidate in &candidates {
            let Some(finder) = opened(candidate) else {
                continue;
            };
            let same = id.zip(finder.build_id()).map(|(id, found)| found == id);
            // Without build IDs, it may be of another machine.
            let is_here = is_here && arch.is_none_or(|arch| finder.is_of(arch));
            if same.unwrap_or(is_here) {
                self.named.found += 1;
                return Some(finder);
            }
            changed = true;
        }
        match changed {
            true => self.named.changed += 1,
            false => self.named.missing += 1,
        }
        None
    }
}

/// A file to find functions in; none of pipes, devices and files that are too large.
fn opened(path: &Path) -> Option<Finder> {
    // Opening a pipe would wait for its other end.
    let known = fs::metadata(path).ok()?;
    if !known.is_file() || known.len() > MAX_FILE_BYTES {
        return None;
    }
    Finder::of_file(&Rc::new(fs::File::open(path).ok()?), path)
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A function of a program: its symbol, its file, and where it begins and its size.
fn user(symbol: &str, file: &str, (address, size_bytes): (u64, u64)) -> Function {
    Function {
        name: readable(symbol),
        module: Some(file.into()),
        layer: Some(APPLICATION.into()),
        address,
        size_bytes,
        source: None,
    }
}

fn nowhere() -> Function {
    Function {
        name: String::new(),
        module: None,
        layer: None,
        address: 0,
        size_bytes: 0,
        source: None,
    }
}

/// The contents of a file; none of a pipe, a device or a file that is too large.
fn bounded(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, Read};
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(Error::other("not a file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(most) as usize);
    fs::File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Error::other(format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a build ID is found among other notes, and that cut ones have none.
    #[test]
    fn notes() {
        let note = |kind: u32, desc: &[u8]| {
            let mut note = Vec::new();
            for word in [4, desc.len() as u32, kind] {
                note.extend_from_slice(&word.to_ne_bytes());
            }
            note.extend_from_slice(b"GNU\0");
            note.extend_from_slice(desc);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let mut notes = note(1, &[1, 2, 3]);
        notes.extend(note(3, &[0xab, 0xcd, 0xef, 0x01, 0x23]));
        assert_eq!(gnu_build_id(&notes).as_deref(), Some("abcdef0123"));
        assert_eq!(gnu_build_id(&notes[..notes.len() - 4]), None);
        assert_eq!(gnu_build_id(&notes[..20]), None);
        assert_eq!(gnu_build_id(&[0xff; 64]), None);
    }
}
