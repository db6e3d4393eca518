//! A given number of frames, sent by the calling thread, to count their instructions.

use std::os::fd::{AsFd, OwnedFd};

use netplumb_sys::netns::inside;

use super::GeneratorPlan;
use super::error::{GeneratorError, doing};
use super::layout::Mode;
use super::live::{self, Live};
use super::{headers, system};
use crate::mark::{self, mark};

/// Sends frames by test runs on request.
#[derive(Debug)]
pub struct Bounded {
    live: Live,
    namespace: OwnedFd,
}

impl Bounded {
    /// Load the generator of a plan: on one CPU, at maximum rate. The observing programs of a
    /// [`Generator`](super::Generator) are not attached, so that only the frames are counted.
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

    /// Send a number of frames; the work of this thread meanwhile is marked as sending.
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
