//! Databases made to keep a reader busy, or to make it act.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::{FORMATS, bounded, made, plumb};
use crate::common::Place;

/// The tables of a recording.
const TABLES: [&str; 29] = [
    "arm",
    "arm_note",
    "attachment",
    "block",
    "calibration",
    "cost",
    "dropped",
    "environment",
    "function",
    "hop",
    "hop_dropped",
    "knob",
    "line_cost",
    "loss",
    "node",
    "node_chunk",
    "quantity",
    "recording",
    "scalar",
    "over_budget",
    "source_file",
    "span",
    "span_bucket",
    "total",
    "trace",
    "trace_step",
    "trace_text",
    "not_tried",
    "not_measured",
];

/// Columns of a table that has them all, whatever is asked.
const ENDLESS: &str = "WITH RECURSIVE c(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM c) SELECT \
    id, id AS block, id AS arm, 'x' AS name, 'udp' AS proto, 'ipv4' AS family, 'lo' AS link, \
    0 AS forward, 0 AS size_bytes, 'k' AS key, 'v' AS value, 'c' AS cause, 1 AS packets, 'exact' AS instrument, \
    'tx' AS direction, 'task' AS context, 0 AS node, 0 AS quantity, 1 AS calls, 1 AS own, \
    1 AS kernel, 0 AS user, 1 AS count, 'failed' AS kind, 't' AS text, \
    0 AS place, 1 AS entered, 1 AS \"left\", 'r' AS reason, 's' AS setting, \
    'm' AS meaning, NULL AS parent, 0 AS function, 0 AS tail, 'p' AS path, id AS first, \
    x'00' AS columns FROM c";

