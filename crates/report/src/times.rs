//! Recordings of times: functions and stages in nanoseconds, raw and corrected.
//!
//! `analysis` computes the figures that the renderings beside it show.

pub mod analysis;
mod beside;
mod between;
pub mod costs;
mod gaps;
pub mod json;
pub mod markdown;
mod number;
pub(crate) mod openmetrics;
pub mod page;
pub(crate) mod table;
pub mod terminal;
pub mod trust;

use netplumb_model::recording::Recording;

pub(crate) use between::is_of as is_between;
pub use between::nothing;
pub use costs::as_costs;

pub use analysis::{Per, Stage, TimedClass, TimedFunction, TimedGroup, classes};
pub(crate) use number::{ns, ns_range, rounded};
pub use table::csv;

/// The instrument of a recording; the first of several.
pub(crate) fn instrument(recording: &Recording) -> Option<&str> {
    recording.instruments().first().copied()
}

#[cfg(test)]
pub(crate) mod tests;
