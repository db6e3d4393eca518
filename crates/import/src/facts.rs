//! Facts that a perf.data file has besides its samples.

use std::collections::BTreeMap;

use linux_perf_data::prost::Message;
use linux_perf_data::{
    SimpleperfElfFileInfo, SimpleperfFileRecord, SimpleperfSymbol, SimpleperfTypeSpecificInfo,
    simpleperf_dso_type,
};

use crate::bytes::{u32_at, u64_at};

/// Numbers of features (HEADER_... in the kernel's tools/perf/util/header.h).
const BUILD_ID: u32 = 2;
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const VERSION: u32 = 5;
const ARCH: u32 = 6;
const CPUDESC: u32 = 8;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;
/// Records of simpleperf (system/extras/simpleperf/record_file.h): symbols of files, in two formats, and other facts.
const SIMPLEPERF_FILE: u32 = 128;
const SIMPLEPERF_META_INFO: u32 = 129;
const SIMPLEPERF_FILE2: u32 = 132;
/// Those that are read; others are skipped.
const READ: &[u32] = &[
    BUILD_ID,
    HOSTNAME,
    OSRELEASE,
    VERSION,
    ARCH,
    CPUDESC,
    CMDLINE,
    EVENT_DESC,
    SIMPLEPERF_FILE,
    SIMPLEPERF_META_INFO,
    SIMPLEPERF_FILE2,
];
/// The longest text that is kept.
const MAX_TEXT_BYTES: usize = 4096;
/// A record of a file's build ID has a header, the process, the ID and padding before the name.
const BUILD_ID_NAME: usize = 8 + 4 + 24;
/// Where its ID is, and its length if `misc` has a flag for it (PERF_RECORD_MISC_BUILD_ID_SIZE).
const BUILD_ID_AT: usize = 8 + 4;
const BUILD_ID_SIZE_AT: usize = BUILD_ID_AT + 20;
const BUILD_ID_HAS_SIZE: u16 = 1 << 15;
const BUILD_ID_BYTES: usize = 20;

/// Offset of the name in a PERF_RECORD_KSYMBOL, and the bit of a symbol that is gone
/// (PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER).
const SYMBOL_NAME: usize = 8 + 4 + 2 + 2;
const SYMBOL_FLAGS: usize = 8 + 4 + 2;
const SYMBOL_GONE: u16 = 1;

/// The symbols of a file, as simpleperf found them.
#[derive(Debug, Clone, Default)]
struct SymbolTable {
    /// Whether they are at addresses of the process, not of the file.
    is_absolute: bool,
    /// What to add to an offset in the file.
    shift: u64,
    /// Where they begin, their sizes and names.
    symbols: BTreeMap<u64, (u32, String)>,
}

/// A symbol: where it begins, its size and its name.
pub(crate) type Symbol<'a> = (u64, u32, &'a str);

/// Facts of the file, and counts of what was left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    texts: BTreeMap<u32, String>,
    /// Build IDs in hexadecimal, by the names of files.
    pub(crate) build_ids: BTreeMap<String, String>,
    /// Names of events, by the IDs of their samples.
    pub(crate) events: BTreeMap<u64, String>,
    /// Names of events by their type and configuration, as simpleperf has them.
    pub(crate) types: BTreeMap<(u32, u64), String>,
    /// Symbols of files that are in the file itself, by their paths.
    symbol_tables: BTreeMap<String, SymbolTable>,
    /// simpleperf's version.
    simpleperf: Option<String>,
    /// Code that the kernel made, BPF programs for one, by its address: its size and name.
    pub(crate) symbols: BTreeMap<u64, (u32, String)>,
    /// The file ends before it should.
    pub(crate) cut: bool,
    /// Why the rest of it was not read.
    pub(crate) stopped: Option<String>,
    /// Records that make no sense.
    pub(crate) invalid: u64,
    /// Records of hardware traces, which are not imported.
    pub(crate) traces: u64,
    /// Samples that the kernel reported as lost, by records that don't come through the parser.
    pub(crate) lost_samples: u64,
    /// Times that the kernel sampled less, since it took too long.
    pub(crate) throttled: u64,
    /// Records that were compressed.
    pub(crate) compressed: u64,
}

impl Facts {
    /// Whether a feature is read.
    pub(crate) fn reads(feature: u32) -> bool {
        READ.contains(&feature)
    }

