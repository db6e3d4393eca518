//! Whether a figure drifts over a run: trends and steps of a series of blocks.
//!
//! - The trend is the median of all slopes between two blocks: Theil (1950), Sen, "Estimates of the regression
//!   coefficient based on Kendall's tau", J. Am. Stat. Assoc. 63 (1968), also for its interval. Outliers don't matter.
//! - Whether a trend exists is tested by Kendall's S: Mann, Econometrica 13 (1945). Neighbouring blocks are alike
//!   without any trend, which makes S vary more, by an amount from the autocorrelation of ranks: Hamed and Rao, "A
//!   modified Mann-Kendall trend test for autocorrelated data", J. Hydrology 204 (1998).
//! - A step is looked for as by Pettitt, Appl. Statist. 28 (1979).

use statrs::distribution::{ContinuousCDF, Normal};

use crate::welch::mean;

/// Fewer blocks show no trend.
pub const FEWEST: usize = 10;
/// The level of significance of a single test: in twenty runs without any drift hardly one shows some.
pub const LEVEL: f64 = 0.01;
/// Half the width of a 95 % interval, in standard errors.
const REACH: f64 = 1.96;
/// Blocks on either side of a step.
const LEAST_SIDE: usize = 3;

/// The trend of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// The change in one unit of time: the median of slopes.
    pub slope: f64,
    /// The 95 % interval of that.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The p-value of no trend.
    pub p: f64,
    /// The mean of all values, which the slope is a part of.
    pub mean: f64,
    /// The most probable place of a step, if a step explains the series better than a slope.
    pub step: Option<Step>,
}

/// A step of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The first value after it.
    pub at: usize,
    /// The median before it.
    pub before: f64,
    /// The median after it.
    pub after: f64,
    /// The p-value of no step.
    pub p: f64,
}

impl Trend {
    /// The trend of values at these times, in their order. None if they are fewer than [`FEWEST`], if all are at one
    /// time, or if a time or slope is not a number.
    pub fn fit(times: &[f64], values: &[f64]) -> Option<Trend> {
        let n = values.len();
        if n < FEWEST || times.len() != n || times.iter().chain(values).any(|v| !v.is_finite()) {
            return None;
        }
        let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
        let mut s = 0_i64;
        for later in 1..n {
            for earlier in 0..later {
                let (took, change) =
                    (times[later] - times[earlier], values[later] - values[earlier]);
                if took > 0.0 {
                    slopes.push(change / took);
                    s += i64::from(change > 0.0) - i64::from(change < 0.0);
                }
            }
        }
        if slopes.is_empty() || slopes.iter().any(|slope| !slope.is_finite()) {
            return None;
        }
        slopes.sort_by(f64::total_cmp);
        let slope = middle(&slopes);
        let inflation = inflation(times, values, slope);
        let error = (variance_of_s(values) * inflation).sqrt();
        // With the correction for continuity.
        let distance = (s.abs() - 1).max(0) as f64;
        let p = match error > 0.0 {
            true => two_sided(distance / error),
            false => 1.0,
        };
        // Sen's interval, by the ranks of slopes.
        let (all, half) = (slopes.len() as f64, REACH * error);
        let at = |rank: f64| {
            let last = slopes.len() - 1;
            slopes[(rank.max(0.0) as usize).min(last)]
        };
        let found = pettitt(values).filter(|step| {
            step.p * inflation_of_p(inflation) < LEVEL && explains(step, times, values, slope)
        });
        Some(Trend {
            slope,
            low: at(((all - half) / 2.0).floor()),
            high: at(((all + half) / 2.0).ceil()),
            p,
            mean: mean(values),
            step: found,
        })
    }

    /// Whether there is a trend, judged alone.
    pub fn is_there(&self) -> bool {
        self.p < LEVEL
    }

