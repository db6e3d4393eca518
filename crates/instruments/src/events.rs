//! The `events` instrument: how often something happened, as the kernel counts it.
//!
//! perf's counters (perf_event_open(2)): software events, tracepoints, hardware events and calls of
//! functions alike. The kernel adds up where an event happens, so none is lost, however many there
//! are. What is read is never scaled: an event that shared a counter with others has a smaller count,
//! and how long it was counted stands beside it.
//!
//! `resolve.rs` finds out what names mean on this kernel, `counting.rs` counts, `calls.rs` counts calls by
//! trampolines, `tasks.rs` counts by task, `callers.rs` counts by who causes an event, `reasons.rs` explains
//! why something can't be counted, and `map.rs` tries all events.

mod callers;
mod calls;
mod counting;
pub(crate) mod format;
mod map;
pub(crate) mod reasons;
pub(crate) mod resolve;
mod tasks;
mod uprobe;

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::events::{self, By};
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};
pub use map::{EventSupport, Extent, map};
pub use uprobe::has_function;

/// Counts events of perf, tracepoints and functions.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Counts of events: of tasks, memory, block devices, files, packets, functions called"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] = &[
            events::COUNT,
            events::TIME,
            events::TASK_COUNT,
            events::TASK_TIME,
            events::ENABLED,
            events::RUNNING,
            events::CALLERS,
        ];
        ALL
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        if lab == Lab::Vm {
            return Availability::yes("what the guest's kernel counts; it has no hardware events");
        }
        match tried.verdict("perf-software") {
            Availability::Yes { .. } => Availability::yes("see `plumb doctor --events` for each"),
            other => other,
        }
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        let asked = spec.events.clone().unwrap_or_default();
        match asked.by {
            Some(By::Layer | By::Stack) => Ok(Box::new(callers::Callers::attach(spec, &asked)?)),
            None | Some(By::Cpu | By::Task) => {
                Ok(Box::new(counting::Counting::attach(spec, &asked)?))
            }
        }
    }

    fn is_clock(&self) -> bool {
        false
    }
}
