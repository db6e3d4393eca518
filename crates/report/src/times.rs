//! Recordings of times: functions and stages in nanoseconds, raw and corrected.
//!
//! `analysis` makes of a recording what the renderings beside it show.

pub mod analysis;
pub mod costs;
pub mod csv;
pub mod diff;
mod gaps;
pub mod json;
pub mod markdown;
mod number;
pub mod openmetrics;
pub mod page;
pub mod terminal;
pub mod trace;
pub mod trust;

use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::Clock;

pub use costs::as_costs;

pub use analysis::{Per, Stage, TimedClass, TimedFunction, classes};
pub(crate) use number::{ns, ns_range, rounded};

/// Whether a recording is one of times.
pub fn is_timed(recording: &Recording) -> bool {
    match clock(recording) {
        Some(Clock::Rates) => false,
        Some(Clock::Functions | Clock::Stages) => true,
        _ => !recording.timed.is_empty() || !recording.stages.is_empty(),
    }
}

/// What it was read from, if the recording says so in a word that is known.
pub fn clock(recording: &Recording) -> Option<Clock> {
    recording.environment.get(env::CLOCK)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
