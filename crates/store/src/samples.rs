//! Samples with their times, packed in chunks: a few bytes for each.
//!
//! A chunk is a zlib stream of columns, one after the other, of numbers in LEB128. Costs of a block
//! and quantity that has samples are their sums, and are not stored: there may be as many as samples.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::quantity::QuantityId;
use netplumb_model::recording::Recording;
use netplumb_model::samples::{MAX_SAMPLES, Sample, Samples, Thread};
use rusqlite::{Connection, Transaction, params};

use crate::row::{Wrong, count, each, get, name, numbered};

/// Samples of a chunk.
const CHUNK: usize = 1 << 16;
/// Most bytes of a number in LEB128.
pub(crate) const NUMBER_BYTES: usize = 10;
/// Directions by their numbers in files: new ones are added at the end.
const DIRECTIONS: [Direction; 8] = [
    Direction::Tx,
    Direction::Rx,
    Direction::Forward,
    Direction::Echo,
    Direction::Ack,
    Direction::Run,
    Direction::Other,
    Direction::Drop,
];
/// Columns of a chunk: [`numbers`].
const COLUMNS: usize = 7;

/// The number of elements of each list that are in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    samples: usize,
    threads: usize,
}

impl Written {
    /// The current lengths.
    pub(crate) fn of(recording: &Recording) -> Written {
        Written {
            samples: recording.samples.len(),
            threads: recording.threads.len(),
        }
    }
}

impl Written {
    /// So many remain in the file.
    pub(crate) fn forget(&mut self, samples: usize) {
        self.samples = self.samples.min(samples);
    }
}

/// The blocks and quantities whose costs are those of samples.
pub(crate) fn summed(recording: &Recording) -> BTreeSet<(u32, QuantityId)> {
    let samples = recording.samples.iter();
    samples.map(|s| (s.block, s.quantity)).collect()
}

/// Write what is new.
pub(crate) fn add(
    to: &Transaction<'_>,
    recording: &Recording,
    before: Written,
) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT INTO thread VALUES (?, ?, ?, ?)")?;
    for (id, thread) in recording.threads.iter().enumerate().skip(before.threads) {
        put.execute(params![id, thread.pid, thread.tid, thread.name])?;
    }
    let mut put = to.prepare("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?)")?;
    for samples in recording.samples.iter().skip(before.samples) {
        let all: Vec<Sample> = samples.iter().collect();
        for (chunk, of) in all.chunks(CHUNK).enumerate() {
            let begin_ns = of.first().map_or(0, |first| first.time_ns);
            let packed = pack(of).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
            put.execute(params![
                samples.block,
                samples.quantity,
                chunk as i64,
                of.len() as i64,
                begin_ns as i64,
                packed
            ])?;
        }
    }
    Ok(())
}

/// Read samples, and add the costs that they add up to.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    recording.threads = numbered(c, "thread", "pid, tid, name", |r| {
        Ok(Thread {
            pid: get(r, 1)?,
            tid: get(r, 2)?,
            name: name(r, 3)?,
        })
    })?;
    let (columns, order) = (
        "block, quantity, chunk, count, begin_ns, columns",
        "block, quantity, chunk",
    );
    let mut of = (u32::MAX, u32::MAX);
    let mut all = Vec::new();
    let (mut number, mut weight) = (0, 0_u64);
    each(c, "sample", columns, order, |_, r| {
        let wrong = |why: String| Err(Wrong::Found(why));
        let key: (u32, u32) = (get(r, 0)?, get(r, 1)?);
        if key != of {
            keep(recording, of, &mut all);
            of = key;
        }
        let (chunk, count, begin_ns) = (count(r, 2)?, count(r, 3)?, count(r, 4)?);
        if chunk != (all.len() / CHUNK) as u64 || !all.len().is_multiple_of(CHUNK) {
            return wrong(format!("chunk {chunk} does not follow a complete one"));
        }
        let Some(count) = usize::try_from(count)
            .ok()
            .filter(|n| (1..=CHUNK).contains(n))
        else {
            return wrong(format!("{count} samples, expected 1 to {CHUNK}"));
        };
        number += count;
        if number > MAX_SAMPLES {
            return wrong(format!("more than {MAX_SAMPLES} samples"));
        }
        let packed = r.get_ref(5)?;
        let packed = packed.as_blob().map_err(|e| Wrong::Found(e.to_string()))?;
        let before = all.last().map_or(0, |last: &Sample| last.time_ns);
        let Some(chunk) = unpack(packed, count, begin_ns) else {
            return wrong(format!("no {count} samples in it"));
        };
        if begin_ns < before {
            return wrong(format!(
                "begins at {begin_ns} ns, before the last chunk ended"
            ));
        }
        let mut weights = chunk.iter().map(|sample| sample.weight);
        match weights.try_fold(weight, u64::checked_add) {
            Some(sum) if sum <= i64::MAX as u64 => weight = sum,
            _ => return wrong("samples stand for more than 63 bits hold".into()),
        }
        all.extend(chunk);
        Ok(())
    })?;
    keep(recording, of, &mut all);
    let summed = summed(recording);
    let costs = recording.costs.iter();
    if let Some(cost) = costs
        .clone()
        .find(|c| summed.contains(&(c.block, c.quantity)))
    {
        return Err(Wrong::Found(format!(
            "table cost: block {} has both costs and samples of quantity {}",
            cost.block, cost.quantity
        )));
    }
    let sums: Vec<_> = recording.samples.iter().flat_map(Samples::costs).collect();
    if !sums.is_empty() {
        recording.costs.extend(sums);
        recording.costs.sort_by_key(|c| (c.block, c.quantity));
    }
    Ok(())
}

