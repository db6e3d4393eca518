//! The highest rate without loss, by Multiple Loss Ratio Search (RFC 9971), and latencies at parts
//! of it.
//!
//! A trial is a block: its ledger has to balance like any other, and frames that the generator did
//! not offer count as lost.

use std::time::Duration;

use netplumb_agent::bench::block::BlockResult;
use netplumb_model::bench::{BenchArm, BlockRates, Limit, Offered, quantities as q};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::Recording;
use netplumb_stats::search::{Goal, GoalResult, Irregular, Search, Trial, TrialResult};

use super::{BenchEvent, BenchPlan, RATES, Run, add_facts};
use crate::error::EngineError;
use crate::site::{Ended, Keeper};

/// The minimum load.
const LEAST_PPS: f64 = 1_000.0;
/// The generator's pacing is accurate to 1 percent: less than this share counts as not offered.
const OFFERED: f64 = 0.99;
/// Shares of the result at which latency is measured.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];
/// The goals: no loss, and the ratio that RFC 9971 pairs with it.
const LOSS_RATIOS: [f64; 2] = [0.0, 0.005];

/// The maximum rate is unknown.
const NO_LIMIT: &str = "search needs a generator of known maximum rate: frames from the kernel \
                        (Linux 5.18) on a device with XDP";

const UNSTEADY: &str = "search could not measure the maximum rate of the generator, because its CPU \
                        is busy; retry on an idle machine";

impl Run<'_, '_> {
    /// Search for an arm; then, if frames are stamped, run blocks at parts of the result.
    pub(super) fn search(
        &mut self,
        number: usize,
        keeper: &mut Keeper<'_>,
    ) -> Result<Ended, EngineError> {
        let arm = self.plan.arms[number];
        let name = keeper.recording.arms[number].name.clone();
        // Over NICs, the generator's rate is the maximum, whatever they are.
        let made = BenchArm { apart: arm.apart && !self.has_nics(), ..arm };
        let limit = match self.limit(&made)? {
            Ok(Limit::Pps(limit)) => Ok(limit),
            Ok(Limit::Unknown) => Err(UNSTEADY.to_string()),
            Ok(Limit::NotAsked) => Err(NO_LIMIT.to_string()),
            Err(why) => Err(why),
        };
        let limit = match limit {
            Ok(limit) => limit,
            Err(why) => return Ok(self.cannot(number, why)),
        };
        let goals = goals(self.plan);
        let search = Search::new(goals.clone(), LEAST_PPS, limit.max(2.0 * LEAST_PPS));
        let mut search = search.map_err(|e| EngineError::Search(e.to_string()))?;
        let mut trials = 0;
        while let Some(trial) = search.next_trial() {
            keeper.go_on()?;
            let paced = BenchArm { offered: Offered::Pps(trial.load_pps), stamped: false, ..arm };
            let window = Duration::from_secs_f64(trial.duration_s);
            match self.block_of(&paced, window)? {
                BlockResult::Measured(measured, facts) => {
                    add_facts(keeper.recording, facts);
                    super::add(keeper.recording, number, trials, &measured);
                    search.record(trial, result_of(trial, &measured));
                    trials += 1;
                }
                BlockResult::CannotHere(why) => return Ok(self.cannot(number, why)),
            }
            keeper.keep()?;
            (self.tell.borrow_mut())(BenchEvent::Note(format!(
                "{name}: trial {trials}: {:.0} packets/s for {:.2} s",
                trial.load_pps, trial.duration_s
            )));
        }
        let found = search.result();
        add(keeper.recording, number, &goals, &found, trials);
        keeper.keep()?;
        let rate = found.first().and_then(|f| f.conditional_pps);
        if let Some(rate) = rate.filter(|_| arm.stamped) {
            self.latencies(&arm, &name, rate, keeper)?;
        }
        Ok(Ended::Measured)
    }

    fn cannot(&mut self, arm: usize, why: String) -> Ended {
        self.absent.insert(arm);
        Ended::CannotHere(why)
    }