    /// Take a feature.
    pub(crate) fn take(&mut self, feature: u32, data: &[u8]) {
        match feature {
            BUILD_ID => self.take_build_ids(data),
            EVENT_DESC => self.take_events(data),
            SIMPLEPERF_FILE | SIMPLEPERF_FILE2 => {
                let mut rest = data;
                while let Some(of) = sized(&mut rest) {
                    let file = match feature {
                        SIMPLEPERF_FILE => file_record(of),
                        _ => SimpleperfFileRecord::decode(of).ok(),
                    };
                    match file {
                        Some(file) => self.take_symbols(file),
                        None => self.invalid += 1,
                    }
                }
            }
            SIMPLEPERF_META_INFO => self.take_meta_info(data),
            CMDLINE => {
                let mut rest = data;
                let count = number(&mut rest).unwrap_or_default();
                let words: Vec<String> = (0..count).map_while(|_| text(&mut rest)).collect();
                self.texts.insert(CMDLINE, words.join(" "));
            }
            _ => {
                let mut rest = data;
                let text = text(&mut rest);
                self.texts.extend(text.map(|text| (feature, text)));
            }
        }
    }

    fn take_build_ids(&mut self, mut data: &[u8]) {
        while let Some(header) = data.get(..BUILD_ID_NAME) {
            let misc = u16::from_le_bytes([header[4], header[5]]);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            let Some(name) = data.get(BUILD_ID_NAME..size.max(BUILD_ID_NAME)) else {
                return;
            };
            let bytes = match misc & BUILD_ID_HAS_SIZE {
                0 => BUILD_ID_BYTES,
                _ => usize::from(header[BUILD_ID_SIZE_AT]).min(BUILD_ID_BYTES),
            };
            let id = &header[BUILD_ID_AT..BUILD_ID_AT + bytes];
            self.build_ids.insert(until_zero(name), hex(id));
            data = &data[size.max(BUILD_ID_NAME)..];
        }
    }

    fn take_symbols(&mut self, of: SimpleperfFileRecord) {
        let symbols = of.symbol.into_iter();
        let symbols = symbols.map(|s| (s.vaddr, (s.len, s.name)));
        let shift = match of.type_specific_msg {
            Some(SimpleperfTypeSpecificInfo::ElfFile(elf))
                if elf.file_offset_of_min_vaddr != u64::MAX =>
            {
                of.min_vaddr.wrapping_sub(elf.file_offset_of_min_vaddr)
            }
            _ => 0,
        };
        let table = SymbolTable {
            is_absolute: of.r#type == simpleperf_dso_type::DSO_SYMBOL_MAP_FILE,
            shift,
            symbols: symbols.collect(),
        };
        self.symbol_tables.insert(of.path, table);
    }

    /// Take names and values that end with zeros, in turns.
    fn take_meta_info(&mut self, data: &[u8]) {
        let words: Vec<String> = data.split(|byte| *byte == 0).map(until_zero).collect();
        for pair in words.chunks_exact(2) {
            match pair[0].as_str() {
                "simpleperf_version" => self.simpleperf = Some(pair[1].clone()),
                // A line for each has its name, type and configuration.
                "event_type_info" => self.types.extend(pair[1].lines().filter_map(|line| {
                    let (rest, config) = line.rsplit_once(',')?;
                    let (name, kind) = rest.rsplit_once(',')?;
                    Some(((kind.parse().ok()?, config.parse().ok()?), name.into()))
                })),
                _ => {}
            }
        }
    }

    /// Whether the file has symbols of a file that was mapped, and whether they are at addresses of the
    /// process.
    pub(crate) fn table(&self, path: &str) -> Option<bool> {
        self.symbol_tables.get(path).map(|table| table.is_absolute)
    }

