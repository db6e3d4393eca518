//! What a perf.data file says of itself, beside its samples.

use std::collections::BTreeMap;

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
/// Those that are read; others are skipped.
const READ: &[u32] = &[
    BUILD_ID, HOSTNAME, OSRELEASE, VERSION, ARCH, CPUDESC, CMDLINE, EVENT_DESC,
];
/// The longest text that is kept.
const MAX_TEXT_BYTES: usize = 4096;
/// A record of a file's build ID has a header, the process, the ID and padding before the name.
const BUILD_ID_NAME: usize = 8 + 4 + 24;
/// Where its ID is, and if `misc` says so (PERF_RECORD_MISC_BUILD_ID_SIZE), how long it is.
const BUILD_ID_AT: usize = 8 + 4;
const BUILD_ID_SIZE_AT: usize = BUILD_ID_AT + 20;
const BUILD_ID_HAS_SIZE: u16 = 1 << 15;
const BUILD_ID_BYTES: usize = 20;

/// Where the name of a symbol is that the kernel told of, and the bit that says it is gone
/// (PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER).
const SYMBOL_NAME: usize = 8 + 4 + 2 + 2;
const SYMBOL_FLAGS: usize = 8 + 4 + 2;
const SYMBOL_GONE: u16 = 1;

/// What is known, and what was left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    texts: BTreeMap<u32, String>,
    /// Build IDs in hexadecimal, by the names of files.
    pub(crate) build_ids: BTreeMap<String, String>,
    /// Names of events, by the IDs of their samples.
    pub(crate) events: BTreeMap<u64, String>,
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
    /// Samples that the kernel said it lost, by records that don't come through the parser.
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

    /// Take a symbol that the kernel told of.
    pub(crate) fn take_symbol(&mut self, body: &[u8]) {
        let flags = body.get(SYMBOL_FLAGS..).and_then(|rest| rest.first_chunk());
        let gone = flags.is_none_or(|flags| u16::from_le_bytes(*flags) & SYMBOL_GONE != 0);
        if let Some(name) = body.get(SYMBOL_NAME..).filter(|_| !gone) {
            let of = (u32_at(body, 8), until_zero(name));
            self.symbols.insert(u64_at(body, 0), of);
        }
    }

    /// The symbol at an address that the kernel told of: where it begins, its size and its name.
    pub(crate) fn symbol(&self, address: u64) -> Option<(u64, u32, &str)> {
        let (start, (bytes, name)) = self.symbols.range(..=address).next_back()?;
        (address - start < u64::from(*bytes)).then_some((*start, *bytes, name))
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

    /// The version of perf.
    pub(crate) fn perf(&self) -> Option<&str> {
        self.text(VERSION)
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

/// Take a number of 32 bits.
fn number(data: &mut &[u8]) -> Option<u32> {
    let (number, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(u32::from_le_bytes(*number))
}

/// Take a text after its length.
fn text(data: &mut &[u8]) -> Option<String> {
    let bytes = number(data)? as usize;
    let (text, rest) = data.split_at_checked(bytes)?;
    *data = rest;
    Some(until_zero(text))
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