    /// Blocks at parts of a rate.
    fn latencies(
        &mut self,
        arm: &BenchArm,
        name: &str,
        rate: f64,
        keeper: &mut Keeper<'_>,
    ) -> Result<(), EngineError> {
        for share in SHARES {
            let paced = BenchArm { offered: Offered::Pps((rate * share).max(1.0)), ..*arm };
            let mut new = paced.arm(&[paced]);
            new.name = format!("{name} at {:.0} %", share * 100.0);
            keeper.recording.arms.push(new);
            let number = keeper.recording.arms.len() - 1;
            for index in 0..self.plan.blocks {
                keeper.go_on()?;
                match self.block_of(&paced, self.plan.window)? {
                    BlockResult::Measured(measured, _) => {
                        super::add(keeper.recording, number, index, &measured);
                    }
                    BlockResult::CannotHere(why) => {
                        let failed = &mut keeper.recording.notes_of(number).failed;
                        failed.insert(RATES.into(), why);
                    }
                }
                keeper.keep()?;
            }
        }
        Ok(())
    }
}

fn goals(plan: &BenchPlan) -> Vec<Goal> {
    let final_s = plan.window.as_secs_f64();
    LOSS_RATIOS
        .iter()
        .map(|loss| Goal {
            final_trial_s: final_s,
            duration_sum_s: 5.0 * final_s,
            initial_trial_s: final_s / 4.0,
            ..Goal::repeated(*loss)
        })
        .collect()
}

/// The result of a trial. If packets are unaccounted for, it counts as complete loss.
fn result_of(trial: Trial, measured: &BlockRates) -> TrialResult {
    let lost = match measured.invalid() {
        Some(_) => 1.0,
        None => measured.loss(),
    };
    let offered = measured.offered_pps() / trial.load_pps;
    let missing = if offered < OFFERED { 1.0 - offered } else { 0.0 };
    TrialResult {
        loss_ratio: lost.max(missing).clamp(0.0, 1.0),
        effective_s: measured.window_ns as f64 / 1e9,
    }
}

/// Add the results to a recording, as figures of an arm by goal.
fn add(recording: &mut Recording, arm: usize, goals: &[Goal], found: &[GoalResult], trials: u32) {
    for (number, (goal, result)) in (0..).zip(goals.iter().zip(found)) {
        for (quantity, value) in [
            (&q::GOAL_LOSS, Some(goal.loss_ratio)),
            (&q::GOAL_TRIALS, Some(f64::from(trials))),
            (&q::GOAL_LOWER, result.lower_pps),
            (&q::GOAL_UPPER, result.upper_pps),
            (&q::GOAL_THROUGHPUT, result.conditional_pps),
        ] {
            if let Some(value) = value {
                recording.add(Subject::Arm(arm as u32), quantity, FigureKey::number(number), value);
            }
        }
        if let Some(why) = result.irregular {
            let why = match why {
                Irregular::HighestCarried => "limited by the generator",
                Irregular::LowestLost => "loss at the minimum load",
                Irregular::NotFound => "gave up before it was found",
            };
            let notes = recording.notes_of(arm);
            notes.irregular.insert(number, why.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netplumb_model::bench::{Generated, Hop};

    use super::*;

    fn trial(load_pps: f64, frames: u64, left: u64) -> TrialResult {
        let trial = Trial { load_pps, duration_s: 1.0 };
        let measured = BlockRates {
            window_ns: 1_000_000_000,
            generated: vec![Generated { frames, ..Generated::default() }],
            handled: netplumb_model::bench::Handled {
                packets: BTreeMap::from([(0, left)]),
                ..Default::default()
            },
            hops: vec![Hop {
                name: "x".into(),
                entered: frames,
                left,
                dropped: BTreeMap::from([("full".into(), frames - left)]),
            }],
            ..BlockRates::default()
        };
        result_of(trial, &measured)
    }

    /// Check that lost packets and packets not offered count as lost, within the accuracy of
    /// pacing.
    #[test]
    fn what_is_lost() {
        assert_eq!(trial(1000.0, 1000, 1000).loss_ratio, 0.0);
        assert_eq!(trial(1000.0, 995, 995).loss_ratio, 0.0);
        assert!((trial(1000.0, 1000, 900).loss_ratio - 0.1).abs() < 1e-9);
        assert!((trial(1000.0, 800, 800).loss_ratio - 0.2).abs() < 1e-9);
    }
}
