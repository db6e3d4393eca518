//! Variation of counts: how much identical sides may differ.
//!
//! A figure that is a number of samples varies at least as samples do that fall independently: by the square root of
//! their number. That much is known without a single repetition. Real blocks vary by more, as a load does, and more so
//! the functions that have many samples: the *dispersion*, their variance over the variance of counting, is modelled as
//! a constant and a part that grows with the number of samples, as for negative binomial counts.
//!
//! Three or five blocks are a poor estimate of a variance, and with hundreds of functions tested
//! at once Student's t then has no power: with three blocks a side and a hundred functions, a
//! change has to be 15 standard errors. So dispersions are moderated towards the model, which all
//! functions together estimate well: Smyth (see `drift.rs`), as quasi-likelihood does it for counts of
//! sequences (Lund, Nettleton, McCarthy and Smyth, Stat. Appl. Genet. Mol. Biol. 11 (2012)). A
//! function that varies by far more than the others is judged by itself (Phipson, Lee, Majewski, Alexander
//! and Smyth, Ann. Appl. Stat. 10 (2016)). None is taken to vary by less than counting does.
//!
//! Drift between runs that were not interleaved is estimated from how much the first half of each run differs from its
//! second, beyond what its blocks differ by anyway: noise from block to block makes halves differ as much as blocks, a
//! walk makes them differ more. Functions whose blocks vary alike are taken to drift alike, so those that are steady
//! are not judged by those that are not.

use crate::drift::{prior, within};
use crate::welch::mean;

/// Fewer samples in a block, and a function's spread hardly informs the common one.
const MIN_SAMPLES: f64 = 5.0;
/// Minimum number of functions to moderate dispersions.
const MIN_FUNCTIONS: usize = 4;
/// Rounds of weighted least squares, each with the weights of the one before.
const ROUNDS: usize = 12;
/// Chance that a function's own variation is this much above the common one.
const OUTLIER: f64 = 0.01;
/// A difference has to exceed what a function's own blocks make in all but this share of runs, with the few degrees of
/// freedom that they have...
const OWN: f64 = 0.02;
/// ...and its own halves, which are the poorest estimate.
const OWN_HALVES: f64 = 0.1;
/// Standard errors that are added to a drift that all functions estimate together.
const SURE: f64 = 2.0;

/// What is known of a counted quantity independently of its blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counting {
    /// For each side, the variance of each block's figure from counting alone, if both sides are
    /// the same.
    pub variance: [Vec<f64>; 2],
    /// Samples of a block, on average over both sides.
    pub samples: f64,
}

/// The variance of a difference of means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variance {
    /// For each side: the square of the standard error of its mean from counting alone.
    counting: [f64; 2],
    /// The factor by which it varies more, moderated by all others.
    pub(crate) moderated: Factor,
    /// The same of this one alone, each with its level of significance.
    pub(crate) own: Vec<(Factor, f64)>,
}

/// A variation beyond counting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factor {
    value: f64,
    /// Degrees of freedom.
    pub(crate) freedom: f64,
}

impl Variance {
    /// The square of the standard error of a side's mean.
    pub(crate) fn side(&self, side: usize) -> f64 {
        self.counting[side] * self.moderated.value
    }

    /// The square of the standard error of the difference, by a factor.
    pub(crate) fn squared(&self, factor: Factor) -> f64 {
        (self.counting[0] + self.counting[1]) * factor.value
    }
}

/// The input of a verdict: the blocks of both sides, in the order in which they were measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockSides<'a> {
    /// Both sides' figures by block.
    pub(crate) sides: [&'a [f64]; 2],
    pub(crate) counting: &'a Counting,
    /// Whether the sides were not interleaved.
    pub(crate) apart: bool,
}

/// An estimate of a variance, as a multiple of the variance of counting.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    ratio: f64,
    freedom: f64,
}

