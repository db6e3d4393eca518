//! The counting error of figures that are numbers of samples.

use netplumb_stats::counts::Counting;

/// One side of a comparison, by block.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    /// The cost in each block.
    pub(crate) own: Vec<f64>,
    /// What each block's cost is divided by.
    pub(crate) of: Vec<f64>,
    /// The cost that one sample stands for; not known without samples.
    pub(crate) sample: Option<f64>,
}

/// The counting error of a figure on both sides, if nothing differs. `share` is whether figures are
/// percentages of all samples. None where there are no samples.
pub(crate) fn counting(sides: [Counts; 2], share: bool) -> Option<Counting> {
    // Without samples on one side, the other side's weight.
    let known = sides[0].sample.or(sides[1].sample)?;
    let weights = [0, 1].map(|n: usize| sides[n].sample.unwrap_or(known));
    let sum = |all: &[f64]| -> f64 { all.iter().sum() };
    let whole: f64 = sides.iter().map(|side| sum(&side.of)).sum();
    let rate = sides.iter().map(|side| sum(&side.own)).sum::<f64>() / whole;
    let samples: f64 =
        (sides.iter().zip(weights)).map(|(side, weight)| sum(&side.own) / weight).sum();
    let blocks = sides.iter().map(|side| side.own.len()).sum::<usize>().max(1);
    let variance = |n: usize| -> Vec<f64> {
        let of = sides[n].of.iter().map(|of| of.max(f64::MIN_POSITIVE));
        of.map(|of| match share {
            // A share of samples (binomial), in percent.
            true => 1e4 * rate * (1.0 - rate).max(0.0) * weights[n] / of,
            // A number of samples (Poisson), each of a weight.
            false => rate * weights[n] / of,
        })
        .collect()
    };
    Some(Counting { variance: [variance(0), variance(1)], samples: samples / blocks as f64 })
}
