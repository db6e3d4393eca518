//! The site of guests: it begins turns, and adds their results to the recording.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::Scope;
use std::time::{Duration, Instant};

use netplumb_model::experiment::{Load, Ruleset};
use netplumb_model::message::Reply;
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::QEMU_PEAK;

use super::replies::add_block;
use super::turn::{ArmResult, News, Shared, TurnResult};
use crate::collect::{Executed, SourceLines, Translation};
use crate::error::EngineError;
use crate::extras;
use crate::gather::Gatherer;
use crate::index::Index;
use crate::kernel_lines::KernelLines;
use crate::long;
use crate::measure::ArmCounts;
use crate::origin::Origin;
use crate::run::{Progress, add_losses};
use crate::schedule::Turn;
use crate::site::{Ended, Keeper, Site};
use crate::traces;

/// How often the rounds of a long run are saved.
const KEPT_EVERY: Duration = Duration::from_secs(1);

/// The site: guests, in parallel up to the number of jobs.
pub(super) struct Guests<'scope, 'env, 'a> {
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) shared: &'env Shared<'env>,
    pub(super) at_once: usize,
    pub(super) channel: (SyncSender<News>, Receiver<News>),
    pub(super) begun: usize,
    /// When a round was saved last.
    pub(super) kept: Instant,
    pub(super) lines: KernelLines,
    pub(super) index: &'a mut Index,
}

impl Site for Guests<'_, '_, '_> {
    fn at_once(&self) -> usize {
        self.at_once
    }

    /// QEMU is killed when the thread that started it ends, so the thread stays until the turn is
    /// over.
    fn begin(&mut self, turn: Turn) {
        let first = self.begun == 0;
        self.begun += 1;
        let (sender, shared) = (self.channel.0.clone(), self.shared);
        self.scope.spawn(move || {
            let result = shared.one(&turn, first, &sender);
            // There is no receiver if the run has panicked.
            let _ = sender.send(News::Over(TurnResult { turn, first, result }));
        });
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        let mut unsaved = None;
        let ran = loop {
            // INVARIANT: this side of the channel has a sender, so that it is never closed.
            #[allow(clippy::expect_used)]
            match self.channel.1.recv().expect("a turn is under way") {
                News::Over(ran) => break ran,
                // Rounds of other turns are received, so that these can end.
                News::Round { .. } if unsaved.is_some() => {}
                News::Round { turn, first, origin, measured } => {
                    let added = self.counted(&turn, first, &origin, *measured, keeper.recording);
                    let kept = added.and_then(|_| self.keep(keeper));
                    if kept.is_err() {
                        self.shared.stop.store(true, Ordering::Relaxed);
                    }
                    unsaved = kept.err();
                }
            }
        };
        if let Some(error) = unsaved {
            return (ran.turn, Err(error));
        }
        let merged = match ran.result {
            Ok((_, ArmResult::InRounds)) => Ok(Ended::Measured),
            Ok((origin, ArmResult::Counted(measured))) => {
                self.counted(&ran.turn, ran.first, &origin, *measured, keeper.recording)
            }
            Ok((origin, ArmResult::Timed(replies, error))) => {
                self.timed(&ran.turn, ran.first, &origin, &replies, keeper.recording);
                error.map_or(Ok(Ended::Measured), |error| self.ended_by(&ran.turn, error))
            }
            Err(error) => Err(error),
        };
        (ran.turn, merged)
    }
}

