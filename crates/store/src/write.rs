//! Writes a recording as it grows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use netplumb_model::quantity::Subject;
use netplumb_model::recording::{Block, Function, Recording, SourceLine};
use rusqlite::{Connection, OpenFlags, Transaction, params};

use crate::error::writing;
use crate::read::{DIAGNOSIS, FACT, FAILED, INERT, IRREGULAR};
use crate::{
    APPLICATION_ID, Output, SCHEMA, StoreError, VERSION, code, nodes, samples, span, trace,
};

/// Writes what is new in a recording.
#[derive(Debug)]
pub struct Writer {
    output: Output,
    kept: Option<PathBuf>,
    connection: Connection,
    written: Written,
}

/// The number of elements of each list that are in the file.
#[derive(Debug, Default, Clone)]
struct Written {
    quantities: usize,
    arms: usize,
    /// Blocks themselves, since a long run's are merged: then they are written again, from the first
    /// that differs.
    blocks: Vec<Block>,
    source_files: usize,
    source_texts: usize,
    /// Hashes of the names of functions, and where these are defined: both may be found out later.
    functions: Vec<(u64, Option<SourceLine>)>,
    nodes: usize,
    costs: usize,
    line_costs: usize,
    code: usize,
    hops: usize,
    spans: span::Written,
    samples: samples::Written,
    traces: trace::Written,
}

impl Writer {
    /// Create an empty recording. An existing one is renamed.
    ///
    /// # Errors
    /// As [`Output::claim`] and [`Writer::begin`].
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let output = Output::claim(path)?;
        Writer::begin(output, &Recording::default()).map_err(|(error, _)| error)
    }

    /// Create a recording with existing contents: the file appears when it has all of them. An
    /// existing one is renamed, see [`Writer::kept`].
    ///
    /// # Errors
    /// The disk is full, or the file can't be written; nothing is changed then, and it may be tried again
    /// with the same output.
    pub fn begin(
        output: Output,
        recording: &Recording,
    ) -> Result<Writer, (StoreError, Box<Output>)> {
        match begun(&output, recording) {
            Ok((kept, connection)) => {
                Ok(Writer { output, kept, connection, written: Written::from_recording(recording) })
            }
            Err(error) => Err((error, Box::new(output))),
        }
    }

    /// Its path, with links resolved.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// The new name of a recording that existed before.
    pub fn kept(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Write what is new since the last time, in one transaction.
    ///
    /// # Errors
    /// The disk is full, or the file can't be written; earlier contents are kept.
    pub fn save(&mut self, recording: &Recording) -> Result<(), StoreError> {
        let path = self.path().to_path_buf();
        let before = self.written.clone();
        let write = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            let before = before.forget_changed(&transaction, recording)?;
            add(&transaction, recording, &before)?;
            transaction.commit()
        };
        write(&mut self.connection).map_err(writing(&path, true))?;
        self.written = Written::from_recording(recording);
        Ok(())
    }
}

/// Write the contents of a new file, and open it; also returns the new name of an existing one.
fn begun(
    output: &Output,
    recording: &Recording,
) -> Result<(Option<PathBuf>, Connection), StoreError> {
    let path = output.path();
    let wrong = writing(path, false);
    let mut image = image(recording).map_err(&wrong)?;
    let bytes = image.serialize(rusqlite::MAIN_DB).map_err(&wrong)?;
    let kept = output.put(&bytes)?;
    drop(bytes);
    drop(image);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&wrong)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(&wrong)?;
    Ok((kept, connection))
}

impl Written {
    /// The current lengths.
    fn from_recording(recording: &Recording) -> Written {
        Written {
            quantities: recording.quantities.len(),
            arms: recording.arms.len(),
            blocks: recording.blocks.clone(),
            source_files: recording.source_files.len(),
            source_texts: recording.source_texts.len(),
            functions: (recording.functions.iter()).map(|f| (hash_of_name(f), f.source)).collect(),
            nodes: recording.nodes.len(),
            costs: recording.costs.len(),
            line_costs: recording.line_costs.len(),
            code: recording.code.len(),
            hops: recording.hops.len(),
            spans: span::Written::from_recording(recording),
            samples: samples::Written::from_recording(recording),
            traces: trace::Written::from_recording(recording),
        }
    }

