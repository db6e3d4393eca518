use std::collections::BTreeMap;
use std::fs;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::recording::*;

use super::*;

fn small() -> Recording {
    Recording {
        environment: BTreeMap::from([("clock".into(), "exact".into())]),
        experiment_toml: "name = \"x\"\n".into(),
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::from([("kernel".into(), "debian".into())]),
        }],
        blocks: vec![Block {
            arm: 0,
            index: 0,
            ledger: Ledger {
                offered: 10,
                delivered: 9,
                dropped: BTreeMap::from([("UdpRcvbufErrors".into(), 1)]),
            },
            kernel_insns: 42,
            user_insns: 7,
            entered: 2,
            returned: 2,
            duration_ns: 0,
        }],
        functions: vec![
            Function {
                name: "<b>udp_rcv".into(),
                module: None,
                layer: Some("transport".into()),
                address: 0xffff_ffff_8100_0000,
                size_bytes: 16,
                source: None,
            },
            Function {
                name: "main".into(),
                module: Some("ask".into()),
                layer: Some("application".into()),
                address: 0x1149,
                size_bytes: 32,
                source: Some(SourceLine { file: 0, line: 7 }),
            },
        ],
        source_files: vec!["/src/ask.c".into(), "/src/ask.h".into()],
        line_costs: vec![LineCost {
            block: 0,
            function: 1,
            source: SourceLine { file: 1, line: 3 },
            insns: 5,
        }],
        nodes: vec![
            Node {
                parent: None,
                function: 0,
                tail: false,
            },
            Node {
                parent: Some(0),
                function: 0,
                tail: true,
            },
        ],
        costs: vec![
            Cost {
                block: 0,
                direction: Direction::Rx,
                context: Context::Softirq(Softirq::NetRx),
                node: 0,
                calls: 1,
                self_insns: 40,
            },
            Cost {
                block: 0,
                direction: Direction::Rx,
                context: Context::Softirq(Softirq::NetRx),
                node: 1,
                calls: 1,
                self_insns: 2,
            },
        ],
        losses: vec![Loss {
            cause: "c".into(),
            count: 3,
            meaning: "m".into(),
        }],
        complete: true,
        ..Recording::default()
    }
}

/// Check that a recording reads back as it was written, also in pieces.
#[test]
fn round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut writer = Writer::create(&path).unwrap();
    let mut growing = small();
    growing.costs.pop();
    growing.nodes.pop();
    growing.complete = false;
    writer.save(&growing).unwrap();
    assert_eq!(read(&path).unwrap(), growing);
    writer.save(&small()).unwrap();
    assert_eq!(read(&path).unwrap(), small());
}

/// Check that the views answer what they are for.
#[test]
fn views() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::create(&path).unwrap().save(&small()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let total: (String, i64, i64) = connection
        .query_row(
            "SELECT class, calls, self_insns FROM function_cost",
            [],
            |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)),
        )
        .unwrap();
    assert_eq!(total, ("udp rx".into(), 2, 42));
    let inclusive: i64 = connection
        .query_row("SELECT total_insns FROM function_total", [], |r| r.get(0))
        .unwrap();
    assert_eq!(inclusive, 42, "a function that calls itself counts once");
    let edges: i64 = connection
        .query_row("SELECT count(*) FROM edge", [], |r| r.get(0))
        .unwrap();
    assert_eq!(edges, 2);
}

/// Check that a file of the same name is kept.
#[test]
fn an_old_one_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::create(&path).unwrap().save(&small()).unwrap();
    drop(Writer::create(&path).unwrap());
    assert_eq!(read(&folder.path().join("a.plumb.old")).unwrap(), small());
    assert!(!read(&path).unwrap().complete);
}

/// Check that asking whether one could be made makes none.
#[test]
fn asking_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::can_create(&path).unwrap();
    assert!(!path.exists());
    fs::write(&path, "kept").unwrap();
    Writer::can_create(&path).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    assert!(Writer::can_create(&folder.path().join("none/a.plumb")).is_err());
}

