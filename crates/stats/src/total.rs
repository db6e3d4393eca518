//! Every public function, with figures of all kinds: none panics, and none returns NaN.

use std::cmp::Ordering;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::counts::Counting;
use crate::drift::{Drift, moderated};
use crate::fdr::discoveries;
use crate::halving::{Halving, front};
use crate::histogram;
use crate::judge::{Judged, Pair, Verdict, judge};
use crate::ratio::{Interval, ratio};
use crate::search::{Goal, MeasuredTrial, Search, Trial, TrialResult, classify, conditional_pps};
use crate::trend::Trend;
use crate::welch::{Difference, Mean, mean};

/// Figures at which arithmetic ends.
const ODD: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-300,
    5e-324,
    1e300,
    f64::MAX,
    f64::MIN,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::EPSILON,
    1e-160,
    1e160,
    100.0,
];

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn one(&mut self, odd: usize) -> f64 {
        match self.below(8) < odd {
            true => ODD[self.below(ODD.len())],
            false => self.below(1_000) as f64 / 7.0,
        }
    }

    /// None, one, equal ones, zeros, or some of all kinds.
    fn blocks(&mut self) -> Vec<f64> {
        let many = [0, 1, 2, 3, 5, 12, 40][self.below(7)];
        let (kind, odd) = (self.below(4), self.below(5));
        let first = self.one(odd);
        let one = |dice: &mut Dice| match kind {
            0 => first,
            1 => 0.0,
            _ => dice.one(odd),
        };
        (0..many).map(|_| one(self)).collect()
    }

    fn pair(&mut self) -> Pair {
        let (before, after) = (self.blocks(), self.blocks());
        let variance = |dice: &mut Dice, blocks: &[f64]| match dice.below(6) {
            0 => dice.blocks(),
            _ => blocks.iter().map(|_| dice.one(2).abs()).collect(),
        };
        let counting = (self.below(2) == 0).then(|| Counting {
            variance: [variance(self, &before), variance(self, &after)],
            samples: self.one(2),
        });
        let shared = match self.below(3) {
            0 => [self.one(3), self.one(3)],
            _ => [0.0; 2],
        };
        Pair { before, after, shared, apart: self.below(2) == 0, counting }
    }
}

fn sound(interval: &Interval) {
    assert!(interval.value.is_finite() && interval.value >= 0.0, "{interval:?}");
    assert!(interval.low.is_finite() && !interval.high.is_nan(), "{interval:?}");
    let wide = 1.0 + 1e-6;
    assert!(interval.low <= interval.value * wide, "{interval:?}");
    assert!(interval.value <= interval.high * wide, "{interval:?}");
}

fn sound_judged(judged: &Judged, pair: &Pair) {
    let numbers = [judged.before, judged.after, judged.p];
    assert!(numbers.iter().all(|n| n.is_finite()), "{judged:?}\n{pair:?}");
    assert!((0.0..=1.0).contains(&judged.p), "{judged:?}");
    for (low, high) in judged.sides.iter().flatten() {
        assert!(low.is_finite() && high.is_finite() && low <= high, "{judged:?}\n{pair:?}");
    }
    assert!(judged.smallest.is_none_or(|s| s.is_finite() && s >= 0.0), "{judged:?}");
    judged.ratio.iter().for_each(sound);
    let figures = |side: &[f64]| side.iter().filter(|v| v.is_finite()).count();
    if figures(&pair.before).min(figures(&pair.after)) < 3 {
        assert_eq!(judged.verdict, Verdict::TooFew, "{pair:?}");
    }
}

/// Check verdicts and all that they are made of.
#[test]
fn verdicts() {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(1));
    for _ in 0..3_000 {
        let pairs: Vec<Pair> = (0..dice.below(9)).map(|_| dice.pair()).collect();
        let all = judge(&pairs);
        assert_eq!(all.len(), pairs.len());
        for (judged, pair) in all.iter().zip(&pairs) {
            sound_judged(judged, pair);
            judged.is_blind();
        }
        for Pair { before, after, shared, .. } in &pairs {
            ratio(before, after, *shared).iter().for_each(sound);
            mean(before);
            if let Some(mean) = Mean::from_values(before) {
                let ends = [Some(mean.value), mean.low, mean.high];
                assert!(ends.iter().flatten().all(|n| n.is_finite()), "{mean:?}");
            }
            if let Some(difference) = Difference::between(before, after, *shared) {
                let p = difference.p(dice.one(3));
                assert!((0.0..=1.0).contains(&p), "{difference:?}");
                let level = dice.one(1).abs().min(1.0);
                difference.smallest(level);
            }
        }
        let drifts: Vec<Option<(Drift, f64)>> = (pairs.iter())
            .map(|pair| Some((Drift::between(&pair.before, &pair.after)?, dice.one(4))))
            .collect();
        assert_eq!(moderated(&drifts).len(), drifts.len());
        for (drift, _) in drifts.iter().flatten() {
            drift.squared();
        }
    }
}

