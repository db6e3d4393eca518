//! The thread of a turn, and the news that it sends.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use netplumb_lab::vm::process::Extra;
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::timing::TimingSpec;

use super::run::GuestRun;
use crate::error::EngineError;
use crate::extras;
use crate::long::Long;
use crate::measure::{ArmCounts, measure, measure_on};
use crate::origin::{Boot, Origin};
use crate::plan::Plan;
use crate::prototypes::GuestPrototypes;
use crate::run::{Options, Progress};
use crate::schedule::Turn;
use crate::traces::StreamExtras;
use crate::wires::Wires;

/// The arms of one boot.
pub(super) struct Group<'a> {
    pub(super) boot: Boot<'a>,
    /// Their origins, by what is prepared.
    pub(super) origins: Mutex<Vec<Arc<Origin>>>,
}

impl Group<'_> {
    /// Created on first use; others wait for it.
    pub(super) fn origin(
        &self,
        plan: &RunPlan,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Arc<Origin>, EngineError> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = origins.iter().find(|o| o.is_for(plan)) {
            return Ok(Arc::clone(origin));
        }
        let new = Arc::new(self.boot.origin(plan, &|event| progress(event))?);
        origins.push(Arc::clone(&new));
        Ok(new)
    }
}

/// Shared by all turns.
pub(super) struct Shared<'a> {
    pub(super) run: &'a GuestRun,
    /// The plan, including the arms of a scan.
    pub(super) plan: &'a Plan,
    pub(super) options: &'a Options,
    pub(super) groups: &'a [Group<'a>],
    /// Total number of blocks.
    pub(super) all: u32,
    pub(super) over: AtomicU32,
    pub(super) progress: &'a (dyn Fn(Progress) + Sync),
    /// The state of a long run.
    pub(super) long: Option<Long<'a>>,
    /// Of a long run, the number of each arm's first block.
    pub(super) first: Vec<u32>,
    /// Whether guests of a long run are to stop, since one has failed.
    pub(super) stop: AtomicBool,
}

/// Messages from the thread of a turn.
pub(super) enum News {
    /// A round of a guest of a long run.
    Round { turn: Turn, first: bool, origin: Arc<Origin>, measured: Box<ArmCounts> },
    /// The end of a turn.
    Over(TurnResult),
}

/// The result of a turn.
pub(super) struct TurnResult {
    pub(super) turn: Turn,
    /// Whether the recording's facts come from this guest; facts of other kernels are notes on
    /// their arms.
    pub(super) first: bool,
    pub(super) result: Result<(Arc<Origin>, ArmResult), EngineError>,
}

/// The results of an arm.
pub(super) enum ArmResult {
    /// Instructions that the plugin counted.
    Counted(Box<ArmCounts>),
    /// Nothing more: its rounds were sent before.
    InRounds,
    /// The guest's replies about its blocks, up to an error.
    Timed(Vec<Reply>, Option<EngineError>),
}

