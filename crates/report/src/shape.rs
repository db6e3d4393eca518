//! The kind of data in a recording, or in an instrument's part of one: it decides the
//! tables.

use netplumb_model::events::INSTRUMENT;
use netplumb_model::hosts;
use netplumb_model::quantity::{Quantity, Repeats};
use netplumb_model::recording::Recording;

use crate::analysis::quantity;
use crate::rates::RATES;

/// The kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Scalars of blocks: rates, and other scalars beside them.
    Rates,
    /// Times of functions or stages, with their distributions.
    Times,
    /// Costs on the calling-context tree.
    Costs,
    /// Counts of events: scalars of blocks.
    Counts,
    /// Two hosts: scalars of blocks.
    Hosts,
}

/// The kind of data in a recording. Rates may have costs beside them, which explain them.
pub fn shape(recording: &Recording) -> Shape {
    let has_times = !recording.spans.is_empty();
    // A recording of costs has totals too, even without any cost.
    let has_costs = !recording.costs.is_empty();
    let has_totals = recording.blocks.iter().any(|b| !b.totals.is_empty());
    match () {
        () if recording.instruments().contains(&RATES) => Shape::Rates,
        () if matches!(recording.instruments()[..], [one] if hosts::is_of_hosts(one)) => {
            Shape::Hosts
        }
        // There may be costs beside counts, for their causes.
        () if recording.instruments() == [INSTRUMENT] && (recording.has_counts() || !has_costs) => {
            Shape::Counts
        }
        () if has_times || !(has_totals || has_costs) => Shape::Times,
        () => Shape::Costs,
    }
}

/// The quantity of its costs, where they vary and have to be judged by blocks.
pub fn varying(recording: &Recording) -> Option<Quantity> {
    let quantity = quantity(recording);
    (quantity.repeats == Repeats::Statistically).then_some(quantity)
}
