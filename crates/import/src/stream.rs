//! The records of a perf.data file as a stream, as `perf record -o -` writes it: whether the file
//! is such a stream, a file with a table of contents, or one that was cut short.
//!
//! Here are the checks of what comes from elsewhere: no length is believed that the file doesn't
//! have, and only records are passed on that are used and make sense. Layouts are those of
//! tools/perf/Documentation/perf.data-file-format.txt and include/uapi/linux/perf_event.h.

use std::cell::RefCell;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

use crate::bytes::{u32_at, u64_at};
use crate::facts::Facts;
use crate::unpack::Unpacker;
use crate::{Wrong, fill};

const MAGIC: &[u8; 8] = b"PERFILE2";
/// The same of a machine of the other byte order.
const SWAPPED: &[u8; 8] = b"2ELIFREP";
/// Before Linux 2.6.35.
const OLD: &[u8; 8] = b"PERFFILE";
/// Bytes of a stream's header, and of a file's.
const PIPE_HEADER: u64 = 16;
const FILE_HEADER: usize = 104;
/// Bytes of a record's header, and of the largest record.
const HEADER: usize = 8;
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
const FINISHED_ROUND: u32 = 68;
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
/// Where the size of a build ID is in a MMAP2, and the bit of `misc` that says there is one.
const MMAP2_BUILD_ID_SIZE: usize = 32;
const MISC_BUILD_ID: u16 = 1 << 14;
const BUILD_ID_BYTES: u8 = 20;
/// Records are sorted by time between the ends of rounds; without any, after so many bytes. Those
/// of compressed records are not used, for what is unpacked lags behind.
const MAX_ROUND_BYTES: usize = 48 << 20;
const COMPRESSED_ROUND_BYTES: usize = 12 << 20;

/// The bytes of a stream.
#[derive(Debug)]
pub(crate) struct Stream<R> {
    source: R,
    /// Bytes of records that are left, if that is known.
    left: Option<u64>,
    /// What is passed on, from `at`.
    out: Vec<u8>,
    at: usize,
    since_round: usize,
    unpacker: Option<Unpacker>,
    record: Vec<u8>,
    facts: Rc<RefCell<Facts>>,
    ended: bool,
}

/// A section of a file.
#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    bytes: u64,
}

impl Section {
    fn of(header: &[u8], at: usize) -> Section {
        Section {
            offset: u64_at(header, at),
            bytes: u64_at(header, at + 8),
        }
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// Find out what kind of file it is; `bytes` is its size, if it has one.
pub(crate) fn open(
    mut file: BufReader<std::fs::File>,
    bytes: Option<u64>,
) -> Result<(Stream<impl Read>, Rc<RefCell<Facts>>), Wrong> {
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
    let facts = Rc::new(RefCell::new(Facts::default()));
    let mut stream = Stream {
        source: file,
        left: None,
        out: Vec::new(),
        at: 0,
        since_round: 0,
        unpacker: None,
        record: Vec::new(),
        facts: Rc::clone(&facts),
        ended: false,
    };
    stream.out.extend_from_slice(MAGIC);
    stream.out.extend_from_slice(&PIPE_HEADER.to_le_bytes());
    if got == PIPE_HEADER as usize && u64_at(&header, 8) == PIPE_HEADER {
        return Ok((stream, facts));
    }
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
    Ok((stream, facts))
}

impl Stream<BufReader<std::fs::File>> {
    /// Read what a file's header points to.
    fn contents(&mut self, header: &[u8; FILE_HEADER], bytes: u64) -> Result<(), Wrong> {
        let attr_bytes = u64_at(header, 16);
        let (attrs, data) = (Section::of(header, 24), Section::of(header, 40));
        self.attributes(attrs, attr_bytes, bytes)?;
        if data.offset < FILE_HEADER as u64 || data.offset > bytes {
            return Err(Wrong::Damaged("its data is beyond its end".into()));
        }
        // perf writes the size last.
        let end = data.end().filter(|end| *end <= bytes && data.bytes > 0);
        self.left = Some(end.unwrap_or(bytes) - data.offset);
        match end {
            None => self.facts.borrow_mut().cut = true,
            Some(end) => {
                let features = (0..FEATURE_BITS)
                    .filter(|bit| header[72 + bit / 8] & (1 << (bit % 8)) != 0)
                    .collect::<Vec<_>>();
                if !self.features(&features, end, bytes)? {
                    self.facts.borrow_mut().cut = true;
                }
            }
        }
        self.source.seek(SeekFrom::Start(data.offset))?;
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
            let ids = Section::of(&entry, room);
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
            self.pass(HEADER_ATTR, 0, &body);
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
            let section = Section::of(&entry, 0);
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
            self.facts.borrow_mut().take(feature, &data);
        }
        Ok(true)
    }
}

impl<R: Read> Stream<R> {
    /// Pass a record on.
    fn pass(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = (HEADER + body.len()) as u16;
        self.out.extend_from_slice(&kind.to_le_bytes());
        self.out.extend_from_slice(&misc.to_le_bytes());
        self.out.extend_from_slice(&size.to_le_bytes());
        self.out.extend_from_slice(body);
        self.since_round += usize::from(size);
    }

    fn end_round(&mut self) {
        self.since_round = 0;
        self.pass(FINISHED_ROUND, 0, &[]);
    }

    /// Read until there is something to pass on, or the file ends.
    fn refill(&mut self) -> io::Result<()> {
        self.out.clear();
        self.at = 0;
        while self.out.is_empty() && !self.ended {
            if !self.next()? {
                self.ended = true;
                self.unpack_rest();
            }
        }
        Ok(())
    }

