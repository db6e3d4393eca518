//! Runs that go on until a duration has passed, in rounds of blocks, over several sessions if one is
//! interrupted. Their recordings are bounded: blocks are merged as they get many.
//!
//! Merging is in `netplumb_model`'s `recording/merge.rs`; whether something drifted, in `netplumb_stats::trend` and
//! `netplumb_report`'s `drift.rs`.

use std::time::{Duration, Instant};

use netplumb_model::quantity::FigureKey;
use netplumb_model::recording::{Arm, MAX_BLOCKS, Recording, SESSIONS};

use crate::error::EngineError;

/// How far a long run is.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time that it has been measuring, in all sessions.
    pub passed: Duration,
    /// Time that it is to measure; none if that is not known.
    pub whole: Option<Duration>,
}

impl Pace {
    /// The time left.
    pub fn left(&self) -> Option<Duration> {
        Some(self.whole?.saturating_sub(self.passed))
    }
}

/// A clock that a run can be simulated with: time since any fixed moment.
pub(crate) type Clock<'a> = &'a (dyn Fn() -> Duration + Sync);

/// The clock of runs.
pub(crate) fn clock() -> impl Fn() -> Duration + Sync {
    let began = Instant::now();
    move || began.elapsed()
}

/// A long run.
#[derive(Clone, Copy)]
pub(crate) struct Long<'a> {
    clock: Clock<'a>,
    /// When this session began, by that clock.
    began: Duration,
    /// Duration of earlier sessions.
    before: Duration,
    whole: Option<Duration>,
    /// How often blocks were halved in number.
    halvings: u32,
    /// Blocks of the recording that are merged already.
    settled: u32,
}

impl<'a> Long<'a> {
    /// A run of this duration, or without end, that continues where the recording ends.
    pub(crate) fn begin(
        whole: Option<Duration>,
        clock: Clock<'a>,
        recording: &mut Recording,
    ) -> Long<'a> {
        let sessions = recording.scalars_of(&SESSIONS).map(|s| s.value);
        let sessions = sessions.fold(0.0, f64::max);
        recording.set(&SESSIONS, FigureKey::ONLY, sessions + 1.0);
        Long {
            clock,
            began: clock(),
            before: Duration::from_nanos(recording.run_ns()),
            whole,
            halvings: recording.halvings(),
            settled: recording.blocks.len() as u32,
        }
    }

    /// How far it is.
    pub(crate) fn pace(&self) -> Pace {
        Pace { passed: self.before + (self.clock)().saturating_sub(self.began), whole: self.whole }
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.pace().left().is_some_and(|left| left.is_zero())
    }

    /// When it will be, if ever.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.pace().left()
    }

    /// Note when the newest blocks were measured, and merge blocks if they are too many.
    pub(crate) fn settle(&mut self, recording: &mut Recording) {
        let from = self.settled;
        if from < recording.blocks.len() as u32 {
            recording.note_measured(from, self.pace().passed.as_nanos() as u64);
            recording.merge_blocks(from, self.halvings);
        }
        while recording.blocks.iter().any(|b| b.index >= MAX_BLOCKS) {
            recording.merge_blocks(0, 1);
            self.halvings += 1;
        }
        self.settled = recording.blocks.len() as u32;
    }

    /// The index of the next block of an arm, by an instrument.
    pub(crate) fn next(&self, recording: &Recording, arm: Option<u32>) -> u32 {
        next(recording, self.halvings, arm)
    }
}

/// The index of the next measured block of an arm, or of all.
fn next(recording: &Recording, halvings: u32, arm: Option<u32>) -> u32 {
    let of = |arm_of: u32| arm.is_none_or(|arm| arm == arm_of);
    let blocks = recording.blocks.iter().filter(|b| of(b.arm));
    let Some(last) = blocks.map(|b| b.index).max() else {
        return 0;
    };
    let merged = recording.merged_in(|block| of(block.arm) && block.index == last);
    (last << halvings) + merged
}

/// Continue a long run: its blocks are kept.
///
/// # Errors
/// The recording is of another run.
pub(crate) fn take_up(
    recording: &mut Recording,
    arms: Option<&[Arm]>,
    names: &[&str],
) -> Result<(), EngineError> {
    if recording.blocks.is_empty() {
        if let Some(arms) = arms {
            recording.arms = arms.to_vec();
        }
        return Ok(());
    }
    if recording.run_ns() == 0 {
        return Err(EngineError::OtherPlan("a number of blocks, and no duration"));
    }
    if arms.is_some_and(|arms| recording.arms != arms) {
        return Err(EngineError::OtherPlan("other arms than this run"));
    }
    let mut measured = recording.instruments();
    measured.retain(|name| !name.is_empty());
    if measured.iter().any(|name| !names.contains(name)) {
        return Err(EngineError::OtherPlan("figures of another instrument"));
    }
    // Its figures would be of another time than the others'.
    if names.iter().any(|name| !measured.contains(name)) {
        return Err(EngineError::OtherPlan("no figures of one of the instruments"));
    }
    Ok(())
}

/// The latest figure, for people who watch.
pub fn latest(recording: &Recording) -> Option<String> {
    let block = recording.blocks.iter().max_by_key(|block| block.index)?;
    let packets = block.ledger.offered;
    let quantity =
        (block.totals.first()).and_then(|total| recording.quantities.get(total.quantity as usize));
    if let (Some(quantity), true) = (quantity, packets > 0) {
        let each = block.total().kernel as f64 / packets as f64;
        return Some(format!("{each:.1} {} per packet, of all work", quantity.unit));
    }
    let seconds = block.duration_ns as f64 / 1e9;
    let rate = block.ledger.delivered as f64 / seconds;
    (packets > 0 && seconds > 0.0).then(|| format!("{rate:.0} packets/s"))
}

#[cfg(test)]
mod tests;
