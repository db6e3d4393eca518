use std::collections::BTreeMap;
use std::fs;

use netplumb_model::bench::Hop;
use netplumb_model::bench::quantities::GOAL_LOWER;
use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::code::{FunctionCode, Instruction};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Quantity, Subject};
use netplumb_model::recording::*;
use netplumb_model::span::{BUCKETS, Call, Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::timing::{ATTACH, BUSY, Calibration, INSTRUCTIONS, Mechanism, SEEN, Step};

use super::*;

mod packed;

fn small() -> Recording {
    Recording {
        environment: BTreeMap::from([("clock".into(), "exact".into())]),
        experiment_toml: "name = \"x\"\n".into(),
        quantities: vec![Quantity::from(&INSTRUCTIONS)],
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::from([("kernel".into(), "debian".into())]),
            made: None,
        }],
        blocks: vec![Block {
            arm: 0,
            instrument: "exact".into(),
            index: 0,
            ledger: Ledger {
                offered: 10,
                delivered: 9,
                dropped: BTreeMap::from([("UdpRcvbufErrors".into(), 1)]),
            },
            totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 42, user: 7 }],
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
        code: vec![FunctionCode {
            arm: 0,
            function: 0,
            address: 7,
            insns: vec![Instruction::new(3, &[0x90], 5).unwrap()],
        }],
        source_texts: [(0, "int x;\n".to_string())].into(),
        line_costs: vec![LineCost {
            block: 0,
            function: 0,
            source: SourceLine { file: 1, line: 3 },
            own: 5,
        }],
        nodes: vec![
            Node { parent: None, function: 0, tail: false },
            Node { parent: Some(0), function: 0, tail: true },
        ],
        costs: vec![
            Cost {
                quantity: 0,
                block: 0,
                direction: Direction::Rx,
                context: Context::Softirq(Softirq::NetRx),
                node: 0,
                calls: 1,
                own: 40,
            },
            Cost {
                quantity: 0,
                block: 0,
                direction: Direction::Rx,
                context: Context::Softirq(Softirq::NetRx),
                node: 1,
                calls: 1,
                own: 2,
            },
        ],
        losses: [("exact".to_string(), vec![Loss::new("c", 3, "m")])].into(),
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
    growing.blocks.clear();
    growing.costs.clear();
    growing.line_costs.clear();
    growing.code.clear();
    growing.source_texts.clear();
    growing.nodes.pop();
    growing.complete = false;
    // Where functions are defined may be found out last.
    growing.source_files.clear();
    growing.functions.iter_mut().for_each(|f| f.source = None);
    writer.save(&growing).unwrap();
    assert_eq!(read(&path).unwrap(), growing);
    writer.save(&small()).unwrap();
    assert_eq!(read(&path).unwrap(), small());
}

/// Check the results of the views.
#[test]
fn views() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::create(&path).unwrap().save(&small()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let total: (String, i64, i64) = connection
        .query_row("SELECT class, calls, own FROM function_cost", [], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?))
        })
        .unwrap();
    assert_eq!(total, ("udp rx".into(), 2, 42));
    let inclusive: i64 =
        connection.query_row("SELECT total FROM function_total", [], |r| r.get(0)).unwrap();
    assert_eq!(inclusive, 42, "a function that calls itself counts once");
    let edges: i64 = connection.query_row("SELECT count(*) FROM edge", [], |r| r.get(0)).unwrap();
    assert_eq!(edges, 2);
}