    /// The symbol at an offset of a file, among the file's own.
    pub(crate) fn symbol_in(&self, path: &str, offset: u64) -> Option<Symbol<'_>> {
        let table = self.symbol_tables.get(path)?;
        within(&table.symbols, offset.wrapping_add(table.shift))
    }

    /// Take a symbol that the kernel reported.
    pub(crate) fn take_symbol(&mut self, body: &[u8]) {
        let flags = body.get(SYMBOL_FLAGS..).and_then(|rest| rest.first_chunk());
        let gone = flags.is_none_or(|flags| u16::from_le_bytes(*flags) & SYMBOL_GONE != 0);
        if let Some(name) = body.get(SYMBOL_NAME..).filter(|_| !gone) {
            let of = (u32_at(body, 8), until_zero(name));
            self.symbols.insert(u64_at(body, 0), of);
        }
    }

    /// The symbol at an address, as the kernel reported it: where it begins, its size and its name.
    pub(crate) fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        within(&self.symbols, address)
    }

    /// The build ID of a file, by a record of its own or of its mapping.
    pub(crate) fn add_build_id(&mut self, name: &str, id: &[u8]) {
        if !id.is_empty() && !self.build_ids.contains_key(name) {
            self.build_ids.insert(name.into(), hex(id));
        }
    }

    fn take_events(&mut self, mut data: &[u8]) {
        let (Some(count), Some(attr_bytes)) = (number(&mut data), number(&mut data)) else {
            return;
        };
        for _ in 0..count {
            let Some(rest) = data.get(attr_bytes as usize..) else {
                return;
            };
            data = rest;
            let Some(ids) = number(&mut data) else { return };
            let Some(name) = text(&mut data) else { return };
            for _ in 0..ids {
                let Some((id, rest)) = data.split_first_chunk() else {
                    return;
                };
                self.events.insert(u64::from_le_bytes(*id), name.clone());
                data = rest;
            }
        }
    }

    fn text(&self, feature: u32) -> Option<&str> {
        self.texts.get(&feature).map(String::as_str)
    }

    /// `uname -n`.
    pub(crate) fn host(&self) -> Option<&str> {
        self.text(HOSTNAME)
    }

    /// `uname -r`.
    pub(crate) fn release(&self) -> Option<&str> {
        self.text(OSRELEASE)
    }

    /// `uname -m`.
    pub(crate) fn arch(&self) -> Option<&str> {
        self.text(ARCH)
    }

    /// What recorded it, and its version.
    pub(crate) fn recorder(&self) -> String {
        let (name, version) = match &self.simpleperf {
            Some(version) => ("simpleperf", version.as_str()),
            None => ("perf", self.text(VERSION).unwrap_or_default()),
        };
        format!("{name} {version}").trim_end().to_string()
    }

    /// The CPU's name.
    pub(crate) fn cpu(&self) -> Option<&str> {
        self.text(CPUDESC)
    }

    /// The command line of perf.
    pub(crate) fn command_line(&self) -> Option<&str> {
        self.text(CMDLINE)
    }
}

/// The symbol at an address.
fn within(symbols: &BTreeMap<u64, (u32, String)>, address: u64) -> Option<Symbol<'_>> {
    let (start, (bytes, name)) = symbols.range(..=address).next_back()?;
    (address - start < u64::from(*bytes)).then_some((*start, *bytes, name))
}

/// Take a number of 32 bits.
fn number(data: &mut &[u8]) -> Option<u32> {
    let (number, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(u32::from_le_bytes(*number))
}

/// Take bytes after their length.
fn sized<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = number(data)? as usize;
    let (taken, rest) = data.split_at_checked(bytes)?;
    *data = rest;
    Some(taken)
}

/// Take a text after its length.
fn text(data: &mut &[u8]) -> Option<String> {
    sized(data).map(until_zero)
}

/// A file and its symbols in simpleperf's older format, one value after the other.
fn file_record(mut data: &[u8]) -> Option<SimpleperfFileRecord> {
    let word = |data: &mut &[u8]| {
        let (word, rest) = data.split_first_chunk()?;
        *data = rest;
        Some(u64::from_le_bytes(*word))
    };
    let name = |data: &mut &[u8]| {
        let end = data.iter().position(|byte| *byte == 0)?;
        let name = until_zero(data);
        *data = &data[end + 1..];
        Some(name)
    };
    let path = name(&mut data)?;
    let kind = number(&mut data)?;
    let min_vaddr = word(&mut data)?;
    let mut symbol = Vec::new();
    for _ in 0..number(&mut data)? {
        symbol.push(SimpleperfSymbol {
            vaddr: word(&mut data)?,
            len: number(&mut data)?,
            name: name(&mut data)?,
        });
    }
    let offset = word(&mut data).filter(|_| kind == simpleperf_dso_type::DSO_ELF_FILE);
    let elf = offset.map(|file_offset_of_min_vaddr| {
        SimpleperfTypeSpecificInfo::ElfFile(SimpleperfElfFileInfo { file_offset_of_min_vaddr })
    });
    Some(SimpleperfFileRecord { path, r#type: kind, min_vaddr, symbol, type_specific_msg: elf })
}

/// A text that ends with a zero, or where its room does.
pub(crate) fn until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len()).min(MAX_TEXT_BYTES)];
    String::from_utf8_lossy(bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
