//! Writes and reads spans, and the cost of probes.

use netplumb_model::recording::{Attachment, Recording};
use netplumb_model::span::{Buckets, Call, Span, SpanOf, Stage, Times};
use netplumb_model::spans::{Group, Slice};
use netplumb_model::timing::Calibration;
use netplumb_model::tree::NodeId;
use rusqlite::{Connection, Row, Transaction, params};

use crate::row::{Wrong, count, each, element, finite, get, known, name, numbered, rows, word};

/// The number of elements of each list that are in the file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    spans: usize,
    groups: usize,
    slices: usize,
    attachments: usize,
    calibration: usize,
}

impl Written {
    /// All that the recording has.
    pub(crate) fn from_recording(recording: &Recording) -> Written {
        Written {
            spans: recording.spans.len(),
            groups: recording.groups.len(),
            slices: recording.slices.len(),
            attachments: recording.attachments.len(),
            calibration: recording.calibration.len(),
        }
    }
}

impl Written {
    /// Delete from the file what belongs to a block or a later one.
    pub(crate) fn forget(
        &mut self,
        from: &Transaction<'_>,
        recording: &Recording,
        block: u32,
    ) -> rusqlite::Result<()> {
        let kept = |of: &mut dyn Iterator<Item = u32>| of.take_while(|b| *b < block).count();
        for (table, buckets, written, kept) in [
            (
                "span",
                "span_bucket",
                &mut self.spans,
                kept(&mut recording.spans.iter().map(|span| span.block)),
            ),
            (
                "span_group",
                "span_group_bucket",
                &mut self.groups,
                kept(&mut recording.groups.iter().map(|group| group.block)),
            ),
            (
                "span_slice",
                "span_slice_bucket",
                &mut self.slices,
                kept(&mut recording.slices.iter().map(|slice| slice.block)),
            ),
        ] {
            *written = (*written).min(kept);
            let first = [*written];
            from.execute(&format!("DELETE FROM {buckets} WHERE {table} >= ?"), first)?;
            from.execute(&format!("DELETE FROM {table} WHERE id >= ?"), first)?;
        }
        Ok(())
    }
}

/// The nodes that new spans refer to.
pub(crate) fn nodes(recording: &Recording, before: Written) -> impl Iterator<Item = NodeId> + '_ {
    let new = recording.spans.iter().skip(before.spans);
    new.filter_map(|span| span.call().map(|call| call.node))
}

/// Write what is new. Everything that it refers to was written before.
pub(crate) fn add(
    to: &Transaction<'_>,
    recording: &Recording,
    before: Written,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let mut put = to.prepare(sql)?;
    let mut put_bucket = to.prepare("INSERT INTO span_bucket VALUES (?, ?, ?)")?;
    for (id, span) in recording.spans.iter().enumerate().skip(before.spans) {
        let (call, stage) = (span.call(), span.stage());
        put.execute(params![
            id,
            span.block,
            span.direction.as_str(),
            call.map(|c| c.context.to_string()),
            call.map(|c| c.node),
            call.map(|c| c.corrected_ns),
            call.map(|c| c.uncertainty_ns),
            stage.map(|s| s.order),
            stage.map(|s| &s.name),
            stage.map(|s| s.kind.as_str()),
            stage.map(|s| s.passed_over),
            span.times.count,
            span.times.total_ns,
            span.times.min_ns,
            span.times.max_ns
        ])?;
        for (bucket, n) in &span.times.buckets {
            put_bucket.execute(params![id, bucket, *n])?;
        }
    }
    let mut put = to.prepare("INSERT INTO span_group VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_bucket = to.prepare("INSERT INTO span_group_bucket VALUES (?, ?, ?)")?;
    for (id, group) in recording.groups.iter().enumerate().skip(before.groups) {
        put.execute(params![
            id,
            group.block,
            group.by.as_str(),
            group.name,
            group.times.count,
            group.times.total_ns,
            group.times.min_ns,
            group.times.max_ns
        ])?;
        for (bucket, n) in &group.times.buckets {
            put_bucket.execute(params![id, bucket, *n])?;
        }
    }
    let mut put = to.prepare("INSERT INTO span_slice VALUES (?, ?, ?, ?)")?;
    let mut put_bucket = to.prepare("INSERT INTO span_slice_bucket VALUES (?, ?, ?)")?;
    for (id, slice) in recording.slices.iter().enumerate().skip(before.slices) {
        put.execute(params![id, slice.block, slice.begin_ns, slice.duration_ns])?;
        for (bucket, n) in &slice.buckets {
            put_bucket.execute(params![id, bucket, *n])?;
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
    Ok(())
}

/// Read the cost of probes.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "function, mechanism, arguments";
    recording.attachments = rows(c, "attachment", columns, "rowid", |r| {
        Ok(Attachment { function: get(r, 0)?, mechanism: word(r, 1)?, arguments: get(r, 2)? })
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
    Ok(())
}

/// Read the spans.
pub(crate) fn spans(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "block, direction, context, node, corrected_ns, uncertainty_ns, place, name, \
                   kind, passed_over, count, total_ns, min_ns, max_ns";
    recording.spans = numbered(c, "span", columns, |r| {
        Ok(Span {
            block: get(r, 1)?,
            direction: word(r, 2)?,
            of: match get::<Option<u32>>(r, 4)? {
                Some(node) => SpanOf::Call(Call {
                    context: word(r, 3)?,
                    node,
                    corrected_ns: known(r, 5)?,
                    uncertainty_ns: known(r, 6)?,
                }),
                None => SpanOf::Stage(Stage {
                    order: get(r, 7)?,
                    name: name(r, 8)?,
                    kind: word(r, 9)?,
                    passed_over: count(r, 10)?,
                }),
            },
            times: times(r, 11)?,
        })
    })?;
    let (columns, order) = ("span, bucket, count", "span, bucket");
    each(c, "span_bucket", columns, order, |_, r| {
        let span = element(&mut recording.spans, get(r, 0)?, "a span")?;
        span.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })
}

/// Read times by what they are broken down by, and over time.
pub(crate) fn between(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "block, by, name, count, total_ns, min_ns, max_ns";
    recording.groups = numbered(c, "span_group", columns, |r| {
        Ok(Group { block: get(r, 1)?, by: word(r, 2)?, name: name(r, 3)?, times: times(r, 4)? })
    })?;
    let (columns, order) = ("span_group, bucket, count", "span_group, bucket");
    each(c, "span_group_bucket", columns, order, |_, r| {
        let group = element(&mut recording.groups, get(r, 0)?, "a group")?;
        group.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })?;
    let columns = "block, begin_ns, duration_ns";
    recording.slices = numbered(c, "span_slice", columns, |r| {
        Ok(Slice {
            block: get(r, 1)?,
            begin_ns: count(r, 2)?,
            duration_ns: count(r, 3)?,
            buckets: Buckets::new(),
        })
    })?;
    let (columns, order) = ("span_slice, bucket, count", "span_slice, bucket");
    each(c, "span_slice_bucket", columns, order, |_, r| {
        let slice = element(&mut recording.slices, get(r, 0)?, "a slice")?;
        slice.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })
}

/// Count, sum, minimum and maximum, from four columns.
pub(crate) fn times(row: &Row<'_>, first: usize) -> Result<Times, Wrong> {
    Ok(Times {
        count: count(row, first)?,
        total_ns: count(row, first + 1)?,
        min_ns: count(row, first + 2)?,
        max_ns: count(row, first + 3)?,
        buckets: Buckets::new(),
    })
}
