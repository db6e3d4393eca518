//! Tests whether two means differ, with unequal variances: Welch, Biometrika 34 (1947).

use std::borrow::Cow;

use crate::student::{quantile, tails};

/// The mean of some values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let many = values.len() as f64;
    let sum: f64 = values.iter().sum();
    match values.iter().all(|value| value.is_finite()) {
        // The sum may be too large for a number where the mean is not.
        true if sum.is_infinite() => {
            let mean: f64 = values.iter().map(|value| value / many).sum();
            mean.clamp(f64::MIN, f64::MAX)
        }
        _ => sum / many,
    }
}

/// Those values that are numbers.
pub(crate) fn finite(values: &[f64]) -> Cow<'_, [f64]> {
    match values.iter().all(|value| value.is_finite()) {
        true => Cow::Borrowed(values),
        false => values.iter().copied().filter(|v| v.is_finite()).collect(),
    }
}

/// The square of the standard error of their mean; none for fewer than two.
pub(crate) fn squared_error(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    Some(squares / (values.len() - 1) as f64 / values.len() as f64)
}

/// Half the width of a 95 % interval in standard errors (Student's).
pub(crate) fn reach(freedom: f64) -> Option<f64> {
    const SIDE: f64 = 0.975;
    quantile(SIDE, freedom)
}

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The arithmetic mean.
    pub value: f64,
    /// The lower end of the 95 % interval; none for fewer than two values.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The number of values.
    pub of: usize,
}

impl Mean {
    /// The mean of the finite values, with Student's interval. None without any. If no value is negative, as for rates
    /// and times, neither are the ends.
    pub fn from_values(values: &[f64]) -> Option<Mean> {
        let values = &*finite(values);
        if values.is_empty() {
            return None;
        }
        let value = mean(values);
        let reach = squared_error(values)
            .and_then(|squared| Some(reach((values.len() - 1) as f64)? * squared.sqrt()))
            .filter(|reach| (value - reach).is_finite() && (value + reach).is_finite());
        Some(Mean {
            value,
            low: reach.map(|r| match values.iter().all(|v| *v >= 0.0) {
                true => (value - r).max(0.0),
                false => value - r,
            }),
            high: reach.map(|r| value + r),
            of: values.len(),
        })
    }
}

/// The difference of two means, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// After minus before.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
}

impl Difference {
    /// The difference of two samples. `shared` is a standard error of each mean that more blocks
    /// don't reduce. None if a side has fewer than two values.
    pub fn between(before: &[f64], after: &[f64], shared: [f64; 2]) -> Option<Difference> {
        let (a, b) = (squared_error(before)?, squared_error(after)?);
        let sum = a + b;
        // Welch and Satterthwaite, by shares, which neither overflow nor vanish; without any spread, the maximum.
        let freedom = if sum > 0.0 {
            let part = |e: f64, n: usize| (e / sum).powi(2) / (n - 1) as f64;
            1.0 / (part(a, before.len()) + part(b, after.len()))
        } else {
            (before.len() + after.len() - 2) as f64
        };
        Some(Difference {
            value: mean(after) - mean(before),
            error: (sum + shared[0].powi(2) + shared[1].powi(2)).sqrt(),
            freedom,
        })
    }

    /// The p-value. `scale` is the rounding error of sums.
    pub fn p(&self, scale: f64) -> f64 {
        match self.value.abs() <= scale {
            true => 1.0,
            false => tails(self.value, self.error, self.freedom),
        }
    }

    /// The smallest difference that would be detected at a significance level in four of five
    /// tries.
    pub fn smallest(&self, level: f64) -> f64 {
        const POWER: f64 = 0.8;
        let reach = |share: f64| quantile(share, self.freedom);
        let errors = reach(1.0 - level / 2.0).zip(reach(POWER));
        errors.map_or(f64::INFINITY, |(level, power)| (level + power) * self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check a p-value and its degrees of freedom against R's, for samples of unlike
    /// spread: t.test(c(3, 4, 1, 2.1), c(490.2, 340, 433.9)).
    #[test]
    fn as_in_r() {
        let found =
            Difference::between(&[3.0, 4.0, 1.0, 2.1], &[490.2, 340.0, 433.9], [0.0; 2]).unwrap();
        assert!((found.freedom - 2.000_85).abs() < 1e-4, "{found:?}");
        assert!((found.p(0.0) - 0.010_751_561).abs() < 1e-8, "{}", found.p(0.0));
    }

    /// Check an interval against R's: t.test(c(3, 4, 1, 2.1)).
    #[test]
    fn interval_as_in_r() {
        let found = Mean::from_values(&[3.0, 4.0, 1.0, 2.1]).unwrap();
        assert_eq!((found.value, found.of), (2.525, 4));
        assert!((found.low.unwrap() - 0.489_83).abs() < 1e-4, "{found:?}");
        assert!((found.high.unwrap() - 4.560_17).abs() < 1e-4, "{found:?}");
        assert_eq!(Mean::from_values(&[7.0]).unwrap().low, None);
        assert_eq!(Mean::from_values(&[1.0, 9.0]).unwrap().low, Some(0.0));
        assert!(Mean::from_values(&[-1.0, 9.0]).unwrap().low.unwrap() < -1.0);
        assert_eq!(Mean::from_values(&[]), None);
    }

    /// Check equal and different samples without spread.
    #[test]
    fn without_spread() {
        let same = Difference::between(&[5.0; 3], &[5.0; 3], [0.0; 2]).unwrap();
        assert_eq!(same.p(0.0), 1.0);
        let other = Difference::between(&[5.0; 3], &[5.1; 3], [0.0; 2]).unwrap();
        assert!(other.p(1e-9) < 1e-9);
        assert!(other.smallest(0.05) < 1e-9);
        // A shared error counts nevertheless.
        let unsure = Difference::between(&[5.0; 3], &[5.1; 3], [0.1; 2]).unwrap();
        assert!(unsure.p(1e-9) > 0.3);
        assert!(Difference::between(&[5.0], &[5.1; 3], [0.0; 2]).is_none());
    }
}
