//! The `spans` instrument: the time from one event to the next, of whatever events are about: a
//! request of a disk, a packet, a task.
//!
//! Events are tracepoints, functions of the kernel, and functions of programs. They are paired in the
//! kernel, by a table of what has begun, and times are added to histograms there. So an event storm
//! costs time, and no memory; what does not fit is counted.
//!
//! `plan.rs` finds out what events are on this kernel and what they are about, `attached.rs` has the
//! programs and their maps, `window.rs` what a window is made of.
//!
//! The programs are in `spans.bpf.c`. Presets, and which stages are work or a wait, are in `netplumb_model::spans`;
//! `stages` uses the same histogram (crates/sys/bpf/times.h).

mod attached;
mod layout;
mod plan;
mod window;

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::spans::QUANTITIES;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{Live, LiveError};

/// Times events of the running kernel against each other.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Time from one event to the next: requests of disks, wake-ups, system calls, functions"
    }

    fn quantities(&self) -> &'static [Declared] {
        QUANTITIES
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        if lab == Lab::Vm {
            return in_guest("tracepoints, and functions of the kernel and of a command", tried);
        }
        tried.any(&[(&["raw-tp"], "by tracepoints; see `plumb doctor --events` for each")])
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        let asked = spec.spans.clone().unwrap_or_default();
        Ok(Box::new(window::Between::attach(spec, &asked)?))
    }

    fn is_clock(&self) -> bool {
        false
    }
}
