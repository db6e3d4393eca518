//! Single traces: a row for each, and their steps packed in chunks, a few bytes for each.

use netplumb_model::recording::Recording;
use netplumb_model::trace::{Flags, Followed, MAX_STEPS, Step, Trace};
use rusqlite::{Connection, Transaction, params};

use crate::packed::{self, CHUNK};
use crate::row::{Wrong, count, each, get, name, numbered};
use crate::samples::{context, context_number};

/// Columns of a chunk: [`numbers`].
const COLUMNS: usize = 14;
/// What errors name them.
const STEPS: &str = "steps";
/// What a trace follows, as stored.
const PACKET: &str = "packet";
const CALL: &str = "call";

/// The number of elements of each list that are in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    traces: usize,
    texts: usize,
}

impl Written {
    /// The current lengths.
    pub(crate) fn from_recording(recording: &Recording) -> Written {
        Written { traces: recording.traces.len(), texts: recording.trace_texts.len() }
    }

    /// Delete all traces from the file, to be written again: blocks were merged.
    pub(crate) fn forget(&mut self, from: &Transaction<'_>) -> rusqlite::Result<()> {
        self.traces = 0;
        from.execute("DELETE FROM trace_step", [])?;
        from.execute("DELETE FROM trace", [])?;
        Ok(())
    }
}

/// Write what is new.
pub(crate) fn add(
    to: &Transaction<'_>,
    recording: &Recording,
    before: Written,
) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT INTO trace_text VALUES (?, ?)")?;
    let texts = recording.trace_texts.iter().enumerate();
    for (id, text) in texts.skip(before.texts) {
        put.execute(params![id, text])?;
    }
    let mut put = to.prepare("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?)")?;
    let new = recording.traces.iter().enumerate().skip(before.traces);
    for (id, trace) in new.clone() {
        put.execute(params![
            id,
            trace.block,
            trace.quantity,
            match trace.of {
                Followed::Packet => PACKET,
                Followed::Call => CALL,
            },
            trace.number,
            trace.steps.len()
        ])?;
    }
    let mut put = to.prepare("INSERT INTO trace_step VALUES (NULL, ?, ?)")?;
    let mut rows = new.flat_map(|(_, trace)| rows(&trace.steps));
    loop {
        let chunk: Vec<[u64; COLUMNS]> = rows.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            return Ok(());
        }
        put.execute(params![chunk.len(), packed::pack(chunk)?])?;
    }
}

/// Read all.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    recording.trace_texts = numbered(c, "trace_text", "text", |r| name(r, 1))?;
    let mut said = Vec::new();
    let columns = "block, quantity, follows, number, steps";
    recording.traces = numbered(c, "trace", columns, |r| {
        Ok(Trace {
            block: get(r, 1)?,
            quantity: get(r, 2)?,
            of: match name(r, 3)?.as_str() {
                PACKET => Followed::Packet,
                CALL => Followed::Call,
                other => {
                    let other = other.escape_debug();
                    return Err(Wrong::Found(format!("unknown kind of trace `{other}`")));
                }
            },
            number: count(r, 4)?,
            steps: Vec::new(),
        })
    })?;
    each(c, "trace", "steps", "id", |_, r| {
        said.push(count(r, 0)?);
        Ok(())
    })?;
    // The trace that is being read.
    let mut at = 0;
    let mut number = 0;
    each(c, "trace_step", "count, columns", "id", |_, r| {
        let rows: Vec<[u64; COLUMNS]> = packed::chunk(r, (0, 1), STEPS)?;
        number += rows.len();
        if number > MAX_STEPS {
            return Err(Wrong::Found(format!("more than {MAX_STEPS} {STEPS}")));
        }
        for row in rows {
            let is_full = |(trace, said): (&Trace, &u64)| trace.steps.len() as u64 >= *said;
            while (recording.traces.get(at).zip(said.get(at))).is_some_and(is_full) {
                at += 1;
            }
            let Some(trace) = recording.traces.get_mut(at) else {
                return Err(Wrong::Found(format!("more {STEPS} than traces have")));
            };
            let Some(step) = step(row, &trace.steps) else {
                return Err(Wrong::Found(format!("no {STEPS} in it")));
            };
            trace.steps.push(step);
        }
        Ok(())
    })?;
    let short =
        (recording.traces.iter().zip(&said)).position(|(t, said)| t.steps.len() as u64 != *said);
    match short {
        Some(row) => Err(Wrong::Found(format!(
            "table trace, row {row}: {} {STEPS}, expected {}",
            recording.traces[row].steps.len(),
            said[row]
        ))),
        None => Ok(()),
    }
}