    /// Read a record. Returns whether there was one.
    fn next(&mut self) -> io::Result<bool> {
        let mut header = [0; HEADER];
        if self.left.is_some_and(|left| left < HEADER as u64) {
            self.facts.borrow_mut().cut |= self.left != Some(0);
            return Ok(false);
        }
        let got = fill(&mut self.source, &mut header)?;
        if got < HEADER {
            self.facts.borrow_mut().cut |= got > 0 || self.left.is_some();
            return Ok(false);
        }
        let (kind, misc, size) = parts(&header);
        let Some(body_bytes) = size.checked_sub(HEADER) else {
            self.stop("a record without a size");
            return Ok(false);
        };
        if self.left.is_some_and(|left| left < size as u64) {
            self.facts.borrow_mut().cut = true;
            return Ok(false);
        }
        let mut body = std::mem::take(&mut self.record);
        body.resize(body_bytes, 0);
        if fill(&mut self.source, &mut body)? < body_bytes {
            self.facts.borrow_mut().cut = true;
            return Ok(false);
        }
        self.left = self.left.map(|left| left - size as u64);
        let more = match kind {
            // What follows them is not in their size.
            TRACING_DATA => self.skip(u64::from(u32_at(&body, 0)).next_multiple_of(8))?,
            AUXTRACE => {
                self.facts.borrow_mut().traces += 1;
                self.skip(u64_at(&body, 0))?
            }
            COMPRESSED => self.unpack(&body),
            COMPRESSED2 => {
                let bytes = usize::try_from(u64_at(&body, 0)).unwrap_or(usize::MAX);
                let end = bytes.saturating_add(8).min(body.len());
                self.unpack(body.get(8..end).unwrap_or_default())
            }
            HEADER_FEATURE => {
                let feature = u64_at(&body, 0) as u32;
                if Facts::reads(feature) {
                    let data = body.get(8..).unwrap_or_default();
                    self.facts.borrow_mut().take(feature, data);
                }
                true
            }
            _ => {
                self.record(kind, misc, &body);
                true
            }
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
        if skipped < bytes {
            self.facts.borrow_mut().cut = true;
        }
        Ok(skipped == bytes)
    }

    fn stop(&mut self, why: &str) {
        self.facts.borrow_mut().stopped = Some(why.into());
    }

    /// Pass a record on if it is used and makes sense.
    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let limit = match self.unpacker {
            Some(_) => COMPRESSED_ROUND_BYTES,
            None => MAX_ROUND_BYTES,
        };
        if self.since_round > limit {
            self.end_round();
        }
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
            self.facts.borrow_mut().invalid += 1;
            return;
        }
        match kind {
            MMAP | MMAP2 | COMM | FORK | EXIT | LOST | SAMPLE | HEADER_ATTR => {
                self.pass(kind, misc, body);
            }
            FINISHED_ROUND if self.unpacker.is_none() => self.end_round(),
            HEADER_BUILD_ID => {
                let mut whole = header(kind, misc, body.len()).to_vec();
                whole.extend_from_slice(body);
                self.facts.borrow_mut().take(2, &whole);
            }
            LOST_SAMPLES => {
                let mut facts = self.facts.borrow_mut();
                facts.lost_samples = facts.lost_samples.saturating_add(u64_at(body, 0));
            }
            KSYMBOL => self.facts.borrow_mut().take_symbol(body),
            THROTTLE => self.facts.borrow_mut().throttled += 1,
            AUX => self.facts.borrow_mut().traces += 1,
            _ => {}
        }
    }

    /// Unpack more records. Returns whether that makes sense.
    fn unpack(&mut self, packed: &[u8]) -> bool {
        self.facts.borrow_mut().compressed += 1;
        let mut unpacker = self.unpacker.take().unwrap_or_default();
        let unpacked = unpacker.unpack(packed);
        self.records(&mut unpacker.records);
        self.unpacker = Some(unpacker);
        if !unpacked {
            self.stop("compressed records that can't be unpacked");
        }
        unpacked
    }

    /// Unpack what the decoder holds back until it is told that there is no more.
    fn unpack_rest(&mut self) {
        if let Some(mut unpacker) = self.unpacker.take() {
            unpacker.finish();
            self.records(&mut unpacker.records);
            if !unpacker.records.is_empty() {
                self.facts.borrow_mut().cut = true;
            }
        }
    }

    /// Pass whole records on, and leave the rest.
    fn records(&mut self, unpacked: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(header) = unpacked.get(at..at + HEADER) {
            let (kind, misc, size) = parts(header);
            if size < HEADER {
                self.facts.borrow_mut().invalid += 1;
                at = unpacked.len();
                break;
            }
            let Some(body) = unpacked.get(at + HEADER..at + size) else {
                break;
            };
            self.record(kind, misc, body);
            at += size;
        }
        unpacked.drain(..at);
    }
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.out.len() {
            self.refill()?;
        }
        let rest = &self.out[self.at..];
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

/// Type, `misc` and size of a record.
fn parts(header: &[u8]) -> (u32, u16, usize) {
    let misc = u16::from_le_bytes([header[4], header[5]]);
    let size = u16::from_le_bytes([header[6], header[7]]);
    (u32_at(header, 0), misc, usize::from(size))
}

fn header(kind: u32, misc: u16, body_bytes: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[4..6].copy_from_slice(&misc.to_le_bytes());
    header[6..].copy_from_slice(&((HEADER + body_bytes) as u16).to_le_bytes());
    header
}
