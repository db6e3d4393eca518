//! Long runs by a made-up clock: a block takes one second.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Block, Cost, INTO_RUN, Ledger, MERGED, Total};
use netplumb_model::timing::{BUSY, INSTRUCTIONS};

use super::*;
use crate::schedule::{Turn, interleaved};
use crate::site::{self, Ended, Keeper, Site};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const NODES: u32 = 40;

/// Time that has passed, in nanoseconds.
#[derive(Default)]
struct Made(AtomicU64);

impl Made {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A site whose blocks take a second.
struct Seconds<'a> {
    clock: &'a Made,
    turn: Option<Turn>,
    /// Blocks until the run is killed: what was not saved by then is lost.
    left: &'a RefCell<u32>,
}

impl Site for Seconds<'_> {
    fn begin(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        let turn = self.turn.take().unwrap();
        self.clock.pass(SECOND);
        let mut left = self.left.borrow_mut();
        if *left == 0 {
            return (turn, Err(EngineError::Guest("killed".into())));
        }
        *left -= 1;
        let recording = &mut *keeper.recording;
        let block = recording.blocks.len() as u32;
        let quantity = recording.quantity(&INSTRUCTIONS);
        let number = turn.blocks.start;
        recording.blocks.push(Block {
            arm: turn.arm as u32,
            instrument: "exact".into(),
            index: number,
            ledger: Ledger { offered: 100, delivered: 100, ..Ledger::default() },
            totals: vec![Total { quantity, kernel: u64::from(NODES) * 10, user: 0 }],
            entered: 1,
            returned: 1,
            duration_ns: SECOND.as_nanos() as u64,
        });
        recording.costs.extend((0..NODES).map(|node| Cost {
            block,
            quantity,
            direction: Direction::Tx,
            context: Context::Task,
            node,
            calls: 1,
            own: 10,
        }));
        recording.add(Subject::Block(block), &BUSY, FigureKey::ONLY, 0.5);
        (turn, Ok(Ended::Measured))
    }
}

fn arms(count: usize) -> Vec<Arm> {
    let arm = |n| Arm {
        name: format!("arm {n}"),
        proto: Proto::Udp,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: Default::default(),
        made: None,
    };
    (0..count).map(arm).collect()
}

