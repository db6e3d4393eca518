//! Verdicts on many pairs of samples at once.

use crate::bootstrap::{self, Interval};
use crate::fdr::discoveries;
use crate::welch::{Difference, mean};

/// Of what is called a difference, at most so much may be none. Where nothing
/// differs, that is how often anything is called so: in one of fifty comparisons.
pub const FALSE_RATE: f64 = 0.02;
/// With fewer blocks a side there is no verdict: two say next to nothing of how far
/// apart a third would be.
pub const MIN_BLOCKS: usize = 3;

/// One quantity on both sides, by block.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// Before.
    pub before: Vec<f64>,
    /// After.
    pub after: Vec<f64>,
    /// A standard error of each side's mean that all of its blocks have in common,
    /// such as that of a correction.
    pub shared: [f64; 2],
}

/// What came of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It takes less.
    Faster,
    /// It takes more.
    Slower,
    /// The blocks don't tell the sides apart.
    NoDifference,
    /// Too few blocks to tell anything.
    TooFew,
}

impl Verdict {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference seen",
            Verdict::TooFew => "too few blocks to tell",
        }
    }

    /// Whether there is a difference.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower)
    }
}

/// A pair, judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Mean of the blocks before.
    pub before: f64,
    /// And after.
    pub after: f64,
    /// Their ratio with its 95 % interval; none where there was nothing before, or
    /// a side has but one block.
    pub ratio: Option<Interval>,
    /// The probability of a difference as large where there is none.
    pub p: f64,
    /// What it comes to among all that were judged with it.
    pub verdict: Verdict,
    /// The smallest change, as a share of what was before, that would have been
    /// found in four of five such runs, were it the only one. None with too few
    /// blocks, or of nothing.
    pub smallest: Option<f64>,
}

/// Judge pairs that belong together: of the differences that are found among them,
/// at most [`FALSE_RATE`] are false. The seed is that of the intervals.
pub fn judge(pairs: &[Pair], seed: u64) -> Vec<Judged> {
    let differences: Vec<Option<Difference>> = pairs
        .iter()
        .map(|pair| {
            let enough = pair.before.len().min(pair.after.len()) >= MIN_BLOCKS;
            enough
                .then(|| Difference::of(&pair.before, &pair.after, pair.shared))
                .flatten()
        })
        .collect();
    let p: Vec<f64> = pairs
        .iter()
        .zip(&differences)
        .map(|(pair, difference)| {
            // Sums of rounded numbers are equal to some digits only.
            let scale = 1e-9 * (mean(&pair.before).abs() + mean(&pair.after).abs());
            difference.map_or(f64::NAN, |d| d.p(scale))
        })
        .collect();
    let found = discoveries(&p, FALSE_RATE);
    let tested = differences.iter().flatten().count().max(1);
    pairs
        .iter()
        .enumerate()
        .map(|(n, pair)| {
            let (before, after) = (mean(&pair.before), mean(&pair.after));
            let seed = seed.wrapping_add(n as u64);
            let ratio = bootstrap::ratio(&pair.before, &pair.after, pair.shared, seed);
            // Both ways of looking have to see it.
            let outside = ratio.is_none_or(|r| r.low > 1.0 || r.high < 1.0);
            let verdict = match differences[n] {
                None => Verdict::TooFew,
                Some(_) if !found[n] || !outside => Verdict::NoDifference,
                Some(d) if d.value < 0.0 => Verdict::Faster,
                Some(_) => Verdict::Slower,
            };
            Judged {
                before,
                after,
                ratio,
                p: if p[n].is_finite() { p[n] } else { 1.0 },
                verdict,
                smallest: differences[n]
                    .filter(|_| before > 0.0)
                    .map(|d| d.smallest(FALSE_RATE / tested as f64) / before)
                    .filter(|s| s.is_finite()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that too few blocks get no verdict, but their figures.
    #[test]
    fn too_few() {
        let pair = Pair {
            before: vec![1.0, 1.0],
            after: vec![9.0, 9.0],
            shared: [0.0; 2],
        };
        let judged = judge(&[pair], 1)[0];
        assert_eq!(judged.verdict, Verdict::TooFew);
        assert_eq!((judged.before, judged.after), (1.0, 9.0));
        assert_eq!(judged.smallest, None);
        let none = judge(&[Pair::default()], 1)[0];
        assert_eq!(none.verdict, Verdict::TooFew);
        assert_eq!(none.ratio, None);
    }

    /// Check that what came from nothing is slower, with no ratio.
    #[test]
    fn from_nothing() {
        let pair = Pair {
            before: vec![0.0; 5],
            after: vec![10.0, 11.0, 9.0, 10.5, 9.5],
            shared: [0.0; 2],
        };
        let judged = judge(&[pair], 1)[0];
        assert_eq!(judged.verdict, Verdict::Slower);
        assert_eq!(judged.ratio, None);
    }

    /// Check that a correction's own uncertainty is no difference.
    #[test]
    fn a_correction_that_is_off() {
        let pair = |shared| Pair {
            before: vec![100.0, 100.1, 99.9, 100.0, 100.0],
            after: vec![102.0, 102.1, 101.9, 102.0, 102.0],
            shared,
        };
        let judged = judge(&[pair([0.0; 2]), pair([2.0; 2])], 1);
        assert_eq!(judged[0].verdict, Verdict::Slower);
        assert_eq!(judged[1].verdict, Verdict::NoDifference);
    }
}