/// What else is done, and whether the recording can be read all the same.
const OTHERS: &[(&str, bool)] = &[
    (
        "DROP TABLE loss; CREATE VIRTUAL TABLE loss USING fts5(instrument, cause, count, meaning)",
        false,
    ),
    ("DROP TABLE node; CREATE VIRTUAL TABLE node USING rtree(id, a, b)", false),
    ("DROP TABLE loss; CREATE VIRTUAL TABLE loss USING dbstat", false),
    ("CREATE VIRTUAL TABLE apart USING fts5(x); INSERT INTO apart VALUES ('y')", true),
    (
        "DROP TABLE loss; CREATE TABLE loss (instrument TEXT NOT NULL, cause TEXT NOT NULL, \
         count INTEGER NOT NULL AS (7), meaning TEXT NOT NULL, PRIMARY KEY (instrument, cause)) \
         STRICT",
        false,
    ),
    (
        "DROP TABLE loss; CREATE TABLE loss (instrument TEXT NOT NULL, cause TEXT NOT NULL, \
         count INTEGER NOT NULL, meaning TEXT NOT NULL, more BLOB AS (zeroblob(1000000000)), \
         PRIMARY KEY (instrument, cause)) STRICT",
        false,
    ),
    (
        "DROP TABLE loss; CREATE TABLE loss (instrument TEXT NOT NULL, cause TEXT NOT NULL, \
         count INTEGER NOT NULL, meaning TEXT NOT NULL, \
         PRIMARY KEY (instrument, cause), \
         CHECK (length(hex(zeroblob(count * 100000000))) >= 0)) STRICT; \
         INSERT INTO loss VALUES ('exact', 'a', 0, 'b'); \
         PRAGMA ignore_check_constraints = 1; UPDATE loss SET count = 9",
        true,
    ),
    (
        "DROP TABLE loss; CREATE TABLE loss (instrument TEXT NOT NULL, cause TEXT NOT NULL, count INTEGER NOT \
         NULL, meaning TEXT NOT NULL, PRIMARY KEY (instrument, cause)); \
         INSERT INTO loss VALUES ('exact', 'c', 'many', 'm')",
        false,
    ),
    ("CREATE TRIGGER t AFTER INSERT ON loss BEGIN DELETE FROM block; END", true),
    (
        "CREATE VIEW mine AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n FROM c) \
         SELECT n FROM c",
        true,
    ),
    ("CREATE INDEX i ON cost (own * 2); CREATE TABLE more (x)", true),
    ("DROP VIEW function_cost; DROP VIEW edge", true),
    ("DROP TABLE span", false),
    ("ALTER TABLE hop DROP COLUMN entered", false),
    ("ALTER TABLE span ADD COLUMN more TEXT", false),
    ("ALTER TABLE block RENAME TO blocks", false),
    ("PRAGMA user_version = 2", false),
    ("PRAGMA user_version = 1", false),
    ("PRAGMA user_version = 0", false),
    ("PRAGMA user_version = -1", false),
    ("PRAGMA user_version = 2147483647", false),
    ("PRAGMA application_id = 7", false),
    ("PRAGMA user_version = 1; DROP TABLE loss; CREATE VIEW loss AS SELECT 1 AS cause", false),
    ("PRAGMA journal_mode = WAL", false),
    (
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'CREATE VIEW loss(instrument, \
         cause, count, meaning) AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n FROM c) \
         SELECT n, n, n, n FROM c' WHERE name = 'loss'",
        false,
    ),
    (
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'loss'",
        false,
    ),
    (
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET rootpage = \
         (SELECT rootpage FROM sqlite_schema WHERE name = 'block') WHERE name = 'node'",
        false,
    ),
    (
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'arm'",
        false,
    ),
    ("PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'CREATE TABLE'", false),
    // Names and texts that are too long.
    ("UPDATE function SET name = printf('%.*c', 10485760, 'x') WHERE id = 1", false),
    ("UPDATE arm SET name = printf('%.*c', 10485760, 'x') WHERE id = 0", false),
    ("UPDATE loss SET meaning = printf('%.*c', 10485760, 'x')", false),
    ("UPDATE environment SET value = printf('%.*c', 20000000, 'x') WHERE key = 'clock'", false),
    ("UPDATE recording SET value = printf('%.*c', 10485760, 'x') WHERE key = 'experiment'", false),
    ("UPDATE recording SET value = '[[[[' WHERE key = 'experiment'", false),
    // Long, and often.
    (
        "UPDATE function SET name = printf('%.*c', 16000, 'x'); DELETE FROM cost; \
         WITH RECURSIVE c(n) AS (SELECT 4 UNION ALL SELECT n + 1 FROM c WHERE n < 60000) \
         INSERT INTO node SELECT n, 0, 1, 0 FROM c; \
         INSERT INTO cost SELECT 0, 0, 'tx', 'task', id, 1, 1 FROM node; \
         UPDATE total SET kernel = 0; UPDATE block SET entered = 0, returned = 0; \
         UPDATE total SET kernel = (SELECT count(*) FROM node) WHERE block = 0; \
         UPDATE block SET entered = (SELECT count(*) FROM node) WHERE id = 0; DELETE FROM line_cost",
        false,
    ),
    // A tree deeper than any stack.
    (
        "WITH RECURSIVE c(n) AS (SELECT 4 UNION ALL SELECT n + 1 FROM c WHERE n < 60000) \
         INSERT INTO node SELECT n, n - 1, 1, 0 FROM c",
        false,
    ),
    (
        "WITH RECURSIVE c(n) AS (SELECT 4 UNION ALL SELECT n + 1 FROM c WHERE n < 4000) \
         INSERT INTO node SELECT n, n - 1, 1, 0 FROM c; \
         INSERT INTO cost SELECT 0, 0, 'tx', 'task', id, 1, 0 FROM node WHERE id > 3; \
         UPDATE block SET entered = entered + 3997 WHERE id = 0",
        true,
    ),
    (
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300000) \
         INSERT INTO loss SELECT 'exact', 'cause ' || n, n, 'm' FROM c",
        true,
    ),
];

