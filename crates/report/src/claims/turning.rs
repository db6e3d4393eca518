//! From where on a setting pays: claims of kind `turning-point`.

use netplumb_model::class::Class;
use netplumb_model::experiment::{Bound, Claim};
use netplumb_model::recording::Arm;
use netplumb_stats::welch::mean;

use super::samples::{Samples, What};
use super::varying::{Found, agreed, ends, in_bounds, interval, ratios, what};
use super::{Answer, holds};
use crate::number::printable;

/// Two arms that differ in the setting alone.
struct Pair {
    /// The quantity that decides, without the setting.
    by: f64,
    /// The least and the largest ratio that it may have.
    ratio: (f64, f64),
    /// Whether the setting pays; `NotShown` if that can't be said.
    pays: Answer,
}

/// Judge a claim about where a setting begins to pay.
///
/// # Errors
/// There are no such pairs, or not enough blocks.
pub(super) fn point(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> Found {
    let Claim::TurningPoint {
        knob,
        level,
        against,
        by,
        at_least,
        ..
    } = claim
    else {
        return Err("it is about no turning point".into());
    };
    let what = what(claim, class);
    let deciding = What {
        quantity: Some(by),
        ..what
    };
    let bound = Bound {
        least: *at_least,
        most: f64::INFINITY,
    };
    let has = |arm: &Arm, level: &String| arm.told(knob).as_ref() == Some(level);
    let mut pairs = Vec::new();
    for (one, arm) in samples.arms().filter(|(_, arm)| has(arm, level)) {
        let others = samples.arms().filter(|(_, other)| has(other, against));
        if let Some(other) = partner(arm, others, knob)? {
            let (ratio, pays) = compared(samples, [other, one], &what, bound)?;
            let by = mean(&samples.values(other, &deciding)?);
            pairs.push(Pair { by, ratio, pays });
        }
    }
    if pairs.len() < 2 {
        return Err(format!(
            "it takes two pairs of arms that differ in {knob} alone, {level} and {against}"
        ));
    }
    pairs.sort_by(|a, b| a.by.total_cmp(&b.by));
    let told = |value: f64| samples.told(value, &deciding);
    let (answer, because) = verdict(&pairs, *at_least, told);
    Ok((answer, format!("{}: {because}", printable(by, 60))))
}

/// Where pairs in order begin to have a gain, if none has one before that.
fn verdict(pairs: &[Pair], at_least: f64, told: impl Fn(f64) -> String) -> (Answer, String) {
    let gains = pairs.iter().filter(|pair| pair.pays == Answer::Holds);
    let gains = gains.count();
    let (first, last) = (&pairs[0], &pairs[pairs.len() - 1]);
    let unclear = pairs.iter().any(|pair| pair.pays == Answer::NotShown);
    let at = pairs.iter().position(|pair| pair.pays == Answer::Holds);
    let (below, above) = pairs.split_at(at.unwrap_or(pairs.len()));
    let sorted = above.len() == gains;
    let range = |pairs: &[Pair]| {
        let all: Vec<f64> = pairs.iter().flat_map(|p| [p.ratio.0, p.ratio.1]).collect();
        let (least, most) = ends(&all);
        match format!("{least:.3}") == format!("{most:.3}") {
            true => format!("{least:.3} times"),
            false => format!("{least:.3} to {most:.3} times"),
        }
    };
    let whole = || {
        format!(
            "between {} and {} {}",
            told(first.by),
            told(last.by),
            range(pairs)
        )
    };
    let answer = match unclear {
        true => Answer::NotShown,
        false => holds(sorted && !below.is_empty() && !above.is_empty()),
    };
    let because = match (below, above) {
        (_, []) => format!("nowhere {at_least} times, {}", whole()),
        ([], _) if sorted => format!("everywhere {at_least} times or more, {}", whole()),
        ([.., before], [after, ..]) if sorted => format!(
            "up to {}, {}; from {} on, {}",
            told(before.by),
            range(below),
            told(after.by),
            range(above)
        ),
        _ => format!(
            "{gains} of {} pairs have {at_least} times or more, with others between them, {}",
            pairs.len(),
            whole()
        ),
    };
    (answer, because)
}

/// The ratio of two arms, and whether it is in the bound.
fn compared(
    samples: &Samples<'_>,
    arms: [usize; 2],
    what: &What<'_>,
    bound: Bound,
) -> Result<((f64, f64), Answer), String> {
    if samples.is_exact(what) {
        let ratios = ratios(arms, samples, what)?;
        let answer = agreed(ratios.iter().map(|ratio| Some(bound.has(*ratio))));
        return Ok((ends(&ratios), answer));
    }
    let [before, after] = arms.map(|arm| samples.values(arm, what));
    let ratio = interval(&before?, &after?)?;
    Ok(((ratio.low, ratio.high), in_bounds(ratio, bound)))
}

/// The one of some arms that differs from an arm in a knob alone, or else in it and others of its group
/// (`offload.tso`, `offload.gro`), if there is one.
///
/// # Errors
/// There are several, of which any would do.
fn partner<'s>(
    arm: &Arm,
    others: impl Iterator<Item = (usize, &'s Arm)>,
    knob: &str,
) -> Result<Option<usize>, String> {
    let others: Vec<(usize, &Arm)> = others.collect();
    let of_group = group(knob);
    let by_knob = |name: &str| name == knob;
    let by_group = |name: &str| group(name) == of_group;
    let ways: [&dyn Fn(&str) -> bool; 2] = [&by_knob, &by_group];
    for differs in ways {
        let found: Vec<&(usize, &Arm)> = (others.iter())
            .filter(|(_, other)| alike(arm, other, knob, differs))
            .collect();
        match found[..] {
            [] => {}
            [(number, _)] => return Ok(Some(*number)),
            _ => {
                let names: Vec<&str> = found.iter().map(|(_, arm)| arm.name.as_str()).collect();
                return Err(format!(
                    "{} could be compared with each of {}, which differ in {of_group}: give them as arms that differ \
                     from it in {knob} alone",
                    printable(&arm.name, 60),
                    printable(&names.join(", "), 200)
                ));
            }
        }
    }
    Ok(None)
}

fn group(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Whether two arms are the same but for a knob, and others that may differ.
fn alike(one: &Arm, other: &Arm, knob: &str, differs: &dyn Fn(&str) -> bool) -> bool {
    let rest = |arm: &Arm| {
        let mut rest = arm.clone();
        rest.name.clear();
        rest.knobs.retain(|name, _| !differs(name));
        // Fields of the arm that are the knob.
        match knob {
            "proto" => rest.proto = one.proto,
            "family" => rest.family = one.family,
            "link" => rest.link = one.link,
            "forward" => rest.forward = one.forward,
            "size_bytes" => rest.size_bytes = one.size_bytes,
            _ => {}
        }
        rest
    };
    rest(one) == rest(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ratios: &[f64]) -> (Answer, String) {
        let pair = |(n, ratio): (usize, &f64)| Pair {
            by: n as f64,
            ratio: (*ratio, *ratio),
            pays: holds(*ratio >= 1.01),
        };
        let pairs: Vec<Pair> = ratios.iter().enumerate().map(pair).collect();
        verdict(&pairs, 1.01, |by| format!("{by} CPUs"))
    }

    /// Check that a turning point holds only where nothing gains before it and everything after it, and
    /// that what was found instead is said.
    #[test]
    fn where_it_turns() {
        for (ratios, answer, because) in [
            (
                [0.99, 1.0, 1.2],
                Answer::Holds,
                "up to 1 CPUs, 0.990 to 1.000 times; from 2 CPUs on, 1.200 times",
            ),
            (
                [1.0, 1.2, 1.005],
                Answer::DoesNotHold,
                "1 of 3 pairs have 1.01 times or more, with others between them, between 0 CPUs and 2 CPUs 1.000 to 1.200 times",
            ),
            (
                [0.9, 0.95, 1.0],
                Answer::DoesNotHold,
                "nowhere 1.01 times, between 0 CPUs and 2 CPUs 0.900 to 1.000 times",
            ),
            (
                [1.1, 1.2, 1.3],
                Answer::DoesNotHold,
                "everywhere 1.01 times or more, between 0 CPUs and 2 CPUs 1.100 to 1.300 times",
            ),
        ] {
            assert_eq!(told(&ratios), (answer, because.to_string()));
        }
    }

    /// Check that an arm is compared with the one that differs in the knob alone, with one that differs in its
    /// group if there is no other, and with none where several would do.
    #[test]
    fn partners() {
        let arm = |name: &str, knobs: &[(&str, &str)]| Arm {
            name: name.into(),
            knobs: (knobs.iter())
                .map(|(key, level)| (key.to_string(), level.to_string()))
                .collect(),
            ..netplumb_model::experiment::Knobs::default()
                .arm(String::new(), netplumb_model::experiment::Lab::Vm)
        };
        let one = arm("on", &[("offload.tso", "on")]);
        let alone = arm("off", &[("offload.tso", "off")]);
        let with = |name, level| arm(name, &[("offload.tso", "off"), ("offload.gro", level)]);
        let (a, b) = (with("a", "on"), with("b", "off"));
        let of = |others: &[&Arm]| {
            let others: Vec<(usize, &Arm)> = others.iter().copied().enumerate().collect();
            partner(&one, others.into_iter(), "offload.tso")
        };
        assert_eq!(of(&[&a, &alone, &b]), Ok(Some(1)));
        assert_eq!(of(&[&a]), Ok(Some(0)));
        assert_eq!(of(&[]), Ok(None));
        let told = of(&[&a, &b]).unwrap_err();
        assert!(told.contains("each of a, b"), "{told}");
    }
}
