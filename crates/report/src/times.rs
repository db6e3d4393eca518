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

use netplumb_model::recording::Recording;
use netplumb_model::timing::Clock;

pub use costs::as_costs;

use crate::rates::is_bench;

pub use analysis::{Per, Stage, TimedClass, TimedFunction, classes};
pub(crate) use number::{ns, ns_range, rounded};

/// Whether a recording is one of times.
pub fn is_timed(recording: &Recording) -> bool {
    // What has costs, has totals beside them.
    let has_costs = recording.blocks.iter().any(|b| !b.totals.is_empty());
    let by_function = !recording.timed.is_empty() || !recording.stages.is_empty();
    !is_bench(recording) && (by_function || !has_costs)
}

/// What it was read from, if that is known here.
pub fn clock(recording: &Recording) -> Option<Clock> {
    recording.instruments().first()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
