use super::*;
use crate::class::{Context, Direction};
use crate::recording::{Ledger, Total};
use crate::samples::{Sample, Samples};
use crate::span::{Call, Times};
use crate::timing::{BUSY, DELIVERED, INSTRUCTIONS, SEEN};

/// Add a measured block with something of everything.
fn measure(recording: &mut Recording, arm: u32, index: u32, own: u64) {
    let block = recording.blocks.len() as u32;
    let quantity = recording.quantity(&INSTRUCTIONS);
    recording.blocks.push(Block {
        arm,
        instrument: INSTRUCTIONS.instrument.into(),
        index,
        ledger: Ledger {
            offered: 10,
            delivered: 8,
            dropped: [("rx_errors".to_string(), 2)].into(),
        },
        totals: vec![Total { quantity, kernel: own, user: 1 }],
        entered: 3,
        returned: 2,
        duration_ns: 1_000,
    });
    recording.costs.push(Cost {
        block,
        quantity,
        direction: Direction::Rx,
        context: Context::Task,
        node: 0,
        calls: 1,
        own,
    });
    recording.spans.push(Span {
        block,
        direction: Direction::Rx,
        of: SpanOf::Call(Call {
            context: Context::Task,
            node: 0,
            corrected_ns: 5.0,
            uncertainty_ns: 1.0,
        }),
        times: Times { count: 1, total_ns: own, min_ns: own, max_ns: own, buckets: vec![(16, 1)] },
    });
    let of = Subject::Block(block);
    recording.add(of, &BUSY, FigureKey::ONLY, own as f64);
    recording.add(of, &DELIVERED, FigureKey::ONLY, own as f64);
    recording.add(of, &SEEN, FigureKey::label("xmit"), 4.0);
    recording.note_measured(block, u64::from(index + 1) * 1_000);
}

/// Check that blocks of an arm become one, with the sums of all, the means of rates and shares, and the time of the
/// last; that arms stay apart; and that merging in steps loses nothing.
#[test]
fn blocks_are_merged() {
    let mut recording = Recording::default();
    for index in 0..4 {
        for arm in 0..2 {
            measure(&mut recording, arm, index, u64::from(100 * (arm + 1) + index));
        }
    }
    let mut at_once = recording.clone();
    at_once.merge_blocks(0, 2);
    recording.merge_blocks(0, 1);
    assert_eq!(recording.blocks.len(), 4);
    assert_eq!((recording.halvings(), recording.merged_in(|_| true)), (1, 2));
    recording.merge_blocks(0, 1);
    assert_eq!(recording, at_once);
    assert_eq!(recording.blocks.len(), 2);
    let block = &recording.blocks[1];
    assert_eq!((block.arm, block.index, block.duration_ns), (1, 0, 4_000));
    assert_eq!((block.ledger.offered, block.ledger.dropped["rx_errors"]), (40, 8));
    assert!(block.ledger.closes());
    assert_eq!((block.kernel(), block.user()), (806, 4));
    let costs: Vec<_> = recording.costs.iter().map(|c| (c.block, c.calls, c.own)).collect();
    assert_eq!(costs, [(0, 4, 406), (1, 4, 806)]);
    let span = &recording.spans[1];
    assert_eq!((span.times.count, span.times.min_ns, span.times.max_ns), (4, 200, 203));
    assert_eq!(span.call().unwrap().corrected_ns, 20.0);
    let figure = |quantity: &Declared| {
        let mut all = recording.scalars_of(quantity).filter(|s| s.block() == Some(1));
        let value = all.next().unwrap().value;
        assert!(all.next().is_none());
        value
    };
    assert_eq!((figure(&BUSY), figure(&SEEN)), (201.5, 16.0));
    assert_eq!((figure(&INTO_RUN), figure(&MERGED)), (4_000.0, 4.0));
    assert_eq!((recording.run_ns(), recording.measured_blocks()), (4_000, 8));
}

/// Check that a new block is merged into the one that it belongs to, and nothing else changes.
#[test]
fn into_the_last_one() {
    let mut recording = Recording::default();
    for index in 0..3 {
        measure(&mut recording, 0, index, 100);
    }
    recording.merge_blocks(0, 1);
    let before = recording.clone();
    assert_eq!(recording.blocks.len(), 2);
    measure(&mut recording, 0, 3, 7);
    recording.merge_blocks(2, 1);
    assert_eq!(recording.blocks.len(), 2);
    assert_eq!(recording.blocks[0], before.blocks[0]);
    assert_eq!(recording.costs[0], before.costs[0]);
    assert_eq!(recording.blocks[1].kernel(), 107);
    measure(&mut recording, 0, 4, 7);
    recording.merge_blocks(2, 1);
    assert_eq!(recording.blocks[2].index, 2);
}

/// Check that samples of merged blocks lose their times, which is counted, and not their counts.
#[test]
fn times_of_samples() {
    let mut recording = Recording::default();
    for index in 0..3 {
        measure(&mut recording, 0, index, 100);
        let sample = Sample {
            time_ns: 5,
            weight: 50,
            node: 1,
            thread: 0,
            cpu: 0,
            direction: Direction::Rx,
            context: Context::Task,
        };
        recording.add_samples(Samples::new(index, 0, [sample, sample]));
    }
    recording.merge_blocks(0, 1);
    let kept: Vec<u32> = recording.samples.iter().map(|s| s.block).collect();
    assert_eq!(kept, [1]);
    let of_node = recording.costs.iter().filter(|c| c.node == 1);
    let of_node: Vec<_> = of_node.map(|c| (c.block, c.calls, c.own)).collect();
    assert_eq!(of_node, [(0, 4, 200), (1, 2, 100)]);
    assert_eq!(recording.losses["exact"][0].count, 4);
}