/// What a run of this duration leaves: the recording as saved last, and the most blocks and costs
/// that were ever in memory. It is killed after `blocks` blocks.
fn session(recording: &mut Recording, whole: Duration, blocks: u32) -> (Recording, [usize; 2]) {
    const ARMS: usize = 2;
    let made = Made::default();
    let left = RefCell::new(blocks);
    take_up(recording, Some(&arms(ARMS)), &["exact"]).unwrap();
    let clock = || made.now();
    let long = Long::begin(Some(whole), &clock, recording);
    let first = long.next(recording, None);
    let mut saved = Recording::default();
    let mut most = [0; 2];
    let mut save = |recording: &Recording| {
        most = [most[0].max(recording.blocks.len()), most[1].max(recording.costs.len())];
        // As a file is, but not each second of days.
        if recording.blocks.len() < 8 || *left.borrow() == 0 || long.is_over() {
            saved = recording.clone();
        }
        Ok(())
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let mut keeper = Keeper::new(recording, &mut save, &cancel).with_long(Some(long));
    let rounds = (first..).take_while(|_| !long.is_over());
    let turns = interleaved(ARMS, 1, rounds, 7);
    let mut site = Seconds { clock: &made, turn: None, left: &left };
    let outcome = site::run(&mut site, turns, &["exact"], &mut keeper, &mut |_, _| {});
    assert_eq!(outcome.is_err(), *left.borrow() == 0);
    (saved, most)
}

fn whole(hours: u32) -> (Recording, [usize; 2]) {
    session(&mut Recording::default(), hours * HOUR, u32::MAX)
}

fn packets(recording: &Recording) -> u64 {
    recording.blocks.iter().map(|b| b.ledger.offered).sum()
}

/// Check that a run takes its duration, that nothing that it measured is lost by merging, and that
/// it has no more blocks after two days than after one hour.
#[test]
fn bounded() {
    for hours in [1, 12, 48] {
        let (recording, most) = whole(hours);
        let seconds = u64::from(hours) * 3_600;
        assert_eq!(recording.run_ns(), seconds * 1_000_000_000);
        assert_eq!(packets(&recording), seconds * 100);
        assert_eq!(recording.measured_blocks(), seconds);
        let own: u64 = recording.costs.iter().map(|c| c.own).sum();
        assert_eq!(own, seconds * u64::from(NODES) * 10);
        // Of two arms, with the one that was just measured.
        let blocks = 2 * MAX_BLOCKS as usize + 1;
        assert!(most[0] <= blocks, "{hours} h: {most:?}");
        assert!(most[1] <= blocks * NODES as usize, "{hours} h: {most:?}");
        assert!(recording.blocks.len() >= MAX_BLOCKS as usize, "{hours} h");
        assert!(recording.scalars.len() <= 3 * blocks + 1);
        // All blocks are as long, but for the last of each arm.
        let merged: Vec<f64> = recording.scalars_of(&MERGED).map(|s| s.value).collect();
        let longest = f64::from(recording.merged_in(|_| true));
        let shorter = merged.iter().filter(|n| **n < longest).count();
        assert!(shorter <= 2, "{hours} h: {shorter} of {}", merged.len());
        let busy = recording.scalars_of(&BUSY);
        assert!(busy.into_iter().all(|s| (s.value - 0.5).abs() < 1e-9));
    }
}

/// Check that a run that was killed and resumed ends as one that was not: in its time, its counts and
/// its blocks; however often, and whether blocks had been merged or not.
#[test]
fn resumed() {
    let hours = 2;
    let (straight, _) = whole(hours);
    for kills in [vec![1_000], vec![100, 1, 256, 257, 3_001]] {
        let mut recording = Recording::default();
        for blocks in &kills {
            recording = session(&mut recording, hours * HOUR, *blocks).0;
        }
        let (resumed, _) = session(&mut recording, hours * HOUR, u32::MAX);
        let sessions = resumed.scalars_of(&SESSIONS).next().unwrap().value;
        assert_eq!(sessions, kills.len() as f64 + 1.0);
        // A kill in the middle of a round costs only the other arm's block of the round.
        let lost = packets(&straight).abs_diff(packets(&resumed)) / 100;
        assert!(lost <= 2 * kills.len() as u64, "{lost}");
        assert_eq!(resumed.blocks.len(), straight.blocks.len());
        let seconds = resumed.run_ns() as f64 / 1e9;
        assert!((7_200.0..7_202.0).contains(&seconds), "{seconds}");
        let times: Vec<f64> = resumed.scalars_of(&INTO_RUN).map(|s| s.value).collect();
        let of_arm = |arm| {
            let of = |at: &usize| resumed.blocks[*at].arm == arm;
            (0..times.len()).filter(of).map(|at| times[at]).collect::<Vec<_>>()
        };
        assert!((0..2).all(|arm| of_arm(arm).is_sorted()));
    }
}

/// Check that a run that is over measures nothing more, and that a recording of another run, or of a
/// number of blocks, is refused.
#[test]
fn taken_up() {
    let mut recording = whole(1).0;
    let before = packets(&recording);
    let (_, _) = session(&mut recording, HOUR, u32::MAX);
    assert_eq!(packets(&recording), before);
    assert!(take_up(&mut recording, Some(&arms(3)), &["exact"]).is_err());
    assert!(take_up(&mut recording, Some(&arms(2)), &["stages"]).is_err());
    assert!(take_up(&mut recording, None, &["exact"]).is_ok());
    recording.scalars.clear();
    assert!(take_up(&mut recording, Some(&arms(2)), &["exact"]).is_err());
}