/// Check that a table which is a view without an end is not read; nor is any other database
/// that is not a recording's.
#[test]
fn hostile_databases() {
    let place = Place::new();
    made::save(&place, "whole.plumb", &made::exact());
    let endless = TABLES
        .iter()
        .map(|table| (format!("DROP TABLE {table}; CREATE VIEW {table} AS {ENDLESS}"), false));
    let others = OTHERS.iter().map(|(sql, can)| ((*sql).to_string(), *can));
    for (n, (sql, can)) in endless.chain(others).enumerate() {
        // A database written in WAL mode stays in it.
        made::changed(&place, "whole.plumb", "h.plumb", &sql);
        let format = if can { FORMATS[n % FORMATS.len()] } else { "" };
        let ran = plumb(&place, "report h.plumb", &sql);
        assert_eq!(ran.status.success(), can, "{sql}: {ran:#?}");
        assert!(ran.stderr.len() < 1_000, "{sql}: {}", ran.stderr.len());
        plumb(&place, &format!("report h.plumb {format}"), &sql);
        let ran = plumb(&place, "diff whole.plumb h.plumb", &sql);
        // It has no use for the experiment.
        if !sql.contains("[[[[") {
            assert_eq!(ran.status.success(), can, "{sql}: {ran:#?}");
        }
        for name in ["h.plumb", "h.plumb-wal", "h.plumb-shm"] {
            let _ = fs::remove_file(place.path(name));
        }
    }
}

/// Check that files next to a recording do no harm: a pipe in place of a journal blocks nothing,
/// and a journal that names another file does not remove it.
#[test]
fn hostile_journals() {
    let place = Place::new();
    made::save(&place, "whole.plumb", &made::exact());
    for name in ["h.plumb-journal", "h.plumb-wal"] {
        fs::copy(place.path("whole.plumb"), place.path("h.plumb")).unwrap();
        let pipe = CString::new(place.path(name).as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that lives, and a mode.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let ran = plumb(&place, "report h.plumb", name);
        ran.code(1).says(&["h.plumb", name]);
        fs::remove_file(place.path(name)).unwrap();
    }

    // As a writer leaves it that dies in a transaction: see the tests of the store.
    let connection = rusqlite::Connection::open(place.path("h.plumb")).unwrap();
    connection.pragma_update(None, "cache_size", 1).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    for n in 1..2000 {
        let row = [format!("loss {n}")];
        connection.execute("INSERT INTO loss VALUES ('exact', ?, 1, 'm')", row).unwrap();
    }
    for suffix in ["", "-journal"] {
        let (from, to) = (format!("h.plumb{suffix}"), format!("killed.plumb{suffix}"));
        fs::copy(place.path(&from), place.path(&to)).unwrap();
    }
    drop(connection);
    let read = |name: &str| fs::read(place.path(name)).unwrap();
    let (file, journal) = (read("killed.plumb"), read("killed.plumb-journal"));
    plumb(&place, "report killed.plumb", "a killed writer").code(0);
    // It is rolled back in a copy.
    assert_eq!(read("killed.plumb"), file);
    assert_eq!(read("killed.plumb-journal"), journal);
    assert_eq!(place.temporary_files(), [""; 0]);

    place.write("precious", "keep this\0");
    let name = place.path("precious").as_os_str().as_bytes().to_vec();
    let sum = name.iter().fold(0_u32, |sum, b| sum.wrapping_add(i32::from(*b as i8) as u32));
    // The page that holds the lock's bytes is where the record begins.
    let mut named = journal.clone();
    named.extend_from_slice(&(0x4000_0000_u32 / 4096 + 1).to_be_bytes());
    named.extend_from_slice(&name);
    named.extend_from_slice(&(name.len() as u32).to_be_bytes());
    named.extend_from_slice(&sum.to_be_bytes());
    named.extend_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    place.write("killed.plumb-journal", &named);
    let mut command = place.plumb("report killed.plumb");
    let ran = bounded(&mut command, "a journal that names a file");
    ran.code(1).says(&["its journal names another file"]);
    assert_eq!(read("precious"), b"keep this\0");
}