/// The variances of some quantities, estimated together. None where a side has fewer than two blocks,
/// or nothing was counted.
pub(crate) fn variances(all: &[Option<BlockSides<'_>>]) -> Vec<Option<Variance>> {
    let of_blocks = |c: &Option<BlockSides<'_>>| {
        let counted = c.as_ref()?;
        let samples = counted.counting.samples;
        Some(WeightedEstimate { samples, by: samples, own: spread(counted)? })
    };
    let blocks: Vec<Option<WeightedEstimate>> = all.iter().map(of_blocks).collect();
    let spread = pooled(&blocks, 0.0);
    let of_halves = |(c, spread): (&Option<BlockSides<'_>>, &Option<Estimate>)| {
        let counted = c.as_ref()?;
        Some(WeightedEstimate {
            samples: counted.counting.samples,
            by: (spread.as_ref()?.ratio - 1.0).max(0.0),
            own: halves(counted)?,
        })
    };
    let of_halves: Vec<Option<WeightedEstimate>> = all.iter().zip(&spread).map(of_halves).collect();
    let halves = pooled(&of_halves, SURE);
    let one = |n: usize| {
        let counted = all[n].as_ref()?;
        let counting = [0, 1].map(|side| counted.of_mean(side));
        let walk = counted.walk();
        let of_spread = |e: Estimate| Factor { value: e.ratio.max(1.0), freedom: e.freedom };
        let by_spread = of_spread(spread[n]?);
        let by_halves = halves[n]
            .map(|e| Factor { value: walk.of_mean(by_spread.value, e.ratio), freedom: e.freedom });
        let drifts = by_halves.filter(|halves| halves.value > by_spread.value);
        let alone = blocks[n].as_ref().map(|row| (of_spread(row.own), OWN));
        let halves = of_halves[n].as_ref().map(|row| {
            // Blocks that vary more than halves do are not drift.
            let spread = by_spread.value.min(row.own.ratio.max(1.0));
            let factor =
                Factor { value: walk.of_mean(spread, row.own.ratio), freedom: row.own.freedom };
            (factor, OWN_HALVES)
        });
        Some(Variance {
            counting,
            moderated: drifts.unwrap_or(by_spread),
            own: alone.into_iter().chain(halves).collect(),
        })
    };
    (0..all.len()).map(one).collect()
}

impl BlockSides<'_> {
    /// The square of the standard error of a side's mean from counting alone.
    fn of_mean(&self, side: usize) -> f64 {
        let blocks = self.sides[side].len().max(1) as f64;
        mean(&self.counting.variance[side]) / blocks
    }

    /// The average effect of a walk on these runs.
    fn walk(&self) -> Walk {
        let blocks = self.sides.map(<[f64]>::len);
        let weights = [0, 1].map(|side| self.of_mean(side));
        let sum = (weights[0] + weights[1]).max(f64::MIN_POSITIVE);
        let halves = blocks.map(|n| Half::new(n).of_walk());
        let means = blocks.map(|n| n as f64 * (within(n as f64) + 0.5));
        Walk {
            spread: (blocks[0] + blocks[1] + 2) as f64 / 12.0,
            halves: (halves[0] + halves[1]) / 2.0,
            mean: (means[0] * weights[0] + means[1] * weights[1]) / sum,
        }
    }
}

/// A random walk from block to block, each step with a block's variance from counting: by how much it raises each of
/// these, as a multiple of the value from counting.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// The variance of blocks about their side's mean.
    spread: f64,
    /// The square of the difference of halves.
    halves: f64,
    /// The square of the difference of two runs' means, with the step between them.
    mean: f64,
}

impl Walk {
    /// The factor of the difference of means, of a spread and of halves that are made of noise
    /// and of a walk.
    fn of_mean(&self, spread: f64, halves: f64) -> f64 {
        let noisy = spread.max(1.0);
        // At least three blocks tell them apart.
        let apart = (self.halves - self.spread).max(0.1);
        // Blocks that vary by less than such a walk have no other noise.
        let steps = ((halves - noisy) / apart).min((halves - 1.0) / self.halves);
        let steps = steps.max(0.0);
        let noise = (noisy - 1.0 - steps * self.spread).max(0.0);
        1.0 + noise + steps * self.mean
    }
}

/// The dispersion of the blocks about their side's mean.
fn spread(counted: &BlockSides<'_>) -> Option<Estimate> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for (values, variances) in counted.sides.iter().zip(&counted.counting.variance) {
        if values.len() < 2 || values.len() != variances.len() {
            return None;
        }
        let centre = mean(values);
        for (value, variance) in values.iter().zip(variances) {
            // Nor of NaN.
            if !(*variance > 0.0 && variance.is_finite()) {
                return None;
            }
            squares += (value - centre).powi(2) / variance;
        }
        freedom += (values.len() - 1) as f64;
    }
    Some(Estimate { ratio: squares / freedom, freedom })
}

/// Halves of a run.
struct Half {
    width: usize,
    /// Blocks between them.
    gap: usize,
}

impl Half {
    fn new(blocks: usize) -> Half {
        Half { width: (blocks / 2).max(1), gap: if blocks > 1 { blocks % 2 } else { 0 } }
    }

    /// The variance of the difference of halves in a random walk with a block's variance per step, over the variance of
    /// blocks without a walk.
    fn of_walk(&self) -> f64 {
        let steps = 2.0 * within(self.width as f64) + 1.0 + self.gap as f64;
        steps * self.width as f64 / 2.0
    }
}

