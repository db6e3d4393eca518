//! Verdicts on many pairs of samples at once.

use crate::counts::{BlockSides, Counting, Factor, Variance, variances};
use crate::drift::{Drift, moderated};
use crate::fdr::discoveries;
use crate::ratio::{self, Interval};
use crate::welch::{Difference, Mean, finite, mean, reach, squared_error};

/// The false discovery rate of differences. If nothing differs, this is how often a comparison
/// reports any: one in fifty.
pub const FALSE_RATE: f64 = 0.02;
/// Minimum number of blocks per side for a verdict: two hardly allow an estimate of the spread.
pub const MIN_BLOCKS: usize = 3;

/// One quantity on both sides, by block. A block without a figure has NaN, and is left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// Before.
    pub before: Vec<f64>,
    /// After.
    pub after: Vec<f64>,
    /// A standard error of each side's mean that all its blocks have in common, such as a correction's.
    pub shared: [f64; 2],
    /// Whether the sides were not interleaved: then there may be drift between them, and blocks are
    /// in the order in which they were measured.
    pub apart: bool,
    /// For numbers of samples: their minimum variation.
    pub counting: Option<Counting>,
}

impl Pair {
    /// The same with the blocks that have a figure.
    fn known(&self) -> Pair {
        let has_figure = |side: &[f64]| side.iter().map(|v| v.is_finite()).collect::<Vec<bool>>();
        let kept = [has_figure(&self.before), has_figure(&self.after)];
        let counting = self.counting.as_ref().map(|counting| Counting {
            variance: [0, 1].map(|n: usize| {
                let all = counting.variance[n].iter().zip(&kept[n]);
                all.filter(|(_, kept)| **kept).map(|(v, _)| *v).collect()
            }),
            samples: counting.samples,
        });
        // With an error that is not known nothing is.
        let shared = |error: f64| {
            if error.is_finite() { error } else { f64::INFINITY }
        };
        Pair {
            before: finite(&self.before).into_owned(),
            after: finite(&self.after).into_owned(),
            shared: self.shared.map(shared),
            apart: self.apart,
            counting,
        }
    }

    /// The counted quantity, if it is known for all blocks.
    fn counted(&self) -> Option<BlockSides<'_>> {
        let counting = self.counting.as_ref().filter(|_| self.enough())?;
        Some(BlockSides { sides: [&self.before, &self.after], counting, apart: self.apart })
    }

    /// Whether there are enough blocks for a verdict.
    fn enough(&self) -> bool {
        self.before.len().min(self.after.len()) >= MIN_BLOCKS
    }

    /// The standard error of each side: from its blocks, or from drift if that is more.
    fn widened(&self, drift: Drift) -> ([f64; 2], Option<Difference>) {
        let blocks = [&self.before, &self.after];
        let shared = [0, 1].map(|n| {
            let known = squared_error(blocks[n]).unwrap_or(0.0);
            (self.shared[n].powi(2) + (drift.sides[n] - known).max(0.0)).sqrt()
        });
        let mut difference = Difference::between(&self.before, &self.after, shared);
        if let Some(difference) = &mut difference {
            difference.freedom = difference.freedom.min(drift.freedom);
        }
        (shared, difference)
    }
}

/// The verdict on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It takes less.
    Faster,
    /// It takes more.
    Slower,
    /// No significant difference.
    NoDifference,
    /// Too few blocks for a verdict.
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
    /// Mean before.
    pub before: f64,
    /// Mean after.
    pub after: f64,
    /// The 95 % interval of each mean; none of fewer than two blocks.
    pub sides: [Option<(f64, f64)>; 2],
    /// Their ratio with its 95 % interval; none if `before` is 0, or a side has only one block.
    pub ratio: Option<Interval>,
    /// The p-value.
    pub p: f64,
    /// The verdict, with the false discovery rate controlled over all pairs.
    pub verdict: Verdict,
    /// The smallest change, as a share of `before`, that would be detected in four of five such
    /// runs, if it were the only one. None with too few blocks, or if `before` is 0.
    pub smallest: Option<f64>,
}

/// A run that could not detect this change, a doubling, is blind.
const BLIND: f64 = 1.0;

impl Judged {
    /// Whether noise may hide any change: the ratio's interval is unbounded, or a doubling would
    /// not have been detected.
    pub fn is_blind(&self) -> bool {
        self.verdict == Verdict::NoDifference
            && self.ratio.is_some_and(|ratio| {
                !ratio.is_bounded() || self.smallest.is_none_or(|s| s >= BLIND)
            })
    }
}

