//! Where a setting begins to pay: claims of kind `turning-point`.

use netplumb_model::class::Class;
use netplumb_model::experiment::{Bound, Claim};
use netplumb_model::recording::Arm;
use netplumb_stats::welch::mean;

use super::ratio::{ClaimAnswer, agreed, ends, in_bounds, interval, ratios};
use super::samples::Samples;
use super::subject::{What, what};
use super::{Answer, holds};
use crate::number::printable;

/// Two arms that differ in the setting alone.
struct Pair {
    /// The quantity that decides, without the setting.
    by: f64,
    /// The least and the largest ratio that it may have.
    ratio: (f64, f64),
    /// By how much the compared quantity is larger with the setting.
    more: f64,
    /// Whether the setting pays; `NotShown` if the data show neither.
    pays: Answer,
}

/// Judge a claim about where a setting begins to pay.
///
/// # Errors
/// There are no such pairs, or not enough blocks.
pub(super) fn point(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::TurningPoint { knob, level, against, by, .. } = claim else {
        return Err("it is about no turning point".into());
    };
    let what = what(claim, class);
    let deciding = What { quantity: Some(by), ..what };
    let bound = (claim.bound()).ok_or("it does not say which ratio is a gain")?;
    let has = |arm: &Arm, level: &String| arm.level_text(knob).as_ref() == Some(level);
    let mut pairs = Vec::new();
    for (one, arm) in samples.arms().filter(|(_, arm)| has(arm, level)) {
        let others = samples.arms().filter(|(_, other)| has(other, against));
        if let Some(other) = partner(arm, others, knob)? {
            let (ratio, pays) = compared(samples, [other, one], &what, bound)?;
            let by = mean(&samples.values(other, &deciding)?);
            let [with, without] = [one, other].map(|arm| samples.values(arm, &what));
            pairs.push(Pair { by, ratio, more: mean(&with?) - mean(&without?), pays });
        }
    }
    if pairs.len() < 2 {
        return Err(format!(
            "it takes two pairs of arms that differ in {knob} alone, {level} and {against}"
        ));
    }
    pairs.sort_by(|a, b| a.by.total_cmp(&b.by));
    let answer_format = AnswerFormat {
        gain: bound,
        by: &|value| samples.value_text(value, &deciding),
        value: &|value| samples.value_text(value, &what),
    };
    let (answer, because) = verdict(&pairs, &answer_format);
    Ok((answer, format!("{}: {because}", printable(by, 60))))
}

/// How the figures of an answer are written.
struct AnswerFormat<'a> {
    /// What a gain is.
    gain: Bound,
    /// The quantity that decides.
    by: &'a dyn Fn(f64) -> String,
    /// The one that is compared.
    value: &'a dyn Fn(f64) -> String,
}

impl AnswerFormat<'_> {
    /// The change with the setting, more or less: the least and the most of some pairs.
    fn difference(&self, pairs: &[Pair]) -> String {
        let all: Vec<f64> = pairs.iter().map(|pair| pair.more).collect();
        let (least, most) = ends(&all);
        let value = |more: f64| (self.value)(more.abs());
        let word = |more: f64| if more < 0.0 { "less" } else { "more" };
        let (near, far) = match most <= 0.0 {
            true => (most, least),
            false => (least, most),
        };
        if word(near) != word(far) && near != 0.0 {
            return format!("{} {} to {} {}", value(near), word(near), value(far), word(far));
        }
        match value(near) == value(far) {
            true => format!("{} {}", value(near), word(near)),
            false => format!("{} to {} {}", value(near), value(far), word(far)),
        }
    }
}

