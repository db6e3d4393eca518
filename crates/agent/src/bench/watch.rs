//! An instrument that measures the window of a block while packets run.

use netplumb_instruments::live::Live;
use netplumb_instruments::registry::{self, BESIDE_RATES};
use netplumb_model::timing::{Attached, Roles, TimingSpec, Window};
use netplumb_workload::frames;

use crate::error::BlockError;

/// An instrument on the window of a block.
pub(super) struct Watch {
    live: Box<dyn Live>,
}

/// What an instrument measured in a block's window.
#[derive(Debug)]
pub struct WatchResult {
    /// How the instrument was attached, with its facts and refusals.
    pub attached: Attached,
    /// Its figures of the window.
    pub window: Window,
}

impl Watch {
    pub(super) fn attach() -> Result<Watch, BlockError> {
        let spec = TimingSpec {
            instrument: BESIDE_RATES.name().into(),
            roles: Roles::Threads(frames::THREAD.into()),
            ..TimingSpec::default()
        };
        let live = registry::attach(&spec, &|_, _| None)?;
        Ok(Watch { live })
    }

    pub(super) fn begin(&mut self) -> Result<(), BlockError> {
        Ok(self.live.open()?)
    }

    pub(super) fn stop(&mut self) {
        self.live.stop();
    }

    /// Read the results. The path must still be set up: its programs are looked up by name.
    pub(super) fn read(mut self) -> Result<WatchResult, BlockError> {
        Ok(WatchResult { attached: self.live.attached().clone(), window: self.live.close()? })
    }
}
