//! Where CPU time goes: additional blocks, measured by another instrument.

use netplumb_instruments::registry::BESIDE_RATES;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::bench::Offered;
use netplumb_model::recording::Recording;

use super::Run;
use super::block::{self, Ran};
use crate::error::EngineError;
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
            failed.insert(BESIDE_RATES.name().into(), why);
        }
        Ok(Ended::Measured)
    }
}
