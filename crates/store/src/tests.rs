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
        functions: vec![Function {
            name: "<b>udp_rcv".into(),
            module: None,
            layer: Some("transport".into()),
            address: 0xffff_ffff_8100_0000,
            size_bytes: 16,
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
