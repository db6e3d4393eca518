//! The `rates` instrument: CPU use, and drops of frames.
//!
//! [`cpu`] measures the use of each CPU, by two independent methods. The kernel's counters are in
//! `netplumb_sys::proc::counters`. [`drops`] is for drops that these don't explain: programs on
//! tracepoints, which cost time for each dropped packet, so they are attached only on demand.

mod accounting;
mod busy;
#[cfg(test)]
mod counted;
pub mod cpu;
pub mod drops;
#[cfg(test)]
mod sandbox;

use std::sync::atomic::AtomicBool;

use netplumb_model::bench::quantities;
use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{Live, LiveError};

/// The name of the instrument.
const RATES: &str = quantities::HANDLED.instrument;

/// Use of each CPU, and drops of frames.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Packet rates, drops by cause, and CPU use"
    }

    fn quantities(&self) -> &'static [Declared] {
        quantities::ALL
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        match (lab, tried.verdict("counters")) {
            (Lab::Vm, _) => in_guest("the guest's own counters", tried),
            (_, Availability::Yes { .. }) => Availability::yes("from the kernel's own counters"),
            (_, other) => other,
        }
    }

    fn attach(
        &self,
        _: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Err(LiveError::Asked("`rates` is measured by `plumb bench` only".into()))
    }

    fn is_clock(&self) -> bool {
        false
    }
}
