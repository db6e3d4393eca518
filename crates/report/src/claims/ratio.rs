//! Ratios of arms whose figures vary or have seeds, and the verdicts that their bounds give.

use netplumb_model::experiment::{Bound, Claim};
use netplumb_stats::ratio::{self, Interval};
use netplumb_stats::welch::mean;

use super::Answer;
use super::samples::Samples;
use super::subject::What;

/// An answer, and why; or why nothing was measured.
pub(super) type ClaimAnswer = Result<(Answer, String), String>;

/// The ratio of the second to the first, with its interval over blocks.
pub(super) fn interval(before: &[f64], after: &[f64]) -> Result<Interval, String> {
    let found = ratio::ratio(before, after, [0.0; 2]);
    found.ok_or_else(|| "it takes two blocks of each".to_string())
}

/// After a ratio, the published one: ", published 1.3".
pub(super) fn published(claim: &Claim) -> String {
    let text = |ratio: f64| format!(", published {ratio}");
    claim.published().map_or_else(String::new, text)
}

/// The ratio of two arms, the second by the first, whose values are the same in every run: under each seed.
pub(super) fn ratios(
    arms: [usize; 2],
    samples: &Samples<'_>,
    what: &What<'_>,
) -> Result<Vec<f64>, String> {
    let [before, after] = arms.map(|arm| samples.seeds(arm));
    if before.len() != after.len() {
        return Err(format!(
            "measured under {} and {} seeds; run it again",
            after.len(),
            before.len()
        ));
    }
    let mut ratios = Vec::new();
    for (before, after) in before.iter().zip(&after) {
        let values = [*before, *after].map(|arm| samples.values(arm, what));
        let [before, after] = values;
        let ratio = mean(&after?) / mean(&before?);
        // 0 / 0: both are nothing, so equal.
        ratios.push(if ratio.is_nan() { 1.0 } else { ratio });
    }
    Ok(ratios)
}

/// The verdict of all seeds: if only some hold, neither is shown.
pub(super) fn agreed(each: impl Iterator<Item = Option<bool>>) -> Answer {
    let Some(each) = each.collect::<Option<Vec<bool>>>() else {
        return Answer::Answered;
    };
    match (each.contains(&true), each.contains(&false)) {
        (true, true) => Answer::NotShown,
        (true, false) => Answer::Holds,
        _ => Answer::DoesNotHold,
    }
}

/// The least and the largest.
pub(super) fn ends(ratios: &[f64]) -> (f64, f64) {
    let each = ratios.iter().copied();
    (each.clone().fold(f64::INFINITY, f64::min), each.fold(f64::NEG_INFINITY, f64::max))
}

/// Whether a ratio is within bounds: neither is shown where its interval crosses one.
pub(super) fn in_bounds(ratio: Interval, bound: Bound) -> Answer {
    match (bound.has(ratio.low), bound.has(ratio.high)) {
        (true, true) => Answer::Holds,
        _ if ratio.high < bound.least || ratio.low > bound.most => Answer::DoesNotHold,
        _ => Answer::NotShown,
    }
}
