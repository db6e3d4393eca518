//! Opens files from untrusted sources.
//!
//! A recording is data, but SQLite files can contain more: views that never end in place of tables,
//! generated columns, virtual tables, journals that name other files. So an opened file is never
//! written to, nothing in its schema is evaluated, each table must be a table with the expected
//! columns, and time and memory are limited by the size of the file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, ffi};
use tempfile::TempDir;

use crate::error::{damaged, reading};
use crate::{APPLICATION_ID, SCHEMA, StoreError, VERSION};

/// The magic of SQLite files.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Size of its header.
const HEADER_BYTES: usize = 100;
/// Where the header has the file format's versions for writing and reading: 1 is a
/// rollback journal, 2 is WAL.
const JOURNAL_MODE_AT: std::ops::Range<usize> = 18..20;
/// The end of a journal that is one of several, after the name of the file that lists them. SQLite
/// removes that file after a rollback, whatever it is.
const SUPER_JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Maximum length of a string, and of a row.
const LENGTH_BYTES: i32 = 16 << 20;
/// Maximum number of steps of SQLite's virtual machine, and per byte of the file: checking and
/// reading a row takes about a hundred, and the shortest row has some ten bytes.
const STEPS: u64 = 50_000_000;
const STEPS_PER_BYTE: u64 = 64;
/// Steps between checks of that limit.
const STEPS_AT_ONCE: i32 = 10_000;

/// An open recording.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The directory of a copy, if one was made. Dropped last.
    _copy: Option<TempDir>,
}

/// Open a recording, and check that it is one.
///
/// # Errors
/// It is missing, another kind of file, of a later version, or damaged.
pub(crate) fn open(path: &Path) -> Result<Opened, StoreError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing(path.into()),
        _ => StoreError::Unreadable { path: path.into(), why: error.to_string() },
    };
    // Checked first: opening a pipe would block.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(StoreError::NotOurs(path.into()));
    }
    header(path)?;
    // An absolute path, since SQLite treats a name that begins with `file:` as a URI.
    let whole = path.canonicalize().map_err(unreadable)?;
    let journal = beside(&whole, "-journal");
    for file in [&journal, &beside(&whole, "-wal")] {
        // SQLite would open it, and block on a pipe.
        if fs::symlink_metadata(file).is_ok_and(|m| !m.is_file()) {
            let why = format!("{} is not a file", file.display());
            return Err(damaged(path, why));
        }
    }
    if beside(&whole, "-wal").exists() {
        return Err(damaged(path, WAL));
    }
    let steps = STEPS.saturating_add(metadata.len().saturating_mul(STEPS_PER_BYTE));
    let (connection, copy) = match begin(&whole, path, steps) {
        // A writer was killed in a transaction, which has to be rolled back. That needs writing, so
        // it is done in a copy.
        Err(Begin::Interrupted) => {
            let copy = rolled_back(&whole, &journal, path)?;
            let file = begin(&copy.path().join(COPY), path, steps)
                .map_err(|error| error.into_error(path))?;
            (file, Some(copy))
        }
        other => (other.map_err(|error| error.into_error(path))?, None),
    };
    let wrong = reading(path);
    // Before any other query of the schema.
    for table in expected().map_err(&wrong)? {
        let found = Table::read(&connection, &table.name).map_err(&wrong)?;
        (table.matches(found)).map_err(|why| damaged(path, why))?;
        sound(&connection, &table.name, path)?;
    }
    Ok(Opened { connection, _copy: copy })
}

const WAL: &str = "it is in SQLite's WAL mode, which recordings never use: run `sqlite3 FILE \
                   'PRAGMA journal_mode = DELETE'`";

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Check the header, before SQLite does.
fn header(path: &Path) -> Result<(), StoreError> {
    let mut header = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut header))
        .map_err(|error| StoreError::Unreadable { path: path.into(), why: error.to_string() })?;
    if !header.starts_with(MAGIC) {
        return Err(StoreError::NotOurs(path.into()));
    }
    if header.len() < HEADER_BYTES {
        return Err(damaged(path, "it ends within its header"));
    }
    if header[JOURNAL_MODE_AT] == [2, 2] {
        return Err(damaged(path, WAL));
    }
    Ok(())
}

/// Why a file was not opened.
enum Begin {
    /// An incomplete transaction has to be rolled back.
    Interrupted,
    Sqlite(rusqlite::Error),
    Other(StoreError),
}

impl Begin {
    fn into_error(self, path: &Path) -> StoreError {
        match self {
            Begin::Interrupted => damaged(path, "it can't be rolled back"),
            Begin::Sqlite(error) => reading(path)(error),
            Begin::Other(error) => error,
        }
    }
}

/// Open the file for reading.
fn begin(file: &Path, path: &Path, steps: u64) -> Result<Connection, Begin> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let begun = || -> rusqlite::Result<(Connection, i32, i32)> {
        let mut connection = Connection::open_with_flags(file, flags)?;
        restrain(&mut connection, steps)?;
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
        let (application, version) = (number("application_id")?, number("user_version")?);
        Ok((connection, application, version))
    };
    let (connection, application, version) =
        begun().map_err(|error| match error.sqlite_error().map(|e| e.extended_code) {
            Some(ffi::SQLITE_READONLY_ROLLBACK) => Begin::Interrupted,
            _ => Begin::Sqlite(error),
        })?;
    if application != APPLICATION_ID {
        return Err(Begin::Other(StoreError::NotOurs(path.into())));
    }
    if version != VERSION {
        return Err(Begin::Other(StoreError::OtherVersion { path: path.into(), found: version }));
    }
    Ok(connection)
}

