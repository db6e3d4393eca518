//! What holds of statistics, whatever the numbers.

use netplumb_stats::histogram::{bucket_of, count, lower, merge, quantile, upper};
use netplumb_stats::ratio::ratio;
use netplumb_stats::welch::{Difference, Mean};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Values as they are measured: positive, of any size.
fn values(least: usize) -> impl Strategy<Value = Vec<f64>> {
    vec(1e-3..1e12_f64, least..40)
}

/// Buckets of a histogram of some values.
fn histogram(values: &[u64]) -> Vec<(u16, u64)> {
    let mut buckets = Vec::new();
    values.iter().for_each(|value| merge(&mut buckets, &[(bucket_of(*value), 1)]));
    buckets
}

proptest! {
    // The same cases in each run; more of them by PROPTEST_CASES.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Check that a value is in its bucket, that buckets don't overlap, and that none is wider than an eighth of its values.
    #[test]
    fn buckets(value: u64) {
        let bucket = bucket_of(value);
        prop_assert!(lower(bucket) <= value);
        prop_assert!(value <= upper(bucket) || bucket == bucket_of(u64::MAX));
        prop_assert!(upper(bucket) - lower(bucket) <= (value / 4).max(1));
    }

    /// Check that merged histograms equal the histogram of all values, in either order.
    #[test]
    fn merged(one in vec(any::<u64>(), 0..50), other in vec(any::<u64>(), 0..50)) {
        let mut merged = histogram(&one);
        merge(&mut merged, &histogram(&other));
        let mut reversed = histogram(&other);
        merge(&mut reversed, &histogram(&one));
        prop_assert_eq!(&merged, &histogram(&[one.clone(), other.clone()].concat()));
        prop_assert_eq!(&merged, &reversed);
        prop_assert_eq!(count(&merged), (one.len() + other.len()) as u64);
    }

    /// Check that a quantile is within the values, and that a larger share has no smaller one.
    #[test]
    fn quantiles(values in vec(any::<u64>(), 1..60), one in 0.0..1.0_f64, other in 0.0..1.0_f64) {
        let (min, max) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
        let buckets = histogram(&values);
        let (small, large) = (one.min(other), one.max(other));
        let at = |share| quantile(&buckets, share, min, max).unwrap();
        prop_assert!(at(small) >= min as f64 && at(large) <= max as f64);
        prop_assert!(at(small) <= at(large));
    }

    /// Check that an interval is around its mean, in any order of the values, and as wide in any unit.
    #[test]
    fn means(mut values in values(2), unit in 1e-3..1e3_f64) {
        let mean = Mean::from_values(&values).unwrap();
        let (low, high) = (mean.low.unwrap(), mean.high.unwrap());
        prop_assert!(low <= mean.value && mean.value <= high);
        values.reverse();
        let reversed = Mean::from_values(&values).unwrap();
        prop_assert!((reversed.value / mean.value - 1.0).abs() < 1e-9);
        let other: Vec<f64> = values.iter().map(|value| value * unit).collect();
        let other = Mean::from_values(&other).unwrap();
        let width = other.high.unwrap() - other.low.unwrap();
        prop_assert!((width - unit * (high - low)).abs() <= 1e-6 * unit * high.abs());
    }

    /// Check that a difference from itself is none, and that it changes its sign with the sides.
    #[test]
    fn differences(before in values(3), after in values(3)) {
        let same = Difference::between(&before, &before, [0.0; 2]).unwrap();
        prop_assert!(same.p(1.0) > 0.5 || same.p(1.0).is_nan(), "{same:?}");
        let there = Difference::between(&before, &after, [0.0; 2]).unwrap();
        let back = Difference::between(&after, &before, [0.0; 2]).unwrap();
        let (p, q) = (there.p(1.0), back.p(1.0));
        prop_assert!((p - q).abs() < 1e-9 || p.is_nan() && q.is_nan());
        if let Some(interval) = ratio(&before, &after, [0.0; 2]) {
            prop_assert!(interval.low <= interval.value && interval.value <= interval.high, "{interval:?}");
        }
    }
}
