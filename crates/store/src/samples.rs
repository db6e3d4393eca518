//! Samples with their times, packed in chunks: a few bytes for each.
//!
//! Costs of a block and quantity that has samples are their sums, and are not stored: there may be as
//! many as samples.

use std::collections::BTreeSet;

use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::quantity::QuantityId;
use netplumb_model::recording::Recording;
use netplumb_model::samples::{MAX_SAMPLES, Sample, Samples, Thread};
use rusqlite::{Connection, Transaction, params};

use crate::packed::{self, CHUNK};
use crate::row::{Wrong, count, each, get, name, numbered};

/// Directions by their numbers in files: new ones are added at the end.
const DIRECTIONS: [Direction; 12] = [
    Direction::Tx,
    Direction::Rx,
    Direction::Forward,
    Direction::Echo,
    Direction::Ack,
    Direction::Run,
    Direction::Other,
    Direction::Drop,
    Direction::Connect,
    Direction::Accept,
    Direction::Close,
    Direction::Reply,
];
/// Columns of a chunk: [`numbers`].
const COLUMNS: usize = 7;
/// What errors name them.
const SAMPLES: &str = "samples";

/// The number of elements of each list that are in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    samples: usize,
    threads: usize,
}

impl Written {
    /// The current lengths.
    pub(crate) fn from_recording(recording: &Recording) -> Written {
        Written { samples: recording.samples.len(), threads: recording.threads.len() }
    }
}

impl Written {
    /// Samples after the first `samples` are no longer in the file.
    pub(crate) fn forget(&mut self, samples: usize) {
        self.samples = self.samples.min(samples);
    }
}

/// The blocks and quantities whose costs are sums of samples.
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
            put.execute(params![
                samples.block,
                samples.quantity,
                chunk,
                of.len(),
                begin_ns,
                pack(of)?
            ])?;
        }
    }
    Ok(())
}

/// Read samples, and add the costs that they add up to.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    recording.threads = numbered(c, "thread", "pid, tid, name", |r| {
        Ok(Thread { pid: get(r, 1)?, tid: get(r, 2)?, name: name(r, 3)? })
    })?;
    let (columns, order) =
        ("block, quantity, chunk, count, begin_ns, columns", "block, quantity, chunk");
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
        let (chunk, begin_ns) = (count(r, 2)?, count(r, 4)?);
        if chunk != (all.len() / CHUNK) as u64 || !all.len().is_multiple_of(CHUNK) {
            return wrong(format!("chunk {chunk} does not follow a complete one"));
        }
        let rows = packed::chunk(r, (3, 5), SAMPLES)?;
        number += rows.len();
        if number > MAX_SAMPLES {
            return wrong(format!("more than {MAX_SAMPLES} samples"));
        }
        let before = all.last().map_or(0, |last: &Sample| last.time_ns);
        let Some(chunk) = unpack(&rows, begin_ns) else {
            return wrong(format!("no {} {SAMPLES} in it", rows.len()));
        };
        if begin_ns < before {
            return wrong(format!("begins at {begin_ns} ns, before the last chunk ended"));
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
    if let Some(cost) = costs.clone().find(|c| summed.contains(&(c.block, c.quantity))) {
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

/// Keep a block and quantity's samples, once all are read.
fn keep(recording: &mut Recording, (block, quantity): (u32, QuantityId), all: &mut Vec<Sample>) {
    if !all.is_empty() {
        let samples = Samples::new(block, quantity, all.drain(..));
        recording.samples.push(samples);
    }
}

/// The numbers of a sample, a column each.
fn numbers(sample: &Sample, previous_ns: u64) -> [u64; COLUMNS] {
    [
        sample.time_ns - previous_ns,
        u64::from(sample.node),
        position(&DIRECTIONS, sample.direction),
        context_number(sample.context),
        u64::from(sample.cpu),
        u64::from(sample.thread),
        sample.weight,
    ]
}

/// The number of a context.
pub(crate) fn context_number(of: Context) -> u64 {
    match of {
        Context::Task => 0,
        Context::OtherTask => 1,
        Context::Hardirq => 2,
        Context::Softirq(vector) => 3 + position(Softirq::ALL, vector),
    }
}

/// The context of a number.
pub(crate) fn context(number: u64) -> Option<Context> {
    Some(match number {
        0 => Context::Task,
        1 => Context::OtherTask,
        2 => Context::Hardirq,
        vector => {
            let vector = usize::try_from(vector - 3).ok()?;
            Context::Softirq(*Softirq::ALL.get(vector)?)
        }
    })
}

fn position<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|of| *of == one).unwrap_or_default() as u64
}

/// The sample with these numbers.
fn sample(of: [u64; COLUMNS], previous_ns: u64) -> Option<Sample> {
    let [time, node, direction, of, cpu, thread, weight] = of;
    Some(Sample {
        time_ns: previous_ns.checked_add(time).filter(|ns| *ns <= i64::MAX as u64)?,
        weight,
        node: node.try_into().ok()?,
        thread: thread.try_into().ok()?,
        cpu: cpu.try_into().ok()?,
        direction: *DIRECTIONS.get(usize::try_from(direction).ok()?)?,
        context: context(of)?,
    })
}

/// Pack samples of a chunk.
fn pack(samples: &[Sample]) -> rusqlite::Result<Vec<u8>> {
    let mut previous_ns = samples.first().map_or(0, |first| first.time_ns);
    packed::pack(samples.iter().map(|sample| {
        let numbers = numbers(sample, previous_ns);
        previous_ns = sample.time_ns;
        numbers
    }))
}

/// The samples of a chunk.
fn unpack(rows: &[[u64; COLUMNS]], begin_ns: u64) -> Option<Vec<Sample>> {
    let mut previous_ns = begin_ns;
    let each = rows.iter().map(|row| {
        let sample = sample(*row, previous_ns)?;
        previous_ns = sample.time_ns;
        Some(sample)
    });
    each.collect()
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
                let rows = packed::unpack(&pack(&[one]).unwrap(), 1).unwrap();
                assert_eq!(unpack(&rows, 7), Some(vec![one]));
            }
        }
        for wrong in [[0, 0, 12, 0, 0, 0, 0], [0, 0, 0, 13, 0, 0, 0]] {
            assert_eq!(sample(wrong, 0), None);
        }
    }
}
