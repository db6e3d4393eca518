//! The `sockets` instrument: what two hosts that are namespaces of this machine do, by its clock.
//!
//! Throughput and times of turns are read at the sockets, CPU use by the methods of `rates`.

use std::sync::atomic::AtomicBool;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::hosts;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::TimingSpec;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};

/// Two hosts that are namespaces of this machine, by its clock.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Throughput, times of turns and CPU use of two hosts, by this machine's clock; netns lab only"
    }

    fn quantities(&self) -> &'static [Declared] {
        hosts::ALL_CLOCKED
    }

    fn unavailable(&self, lab: Lab) -> Option<(&'static str, &'static str)> {
        let why = "its hosts are two network namespaces";
        (lab != Lab::Netns).then_some((why, "use lab = \"netns\" and hosts = 2"))
    }

    fn works(&self, _: Lab, _: &Tried<'_>) -> Availability {
        Availability::yes("two namespaces and a veth pair (hosts = 2)")
    }

    fn attach(
        &self,
        _: &TimingSpec,
        _: &Layers<'_>,
        _: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Err(LiveError::Asked(
            "`sockets` can't measure other traffic; use lab = \"netns\" and hosts = 2".into(),
        ))
    }

    fn is_clock(&self) -> bool {
        false
    }
}
