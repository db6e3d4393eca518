//! The quantities recorded for a block's traced calls.

use crate::quantity::{Declared, Kind};
use crate::recording::Recording;
use crate::timing;

/// The quantities of an instrument that traces calls, per block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfCalls {
    /// The unit of steps.
    pub step: Declared,
    /// Calls of the traced function, including nested ones.
    pub calls: Declared,
    /// Traced calls that meet the condition.
    pub matched: Declared,
    /// Calls of the traced function within traced calls.
    pub recursive: Declared,
    /// Traced calls that had not returned when the window closed.
    pub unfinished: Declared,
    /// How traced calls are distributed, each with all that it called: [`PLACES`].
    pub cost: Declared,
}

impl OfCalls {
    const fn new(step: Declared, cost: Declared) -> OfCalls {
        const fn count(name: &'static str, like: Declared) -> Declared {
            Declared {
                repeats: like.repeats,
                ..Declared::new(like.instrument, name, "calls", Kind::Count)
            }
        }
        OfCalls {
            step,
            calls: count("traced calls", step),
            matched: count("matching calls", step),
            recursive: count("recursive calls", step),
            unfinished: count("unfinished calls", step),
            cost: Declared { repeats: step.repeats, ..cost.by_label("of") },
        }
    }

    /// The quantities of a recording's traced calls, if it has such calls.
    pub fn in_recording(recording: &Recording) -> Option<&'static OfCalls> {
        let has = |of: &&&OfCalls| recording.scalars_of(&of.calls).next().is_some();
        [&COUNTED, &TIMED].iter().find(has).copied()
    }
}

/// Calls whose instructions are counted.
pub const COUNTED: OfCalls = OfCalls::new(
    timing::INSTRUCTIONS,
    Declared::new("exact", "instructions per call", "instructions", Kind::Count),
);
/// Calls that take time.
pub const TIMED: OfCalls = OfCalls::new(
    Declared::new("calls", "time", "ns", Kind::Duration),
    Declared::new("calls", "time per call", "ns", Kind::Duration),
);
/// The cost of entering and leaving a function while calls are timed, which is subtracted from its callers' time.
pub const CALL_PROBE: Declared = Declared::new("calls", "cost of a call", "ns", Kind::Duration);
/// The least that the time of a function has of that, which is subtracted from its own.
pub const CALL_BIAS: Declared = Declared::new("calls", "bias of a call", "ns", Kind::Duration);
/// All quantities of the instrument that times calls.
pub const TIMED_QUANTITIES: &[Declared] = &[
    TIMED.step,
    TIMED.calls,
    TIMED.matched,
    TIMED.recursive,
    TIMED.unfinished,
    TIMED.cost,
    CALL_PROBE,
    CALL_BIAS,
];

/// The labels of [`OfCalls::cost`]: what all calls add up to, and their order.
pub const PLACES: [&str; 5] = ["sum", "min", "median", "p99", "max"];
