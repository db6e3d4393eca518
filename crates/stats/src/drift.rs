//! Drift: how much two separate runs may differ.
//!
//! Blocks of interleaved arms see the same conditions on the machine. Blocks of separate runs don't: a machine that
//! gets warmer, or a busy neighbour, makes the second run slower as a whole, and the blocks of each run differ by less
//! than the runs do. Drift between the runs is estimated from the drift of blocks within them.
//!
//! The mean square of successive differences (von Neumann, Kent, Bellinson and Hart, "The Mean Square Successive
//! Difference", Ann. Math. Stat. 12 (1941)) estimates the variation between neighbouring blocks; the same of means of
//! neighbouring blocks, the variation over longer times (Allan, "Statistics of Atomic Frequency Standards", Proc. IEEE
//! 54 (1966)). All of it is modelled as a random walk that continues from the first run into the second. Noise that is
//! not drift counts as drift here, so this is an upper bound, as long as the machine drifts between the runs as it did
//! within them.
//!
//! Few blocks give a poor estimate of a variance. If many quantities were measured in the same
//! blocks, their variances are moderated towards a common one: Smyth, "Linear Models and Empirical
//! Bayes Methods", Stat. Appl. Genet. Mol. Biol. 3 (2004), section 6.2.

use statrs::function::gamma::digamma;

use crate::welch::{mean, squared_error};

/// Number of batches of a run, or one more; with less than twice as many blocks, each block is a
/// batch. Longer batches reduce noise that is not drift; fewer batches give a poorer estimate.
const STRETCHES: usize = 4;
/// Minimum number of quantities to moderate variances.
const LEAST_ROWS: usize = 4;
/// Variances with more degrees of freedom than this count as known.
const MOST_FREEDOM: f64 = 1_000.0;

/// The contribution of drift to the difference of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// For each side: the square of its part of the standard error.
    pub sides: [f64; 2],
    /// Degrees of freedom of their sum.
    pub freedom: f64,
}

impl Drift {
    /// Estimate drift from the blocks of two runs, in the order in which they were measured. None
    /// if a side has fewer than three.
    pub fn between(before: &[f64], after: &[f64]) -> Option<Drift> {
        let steady = |values: &[f64], outer: usize| side(&without_spikes(values, outer));
        let a = steady(before, 0)?;
        let b = steady(after, after.len().saturating_sub(1))?;
        let sum = a.0 + b.0;
        let freedom = if sum > 0.0 {
            1.0 / ((a.0 / sum).powi(2) / a.1 + (b.0 / sum).powi(2) / b.1)
        } else {
            a.1 + b.1
        };
        Some(Drift { sides: [a.0, b.0], freedom })
    }

    /// The square of the standard error of the difference.
    pub fn squared(&self) -> f64 {
        self.sides[0] + self.sides[1]
    }
}

/// Blocks that differ from both neighbours by more than this multiple of the usual difference are
/// outliers, not drift.
const SPIKE: f64 = 8.0;

/// The blocks, with single outliers replaced by their neighbours, including `outer`, the farthest from the other run.
/// At the other end a change may continue in the other run, and is kept. The test over blocks uses all of them
/// unchanged.
fn without_spikes(values: &[f64], outer: usize) -> Vec<f64> {
    let mut out = values.to_vec();
    if values.len() < 5 {
        return out;
    }
    let mut steps: Vec<f64> = values.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    let far = SPIKE * steps[steps.len() / 2];
    for (n, out) in out.iter_mut().enumerate() {
        let beside = match (n.checked_sub(1).map(|m| values[m]), values.get(n + 1)) {
            (Some(a), Some(b)) if (a - b).abs() <= far => (a + b) / 2.0,
            (Some(one), None) if n == outer => one,
            (None, Some(one)) if n == outer => *one,
            _ => continue,
        };
        if (values[n] - beside).abs() > far {
            *out = beside;
        }
    }
    out
}

