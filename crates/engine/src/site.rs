//! Sites, where blocks run, and the loop that runs blocks.
//!
//! A site prepares arms, runs turns and adds the results to the recording. The loop knows nothing
//! of guests, namespaces or packets: it schedules turns, saves the recording after each, and stops
//! when necessary.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::process::VmError;
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{Arm, ArmNotes, Recording};
use netplumb_model::timing::{INSTRUCTIONS, SAMPLED};

use crate::error::EngineError;
use crate::long::Long;
use crate::run::Save;
use crate::schedule::Turn;

/// A place where the blocks of arms are measured.
pub(crate) trait Site {
    /// Maximum number of turns in parallel.
    fn at_once(&self) -> usize {
        1
    }

    /// Start a turn.
    fn begin(&mut self, turn: Turn);

    /// Wait until one of the started turns has ended, and add its results to the recording: all of
    /// them, or those before an error.
    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>);
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its blocks are in the recording.
    Measured,
    /// Its blocks are in the recording, and it was the last turn.
    Last,
    /// The arm can't be measured here by that instrument: the reason and a remedy. Its other turns
    /// with it are skipped.
    CannotHere(String),
}

impl Ended {
    /// How a turn ended by an error: without it, if others can be measured.
    pub(crate) fn by(error: EngineError, others: bool) -> Result<Ended, EngineError> {
        match others && error.is_of_one_arm() {
            true => Ok(Ended::CannotHere(error.to_string())),
            false => Err(error),
        }
    }
}

/// The error of a run some of whose arms failed.
pub(crate) fn failed(recording: &Recording) -> Result<(), EngineError> {
    let why = |(arm, notes): (&u32, &ArmNotes)| {
        let arm = recording.arms.get(*arm as usize)?;
        let first = notes.failed.values().next()?;
        Some(format!("arm `{}` failed: {first}", arm.name))
    };
    let all: Vec<String> = recording.notes.iter().filter_map(why).collect();
    match all.is_empty() {
        true => Ok(()),
        false => Err(EngineError::ArmsFailed(all.join("\n"))),
    }
}

/// Saves the recording as it grows.
pub(crate) struct Keeper<'a> {
    pub(crate) recording: &'a mut Recording,
    save: Save<'a>,
    cancel: &'a Cancel,
    /// The state of a run with a duration.
    long: Option<Long<'a>>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(recording: &'a mut Recording, save: Save<'a>, cancel: &'a Cancel) -> Self {
        Keeper { recording, save, cancel, long: None }
    }

    /// Set the state of a run with a duration.
    pub(crate) fn with_long(mut self, long: Option<Long<'a>>) -> Self {
        self.long = long;
        self
    }

    pub(crate) fn long(&self) -> Option<&Long<'a>> {
        self.long.as_ref()
    }

    /// Merge the blocks of a long run, if they are too many.
    pub(crate) fn settle(&mut self) {
        if let Some(long) = &mut self.long {
            long.settle(self.recording);
        }
    }

    /// Save the recording.
    pub(crate) fn keep(&mut self) -> Result<(), EngineError> {
        self.settle();
        (self.save)(self.recording).map_err(EngineError::Save)
    }

    /// What cancels the run.
    pub(crate) fn cancel(&self) -> &'a Cancel {
        self.cancel
    }

    /// Whether the run was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// An error if the run was cancelled.
    pub(crate) fn go_on(&self) -> Result<(), EngineError> {
        match self.is_cancelled() {
            true => Err(VmError::Interrupted.into()),
            false => Ok(()),
        }
    }
}

