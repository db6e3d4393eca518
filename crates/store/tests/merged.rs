//! Files of long runs, whose blocks are merged while they are written.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, MAX_BLOCKS, Node, Recording, Total,
};
use netplumb_model::samples::{Sample, Samples, Thread};
use netplumb_model::span::{Call, Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::timing::{BUSY, INSTRUCTIONS, SAMPLED};
use netplumb_store::{Writer, read};

const NODES: u32 = 12;

fn empty() -> Recording {
    let mut recording = Recording::default();
    recording.environment.insert("clock".into(), "exact".into());
    recording.arms.push(Arm {
        name: "udp".into(),
        proto: Proto::Udp,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: Default::default(),
        made: None,
    });
    recording.threads.push(Thread { pid: 1, tid: 1, name: "init".into() });
    for node in 0..NODES {
        recording.functions.push(Function {
            name: format!("f{node}"),
            module: None,
            layer: None,
            address: u64::from(node),
            size_bytes: 1,
            source: None,
        });
        recording.nodes.push(Node { parent: None, function: node, tail: false });
    }
    recording
}

/// Add a block of a second, with something of all that may be in it.
fn measure(recording: &mut Recording, index: u32) {
    let block = recording.blocks.len() as u32;
    let quantity = recording.quantity(&INSTRUCTIONS);
    let sampled = recording.quantity(&SAMPLED);
    let total = |quantity, kernel| Total { quantity, kernel, user: 0 };
    recording.blocks.push(Block {
        arm: 0,
        instrument: "exact".into(),
        index,
        ledger: Ledger {
            offered: 10,
            delivered: 9,
            dropped: [("rx_errors".to_string(), 1)].into(),
        },
        totals: vec![total(quantity, u64::from(NODES) * 5)],
        entered: u64::from(NODES),
        returned: 1,
        duration_ns: 1_000_000_000,
    });
    let times = Times { count: 1, total_ns: 16, min_ns: 16, max_ns: 16, buckets: vec![(16, 1)] };
    for node in 0..NODES {
        recording.costs.push(Cost {
            block,
            quantity,
            direction: Direction::Rx,
            context: Context::Task,
            node,
            calls: 1,
            own: 5,
        });
        recording.spans.push(Span {
            block,
            direction: Direction::Rx,
            of: SpanOf::Call(Call {
                context: Context::Task,
                node,
                corrected_ns: 9.0,
                uncertainty_ns: 1.0,
            }),
            times: times.clone(),
        });
    }
    recording.spans.push(Span {
        block,
        direction: Direction::Rx,
        of: SpanOf::Stage(Stage {
            order: 0,
            name: "receive".into(),
            kind: StageKind::Work,
            passed_over: 2,
        }),
        times,
    });
    recording.blocks.push(Block {
        arm: 0,
        instrument: "samples".into(),
        index,
        ledger: Ledger::default(),
        totals: vec![total(sampled, 7)],
        entered: 1,
        returned: 1,
        duration_ns: 1_000_000_000,
    });
    recording.add_samples(Samples::new(
        block + 1,
        sampled,
        [Sample {
            time_ns: u64::from(index) * 1_000_000_000,
            weight: 7,
            node: 0,
            thread: 0,
            cpu: 0,
            direction: Direction::Rx,
            context: Context::Task,
        }],
    ));
    recording.add(Subject::Block(block), &BUSY, FigureKey::ONLY, 0.25);
    recording.note_measured(block, u64::from(index + 1) * 1_000_000_000);
}

/// Add rounds, merge as a long run does, and save each; returns the size of the file at its largest.
fn run(path: &Path, rounds: u32) -> (Recording, u64) {
    let mut recording = empty();
    let mut writer = Writer::create(path).unwrap();
    let (mut halvings, mut largest) = (0, 0);
    for round in 0..rounds {
        let from = recording.blocks.len() as u32;
        measure(&mut recording, round);
        recording.merge_blocks(from, halvings);
        if recording.blocks.iter().any(|b| b.index >= MAX_BLOCKS) {
            recording.merge_blocks(0, 1);
            halvings += 1;
        }
        writer.save(&recording).unwrap();
        largest = largest.max(fs::metadata(path).unwrap().len());
    }
    (recording, largest)
}

/// Check that a file has at any time what the recording has in memory, whether blocks were merged, and
/// that it does not grow with the length of the run.
#[test]
fn files_of_long_runs() {
    let directory = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    for rounds in [100, 129, 300, 1_600] {
        let path = directory.path().join(format!("{rounds}.plumb"));
        let (recording, size) = run(&path, rounds);
        let mut known = read(&path).unwrap();
        assert_eq!(known.blocks, recording.blocks, "{rounds}");
        assert_eq!(known.spans, recording.spans, "{rounds}");
        assert_eq!(known.losses, recording.losses, "{rounds}");
        assert_eq!(known.samples, recording.samples, "{rounds}");
        let by_place = |costs: &mut Vec<Cost>| {
            costs.sort_by_key(|c| (c.block, c.quantity, c.node));
            costs.clone()
        };
        let mut costs = recording.costs.clone();
        assert_eq!(by_place(&mut known.costs), by_place(&mut costs), "{rounds}");
        let offered: u64 = known.blocks.iter().map(|b| b.ledger.offered).sum();
        assert_eq!(offered, u64::from(rounds) * 10);
        assert_eq!(known.measured_blocks(), 2 * u64::from(rounds));
        assert_eq!(known.run_ns(), u64::from(rounds) * 1_000_000_000);
        assert!(known.blocks.len() <= 2 * MAX_BLOCKS as usize);
        sizes.push(size);
    }
    let [_, short, _, long] = sizes[..] else {
        panic!("{sizes:?}");
    };
    // Histograms may be a little longer, and pages not all full.
    assert!(long <= short * 5 / 4, "{sizes:?}");
}
