use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, MERGED, Node, Total};
use netplumb_model::timing::INSTRUCTIONS;

use super::*;

const BLOCKS: u32 = 60;

/// A run of some hours, of functions with these costs at a time, in hours.
fn run(hours: f64, costs: &[&dyn Fn(f64) -> f64]) -> Recording {
    let mut recording = Recording {
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: Default::default(),
            made: None,
        }],
        ..Recording::default()
    };
    let quantity = recording.quantity(&INSTRUCTIONS);
    for (node, _) in (0..).zip(costs) {
        recording.functions.push(Function {
            name: format!("f{node}"),
            module: None,
            layer: None,
            address: 0,
            size_bytes: 0,
            source: None,
        });
        recording.nodes.push(Node { parent: None, function: node, tail: false });
    }
    for block in 0..BLOCKS {
        let at = hours * f64::from(block + 1) / f64::from(BLOCKS);
        // The same noise in each run: a few instructions, either way.
        let noise = f64::from(block * 7 % 11) - 5.0;
        let own = |cost: &dyn Fn(f64) -> f64| (100.0 * cost(at) + noise) as u64;
        let all: u64 = costs.iter().map(|cost| own(*cost)).sum();
        recording.blocks.push(Block {
            arm: 0,
            instrument: "exact".into(),
            index: block,
            ledger: Ledger { offered: 100, delivered: 100, ..Ledger::default() },
            totals: vec![Total { quantity, kernel: all, user: 0 }],
            entered: 1,
            returned: 1,
            duration_ns: 0,
        });
        for (node, cost) in (0..).zip(costs) {
            recording.costs.push(Cost {
                block,
                quantity,
                direction: Direction::Tx,
                context: Context::Task,
                node,
                calls: 1,
                own: own(*cost),
            });
        }
        let of = Subject::Block(block);
        recording.add(of, &MERGED, FigureKey::ONLY, 512.0);
        recording.add(of, &INTO_RUN, FigureKey::ONLY, at * NS_PER_HOUR);
    }
    recording
}

fn note_lines(recording: &Recording) -> Vec<String> {
    notes(recording).into_iter().map(|note| note.line()).collect()
}

/// Check that a run without drift has an upper bound on it, with no warning.
#[test]
fn none() {
    let recording = run(12.0, &[&|_| 900.0, &|_| 100.0]);
    let lines = note_lines(&recording);
    assert_eq!(
        lines[0],
        "run       12 h; 30,720 blocks measured; up to 512 are merged into one, so that an arm has at \
         most 128"
    );
    assert!(lines[1].starts_with("drift     udp tx: none; at most 0.00"), "{lines:?}");
    assert!(lines[1].contains("% an hour, of 1000."), "{lines:?}");
    assert!(notes(&recording).iter().all(|note| !note.warning));
    let drift = &drifts(&recording)[0];
    assert_eq!((drift.drifts, drift.functions.len()), (Some(false), 0));
    assert_eq!(drift.series.len(), BLOCKS as usize);
}

/// Check that the note on a drift has its size and direction, and the functions that drift and no
/// others.
#[test]
fn rises() {
    let recording = run(12.0, &[&|_| 900.0, &|hours| 100.0 + 10.0 * hours, &|_| 50.0]);
    let note = &notes(&recording)[1];
    assert!(note.warning);
    assert!(note.text.starts_with("udp tx: rises by 0.90% an hour"), "{}", note.text);
    assert!(note.text.contains("of the whole an hour: f1 +0.90%;"), "{}", note.text);
    let drift = &drifts(&recording)[0];
    let trend = drift.trend.as_ref().unwrap();
    assert!(trend.low <= 0.9 && trend.p < 1e-6 && trend.step.is_none());
    let falls = run(0.5, &[&|hours| 900.0 - 180.0 * hours]);
    let text = &notes(&falls)[1].text;
    assert!(text.starts_with("udp tx: falls by 10.5% in 30 min"), "{text}");
}

/// Check that the note on a step calls it a step and has its time.
#[test]
fn steps() {
    let recording = run(12.0, &[&|hours| if hours > 8.0 { 1_100.0 } else { 1_000.0 }]);
    let text = &notes(&recording)[1].text;
    assert!(text.starts_with("udp tx: a step after 8 h: from 1000."), "{text}");
    assert!(text.contains("(+10.0%)"), "{text}");
}

/// Check that other runs have no note on drift, and that short ones are reported as too short.
#[test]
fn short_runs() {
    let mut recording = run(1.0, &[&|_| 900.0]);
    recording.scalars.retain(|scalar| scalar.block() < Some(5));
    let lines = note_lines(&recording);
    assert!(lines[1].contains("too few blocks"), "{lines:?}");
    recording.scalars.clear();
    assert!(notes(&recording).is_empty() && drifts(&recording).is_empty());
}