impl Guests<'_, '_, '_> {
    /// Merge the measurements of a guest that continues, save them from time to time, and report
    /// them.
    fn keep(&mut self, keeper: &mut Keeper<'_>) -> Result<(), EngineError> {
        keeper.settle();
        if let Some(long) = keeper.long() {
            let latest = long::latest(keeper.recording);
            (self.shared.progress)(Progress::Passed(long.pace(), latest));
        }
        if self.kept.elapsed() < KEPT_EVERY {
            return Ok(());
        }
        self.kept = Instant::now();
        keeper.keep()
    }

    /// Add the counts of an arm.
    fn counted(
        &mut self,
        turn: &Turn,
        first: bool,
        origin: &Origin,
        measured: ArmCounts,
        recording: &mut Recording,
    ) -> Result<Ended, EngineError> {
        let of_namespaces = |(key, _): &(String, String)| first || key.starts_with("net.");
        let facts = origin.facts.clone().into_iter().chain(measured.facts);
        recording.environment.extend(facts.filter(of_namespaces));
        let symbols = measured.symbols.get().map(|symbols| &**symbols);
        let symbols = symbols.or_else(|| origin.table());
        match first {
            true => forget_what_is_common(recording),
            false => extras::note(recording, turn.arm, &origin.facts),
        }
        extras::note(recording, turn.arm, &measured.notes);
        extras::note(recording, turn.arm, &origin.own_facts(&recording.arms[turn.arm].clone())?);
        let options = self.shared.options;
        if let Some(symbols) = symbols {
            let executed = Executed { symbols, user: &[], nodes: &measured.nodes };
            let windows = measured.blocks.iter().map(|(window, _)| window);
            let translation =
                Translation::add(recording, self.index, &executed, &options.layers, windows);
            let (run, arm) = (self.shared.run, turn.arm as u32);
            for (number, (window, ledger)) in turn.blocks.clone().zip(measured.blocks) {
                if let Some(sampling) = &run.sampling {
                    let at = (arm, number);
                    translation.add_samples(recording, self.index, at, &window, &ledger, sampling);
                }
                if run.exact {
                    translation.add_block(recording, arm, number, &window, ledger);
                    if let Some(traced) = &window.traced {
                        let known = run.trace.as_ref().is_some_and(|spec| spec.has_args());
                        let prototypes = known.then_some(&measured.prototypes);
                        traces::add(recording, &executed, &options.layers, traced, prototypes);
                    }
                }
            }
            if run.exact {
                let (insns, none) = (&measured.instructions, SourceLines::default());
                translation.add_code(recording, arm, &executed, insns, &none);
                self.lines.add(recording, arm, &origin.booted(options));
            }
            let conditions = (Load::OneAtATime, extras::GUEST_CPUS);
            extras::idle(recording, turn.arm, conditions, Some(origin.topology()));
        }
        for instrument in self.shared.run.counted() {
            add_losses(recording, instrument, &measured.losses);
        }
        recording.set_most(&QEMU_PEAK, measured.qemu_peak_bytes as f64);
        (measured.error).map_or(Ok(Ended::Measured), |error| self.ended_by(turn, error))
    }

    /// In a scan, a setting that breaks the path is a result. Rules that break it belong to one arm, and other arms can
    /// be measured.
    fn ended_by(&self, turn: &Turn, error: EngineError) -> Result<Ended, EngineError> {
        let plan = self.shared.plan;
        let has_rules =
            || Ruleset::from_arm(&plan.arms[turn.arm]).is_some_and(|rules| !rules.is_generated());
        let others = plan.arms.len() > 1 && has_rules();
        match plan.scan.is_some() && error.is_the_guests() {
            true => Ok(Ended::CannotHere(extras::in_a_line(&error))),
            false => Ended::by(error, others),
        }
    }

    /// Add the times of an arm.
    fn timed(
        &mut self,
        turn: &Turn,
        first: bool,
        origin: &Origin,
        replies: &[Reply],
        recording: &mut Recording,
    ) {
        if first {
            recording.environment.extend(origin.facts.clone());
            forget_what_is_common(recording);
        } else {
            extras::note(recording, turn.arm, &origin.facts);
        }
        let Shared { run, plan, options, .. } = self.shared;
        let instrument = run.spec(turn.by).map_or("", |spec| &spec.instrument);
        let mut gatherer = None;
        for reply in replies {
            match reply {
                Reply::Attached(attached) => {
                    let layers = &options.layers;
                    let new = Gatherer::new(instrument, recording, self.index, layers, attached);
                    gatherer = Some(new);
                }
                Reply::Facts(notes) => extras::note(recording, turn.arm, notes),
                Reply::TimedBlock(timed_block) => {
                    let probed = timed_block.window.is_some();
                    recording.blocks.push(Block {
                        arm: (turn.arm + if probed { 0 } else { plan.arms.len() }) as u32,
                        instrument: if probed { instrument.into() } else { String::new() },
                        index: timed_block.index,
                        ledger: timed_block.ledger.clone(),
                        totals: Vec::new(),
                        entered: 0,
                        returned: 0,
                        duration_ns: timed_block.duration_ns,
                    });
                    let block = recording.blocks.len() as u32 - 1;
                    add_block(recording, self.index, gatherer.as_mut(), &[block], timed_block);
                }
                _ => {}
            }
        }
    }
}

/// Arms that ended before the first one have notes on facts that are common to all.
pub(super) fn forget_what_is_common(recording: &mut Recording) {
    for notes in recording.notes.values_mut() {
        let facts = &recording.environment;
        (notes.facts).retain(|key, value| facts.get(key) != Some(value));
    }
}
