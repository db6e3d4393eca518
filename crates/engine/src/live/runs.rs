//! Whole runs of a command, each a block: from before it is started until it has ended.

use std::time::Duration;

use netplumb_lab::vm::process::VmError;
use netplumb_model::events;
use netplumb_model::message::Exit;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Block, Ledger};
use netplumb_model::timing::BUSY;

use super::child::{Held, Running};
use super::machine::{Change, Machine, Moved, after_open};
use super::plan::{RunsArm, RunsPlan, WorkPlan};
use super::work::{LAST_WORDS, finish};
use super::{LiveEnd, LiveEvent, Probes};
use crate::error::EngineError;
use crate::schedule::{Turn, interleaved};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use netplumb_agent::outside::Cpus;

/// How often to see whether the run was cancelled.
const NAP: Duration = Duration::from_millis(100);
/// The same where stacks and files of programs are read meanwhile, which have to be there still.
const SHORT_NAP: Duration = Duration::from_millis(10);

/// Run each arm's command as often as planned.
pub(super) fn run(
    work: &WorkPlan,
    runs: &RunsPlan,
    mut probes: Probes<'_, '_>,
    keeper: &mut Keeper<'_>,
) -> Result<LiveEnd, EngineError> {
    let changes: Vec<&[Change]> = runs.arms.iter().map(|arm| &arm.changes[..]).collect();
    let machine = Machine::begin(&changes)?;
    probes.attach(Some(0), &|spec| spec.clone(), keeper.recording)?;
    keeper.recording.arms = runs.arms.iter().map(|arm| arm.arm.clone()).collect();
    for arm in 0..runs.arms.len() {
        machine.note(keeper.recording, arm);
    }
    let (tell, seed) = (probes.tell, probes.options.seed);
    let nap = match probes.name() == events::INSTRUMENT {
        true => NAP,
        false => SHORT_NAP,
    };
    let mut site = OneAtATime::new(Runs {
        work,
        arms: &runs.arms,
        machine: &machine,
        nap,
        probes,
        end: LiveEnd::default(),
        moved: Moved::default(),
        is_only: runs.arms.len() == 1 && runs.blocks == 1,
    });
    let arms = runs.arms.len();
    let all = arms as u32 * runs.blocks;
    let turns = interleaved(arms, 1, 0..runs.blocks, seed);
    let ran = site::run(&mut site, turns, &[], keeper, &mut |recording, over| {
        (tell.borrow_mut())(LiveEvent::Block(recording, over, Some(all)));
    });
    let Runs { end, mut probes, moved, .. } = site.site;
    moved.note(keeper.recording);
    let ended = machine.end();
    if let (Err(_), Err(error)) = (&ran, &ended) {
        (tell.borrow_mut())(LiveEvent::Note(error.to_string()));
    }
    match ran {
        Err(EngineError::Vm(VmError::Interrupted)) if end.interrupted => {}
        ran => ran?,
    }
    ended?;
    finish(work, end, &mut probes, keeper.recording)
}

/// The site: runs one after the other.
struct Runs<'a, 't> {
    work: &'a WorkPlan,
    arms: &'a [RunsArm],
    machine: &'a Machine,
    nap: Duration,
    probes: Probes<'a, 't>,
    /// How the first one that failed did, or else the last one.
    end: LiveEnd,
    moved: Moved,
    /// Whether there is one run, of one arm: even when interrupted, its results are worth a report.
    is_only: bool,
}

impl Alone for Runs<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let arm = &self.arms[turn.arm];
        // Restored when it is dropped, after the command has ended.
        let mut applied = self.machine.set(&arm.changes, keeper.cancel())?;
        let (held, other) = match arm.changes.iter().any(|change| change.after.is_some()) {
            true => {
                let (held, other) =
                    Held::new().map_err(EngineError::host("make a pair of sockets"))?;
                (Some(held), Some(other))
            }
            false => (None, None),
        };
        let before = Moved::so_far(keeper.recording, turn.arm)?;
        let cpus = Cpus::read();
        self.probes.open()?;
        let output = self.work.output_to_stderr.into();
        let started = Running::start(&arm.command, None, &[], output, other);
        let mut command = started
            .map_err(|source| EngineError::Command { name: arm.command[0].clone(), source })?;
        if let Some(mut held) = held {
            let is_open = loop {
                let is_open = held.is_open(SHORT_NAP);
                let waiting = EngineError::host("wait until the command has opened its file");
                if let Some(is_open) = is_open.map_err(waiting)? {
                    break is_open;
                }
                if keeper.is_cancelled() {
                    return Err(VmError::Interrupted.into());
                }
                self.probes.poll()?;
            };
            if is_open {
                after_open(&mut applied, &arm.changes)?;
                let go_on = EngineError::host("tell the command to go on");
                held.go_on().map_err(go_on)?;
            }
        }
        let ended = loop {
            let ended = command.wait(self.nap);
            let ended = ended.map_err(EngineError::host("wait for the command"))?;
            if ended.is_some() {
                break ended;
            }
            if keeper.is_cancelled() && !self.is_only {
                return Err(VmError::Interrupted.into());
            }
            if keeper.is_cancelled() {
                self.end.interrupted = true;
                let ended = command.interrupt(LAST_WORDS);
                break ended.map_err(EngineError::host("wait for the command"))?;
            }
            self.probes.poll()?;
        };
        // One that keeps running after an interruption is killed.
        drop(command);
        let window = self.probes.close()?.unwrap_or_default();
        self.moved.add(keeper.recording, turn.arm, before)?;
        drop(applied);
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        if matches!(self.end.command, None | Some(Exit::Code(0))) {
            self.end.command = ended;
        }
        let recording = &mut *keeper.recording;
        recording.blocks.push(Block {
            arm: turn.arm as u32,
            instrument: self.probes.name().into(),
            index: turn.blocks.start,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: window.duration_ns,
        });
        let block = recording.blocks.len() as u32 - 1;
        self.probes.gather(recording, &[block], &window);
        self.probes.name_late(recording);
        if let Some(busy) = busy {
            recording.add(Subject::Block(block), &BUSY, FigureKey::ONLY, busy);
        }
        Ok(Ended::Measured)
    }
}