impl Shared<'_> {
    fn group(&self, arm: usize) -> Option<&Group<'_>> {
        let has = |group: &&Group<'_>| group.boot.guest.arms.contains(&arm);
        self.groups.iter().find(has)
    }

    fn one_over(&self) {
        let over = self.over.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(Progress::Blocks(over.min(self.all), self.all));
    }

    /// Run a guest until the time is over.
    fn go_on(
        &self,
        turn: &Turn,
        first: bool,
        origin: &Arc<Origin>,
        plan: &RunPlan,
        wires: Extra,
        sender: &SyncSender<News>,
    ) -> Result<(), EngineError> {
        let is_over = || self.long.is_none_or(|long| long.is_over());
        let mut next = self.first.get(turn.arm).copied().unwrap_or(0);
        // One round there is, however long the guest took to start.
        if next > 0 && is_over() {
            return Ok(());
        }
        let sampling = self.run.sampling.as_ref();
        let sampling = sampling.map(|sampling| sampling.from_block(next));
        let outcome =
            measure_on(origin, plan, wires, sampling.as_ref(), self.options, &mut |measured| {
                let begin = next;
                next += measured.blocks.len() as u32;
                let round = News::Round {
                    turn: Turn { blocks: begin..next, ..turn.clone() },
                    first: first && begin == 0,
                    origin: Arc::clone(origin),
                    measured: Box::new(measured),
                };
                sender.send(round).is_ok() && !is_over() && !self.stop.load(Ordering::Relaxed)
            });
        if outcome.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        outcome
    }

    pub(super) fn one(
        &self,
        turn: &Turn,
        first: bool,
        sender: &SyncSender<News>,
    ) -> Result<(Arc<Origin>, ArmResult), EngineError> {
        let arm = &self.plan.arms[turn.arm];
        let spec = self.run.spec(turn.by);
        let programs = extras::objects(arm)?;
        let plan = RunPlan { programs, ..self.plan.run_plan(arm) };
        let plan = match spec {
            None => RunPlan { aligned: !self.options.quick, ..plan },
            Some(_) => RunPlan {
                aligned: false,
                rate_pps: self.run.rate_pps,
                stream: self.run.stream,
                block_ns: self.run.block_ns,
                ..plan
            },
        };
        let group = self.group(turn.arm).ok_or(EngineError::OtherPlan("other arms"))?;
        let origin = group.origin(&plan, self.progress)?;
        (self.progress)(Progress::Arm(arm.name.clone()));
        let (wires, extra) = Wires::from_arm(arm, plan.topology.spec.links())?;
        let mut seen = match spec {
            None if self.long.is_some() => {
                self.go_on(turn, first, &origin, &plan, extra, sender)?;
                ArmResult::InRounds
            }
            None => {
                let known = match &self.run.trace {
                    Some(_) => {
                        let (kernel, guest) = (group.boot.kernel, group.boot.guest);
                        let (tree, _) = extras::module_tree(kernel, guest)?;
                        Some(GuestPrototypes::new(kernel, tree, &self.options.cancel))
                    }
                    None => None,
                };
                let beside = StreamExtras {
                    sampling: self.run.sampling.as_ref(),
                    trace: self.run.trace.as_ref(),
                    known: known.as_ref(),
                };
                let done = || self.one_over();
                let measured = measure(&origin, &plan, extra, beside, self.options, &done);
                ArmResult::Counted(Box::new(measured))
            }
            Some(spec) => {
                let mut replies = Vec::new();
                let bare = self.run.is_beside_bare(turn.by);
                let error = self.time(&origin, spec, plan, (extra, bare), &mut replies).err();
                ArmResult::Timed(replies, error)
            }
        };
        // The guest has ended. The way it ended is the cause, if there is one.
        let wrong = wires.check().err();
        match (&mut seen, wrong) {
            (_, None) => {}
            (ArmResult::InRounds, Some(wrong)) => return Err(wrong),
            (ArmResult::Counted(measured), wrong) => {
                measured.error = measured.error.take().or(wrong)
            }
            (ArmResult::Timed(_, error), wrong) => *error = error.take().or(wrong),
        }
        Ok((origin, seen))
    }

    /// Run a guest without a plugin, whose agent times the blocks.
    fn time(
        &self,
        origin: &Origin,
        spec: &TimingSpec,
        plan: RunPlan,
        (extra, bare): (Extra, bool),
        replies: &mut Vec<Reply>,
    ) -> Result<(), EngineError> {
        let request = Request::Time { spec: spec.clone(), plan, bare };
        let mut machine = origin.start(&[request], extra, self.options)?;
        machine.go_on()?;
        machine.answers(self.options.timeout, |reply| {
            if let Reply::TimedBlock(_) = reply {
                self.one_over();
            }
            replies.push(reply);
            Ok(())
        })?;
        Ok(())
    }
}