/// Run turns at a site. `names` are the run's instruments, by their numbers in turns; `done`
/// receives the number of blocks that are over after each turn, including skipped ones. Results
/// from before an error are in the recording, and saved.
///
/// # Errors
/// The first error of the site, of saving, or a cancellation.
pub(crate) fn run(
    site: &mut dyn Site,
    turns: impl IntoIterator<Item = Turn>,
    names: &[&str],
    keeper: &mut Keeper<'_>,
    done: &mut dyn FnMut(&Recording, u32),
) -> Result<(), EngineError> {
    let mut turns = turns.into_iter();
    let mut absent: BTreeSet<(usize, usize)> = BTreeSet::new();
    let (mut under_way, mut over) = (0, 0);
    let mut outcome = Ok(());
    let mut last = false;
    loop {
        while outcome.is_ok() && !last && under_way < site.at_once().max(1) {
            let Some(turn) = turns.next() else {
                break;
            };
            if let Err(stopped) = keeper.go_on() {
                outcome = Err(stopped);
                break;
            }
            if absent.contains(&(turn.arm, turn.by)) {
                over += turn.blocks.len() as u32;
                continue;
            }
            site.begin(turn);
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        let (turn, ended) = site.end(keeper);
        under_way -= 1;
        over += turn.blocks.len() as u32;
        let ended = match ended {
            Ok(Ended::Measured) => Ok(()),
            Ok(Ended::Last) => {
                last = true;
                Ok(())
            }
            Ok(Ended::CannotHere(why)) => {
                absent.insert((turn.arm, turn.by));
                let by = names.get(turn.by).copied().unwrap_or_default();
                let failed = &mut keeper.recording.notes_of(turn.arm).failed;
                failed.insert(by.into(), why);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let kept = keeper.keep();
        // An earlier error takes precedence over one of saving.
        outcome = outcome.and(ended).and(kept);
        if outcome.is_ok() {
            done(keeper.recording, over);
        }
    }
    outcome
}

/// A site that runs one turn at a time.
pub(crate) trait Alone {
    /// Run a turn, and add its results.
    ///
    /// # Errors
    /// Results before the error are in the recording.
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError>;
}

/// Adapts such a site to the loop.
pub(crate) struct OneAtATime<S> {
    pub(crate) site: S,
    turn: Option<Turn>,
}

impl<S> OneAtATime<S> {
    pub(crate) fn new(site: S) -> OneAtATime<S> {
        OneAtATime { site, turn: None }
    }
}

impl<S: Alone> Site for OneAtATime<S> {
    fn begin(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    fn end(&mut self, keeper: &mut Keeper<'_>) -> (Turn, Result<Ended, EngineError>) {
        // INVARIANT: the loop starts a turn before it waits for one.
        #[allow(clippy::expect_used)]
        let turn = self.turn.take().expect("a turn was begun");
        let ended = self.site.turn(&turn, keeper);
        (turn, ended)
    }
}

/// Resume a recording: returns the arms of a plan that are complete, by instrument; incomplete ones
/// are removed, since they are run again. The recording gets the arms if it has none.
///
/// # Errors
/// The recording is of another plan.
pub(crate) fn take_up(
    recording: &mut Recording,
    arms: &[Arm],
    names: &[&str],
    blocks: u32,
) -> Result<BTreeSet<(usize, usize)>, EngineError> {
    if recording.blocks.is_empty() {
        recording.arms = arms.to_vec();
        return Ok(BTreeSet::new());
    }
    if recording.run_ns() > 0 {
        return Err(EngineError::OtherPlan(
            "a duration: resume it with --duration, as long or longer",
        ));
    }
    if recording.arms != arms {
        return Err(EngineError::OtherPlan("other arms than this run"));
    }
    // Samples of a guest are drawn in the turn that counts, by whose name it goes.
    let counts = names.first() == Some(&INSTRUCTIONS.instrument);
    let drawn = SAMPLED.instrument;
    let is_drawn = |name: &str| counts && name == drawn && !names.contains(&drawn);
    let turn_of = |name: &str| match is_drawn(name) {
        true => Some(0),
        false => names.iter().position(|n| *n == name),
    };
    if (recording.instruments().iter()).any(|name| turn_of(name).is_none()) {
        return Err(EngineError::OtherPlan("figures of another instrument"));
    }
    let mut done = BTreeSet::new();
    for (by, name) in names.iter().enumerate() {
        for arm in 0..arms.len() {
            let of = |b: &&_| is_of(b, arm, name);
            if recording.blocks.iter().filter(of).count() as u32 == blocks {
                done.insert((arm, by));
            }
        }
    }
    let is_done =
        |arm: u32, name: &str| turn_of(name).is_some_and(|by| done.contains(&(arm as usize, by)));
    // Maps old block indices to new ones.
    let mut numbers = Vec::with_capacity(recording.blocks.len());
    let mut kept = Vec::new();
    for block in std::mem::take(&mut recording.blocks) {
        let keep = is_done(block.arm, &block.instrument);
        numbers.push(keep.then_some(kept.len() as u32));
        if keep {
            kept.push(block);
        }
    }
    recording.blocks = kept;
    let number = |block: u32| numbers.get(block as usize).copied().flatten();
    macro_rules! retain {
        ($($list:ident),*) => {
            $(recording.$list.retain_mut(|one| match number(one.block) {
                Some(block) => {
                    one.block = block;
                    true
                }
                None => false,
            });)*
        };
    }
    retain!(costs, spans, groups, slices, hops, line_costs);
    // They are of all blocks of an arm.
    recording.code.retain(|code| is_done(code.arm, INSTRUCTIONS.instrument));
    // Remove notes and figures of the arms that are run again; for an arm that only some
    // instruments run again, remove only theirs.
    let any = |arm: u32| names.iter().any(|name| is_done(arm, name));
    recording.notes.retain(|arm, notes| {
        notes.failed.retain(|by, _| is_done(*arm, by));
        any(*arm) && !notes.is_empty()
    });
    let quantities = &recording.quantities;
    recording.scalars.retain_mut(|scalar| match &mut scalar.of {
        Subject::Run => true,
        Subject::Arm(arm) => {
            let quantity = quantities.get(scalar.quantity as usize);
            quantity.is_some_and(|of| is_done(*arm, &of.instrument))
        }
        Subject::Block(block) => match number(*block) {
            Some(now) => {
                *block = now;
                true
            }
            None => false,
        },
    });
    Ok(done)
}

/// Whether a block belongs to an arm and an instrument.
fn is_of(block: &netplumb_model::recording::Block, arm: usize, name: &str) -> bool {
    block.arm as usize == arm && block.instrument == name
}

#[cfg(test)]
mod tests;
