//! The `rates` instrument: how busy CPUs were, and where frames went.
//!
//! [`cpu`] measures how busy each CPU was, by two methods independent of each
//! other. The counters that the kernel keeps anyway are those of
//! `netplumb_sys::proc::counters`. [`drops`] is for
//! when these do not explain what is missing: programs on tracepoints, which cost
//! something for each packet that is lost, so that they are attached on demand only.

mod accounting;
mod busy;
#[cfg(test)]
mod counted;
pub mod cpu;
pub mod drops;
#[cfg(test)]
mod sandbox;

use netplumb_model::bench::quantities;
use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{Live, LiveError};

/// What the instrument is called.
const RATES: &str = quantities::HANDLED.instrument;

/// The instrument.
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

    fn attach(&self, _: &TimingSpec, _: &Layers<'_>) -> Result<Box<dyn Live>, LiveError> {
        Err(LiveError::Asked(
            "`rates` is measured by `plumb bench` only".into(),
        ))
    }

    fn is_clock(&self) -> bool {
        false
    }
}
