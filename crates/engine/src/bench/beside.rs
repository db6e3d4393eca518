//! Where CPU time goes: additional blocks, measured by another instrument.

use netplumb_agent::bench::block::{self, BlockResult};
use netplumb_agent::bench::watch::WatchResult;
use netplumb_instruments::registry::BESIDE_RATES;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::bench::{BlockRates, Offered};
use netplumb_model::recording::{Block, Ledger, Recording};

use super::Run;
use crate::error::EngineError;
use crate::gather::Gatherer;
use crate::index::Index;
use crate::schedule::Turn;
use crate::site::Ended;

/// Additional blocks of every arm.
#[derive(Debug, Clone, Copy)]
pub struct BesidePlan<'a> {
    /// Blocks of each.
    pub blocks: u32,
    /// The rules for layers.
    pub layers: &'a LayerRules,
}

impl Run<'_, '_> {
    /// Run a block while the instrument measures its window.
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
            (BlockResult::Measured(measured, _), Some(seen)) => match measured.invalid() {
                None => {
                    let into = (&mut *recording, &mut *self.index);
                    let number = turn.blocks.start;
                    add_seen(&seen, into, turn.arm as u32, number, &measured, plan.layers);
                    None
                }
                why => why,
            },
            (BlockResult::Measured(..), None) => None,
            (BlockResult::CannotHere(why), _) => return Ok(Ended::CannotHere(why)),
        };
        if let Some(why) = why {
            let failed = &mut recording.notes_of(turn.arm).failed;
            failed.insert(BESIDE_RATES.name().into(), why);
        }
        Ok(Ended::Measured)
    }
}

/// Add the instrument's figures as a block of an arm.
fn add_seen(
    seen: &WatchResult,
    (recording, index): (&mut Recording, &mut Index),
    arm: u32,
    number: u32,
    measured: &BlockRates,
    layers: &LayerRules,
) {
    let block = recording.blocks.len() as u32;
    let packets = measured.handled.total();
    recording.blocks.push(Block {
        arm,
        instrument: BESIDE_RATES.name().into(),
        index: number,
        ledger: Ledger { offered: packets, delivered: packets, ..Ledger::default() },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: measured.window_ns,
    });
    // CPU use and packets of this window.
    measured.add_to(recording, block);
    let mut gatherer = Gatherer::new(BESIDE_RATES.name(), recording, index, layers, &seen.attached);
    gatherer.add(recording, index, &[block], &seen.window);
}