/// Disable everything in the file's schema that could run, and limit the time of reading.
fn restrain(connection: &mut Connection, steps: u64) -> rusqlite::Result<()> {
    for (config, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(config, on)?;
    }
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, LENGTH_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
        (Limit::SQLITE_LIMIT_COLUMN, 100),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    let mut left = steps;
    let handler = move || {
        left = left.saturating_sub(STEPS_AT_ONCE as u64);
        left == 0
    };
    connection.progress_handler(STEPS_AT_ONCE, Some(handler))?;
    for (pragma, on) in [
        ("cell_size_check", true),
        // Checking tables would evaluate their constraints.
        ("ignore_check_constraints", true),
    ] {
        connection.pragma_update(None, pragma, on)?;
    }
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Name of a copy in its directory.
const COPY: &str = "recording";

/// A copy of a recording whose writer was killed, with its last transaction rolled back.
fn rolled_back(whole: &Path, journal: &Path, path: &Path) -> Result<TempDir, StoreError> {
    let failed = |error: io::Error| StoreError::Unreadable {
        path: path.into(),
        why: format!("can't roll back its last transaction in a copy: {error}"),
    };
    let mut end = [0; SUPER_JOURNAL.len()];
    let mut file = File::open(journal).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > HEADER_BYTES as u64 {
        file.seek(SeekFrom::End(-(end.len() as i64)))
            .and_then(|_| file.read_exact(&mut end))
            .map_err(failed)?;
    }
    if end == SUPER_JOURNAL {
        return Err(damaged(path, "its journal names another file"));
    }
    let folder = tempfile::tempdir().map_err(failed)?;
    let copy = folder.path().join(COPY);
    fs::copy(whole, &copy).map_err(failed)?;
    fs::copy(journal, beside(&copy, "-journal")).map_err(failed)?;
    let writable = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Reading rolls back first.
    Connection::open_with_flags(&copy, writable)
        .and_then(|c| c.pragma_query_value(None, "schema_version", |row| row.get::<_, i32>(0)))
        .map_err(reading(path))?;
    Ok(folder)
}

/// Check the integrity of a table's pages and the types of its rows.
fn sound(connection: &Connection, table: &str, path: &Path) -> Result<(), StoreError> {
    let mut found = None;
    connection
        .pragma(None, "quick_check", table, |row| {
            found.get_or_insert(row.get::<_, String>(0)?);
            Ok(())
        })
        .map_err(reading(path))?;
    match found {
        Some(said) if said != "ok" => {
            let why = said.lines().next().unwrap_or_default();
            Err(damaged(path, format!("table {table}: {why}")))
        }
        _ => Ok(()),
    }
}

/// A table, as SQLite parsed its schema: the text of the schema is not trusted.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    name: String,
    /// `table`, `view`, `virtual` or `shadow`.
    kind: String,
    strict: bool,
    columns: Vec<Column>,
}

#[derive(Debug, PartialEq, Eq)]
struct Column {
    name: String,
    kind: String,
    /// Its position in the primary key, from 1; 0 if it is not in it.
    key: u32,
    /// Not 0 if it is generated.
    hidden: u32,
}

impl Table {
    /// Look up a table by name, if it exists.
    fn read(connection: &Connection, name: &str) -> rusqlite::Result<Option<Table>> {
        let mut found = None;
        connection.pragma(None, "table_list", name, |row| {
            if row.get::<_, String>(0)? == "main" {
                found = Some((row.get::<_, String>(2)?, row.get(5)?));
            }
            Ok(())
        })?;
        let Some((kind, strict)) = found else {
            return Ok(None);
        };
        let mut columns = Vec::new();
        // For anything else, a query would evaluate it.
        if kind == "table" {
            connection.pragma(None, "table_xinfo", name, |row| {
                columns.push(Column {
                    name: row.get(1)?,
                    kind: row.get(2)?,
                    key: row.get(5)?,
                    hidden: row.get(6)?,
                });
                Ok(())
            })?;
        }
        Ok(Some(Table { name: name.into(), kind, strict, columns }))
    }

    /// Check that a table of a file is as this one.
    fn matches(&self, found: Option<Table>) -> Result<(), String> {
        let name = &self.name;
        let Some(found) = found else {
            return Err(format!("no such table {name}"));
        };
        if found.kind != "table" {
            return Err(format!("{name} is a {}, expected a table", found.kind));
        }
        if let Some(column) = found.columns.iter().find(|c| c.hidden != 0) {
            let column = column.name.escape_debug();
            return Err(format!("table {name}: column {column} is generated"));
        }
        if found != *self {
            return Err(format!(
                "table {name} does not have the columns of schema version {VERSION}"
            ));
        }
        Ok(())
    }
}

/// The tables of the schema.
fn expected() -> rusqlite::Result<Vec<Table>> {
    let new = Connection::open_in_memory()?;
    new.execute_batch(SCHEMA)?;
    let mut statement =
        new.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
    let names: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut tables = Vec::new();
    for name in names {
        tables.extend(Table::read(&new, &name)?);
    }
    Ok(tables)
}
