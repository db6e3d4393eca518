//! Reading a recording whole, with its invariants checked.

use std::path::Path;
use std::str::FromStr;
use std::{fs, io};

use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, LineCost, Loss, Node, Recording, SourceLine,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OpenFlags, Row};

use crate::error::reading;
use crate::{APPLICATION_ID, StoreError, VERSION, migrate, timed};

/// Read a recording.
///
/// # Errors
/// It is missing, some other file, of a later version, or damaged. One that was
/// cut off while being written is no error: it is incomplete, and says so.
pub fn read(path: &Path) -> Result<Recording, StoreError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing(path.into()),
        _ => StoreError::Unreadable {
            path: path.into(),
            why: error.to_string(),
        },
    };
    // Asked first: to open a pipe would be to wait.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(StoreError::NotOurs(path.into()));
    }
    fs::File::open(path).map_err(unreadable)?;
    let wrong = reading(path);
    // A writer that was killed leaves a journal: SQLite rolls back what was under
    // way, and has to write to do so.
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let access = if Path::new(&journal).exists() {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    } else {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(path, flags).map_err(&wrong)?;
    let number = |name: &str| file.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(&wrong)?;
    if application != APPLICATION_ID {
        return Err(StoreError::NotOurs(path.into()));
    }
    let version = number("user_version").map_err(&wrong)?;
    if version > VERSION {
        return Err(StoreError::Newer {
            path: path.into(),
            found: version,
        });
    }
    let check: String = file
        .pragma_query_value(None, "quick_check", |row| row.get(0))
        .map_err(&wrong)?;
    if check != "ok" {
        let why = check.lines().next().unwrap_or_default().to_string();
        return Err(StoreError::Damaged {
            path: path.into(),
            why,
        });
    }
    let connection = if version < VERSION {
        let mut copy = Connection::open_in_memory().map_err(&wrong)?;
        let backup = rusqlite::backup::Backup::new(&file, &mut copy).map_err(&wrong)?;
        backup.step(-1).map_err(&wrong)?;
        drop(backup);
        migrate::up(&copy, version).map_err(&wrong)?;
        copy
    } else {
        file
    };
    let recording = load(&connection).map_err(&wrong)?;
    check_ids(&recording).map_err(|why| StoreError::Damaged {
        path: path.into(),
        why,
    })?;
    Ok(recording)
}

pub(crate) fn rows<T>(
    connection: &Connection,
    sql: &str,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], row)?.collect()
}

/// A column that holds one of our words.
pub(crate) fn word<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(column)?
        .as_str()?
        .parse()
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(e)))
}

pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(|n| n as u64)
}

