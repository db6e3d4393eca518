//! The loop with a mock site: order, resumption, timeouts, Ctrl-C and failing arms.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::quantity::FigureKey;
use netplumb_model::recording::{Block, Cost, Ledger};
use netplumb_model::timing::DELIVERED;

use super::*;
use crate::schedule::{interleaved, whole};

const NAMES: [&str; 2] = ["one", "other"];

/// The behaviour of the mock for a turn.
type Does = Box<dyn Fn(&Turn) -> Result<Ended, EngineError>>;

/// Ends turns in the order in which they were started, or in reverse.
struct Mock {
    at_once: usize,
    backwards: bool,
    does: Does,
    begun: VecDeque<Turn>,
    order: Vec<Turn>,
    most: Rc<Cell<usize>>,
}

impl Mock {
    fn new(does: impl Fn(&Turn) -> Result<Ended, EngineError> + 'static) -> Mock {
        Mock {
            at_once: 1,
            backwards: false,
            does: Box::new(does),
            begun: VecDeque::new(),
            order: Vec::new(),
            most: Rc::default(),
        }
    }
}

impl Site for Mock {
    fn at_once(&self) -> usize {
        self.at_once
    }

    fn begin(&mut self, turn: Turn) {
        self.begun.push_back(turn);
        self.most.set(self.most.get().max(self.begun.len()));
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        let turn = match self.backwards {
            true => self.begun.pop_back(),
            false => self.begun.pop_front(),
        };
        let turn = turn.unwrap();
        self.order.push(turn.clone());
        let ended = (self.does)(&turn);
        if !matches!(ended, Ok(Ended::CannotHere(_))) {
            for index in turn.blocks.clone() {
                add(keeper.recording, turn.arm, NAMES[turn.by], index);
                // Before an error there was one block.
                if ended.is_err() {
                    break;
                }
            }
        }
        (turn, ended)
    }
}

