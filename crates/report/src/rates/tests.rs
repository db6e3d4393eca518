mod many;
mod page;

use std::collections::BTreeMap;

use netplumb_model::bench::quantities::{HANDLED, HANDLED_CPU_UNKNOWN, LIMIT};
use netplumb_model::bench::{BlockRates, CpuUse, Generated, Handled, Hop, Limit};
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Recording, env};
use netplumb_model::span::Times;
use netplumb_stats::judge::Verdict;

use crate::shape::{Shape, shape};

use super::{arms, document};
use crate::diff::arms::{ArmPair, Pairs};
use crate::diff::{self, Sides};
use crate::view::View;

/// A block of an arm in which `packets` came through in half a second.
pub(crate) fn block(packets: u64, lost: u64, limit_pps: Option<f64>) -> BlockRates {
    let sent = packets + lost;
    let dropped = |cause: &str, n: u64| {
        let some = (n > 0).then(|| (cause.to_string(), n));
        some.into_iter().collect::<BTreeMap<_, _>>()
    };
    BlockRates {
        window_ns: 500_000_000,
        generated: vec![Generated {
            cpu: 1,
            frames: sent,
            sent,
            bytes: sent * 60,
            batches: sent / 16,
            ..Generated::default()
        }],
        handled: Handled {
            packets: BTreeMap::from([(1, packets)]),
            bytes: packets * 60,
            ..Handled::default()
        },
        hops: vec![
            Hop {
                name: "generator to tx0".into(),
                entered: 2 * sent,
                left: 2 * sent,
                dropped: BTreeMap::new(),
            },
            Hop {
                name: "tx0 to the path".into(),
                entered: 2 * sent,
                left: 2 * packets,
                dropped: dropped("ring of rx0 full", 2 * lost),
            },
        ],
        queues: BTreeMap::from([(0, 700_000), (1, 300_000)]),
        cpus: vec![
            CpuUse { cpu: 0, busy: 0.02, second: Some(0.02), ..CpuUse::default() },
            CpuUse {
                cpu: 1,
                busy: 0.99,
                second: Some(0.95),
                others: None,
                steal: 0.01,
                softirq: 0.4,
            },
        ],
        limit: limit_pps.map_or(Limit::NotAsked, Limit::at_pps),
        of_run: Vec::new(),
    }
}

