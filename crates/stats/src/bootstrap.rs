//! An interval on the ratio of two means, by resampling blocks.
//!
//! Percentiles of few resampled blocks are too narrow: five blocks resampled from themselves vary
//! less than five new ones would. The levels are therefore those of Student's distribution for that
//! number of blocks: Hesterberg, "What Teachers Should Know About the Bootstrap", The American
//! Statistician 69 (2015), section 3.3, the expanded percentile interval.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::welch::{Difference, mean};

/// Enough for the levels of three blocks per side.
const RESAMPLES: usize = 10_000;

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The ratio of the means: after over before.
    pub value: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The interval on the ratio of the means of two samples. `shared` is a standard error of each mean
/// that all blocks have in common. None if the first mean is not positive, or a side has fewer than
/// two blocks. The same seed gives the same interval.
pub fn ratio(before: &[f64], after: &[f64], shared: [f64; 2], seed: u64) -> Option<Interval> {
    let difference = Difference::of(before, after, shared)?;
    ratio_of(before, after, shared, &difference, seed)
}

/// The same, for a known difference with other degrees of freedom than those of the blocks alone.
pub(crate) fn ratio_of(
    before: &[f64],
    after: &[f64],
    shared: [f64; 2],
    difference: &Difference,
    seed: u64,
) -> Option<Interval> {
    let (was, is) = (mean(before), mean(after));
    if was <= 0.0 {
        return None;
    }
    let value = is / was;
    if difference.error == 0.0 {
        return Some(Interval {
            value,
            low: value,
            high: value,
        });
    }
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let normal = Normal::standard();
    let mut ratios: Vec<f64> = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut side = |values: &[f64], shared: f64| {
            let noise = match shared > 0.0 {
                true => shared * normal.inverse_cdf(uniform(&mut generator)),
                false => 0.0,
            };
            resampled(values, &mut generator) + noise
        };
        let was = side(before, shared[0]);
        let is = side(after, shared[1]);
        // Without a positive mean, the ratio is unbounded.
        ratios.push(if was > 0.0 { is / was } else { f64::INFINITY });
    }
    let tail = tail(difference, before.len().min(after.len()));
    let mut at = |share: f64| {
        let place = (share * (RESAMPLES - 1) as f64).round() as usize;
        let place = place.min(RESAMPLES - 1);
        *ratios.select_nth_unstable_by(place, f64::total_cmp).1
    };
    Some(Interval {
        value,
        low: at(tail).min(value),
        high: at(1.0 - tail).max(value),
    })
}

/// The mean of the same number of blocks, resampled.
fn resampled(values: &[f64], generator: &mut Pcg64Mcg) -> f64 {
    let many = values.len() as u64;
    let sum: f64 = (0..many)
        .map(|_| values[((u64::from(generator.next_u32()) * many) >> 32) as usize])
        .sum();
    sum / many as f64
}

/// Between 0 and 1, exclusive.
fn uniform(generator: &mut Pcg64Mcg) -> f64 {
    ((generator.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// The share of resampled ratios outside of the interval, on each side.
fn tail(difference: &Difference, blocks: usize) -> f64 {
    const SIDE: f64 = 0.025;
    let blocks = blocks.max(2) as f64;
    let Ok(student) = StudentsT::new(0.0, 1.0, difference.freedom) else {
        return SIDE;
    };
    let reach = (blocks / (blocks - 1.0)).sqrt() * student.inverse_cdf(SIDE);
    Normal::standard().cdf(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the same seed gives the same interval, and that it contains the ratio.
    #[test]
    fn repeatable() {
        let before = [100.0, 102.0, 98.0, 101.0, 99.0];
        let after = [110.0, 113.0, 108.0, 111.0, 109.0];
        let first = ratio(&before, &after, [0.0; 2], 7).unwrap();
        assert_eq!(ratio(&before, &after, [0.0; 2], 7), Some(first));
        assert!((first.value - 1.102).abs() < 1e-9);
        assert!(first.low > 1.05 && first.low < first.value, "{first:?}");
        assert!(first.high < 1.15 && first.high > first.value, "{first:?}");
        let wider = ratio(&before, &after, [3.0; 2], 7).unwrap();
        assert!(
            wider.low < first.low && wider.high > first.high,
            "{wider:?}"
        );
    }

    /// Check samples without a ratio, and without spread.
    #[test]
    fn edges() {
        assert_eq!(ratio(&[0.0; 3], &[1.0; 3], [0.0; 2], 1), None);
        assert_eq!(ratio(&[1.0], &[1.0; 3], [0.0; 2], 1), None);
        let exact = ratio(&[2.0; 3], &[3.0; 3], [0.0; 2], 1).unwrap();
        assert_eq!((exact.low, exact.high), (1.5, 1.5));
    }
}
