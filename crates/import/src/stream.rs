//! The records of a perf.data file, from its begin to its end: of a stream, as `perf record -o -`
//! writes it, of a file with a table of contents, or of one that was cut short.
//!
//! Input is checked here: no length beyond the file is believed, and only records that are used and
//! make sense are passed on. Layouts are from tools/perf/Documentation/perf.data-file-format.txt
//! and include/uapi/linux/perf_event.h.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use crate::attributes::Attributes;
use crate::bytes::{u32_at, u64_at};
use crate::facts::Facts;
use crate::header::{HEADER, PIPE_HEADER, header, parts};
use crate::records::{Index, Records};
use crate::unpack::Unpacker;
use crate::{Wrong, fill};

const MAGIC: &[u8; 8] = b"PERFILE2";
/// The same of a machine of the other byte order.
const SWAPPED: &[u8; 8] = b"2ELIFREP";
/// Before Linux 2.6.35.
const OLD: &[u8; 8] = b"PERFFILE";
/// Bytes of a file's header.
const FILE_HEADER: usize = 104;
/// Bytes of the largest record.
const MAX_RECORD: usize = u16::MAX as usize;

/// Types of records (enum perf_event_type, and enum perf_user_event_type in
/// tools/lib/perf/include/perf/event.h).
const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const AUX: u32 = 11;
const LOST_SAMPLES: u32 = 13;
const KSYMBOL: u32 = 17;
const HEADER_ATTR: u32 = 64;
const TRACING_DATA: u32 = 66;
const HEADER_BUILD_ID: u32 = 67;
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// Feature of a file by its bit (HEADER_FIRST_FEATURE and on).
const FEATURE_BITS: usize = 256;
/// The largest feature that is read.
const MAX_FEATURE_BYTES: u64 = 16 << 20;
/// More events than anyone samples.
const MAX_EVENTS: u64 = 4096;
/// An attribute's size is in its second word.
const MIN_ATTR: usize = 64;
/// The least that a mapping, a fork and the like have.
const MIN_BODY: usize = 8;
/// Where the size of a build ID is in a MMAP2, and the bit of `misc` that marks one.
const MMAP2_BUILD_ID_SIZE: usize = 32;
const MISC_BUILD_ID: u16 = 1 << 14;
const BUILD_ID_BYTES: u8 = 20;
/// A file that is read.
#[derive(Debug)]
struct Stream {
    source: BufReader<File>,
    /// Where in the file the next record begins; none if it can't be read again there.
    at: Option<u64>,
    /// Bytes of records that are left, if that is known.
    left: Option<u64>,
    /// Attributes of events, as a stream that has nothing else, until there are other records.
    head: Vec<u8>,
    attributes: Option<Attributes>,
    index: Index,
    unpacker: Option<Unpacker>,
    record: Vec<u8>,
    facts: Facts,
}

/// A section of a file.
#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    bytes: u64,
}

