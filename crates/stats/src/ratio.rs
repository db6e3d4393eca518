//! An interval on the ratio of two means: Fieller, "Some Problems in Interval
//! Estimation", J. R. Stat. Soc. B 16 (1954).
//!
//! A ratio is in the interval if the blocks don't contradict it: if the mean after does not differ
//! significantly from the ratio times the mean before, by the test that judges differences. So the
//! interval has its nominal coverage with three blocks too, where percentiles of resampled blocks
//! are too narrow (90 of 100 cases instead of 95). If the blocks contradict no large ratio, it has
//! no upper end.
//!
//! Degrees of freedom are the mean of Welch's, which are too many if one side has far fewer blocks
//! or far more spread, and of the smaller side's own, which are never too many: Hsu, "Contribution
//! to the Theory of Student's t-Test", Statist. Res. Mem. 2 (1938). `tests/intervals.rs` shows the
//! coverage.

use crate::student::tails;
use crate::welch::{Difference, mean, squared_error};

/// The probability outside of the interval.
const OUTSIDE: f64 = 0.05;
/// Steps of bisection: enough for eleven digits.
const HALVINGS: usize = 40;
/// Steps of searching the upper end, each twice as far from the ratio.
const DOUBLINGS: usize = 100;
const NEAREST: f64 = 1e-12;

/// A ratio with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The ratio of the means: after over before. Never negative, like the quantities compared.
    pub value: f64,
    /// The lower end of the 95 % interval: at least 0.
    pub low: f64,
    /// The upper end; infinite if the mean before may be 0.
    pub high: f64,
}

impl Interval {
    /// Whether it has two ends.
    pub fn is_bounded(&self) -> bool {
        self.low > 0.0 && self.high.is_finite()
    }
}

/// The interval on the ratio of the means of two samples. `shared` is a standard error of each mean
/// that all blocks have in common. None if the first mean is not positive, or a side has fewer than
/// two blocks.
pub fn ratio(before: &[f64], after: &[f64], shared: [f64; 2]) -> Option<Interval> {
    ratio_of(before, after, shared, f64::INFINITY)
}

/// The same with at most `freedom` degrees of freedom.
pub(crate) fn ratio_of(
    before: &[f64],
    after: &[f64],
    shared: [f64; 2],
    freedom: f64,
) -> Option<Interval> {
    let (was, is) = (mean(before), mean(after));
    // Fewer than two have no spread.
    squared_error(before).and(squared_error(after))?;
    let value = value(was, is)?;
    // The p-value of a ratio.
    let p = |ratio: f64| -> f64 {
        let scaled: Vec<f64> = before.iter().map(|v| v * ratio).collect();
        let Some(difference) = Difference::between(&scaled, after, [shared[0] * ratio, shared[1]])
        else {
            return 1.0;
        };
        let least = before.len().min(after.len()) as f64 - 1.0;
        let middle = (difference.freedom + least) / 2.0;
        tails(difference.value, difference.error, middle.min(freedom))
    };
    // For an infinite ratio only the side before matters.
    let error = (squared_error(before)? + shared[0].powi(2)).sqrt();
    let most = before.len() as f64 - 1.0;
    let least = before.len().min(after.len()) as f64 - 1.0;
    let bounded = tails(was, error, ((most + least) / 2.0).min(freedom)) <= OUTSIDE;
    Some(ends(value, bounded, p))
}

/// The interval on the ratio of two means with known squares of standard errors and degrees of freedom. None if the
/// first mean is not positive.
pub(crate) fn ratio_of_means(
    (was, is): (f64, f64),
    squared: [f64; 2],
    freedom: f64,
) -> Option<Interval> {
    let value = value(was, is)?;
    let p = |ratio: f64| {
        let error = (squared[0] * ratio * ratio + squared[1]).sqrt();
        tails(is - was * ratio, error, freedom)
    };
    let bounded = tails(was, squared[0].sqrt(), freedom) <= OUTSIDE;
    Some(ends(value, bounded, p))
}

/// The ratio of two means; none if the first is not positive, or the ratio is not finite.
fn value(was: f64, is: f64) -> Option<f64> {
    let value = (is / was).max(0.0);
    (was > 0.0 && is.is_finite() && value.is_finite()).then_some(value)
}

