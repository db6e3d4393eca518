//! The tables of `timed.sql`, written and read.

use netplumb_model::recording::{Attachment, Counter, Recording, Stage, Timed};
use netplumb_model::timing::{Buckets, Calibration, Step, Times};
use rusqlite::{Connection, Row, Transaction, params};

use crate::read::{count, rows, word};

/// How much of each list is in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    timed: usize,
    stages: usize,
    attachments: usize,
    calibration: usize,
    counters: usize,
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
            counters: recording.counters.len(),
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
    let mut put = to.prepare("INSERT INTO counter VALUES (?, ?, ?, ?)")?;
    for one in recording.counters.iter().skip(before.counters) {
        put.execute(params![one.block, one.name, one.value, one.unit])?;
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
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> rusqlite::Result<()> {
    recording.timed = rows(
        c,
        "SELECT block, direction, context, node, calls, total_ns, min_ns, max_ns, \
                corrected_ns, uncertainty_ns FROM timed ORDER BY id",
        |r| {
            Ok(Timed {
                block: r.get(0)?,
                direction: word(r, 1)?,
                context: word(r, 2)?,
                node: r.get(3)?,
                times: times(r, 4)?,
                corrected_ns: r.get::<_, Option<f64>>(8)?.unwrap_or(f64::NAN),
                uncertainty_ns: r.get::<_, Option<f64>>(9)?.unwrap_or(f64::NAN),
            })
        },
    )?;
    each_bucket(c, "timed", "calls", |id, bucket| {
        if let Some(timed) = recording.timed.get_mut(id) {
            timed.times.buckets.push(bucket);
        }
    })?;
    recording.stages = rows(
        c,
        "SELECT block, direction, place, name, packets, total_ns, min_ns, max_ns, kind, \
                passed_over FROM stage ORDER BY id",
        |r| {
            Ok(Stage {
                block: r.get(0)?,
                direction: word(r, 1)?,
                order: r.get(2)?,
                name: r.get(3)?,
                times: times(r, 4)?,
                kind: word(r, 8)?,
                passed_over: count(r, 9)?,
            })
        },
    )?;
    each_bucket(c, "stage", "packets", |id, bucket| {
        if let Some(stage) = recording.stages.get_mut(id) {
            stage.times.buckets.push(bucket);
        }
    })?;
    recording.attachments = rows(
        c,
        "SELECT function, mechanism, arguments FROM attachment ORDER BY rowid",
        |r| {
            Ok(Attachment {
                function: r.get(0)?,
                mechanism: word(r, 1)?,
                arguments: r.get(2)?,
            })
        },
    )?;
    recording.calibration = rows(
        c,
        "SELECT cpu, mechanism, arguments, bias_ns, pair_ns, uncertainty_ns \
         FROM calibration ORDER BY rowid",
        |r| {
            Ok(Calibration {
                cpu: r.get(0)?,
                mechanism: word(r, 1)?,
                arguments: r.get(2)?,
                bias_ns: r.get(3)?,
                pair_ns: r.get(4)?,
                uncertainty_ns: r.get(5)?,
            })
        },
    )?;
    recording.counters = rows(
        c,
        "SELECT block, name, value, unit FROM counter ORDER BY rowid",
        |r| {
            Ok(Counter {
                block: r.get(0)?,
                name: r.get(1)?,
                value: r.get(2)?,
                unit: r.get(3)?,
            })
        },
    )?;
    recording.steps = rows(
        c,
        "SELECT packet, name, begin_ns, duration_ns, cpu, thread, command, context \
         FROM step ORDER BY rowid",
        |r| {
            Ok(Step {
                packet: r.get(0)?,
                name: r.get(1)?,
                begin_ns: count(r, 2)?,
                duration_ns: count(r, 3)?,
                cpu: r.get(4)?,
                thread: r.get(5)?,
                command: r.get(6)?,
                context: word(r, 7)?,
            })
        },
    )?;
    Ok(())
}

/// Number, sum, shortest and longest, from four columns.
fn times(row: &Row<'_>, first: usize) -> rusqlite::Result<Times> {
    Ok(Times {
        count: count(row, first)?,
        total_ns: count(row, first + 1)?,
        min_ns: count(row, first + 2)?,
        max_ns: count(row, first + 3)?,
        buckets: Buckets::new(),
    })
}

/// The buckets of the rows of a table, ascending.
fn each_bucket(
    c: &Connection,
    table: &str,
    what: &str,
    mut take: impl FnMut(usize, (u16, u64)),
) -> rusqlite::Result<()> {
    let sql = format!("SELECT {table}, bucket, {what} FROM {table}_bucket ORDER BY 1, 2");
    let mut statement = c.prepare(&sql)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        take(row.get(0)?, (row.get(1)?, count(row, 2)?));
    }
    Ok(())
}

/// Ids are dense, and a report indexes by them without looking.
pub(crate) fn check_ids(recording: &Recording) -> Result<(), String> {
    let block = |id: u32| (id as usize) < recording.blocks.len();
    for timed in &recording.timed {
        if !block(timed.block) || timed.node as usize >= recording.nodes.len() {
            return Err("a time names what is not there".into());
        }
    }
    if !recording.stages.iter().all(|s| block(s.block)) {
        return Err("a stage names a block that is not there".into());
    }
    if !recording.counters.iter().all(|c| block(c.block)) {
        return Err("a counter names a block that is not there".into());
    }
    let functions = recording.functions.len();
    if !recording
        .attachments
        .iter()
        .all(|a| (a.function as usize) < functions)
    {
        return Err("an attachment names a function that is not there".into());
    }
    Ok(())
}