/// The tests of a pair.
struct Tested {
    /// The difference from the blocks, and of counts from what all pairs have in common.
    blocks: Difference,
    /// For counts: the variance of the difference of means.
    variance: Option<Variance>,
    /// With the moderated drift of all pairs, if the sides were not interleaved and drift is not in
    /// `blocks`.
    pooled: Option<Difference>,
    /// With the variation of this pair alone, each with its level of significance.
    own: Vec<(Difference, f64)>,
}

impl Tested {
    /// The p-value.
    fn p(&self, scale: f64) -> f64 {
        let pooled = self.pooled.map_or(0.0, |pooled| pooled.p(scale));
        self.blocks.p(scale).max(pooled)
    }

    /// Whether its own variation explains it in few runs only.
    fn beyond_own(&self, scale: f64) -> bool {
        self.own.iter().all(|(own, level)| own.p(scale) <= *level)
    }

    /// The smallest difference that would pass all tests.
    fn smallest(&self, tested: usize) -> f64 {
        let level = FALSE_RATE / tested as f64;
        let own = self.own.iter().map(|(own, level)| own.smallest(*level));
        let pooled = self.pooled.map(|pooled| pooled.smallest(level));
        let all = own.chain(pooled);
        all.fold(self.blocks.smallest(level), f64::max)
    }
}

/// The tests of all pairs, with drift.
fn tested(pairs: &[Pair]) -> Vec<Option<Tested>> {
    let drifts: Vec<Option<(Drift, f64)>> = pairs
        .iter()
        .map(|pair| {
            let drift = Drift::between(&pair.before, &pair.after)?;
            let size = (mean(&pair.before).abs() + mean(&pair.after).abs()) / 2.0;
            (pair.apart && pair.enough()).then_some((drift, size))
        })
        .collect();
    let counted: Vec<Option<BlockSides<'_>>> = pairs.iter().map(Pair::counted).collect();
    let variances = variances(&counted);
    pairs
        .iter()
        .zip(drifts.iter().zip(moderated(&drifts)).zip(variances))
        .map(|(pair, ((own, pooled), variance))| {
            let blocks = pair
                .enough()
                .then(|| Difference::between(&pair.before, &pair.after, pair.shared))??;
            if let Some(variance) = variance {
                let shared = pair.shared[0].powi(2) + pair.shared[1].powi(2);
                let by = |factor: Factor| Difference {
                    value: blocks.value,
                    error: (variance.squared(factor) + shared).sqrt(),
                    freedom: factor.freedom,
                };
                let own = variance.own.iter().map(|(own, level)| (by(*own), *level));
                return Some(Tested {
                    blocks: by(variance.moderated),
                    pooled: None,
                    own: own.collect(),
                    variance: Some(variance),
                });
            }
            let own = own.and_then(|(own, _)| Some((pair.widened(own).1?, FALSE_RATE)));
            let pooled = pooled.and_then(|pooled| {
                Some(Difference { freedom: pooled.freedom, ..pair.widened(pooled).1? })
            });
            Some(Tested { blocks, variance: None, pooled, own: own.into_iter().collect() })
        })
        .collect()
}

/// The interval on the ratio of a pair's means, and the intervals on the means.
fn intervals(
    pair: &Pair,
    variance: Option<&Variance>,
) -> (Option<Interval>, [Option<(f64, f64)>; 2]) {
    let blocks = [&pair.before, &pair.after];
    if let Some(variance) = variance {
        let squared = [0, 1].map(|side| variance.side(side) + pair.shared[side].powi(2));
        let means = blocks.map(|blocks| mean(blocks));
        let side = |side: usize| {
            let reach = reach(variance.moderated.freedom)? * squared[side].sqrt();
            let (low, high) = (means[side] - reach, means[side] + reach);
            (low.is_finite() && high.is_finite()).then_some((low.max(0.0).min(high), high))
        };
        let freedom = variance.moderated.freedom;
        let ratio = ratio::ratio_of_means((means[0], means[1]), squared, freedom);
        return (ratio, [side(0), side(1)]);
    }
    let drift = Drift::between(&pair.before, &pair.after).filter(|_| pair.apart);
    let (shared, freedom) =
        drift.map_or((pair.shared, f64::INFINITY), |drift| (pair.widened(drift).0, drift.freedom));
    let ratio = ratio::ratio_of(&pair.before, &pair.after, shared, freedom);
    let side = |blocks: &Vec<f64>| {
        let mean = Mean::from_values(blocks)?;
        Some((mean.low?, mean.high?))
    };
    (ratio, blocks.map(side))
}

