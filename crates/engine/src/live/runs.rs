//! Whole runs of a command, each a block: from before it is started until it has ended.

use std::time::Duration;

use netplumb_lab::vm::process::VmError;
use netplumb_model::class::Proto;
use netplumb_model::message::Exit;
use netplumb_model::quantity::{Item, Of};
use netplumb_model::recording::{Arm, Block, Ledger};
use netplumb_model::timing::BUSY;

use super::child::Running;
use super::work::WorkPlan;
use super::{LiveEnd, LiveEvent, Probes};
use crate::error::EngineError;
use crate::outside::Cpus;
use crate::schedule::Turn;
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};

/// How often to see whether the run was cancelled.
const NAP: Duration = Duration::from_millis(100);

/// Run a command so many times.
pub(super) fn run(
    work: &WorkPlan,
    runs: u32,
    mut probes: Probes<'_, '_>,
    keeper: &mut Keeper<'_>,
) -> Result<LiveEnd, EngineError> {
    probes.attach(Some(0), &|spec| spec.clone(), keeper.recording)?;
    keeper.recording.arms = vec![Arm {
        proto: Proto::Command,
        ..work.arm()
    }];
    let tell = probes.tell;
    let mut site = OneAtATime::new(Runs {
        work,
        probes,
        end: LiveEnd::default(),
    });
    let turns = (0..runs).map(|index| Turn {
        arm: 0,
        by: 0,
        blocks: index..index + 1,
    });
    site::run(&mut site, turns, &[], keeper, &mut |recording, over| {
        (tell.borrow_mut())(LiveEvent::Block(recording, over, Some(runs)));
    })?;
    Ok(site.site.end)
}

/// The site: runs one after the other.
struct Runs<'a, 't> {
    work: &'a WorkPlan,
    probes: Probes<'a, 't>,
    /// How the first one that failed did, or else the last one.
    end: LiveEnd,
}

impl Alone for Runs<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let cpus = Cpus::read();
        self.probes.open()?;
        let words = &self.work.command;
        let started = Running::start(words, None, &[], self.work.output_to_stderr);
        let mut command = started.map_err(|source| EngineError::Command {
            name: words[0].clone(),
            source,
        })?;
        let ended = loop {
            let ended = command.wait(NAP);
            if let Some(ended) = ended.map_err(EngineError::host("wait for the command"))? {
                break ended;
            }
            if keeper.is_cancelled() {
                return Err(VmError::Interrupted.into());
            }
            self.probes.poll()?;
        };
        let window = self.probes.close()?.unwrap_or_default();
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        if matches!(self.end.command, None | Some(Exit::Code(0))) {
            self.end.command = Some(ended);
        }
        let recording = &mut *keeper.recording;
        recording.blocks.push(Block {
            arm: 0,
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
        if let Some(busy) = busy {
            recording.add(Of::Block(block), &BUSY, Item::ONLY, busy);
        }
        Ok(Ended::Measured)
    }
}
