//! Where the nanoseconds of a packet went: the same blocks once more, while another
//! instrument looks at what CPUs do.

use netplumb_instruments::instrument;
use netplumb_instruments::live::Live;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::bench::{Measured, Offered};
use netplumb_model::recording::{Block, Ledger, Recording};
use netplumb_model::timing::{Attached, Roles, TimingSpec, Window};
use netplumb_workload::frames;

use super::Run;
use super::block::{self, Ran};
use crate::collect::Index;
use crate::error::EngineError;
use crate::live::Gatherer;
use crate::schedule::Turn;
use crate::site::Ended;

/// Blocks beside those of rates, of every arm.
#[derive(Debug, Clone, Copy)]
pub struct BesidePlan<'a> {
    /// Blocks of each.
    pub blocks: u32,
    /// By which functions are put into layers.
    pub layers: &'a LayerRules,
}

/// What looks at a block's window.
pub(super) struct Watch {
    live: Box<dyn Live>,
}

/// What it saw.
pub(super) struct Seen {
    attached: Attached,
    window: Window,
}

impl Watch {
    pub(super) fn attach() -> Result<Watch, EngineError> {
        let spec = TimingSpec {
            instrument: instrument::BESIDE_RATES.name().into(),
            roles: Roles::Threads(frames::THREAD.into()),
            ..TimingSpec::default()
        };
        let live = instrument::attach(&spec, &|_, _| None)?;
        Ok(Watch { live })
    }

    pub(super) fn begin(&mut self) -> Result<(), EngineError> {
        Ok(self.live.open()?)
    }

    pub(super) fn stop(&mut self) {
        self.live.stop();
    }

    /// What was seen. The path has to stand yet: its programs are named.
    pub(super) fn read(mut self) -> Result<Seen, EngineError> {
        Ok(Seen {
            attached: self.live.attached().clone(),
            window: self.live.close()?,
        })
    }
}

impl Run<'_, '_> {
    /// A block whose window is looked at.
    pub(super) fn beside(
        &mut self,
        turn: &Turn,
        recording: &mut Recording,
    ) -> Result<Ended, EngineError> {
        let (false, Some(plan)) = (self.absent.contains(&turn.arm), self.options.beside) else {
            return Ok(Ended::Measured);
        };
        let mut arm = self.plan.arms[turn.arm];
        if self.plan.search {
            arm.offered = Offered::Most;
        }
        let times = [self.plan.window, self.plan.warmup];
        let (ran, seen) = block::measure_watched(&arm, self.own, times, self.options.cancel)?;
        let why = match (ran, seen) {
            (Ran::Measured(measured, _), Some(seen)) => match measured.invalid() {
                None => {
                    let into = (&mut *recording, &mut *self.index);
                    let number = turn.blocks.start;
                    seen.add(into, turn.arm as u32, number, &measured, plan.layers);
                    None
                }
                why => why,
            },
            (Ran::Measured(..), None) => None,
            (Ran::CannotHere(why), _) => return Ok(Ended::CannotHere(why)),
        };
        if let Some(why) = why {
            let failed = &mut recording.notes_of(turn.arm).failed;
            failed.insert(instrument::BESIDE_RATES.name().into(), why);
        }
        Ok(Ended::Measured)
    }
}

impl Seen {
    /// Add it as a block of an arm.
    fn add(
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
            instrument: instrument::BESIDE_RATES.name().into(),
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
        // How busy CPUs were in this very window, and how many packets it had.
        measured.add_to(recording, block);
        let mut gatherer = Gatherer::new(recording, index, layers, &self.attached);
        gatherer.add(recording, index, &[block], &self.window);
    }
}
