//! The trait of instruments: requirements, quantities, and attaching.

use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::live::{Live, LiveError};

/// Gives a function its layer, by its name and module.
pub type Layers<'a> = dyn Fn(&str, Option<&str>) -> Option<String> + 'a;

/// An instrument, attached or not.
pub trait Instrument: Debug + Sync {
    /// What it measures, as data. The quantity of its costs or times comes first.
    fn quantities(&self) -> &'static [Declared];

    /// What it measures, in a line.
    fn about(&self) -> &'static str;

    /// Its name in commands, files and recordings, as declared with its quantities.
    fn name(&self) -> &'static str {
        self.quantities().first().map_or("", |first| first.instrument)
    }

    /// Why it is never available in a lab, on any machine, and what to do instead.
    fn unavailable(&self, _lab: Lab) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Whether it works in a lab in which it is available, by the trials on this machine.
    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability;

    /// Whether it can run in a lab.
    fn can_run(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        match self.unavailable(lab) {
            Some((why, remedy)) => Availability::no(why, remedy),
            None => self.works(lab, tried),
        }
    }

    /// Attach it to the running kernel, unless `cancel` is set before that is done.
    ///
    /// # Errors
    /// It can't be attached here, or not with these settings, or it was cancelled.
    fn attach(
        &self,
        spec: &TimingSpec,
        layers: &Layers<'_>,
        cancel: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError>;

    /// Whether it measures the cost of packets, for `plumb path --clock`.
    fn is_clock(&self) -> bool {
        true
    }
}

/// The availability in a guest, with a note on what its nanoseconds mean.
pub(crate) fn in_guest(what: &str, tried: &Tried<'_>) -> Availability {
    let detail = format!("{what}, if the guest's kernel supports it (Debian's does)");
    match tried.verdict("qemu-kvm") {
        Availability::No { reason, .. } => Availability::partly(
            detail,
            format!("without KVM, times in a guest are times of QEMU's emulation: {reason}"),
            "compare such times only with each other, or use a machine with KVM",
        ),
        _ => Availability::yes(detail),
    }
}