/// Check that an empty block is left out: the others are judged as without it.
#[test]
fn empty_blocks() {
    let of = |hole: &[f64]| Pair {
        before: [&[10.0, 11.0, 9.0, 10.5], hole].concat(),
        after: vec![20.0, 21.0, 19.0, 20.5],
        counting: Some(Counting {
            variance: [[&[1.0; 4], hole].concat(), vec![2.0; 4]],
            samples: 10.0,
        }),
        ..Pair::default()
    };
    let [whole, holed] = [of(&[]), of(&[f64::NAN])].map(|pair| judge(&[pair])[0]);
    assert_eq!(holed, whole);
    assert_eq!(holed.verdict, Verdict::Slower);
}

/// Check trends, discoveries, and what no other beats.
#[test]
fn series() {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(2));
    for _ in 0..2_000 {
        let (times, values) = (dice.blocks(), dice.blocks());
        if let Some(trend) = Trend::fit(&times, &values) {
            let all = [trend.slope, trend.low, trend.high, trend.p, trend.mean];
            assert!(all.iter().all(|n| n.is_finite()), "{trend:?}\n{times:?}\n{values:?}");
            trend.is_there();
            trend.most();
        }
        assert_eq!(discoveries(&values, dice.one(4)).len(), values.len());
        let many: Vec<Vec<f64>> = (0..dice.below(5)).map(|_| dice.blocks()).collect();
        assert!(front(&many).len() <= many.len());
    }
}

/// Check histograms of any buckets.
#[test]
fn histograms() {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(3));
    for _ in 0..2_000 {
        let some = |dice: &mut Dice| -> Vec<(u16, u64)> {
            let one = |dice: &mut Dice| (dice.0.next_u64() as u16, dice.0.next_u64());
            let many = dice.below(5);
            (0..many).map(|_| one(dice)).collect()
        };
        let (mut all, other) = (some(&mut dice), some(&mut dice));
        histogram::merge(&mut all, &other);
        let (min, max) = (dice.0.next_u64(), dice.0.next_u64());
        let found = histogram::quantile(&all, dice.one(6), min, max);
        assert!(found.is_none_or(f64::is_finite), "{all:?}");
        for (bucket, _) in &all {
            assert!(histogram::lower(*bucket) <= histogram::upper(*bucket));
        }
        histogram::bucket_of(min);
    }
}

/// Check searches whose measurements are of all kinds, or fail.
#[test]
fn searches() {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(4));
    for _ in 0..300 {
        let levels: Vec<usize> = (0..dice.below(4)).map(|_| dice.below(4)).collect();
        let halving = Halving {
            levels: &levels,
            candidates: dice.below(20),
            at_once: dice.below(3),
            varies: dice.below(2) == 0,
            seed: 1,
        };
        let mut left = dice.below(200);
        let better = |a: &f64, b: &f64| -> Ordering { a.total_cmp(b) };
        let mut has_time = || {
            left = left.saturating_sub(1);
            left > 0
        };
        let found = halving.search::<f64, ()>(&better, &mut has_time, &mut |points, _| {
            let one = |dice: &mut Dice| (dice.below(4) > 0).then(|| dice.one(4));
            Ok(points.iter().map(|_| one(&mut dice)).collect())
        });
        assert!(found.unwrap().longest().count() <= 200);
    }
    for _ in 0..60 {
        let mut goal = Goal::repeated(dice.one(4));
        goal.exceed_ratio = dice.one(4);
        let _ = Goal::rfc2544();
        let (min, max) = (dice.one(4), dice.one(4));
        let mut search = match Search::new(vec![goal], min, max) {
            Ok(search) => search,
            Err(_) => Search::new(vec![Goal::repeated(0.0)], 1.0, 1e6).unwrap(),
        };
        let mut trials = Vec::new();
        while let Some(trial) = search.next_trial() {
            let result = TrialResult {
                loss_ratio: dice.one(4),
                ..TrialResult::from_counts(trial, dice.0.next_u64(), dice.one(4))
            };
            search.record(trial, result);
            trials.push(MeasuredTrial { trial, result });
        }
        assert!(search.trials().count() <= 2_000);
        assert_eq!(search.result().len(), 1);
        classify(&trials, &goal);
        conditional_pps(dice.one(4), &trials, &goal);
        let trial = Trial { load_pps: dice.one(6), duration_s: dice.one(6) };
        let loss = TrialResult::from_counts(trial, 3, 1.0).loss_ratio;
        assert!((0.0..=1.0).contains(&loss), "{trial:?} {loss}");
    }
}
