use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use super::*;

const MIN: f64 = 1e3;
const MAX: f64 = 1e7;

/// A device that carries so much, and no more.
struct Device {
    random: Pcg64Mcg,
    limit_pps: f64,
    /// How far it varies from one trial to the next: a standard deviation, as a share.
    noise: f64,
    /// How often a trial loses a thousandth whatever the load.
    spikes: f64,
    /// For this long it accepts load above its limit.
    buffer_s: f64,
}

impl Device {
    fn with_limit(limit_pps: f64) -> Device {
        Device {
            random: Pcg64Mcg::seed_from_u64(1),
            limit_pps,
            noise: 0.0,
            spikes: 0.0,
            buffer_s: 0.0,
        }
    }

    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn carry(&mut self, trial: Trial) -> TrialResult {
        let normal = Normal::standard().inverse_cdf(self.uniform());
        let limit = self.limit_pps * (1.0 + self.noise * normal).max(0.0);
        let offered = trial.load_pps * trial.duration_s;
        let mut carried = match trial.load_pps <= limit || trial.duration_s < self.buffer_s {
            true => offered,
            false => limit * trial.duration_s,
        };
        if self.uniform() < self.spikes {
            carried *= 0.999;
        }
        TrialResult::from_counts(trial, carried as u64, trial.duration_s)
    }
}

/// The result, the number of trials, and their total time in seconds.
fn search(goals: &[Goal], device: &mut Device) -> (Vec<GoalResult>, usize, f64) {
    let mut search = Search::new(goals.to_vec(), MIN, MAX).unwrap();
    while let Some(trial) = search.next_trial() {
        assert!((MIN..=MAX).contains(&trial.load_pps), "{trial:?}");
        search.record(trial, device.carry(trial));
        assert!(search.count < MOST_TRIALS, "{:?}", search.result());
    }
    let seconds = search.trials().map(|m| m.trial.duration_s).sum();
    (search.result(), search.trials().count(), seconds)
}

/// Check that the limit of a device that has one lies between the bounds, which are as near as requested, at any limit
/// and for any goal; and that it takes no more trials than halving and stepping do.
#[test]
fn a_sharp_limit() {
    let mut limit = MIN * 1.01;
    while limit < MAX * 0.98 {
        for (loss, exceed) in [(0.0, 0.0), (0.0, 0.5), (0.005, 0.5), (0.1, 0.2)] {
            let goal = Goal { exceed_ratio: exceed, ..Goal::repeated(loss) };
            // Below the limit nothing is lost, above it the excess.
            let most = limit / (1.0 - loss);
            if most >= MAX {
                continue;
            }
            let (found, trials, _) = search(&[goal], &mut Device::with_limit(limit));
            let message = format!("{limit} {loss} {exceed}: {found:?} in {trials}");
            assert_eq!(found[0].irregular, None, "{message}");
            let (lower, upper) = (found[0].lower_pps.unwrap(), found[0].upper_pps.unwrap());
            // Less than a packet in the longest trial is no loss.
            assert!(lower <= most + 1.0 && most < upper, "{message}");
            assert!(upper - lower <= (goal.width * upper).max(1.0), "{message}");
            let carried = found[0].conditional_pps.unwrap();
            assert!(carried <= limit + 1.0 && carried >= lower * (1.0 - loss) - 1.0, "{message}");
            assert!(trials <= 90, "{message}");
        }
        limit *= 1.37;
    }
}

/// Check that two goals are found in one search, which takes fewer trials than two.
#[test]
fn two_goals() {
    let goals = [Goal::repeated(0.0), Goal::repeated(0.05)];
    let (found, together, _) = search(&goals, &mut Device::with_limit(3.3e6));
    assert_eq!(found.len(), 2);
    for (result, goal) in found.iter().zip(goals) {
        assert_eq!(result.irregular, None, "{found:?}");
        let most = 3.3e6 / (1.0 - goal.loss_ratio);
        assert!(result.lower_pps.unwrap() <= most + 1.0, "{found:?}");
        assert!(result.upper_pps.unwrap() > most, "{found:?}");
    }
    let apart: usize =
        goals.iter().map(|goal| search(&[*goal], &mut Device::with_limit(3.3e6)).1).sum();
    assert!(together < apart, "{together} and {apart}");
}

/// Check the results for a device that never loses, and for one that always does: they are marked irregular, with what
/// was found.
#[test]
fn no_limit_in_reach() {
    let goals = [Goal::repeated(0.0), Goal::rfc2544(), Goal::repeated(0.005)];
    let (found, trials, _) = search(&goals, &mut Device::with_limit(2.0 * MAX));
    for result in &found {
        assert_eq!(result.irregular, Some(Irregular::HighestCarried));
        assert_eq!(result.lower_pps, Some(MAX));
        assert_eq!((result.upper_pps, result.conditional_pps), (None, Some(MAX)));
    }
    assert!(trials < 20, "{trials}");
    for limit in [0.0, MIN / 2.0] {
        let (found, trials, _) = search(&goals, &mut Device::with_limit(limit));
        for result in &found {
            assert_eq!(result.irregular, Some(Irregular::LowestLost), "{found:?}");
            assert_eq!((result.lower_pps, result.upper_pps), (None, Some(MIN)));
        }
        assert!(trials < 90, "{trials}");
    }
}

