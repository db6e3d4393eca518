//! The `calls` instrument: single calls of a function of the kernel, with all that they called, and
//! what each took.
//!
//! The kernel's function_graph tracer records them (kernel/trace/trace_functions_graph.c): it is set
//! to a function and a depth, and what it writes is read as it comes. `tracer.rs` turns it on and
//! restores it, `ring.rs` reads its pages, `tree.rs` makes calls of what they have, and
//! `timer.rs` is the instrument.

mod ring;
mod timer;
mod tracer;
mod tree;

use std::sync::atomic::AtomicBool;

use netplumb_model::calls::TIMED_QUANTITIES;
use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{Live, LiveError};
pub use tracer::recover;

/// Traces single calls by function_graph.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Single calls of a kernel function as trees, with their times"
    }

    fn quantities(&self) -> &'static [Declared] {
        TIMED_QUANTITIES
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        if lab == Lab::Vm {
            return in_guest("by the function_graph tracer", tried);
        }
        tried.any(&[(&["function-tracer"], "by the function_graph tracer")])
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        let asked = spec.calls.clone().unwrap_or_default();
        Ok(Box::new(timer::CallTimer::attach(spec, asked)?))
    }

    fn is_clock(&self) -> bool {
        false
    }
}
