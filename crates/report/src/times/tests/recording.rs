//! Recordings of times that the tests render.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{
    Arm, Attachment, Block, Function, Ledger, Node, NodeId, Recording, env,
};
use netplumb_model::span::{Call, Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::spans::{self, By, Group, Slice, coarse};
use netplumb_model::timing::{BUSY, Calibration, DROPPED, Mechanism, OWN_CPU, SEEN, Step};
use netplumb_stats::histogram;

/// The time that an empty probe reads, and the cost of a pair.
const BIAS: u64 = 20;
const PAIR: u64 = 90;
/// Packets of a block.
pub(crate) const PACKETS: u64 = 1_000;
/// Blocks of an arm.
pub(crate) const BLOCKS: u32 = 5;

/// Some times around a mean, with one in fifty ten times as long; a block is a bit
/// slower or faster than another.
fn spread(mean: u64, count: u64, block: u32) -> Times {
    let mean = mean * (1_000 + u64::from(block * 7 % 5)) / 1_000;
    let mut times = Times { min_ns: u64::MAX, ..Times::default() };
    let mut add = |value: u64| {
        times.count += 1;
        times.total_ns += value;
        times.min_ns = times.min_ns.min(value);
        times.max_ns = times.max_ns.max(value);
        histogram::merge(&mut times.buckets, &[(histogram::bucket_of(value), 1)]);
    };
    // Pairs whose mean is the mean.
    for n in 0..count / 2 {
        let off = match n % 25 {
            0 => mean * 9 / 10,
            n => mean * n / 50,
        };
        add(mean - off);
        add(mean + off);
    }
    times
}

fn environment(clock: &str, lab: &str) -> BTreeMap<String, String> {
    [
        (env::CLOCK, clock),
        (env::UNIT, "nanoseconds"),
        (env::LAB, lab),
        (env::PLUMB, "0.1.0"),
        (env::ARGV, "plumb path --lab netns"),
        (env::STARTED, "1700000000"),
        (env::NAME, "path"),
        (env::KERNEL, "6.1.0-42-amd64"),
        (env::MITIGATIONS, "off"),
    ]
    .iter()
    .map(|(k, v)| (k.to_string(), v.to_string()))
    .collect()
}

fn arm() -> Arm {
    Arm {
        name: "udp".into(),
        proto: Proto::Udp,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::new(),
        made: None,
    }
}

fn blocks(instrument: &str) -> Vec<Block> {
    (0..BLOCKS)
        .map(|index| Block {
            arm: 0,
            instrument: instrument.into(),
            index,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 100_000_000,
        })
        .collect()
}

/// A node of a function below another, and the own time of each call.
struct Part {
    name: &'static str,
    parent: Option<usize>,
    direction: Direction,
    context: Context,
    own: u64,
}

const NET_RX: Context = Context::Softirq(Softirq::NetRx);

fn parts() -> Vec<Part> {
    let tx = Direction::Tx;
    let rx = Direction::Rx;
    [
        ("entry", None, Direction::Other, Context::Task, 500),
        ("udp_sendmsg", Some(0), tx, Context::Task, 300),
        ("ip_output", Some(1), tx, Context::Task, 400),
        ("walk", Some(2), tx, Context::Task, 200),
        ("walk", Some(3), tx, Context::Task, 100),
        ("tiny", Some(4), tx, Context::Task, 0),
        ("ip_rcv", None, rx, NET_RX, 250),
        ("udp_rcv\x1b[2J", Some(6), rx, NET_RX, 12_000),
        ("<b>udp_recvmsg", None, rx, Context::Task, 700),
    ]
    .map(|(name, parent, direction, context, own)| Part { name, parent, direction, context, own })
    .into()
}

/// Functions, five blocks: each packet calls each part once.
pub(crate) fn functions() -> Recording {
    functions_scaled(&[])
}

/// The same, with some functions' own time made larger by a factor.
pub(crate) fn functions_scaled(planted: &[(&str, f64)]) -> Recording {
    let parts = parts();
    let own = |part: &Part| {
        let factor = planted.iter().find(|(n, _)| *n == part.name);
        (part.own as f64 * factor.map_or(1.0, |(_, f)| *f)) as u64
    };
    let mut recording = Recording {
        environment: environment("functions", "netns"),
        arms: vec![arm()],
        blocks: blocks("functions"),
        complete: true,
        ..Recording::default()
    };
    let layers = [
        ("entry", "syscall"),
        ("udp_sendmsg", "transport"),
        ("ip_output", "network"),
        ("walk", "network"),
        ("ip_rcv", "network"),
        ("udp_rcv\x1b[2J", "transport"),
        ("<b>udp_recvmsg", "transport"),
    ];
    for part in &parts {
        if recording.functions.iter().all(|f| f.name != part.name) {
            let layer = layers.iter().find(|(n, _)| *n == part.name);
            recording.functions.push(Function {
                name: part.name.into(),
                module: (part.name == "walk").then(|| "fib".into()),
                layer: layer.map(|(_, l)| l.to_string()),
                address: 0,
                size_bytes: 0,
                source: None,
            });
        }
    }
    let function = |name: &str| {
        let found = recording.functions.iter().position(|f| f.name == name);
        found.unwrap() as u32
    };
    let nodes: Vec<Node> = parts
        .iter()
        .map(|p| Node {
            parent: p.parent.map(|n| n as NodeId),
            function: function(p.name),
            tail: false,
        })
        .collect();
    recording.nodes = nodes;
    for block in 0..BLOCKS {
        for (n, part) in parts.iter().enumerate() {
            let below: Vec<usize> = (n + 1..parts.len())
                .filter(|m| {
                    let mut up = Some(*m);
                    while let Some(at) = up.filter(|at| *at > n) {
                        up = parts[at].parent;
                    }
                    up == Some(n)
                })
                .collect();
            let inclusive: u64 = own(part) + below.iter().map(|m| own(&parts[*m])).sum::<u64>();
            let taken = BIAS + PAIR * below.len() as u64;
            let times = spread(inclusive + taken, PACKETS, block);
            let corrected = times.total_ns as f64 - (taken * PACKETS) as f64;
            recording.spans.push(Span {
                block,
                direction: part.direction,
                of: SpanOf::Call(Call {
                    context: part.context,
                    node: n as NodeId,
                    corrected_ns: corrected,
                    uncertainty_ns: (PACKETS * (1 + below.len() as u64)) as f64,
                }),
                times,
            });
        }
        for (quantity, item, value) in [
            (&SEEN, FigureKey::label("udp tx xmit"), PACKETS as f64),
            (&SEEN, FigureKey::label("udp rx ip_rcv"), PACKETS as f64 - 1.0),
            (&DROPPED, FigureKey::label("udp SOCKET_RCVBUFF"), 1.0),
            (&OWN_CPU, FigureKey::ONLY, 1_250_000.0),
            (&BUSY, FigureKey::ONLY, 0.284),
        ] {
            recording.add(Subject::Block(block), quantity, item, value);
        }
    }
    for (id, function) in recording.functions.iter().enumerate() {
        recording.attachments.push(Attachment {
            function: id as u32,
            mechanism: match function.name.as_str() {
                "walk" => Mechanism::Kretprobe,
                _ => Mechanism::FentryFexit,
            },
            arguments: 2,
        });
    }
    for (mechanism, bias_ns) in
        [(Mechanism::FentryFexit, BIAS as f64), (Mechanism::Kretprobe, BIAS as f64)]
    {
        for cpu in [None, Some(0), Some(1)] {
            recording.calibration.push(Calibration {
                cpu,
                mechanism,
                arguments: 2,
                bias_ns,
                pair_ns: PAIR as f64,
                uncertainty_ns: 1.0,
            });
        }
    }
    for (name, why) in [
        ("ip_finish_output", "inlined: the kernel has no such function"),
        ("__napi_poll", "the kernel refused: Invalid argument"),
    ] {
        let not_measured = recording.not_measured.entry("functions".into());
        not_measured.or_default().insert(name.into(), why.into());
    }
    let over_budget = ["skb_put", "skb_push", "skb_pull", "eth_header"];
    let over_budget = over_budget.map(String::from).to_vec();
    recording.over_budget.insert("functions".into(), over_budget);
    let meaning = "their time is in their callers' own";
    recording.add_loss("functions", Loss::new("calls deeper than 32", 1_234, meaning));
    recording
}

/// A packet's path in stages, and one packet step by step.
pub(crate) fn stages() -> Recording {
    stages_scaled(&[])
}

/// The same, with some stages longer by these nanoseconds.
pub(crate) fn stages_scaled(planted: &[(&str, u64)]) -> Recording {
    let mut recording = Recording {
        environment: environment("stages", "netns"),
        arms: vec![arm()],
        blocks: blocks("stages"),
        complete: true,
        ..Recording::default()
    };
    type Way = (Direction, &'static [(&'static str, StageKind, u64)]);
    let ways: [Way; 2] = [
        (
            Direction::Tx,
            &[
                ("system call", StageKind::Work, 1_200),
                ("qdisc", StageKind::Wait, 20_500),
                ("driver", StageKind::Work, 900),
                ("unaccounted", StageKind::Unaccounted, 150),
            ],
        ),
        (
            Direction::Rx,
            &[
                ("receive", StageKind::Work, 2_400),
                ("socket queue", StageKind::Wait, 350),
                ("wake-up to copy", StageKind::Wait, 14_000_000),
                ("unaccounted", StageKind::Unaccounted, 0),
            ],
        ),
    ];
    for block in 0..BLOCKS {
        for (direction, way) in ways {
            let mut total = Times::default();
            let mut order = 0;
            for (name, kind, mean) in way {
                let more = planted.iter().find(|(n, _)| n == name);
                let mean = mean + more.map_or(0, |(_, ns)| *ns);
                // The queue is passed over by a tenth of the packets.
                let passed_over = if *name == "qdisc" { PACKETS / 10 } else { 0 };
                let times = spread(mean, PACKETS - passed_over, block);
                total.total_ns += times.total_ns;
                recording.spans.push(Span {
                    block,
                    direction,
                    of: SpanOf::Stage(Stage {
                        order,
                        name: name.to_string(),
                        kind: *kind,
                        passed_over,
                    }),
                    times,
                });
                order += 1;
            }
            let sum = total.total_ns;
            total = spread(sum / PACKETS, PACKETS, 0);
            total.total_ns = sum;
            recording.spans.push(Span {
                block,
                direction,
                of: SpanOf::Stage(Stage {
                    order,
                    name: "total".into(),
                    kind: StageKind::Total,
                    passed_over: 0,
                }),
                times: total,
            });
        }
    }
    recording.add_packets(Some(0), &steps());
    recording
}

