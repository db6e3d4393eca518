//! Times, stages and traces, written and read.

use netplumb_model::recording::{Attachment, Recording, Stage, Timed};
use netplumb_model::timing::{Buckets, Calibration, Step, Times};
use rusqlite::{Connection, Row, Transaction, params};

use crate::read::of;
use crate::row::{Wrong, count, each, finite, get, known, name, numbered, rows, word};

/// How much of each list is in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    timed: usize,
    stages: usize,
    attachments: usize,
    calibration: usize,
    steps: usize,
}

impl Written {
    /// All that the recording has.
    pub(crate) fn of(recording: &Recording) -> Written {
        Written {
            timed: recording.timed.len(),
            stages: recording.stages.len(),
            attachments: recording.attachments.len(),
            calibration: recording.calibration.len(),
            steps: recording.steps.len(),
        }
    }
}

/// Write what is new. What it refers to is there already.
pub(crate) fn add(
    to: &Transaction<'_>,
    recording: &Recording,
    before: Written,
) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT INTO timed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_bucket = to.prepare("INSERT INTO timed_bucket VALUES (?, ?, ?)")?;
    for (id, timed) in recording.timed.iter().enumerate().skip(before.timed) {
        put.execute(params![
            id,
            timed.block,
            timed.direction.as_str(),
            timed.context.to_string(),
            timed.node,
            timed.times.count as i64,
            timed.times.total_ns as i64,
            timed.times.min_ns as i64,
            timed.times.max_ns as i64,
            timed.corrected_ns,
            timed.uncertainty_ns
        ])?;
        for (bucket, n) in &timed.times.buckets {
            put_bucket.execute(params![id, bucket, *n as i64])?;
        }
    }
    let mut put = to.prepare("INSERT INTO stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_bucket = to.prepare("INSERT INTO stage_bucket VALUES (?, ?, ?)")?;
    for (id, stage) in recording.stages.iter().enumerate().skip(before.stages) {
        put.execute(params![
            id,
            stage.block,
            stage.direction.as_str(),
            stage.order,
            stage.name,
            stage.kind.as_str(),
            stage.times.count as i64,
            stage.passed_over as i64,
            stage.times.total_ns as i64,
            stage.times.min_ns as i64,
            stage.times.max_ns as i64
        ])?;
        for (bucket, n) in &stage.times.buckets {
            put_bucket.execute(params![id, bucket, *n as i64])?;
        }
    }
    let mut put = to.prepare("INSERT INTO attachment VALUES (?, ?, ?)")?;
    for one in recording.attachments.iter().skip(before.attachments) {
        put.execute(params![one.function, one.mechanism.as_str(), one.arguments])?;
    }
    let mut put = to.prepare("INSERT INTO calibration VALUES (?, ?, ?, ?, ?, ?)")?;
    for one in recording.calibration.iter().skip(before.calibration) {
        put.execute(params![
            one.cpu,
            one.mechanism.as_str(),
            one.arguments,
            one.bias_ns,
            one.pair_ns,
            one.uncertainty_ns
        ])?;
    }
    let mut put = to.prepare("INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
    for one in recording.steps.iter().skip(before.steps) {
        put.execute(params![
            one.packet,
            one.name,
            one.begin_ns as i64,
            one.duration_ns as i64,
            one.cpu,
            one.thread,
            one.command,
            one.context.to_string()
        ])?;
    }
    Ok(())
}

/// Read them all into a recording.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "block, direction, context, node, calls, total_ns, min_ns, max_ns, \
                   corrected_ns, uncertainty_ns";
    recording.timed = numbered(c, "timed", columns, |r| {
        Ok(Timed {
            block: get(r, 1)?,
            direction: word(r, 2)?,
            context: word(r, 3)?,
            node: get(r, 4)?,
            times: times(r, 5)?,
            corrected_ns: known(r, 9)?,
            uncertainty_ns: known(r, 10)?,
        })
    })?;
    let (columns, order) = ("timed, bucket, calls", "timed, bucket");
    each(c, "timed_bucket", columns, order, |_, r| {
        let timed = of(&mut recording.timed, get(r, 0)?, "a time")?;
        timed.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })?;
    let columns = "block, direction, place, name, packets, total_ns, min_ns, max_ns, kind, \
                   passed_over";
    recording.stages = numbered(c, "stage", columns, |r| {
        Ok(Stage {
            block: get(r, 1)?,
            direction: word(r, 2)?,
            order: get(r, 3)?,
            name: name(r, 4)?,
            times: times(r, 5)?,
            kind: word(r, 9)?,
            passed_over: count(r, 10)?,
        })
    })?;
    let (columns, order) = ("stage, bucket, packets", "stage, bucket");
    each(c, "stage_bucket", columns, order, |_, r| {
        let stage = of(&mut recording.stages, get(r, 0)?, "a stage")?;
        stage.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })?;
    let columns = "function, mechanism, arguments";
    recording.attachments = rows(c, "attachment", columns, "rowid", |r| {
        Ok(Attachment {
            function: get(r, 0)?,
            mechanism: word(r, 1)?,
            arguments: get(r, 2)?,
        })
    })?;
    let columns = "cpu, mechanism, arguments, bias_ns, pair_ns, uncertainty_ns";
    recording.calibration = rows(c, "calibration", columns, "rowid", |r| {
        Ok(Calibration {
            cpu: get(r, 0)?,
            mechanism: word(r, 1)?,
            arguments: get(r, 2)?,
            bias_ns: finite(r, 3)?,
            pair_ns: finite(r, 4)?,
            uncertainty_ns: finite(r, 5)?,
        })
    })?;
    let columns = "packet, name, begin_ns, duration_ns, cpu, thread, command, context";
    recording.steps = rows(c, "step", columns, "rowid", |r| {
        Ok(Step {
            packet: get(r, 0)?,
            name: name(r, 1)?,
            begin_ns: count(r, 2)?,
            duration_ns: count(r, 3)?,
            cpu: get(r, 4)?,
            thread: get(r, 5)?,
            command: name(r, 6)?,
            context: word(r, 7)?,
        })
    })?;
    Ok(())
}

/// Number, sum, shortest and longest, from four columns.
fn times(row: &Row<'_>, first: usize) -> Result<Times, Wrong> {
    Ok(Times {
        count: count(row, first)?,
        total_ns: count(row, first + 1)?,
        min_ns: count(row, first + 2)?,
        max_ns: count(row, first + 3)?,
        buckets: Buckets::new(),
    })
}