    /// Delete from the file what blocks that differ now have, and all after them, or everything where
    /// functions have other names; returns what remains.
    fn forget_changed(
        mut self,
        from: &Transaction<'_>,
        recording: &Recording,
    ) -> rusqlite::Result<Written> {
        let names = recording.functions.iter().map(hash_of_name);
        let same = names.zip(&self.functions).take_while(|(is, (was, _))| is == was);
        if same.count() < self.functions.len() {
            // Functions that have become one: what refers to them is everywhere.
            from.pragma_update(None, "defer_foreign_keys", true)?;
            let mut tables = from.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
            for table in tables.query_map([], |row| row.get::<_, String>(0))? {
                from.execute(&format!("DELETE FROM \"{}\"", table?), [])?;
            }
            return Ok(Written::default());
        }
        let same = (self.blocks.iter().zip(&recording.blocks)).take_while(|(was, is)| was == is);
        let first = same.count();
        if first == self.blocks.len() {
            return Ok(self);
        }
        self.blocks.truncate(first);
        let first = first as u32;
        let kept = |list: &mut dyn Iterator<Item = u32>| list.take_while(|b| *b < first).count();
        self.costs = kept(&mut recording.costs.iter().map(|cost| cost.block));
        self.line_costs = kept(&mut recording.line_costs.iter().map(|cost| cost.block));
        self.hops = kept(&mut recording.hops.iter().map(|hop| hop.block));
        self.samples.forget(kept(&mut recording.samples.iter().map(|s| s.block)));
        self.spans.forget(from, recording, first)?;
        self.traces.forget(from)?;
        // What refers to others comes first.
        for table in
            ["sample", "line_cost", "cost", "hop_dropped", "hop", "scalar", "total", "dropped"]
        {
            from.execute(&format!("DELETE FROM {table} WHERE block >= ?"), [first])?;
        }
        from.execute("DELETE FROM block WHERE id >= ?", [first])?;
        Ok(self)
    }
}

fn hash_of_name(function: &Function) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&function.name, &function.module).hash(&mut hasher);
    hasher.finish()
}

/// The contents of a recording file: made in memory, so that no incomplete file is ever on disk.
fn image(recording: &Recording) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    add(&transaction, recording, &Written::default())?;
    transaction.commit()?;
    Ok(connection)
}