fn load(c: &Connection) -> rusqlite::Result<Recording> {
    let mut recording = Recording::default();
    for (key, value) in rows(c, "SELECT key, value FROM recording", |r| {
        Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))
    })? {
        match key.as_str() {
            "complete" => recording.complete = value == "yes",
            "experiment" => recording.experiment_toml = value,
            _ => {}
        }
    }
    recording.environment = rows(c, "SELECT key, value FROM environment", |r| {
        Ok((r.get(0)?, r.get(1)?))
    })?
    .into_iter()
    .collect();
    recording.arms = rows(
        c,
        "SELECT name, proto, family, link, forward, size_bytes FROM arm ORDER BY id",
        |r| {
            Ok(Arm {
                name: r.get(0)?,
                proto: word(r, 1)?,
                family: word(r, 2)?,
                link: word(r, 3)?,
                forward: r.get(4)?,
                size_bytes: r.get(5)?,
                knobs: Default::default(),
            })
        },
    )?;
    for (arm, name, value) in rows(c, "SELECT arm, name, value FROM knob", |r| {
        Ok((r.get::<_, usize>(0)?, r.get(1)?, r.get(2)?))
    })? {
        if let Some(arm) = recording.arms.get_mut(arm) {
            arm.knobs.insert(name, value);
        }
    }
    recording.blocks = rows(
        c,
        "SELECT arm, repetition, offered, delivered, kernel_insns, user_insns, entered, returned, \
         duration_ns FROM block ORDER BY id",
        |r| {
            Ok(Block {
                arm: r.get(0)?,
                index: r.get(1)?,
                ledger: Ledger {
                    offered: count(r, 2)?,
                    delivered: count(r, 3)?,
                    dropped: Default::default(),
                },
                kernel_insns: count(r, 4)?,
                user_insns: count(r, 5)?,
                entered: count(r, 6)?,
                returned: count(r, 7)?,
                duration_ns: count(r, 8)?,
            })
        },
    )?;
    for (block, cause, packets) in rows(c, "SELECT block, cause, packets FROM dropped", |r| {
        Ok((r.get::<_, usize>(0)?, r.get(1)?, count(r, 2)?))
    })? {
        if let Some(block) = recording.blocks.get_mut(block) {
            block.ledger.dropped.insert(cause, packets);
        }
    }
    recording.source_files = rows(c, "SELECT path FROM source_file ORDER BY id", |r| r.get(0))?;
    recording.functions = rows(
        c,
        "SELECT name, module, layer, address, size_bytes, file, line FROM function ORDER BY id",
        |r| {
            let (file, line): (Option<u32>, Option<u32>) = (r.get(5)?, r.get(6)?);
            Ok(Function {
                name: r.get(0)?,
                module: r.get(1)?,
                layer: r.get(2)?,
                address: count(r, 3)?,
                size_bytes: count(r, 4)?,
                source: file.zip(line).map(|(file, line)| SourceLine { file, line }),
            })
        },
    )?;
    recording.nodes = rows(
        c,
        "SELECT parent, function, tail FROM node ORDER BY id",
        |r| {
            Ok(Node {
                parent: r.get(0)?,
                function: r.get(1)?,
                tail: r.get(2)?,
            })
        },
    )?;
    recording.costs = rows(
        c,
        "SELECT block, direction, context, node, calls, self_insns FROM cost \
         ORDER BY block, direction, context, node",
        |r| {
            Ok(Cost {
                block: r.get(0)?,
                direction: word(r, 1)?,
                context: word(r, 2)?,
                node: r.get(3)?,
                calls: count(r, 4)?,
                self_insns: count(r, 5)?,
            })
        },
    )?;
    recording.line_costs = rows(
        c,
        "SELECT block, function, file, line, insns FROM line_cost \
         ORDER BY block, function, file, line",
        |r| {
            Ok(LineCost {
                block: r.get(0)?,
                function: r.get(1)?,
                source: SourceLine {
                    file: r.get(2)?,
                    line: r.get(3)?,
                },
                insns: count(r, 4)?,
            })
        },
    )?;
    timed::load(c, &mut recording)?;
    recording.losses = rows(
        c,
        "SELECT cause, count, meaning FROM loss ORDER BY cause",
        |r| {
            Ok(Loss {
                cause: r.get(0)?,
                count: count(r, 1)?,
                meaning: r.get(2)?,
            })
        },
    )?;
    Ok(recording)
}

/// Ids are dense, so one that is too large means that rows are missing. A report
/// indexes by them without looking.
fn check_ids(recording: &Recording) -> Result<(), String> {
    let fits = |id: u32, len: usize| (id as usize) < len;
    for block in &recording.blocks {
        if !fits(block.arm, recording.arms.len()) {
            return Err(format!("a block of arm {}, which is not there", block.arm));
        }
    }
    for (id, node) in recording.nodes.iter().enumerate() {
        if !fits(node.function, recording.functions.len())
            || node.parent.is_some_and(|p| p as usize >= id)
        {
            return Err(format!("node {id} names what is not there"));
        }
    }
    let files = recording.source_files.len();
    for function in &recording.functions {
        if function.source.is_some_and(|s| !fits(s.file, files)) {
            return Err("a function is in a source file that is not there".into());
        }
    }
    for cost in &recording.line_costs {
        if !fits(cost.block, recording.blocks.len())
            || !fits(cost.function, recording.functions.len())
            || !fits(cost.source.file, files)
        {
            return Err("the cost of a line names what is not there".into());
        }
    }
    for cost in &recording.costs {
        if !fits(cost.block, recording.blocks.len()) || !fits(cost.node, recording.nodes.len()) {
            return Err("a cost names what is not there".into());
        }
    }
    timed::check_ids(recording)
}
