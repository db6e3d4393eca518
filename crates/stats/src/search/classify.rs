//! Classification of loads: RFC 9971, "Load Classification Logic" and "Conditional Throughput
//! Logic", with its names of intermediate values.

use super::{Goal, MeasuredTrial};

/// Tolerance of durations, in seconds: they are sums of values like 0.1.
const SAME_S: f64 = 1e-9;

/// The class of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It meets the goal, whatever else is measured until the goal's duration sum.
    Lower,
    /// It does not, whatever else is measured.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// Sums of the effective durations of a load's trials, seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    full_high_s: f64,
    full_low_s: f64,
    short_high_s: f64,
    short_low_s: f64,
}

impl Sums {
    /// "Aggregate Trial Durations". Whether a trial is long enough depends on its intended
    /// duration; it counts with its effective one.
    fn from_trials(trials: &[MeasuredTrial], goal: &Goal) -> Sums {
        let mut sums = Sums::default();
        for MeasuredTrial { trial, result } in trials {
            let is_full = trial.duration_s >= goal.final_trial_s - SAME_S;
            let is_high = result.loss_ratio > goal.loss_ratio;
            let sum = match (is_full, is_high) {
                (true, true) => &mut sums.full_high_s,
                (true, false) => &mut sums.full_low_s,
                (false, true) => &mut sums.short_high_s,
                (false, false) => &mut sums.short_low_s,
            };
            *sum += result.effective_s;
        }
        sums
    }
}

/// Classify a load by its trials, for a goal.
pub fn classify(trials: &[MeasuredTrial], goal: &Goal) -> Class {
    let sums = Sums::from_trials(trials, goal);
    let exceed_coefficient = goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    // "Balance Short-Trial Effects": short trials with high loss show that a load is too high if
    // they outweigh those with low loss; they never show that it meets the goal.
    let excess_s = sums.short_high_s - sums.short_low_s * exceed_coefficient;
    // "Compute Effective Duration Totals".
    let high_s = sums.full_high_s + excess_s.max(0.0);
    let full_s = high_s + sums.full_low_s;
    let whole_s = full_s.max(goal.duration_sum_s);
    let missing_s = whole_s - full_s;
    // "Classify the Load": ratios to `whole_s`, multiplied out.
    let allowed_s = goal.exceed_ratio * whole_s + SAME_S;
    if high_s > allowed_s {
        Class::Upper
    } else if high_s + missing_s <= allowed_s {
        Class::Lower
    } else {
        Class::Undecided
    }
}

/// The conditional throughput of a load, in packets per second: the rate reached in at least the
/// share of the time that the goal requires. Trials too short for the goal don't count.
pub fn conditional_pps(load_pps: f64, trials: &[MeasuredTrial], goal: &Goal) -> f64 {
    let mut full: Vec<_> = trials
        .iter()
        .filter(|m| m.trial.duration_s >= goal.final_trial_s - SAME_S)
        .map(|m| m.result)
        .collect();
    full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let full_s: f64 = full.iter().map(|r| r.effective_s).sum();
    let mut remaining_s = full_s * (1.0 - goal.exceed_ratio);
    let mut loss_ratio = 1.0;
    for result in full {
        if remaining_s <= SAME_S {
            break;
        }
        loss_ratio = result.loss_ratio;
        remaining_s -= result.effective_s;
    }
    load_pps * (1.0 - loss_ratio)
}

#[cfg(test)]
mod tests {
    use super::super::{Trial, TrialResult};
    use super::*;

    fn goal(final_trial_s: f64, duration_sum_s: f64, loss: f64, exceed: f64) -> Goal {
        Goal {
            loss_ratio: loss,
            exceed_ratio: exceed,
            final_trial_s,
            duration_sum_s,
            initial_trial_s: 1.0,
            width: 0.01,
        }
    }

    fn trials(sets: &[(usize, f64, f64)]) -> Vec<MeasuredTrial> {
        let each = sets.iter().flat_map(|(count, duration_s, loss_ratio)| {
            let one = MeasuredTrial {
                trial: Trial { load_pps: 1e6, duration_s: *duration_s },
                result: TrialResult { loss_ratio: *loss_ratio, effective_s: *duration_s },
            };
            std::iter::repeat_n(one, *count)
        });
        each.collect()
    }

    /// Goals of RFC 9971, "Example Goals": RFC2544, TST009, 1s final, 20% exceed.
    fn goals() -> [Goal; 4] {
        [
            goal(60.0, 60.0, 0.0, 0.0),
            goal(60.0, 120.0, 0.0, 0.5),
            goal(1.0, 120.0, 0.005, 0.5),
            goal(60.0, 60.0, 0.005, 0.2),
        ]
    }

    /// Check the RFC's own example at each of its points in time ("Example Search"). At
    /// the last two points its drafts call the load a lower bound for the last goal, while
    /// the ratios that they print, 42.857 % and 27.273 %, are above that goal's 20 %: by
    /// the definition it stays an upper bound.
    #[test]
    fn example_of_the_rfc() {
        use Class::{Lower as L, Undecided as U, Upper as X};
        let all = [(60, 1.0, 0.0), (60, 1.0, 0.01), (1, 60.0, 0.001), (1, 60.0, 0.0)];
        type Sets<'a> = &'a [(usize, f64, f64)];
        let points: [(Sets<'_>, [Class; 4]); 6] = [
            (&[(59, 1.0, 0.0)], [U, U, U, U]),
            (&[(59, 1.0, 0.0), (1, 1.0, 0.01)], [X, U, U, U]),
            (&[(59, 1.0, 0.0), (60, 1.0, 0.01)], [X, U, U, X]),
            (&all[..2], [X, U, L, X]),
            (&all[..3], [X, U, L, X]),
            (&all, [X, L, L, X]),
        ];
        for (n, (sets, expected)) in points.iter().enumerate() {
            let trials = trials(sets);
            let found = goals().map(|goal| classify(&trials, &goal));
            assert_eq!(found, *expected, "point {}", n + 1);
        }
        // "Conditional Throughput Computations", of goals 2 to 4.
        let trials = trials(&all);
        let found = goals().map(|goal| conditional_pps(1e6, &trials, &goal).round());
        assert_eq!(found[1..], [1e6, 1e6, 999e3]);
    }

    /// Check that an unmeasured load is undecided, without throughput.
    #[test]
    fn unmeasured() {
        for goal in goals() {
            assert_eq!(classify(&[], &goal), Class::Undecided);
            assert_eq!(conditional_pps(5.0, &[], &goal), 0.0);
        }
    }

    /// Check that sums of tenths of a second decide as whole seconds do.
    #[test]
    fn tenths() {
        let goal = goal(0.1, 1.0, 0.0, 0.5);
        assert_eq!(classify(&trials(&[(4, 0.1, 0.0)]), &goal), Class::Undecided);
        assert_eq!(classify(&trials(&[(5, 0.1, 0.0)]), &goal), Class::Lower);
        assert_eq!(classify(&trials(&[(5, 0.1, 0.5)]), &goal), Class::Undecided);
        assert_eq!(classify(&trials(&[(6, 0.1, 0.5)]), &goal), Class::Upper);
    }
}