/// Check the errors of damaged recordings and other files.
#[test]
fn bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    assert!(matches!(read(&path), Err(StoreError::Missing(_))));

    fs::write(&path, "hello, this is no database at all, but long enough to be read").unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));

    fs::write(&path, "").unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));

    fs::remove_file(&path).unwrap();
    Writer::create(&path).unwrap().save(&small()).unwrap();
    let whole = fs::read(&path).unwrap();
    // Every page boundary except the last, and some places in between.
    for cut in (512..whole.len() - 1).step_by(1024) {
        fs::write(&path, &whole[..cut]).unwrap();
        match read(&path) {
            Err(StoreError::Damaged { .. }) => {}
            // The last page may be an empty table's: nothing is lost.
            Ok(recording) if cut > whole.len() - 4096 => assert_eq!(recording, small()),
            other => panic!("cut at {cut} of {}: {other:?}", whole.len()),
        }
    }

    fs::write(&path, &whole).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute("DELETE FROM function", []).unwrap();
    assert!(matches!(read(&path), Err(StoreError::Damaged { .. })));
    connection.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(read(&path), Err(StoreError::OtherVersion { found: 99, .. })));
    connection.pragma_update(None, "application_id", 1).unwrap();
    assert!(matches!(read(&path), Err(StoreError::NotOurs(_))));
}

/// Check that a recording whose writer was killed within a transaction opens, with the contents
/// before it.
#[test]
fn a_killed_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut before = small();
    before.complete = false;
    Writer::create(&path).unwrap().save(&before).unwrap();
    // A hot journal, as left by a killed writer: with a small cache, so that pages of the open
    // transaction are in the file already.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "cache_size", 1).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    for n in 1..2000 {
        connection
            .execute("INSERT INTO loss VALUES ('exact', ?, 1, 'm')", [format!("loss {n}")])
            .unwrap();
    }
    let torn = folder.path().join("torn.plumb");
    fs::copy(&path, &torn).unwrap();
    fs::copy(folder.path().join("a.plumb-journal"), folder.path().join("torn.plumb-journal"))
        .unwrap();
    assert_eq!(read(&torn).unwrap(), before);
}

/// A recording of times, without empty lists.
fn timed() -> Recording {
    let times = |count: u64| Times {
        count,
        total_ns: count * 1_000,
        min_ns: 3,
        max_ns: 1 << 40,
        buckets: vec![(3, 1), (511, count - 1)],
    };
    let mut recording = small();
    recording.blocks = vec![Block {
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: 1_000_000_000,
        ..recording.blocks[0].clone()
    }];
    recording.costs.clear();
    recording.line_costs.clear();
    recording.spans = [(0, 10, 9_000.0), (1, 4, 3_000.0)]
        .map(|(node, count, corrected_ns)| Span {
            block: 0,
            direction: Direction::Rx,
            of: SpanOf::Call(Call {
                context: Context::Softirq(Softirq::NetRx),
                node,
                corrected_ns,
                uncertainty_ns: 12.5,
            }),
            times: times(count),
        })
        .into();
    recording.spans.push(Span {
        block: 0,
        direction: Direction::Tx,
        of: SpanOf::Stage(Stage {
            order: 2,
            name: "qdisc".into(),
            kind: StageKind::Wait,
            passed_over: 2,
        }),
        times: times(8),
    });
    recording.attachments =
        vec![Attachment { function: 0, mechanism: Mechanism::KprobeSession, arguments: 2 }];
    recording.calibration = [None, Some(1)]
        .map(|cpu| Calibration {
            cpu,
            mechanism: Mechanism::FentryFexit,
            arguments: 2,
            bias_ns: 21.5,
            pair_ns: 85.25,
            uncertainty_ns: 0.5,
        })
        .into();
    recording.add(Subject::Block(0), &SEEN, FigureKey::label("udp tx xmit"), 10.0);
    recording.add(Subject::Block(0), &BUSY, FigureKey::ONLY, 0.25);
    recording.add(Subject::Arm(0), &GOAL_LOWER, FigureKey::number(1), 4e5);
    recording.set(&ATTACH, FigureKey::ONLY, 12e6);
    recording.hops = [("generator to tx0", 10, 0), ("tx0 to rx0", 9, 1)]
        .map(|(name, left, lost)| BlockHop {
            block: 0,
            hop: Hop {
                name: name.into(),
                entered: 10,
                left,
                dropped: BTreeMap::from([("UdpRcvbufErrors".into(), lost)])
                    .into_iter()
                    .filter(|(_, n)| *n > 0)
                    .collect(),
            },
        })
        .into();
    let failed = &mut recording.notes_of(0).failed;
    failed.insert("exact".into(), "too few packets".into());
    recording.notes_of(0).diagnosis = Some("in the ring".into());
    let notes = recording.notes_of(0);
    notes.facts.insert("nft.rules".into(), "10".into());
    notes.inert.insert("mtu_bytes".into(), "never cut".into());
    notes.irregular.insert(1, "given up".into());
    let why = "inlined".to_string();
    let not_measured = recording.not_measured.entry("functions".into());
    not_measured.or_default().insert("ip_rcv".into(), why);
    let over_budget = vec!["skb_put".to_string(), "eth_header".to_string()];
    recording.over_budget.insert("functions".into(), over_budget);
    let why = "its value is a word".to_string();
    recording.not_tried.insert("net.x".into(), why);
    for packet in [0, 1] {
        let step = Step {
            packet: 0,
            name: "udp_rcv".into(),
            begin_ns: 5 + packet,
            duration_ns: 7,
            cpu: 1,
            thread: 42,
            command: "a'b".into(),
            context: Context::Task,
        };
        recording.add_packets(Some(0), &[step]);
    }
    recording
}