/// Judge pairs together: of all reported differences, at most [`FALSE_RATE`] are false.
pub fn judge(pairs: &[Pair]) -> Vec<Judged> {
    let pairs: Vec<Pair> = pairs.iter().map(Pair::known).collect();
    let tests = tested(&pairs);
    // Sums of rounded numbers are only equal to a number of digits.
    let scale = |pair: &Pair| 1e-9 * (mean(&pair.before).abs() + mean(&pair.after).abs());
    let p: Vec<f64> = pairs
        .iter()
        .zip(&tests)
        .map(|(pair, test)| test.as_ref().map_or(f64::NAN, |t| t.p(scale(pair))))
        .collect();
    let found = discoveries(&p, FALSE_RATE);
    let many = tests.iter().flatten().count().max(1);
    pairs
        .iter()
        .zip(&tests)
        .enumerate()
        .map(|(n, (pair, test))| {
            let (before, after) = (mean(&pair.before), mean(&pair.after));
            let (ratio, sides) = intervals(pair, test.as_ref().and_then(|t| t.variance.as_ref()));
            // Test and interval have to agree.
            let outside = ratio.is_none_or(|r| r.low > 1.0 || r.high < 1.0);
            let verdict = match test {
                None => Verdict::TooFew,
                Some(test) if !found[n] || !outside || !test.beyond_own(scale(pair)) => {
                    Verdict::NoDifference
                }
                Some(test) if test.blocks.value < 0.0 => Verdict::Faster,
                Some(_) => Verdict::Slower,
            };
            Judged {
                before,
                after,
                sides,
                ratio,
                p: if p[n].is_finite() { p[n] } else { 1.0 },
                verdict,
                smallest: test
                    .as_ref()
                    .filter(|_| before > 0.0)
                    .map(|t| t.smallest(many) / before)
                    .filter(|s| s.is_finite()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that too few blocks have figures, but no verdict.
    #[test]
    fn too_few() {
        let pair = Pair { before: vec![1.0, 1.0], after: vec![9.0, 9.0], ..Pair::default() };
        let judged = judge(&[pair])[0];
        assert_eq!(judged.verdict, Verdict::TooFew);
        assert_eq!((judged.before, judged.after), (1.0, 9.0));
        assert_eq!(judged.smallest, None);
        let none = judge(&[Pair::default()])[0];
        assert_eq!(none.verdict, Verdict::TooFew);
        assert_eq!(none.ratio, None);
    }

    /// Check that a change from 0 is slower, without ratio.
    #[test]
    fn from_nothing() {
        let pair = Pair {
            before: vec![0.0; 5],
            after: vec![10.0, 11.0, 9.0, 10.5, 9.5],
            ..Pair::default()
        };
        let judged = judge(&[pair])[0];
        assert_eq!(judged.verdict, Verdict::Slower);
        assert_eq!(judged.ratio, None);
    }

    /// Check that blocks which vary by more than their mean hide any change, that this is reported,
    /// and that no ratio is negative.
    #[test]
    fn noise_that_hides_everything() {
        let of = |before: &[f64], after: &[f64]| {
            judge(&[Pair { before: before.to_vec(), after: after.to_vec(), ..Pair::default() }])[0]
        };
        let wild = of(&[10.0, 300.0, 40.0], &[250.0, 20.0, 90.0]);
        assert_eq!(wild.verdict, Verdict::NoDifference);
        let ratio = wild.ratio.unwrap();
        assert_eq!((ratio.low, ratio.high), (0.0, f64::INFINITY));
        assert!(wild.is_blind());
        let calm = of(&[100.0, 101.0, 99.0], &[100.5, 99.5, 100.0]);
        assert_eq!(calm.verdict, Verdict::NoDifference);
        assert!(!calm.is_blind());
        let found = of(&[100.0, 101.0, 99.0], &[200.5, 199.5, 200.0]);
        assert!(found.verdict.differs() && !found.is_blind());
    }

    /// Check that a difference within the uncertainty of a correction is not significant.
    #[test]
    fn a_correction_that_is_off() {
        let pair = |shared| Pair {
            before: vec![100.0, 100.1, 99.9, 100.0, 100.0],
            after: vec![102.0, 102.1, 101.9, 102.0, 102.0],
            shared,
            ..Pair::default()
        };
        let judged = judge(&[pair([0.0; 2]), pair([2.0; 2])]);
        assert_eq!(judged[0].verdict, Verdict::Slower);
        assert_eq!(judged[1].verdict, Verdict::NoDifference);
    }
}