    /// The maximum change in one unit of time, either way.
    pub fn most(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// The median of ascending values.
fn middle(ascending: &[f64]) -> f64 {
    let n = ascending.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => ascending[n / 2],
        _ => (ascending[n / 2 - 1] + ascending[n / 2]) / 2.0,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn two_sided(distance: f64) -> f64 {
    (2.0 * Normal::standard().sf(distance)).min(1.0)
}

/// The variance of Kendall's S of independent values, with ties.
fn variance_of_s(values: &[f64]) -> f64 {
    let part = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|equal| part(equal.len() as f64)).sum();
    (part(values.len() as f64) - ties) / 18.0
}

/// The inflation of S's variance by similar neighbours: from the autocorrelation of the ranks of residuals. At least 1,
/// since a few blocks may give less by chance.
fn inflation(times: &[f64], values: &[f64], slope: f64) -> f64 {
    let left: Vec<f64> =
        (values.iter().zip(times)).map(|(value, time)| value - slope * time).collect();
    let ranks = ranks(&left);
    let n = ranks.len();
    let centre = mean(&ranks);
    let square: f64 = ranks.iter().map(|rank| (rank - centre).powi(2)).sum();
    if square <= 0.0 {
        return 1.0;
    }
    let count = n as f64;
    let mut sum = 0.0;
    for lag in 1..n / 3 {
        let pairs = ranks.iter().zip(&ranks[lag..]);
        let together: f64 = pairs.map(|(a, b)| (a - centre) * (b - centre)).sum();
        let r = together / square;
        // Noise that lasts is positively correlated; from the first lag on where it is not, there is
        // chance only: Geyer, "Practical Markov chain Monte Carlo", Statist. Sci. 7 (1992).
        if r <= 0.0 {
            break;
        }
        let left = count - lag as f64;
        sum += left * (left - 1.0) * (left - 2.0) * r;
    }
    (1.0 + 2.0 / (count * (count - 1.0) * (count - 2.0)) * sum).max(1.0)
}

/// Ranks from 1; equal values share theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = below as f64 + (equal.len() as f64 + 1.0) / 2.0;
        for at in equal {
            ranks[*at] = rank;
        }
        below += equal.len();
    }
    ranks
}

/// The most probable step: Pettitt's test, and the place that leaves the least, since the test prefers
/// the middle.
fn pettitt(values: &[f64]) -> Option<Step> {
    let n = values.len();
    let ranks = ranks(values);
    let mut sum = 0.0;
    let mut k = 0.0_f64;
    for (at, rank) in (1..n).zip(&ranks) {
        sum += rank;
        // U of Mann and Whitney, of the values before against the values after.
        k = k.max((2.0 * sum - at as f64 * (n as f64 + 1.0)).abs());
    }
    let places = LEAST_SIDE..=n - LEAST_SIDE;
    let remaining = |at: usize| remains(&values[..at]) + remains(&values[at..]);
    let at = places.min_by(|a, b| remaining(*a).total_cmp(&remaining(*b)))?;
    let count = n as f64;
    Some(Step {
        at,
        before: median(&values[..at]),
        after: median(&values[at..]),
        p: (2.0 * (-6.0 * k * k / (count.powi(3) + count.powi(2))).exp()).min(1.0),
    })
}

/// How far values are from their median, in all.
fn remains(values: &[f64]) -> f64 {
    let level = median(values);
    values.iter().map(|value| (value - level).abs()).sum()
}

/// A step's p-value is inflated where neighbours are alike.
fn inflation_of_p(inflation: f64) -> f64 {
    inflation.powi(4)
}