/// The interval of the ratios about a value, given their p-values.
fn ends(value: f64, bounded: bool, p: impl Fn(f64) -> f64) -> Interval {
    let within = |ratio: f64| p(ratio) > OUTSIDE;
    let high = match bounded {
        true => {
            let mut step = value.max(NEAREST) / 2.0;
            let beyond = (0..DOUBLINGS).find_map(|_| {
                step *= 2.0;
                (!within(value + step)).then_some(value + step)
            });
            beyond.map_or(f64::INFINITY, |beyond| end(value, beyond, &within))
        }
        false => f64::INFINITY,
    };
    let low = match value > 0.0 && !within(0.0) {
        true => end(value, 0.0, &within),
        false => 0.0,
    };
    Interval { value, low, high }
}

/// The end of the interval between a point inside and one outside.
fn end(inner: f64, outer: f64, within: &impl Fn(f64) -> bool) -> f64 {
    let (mut inner, mut outer) = (inner, outer);
    for _ in 0..HALVINGS {
        let middle = inner + (outer - inner) / 2.0;
        match within(middle) {
            true => inner = middle,
            false => outer = middle,
        }
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the ends by hand: with equal blocks on one side, the difference there is Student's
    /// quantile for the side with spread.
    #[test]
    fn by_hand() {
        // Mean 2, standard error 1 / sqrt(3), and two degrees of freedom on one side.
        let spread = [1.0, 2.0, 3.0];
        let reach = 4.302_652_729_911_275 / 3.0_f64.sqrt();
        let found = ratio(&[10.0; 3], &spread, [0.0; 2]).unwrap();
        assert!((found.value - 0.2).abs() < 1e-12, "{found:?}");
        assert!((found.high - (2.0 + reach) / 10.0).abs() < 1e-9, "{found:?}");
        // 2 - 2.48 is negative, and the end is 0.
        assert_eq!(found.low, 0.0);
        // In reverse, the mean before may be 0.
        let found = ratio(&spread, &[10.0; 3], [0.0; 2]).unwrap();
        assert!((found.low - 10.0 / (2.0 + reach)).abs() < 1e-9, "{found:?}");
        assert_eq!(found.high, f64::INFINITY);
        assert!(!found.is_bounded());
    }

    /// Check that it contains the ratio, and that a shared error makes it wider.
    #[test]
    fn around_the_ratio() {
        let before = [100.0, 102.0, 98.0, 101.0, 99.0];
        let after = [110.0, 113.0, 108.0, 111.0, 109.0];
        let found = ratio(&before, &after, [0.0; 2]).unwrap();
        assert!((found.value - 1.102).abs() < 1e-9);
        assert!(found.low > 1.05 && found.low < found.value, "{found:?}");
        assert!(found.high < 1.15 && found.high > found.value, "{found:?}");
        let wider = ratio(&before, &after, [3.0; 2]).unwrap();
        assert!(wider.low < found.low && wider.high > found.high, "{wider:?}");
        // In reverse, it is the reciprocal.
        let back = ratio(&after, &before, [0.0; 2]).unwrap();
        assert!((back.low * found.high - 1.0).abs() < 1e-9, "{back:?}");
        assert!((back.high * found.low - 1.0).abs() < 1e-9, "{back:?}");
    }

    /// Check samples without a ratio, without spread, and with a negative mean after.
    #[test]
    fn edges() {
        assert_eq!(ratio(&[0.0; 3], &[1.0; 3], [0.0; 2]), None);
        assert_eq!(ratio(&[1.0], &[1.0; 3], [0.0; 2]), None);
        assert_eq!(ratio(&[1.0, f64::NAN], &[1.0; 3], [0.0; 2]), None);
        let exact = ratio(&[2.0; 3], &[3.0; 3], [0.0; 2]).unwrap();
        assert!((exact.low - 1.5).abs() < 1e-9 && (exact.high - 1.5).abs() < 1e-9);
        let gone = ratio(&[5.0, 5.1, 4.9], &[-0.1, 0.0, -0.2], [0.0; 2]).unwrap();
        assert_eq!((gone.value, gone.low), (0.0, 0.0));
        assert!(gone.high > 0.0 && gone.high < 0.2, "{gone:?}");
        let all_gone = ratio(&[5.0, 5.1, 4.9], &[0.0; 3], [0.0; 2]).unwrap();
        assert!(all_gone.high < 1e-6, "{all_gone:?}");
    }
}