/// For one side: the square of the standard error, and its degrees of freedom.
fn side(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let width = (n / STRETCHES).max(1);
    let stretches: Vec<f64> = values.chunks_exact(width).map(mean).collect();
    let k = stretches.len() as f64;
    let squares: f64 = stretches.windows(2).map(|w| (w[1] - w[0]).powi(2)).sum();
    let neighbours = squares / (k - 1.0);
    // Two batches with a step between them.
    let of_neighbours = 2.0 * within(width as f64) + 1.0;
    // Half of the step between the runs.
    let of_mean = within(n as f64) + 0.5;
    // Successive differences of noise share a term; differences of a walk are more independent.
    let freedom = 2.0 * (k - 1.0).powi(2) / (3.0 * k - 4.0);
    Some((neighbours * of_mean / of_neighbours, freedom))
}

/// The variance of the mean of this many blocks about the first, of a walk with steps of variance one: the weight of a
/// step is the share of blocks after it.
pub(crate) fn within(blocks: f64) -> f64 {
    (blocks - 1.0) * (2.0 * blocks - 1.0) / (6.0 * blocks)
}

/// Moderate the drift of many quantities towards a common one. Each comes with its size, since the
/// common drift is relative.
pub fn moderated(rows: &[Option<(Drift, f64)>]) -> Vec<Option<Drift>> {
    let share = |drift: &Drift, size: f64| drift.squared() / (size * size);
    let known: Vec<(f64, f64)> = rows
        .iter()
        .flatten()
        .map(|(drift, size)| (share(drift, *size), drift.freedom))
        .filter(|(share, _)| share.is_finite() && *share > 0.0)
        .collect();
    let common = (known.len() >= LEAST_ROWS).then(|| prior(&known, 0.0));
    rows.iter()
        .map(|row| {
            let (drift, size) = row.as_ref()?;
            let own = share(drift, *size);
            let Some((variance, freedom)) = common.filter(|_| own.is_finite() && own > 0.0) else {
                return Some(*drift);
            };
            let sum = freedom + drift.freedom;
            let factor = (freedom * variance + drift.freedom * own) / sum / own;
            Some(Drift { sides: drift.sides.map(|side| side * factor), freedom: sum })
        })
        .collect()
}

/// The common variance, and its degrees of freedom: fewer, the more the variances differ beyond chance, by `beyond`
/// standard errors.
pub(crate) fn prior(known: &[(f64, f64)], beyond: f64) -> (f64, f64) {
    let logs: Vec<f64> = known
        .iter()
        .map(|(variance, freedom)| variance.ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln())
        .collect();
    let centre = mean(&logs);
    let squares: Vec<f64> = logs.iter().map(|log| (log - centre).powi(2)).collect();
    let spread: f64 = squares.iter().sum::<f64>() / (logs.len() - 1) as f64;
    let error = squared_error(&squares).unwrap_or(0.0).sqrt();
    let chance: Vec<f64> = known.iter().map(|(_, f)| trigamma(f / 2.0)).collect();
    // More than by chance for equal ones.
    let more = spread - mean(&chance) - beyond * error;
    let freedom = match more > 0.0 {
        true => (2.0 * trigamma_inverse(more)).min(MOST_FREEDOM),
        false => MOST_FREEDOM,
    };
    let half = freedom / 2.0;
    ((centre + digamma(half) - half.ln()).exp(), freedom)
}

/// The second derivative of the logarithm of the gamma function, for positive values: Abramowitz
/// and Stegun 6.4.6 and 6.4.12.
fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let (r, s) = (1.0 / x, 1.0 / (x * x));
    sum + r + s / 2.0 + r * s * (1.0 / 6.0 - s * (1.0 / 30.0 - s * (1.0 / 42.0 - s / 30.0)))
}