fn add(recording: &mut Recording, arm: usize, name: &str, index: u32) {
    recording.blocks.push(Block {
        arm: arm as u32,
        instrument: name.into(),
        index,
        ledger: Ledger::default(),
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: 0,
    });
    let block = recording.blocks.len() as u32 - 1;
    recording.add(Subject::Block(block), &DELIVERED, FigureKey::ONLY, f64::from(index));
    recording.costs.push(Cost {
        block,
        quantity: 0,
        direction: netplumb_model::class::Direction::Tx,
        context: netplumb_model::class::Context::Task,
        node: 0,
        calls: 1,
        own: u64::from(block),
    });
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

struct Ran {
    outcome: Result<(), EngineError>,
    /// Number of blocks each time that the recording was saved.
    kept: Vec<usize>,
    done: Vec<u32>,
}

fn carry_out(
    site: &mut Mock,
    turns: impl IntoIterator<Item = Turn>,
    recording: &mut Recording,
    cancel: &Cancel,
) -> Ran {
    let (mut kept, mut done) = (Vec::new(), Vec::new());
    let mut save = |recording: &Recording| {
        kept.push(recording.blocks.len());
        Ok(())
    };
    let mut keeper = Keeper::new(recording, &mut save, cancel);
    let outcome = run(site, turns, &NAMES, &mut keeper, &mut |_, over| {
        done.push(over);
    });
    Ran { outcome, kept, done }
}

fn never() -> Cancel {
    Arc::new(AtomicBool::new(false))
}

/// Check that turns run in the given order, that results are saved at once, and that the number of
/// completed blocks is reported.
#[test]
fn in_order_and_kept() {
    let mut site = Mock::new(|_| Ok(Ended::Measured));
    let mut recording = Recording::default();
    let turns: Vec<Turn> = interleaved(3, 2, 0..2, 7).collect();
    let ran = carry_out(&mut site, turns.clone(), &mut recording, &never());
    ran.outcome.unwrap();
    assert_eq!(site.order, turns);
    assert_eq!(ran.kept, (1..=12).collect::<Vec<_>>());
    assert_eq!(ran.done, (1..=12).collect::<Vec<_>>());
    let of = |arm, name| {
        let of = |b: &&Block| is_of(b, arm, name);
        recording.blocks.iter().filter(of).count()
    };
    assert!((0..3).all(|arm| NAMES.iter().all(|name| of(arm, name) == 2)));
}

/// Check that the site's number of turns run in parallel, no more and no fewer, and that they may
/// end in any order.
#[test]
fn several_at_once() {
    let mut site = Mock::new(|_| Ok(Ended::Measured));
    (site.at_once, site.backwards) = (3, true);
    let mut recording = Recording::default();
    let ran = carry_out(&mut site, whole(7, 1, 0..5), &mut recording, &never());
    ran.outcome.unwrap();
    assert_eq!(site.most.get(), 3);
    assert_eq!(recording.blocks.len(), 35);
    assert_eq!(ran.done.last(), Some(&35));
    assert!(site.order.iter().map(|turn| turn.arm).ne(0..7));
}

/// Check that an error ends the run: no turn is started, running ones are waited for and saved, and
/// the first error is reported; likewise for a timeout.
#[test]
fn errors_end_the_run() {
    let slow = |turn: &Turn| match turn.arm {
        1 => Err(VmError::Timeout { what: "end the arm", seconds: 1, console: Vec::new() }.into()),
        2 => Err(EngineError::Guest("gone".into())),
        _ => Ok(Ended::Measured),
    };
    let mut site = Mock::new(slow);
    site.at_once = 2;
    let mut recording = Recording::default();
    let ran = carry_out(&mut site, whole(9, 1, 0..4), &mut recording, &never());
    let error = ran.outcome.unwrap_err();
    assert!(matches!(error, EngineError::Vm(VmError::Timeout { .. })));
    let ended: Vec<usize> = site.order.iter().map(|turn| turn.arm).collect();
    assert_eq!(ended, [0, 1, 2]);
    // Of the two that failed, the block before that.
    assert_eq!(ran.kept, [4, 5, 6]);
    assert_eq!(ran.done, [4]);
}

/// Check that Ctrl-C ends the run before the next turn, and that everything measured is kept.
#[test]
fn ctrl_c() {
    let cancel = never();
    let pressed = Arc::clone(&cancel);
    let mut site = Mock::new(move |turn| {
        if turn.arm == 2 {
            pressed.store(true, Ordering::Relaxed);
        }
        Ok(Ended::Measured)
    });
    let mut recording = Recording::default();
    let ran = carry_out(&mut site, whole(9, 1, 0..1), &mut recording, &cancel);
    let error = ran.outcome.unwrap_err();
    assert!(matches!(error, EngineError::Vm(VmError::Interrupted)));
    assert_eq!(recording.blocks.len(), 3);
    assert_eq!(ran.kept, [1, 2, 3]);
}

/// Check that an arm that can't be measured by an instrument has a note with the reason and no more
/// turns with it, that its turns with another instrument run, and that other arms are not affected.
#[test]
fn arms_that_fail() {
    let mut site = Mock::new(|turn| match (turn.arm, turn.by) {
        (1, 0) => Ok(Ended::CannotHere("no such path".into())),
        _ => Ok(Ended::Measured),
    });
    let mut recording = Recording::default();
    let ran = carry_out(&mut site, interleaved(3, 2, 0..10, 3), &mut recording, &never());
    ran.outcome.unwrap();
    let tried = site.order.iter().filter(|t| (t.arm, t.by) == (1, 0));
    assert_eq!(tried.count(), 1);
    assert_eq!(recording.failed(1, NAMES[0]), Some("no such path"));
    assert_eq!(recording.failed(1, NAMES[1]), None);
    assert_eq!(recording.blocks.len(), 50);
    assert_eq!(ran.done.last(), Some(&60));
}

/// Check that a site can end an unlimited number of turns.
#[test]
fn the_last_one() {
    let mut site = Mock::new(|turn| match turn.blocks.start {
        4 => Ok(Ended::Last),
        _ => Ok(Ended::Measured),
    });
    let turns = (0..).map(|index| Turn { arm: 0, by: 0, blocks: index..index + 1 });
    let mut recording = Recording::default();
    let ran = carry_out(&mut site, turns, &mut recording, &never());
    ran.outcome.unwrap();
    assert_eq!(recording.blocks.len(), 5);
}

/// Check that an error of saving ends the run, and that an error of the site takes precedence.
#[test]
fn a_full_disk() {
    for (fails, wanted) in [(false, "full"), (true, "gone")] {
        let mut site = Mock::new(move |_| match fails {
            true => Err(EngineError::Guest("gone".into())),
            false => Ok(Ended::Measured),
        });
        let (mut recording, cancel) = (Recording::default(), never());
        let mut save = |_: &Recording| Err("full".to_string());
        let mut keeper = Keeper::new(&mut recording, &mut save, &cancel);
        let turns = whole(3, 1, 0..1);
        let outcome = run(&mut site, turns, &NAMES, &mut keeper, &mut |_, _| {});
        assert_eq!(outcome.unwrap_err().to_string(), wanted);
        assert_eq!(site.order.len(), 1);
    }
}

/// Check resumption: complete arms are not run again, incomplete ones are removed with their
/// figures, by instrument; and a recording of another plan is refused.
#[test]
fn taken_up() {
    let mut recording = Recording { arms: arms(3), ..Recording::default() };
    for (arm, name, blocks) in [(0, "one", 2), (1, "one", 1), (1, "other", 2), (2, "one", 2)] {
        for index in 0..blocks {
            add(&mut recording, arm, name, index);
        }
    }
    let failed = &mut recording.notes_of(1).failed;
    failed.insert("one".into(), "cut short".into());
    let done = take_up(&mut recording, &arms(3), &NAMES, 2).unwrap();
    assert_eq!(done, BTreeSet::from([(0, 0), (1, 1), (2, 0)]));
    assert_eq!(recording.blocks.len(), 6);
    // The third block was removed.
    let owns: Vec<(u32, u64)> = recording.costs.iter().map(|c| (c.block, c.own)).collect();
    assert_eq!(owns, [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5), (5, 6)]);
    assert_eq!(recording.scalars.len(), 6);
    assert!(recording.notes.is_empty());
    assert!(take_up(&mut recording, &arms(2), &NAMES, 2).is_err());
    assert!(take_up(&mut recording, &arms(3), &NAMES[..1], 2).is_err());
    // Samples of guests are drawn in the turn that counts, and come and go with it.
    let mut counted = Recording { arms: arms(2), ..Recording::default() };
    for (arm, name, blocks) in
        [(0, "samples", 2), (0, "exact", 2), (1, "samples", 2), (1, "exact", 1)]
    {
        for index in 0..blocks {
            add(&mut counted, arm, name, index);
        }
    }
    let done = take_up(&mut counted, &arms(2), &["exact", "stages"], 2).unwrap();
    assert_eq!(done, BTreeSet::from([(0, 0)]));
    assert_eq!(counted.blocks.len(), 4);
    assert!(counted.blocks.iter().all(|block| block.arm == 0));
    let mut empty = Recording::default();
    assert!(take_up(&mut empty, &arms(2), &NAMES, 2).unwrap().is_empty());
    assert_eq!(empty.arms.len(), 2);
}