/// Keep the samples of a block and quantity, all of which are read.
fn keep(recording: &mut Recording, (block, quantity): (u32, QuantityId), all: &mut Vec<Sample>) {
    if !all.is_empty() {
        let samples = Samples::new(block, quantity, all.drain(..));
        recording.samples.push(samples);
    }
}

/// The numbers of a sample, a column each.
fn numbers(sample: &Sample, previous_ns: u64) -> [u64; COLUMNS] {
    let context = match sample.context {
        Context::Task => 0,
        Context::OtherTask => 1,
        Context::Hardirq => 2,
        Context::Softirq(vector) => 3 + position(Softirq::ALL, vector),
    };
    [
        sample.time_ns - previous_ns,
        u64::from(sample.node),
        position(&DIRECTIONS, sample.direction),
        context,
        u64::from(sample.cpu),
        u64::from(sample.thread),
        sample.weight,
    ]
}

fn position<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|of| *of == one).unwrap_or_default() as u64
}

/// The sample with these numbers.
fn sample(of: [u64; COLUMNS], previous_ns: u64) -> Option<Sample> {
    let [time, node, direction, context, cpu, thread, weight] = of;
    Some(Sample {
        time_ns: previous_ns
            .checked_add(time)
            .filter(|ns| *ns <= i64::MAX as u64)?,
        weight,
        node: node.try_into().ok()?,
        thread: thread.try_into().ok()?,
        cpu: cpu.try_into().ok()?,
        direction: *DIRECTIONS.get(usize::try_from(direction).ok()?)?,
        context: match context {
            0 => Context::Task,
            1 => Context::OtherTask,
            2 => Context::Hardirq,
            vector => {
                let vector = usize::try_from(vector - 3).ok()?;
                Context::Softirq(*Softirq::ALL.get(vector)?)
            }
        },
    })
}

/// Pack samples of a chunk.
fn pack(samples: &[Sample]) -> std::io::Result<Vec<u8>> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut previous_ns = samples.first().map_or(0, |first| first.time_ns);
    for sample in samples {
        for (column, number) in columns.iter_mut().zip(numbers(sample, previous_ns)) {
            put_number(column, number);
        }
        previous_ns = sample.time_ns;
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    for column in &columns {
        encoder.write_all(column)?;
    }
    encoder.finish()
}

/// The samples of a chunk: as many as it is said to have, and nothing else.
fn unpack(packed: &[u8], count: usize, begin_ns: u64) -> Option<Vec<Sample>> {
    let most = count * COLUMNS * NUMBER_BYTES;
    let mut bytes = Vec::new();
    let decoder = ZlibDecoder::new(packed);
    decoder.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
    let mut rest = bytes.as_slice();
    let mut columns: [Vec<u64>; COLUMNS] = Default::default();
    for column in &mut columns {
        column.reserve_exact(count);
        for _ in 0..count {
            column.push(number(&mut rest)?);
        }
    }
    if !rest.is_empty() {
        return None;
    }
    let mut previous_ns = begin_ns;
    (0..count)
        .map(|row| {
            let sample = sample(columns.each_ref().map(|column| column[row]), previous_ns)?;
            previous_ns = sample.time_ns;
            Some(sample)
        })
        .collect()
}

/// Append a number in LEB128.
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Take a number in LEB128.
pub(crate) fn number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has a single bit.
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every direction and context has a number of its own, and that numbers beyond
    /// what was written are refused.
    #[test]
    fn numbers_round_trip() {
        assert_eq!(DIRECTIONS.len(), Direction::ALL.len());
        let softirqs = Softirq::ALL.iter().map(|of| Context::Softirq(*of));
        let others = [Context::Task, Context::OtherTask, Context::Hardirq];
        for context in softirqs.chain(others) {
            for direction in Direction::ALL {
                let one = Sample {
                    time_ns: 7,
                    weight: u64::MAX,
                    node: 1 << 31,
                    thread: 300,
                    cpu: 0,
                    direction: *direction,
                    context,
                };
                let packed = pack(&[one]).unwrap();
                assert_eq!(unpack(&packed, 1, 7), Some(vec![one]));
                assert_eq!(unpack(&packed, 2, 7), None);
            }
        }
        for wrong in [[0, 0, 8, 0, 0, 0, 0], [0, 0, 0, 13, 0, 0, 0]] {
            assert_eq!(sample(wrong, 0), None);
        }
        assert_eq!(number(&mut &[0xff; 10][..]), None);
        assert_eq!(number(&mut &[0x80; 3][..]), None);
    }
}