/// The steps of a trace, as rows.
fn rows(steps: &[Step]) -> impl Iterator<Item = [u64; COLUMNS]> {
    let mut previous = 0;
    (0_u64..).zip(steps).map(move |(at, step)| {
        let numbers = numbers(step, at, previous);
        previous = step.begin;
        numbers
    })
}

/// The numbers of a step, a column each; `at` is its own.
fn numbers(step: &Step, at: u64, previous: u64) -> [u64; COLUMNS] {
    [
        step.parent.map_or(0, |parent| at - u64::from(parent)),
        u64::from(step.name),
        step.begin.wrapping_sub(previous),
        step.elapsed.wrapping_sub(step.total),
        step.total.wrapping_sub(step.own),
        step.own,
        u64::from(step.switches),
        context_number(step.context),
        u64::from(step.cpu),
        u64::from(step.thread),
        u64::from(step.command),
        u64::from(step.flags.0),
        step.arguments.map_or(0, |text| u64::from(text) + 1),
        step.returned.map_or(0, |text| u64::from(text) + 1),
    ]
}

/// The step with these numbers, after others of its trace.
fn step(row: [u64; COLUMNS], before: &[Step]) -> Option<Step> {
    let [
        up,
        name,
        gap,
        more,
        called,
        own,
        switches,
        of,
        cpu,
        thread,
        command,
        flags,
        arguments,
        returned,
    ] = row;
    let number = |n: u64| u32::try_from(n).ok();
    let text = |n: u64| match n {
        0 => Some(None),
        n => Some(Some(number(n - 1)?)),
    };
    let previous = before.last().map_or(0, |last| last.begin);
    let fits = |n: u64| (n <= i64::MAX as u64).then_some(n);
    let total = fits(own.wrapping_add(called))?;
    Some(Step {
        parent: match up {
            0 => None,
            up => Some(number((before.len() as u64).checked_sub(up)?)?),
        },
        name: number(name)?,
        begin: fits(previous.wrapping_add(gap))?,
        elapsed: fits(total.wrapping_add(more))?,
        total,
        own: fits(own)?,
        switches: number(switches)?,
        context: context(of)?,
        cpu: number(cpu)?,
        thread: number(thread)?,
        command: number(command)?,
        flags: Flags(u8::try_from(flags).ok().filter(|f| f & !Flags::ALL.0 == 0)?),
        arguments: text(arguments)?,
        returned: text(returned)?,
    })
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::Context;

    use super::*;

    fn one(parent: Option<u32>, begin: u64) -> Step {
        Step {
            parent,
            name: 7,
            begin,
            elapsed: 900,
            total: 500,
            own: 20,
            switches: 1,
            context: Context::Hardirq,
            cpu: 3,
            thread: 77,
            command: 1 << 31,
            flags: Flags::TAIL.with(Flags::CUT),
            arguments: Some(0),
            returned: None,
        }
    }

    /// Check that steps round-trip, also those whose begins don't ascend and whose own time is more
    /// than their total.
    #[test]
    fn steps_round_trip() {
        let odd = Step { own: 600, elapsed: 0, ..one(Some(1), 5) };
        let all = [one(None, i64::MAX as u64), one(Some(0), 3), odd];
        let packed = packed::pack(rows(&all)).unwrap();
        let rows: Vec<[u64; COLUMNS]> = packed::unpack(&packed, 3).unwrap();
        let mut read = Vec::new();
        for row in rows {
            let next = step(row, &read).unwrap();
            read.push(next);
        }
        assert_eq!(read, all);
    }

    /// Check that a parent that does not come before, an unknown context and unknown flags are
    /// refused.
    #[test]
    fn made_up() {
        let good = numbers(&one(None, 1), 0, 0);
        assert!(step(good, &[]).is_some());
        for (column, value) in
            [(0, 1), (1, 1 << 32), (7, 99), (11, 16), (12, 1 << 33), (5, u64::MAX)]
        {
            let mut wrong = good;
            wrong[column] = value;
            assert_eq!(step(wrong, &[]), None, "column {column}");
        }
    }
}
