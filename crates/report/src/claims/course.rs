//! Where a curve falls and where it rises: claims of kind `course`.

use netplumb_model::class::Class;
use netplumb_model::experiment::{Claim, Leg, number_of};
use netplumb_stats::welch::mean;

use super::Answer;
use super::ratio::{ClaimAnswer, agreed, interval};
use super::samples::Samples;
use super::subject::{What, what};

/// The fewest levels that make a curve.
const LEAST_LEVELS: usize = 3;

/// Judge a claim about the course of a quantity over a knob.
///
/// # Errors
/// There are too few arms with a number for it.
pub(super) fn course(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Course { knob, is, beyond_percent, arms: names, .. } = claim else {
        return Err("it is about no course".into());
    };
    let what = what(claim, class);
    let mut points: Vec<(f64, usize)> = (samples.arms())
        .filter(|(_, arm)| names.is_empty() || names.contains(&arm.name))
        .filter_map(|(arm, _)| Some((number_of(knob, &samples.level(arm, knob)?)?, arm)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() < LEAST_LEVELS {
        return Err(format!("a course takes {LEAST_LEVELS} arms with a number for {knob}"));
    }
    let beyond = beyond_percent / 100.0;
    let seeds = (points.iter()).map(|(_, arm)| samples.seeds(*arm).len()).min().unwrap_or(1);
    let mut found = Vec::new();
    for seed in 0..seeds {
        let under = points.iter().map(|(_, arm)| samples.seeds(*arm)[seed]);
        let blocks = under.map(|arm| samples.values(arm, &what));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let values: Vec<f64> = blocks.iter().map(|blocks| mean(blocks)).collect();
        let legs = legs(&values, beyond);
        if !samples.is_exact(&what) && !are_seen(&legs, &blocks)? {
            return Ok((Answer::NotShown, course_answer(&legs, &values, &points, samples, &what)));
        }
        found.push((legs, values));
    }
    let verdict = agreed(
        found.iter().map(|(legs, _)| Some(legs.iter().map(|l| l.way).eq(is.iter().copied()))),
    );
    let (legs, values) = &found[0];
    let ways: Vec<&str> = is.iter().map(|way| way.as_str()).collect();
    let under = match seeds {
        1 => String::new(),
        seeds if found.iter().all(|(other, _)| ways_of(other) == ways_of(legs)) => {
            format!(", the same under {seeds} seeds")
        }
        seeds => format!(", another course under some of {seeds} seeds"),
    };
    let because = course_answer(legs, values, &points, samples, &what);
    Ok((verdict, format!("{because}{under}, claimed {}", ways.join(", then "))))
}

/// A monotonic part of a curve, from one point to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CurveLeg {
    way: Leg,
    from: usize,
    to: usize,
}

fn ways_of(legs: &[CurveLeg]) -> Vec<Leg> {
    legs.iter().map(|leg| leg.way).collect()
}

/// The legs of a curve: it turns where it comes back by more than this share.
fn legs(values: &[f64], beyond: f64) -> Vec<CurveLeg> {
    let falls = |from: usize, to: usize| values[to] < values[from] * (1.0 - beyond);
    let rises = |from: usize, to: usize| values[to] * (1.0 - beyond) > values[from];
    let mut legs: Vec<CurveLeg> = Vec::new();
    // Before the first leg, where the curve was lowest and highest.
    let (mut low, mut high) = (0, 0);
    for at in 1..values.len() {
        let last = legs.last().copied();
        let new = match last {
            None if falls(high, at) => Some((Leg::Falls, high)),
            None if rises(low, at) => Some((Leg::Rises, low)),
            Some(CurveLeg { way: Leg::Falls, to, .. }) if rises(to, at) => Some((Leg::Rises, to)),
            Some(CurveLeg { way: Leg::Rises, to, .. }) if falls(to, at) => Some((Leg::Falls, to)),
            _ => None,
        };
        if let Some((way, from)) = new {
            legs.push(CurveLeg { way, from, to: at });
            continue;
        }
        match legs.last_mut() {
            None => {
                low = if values[at] < values[low] { at } else { low };
                high = if values[at] > values[high] { at } else { high };
            }
            Some(leg) => {
                let further = match leg.way {
                    Leg::Falls => values[at] < values[leg.to],
                    Leg::Rises => values[at] > values[leg.to],
                };
                leg.to = if further { at } else { leg.to };
            }
        }
    }
    legs
}

/// Whether figures that vary show each leg: the interval on the ratio of its ends is on one side of 1.
fn are_seen(legs: &[CurveLeg], blocks: &[Vec<f64>]) -> Result<bool, String> {
    for leg in legs {
        let ratio = interval(&blocks[leg.from], &blocks[leg.to])?;
        if ratio.low <= 1.0 && ratio.high >= 1.0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// "13.0% with buffer=4096, rises to 13.8% with buffer=8192".
fn course_answer(
    legs: &[CurveLeg],
    values: &[f64],
    points: &[(f64, usize)],
    samples: &Samples<'_>,
    what: &What<'_>,
) -> String {
    let at = |n: usize| {
        format!("{} with {}", samples.value_text(values[n], what), samples.name(points[n].1))
    };
    let Some(first) = legs.first() else {
        return format!("level: {} to {}", at(0), at(values.len() - 1));
    };
    let rest = legs.iter().map(|leg| format!(", {} to {}", leg.way, at(leg.to)));
    at(first.from) + &rest.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[f64]) -> Vec<(&'static str, usize, usize)> {
        let legs = legs(values, 0.02);
        legs.iter().map(|leg| (leg.way.as_str(), leg.from, leg.to)).collect()
    }

    /// Check that a curve turns where it comes back by more than noise, at its extremes.
    #[test]
    fn turns() {
        assert_eq!(found(&[10.0, 8.0, 6.0, 6.1, 9.0]), [("falls", 0, 2), ("rises", 2, 4)]);
        assert_eq!(found(&[10.0, 10.1, 9.0]), [("falls", 1, 2)]);
        assert_eq!(found(&[10.0, 9.9, 10.1, 12.0, 11.9]), [("rises", 1, 3)]);
        assert_eq!(
            found(&[13.0, 13.8, 12.1, 15.2, 12.3]),
            [("rises", 0, 1), ("falls", 1, 2), ("rises", 2, 3), ("falls", 3, 4)]
        );
        assert_eq!(found(&[10.0, 10.1, 9.95]), []);
        assert_eq!(found(&[0.0, 0.0, 1.0]), [("rises", 0, 2)]);
        assert_eq!(found(&[f64::NAN, 1.0, f64::NAN]), []);
    }
}