fn add(to: &Transaction<'_>, recording: &Recording, before: &Written) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT OR REPLACE INTO recording VALUES (?, ?)")?;
    put.execute(["complete", if recording.complete { "yes" } else { "no" }])?;
    put.execute(["experiment", &recording.experiment_toml])?;
    let mut put = to.prepare("INSERT OR REPLACE INTO environment VALUES (?, ?)")?;
    for (key, value) in &recording.environment {
        put.execute([key, value])?;
    }
    let mut put = to.prepare("INSERT INTO quantity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let quantities = recording.quantities.iter().enumerate();
    for (id, quantity) in quantities.skip(before.quantities) {
        put.execute(params![
            id,
            quantity.instrument,
            quantity.name,
            quantity.unit,
            quantity.kind.as_str(),
            quantity.repeats.as_str(),
            quantity.calls.as_str(),
            quantity.number,
            quantity.label
        ])?;
    }
    let mut put = to.prepare("INSERT INTO arm VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_knob = to.prepare("INSERT INTO knob VALUES (?, ?, ?)")?;
    for (id, arm) in recording.arms.iter().enumerate().skip(before.arms) {
        put.execute(params![
            id,
            arm.name,
            arm.proto.as_str(),
            arm.family.as_str(),
            arm.link.as_str(),
            arm.forward,
            arm.size_bytes,
            arm.made.as_ref().map(|made| &made.from),
            arm.scanned().map(|(_, setting, _)| setting),
            arm.scanned().map(|(_, _, control)| control)
        ])?;
        for (name, value) in &arm.knobs {
            put_knob.execute(params![id, name, value])?;
        }
    }
    // Notes may change and be removed: they are few.
    to.execute("DELETE FROM arm_note", [])?;
    let mut put = to.prepare("INSERT INTO arm_note VALUES (?, ?, ?, ?)")?;
    for (arm, notes) in &recording.notes {
        let failed = notes.failed.iter().map(|(by, why)| (FAILED, by.clone(), why));
        let diagnosis = notes.diagnosis.iter();
        let diagnosis = diagnosis.map(|what| (DIAGNOSIS, String::new(), what));
        let irregular = notes.irregular.iter();
        let irregular = irregular.map(|(goal, why)| (IRREGULAR, goal.to_string(), why));
        let facts = notes.facts.iter().map(|(k, v)| (FACT, k.clone(), v));
        let inert = notes.inert.iter().map(|(k, v)| (INERT, k.clone(), v));
        let all = failed.chain(diagnosis).chain(irregular);
        for (kind, key, text) in all.chain(facts).chain(inert) {
            put.execute(params![arm, kind, key, text])?;
        }
    }
    let mut put = to.prepare("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_total = to.prepare("INSERT INTO total VALUES (?, ?, ?, ?)")?;
    let mut put_drop = to.prepare("INSERT INTO dropped VALUES (?, ?, ?)")?;
    for (id, block) in recording.blocks.iter().enumerate().skip(before.blocks.len()) {
        put.execute(params![
            id,
            block.arm,
            block.instrument,
            block.index,
            block.ledger.offered,
            block.ledger.delivered,
            block.entered,
            block.returned,
            block.duration_ns
        ])?;
        for (cause, packets) in &block.ledger.dropped {
            put_drop.execute(params![id, cause, *packets])?;
        }
        for total in &block.totals {
            put_total.execute(params![id, total.quantity, total.kernel, total.user])?;
        }
    }
    let mut put = to.prepare("INSERT INTO source_file VALUES (?, ?)")?;
    let files = recording.source_files.iter().enumerate();
    for (id, path) in files.skip(before.source_files) {
        put.execute(params![id, path])?;
    }
    if recording.source_texts.len() > before.source_texts {
        let mut put = to.prepare("INSERT OR IGNORE INTO source_text VALUES (?, ?)")?;
        for (file, text) in &recording.source_texts {
            put.execute(params![file, text])?;
        }
    }
    let mut put = to.prepare("INSERT INTO function VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (id, function) in recording.functions.iter().enumerate().skip(before.functions.len()) {
        put.execute(params![
            id,
            function.name,
            function.module,
            function.layer,
            function.address as i64,
            function.size_bytes,
            function.source.map(|s| s.file),
            function.source.map(|s| s.line)
        ])?;
    }
    let mut put = to.prepare("UPDATE function SET file = ?, line = ? WHERE id = ?")?;
    for (id, ((_, was), is)) in before.functions.iter().zip(&recording.functions).enumerate() {
        if *was != is.source {
            put.execute(params![is.source.map(|s| s.file), is.source.map(|s| s.line), id])?;
        }
    }
    let summed = samples::summed(recording);
    let costs = recording.costs.iter().skip(before.costs);
    let costs = costs.filter(|cost| !summed.contains(&(cost.block, cost.quantity)));
    let referred = costs.clone().map(|cost| cost.node);
    let referred = referred.chain(span::nodes(recording, before.spans));
    nodes::add(to, &recording.nodes, before.nodes, referred)?;
    let mut put = to.prepare("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    for cost in costs {
        put.execute(params![
            cost.block,
            cost.quantity,
            cost.direction.as_str(),
            cost.context.to_string(),
            cost.node,
            cost.calls,
            cost.own
        ])?;
    }
    let mut put = to.prepare("INSERT INTO line_cost VALUES (?, ?, ?, ?, ?)")?;
    for cost in recording.line_costs.iter().skip(before.line_costs) {
        put.execute(params![
            cost.block,
            cost.function,
            cost.source.file,
            cost.source.line,
            cost.own
        ])?;
    }
    code::add(to, recording, before.code)?;
    scalars(to, recording)?;
    hops(to, recording, before.hops)?;
    span::add(to, recording, before.spans)?;
    samples::add(to, recording, before.samples)?;
    trace::add(to, recording, before.traces)?;
    let mut put = to.prepare("INSERT OR REPLACE INTO not_measured VALUES (?, ?, ?)")?;
    for (instrument, all) in &recording.not_measured {
        for (name, reason) in all {
            put.execute([instrument, name, reason])?;
        }
    }
    // Attached anew, an instrument may leave out fewer.
    to.execute("DELETE FROM over_budget", [])?;
    let mut put = to.prepare("INSERT INTO over_budget VALUES (?, ?, ?)")?;
    for (instrument, names) in &recording.over_budget {
        for (place, name) in names.iter().enumerate() {
            put.execute(params![instrument, place, name])?;
        }
    }
    let mut put = to.prepare("INSERT OR REPLACE INTO not_tried VALUES (?, ?)")?;
    for (setting, reason) in &recording.not_tried {
        put.execute([setting, reason])?;
    }
    let mut put = to.prepare("INSERT OR REPLACE INTO loss VALUES (?, ?, ?, ?)")?;
    for (instrument, losses) in &recording.losses {
        for loss in losses {
            put.execute(params![instrument, loss.cause, loss.count, loss.meaning])?;
        }
    }
    Ok(())
}

/// Write scalars. The run's change, so they are written again; others are only added.
fn scalars(to: &Transaction<'_>, recording: &Recording) -> rusqlite::Result<()> {
    to.execute("DELETE FROM scalar WHERE block IS NULL AND arm IS NULL", [])?;
    let sql = "SELECT count(*) FROM scalar";
    let written: i64 = to.query_row(sql, [], |row| row.get(0))?;
    let mut put = to.prepare("INSERT INTO scalar VALUES (?, ?, ?, ?, ?, ?)")?;
    let (of_run, others): (Vec<_>, Vec<_>) =
        (recording.scalars.iter()).partition(|s| s.of == Subject::Run);
    for scalar in others.into_iter().skip(written as usize).chain(of_run) {
        let (block, arm) = match scalar.of {
            Subject::Run => (None, None),
            Subject::Arm(arm) => (None, Some(arm)),
            Subject::Block(block) => (Some(block), None),
        };
        put.execute(params![
            block,
            arm,
            scalar.quantity,
            scalar.item.number,
            scalar.item.label,
            // SQLite stores NaN as NULL.
            scalar.value
        ])?;
    }
    Ok(())
}

/// Write hops, each with its place on the path of its block's packets.
fn hops(to: &Transaction<'_>, recording: &Recording, before: usize) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT INTO hop VALUES (?, ?, ?, ?, ?)")?;
    let mut put_drop = to.prepare("INSERT INTO hop_dropped VALUES (?, ?, ?, ?)")?;
    let mut last = (u32::MAX, 0);
    for (at, of) in recording.hops.iter().enumerate() {
        let place = match last {
            (block, place) if block == of.block => place + 1,
            _ => 0,
        };
        last = (of.block, place);
        if at < before {
            continue;
        }
        let hop = &of.hop;
        put.execute(params![of.block, place, hop.name, hop.entered, hop.left])?;
        for (cause, packets) in &hop.dropped {
            put_drop.execute(params![of.block, place, cause, *packets])?;
        }
    }
    Ok(())
}