/// Its inverse, by bisection: it is monotonically decreasing.
fn trigamma_inverse(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6_f64, 1e6_f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        match trigamma(middle) > value {
            true => low = middle,
            false => high = middle,
        }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the trigamma function and its inverse against known values.
    #[test]
    fn trigammas() {
        let squared = std::f64::consts::PI.powi(2);
        for (x, value) in [(1.0, squared / 6.0), (0.5, squared / 2.0)] {
            assert!((trigamma(x) - value).abs() < 1e-9, "{x}");
            assert!((trigamma_inverse(value) - x).abs() < 1e-6, "{x}");
        }
        // By its recurrence.
        assert!((trigamma(20.0) - trigamma(21.0) - 1.0 / 400.0).abs() < 1e-12);
    }

    /// Check by hand: with five blocks per side, each block is a batch, and a walk's mean is off by
    /// 9 * 4 / 30 steps and half of the one between the runs.
    #[test]
    fn by_hand() {
        let found = Drift::between(&[1.0, 2.0, 1.0, 2.0, 1.0], &[3.0; 5]).unwrap();
        assert!((found.sides[0] - 1.7).abs() < 1e-12, "{found:?}");
        assert_eq!(found.sides[1], 0.0);
        // For one side alone.
        assert!((found.freedom - 32.0 / 11.0).abs() < 1e-12, "{found:?}");
        assert_eq!(Drift::between(&[1.0, 2.0], &[3.0; 5]), None);
        // Sixteen blocks are four batches of four: noise within batches is not drift.
        let even = Drift::between(&[1.0, 2.0].repeat(8), &[1.5; 16]).unwrap();
        assert_eq!(even.squared(), 0.0);
    }

    /// Check that a single outlier is not drift, except where the runs meet, and that a lasting step is.
    #[test]
    fn spikes() {
        let calm = [10.0, 11.0, 10.0, 11.0, 10.0, 11.0];
        let with = |places: &[usize]| {
            let mut values = calm;
            places.iter().for_each(|n| values[*n] = 90.0);
            values
        };
        let drift =
            |before: &[f64], after: &[f64]| Drift::between(before, after).unwrap().squared();
        let none = drift(&calm, &calm);
        for one in [with(&[2]), with(&[0])] {
            assert!(drift(&one, &calm) < 2.0 * none, "{one:?}");
        }
        assert!(drift(&calm, &with(&[5])) < 2.0 * none);
        for (before, after) in
            [(with(&[5]), calm), (calm, with(&[0])), (with(&[4, 5]), calm), (calm, with(&[4, 5]))]
        {
            assert!(drift(&before, &after) > 100.0 * none, "{before:?} {after:?}");
        }
    }

    /// Check that similar quantities improve the estimate, that a different one is hardly
    /// moderated, and that missing ones stay missing.
    #[test]
    fn what_they_have_in_common() {
        let drift = |squared: f64| Drift { sides: [squared / 2.0; 2], freedom: 5.8 };
        let alike: Vec<_> =
            (1..=20).map(|n| Some((drift(1.0 + f64::from(n) / 40.0), 10.0))).collect();
        for found in moderated(&alike).into_iter().flatten() {
            assert!(found.freedom > 100.0, "{found:?}");
            assert!((found.squared() / 1.3 - 1.0).abs() < 0.2, "{found:?}");
        }
        let unlike: Vec<_> = (0..20).map(|n| Some((drift(10_f64.powi(n)), 10.0))).collect();
        let found = moderated(&unlike);
        assert!(found.iter().flatten().all(|f| f.freedom < 8.0), "{found:?}");
        let (last, was) = (found[19].unwrap(), unlike[19].unwrap().0);
        assert!((last.squared() / was.squared() - 1.0).abs() < 0.1, "{last:?}");
        let few = [Some((drift(1.0), 1.0)), None, Some((drift(0.0), 0.0))];
        assert_eq!(moderated(&few), [few[0].map(|r| r.0), None, few[2].map(|r| r.0)]);
    }
}
