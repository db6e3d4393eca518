//! What programs wrote of the code that they made at run time: in a file for each process that it maps,
//! so that its name is in perf.data (tools/perf/Documentation/jitdump-specification.txt).
//!
//! Pieces of code are taken in the order of their times, as mappings are: one may replace another.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use netplumb_instruments::image::readable;

use crate::bytes::{u32_at, u64_at};
use crate::made::Place;

/// As the machine that wrote it has it.
const MAGIC: u32 = 0x4A69_5444;
/// Minimum sizes of a file, a record, and the header of a code record.
const FILE_HEADER: usize = 40;
const RECORD_HEADER: usize = 16;
const LOAD: usize = 40;
const MOVE: usize = 48;
/// Kinds of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Larger files are not read.
const MAX_FILE_BYTES: u64 = 2 << 30;
/// Pieces of code that are read, of all files.
const MAX_PIECES: usize = 1 << 20;
const MAX_NAME_BYTES: u64 = 4096;
/// What files of code that was made are called here: no file has this path.
const PREFIX: &str = "//jit:";

/// A piece of code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    name: String,
}

impl Piece {
    /// The path in place of a file's.
    pub(crate) fn path(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

/// The name of code that has such a path.
pub(crate) fn name_of(path: &str) -> Option<&str> {
    path.strip_prefix(PREFIX)
}

/// Whether a file that was mapped is such a file.
pub(crate) fn is_dump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let number = name.strip_prefix("jit-");
    let number = number.and_then(|rest| rest.strip_suffix(".dump"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The files of all processes.
#[derive(Debug)]
pub(crate) struct Dumps {
    place: Place,
    /// Whether samples have the times that the files have.
    timed: bool,
    read: BTreeSet<(i32, String)>,
    /// By time, and of the same time as they were written.
    pieces: BinaryHeap<Reverse<(u64, usize, i32, Piece)>>,
    count: usize,
}

impl Dumps {
    /// Files that are at a place.
    pub(crate) fn at(place: Place, timed: bool) -> Dumps {
        Dumps { place, timed, read: BTreeSet::new(), pieces: BinaryHeap::new(), count: 0 }
    }

    /// Read the file of a process. Returns whether it could be read.
    pub(crate) fn read(&mut self, pid: i32, path: &str) -> bool {
        if !self.read.insert((pid, path.to_string())) {
            return true;
        }
        let file = self.place.open(Path::new(path));
        let Some(file) = file.ok().flatten() else {
            return false;
        };
        let is_small = file.metadata().is_ok_and(|known| known.len() <= MAX_FILE_BYTES);
        is_small && self.take(pid, file).is_some()
    }

    /// The next piece of code that was made until a time, and its process.
    pub(crate) fn next(&mut self, until_ns: u64) -> Option<(i32, Piece)> {
        let Reverse((time_ns, ..)) = self.pieces.peek()?;
        if *time_ns > until_ns {
            return None;
        }
        let Reverse((_, _, pid, piece)) = self.pieces.pop()?;
        Some((pid, piece))
    }

    /// Process a file, to its end or to what makes no sense; none if it is another file.
    fn take(&mut self, pid: i32, file: File) -> Option<()> {
        let mut from = BufReader::new(file);
        let header = bytes(&mut from, FILE_HEADER)?;
        let more = u64::from(u32_at(&header, 8)).checked_sub(FILE_HEADER as u64)?;
        if u32_at(&header, 0) != MAGIC || !skip(&mut from, more) {
            return None;
        }
        let mut names: HashMap<u64, String> = HashMap::new();
        while self.count < MAX_PIECES {
            let Some(header) = bytes(&mut from, RECORD_HEADER) else {
                break;
            };
            let (kind, size) = (u32_at(&header, 0), u64::from(u32_at(&header, 4)));
            let Some(left) = size.checked_sub(RECORD_HEADER as u64) else {
                break;
            };
            let mut of = (&mut from).take(left);
            if let Some((start, size, name)) = piece(kind, &mut of, &mut names) {
                let time_ns = if self.timed { u64_at(&header, 8) } else { 0 };
                let piece = Piece { start, end: start.saturating_add(size), name };
                self.count += 1;
                self.pieces.push(Reverse((time_ns, self.count, pid, piece)));
            }
            let left = of.limit();
            if !skip(&mut from, left) {
                break;
            }
        }
        Some(())
    }
}

/// The place, size and name of code in a record.
fn piece(
    kind: u32,
    from: &mut impl BufRead,
    names: &mut HashMap<u64, String>,
) -> Option<(u64, u64, String)> {
    match kind {
        CODE_LOAD => {
            let load = bytes(from, LOAD)?;
            let (address, size, index) = (u64_at(&load, 16), u64_at(&load, 24), u64_at(&load, 32));
            let mut name = Vec::new();
            from.take(MAX_NAME_BYTES).read_until(0, &mut name).ok()?;
            let name = readable(&String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(&name)));
            names.insert(index, name.clone());
            Some((address, size, name))
        }
        CODE_MOVE => {
            let moved = bytes(from, MOVE)?;
            let index = u64_at(&moved, 40);
            let name = names.get(&index)?.clone();
            Some((u64_at(&moved, 24), u64_at(&moved, 32), name))
        }
        _ => None,
    }
}

fn bytes(from: &mut impl Read, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn skip(from: &mut impl Read, bytes: u64) -> bool {
    let skipped = std::io::copy(&mut from.take(bytes), &mut std::io::sink());
    skipped.is_ok_and(|skipped| skipped == bytes)
}