/// Where pairs in order begin to have a gain, if none has one before that.
fn verdict(pairs: &[Pair], answer_format: &AnswerFormat<'_>) -> (Answer, String) {
    let AnswerFormat { gain, by, .. } = answer_format;
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
    let whole = || format!("between {} and {} {}", by(first.by), by(last.by), range(pairs));
    let answer = match unclear {
        true => Answer::NotShown,
        false => holds(sorted && !below.is_empty() && !above.is_empty()),
    };
    let because = match (below, above) {
        (_, []) => format!("no pair has {gain}: {}", whole()),
        ([], _) if sorted => format!("every pair has {gain}: {}", whole()),
        ([.., before], [after, ..]) if sorted => format!(
            "up to {}, {}; from {} on, {}, {}",
            by(before.by),
            range(below),
            by(after.by),
            range(above),
            answer_format.difference(above)
        ),
        _ => format!(
            "{gains} of {} pairs have {gain}, with others between them, {}",
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

/// The arm that differs from `arm` in a knob alone, or else in it and others of its group (`offload.tso`,
/// `offload.gro`), if there is one.
///
/// # Errors
/// Several arms qualify.
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
        let found: Vec<&(usize, &Arm)> =
            (others.iter()).filter(|(_, other)| alike(arm, other, knob, differs)).collect();
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

    const GAIN: Bound = Bound { least: 1.01, most: f64::INFINITY };

    fn ratios_answer(ratios: &[f64]) -> (Answer, String) {
        let pair = |(n, ratio): (usize, &f64)| Pair {
            by: n as f64,
            ratio: (*ratio, *ratio),
            more: (ratio - 1.0) * 500.0,
            pays: holds(GAIN.has(*ratio)),
        };
        let pairs: Vec<Pair> = ratios.iter().enumerate().map(pair).collect();
        let answer_format = AnswerFormat {
            gain: GAIN,
            by: &|by| format!("{by} CPUs"),
            value: &|value| format!("{value:.0} us"),
        };
        verdict(&pairs, &answer_format)
    }

    /// Check that a turning point holds only if nothing gains before it and everything after it, and
    /// that the actual course is reported.
    #[test]
    fn where_it_turns() {
        for (ratios, answer, because) in [
            (
                [0.99, 1.0, 1.2],
                Answer::Holds,
                "up to 1 CPUs, 0.990 to 1.000 times; from 2 CPUs on, 1.200 times, 100 us more",
            ),
            (
                [1.0, 1.2, 1.005],
                Answer::DoesNotHold,
                "1 of 3 pairs have at least 1.01 times, with others between them, between 0 CPUs and 2 CPUs 1.000 to 1.200 times",
            ),
            (
                [0.9, 0.95, 1.0],
                Answer::DoesNotHold,
                "no pair has at least 1.01 times: between 0 CPUs and 2 CPUs 0.900 to 1.000 times",
            ),
            (
                [1.1, 1.2, 1.3],
                Answer::DoesNotHold,
                "every pair has at least 1.01 times: between 0 CPUs and 2 CPUs 1.100 to 1.300 times",
            ),
        ] {
            assert_eq!(ratios_answer(&ratios), (answer, because.to_string()));
        }
    }

    /// Check that a range of differences begins with the smaller one, with "more" or "less".
    #[test]
    fn differences() {
        let answer_format = AnswerFormat {
            gain: GAIN,
            by: &|by| by.to_string(),
            value: &|value| format!("{value} us"),
        };
        for (all, expected) in [
            (&[-5.0, -2.0][..], "2 us to 5 us less"),
            (&[2.0, 5.0], "2 us to 5 us more"),
            (&[-2.0], "2 us less"),
            (&[-2.0, 0.0], "0 us to 2 us less"),
            (&[-1.0, 3.0], "1 us less to 3 us more"),
        ] {
            let pair =
                |more: &f64| Pair { by: 0.0, ratio: (1.0, 1.0), more: *more, pays: Answer::Holds };
            let pairs: Vec<Pair> = all.iter().map(pair).collect();
            assert_eq!(answer_format.difference(&pairs), expected);
        }
    }

    /// Check that an arm is compared with the one that differs in the knob alone, with one that differs in its
    /// group if there is no other, and with none if several qualify.
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
        let error = of(&[&a, &b]).unwrap_err();
        assert!(error.contains("each of a, b"), "{error}");
    }
}