/// By how much the first half of each run differs from the second, as a multiple of the value from counting.
fn halves(counted: &BlockSides<'_>) -> Option<Estimate> {
    if !counted.apart {
        return None;
    }
    let (mut squares, mut freedom) = (0.0, 0.0);
    for (values, variances) in counted.sides.iter().zip(&counted.counting.variance) {
        if values.len() < 2 || values.len() != variances.len() {
            return None;
        }
        let width = Half::new(values.len()).width;
        let end = values.len() - width;
        let between = mean(&values[end..]) - mean(&values[..width]);
        let counting = (mean(&variances[end..]) + mean(&variances[..width])) / width as f64;
        if !(counting > 0.0 && counting.is_finite()) {
            return None;
        }
        squares += between.powi(2) / counting;
        freedom += 1.0;
    }
    Some(Estimate { ratio: squares / freedom, freedom })
}

/// An estimate, and what it may depend on.
#[derive(Debug, Clone, Copy)]
struct WeightedEstimate {
    samples: f64,
    /// It grows with this.
    by: f64,
    own: Estimate,
}

/// Moderate estimates towards what they have in common. `sure` is how many standard errors are added to
/// that.
fn pooled(rows: &[Option<WeightedEstimate>], sure: f64) -> Vec<Option<Estimate>> {
    let is_known = |row: &&WeightedEstimate| {
        row.samples >= MIN_SAMPLES && row.own.ratio > 0.0 && row.own.ratio.is_finite()
    };
    let known = rows.iter().flatten().filter(is_known);
    let known: Vec<(f64, Estimate)> = known.map(|row| (row.by, row.own)).collect();
    if known.len() < MIN_FUNCTIONS {
        return rows.iter().map(|row| row.map(|row| row.own)).collect();
    }
    let model = Model::fit(&known);
    let relative: Vec<(f64, f64)> =
        (known.iter()).map(|(by, e)| (e.ratio / model.at(*by), e.freedom)).collect();
    let (level, freedom) = prior(&relative, 1.0);
    // Of the mean of that many estimates.
    let of_all: f64 = relative.iter().map(|(_, freedom)| freedom).sum();
    let level = level.max(1.0) * (1.0 + sure * (2.0 / of_all).sqrt());
    rows.iter()
        .map(|row| {
            let WeightedEstimate { by, own, .. } = row.as_ref()?;
            let common = level * model.at(*by);
            // As far from the common estimate as chance alone rarely leads.
            if own.ratio / common > far(own.freedom) {
                return Some(*own);
            }
            let sum = freedom + own.freedom;
            Some(Estimate {
                ratio: (freedom * common + own.freedom * own.ratio) / sum,
                freedom: sum,
            })
        })
        .collect()
}

/// The ratio of an estimate to its true value that [`OUTLIER`] of them exceed (Wilson and Hilferty,
/// Proc. Natl. Acad. Sci. USA 17 (1931)).
fn far(freedom: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    let part = 2.0 / (9.0 * freedom);
    (1.0 - part + Normal::standard().inverse_cdf(1.0 - OUTLIER) * part.sqrt()).powi(3)
}

/// An estimate by what it grows with: `constant + slope * by`. For blocks, dispersion grows with the number of samples;
/// for halves, with the dispersion of blocks.
#[derive(Debug, Clone, Copy)]
struct Model {
    constant: f64,
    slope: f64,
}

impl Model {
    fn at(&self, by: f64) -> f64 {
        self.constant + self.slope * by
    }

    /// By least squares, weighted like estimates of variances: by the inverse square of the estimate. The constant is
    /// at least 1, and the slope is not negative.
    fn fit(known: &[(f64, Estimate)]) -> Model {
        let mut model = Model { constant: 1.0, slope: 0.0 };
        for _ in 0..ROUNDS {
            let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for (by, e) in known {
                let weight = e.freedom / model.at(*by).powi(2);
                // One that is far off is not to drag all others along.
                let y = e.ratio.min(model.at(*by) * far(e.freedom));
                w += weight;
                wx += weight * by;
                wy += weight * y;
                wxx += weight * by * by;
                wxy += weight * by * y;
            }
            let divisor = w * wxx - wx * wx;
            let slope = match divisor > 1e-12 * w * wxx {
                true => (w * wxy - wx * wy) / divisor,
                false => 0.0,
            };
            let constant = (wy - slope * wx) / w;
            model = match (constant >= 1.0, slope >= 0.0) {
                (true, true) => Model { constant, slope },
                (true, false) | (false, false) => Model { constant: (wy / w).max(1.0), slope: 0.0 },
                (false, true) => Model { constant: 1.0, slope: ((wxy - wx) / wxx).max(0.0) },
            };
        }
        model
    }
}