/// Three paths: one limited by the generator, one with losses and a block that does not
/// add up, and one that can't run here.
pub(super) fn recording() -> Recording {
    let arm = |name: &str| Arm {
        name: name.into(),
        proto: Proto::Udp,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 60,
        knobs: BTreeMap::from([("path".into(), name.into())]),
        made: None,
    };
    let mut recording = Recording {
        arms: ["xdp", "tc", "dpdk"].map(arm).into(),
        complete: true,
        ..Recording::default()
    };
    for (key, value) in [
        (env::CLOCK, "rates"),
        (env::KERNEL, "6.18.0"),
        ("bench.setting", "drop, 60-byte UDP frames over IPv4, 1 flow, 1 core"),
        ("generator.method", "XDP test run with live frames, batches of 64"),
        ("cpu.second", "sched_switch"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    let [tc, dpdk] = ["tc", "dpdk"].map(|name| {
        let arms = &recording.arms;
        arms.iter().position(|a| a.name == name).unwrap()
    });
    let why = "dpdk-testpmd is not installed: apt-get install dpdk";
    let failed = &mut recording.notes_of(dpdk).failed;
    failed.insert("rates".into(), why.into());
    recording.notes_of(tc).diagnosis = Some("7 at rx0, NETFILTER_DROP".into());
    let mut missing = block(1_000, 0, Some(40e6));
    missing.hops[1].left -= 7;
    let mut stamped = block(5_000_000, 0, Some(10.1e6));
    stamped.handled.latency = Some(Times {
        count: 3,
        total_ns: 3_000,
        min_ns: 900,
        max_ns: 1_100,
        buckets: vec![(93, 1), (97, 2)],
    });
    let blocks = [
        (0, block(5_100_000, 0, Some(10.1e6))),
        (1, block(2_000_000, 100, Some(40e6))),
        (0, stamped),
        (1, block(2_100_000, 0, Some(40e6))),
        (1, missing),
    ];
    for (number, (arm, measured)) in blocks.iter().enumerate() {
        recording.blocks.push(Block {
            arm: *arm,
            instrument: "rates".into(),
            index: number as u32 / 2,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: measured.window_ns,
        });
        measured.add_to(&mut recording, number as u32);
    }
    recording
}

fn golden(name: &str, text: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/rates");
    netplumb_testkit::golden(&std::path::Path::new(folder).join(name), text);
}

/// Check the outputs of a bench, wide and narrow, and as data.
#[test]
fn outputs() {
    let recording = recording();
    assert_eq!(shape(&recording), Shape::Rates);
    golden("wide.txt", &document(&recording, None, false).terminal(120));
    golden("narrow.txt", &document(&recording, None, false).terminal(80));
    golden("all.txt", &document(&recording, None, true).terminal(100));
    golden("blocks.csv", &document(&recording, None, false).csv());
    golden("document.json", &document(&recording, None, false).json());
}

/// Check that a block that does not add up is in no mean, and that a path's bottleneck
/// is reported.
#[test]
fn what_counts() {
    let recording = recording();
    let arms = arms(&recording);
    let [xdp, tc, dpdk] = &arms[..] else { panic!("{arms:?}") };
    assert!(xdp.is_generator_bound() && !tc.is_generator_bound());
    assert_eq!(xdp.handled_pps().unwrap().value, 10_100_000.0);
    assert_eq!((tc.valid.len(), tc.invalid.len()), (2, 1));
    assert_eq!(tc.handled_pps().unwrap().value, 4_100_000.0);
    let why = tc.invalid.keys().next().unwrap();
    assert_eq!(why, "tx0 to the path: 7 of 2000 went missing");
    assert!(dpdk.failed.is_some() && dpdk.handled_pps().is_none());
    assert_eq!(tc.hops()[1].dropped.values().sum::<u64>(), 200);
}

/// Check that CPU time per packet is busy CPUs divided by the rate, in every figure; and
/// that a second CPU that handled a few packets does not double it.
#[test]
fn cpu_time_of_a_packet() {
    let figure = |recording: &Recording| {
        let arms = arms(recording);
        arms[0].cpu_ns_per_packet().unwrap()
    };
    let recording = recording();
    let ns = figure(&recording);
    // 1.01 CPUs at 10.2 and at 10 million a second.
    assert!((ns - 1.01 * (98.039_215_686 + 100.0) / 2.0).abs() < 1e-6, "{ns}");
    let json: serde_json::Value =
        serde_json::from_str(&document(&recording, None, false).json()).unwrap();
    let reported = json["arms"][0]["cpu_ns_per_packet"].as_f64().unwrap();
    assert!((reported - ns).abs() < 1e-6, "{reported}");
    let text = document(&recording, None, false).terminal(120);
    assert!(text.contains("CPU ns/packet") && text.contains("  100  "), "{text}");
    let mut strayed = recording.clone();
    let handled = strayed.quantity(&HANDLED);
    for scalar in &mut strayed.scalars {
        if scalar.quantity == handled {
            scalar.value -= 3.0;
        }
    }
    for block in 0..strayed.blocks.len() as u32 {
        strayed.add(Subject::Block(block), &HANDLED, FigureKey::number(0), 3.0);
    }
    assert_eq!(figure(&strayed), ns);
}

/// Check that a generator whose rate by itself reads 0, or is far below what came through,
/// bounds nothing and is reported as unknown.
#[test]
fn a_limit_of_nothing_is_unknown() {
    for limit in [f64::NAN, 0.0, 1e6] {
        let mut recording = recording();
        let of_limit = recording.quantity(&LIMIT);
        let scalars = recording.scalars.iter_mut();
        for scalar in scalars.filter(|s| s.quantity == of_limit) {
            scalar.value = limit;
        }
        let json: serde_json::Value =
            serde_json::from_str(&document(&recording, None, false).json()).unwrap();
        let arm = &json["arms"][0];
        assert!(arm["generator_bound"].is_null(), "{arm:#}");
        assert!(arm["generator_ns_per_packet"].is_null(), "{arm:#}");
        assert!(json["blocks"][0]["limit_pps"].is_null());
        let text = document(&recording, None, false).terminal(120);
        assert!(!text.contains("█ generator-bound"), "{text}");
        assert!(text.contains("whether these are generator-bound is unknown: xdp, tc"), "{text}");
    }
}

/// Check that packets that are not counted by CPU have no CPU number.
#[test]
fn packets_of_no_cpu() {
    let mut recording = recording();
    let [known, unknown] =
        [&HANDLED, &HANDLED_CPU_UNKNOWN].map(|quantity| recording.quantity(quantity));
    for scalar in &mut recording.scalars {
        if scalar.quantity == known {
            (scalar.quantity, scalar.item) = (unknown, FigureKey::ONLY);
        }
    }
    let text = document(&recording, None, false).json();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let block = &json["blocks"][0];
    assert_eq!(block["handled_packets"], serde_json::json!({}));
    assert_eq!(block["handled_packets_cpu_unknown"], 5_100_000);
    assert_eq!(block["handled_pps"], 10_200_000.0);
}

/// Check that names and causes from elsewhere can't control the terminal.
#[test]
fn hostile_text() {
    let mut recording = recording();
    recording.arms[1].name = "tc\x1b[2J".into();
    recording.environment.insert("bench.setting".into(), "\x1b]0;x\x07".into());
    let text = document(&recording, None, true).terminal(80);
    assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
}

/// Check that the arm that takes longer for a packet is slower, with the difference
/// reported, and that an arm is no slower than itself.
#[test]
fn compared() {
    let mut recording = recording();
    recording.arms.truncate(2);
    recording.blocks.clear();
    recording.scalars.clear();
    recording.hops.clear();
    recording.spans.clear();
    for (index, packets) in [(0, 4_000_000), (1, 4_040_000), (2, 3_980_000)] {
        for (arm, share) in [(0, 1), (1, 2)] {
            recording.blocks.push(Block {
                arm,
                instrument: "rates".into(),
                index,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 500_000_000,
            });
            let number = recording.blocks.len() as u32 - 1;
            block(packets / share, 0, None).add_to(&mut recording, number);
        }
    }
    let sides = Sides {
        before: &recording,
        after: &recording,
        before_name: "a.plumb",
        after_name: "a.plumb",
    };
    let pairs = [(0, 1), (0, 0)].map(|(before, after)| ArmPair { before, after });
    let pairs = Pairs { pairs: pairs.into(), ..Pairs::default() };
    let diff = diff::compare(sides, &pairs, &[]);
    let judged = |n: usize| diff.classes[n].whole().unwrap().judged.clone();
    assert_eq!(judged(0).statistically().unwrap().verdict, Verdict::Slower);
    let ratio = judged(0).statistically().unwrap().ratio.unwrap().value;
    assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
    assert!(!judged(1).differs());
    golden("diff.txt", &diff::terminal::render(&diff, &View::default()));
    golden("diff.md", &diff::markdown::render(&diff, 12));
    golden("diff.csv", &diff::csv(&diff, None));
    golden("diff.json", &diff::json::render(&diff));
}
