//! So many frames and no more, sent by the thread that asks: to be counted.

use std::os::fd::{AsFd, OwnedFd};

use netplumb_sys::netns::inside;

use super::GeneratorPlan;
use super::error::{GeneratorError, doing};
use super::layout::Mode;
use super::live::{self, Live};
use super::{headers, system};
use crate::mark::{self, mark};

/// Sends frames by test runs when it is asked to.
#[derive(Debug)]
pub struct Bounded {
    live: Live,
    namespace: OwnedFd,
}

impl Bounded {
    /// Load what makes the frames of a plan: on one CPU, as many as there can be. What
    /// looks on while a [`Generator`](super::Generator) sends does not here, so that
    /// nothing is counted that is not the frames'.
    ///
    /// # Errors
    /// As [`Generator::start`](super::Generator::start); there are no packet sockets here.
    pub fn new(plan: &GeneratorPlan) -> Result<Bounded, GeneratorError> {
        plan.check()?;
        plan.check_cpus()?;
        let longest = headers::sizes(plan).into_iter().max().unwrap_or_default();
        system::check_device(plan.exit.namespace.as_fd(), plan.exit.device, longest)?;
        live::check_takes_xdp(plan)?;
        if let [cpu] = plan.cpus[..] {
            system::pin(cpu)?;
        } else {
            return Err(GeneratorError::Input(
                "frames that are counted are sent from one CPU".into(),
            ));
        }
        let namespace = plan.exit.namespace.try_clone();
        Ok(Bounded {
            live: Live::load(plan, Mode::Full)?.unwatched(),
            namespace: namespace.map_err(doing("open a network namespace"))?,
        })
    }

    /// Send so many frames; what this thread does meanwhile is marked as sending.
    ///
    /// # Errors
    /// The kernel did not run the program.
    pub fn send(&self, frames: u32) -> Result<(), GeneratorError> {
        let sent = inside(self.namespace.as_fd(), || {
            mark::<{ mark::TX_BEGIN }>();
            let ran = self.live.test_run(frames);
            mark::<{ mark::TX_END }>();
            Ok(ran)
        });
        sent.map_err(doing("enter the generator's network namespace"))?
    }
}
