//! An instrument that measures the window of a block while packets run.

use netplumb_instruments::live::Live;
use netplumb_instruments::registry::{self, BESIDE_RATES};
use netplumb_kernel::layers::LayerRules;
use netplumb_model::bench::Measured;
use netplumb_model::recording::{Block, Ledger, Recording};
use netplumb_model::timing::{Attached, Roles, TimingSpec, Window};
use netplumb_workload::frames;

use crate::error::EngineError;
use crate::gather::Gatherer;
use crate::index::Index;

/// An instrument on the window of a block.
pub(super) struct Watch {
    live: Box<dyn Live>,
}

/// Its results.
pub(super) struct Seen {
    attached: Attached,
    window: Window,
}

impl Watch {
    pub(super) fn attach() -> Result<Watch, EngineError> {
        let spec = TimingSpec {
            instrument: BESIDE_RATES.name().into(),
            roles: Roles::Threads(frames::THREAD.into()),
            ..TimingSpec::default()
        };
        let live = registry::attach(&spec, &|_, _| None)?;
        Ok(Watch { live })
    }

    pub(super) fn begin(&mut self) -> Result<(), EngineError> {
        Ok(self.live.open()?)
    }

    pub(super) fn stop(&mut self) {
        self.live.stop();
    }

    /// Read the results. The path must still be set up: its programs are looked up by name.
    pub(super) fn read(mut self) -> Result<Seen, EngineError> {
        Ok(Seen {
            attached: self.live.attached().clone(),
            window: self.live.close()?,
        })
    }
}

impl Seen {
    /// Add it as a block of an arm.
    pub(super) fn add(
        &self,
        (recording, index): (&mut Recording, &mut Index),
        arm: u32,
        number: u32,
        measured: &Measured,
        layers: &LayerRules,
    ) {
        let block = recording.blocks.len() as u32;
        let packets = measured.handled.total();
        recording.blocks.push(Block {
            arm,
            instrument: BESIDE_RATES.name().into(),
            index: number,
            ledger: Ledger {
                offered: packets,
                delivered: packets,
                ..Ledger::default()
            },
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: measured.window_ns,
        });
        // CPU use and packets of this window.
        measured.add_to(recording, block);
        let mut gatherer = Gatherer::new(
            BESIDE_RATES.name(),
            recording,
            index,
            layers,
            &self.attached,
        );
        gatherer.add(recording, index, &[block], &self.window);
    }
}