impl Section {
    fn parse(header: &[u8], at: usize) -> Section {
        Section { offset: u64_at(header, at), bytes: u64_at(header, at + 8) }
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// Read a file to its end; `bytes` is its size, if it has one. `parts` have more records.
pub(crate) fn read(
    mut file: BufReader<File>,
    bytes: Option<u64>,
    parts: Vec<File>,
) -> Result<(Facts, Records), Wrong> {
    // Nothing can be read again from a pipe.
    let start = match bytes {
        Some(_) => Some(file.stream_position()?),
        None => None,
    };
    let mut header = [0; FILE_HEADER];
    let got = fill(&mut file, &mut header[..PIPE_HEADER as usize])?;
    if got < MAGIC.len() {
        return Err(Wrong::NotPerfData);
    }
    match &header[..8] {
        magic if magic == MAGIC => {}
        magic if magic == SWAPPED => {
            return Err(Wrong::Unsupported(
                "of a big-endian machine".into(),
                "import it into another program on such a machine",
            ));
        }
        magic if magic == OLD => {
            return Err(Wrong::Unsupported(
                "of a perf before Linux 2.6.35".into(),
                "record it with a newer perf",
            ));
        }
        _ => return Err(Wrong::NotPerfData),
    }
    let mut stream = Stream {
        source: file,
        at: start.map(|start| start + PIPE_HEADER),
        left: None,
        head: MAGIC.to_vec(),
        attributes: None,
        index: Index::default(),
        unpacker: None,
        record: Vec::new(),
        facts: Facts::default(),
    };
    stream.head.extend_from_slice(&PIPE_HEADER.to_le_bytes());
    if got < PIPE_HEADER as usize || u64_at(&header, 8) != PIPE_HEADER {
        let rest = fill(&mut stream.source, &mut header[PIPE_HEADER as usize..])?;
        if got + rest < FILE_HEADER {
            return Err(Wrong::Damaged("its header is cut short".into()));
        }
        let Some(bytes) = bytes else {
            return Err(Wrong::Unsupported(
                "a file that is not a stream, from a pipe".into(),
                "give its path, or record it with `perf record -o -`",
            ));
        };
        stream.contents(&header, bytes)?;
    }
    stream.all(parts)
}

impl Stream {
    /// Read what a file's header points to.
    fn contents(&mut self, header: &[u8; FILE_HEADER], bytes: u64) -> Result<(), Wrong> {
        let attr_bytes = u64_at(header, 16);
        let (attrs, data) = (Section::parse(header, 24), Section::parse(header, 40));
        self.attributes(attrs, attr_bytes, bytes)?;
        if data.offset < FILE_HEADER as u64 || data.offset > bytes {
            return Err(Wrong::Damaged("its data is beyond its end".into()));
        }
        // perf writes the size last.
        let end = data.end().filter(|end| *end <= bytes && data.bytes > 0);
        self.left = Some(end.unwrap_or(bytes) - data.offset);
        match end {
            None => self.facts.cut = true,
            Some(end) => {
                let features = (0..FEATURE_BITS)
                    .filter(|bit| header[72 + bit / 8] & (1 << (bit % 8)) != 0)
                    .collect::<Vec<_>>();
                if !self.features(&features, end, bytes)? {
                    self.facts.cut = true;
                }
            }
        }
        self.source.seek(SeekFrom::Start(data.offset))?;
        self.at = Some(data.offset);
        Ok(())
    }

    /// The attributes of events, with the IDs of their samples, as records.
    fn attributes(&mut self, attrs: Section, each: u64, bytes: u64) -> Result<(), Wrong> {
        const IDS: u64 = 16;
        let damaged = |why: &str| Err(Wrong::Damaged(why.into()));
        if each < IDS + MIN_ATTR as u64 || each > 4096 {
            return damaged("its events have no valid size");
        }
        let count = attrs.bytes / each;
        if count == 0 || count > MAX_EVENTS || attrs.end().is_none_or(|end| end > bytes) {
            return damaged("its list of events makes no sense");
        }
        for n in 0..count {
            let mut entry = vec![0; each as usize];
            self.source.seek(SeekFrom::Start(attrs.offset + n * each))?;
            self.source.read_exact(&mut entry)?;
            let size = u32_at(&entry, 4) as usize;
            let room = (each - IDS) as usize;
            if !(MIN_ATTR..=room).contains(&size) {
                return damaged("an event has no valid size");
            }
            let ids = Section::parse(&entry, room);
            let most = (MAX_RECORD - HEADER - size) as u64 / 8 * 8;
            let ids_bytes = ids.bytes.min(most) / 8 * 8;
            if ids.end().is_none_or(|end| end > bytes) {
                return damaged("the IDs of an event are beyond its end");
            }
            let mut body = entry[..size].to_vec();
            let before = body.len();
            body.resize(before + ids_bytes as usize, 0);
            self.source.seek(SeekFrom::Start(ids.offset))?;
            self.source.read_exact(&mut body[before..])?;
            self.attribute(0, &body);
        }
        Ok(())
    }

    /// Features, whose sections are listed after the data. Returns whether all are there.
    fn features(&mut self, features: &[usize], list: u64, bytes: u64) -> Result<bool, Wrong> {
        for (n, feature) in features.iter().enumerate() {
            let at = list + n as u64 * 16;
            if at + 16 > bytes {
                return Ok(false);
            }
            let mut entry = [0; 16];
            self.source.seek(SeekFrom::Start(at))?;
            self.source.read_exact(&mut entry)?;
            let section = Section::parse(&entry, 0);
            let feature = *feature as u32;
            if !Facts::reads(feature) || section.bytes > MAX_FEATURE_BYTES {
                continue;
            }
            if section.end().is_none_or(|end| end > bytes) {
                return Ok(false);
            }
            let mut data = vec![0; section.bytes as usize];
            self.source.seek(SeekFrom::Start(section.offset))?;
            self.source.read_exact(&mut data)?;
            self.facts.take(feature, &data);
        }
        Ok(true)
    }
}

impl Stream {
    /// Read all records.
    fn all(mut self, parts: Vec<File>) -> Result<(Facts, Records), Wrong> {
        self.rest()?;
        for part in parts {
            let bytes = part.metadata()?.len();
            let part = BufReader::with_capacity(1 << 18, part);
            let first = std::mem::replace(&mut self.source, part);
            // They are copied, so that one file is read again, however many there are.
            (self.at, self.left) = (None, Some(bytes));
            let read = self.rest();
            self.source = first;
            read?;
        }
        let attributes = match self.attributes {
            Some(attributes) => attributes,
            None => Attributes::parse(&self.head)?,
        };
        let records = self.index.sorted(self.source.into_inner(), attributes)?;
        Ok((self.facts, records))
    }

    /// Read the records that are left of a file.
    fn rest(&mut self) -> Result<(), Wrong> {
        loop {
            match self.next() {
                Ok(true) => {}
                Ok(false) => break,
                // Data until the error is kept.
                Err(Wrong::Io(error)) => {
                    self.stop(&error.to_string());
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        self.unpack_rest()
    }

    /// Take an attribute, before there are other records.
    fn attribute(&mut self, misc: u16, body: &[u8]) {
        if self.attributes.is_none() {
            self.head.extend_from_slice(&header(HEADER_ATTR, misc, body.len()));
            self.head.extend_from_slice(body);
        }
    }

    /// Keep a record: `at` is where it begins in the file. Returns whether there is room for more.
    fn keep(
        &mut self,
        (kind, misc): (u32, u16),
        body: &[u8],
        at: Option<u64>,
    ) -> Result<bool, Wrong> {
        let attributes = match &mut self.attributes {
            Some(attributes) => attributes,
            none => none.insert(Attributes::parse(&self.head)?),
        };
        if self.index.is_full() {
            self.stop("more records than a recording can have");
            return Ok(false);
        }
        if let Some((_, record)) = attributes.record(kind, misc, body) {
            self.index.add(&record, body, at)?;
        }
        Ok(true)
    }

    /// Read a record. Returns whether there was one.
    fn next(&mut self) -> Result<bool, Wrong> {
        let mut header = [0; HEADER];
        if self.left.is_some_and(|left| left < HEADER as u64) {
            self.facts.cut |= self.left != Some(0);
            return Ok(false);
        }
        let got = fill(&mut self.source, &mut header)?;
        if got < HEADER {
            self.facts.cut |= got > 0 || self.left.is_some();
            return Ok(false);
        }
        let (kind, misc, size) = parts(&header);
        let Some(body_bytes) = size.checked_sub(HEADER) else {
            self.stop("a record without a size");
            return Ok(false);
        };
        if self.left.is_some_and(|left| left < size as u64) {
            self.facts.cut = true;
            return Ok(false);
        }
        let mut body = std::mem::take(&mut self.record);
        body.resize(body_bytes, 0);
        if fill(&mut self.source, &mut body)? < body_bytes {
            self.facts.cut = true;
            return Ok(false);
        }
        self.left = self.left.map(|left| left - size as u64);
        let at = self.at;
        self.at = at.map(|at| at + size as u64);
        let more = match kind {
            // What follows them is not in their size.
            TRACING_DATA => self.skip(u64::from(u32_at(&body, 0)).next_multiple_of(8))?,
            AUXTRACE => {
                self.facts.traces += 1;
                self.skip(u64_at(&body, 0))?
            }
            COMPRESSED => self.unpack(&body)?,
            COMPRESSED2 => {
                let bytes = usize::try_from(u64_at(&body, 0)).unwrap_or(usize::MAX);
                let end = bytes.saturating_add(8).min(body.len());
                self.unpack(body.get(8..end).unwrap_or_default())?
            }
            HEADER_FEATURE => {
                let feature = u64_at(&body, 0) as u32;
                if Facts::reads(feature) {
                    let data = body.get(8..).unwrap_or_default();
                    self.facts.take(feature, data);
                }
                true
            }
            _ => self.record((kind, misc), &body, at)?,
        };
        self.record = body;
        Ok(more)
    }

    /// Skip what belongs to a record. Returns whether it is there.
    fn skip(&mut self, bytes: u64) -> io::Result<bool> {
        let there = self.left.is_none_or(|left| left >= bytes);
        let skipped = match there {
            true => io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?,
            false => 0,
        };
        self.left = self.left.map(|left| left.saturating_sub(skipped));
        self.at = self.at.map(|at| at + skipped);
        if skipped < bytes {
            self.facts.cut = true;
        }
        Ok(skipped == bytes)
    }

    fn stop(&mut self, why: &str) {
        self.facts.stopped = Some(why.into());
    }

    /// Keep a record if it is used and makes sense. Returns whether there is room for more.
    fn record(
        &mut self,
        (kind, misc): (u32, u16),
        body: &[u8],
        at: Option<u64>,
    ) -> Result<bool, Wrong> {
        let invalid = match kind {
            MMAP2 => {
                misc & MISC_BUILD_ID != 0
                    && (body.get(MMAP2_BUILD_ID_SIZE)).is_none_or(|bytes| *bytes > BUILD_ID_BYTES)
            }
            HEADER_ATTR => {
                let size = u32_at(body, 4) as usize;
                !(MIN_ATTR..=body.len()).contains(&size) || !(body.len() - size).is_multiple_of(8)
            }
            MMAP | COMM | FORK | EXIT | LOST | SAMPLE => body.len() < MIN_BODY,
            _ => false,
        };
        if invalid {
            self.facts.invalid += 1;
            return Ok(true);
        }
        match kind {
            MMAP | MMAP2 | COMM | FORK | EXIT | LOST | SAMPLE => {
                return self.keep((kind, misc), body, at);
            }
            HEADER_ATTR => self.attribute(misc, body),
            HEADER_BUILD_ID => {
                let mut whole = header(kind, misc, body.len()).to_vec();
                whole.extend_from_slice(body);
                self.facts.take(2, &whole);
            }
            LOST_SAMPLES => {
                let lost = &mut self.facts.lost_samples;
                *lost = lost.saturating_add(u64_at(body, 0));
            }
            KSYMBOL => self.facts.take_symbol(body),
            THROTTLE => self.facts.throttled += 1,
            AUX => self.facts.traces += 1,
            _ => {}
        }
        Ok(true)
    }

    /// Unpack more records. Returns whether that makes sense, and there is room for more.
    fn unpack(&mut self, packed: &[u8]) -> Result<bool, Wrong> {
        self.facts.compressed += 1;
        let mut unpacker = self.unpacker.take().unwrap_or_default();
        let unpacked = unpacker.unpack(packed);
        let more = self.records(&mut unpacker.records)?;
        self.unpacker = Some(unpacker);
        if !unpacked {
            self.stop("compressed records that can't be unpacked");
        }
        Ok(unpacked && more)
    }

    /// Unpack what the decoder holds back until the end of its input.
    fn unpack_rest(&mut self) -> Result<(), Wrong> {
        if let Some(mut unpacker) = self.unpacker.take() {
            unpacker.finish();
            self.records(&mut unpacker.records)?;
            if !unpacker.records.is_empty() {
                self.facts.cut = true;
            }
        }
        Ok(())
    }

    /// Keep whole records, and leave the rest. Returns whether there is room for more.
    fn records(&mut self, unpacked: &mut Vec<u8>) -> Result<bool, Wrong> {
        let mut at = 0;
        let mut more = true;
        while let Some(header) = unpacked.get(at..at + HEADER).filter(|_| more) {
            let (kind, misc, size) = parts(header);
            if size < HEADER {
                self.facts.invalid += 1;
                at = unpacked.len();
                break;
            }
            let Some(body) = unpacked.get(at + HEADER..at + size) else {
                break;
            };
            more = self.record((kind, misc), body, None)?;
            at += size;
        }
        unpacked.drain(..at);
        Ok(more)
    }
}
