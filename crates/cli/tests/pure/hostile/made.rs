//! Recordings that no guest made, and changes to them.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, LineCost, Node, Recording, SourceLine, Total, env,
};
use netplumb_model::span::{Call, Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::timing::{INSTRUCTIONS, SEEN, Step};
use netplumb_stats::histogram::bucket_of;
use netplumb_store::Writer;

use crate::common::Place;

const PACKETS: u64 = 100;

fn arm(name: &str, proto: Proto) -> Arm {
    Arm {
        name: name.into(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::from([("kernel".into(), "debian".into())]),
        made: None,
    }
}

fn base(clock: &str, unit: &str) -> Recording {
    let facts =
        [(env::CLOCK, clock), (env::UNIT, unit), (env::NAME, "made"), (env::KERNEL, "6.1.0")];
    let names = ["entry", "udp_sendmsg", "ip_output", "dev_queue_xmit"];
    Recording {
        environment: facts.map(|(k, v)| (k.to_string(), v.to_string())).into(),
        arms: vec![arm("udp", Proto::Udp), arm("raw", Proto::Raw)],
        functions: names
            .into_iter()
            .zip(0..)
            .map(|(name, n)| Function {
                name: name.into(),
                module: (n == 3).then(|| "veth".into()),
                layer: (n > 0).then(|| "network".into()),
                address: 0xffff_ffff_8100_0000 + 0x100 * n,
                size_bytes: 0x100,
                source: (n == 1).then_some(SourceLine { file: 0, line: 7 }),
            })
            .collect(),
        source_files: vec!["net/ipv4/udp.c".into()],
        nodes: (0..4)
            .map(|n: u32| Node { parent: n.checked_sub(1), function: n, tail: n == 3 })
            .collect(),
        losses: BTreeMap::from([(
            "exact".to_string(),
            vec![Loss::new("calls without an address", 3, "they are where they were called")],
        )]),
        complete: true,
        ..Recording::default()
    }
}

fn block(arm: u32, index: u32) -> Block {
    Block {
        arm,
        instrument: "exact".into(),
        index,
        ledger: Ledger {
            offered: PACKETS,
            delivered: PACKETS - 1,
            dropped: BTreeMap::from([("UdpRcvbufErrors".into(), 1)]),
        },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: 0,
    }
}

/// Two arms of two blocks under the clock `exact`.
pub(super) fn exact() -> Recording {
    let mut recording = base("exact", "instructions");
    recording.quantity(&INSTRUCTIONS);
    for n in 0..4 {
        let mut new = block(n % 2, n / 2);
        new.totals = vec![Total::default()];
        for node in 0..4 {
            let own = PACKETS * u64::from(10 + 7 * node + n % 2);
            recording.costs.push(Cost {
                block: n,
                quantity: 0,
                direction: Direction::Tx,
                context: match node {
                    3 => Context::Softirq(Softirq::NetTx),
                    _ => Context::Task,
                },
                node,
                calls: PACKETS,
                own,
            });
            new.totals[0].kernel += own;
            new.entered += PACKETS;
            new.returned += PACKETS;
        }
        recording.blocks.push(new);
        recording.line_costs.push(LineCost {
            block: n,
            function: 1,
            source: SourceLine { file: 0, line: 9 },
            own: PACKETS,
        });
    }
    recording
}

/// Two arms of two blocks under a clock of nanoseconds, with functions and stages.
pub(super) fn timed() -> Recording {
    let mut recording = base("functions", "nanoseconds");
    let times = |ns: u64| Times {
        count: PACKETS,
        total_ns: ns * PACKETS,
        min_ns: ns,
        max_ns: ns,
        buckets: vec![(bucket_of(ns), PACKETS)],
    };
    for n in 0..4 {
        let mut new = block(n % 2, n / 2);
        new.duration_ns = 1_000_000_000;
        recording.blocks.push(new);
        for node in 0..4 {
            recording.spans.push(Span {
                block: n,
                direction: Direction::Tx,
                of: SpanOf::Call(Call {
                    context: Context::Task,
                    node,
                    corrected_ns: 90_000.0,
                    uncertainty_ns: 12.5,
                }),
                times: times(u64::from(4_000 - 900 * node)),
            });
        }
        let stages = [
            ("system call", StageKind::Work, 700),
            ("qdisc wait", StageKind::Wait, 300),
            ("total", StageKind::Total, 1_000),
        ];
        for (order, (name, kind, ns)) in (0..).zip(stages) {
            recording.spans.push(Span {
                block: n,
                direction: Direction::Tx,
                of: SpanOf::Stage(Stage { order, name: name.into(), kind, passed_over: 0 }),
                times: times(ns),
            });
        }
        let place = FigureKey::label("udp tx xmit");
        recording.add(Subject::Block(n), &SEEN, place, PACKETS as f64);
    }
    let step = Step {
        packet: 0,
        name: "ip_output".into(),
        begin_ns: 5,
        duration_ns: 7,
        cpu: 1,
        thread: 42,
        command: "ping".into(),
        context: Context::Task,
    };
    recording.add_packets(Some(0), &[step]);
    recording
}

/// Write a recording.
pub(super) fn save(place: &Place, name: &str, recording: &Recording) {
    let mut writer = Writer::create(&place.path(name)).unwrap();
    writer.save(recording).unwrap();
}

/// A copy of a recording, changed by SQL as anyone may change it.
pub(super) fn changed(place: &Place, from: &str, to: &str, sql: &str) {
    std::fs::copy(place.path(from), place.path(to)).unwrap();
    let connection = rusqlite::Connection::open(place.path(to)).unwrap();
    for config in [
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE,
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY,
    ] {
        connection.set_db_config(config, false).unwrap();
    }
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
}
