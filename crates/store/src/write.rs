//! Writing a recording as it grows.

use std::path::{Path, PathBuf};

use netplumb_model::recording::Recording;
use rusqlite::{Connection, Transaction, params};

use crate::error::writing;
use crate::{APPLICATION_ID, SCHEMA, StoreError, TIMED, VERSION, timed};

/// Writes what is new in a recording each time it is asked to.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    connection: Connection,
    written: Written,
}

/// How much of each list is in the file.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    arms: usize,
    blocks: usize,
    source_files: usize,
    functions: usize,
    nodes: usize,
    costs: usize,
    line_costs: usize,
    timed: timed::Written,
}

impl Writer {
    /// Whether a recording could be made there, without making one.
    ///
    /// # Errors
    /// The folder is missing, or can't be written to.
    pub fn can_create(path: &Path) -> Result<(), StoreError> {
        let failed = |why: String| StoreError::Write {
            path: path.into(),
            why,
        };
        if path.is_dir() {
            return Err(failed("it is a folder".into()));
        }
        let made = if path.exists() {
            // Beside it, without a name: one that is killed in between leaves nothing that
            // would be in the next one's way.
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
        } else {
            std::fs::File::create_new(path).and_then(|_| std::fs::remove_file(path))
        };
        made.map_err(|e| failed(e.to_string()))
    }

    /// Start a recording. A file of that name is kept beside, as NAME.old.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let failed = |why: String| StoreError::Write {
            path: path.into(),
            why,
        };
        let old = with_suffix(path, ".old");
        let had_old = path.exists();
        if had_old {
            std::fs::rename(path, &old).map_err(|e| failed(e.to_string()))?;
        }
        // Made by us, so that a folder that is not there is told as such.
        std::fs::File::create_new(path).map_err(|e| match e.raw_os_error() {
            Some(libc_enospc) if libc_enospc == ENOSPC => StoreError::Full(path.into()),
            _ => failed(e.to_string()),
        })?;
        let connection = Connection::open(path).map_err(writing(path))?;
        let begin = || -> rusqlite::Result<()> {
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.pragma_update(None, "user_version", VERSION)?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.execute_batch(&format!("BEGIN;\n{SCHEMA}\n{TIMED}\nCOMMIT;"))
        };
        if let Err(error) = begin() {
            // Nothing can be recorded: leave things as they were.
            drop(connection);
            let _ = std::fs::remove_file(path);
            if had_old {
                let _ = std::fs::rename(&old, path);
            }
            return Err(writing(path)(error));
        }
        Ok(Writer {
            path: path.into(),
            connection,
            written: Written::default(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Write what the recording has more than it had the last time, all of it or
    /// nothing.
    ///
    /// # Errors
    /// The disk is full, or the file can't be written; what was written before
    /// stays.
    pub fn save(&mut self, recording: &Recording) -> Result<(), StoreError> {
        let path = self.path.clone();
        let before = self.written;
        let write = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            add(&transaction, recording, before)?;
            transaction.commit()
        };
        write(&mut self.connection).map_err(writing(&path))?;
        self.written = Written {
            arms: recording.arms.len(),
            blocks: recording.blocks.len(),
            source_files: recording.source_files.len(),
            functions: recording.functions.len(),
            nodes: recording.nodes.len(),
            costs: recording.costs.len(),
            line_costs: recording.line_costs.len(),
            timed: timed::Written::of(recording),
        };
        Ok(())
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// ENOSPC on Linux.
const ENOSPC: i32 = 28;

fn add(to: &Transaction<'_>, recording: &Recording, before: Written) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT OR REPLACE INTO recording VALUES (?, ?)")?;
    put.execute(["complete", if recording.complete { "yes" } else { "no" }])?;
    put.execute(["experiment", &recording.experiment_toml])?;
    let mut put = to.prepare("INSERT OR REPLACE INTO environment VALUES (?, ?)")?;
    for (key, value) in &recording.environment {
        put.execute([key, value])?;
    }
    let mut put = to.prepare("INSERT INTO arm VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_knob = to.prepare("INSERT INTO knob VALUES (?, ?, ?)")?;
    for (id, arm) in recording.arms.iter().enumerate().skip(before.arms) {
        put.execute(params![
            id,
            arm.name,
            arm.proto.as_str(),
            arm.family.as_str(),
            arm.link.as_str(),
            arm.forward,
            arm.size_bytes
        ])?;
        for (name, value) in &arm.knobs {
            put_knob.execute(params![id, name, value])?;
        }
    }
    let mut put = to.prepare("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    let mut put_drop = to.prepare("INSERT INTO dropped VALUES (?, ?, ?)")?;
    for (id, block) in recording.blocks.iter().enumerate().skip(before.blocks) {
        put.execute(params![
            id,
            block.arm,
            block.index,
            block.ledger.offered as i64,
            block.ledger.delivered as i64,
            block.kernel_insns as i64,
            block.user_insns as i64,
            block.entered as i64,
            block.returned as i64,
            block.duration_ns as i64
        ])?;
        for (cause, packets) in &block.ledger.dropped {
            put_drop.execute(params![id, cause, *packets as i64])?;
        }
    }
    let mut put = to.prepare("INSERT INTO source_file VALUES (?, ?)")?;
    let files = recording.source_files.iter().enumerate();
    for (id, path) in files.skip(before.source_files) {
        put.execute(params![id, path])?;
    }
    let mut put = to.prepare("INSERT INTO function VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (id, function) in recording
        .functions
        .iter()
        .enumerate()
        .skip(before.functions)
    {
        put.execute(params![
            id,
            function.name,
            function.module,
            function.layer,
            function.address as i64,
            function.size_bytes as i64,
            function.source.map(|s| s.file),
            function.source.map(|s| s.line)
        ])?;
    }
    let mut put = to.prepare("INSERT INTO node VALUES (?, ?, ?, ?)")?;
    for (id, node) in recording.nodes.iter().enumerate().skip(before.nodes) {
        put.execute(params![id, node.parent, node.function, node.tail])?;
    }
    let mut put = to.prepare("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?)")?;
    for cost in recording.costs.iter().skip(before.costs) {
        put.execute(params![
            cost.block,
            cost.direction.as_str(),
            cost.context.to_string(),
            cost.node,
            cost.calls as i64,
            cost.self_insns as i64
        ])?;
    }
    let mut put = to.prepare("INSERT INTO line_cost VALUES (?, ?, ?, ?, ?)")?;
    for cost in recording.line_costs.iter().skip(before.line_costs) {
        put.execute(params![
            cost.block,
            cost.function,
            cost.source.file,
            cost.source.line,
            cost.insns as i64
        ])?;
    }
    timed::add(to, recording, before.timed)?;
    let mut put = to.prepare("INSERT OR REPLACE INTO loss VALUES (?, ?, ?)")?;
    for loss in &recording.losses {
        put.execute(params![loss.cause, loss.count as i64, loss.meaning])?;
    }
    Ok(())
}