/// Check that a device which buffers for longer than short trials last is not taken at
/// their word ("Strong Increase").
#[test]
fn long_trials_decide() {
    let mut device = Device { buffer_s: 0.9, ..Device::with_limit(2e6) };
    let (found, ..) = search(&[Goal::repeated(0.0)], &mut device);
    assert_eq!(found[0].irregular, None, "{found:?}");
    assert!(found[0].lower_pps.unwrap() <= 2e6 + 1.0, "{found:?}");
    assert!(found[0].upper_pps.unwrap() > 2e6, "{found:?}");
}

/// Check that sporadic losses, in one of five trials, don't change the result of a goal that tolerates some, and ruin
/// it for a goal that tolerates none.
#[test]
fn spikes() {
    let device = |seed| Device {
        random: Pcg64Mcg::seed_from_u64(seed),
        spikes: 0.2,
        ..Device::with_limit(4e6)
    };
    let strict = Goal { exceed_ratio: 0.0, ..Goal::repeated(0.0) };
    let (mut near, mut near_strict) = (0, 0);
    const TRIES: u64 = 100;
    for seed in 0..TRIES {
        let is_near = |goal| {
            let (found, ..) = search(&[goal], &mut device(seed));
            let lower = found[0].lower_pps.unwrap_or(0.0);
            usize::from((lower / 4e6 - 1.0).abs() < 0.02)
        };
        near += is_near(Goal::repeated(0.0));
        near_strict += is_near(strict);
    }
    assert!(near >= 75, "{near} of {TRIES}");
    assert!(near_strict <= 30, "{near_strict} of {TRIES}");
}

/// Check that the result for a device that varies by a percent from one trial to the next is reproducible: its spread
/// is little more than the width of the goal, and its middle near to the truth. Searches end, and don't take much
/// longer than of one that does not vary.
#[test]
fn repeatable() {
    const TRIES: u64 = 100;
    let of = |seed, noise| Device {
        random: Pcg64Mcg::seed_from_u64(seed),
        noise,
        ..Device::with_limit(5e6)
    };
    let goal = Goal::repeated(0.0);
    let (_, calm, _) = search(&[goal], &mut of(0, 0.0));
    let mut found = Vec::new();
    let mut most = 0;
    for seed in 0..TRIES {
        let (result, trials, _) = search(&[goal], &mut of(seed, 0.01));
        assert_eq!(result[0].irregular, None);
        found.push(result[0].conditional_pps.unwrap() / 5e6);
        most = most.max(trials);
    }
    found.sort_by(f64::total_cmp);
    let at = |share: f64| found[(share * (found.len() - 1) as f64) as usize];
    let (low, middle, high) = (at(0.05), at(0.5), at(0.95));
    assert!(high - low < 0.03, "{low} to {high}");
    assert!((middle - 0.99).abs() < 0.015, "{middle}");
    assert!(most <= 3 * calm, "{most} and {calm}");
}

/// Check that an aborted search reports it, with its results so far.
#[test]
fn broken_off() {
    let mut device = Device::with_limit(3e6);
    let mut search = Search::new(vec![Goal::repeated(0.0)], MIN, MAX).unwrap();
    for _ in 0..4 {
        let trial = search.next_trial().unwrap();
        search.record(trial, device.carry(trial));
    }
    assert_eq!(search.result()[0].irregular, Some(Irregular::NotFound));
    // Asked twice, it gives the same answer.
    assert_eq!(search.next_trial(), search.next_trial());
}

/// Check that what can't be searched for is refused.
#[test]
fn refused() {
    let goal = Goal::repeated(0.0);
    for (min, max) in [(0.0, 1e6), (-5.0, 5.0), (5.0, 5.0), (9.0, 5.0), (1.0, f64::NAN)] {
        let refused = Search::new(vec![goal], min, max).err();
        assert_eq!(refused, Some(SearchError::Loads), "{min} {max}");
    }
    for goal in [
        Goal { loss_ratio: 1.0, ..goal },
        Goal { loss_ratio: f64::NAN, ..goal },
        Goal { exceed_ratio: -0.1, ..goal },
        Goal { initial_trial_s: 0.0, ..goal },
        Goal { initial_trial_s: 2.0, ..goal },
        Goal { duration_sum_s: 0.5, ..goal },
        Goal { width: 0.0, ..goal },
    ] {
        let refused = Search::new(vec![goal], 1.0, 5.0).err();
        assert_eq!(refused, Some(SearchError::Goals), "{goal:?}");
    }
    let refused = Search::new(Vec::new(), 1.0, 5.0).err();
    assert_eq!(refused, Some(SearchError::Goals));
}

/// Check that a load which the sender could not offer is not carried, and that less than a packet does not count.
#[test]
fn counts() {
    let trial = Trial { load_pps: 1000.4, duration_s: 1.0 };
    assert_eq!(TrialResult::from_counts(trial, 1000, 1.0).loss_ratio, 0.0);
    assert_eq!(TrialResult::from_counts(trial, 2000, 1.0).loss_ratio, 0.0);
    assert!(TrialResult::from_counts(trial, 999, 1.0).loss_ratio > 0.001);
    assert_eq!(TrialResult::from_counts(trial, 0, 1.0).loss_ratio, 1.0);
}