/// Check that times read back as they were written, also in pieces.
#[test]
fn times_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut writer = Writer::create(&path).unwrap();
    let mut growing = timed();
    growing.spans.pop();
    growing.calibration.pop();
    growing.traces.pop();
    writer.save(&growing).unwrap();
    assert_eq!(read(&path).unwrap(), growing);
    writer.save(&timed()).unwrap();
    assert_eq!(read(&path).unwrap(), timed());
    // Unknown corrections are kept as such.
    let mut unknown = timed();
    if let SpanOf::Call(call) = &mut unknown.spans[0].of {
        call.corrected_ns = f64::NAN;
    }
    unknown.scalars[1].value = f64::NAN;
    let path = folder.path().join("b.plumb");
    Writer::create(&path).unwrap().save(&unknown).unwrap();
    let found = read(&path).unwrap();
    let corrected_ns = found.spans[0].call().unwrap().corrected_ns;
    assert!(corrected_ns.is_nan() && found.scalars[1].value.is_nan());
}

/// Check the views of times, and that their buckets match the model's.
#[test]
fn views_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::create(&path).unwrap().save(&timed()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let one = |sql: &str| -> f64 { connection.query_row(sql, [], |r| r.get(0)).unwrap() };
    assert_eq!(one("SELECT raw_ns_per_call FROM function_time"), 1_000.0);
    let each = one("SELECT corrected_ns_per_call FROM function_time");
    assert!((each - 12_000.0 / 14.0).abs() < 1e-9);
    // The second node is below the first: its time is not counted twice as self time.
    assert_eq!(one("SELECT self_ns FROM function_self_time"), 9_000.0);
    assert_eq!(one("SELECT ns_per_packet FROM stage_time"), 800.0);
    let calls = "SELECT sum(calls) * 1.0 FROM function_histogram WHERE from_ns = 3 AND to_ns = 3";
    assert_eq!(one(calls), 2.0);
    assert_eq!(one("SELECT count(*) * 1.0 FROM bucket_bounds"), BUCKETS as f64);
    let gaps = "SELECT count(*) * 1.0 FROM bucket_bounds a JOIN bucket_bounds b \
                ON b.bucket = a.bucket + 1 WHERE b.from_ns <> a.to_ns + 1";
    assert_eq!(one(gaps), 0.0);
    let last = "SELECT to_ns * 1.0 FROM bucket_bounds WHERE bucket = 511";
    assert_eq!(one(last), 35_f64.exp2() - 1.0);
}

/// Check that times with dangling references are reported as damage.
#[test]
fn times_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for table in ["span", "scalar", "hop"] {
        let path = folder.path().join(table);
        Writer::create(&path).unwrap().save(&timed()).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.execute(&format!("UPDATE {table} SET block = 7"), []).unwrap();
        assert!(matches!(read(&path), Err(StoreError::Damaged { .. })), "{table}");
    }
}