/// Check that a recording of the first schema opens, without lines, and stays as it is.
#[test]
fn version_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .pragma_update(None, "application_id", APPLICATION_ID)
        .unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    connection
        .execute_batch(include_str!("../testdata/schema-1.sql"))
        .unwrap();
    connection
        .execute_batch(
            "INSERT INTO recording VALUES ('complete', 'yes');
             INSERT INTO arm VALUES (0, 'udp', 'udp', 'ipv4', 'veth', 0, 10);
             INSERT INTO block VALUES (0, 0, 0, 10, 10, 40, 7, 1, 1);
             INSERT INTO function VALUES (0, 'udp_rcv', NULL, 'transport', -1, 16);
             INSERT INTO node VALUES (0, NULL, 0, 0);
             INSERT INTO cost VALUES (0, 'rx', 'task', 0, 1, 40);",
        )
        .unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    let old = read(&path).unwrap();
    assert_eq!(old.functions[0].name, "udp_rcv");
    assert_eq!(old.functions[0].source, None);
    assert_eq!(old.costs.len(), 1);
    assert!(old.line_costs.is_empty() && old.source_files.is_empty());
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Check that a migrated recording has the tables and columns of a new one.
#[test]
fn migrated_and_new_are_alike() {
    let columns = |connection: &rusqlite::Connection| -> Vec<(String, String, String)> {
        let sql = "SELECT t.name, c.name, c.type FROM pragma_table_list t \
                   JOIN pragma_table_info(t.name) c WHERE t.name NOT LIKE 'sqlite_%' \
                   ORDER BY t.name, c.cid";
        let mut statement = connection.prepare(sql).unwrap();
        let row = |r: &rusqlite::Row<'_>| Ok((r.get(0)?, r.get(1)?, r.get(2)?));
        let rows = statement.query_map([], row).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let old = rusqlite::Connection::open_in_memory().unwrap();
    old.execute_batch(include_str!("../testdata/schema-1.sql"))
        .unwrap();
    migrate::up(&old, 1).unwrap();
    let new = rusqlite::Connection::open_in_memory().unwrap();
    new.execute_batch(SCHEMA).unwrap();
    assert_eq!(columns(&old), columns(&new));
}

/// Check that whatever is no whole recording is told as what it is.
#[test]
fn bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    assert!(matches!(read(&path), Err(StoreError::Missing(_))));

    fs::write(
        &path,
        "hello, this is no database at all, but long enough to be read",
    )
    .unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));

    fs::write(&path, "").unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));

    fs::remove_file(&path).unwrap();
    Writer::create(&path).unwrap().save(&small()).unwrap();
    let whole = fs::read(&path).unwrap();
    // Every page boundary but the last, and some places between.
    for cut in (512..whole.len() - 1).step_by(1024) {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(
            matches!(read(&path), Err(StoreError::Damaged { .. })),
            "cut at {cut}"
        );
    }

    fs::write(&path, &whole).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .pragma_update(None, "foreign_keys", false)
        .unwrap();
    connection.execute("DELETE FROM function", []).unwrap();
    assert!(matches!(read(&path), Err(StoreError::Damaged { .. })));
    connection.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(
        read(&path),
        Err(StoreError::Newer { found: 99, .. })
    ));
    connection.pragma_update(None, "application_id", 1).unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));
}

/// Check that a recording whose writer was killed within a transaction opens, and
/// holds what was whole before it.
#[test]
fn a_killed_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut before = small();
    before.complete = false;
    Writer::create(&path).unwrap().save(&before).unwrap();
    // A hot journal, as a writer leaves it that dies between its own writes: small
    // cache, so that pages of the open transaction are in the file already.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "cache_size", 1).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    for n in 1..2000 {
        connection
            .execute("INSERT INTO loss VALUES (?, 1, 'm')", [format!("loss {n}")])
            .unwrap();
    }
    let torn = folder.path().join("torn.plumb");
    fs::copy(&path, &torn).unwrap();
    fs::copy(
        folder.path().join("a.plumb-journal"),
        folder.path().join("torn.plumb-journal"),
    )
    .unwrap();
    assert_eq!(read(&torn).unwrap(), before);
}
