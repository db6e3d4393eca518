//! What a recording, or the part of one that an instrument measured, has: it says which
//! tables there are.

use netplumb_model::events::INSTRUMENT;
use netplumb_model::hosts;
use netplumb_model::quantity::{Quantity, Repeats};
use netplumb_model::recording::Recording;

use crate::analysis::quantity;
use crate::rates::RATES;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Scalars of blocks: rates, and what else they have beside these.
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

/// What a recording has. Rates may have costs beside them, that explain them.
pub fn shape(recording: &Recording) -> Shape {
    let has_times = !recording.spans.is_empty();
    // What has costs has totals beside them, also where they are none.
    let has_costs = !recording.costs.is_empty();
    let has_totals = recording.blocks.iter().any(|b| !b.totals.is_empty());
    match () {
        () if recording.instruments().contains(&RATES) => Shape::Rates,
        () if matches!(recording.instruments()[..], [one] if hosts::is_of_hosts(one)) => {
            Shape::Hosts
        }
        // Beside them may be who caused them.
        () if recording.instruments() == [INSTRUMENT] && (recording.has_counts() || !has_costs) => {
            Shape::Counts
        }
        () if has_times || !(has_totals || has_costs) => Shape::Times,
        () => Shape::Costs,
    }
}

/// What its costs are of, where they vary and have to be judged by blocks.
pub fn varying(recording: &Recording) -> Option<Quantity> {
    let quantity = quantity(recording);
    (quantity.repeats == Repeats::Statistically).then_some(quantity)
}