/// Whether a step leaves less than a line does, by absolute values: an outlier makes no step.
fn explains(step: &Step, times: &[f64], values: &[f64], slope: f64) -> bool {
    let on_line: Vec<f64> =
        (values.iter().zip(times)).map(|(value, time)| value - slope * time).collect();
    let (before, after) = values.split_at(step.at);
    remains(before) + remains(after) < remains(&on_line)
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::fdr::discoveries;

    /// Blocks of a long run, once merging has begun.
    const BLOCKS: usize = 96;
    const HOURS: f64 = 12.0;

    struct Machine(Pcg64Mcg);

    impl Machine {
        fn normal(&mut self) -> f64 {
            let uniform = ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            Normal::standard().inverse_cdf(uniform)
        }

        /// Values that vary by 2 %; the part `alike` of each is its predecessor's.
        fn run(&mut self, alike: f64, of: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
            let mut noise = self.normal();
            let mut values = Vec::new();
            let times: Vec<f64> = (1..=BLOCKS).map(|n| HOURS * n as f64 / BLOCKS as f64).collect();
            for time in &times {
                noise = alike * noise + (1.0 - alike * alike).sqrt() * self.normal();
                values.push(1_000.0 * of(*time) * (1.0 + 0.02 * noise));
            }
            (times, values)
        }

        fn trend(&mut self, alike: f64, of: impl Fn(f64) -> f64) -> Trend {
            let (times, values) = self.run(alike, of);
            Trend::fit(&times, &values).unwrap()
        }
    }

    fn machine(seed: u64) -> Machine {
        Machine(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Check that runs without drift show none in at least 19 of 20, neither trend nor step, also if
    /// neighbouring blocks are alike.
    #[test]
    fn nothing_drifts() {
        const TRIES: usize = 200;
        for alike in [0.0, 0.3, 0.5] {
            let mut machine = machine(7);
            let drifts = (0..TRIES).filter(|_| {
                let trend = machine.trend(alike, |_| 1.0);
                trend.is_there() || trend.step.is_some()
            });
            let drifts = drifts.count();
            assert!(drifts <= TRIES / 20, "{alike}: {drifts} of {TRIES}");
        }
    }

    /// Check that a drift of 1 % an hour is found in at least 19 of 20, and is within the interval in about as many.
    #[test]
    fn drift_is_found_with_its_size() {
        const TRIES: usize = 100;
        for alike in [0.0, 0.3] {
            let mut machine = machine(8);
            let (mut found, mut covered) = (0, 0);
            for _ in 0..TRIES {
                let trend = machine.trend(alike, |hours| 1.0 + 0.01 * hours);
                found += usize::from(trend.is_there() && trend.slope > 0.0);
                covered += usize::from(trend.low <= 10.0 && 10.0 <= trend.high);
            }
            assert!(found >= TRIES * 19 / 20, "{alike}: found {found}");
            assert!(covered >= TRIES * 9 / 10, "{alike}: covered {covered}");
        }
    }

    /// Check that a step is found, where it is and with its size, and not in a line.
    #[test]
    fn steps() {
        const TRIES: usize = 40;
        let mut machine = machine(9);
        let step = |hours: f64| if hours > 8.0 { 1.1 } else { 1.0 };
        let (mut found, mut lines) = (0, 0);
        for _ in 0..TRIES {
            if let Some(step) = machine.trend(0.0, step).step {
                let place = step.at.abs_diff(BLOCKS * 2 / 3);
                let change = step.after / step.before;
                found += usize::from(place <= 2 && (1.08..1.12).contains(&change));
            }
            let line = machine.trend(0.0, |hours| 1.0 + 0.01 * hours);
            lines += usize::from(line.step.is_some());
        }
        assert!(found >= TRIES * 19 / 20, "{found}");
        assert!(lines <= TRIES / 20, "{lines}");
    }

    /// Check that only the functions that drift are found among many, with false discoveries controlled.
    #[test]
    fn of_many_functions() {
        const RUNS: usize = 20;
        let mut machine = machine(10);
        let (mut found, mut false_ones) = (0, 0);
        for _ in 0..RUNS {
            let slopes: Vec<f64> = (0..100).map(|f| if f < 3 { 0.01 } else { 0.0 }).collect();
            let p: Vec<f64> = (slopes.iter())
                .map(|slope| machine.trend(0.0, |hours| 1.0 + slope * hours).p)
                .collect();
            let drifts = discoveries(&p, 0.05);
            found += drifts[..3].iter().filter(|d| **d).count();
            false_ones += drifts[3..].iter().filter(|d| **d).count();
        }
        assert_eq!(found, 3 * RUNS);
        assert!(false_ones <= RUNS / 2, "{false_ones}");
    }

    /// Check the ends: too few blocks, one time, values that never change, which have no trend and an
    /// empty interval, and a pure line.
    #[test]
    fn edges() {
        let times: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(Trend::fit(&times[..9], &times[..9]), None);
        assert_eq!(Trend::fit(&[1.0; 20], &times), None);
        let even = Trend::fit(&times, &[5.0; 20]).unwrap();
        assert!(!even.is_there() && even.step.is_none());
        assert_eq!((even.slope, even.most(), even.p), (0.0, 0.0, 1.0));
        let line = Trend::fit(&times, &times).unwrap();
        assert!(line.is_there() && line.step.is_none());
        assert_eq!((line.slope, line.low, line.high), (1.0, 1.0, 1.0));
        // S of a line is all pairs: its variance without ties is n(n-1)(2n+5)/18.
        assert_eq!(variance_of_s(&times), 20.0 * 19.0 * 45.0 / 18.0);
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
    }
}
