//! The records of a file in the order of their times.
//!
//! perf writes the CPUs' buffers, one after the other, so records are in order only within one of them; some programs
//! write none of the marks for how far the order goes. The code that a sample is in depends on what was mapped until
//! then. So only the times and places of records are kept; they are read again in the order of their times, whatever
//! the order in the file.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use linux_perf_data::linux_perf_event_reader::RawEventRecord;

use crate::attributes::Attributes;
use crate::header::{HEADER, header, parts};

/// The most records that are kept, in 16 bytes each: twice the samples that a recording may have.
const MAX_RECORDS: usize = 1 << 25;
/// The most that is written to a temporary file.
const MAX_COPIED_BYTES: u64 = 16 << 30;
/// Bytes that are read at once, and how many such pieces are kept: records that are out of order are
/// mostly near.
const PIECE: usize = 4096;
const PIECES: usize = 2048;
/// Of a record's place: it is in the temporary file.
const COPIED: u64 = 1 << 63;

/// Where a record is, and when it was made.
#[derive(Debug, Clone, Copy)]
struct Entry {
    time_ns: u64,
    at: u64,
}

/// Takes records in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// The latest time so far.
    latest_ns: u64,
    unsorted: bool,
    copies: Option<(BufWriter<File>, u64)>,
}

impl Index {
    /// Whether there is room for more.
    pub(crate) fn is_full(&self) -> bool {
        let copied = self.copies.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.entries.len() == MAX_RECORDS || copied > MAX_COPIED_BYTES
    }

    /// Add a record: `at` is where in the file it begins; if it is nowhere, it is copied. One without a time is as old
    /// as the record before it.
    ///
    /// # Errors
    /// It can't be copied.
    pub(crate) fn add(
        &mut self,
        record: &RawEventRecord<'_>,
        body: &[u8],
        at: Option<u64>,
    ) -> io::Result<()> {
        let time_ns = record.timestamp().unwrap_or(self.latest_ns);
        let at = match at {
            Some(at) => at,
            None => COPIED | self.copy(record, body)?,
        };
        self.unsorted |= time_ns < self.latest_ns;
        self.latest_ns = self.latest_ns.max(time_ns);
        self.entries.push(Entry { time_ns, at });
        Ok(())
    }

    fn copy(&mut self, record: &RawEventRecord<'_>, body: &[u8]) -> io::Result<u64> {
        if self.copies.is_none() {
            let file = tempfile::tempfile().map_err(temporary)?;
            self.copies = Some((BufWriter::with_capacity(1 << 18, file), 0));
        }
        let Some((file, bytes)) = &mut self.copies else {
            return Ok(0);
        };
        let header = header(record.record_type.0, record.misc, body.len());
        file.write_all(&header).map_err(temporary)?;
        file.write_all(body).map_err(temporary)?;
        let at = *bytes;
        *bytes += (HEADER + body.len()) as u64;
        Ok(at)
    }

    /// All records, by time, to be read again from the file that they are in.
    ///
    /// # Errors
    /// Copies can't be written.
    pub(crate) fn sorted(mut self, source: File, attributes: Attributes) -> io::Result<Records> {
        if self.unsorted {
            // Records of the same time stay in the order of the file.
            self.entries.sort_by_key(|entry| entry.time_ns);
        }
        let copies = self.copies.take().map(|(file, _)| file.into_inner());
        let copies = copies.transpose().map_err(|e| temporary(e.into_error()))?;
        Ok(Records {
            entries: self.entries,
            next: 0,
            source: Pieces::from_file(source),
            copies: copies.map(Pieces::from_file),
            attributes: attributes.into(),
            body: Vec::new(),
        })
    }
}

fn temporary(error: io::Error) -> io::Error {
    let folder = std::env::temp_dir();
    let why = format!("temporary file in {}: {error}", folder.display());
    io::Error::new(error.kind(), why)
}

/// Records by time.
#[derive(Debug)]
pub(crate) struct Records {
    entries: Vec<Entry>,
    next: usize,
    source: Pieces,
    copies: Option<Pieces>,
    attributes: Rc<Attributes>,
    body: Vec<u8>,
}

impl Records {
    /// The attributes of events.
    pub(crate) fn attributes(&self) -> Rc<Attributes> {
        Rc::clone(&self.attributes)
    }

    /// Read the next one; with the number of its attribute, and its time.
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) fn next(&mut self) -> io::Result<Option<(usize, u64, RawEventRecord<'_>)>> {
        let Some(entry) = self.entries.get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        let time_ns = entry.time_ns;
        let at = entry.at & !COPIED;
        let file = match &mut self.copies {
            Some(copies) if entry.at & COPIED != 0 => copies,
            _ => &mut self.source,
        };
        let mut header = [0; HEADER];
        file.read(at, &mut header)?;
        let (kind, misc, size) = parts(&header);
        self.body.resize(size.saturating_sub(HEADER), 0);
        file.read(at + HEADER as u64, &mut self.body)?;
        let record = self.attributes.record(kind, misc, &self.body);
        Ok(record.map(|(number, record)| (number, time_ns, record)))
    }
}

/// A file with a cache of the pieces that were read, each in the slot given by its number.
#[derive(Debug)]
struct Pieces {
    file: File,
    /// Numbers of the pieces, and how many bytes of each there are.
    kept: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl Pieces {
    fn from_file(file: File) -> Pieces {
        Pieces { file, kept: vec![(u64::MAX, 0); PIECES], bytes: vec![0; PIECES * PIECE] }
    }

    fn read(&mut self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let within = (at % PIECE as u64) as usize;
            let piece = self.piece(at / PIECE as u64)?;
            let rest = piece.get(within..).unwrap_or_default();
            if rest.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let bytes = rest.len().min(into.len());
            let (now, later) = into.split_at_mut(bytes);
            now.copy_from_slice(&rest[..bytes]);
            into = later;
            at += bytes as u64;
        }
        Ok(())
    }

    fn piece(&mut self, number: u64) -> io::Result<&[u8]> {
        let place = (number % PIECES as u64) as usize;
        let room = &mut self.bytes[place * PIECE..(place + 1) * PIECE];
        let kept = &mut self.kept[place];
        if kept.0 != number {
            *kept = (u64::MAX, 0);
            let mut got = 0;
            while got < room.len() {
                let at = number * PIECE as u64 + got as u64;
                match self.file.read_at(&mut room[got..], at) {
                    Ok(0) => break,
                    Ok(bytes) => got += bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            *kept = (number, got);
        }
        Ok(&room[..kept.1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that any bytes of a file are read right, whatever was read before, and that reading
    /// beyond its end is an error.
    #[test]
    fn pieces() {
        let bytes: Vec<u8> = (0..5 * PIECE as u32 / 2)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 7).to_le_bytes())
            .collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut pieces = Pieces::from_file(file);
        for at in [0, 9 * PIECE, 4090, PIECE, 3 * PIECE - 1, 17, bytes.len() - 9_000] {
            let mut into = vec![0; 9_000.min(bytes.len() - at)];
            pieces.read(at as u64, &mut into).unwrap();
            assert!(into == bytes[at..at + into.len()], "at {at}");
        }
        let beyond = pieces.read(bytes.len() as u64 - 3, &mut [0; 4]);
        assert_eq!(beyond.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