/// A packet from a task on one CPU to a softirq on another, and to its receiver.
fn steps() -> Vec<Step> {
    let step = |name: &str, begin: u64, duration: u64, cpu, thread, context| Step {
        packet: 0,
        name: name.into(),
        begin_ns: 5_000_000_000_000 + begin,
        duration_ns: duration,
        cpu,
        thread,
        command: if thread == 0 { "swapper/1" } else { "a \"sender\"" }.into(),
        context,
    };
    vec![
        step("system call", 0, 9_500, 0, 4_711, Context::Task),
        step("qdisc", 2_000, 3_001, 0, 4_711, Context::Task),
        step("napi", 12_000, 4_000, 1, 0, NET_RX),
        step("queued", 15_000, 0, 1, 0, NET_RX),
        step("copy", 22_000, 1_000, 1, 4_712, Context::Task),
    ]
}

/// Times between three events, some without the middle one, by device and over time.
pub(crate) fn between() -> Recording {
    let mut recording = Recording {
        environment: environment("spans", "host"),
        arms: vec![Arm { name: "all CPUs".into(), proto: Proto::Work, link: Link::Any, ..arm() }],
        blocks: blocks("spans"),
        complete: true,
        ..Recording::default()
    };
    let events = "block:block_rq_insert → block:block_rq_issue → block:block_rq_complete";
    for (key, value) in [("spans.events", events), ("spans.key", "request"), ("spans.by", "device")]
    {
        recording.environment.insert(key.into(), value.into());
    }
    const DIRECT: u64 = PACKETS / 5;
    let stages = [
        (1, "block_rq_insert → block_rq_issue", StageKind::Wait, 3_290_000, PACKETS - DIRECT),
        (2, "block_rq_insert → block_rq_complete", StageKind::Either, 590_000, DIRECT),
        (5, "block_rq_issue → block_rq_complete", StageKind::Wait, 580_000, PACKETS - DIRECT),
    ];
    for block in 0..BLOCKS {
        // A ledger is of packets; none were sent.
        recording.blocks[block as usize].ledger = Ledger::default();
        let mut total = Times::default();
        let mut put = |order, name: &str, kind, passed_over, times| {
            recording.spans.push(Span {
                block,
                direction: Direction::Run,
                of: SpanOf::Stage(Stage { order, name: name.into(), kind, passed_over }),
                times,
            });
        };
        for (order, name, kind, mean, count) in stages {
            let times = spread(mean, count, block);
            total.total_ns += times.total_ns;
            put(order, name, kind, PACKETS - count, times);
        }
        let sum = total.total_ns;
        total = spread(sum / PACKETS, PACKETS, 0);
        total.total_ns = sum;
        put(9, "total", StageKind::Total, 0, total.clone());
        for (name, mean, count) in
            [("sda", 3_900_000, PACKETS - DIRECT), ("nvme0n1", 90_000, DIRECT)]
        {
            recording.groups.push(Group {
                block,
                by: By::Device,
                name: name.into(),
                times: spread(mean, count, block),
            });
        }
        for slice in 0..4 {
            recording.slices.push(Slice {
                block,
                begin_ns: (u64::from(block) * 4 + slice) * 250_000_000,
                duration_ns: 250_000_000,
                buckets: coarse(&spread(3_870_000, PACKETS / 4, block).buckets),
            });
        }
        let more = block + 1 == BLOCKS;
        for (of, label, value) in [
            (&spans::BEGUN, None, PACKETS + 3 * u64::from(more)),
            (&spans::ENDED, None, PACKETS),
            (&spans::OPEN, None, 2 * u64::from(more)),
            (&spans::UNMATCHED, Some(spans::BEGUN_AGAIN), u64::from(more)),
            (&spans::APART, Some(spans::NOT_BEGUN), 4),
            (&spans::SEEN, Some("block:block_rq_insert"), PACKETS + 3),
            (&spans::SEEN, Some("block:block_rq_issue"), PACKETS - DIRECT),
            (&spans::SEEN, Some("block:block_rq_complete"), PACKETS + 4),
            (&spans::PROGRAMS, None, 3 * PACKETS * 400),
            (&spans::RUNS, None, 3 * PACKETS),
        ] {
            let item = label.map_or(FigureKey::ONLY, FigureKey::label);
            recording.add(Subject::Block(block), of, item, value as f64);
        }
    }
    recording
}
