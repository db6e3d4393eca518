//! Claims about figures that vary from block to block: arms are compared by the judge of comparisons
//! (`plumb diff`), so a claim and a comparison of the same arms agree; ratios within one arm are judged
//! by their intervals. A claim was made before it was measured, so it is judged by itself, not among
//! all functions.

use netplumb_model::bench::DataPath;
use netplumb_model::class::Class;
use netplumb_model::experiment::{Bound, Claim, Experiment, Knobs, OnlyIf, Relation, number_of};
use netplumb_model::recording::Arm;
use netplumb_stats::judge::{Judged, MIN_BLOCKS, Verdict, judge};
use netplumb_stats::ratio::Interval;
use netplumb_stats::welch::mean;

use super::fit::LEAST_POINTS;
use super::ratio::{ClaimAnswer, agreed, ends, in_bounds, interval, published, ratios};
use super::samples::{CPU_USE, HANDLED, Samples};
use super::subject::{What, what};
use super::{Answer, Outcome, holds, largest_over_smallest, list};
use super::{course, turning};
use crate::interval::interval_text;

/// Other programs' CPU use up to which claims about CPU use are judged, in CPUs.
const MOST_OTHERS: f64 = 0.1;

/// The outcome of a claim, by blocks.
pub(super) fn outcome(experiment: &Experiment, claim: &Claim, samples: &Samples<'_>) -> Outcome {
    let found = match claim.paths() {
        Some((figure, _)) => of_paths(experiment, claim, figure, samples),
        None => of_arms(claim, samples).map(|(verdict, because)| {
            let named = claim.arms();
            let is_named =
                |n: usize| named.is_empty() || named.iter().any(|a| *a == samples.name(n));
            let arms = samples.arms().map(|(n, _)| n).filter(|n| is_named(*n));
            match claim.quantity() == Some(CPU_USE) {
                true => alone(verdict, because, most_others(arms, samples)),
                false => (verdict, because),
            }
        }),
    };
    match found {
        Ok((verdict, because)) => Outcome { verdict, finding: because.clone(), because },
        Err(why) => Outcome::not_measured(why),
    }
}

/// Class by class, or once where frames have none.
fn of_arms(claim: &Claim, samples: &Samples<'_>) -> ClaimAnswer {
    let within = match claim {
        Claim::Alike { layer, .. } | Claim::Unlike { layer, .. } => {
            return across_classes(claim, layer, samples);
        }
        Claim::Smaller { .. } => smaller,
        Claim::Linear { .. } => linear,
        Claim::Compare { .. } => compare,
        Claim::Unchanged { .. } => unchanged,
        Claim::Ranking { .. } => ranking,
        Claim::TurningPoint { .. } => turning::point,
        Claim::Course { .. } => course::course,
        _ => {
            return Err("this kind of claim is about counts of instructions (`exact`)".into());
        }
    };
    let classes: Vec<Option<Class>> = match claim.classes() {
        [] => vec![None],
        classes => classes.iter().copied().map(Some).collect(),
    };
    let mut verdicts = Vec::new();
    let mut because = Vec::new();
    for class in classes {
        let (one, why) = within(claim, class, samples)?;
        verdicts.push(one);
        because.push(match class {
            Some(class) => format!("{class}: {why}"),
            None => why,
        });
    }
    Ok((worst(verdicts), because.join("; ")))
}

/// The arms that a claim names, or all that have what it is about.
fn arms(names: &[String], samples: &Samples<'_>, what: &What<'_>) -> Vec<(usize, Vec<f64>)> {
    let named = |name: &str| names.is_empty() || names.iter().any(|known| known == name);
    samples
        .arms()
        .filter(|(_, arm)| named(&arm.name))
        .filter_map(|(n, _)| Some((n, samples.values(n, what).ok()?)))
        .collect()
}

/// An arm by its name, or the first that has what a claim is about.
fn arm(
    name: Option<&str>,
    samples: &Samples<'_>,
    what: &What<'_>,
) -> Result<(usize, Vec<f64>), String> {
    match name {
        Some(name) => {
            let found = samples.arms().find(|(_, arm)| arm.name == name);
            let (n, _) = found.ok_or_else(|| format!("there is no arm {name} in the recording"))?;
            Ok((n, samples.values(n, what)?))
        }
        None => {
            let mut why = "there is no arm in the recording".to_string();
            for (n, _) in samples.arms() {
                match samples.values(n, what) {
                    Ok(values) => return Ok((n, values)),
                    Err(because) => why = because,
                }
            }
            Err(why)
        }
    }
}

/// Two arms compared, as `plumb diff` would.
fn compared(samples: &Samples<'_>, arms: [usize; 2], what: &What<'_>) -> Result<Judged, String> {
    let pair = samples.pair(arms, what)?;
    let judged = judge(&[pair]).pop();
    let judged = judged.filter(|judged| judged.verdict != Verdict::TooFew);
    judged.ok_or_else(|| format!("it takes {MIN_BLOCKS} blocks of each"))
}

/// "0.91 times (0.87 to 0.94)"; without a difference, also the smallest change that would have been seen.
fn change(judged: &Judged) -> String {
    let ratio = match judged.ratio {
        Some(ratio) => times(ratio),
        None => "from nothing".into(),
    };
    match judged.verdict.differs() {
        true => ratio,
        false => format!("{ratio}: {}", unseen(judged)),
    }
}

/// What a comparison without a difference could have seen.
fn unseen(judged: &Judged) -> String {
    match judged.smallest.filter(|_| !judged.is_blind()) {
        Some(share) => format!("no difference seen; one of {:.1}% would have been", share * 100.0),
        None => "no difference seen; noise may hide any".into(),
    }
}

/// Whether a comparison bears out a relation.
fn relation(is: Relation, judged: &Judged) -> Answer {
    let wanted = match is {
        Relation::Less => Verdict::Faster,
        Relation::More => Verdict::Slower,
        Relation::Different if judged.verdict.differs() => return Answer::Holds,
        Relation::Different => return Answer::NotShown,
        // Within what such a run can resolve.
        Relation::Same => return same(judged),
    };
    match judged.verdict {
        found if found == wanted => Answer::Holds,
        found if found.differs() => Answer::DoesNotHold,
        _ => Answer::NotShown,
    }
}

/// Whether two arms are the same within what such a run can resolve: not shown if it resolves nothing.
fn same(judged: &Judged) -> Answer {
    match (judged.verdict.differs(), judged.is_blind()) {
        (true, _) => Answer::DoesNotHold,
        (false, true) => Answer::NotShown,
        (false, false) => Answer::Holds,
    }
}

/// Whether a ratio is at most (or, if `beyond`, more than) a bound: neither is shown where its interval
/// contains the bound.
fn bounded(ratio: Interval, bound: f64, beyond: bool) -> Answer {
    let (within, outside) = (ratio.high <= bound, ratio.low > bound);
    match (beyond, within, outside) {
        (false, true, _) | (true, _, true) => Answer::Holds,
        (_, false, false) => Answer::NotShown,
        _ => Answer::DoesNotHold,
    }
}

/// The verdict on several claims together: fails if one fails, else is not shown if one is not
/// shown.
fn worst(all: impl IntoIterator<Item = Answer>) -> Answer {
    let rank = |answer: &Answer| match answer {
        Answer::DoesNotHold => 3,
        Answer::NotShown => 2,
        Answer::Answered | Answer::NotMeasured => 1,
        Answer::Holds => 0,
    };
    let all = all.into_iter();
    all.max_by_key(rank).unwrap_or(Answer::Holds)
}

/// "1.24 times (1.20 to 1.28)".
fn times(ratio: Interval) -> String {
    let range = interval_text(ratio, |end| format!("{end:.2}"));
    format!("{:.2} times ({range})", ratio.value)
}

fn compare(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let (verdict, because) = of_compare(claim, class, samples)?;
    Ok((verdict, because + &published(claim)))
}

fn of_compare(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Compare { arm: name, against, is, .. } = claim else {
        return Err("it compares nothing".into());
    };
    let what = what(claim, class);
    let (one, after) = arm(Some(name), samples, &what)?;
    let (other, before) = arm(against.as_deref(), samples, &what)?;
    if let Some(only_if) = claim.only_if() {
        met(only_if, [other, one], samples)?;
    }
    let sides = format!(
        "{} with {} against {} with {}",
        samples.value_text(mean(&after), &what),
        samples.name(one),
        samples.value_text(mean(&before), &what),
        samples.name(other)
    );
    if samples.is_exact(&what) {
        return exactly(claim, *is, [other, one], sides, samples, &what);
    }
    if let Some(bound) = claim.bound() {
        let ratio = interval(&before, &after)?;
        let because = format!("{sides}, {}, claimed {bound}", times(ratio));
        return Ok((in_bounds(ratio, bound), because));
    }
    let judged = compared(samples, [other, one], &what)?;
    let verdict = is.map_or(Answer::Answered, |is| relation(is, &judged));
    Ok((verdict, format!("{sides}, {}", change(&judged))))
}

/// Check a condition on both arms, under each seed; an error names the arm that fails it.
fn met(only_if: &OnlyIf, arms: [usize; 2], samples: &Samples<'_>) -> Result<(), String> {
    let what = What { quantity: Some(&only_if.quantity), ..What::default() };
    for arm in arms.into_iter().flat_map(|arm| samples.seeds(arm)) {
        let value = mean(&samples.values(arm, &what)?);
        if value < only_if.at_least || value.is_nan() {
            return Err(format!(
                "no data: {} has {} of {}, and the claim is about arms with at least {}",
                samples.name(arm),
                samples.value_text(value, &what),
                only_if.quantity,
                samples.value_text(only_if.at_least, &what)
            ));
        }
    }
    Ok(())
}

/// Compare two arms whose values are the same in every run: under each seed.
fn exactly(
    claim: &Claim,
    is: Option<Relation>,
    arms: [usize; 2],
    sides: String,
    samples: &Samples<'_>,
    what: &What<'_>,
) -> ClaimAnswer {
    let ratios = ratios(arms, samples, what).map_err(|why| format!("{sides}: {why}"))?;
    let is_so = |ratio: f64| match (claim.bound(), is) {
        (Some(bound), _) => Some(bound.has(ratio)),
        (None, Some(Relation::Same)) => Some(ratio == 1.0),
        (None, Some(Relation::Different)) => Some(ratio != 1.0),
        (None, Some(Relation::Less)) => Some(ratio < 1.0),
        (None, Some(Relation::More)) => Some(ratio > 1.0),
        (None, None) => None,
    };
    let verdict = agreed(ratios.iter().map(|ratio| is_so(*ratio)));
    let (least, most) = ends(&ratios);
    let each = match ratios.len() {
        1 => format!("{:.3} times", ratios[0]),
        seeds => format!("{least:.3} to {most:.3} times under {seeds} seeds"),
    };
    let claimed = claim.bound().map_or_else(String::new, |b| format!(", claimed {b}"));
    Ok((verdict, format!("{sides}, {each}{claimed}")))
}

fn unchanged(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Unchanged { arms: names, .. } = claim else {
        return Err("it is about no arms".into());
    };
    let what = what(claim, class);
    let all = arms(names, samples, &what);
    let [(first, before), rest @ ..] = &all[..] else {
        return Err("no arm was measured".into());
    };
    if rest.is_empty() {
        return Err("only one arm was measured".into());
    }
    if let (true, bound) = (samples.is_exact(&what), claim.bound()) {
        return all_exactly(bound, &all, samples, &what);
    }
    if let Some(bound) = claim.bound() {
        // For the two arms that are furthest apart.
        let by_mean =
            |a: &&(usize, Vec<f64>), b: &&(usize, Vec<f64>)| mean(&a.1).total_cmp(&mean(&b.1));
        let ends = all.iter().min_by(by_mean).zip(all.iter().max_by(by_mean));
        let ((least, low), (most, high)) = ends.ok_or("no arm was measured")?;
        let ratio = interval(low, high)?;
        let (least, most) = (samples.name(*least), samples.name(*most));
        let because = format!("{most} over {least}: {}, claimed {bound}", times(ratio));
        return Ok((in_bounds(ratio, bound), because));
    }
    let mut verdicts = Vec::new();
    let mut because = Vec::new();
    for (n, _) in rest {
        let judged = compared(samples, [*first, *n], &what)?;
        verdicts.push(same(&judged));
        because.push(format!("{} {}", samples.name(*n), change(&judged)));
    }
    let text = samples.value_text(mean(before), &what);
    let of = samples.name(*first);
    Ok((worst(verdicts), format!("{text} with {of}; beside it {}", list(because.into_iter()))))
}

/// Whether the values of some arms, the same in every run, are equal, or within bounds: under each
/// seed.
fn all_exactly(
    bound: Option<Bound>,
    arms: &[(usize, Vec<f64>)],
    samples: &Samples<'_>,
    what: &What<'_>,
) -> ClaimAnswer {
    let seeds: Vec<Vec<usize>> = arms.iter().map(|(arm, _)| samples.seeds(*arm)).collect();
    let count = seeds.iter().map(Vec::len).min().unwrap_or(0);
    let mut each = Vec::new();
    let mut ratios = Vec::new();
    for seed in 0..count {
        let mut means = Vec::new();
        for of_arm in &seeds {
            means.push(mean(&samples.values(of_arm[seed], what)?));
        }
        let (ratio, _) = largest_over_smallest(means.into_iter());
        each.push(Some(bound.map_or(ratio == 1.0, |bound| bound.has(ratio))));
        ratios.push(ratio);
    }
    let listed: Vec<String> = (arms.iter())
        .map(|(arm, values)| {
            let value = samples.value_text(mean(values), what);
            format!("{value} with {}", samples.name(*arm))
        })
        .collect();
    let most = ends(&ratios).1;
    let of = match count {
        1 => String::new(),
        count => format!(" at most, under {count} seeds"),
    };
    let claimed = bound.map_or_else(String::new, |bound| format!(", claimed {bound}"));
    Ok((
        agreed(each.into_iter()),
        format!("{}: largest over smallest {most:.3}{of}{claimed}", listed.join(", ")),
    ))
}

fn ranking(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Ranking { arms: names, .. } = claim else {
        return Err("it is about no arms".into());
    };
    let what = what(claim, class);
    let mut all = arms(names, samples, &what);
    if all.is_empty() {
        return Err("no arm was measured".into());
    }
    all.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    let listed: Vec<String> = all
        .iter()
        .map(|(n, values)| {
            format!("{} {}", samples.name(*n), samples.value_text(mean(values), &what))
        })
        .collect();
    Ok((Answer::Answered, listed.join(", ")))
}

fn linear(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Linear { knob, unit, arms: names, from, to, within_percent, .. } = claim else {
        return Err("it is about no line".into());
    };
    let what = what(claim, class);
    let within = from.map_or(f64::MIN, |n| n as f64)..=to.map_or(f64::MAX, |n| n as f64);
    let points: Vec<(f64, f64)> = arms(names, samples, &what)
        .into_iter()
        .filter_map(|(n, values)| Some((number_of(knob, &samples.level(n, knob)?)?, mean(&values))))
        .filter(|(x, _)| within.contains(x))
        .collect();
    if points.len() < LEAST_POINTS {
        return Err(format!("a line takes {LEAST_POINTS} arms with a number for {knob}"));
    }
    let (fixed, each) = line(&points).ok_or("there is no line through these")?;
    let off = |(x, y): &(f64, f64)| ((fixed + each * x - y) / y.abs().max(1e-9)).abs() * 100.0;
    let worst = points.iter().map(off).fold(0.0, f64::max);
    let because = format!(
        "{} and {} for each {}, at worst {worst:.1}% off",
        samples.value_text(fixed, &what),
        samples.value_text(each, &what),
        unit.as_deref().unwrap_or(knob),
    );
    let Some(percent) = within_percent else {
        return Err(format!("{because}; figures that vary are on a line to within_percent only"));
    };
    Ok((holds(worst <= *percent), because))
}

/// The line of least squares: its intercept, and its slope.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let (x, y) =
        (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let along: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let up: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (along > 0.0).then(|| (y - up / along * x, up / along))
}

/// A layer's part of every class of an arm: the largest over the smallest.
fn across_classes(claim: &Claim, layer: &str, samples: &Samples<'_>) -> ClaimAnswer {
    let mut all = Vec::new();
    for class in claim.classes() {
        let what = What { layer: Some(layer), ..what(claim, Some(*class)) };
        let name = claim.arms().first().copied();
        all.push((*class, arm(name, samples, &what)?.1));
    }
    all.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    let (Some(least), Some(most)) = (all.first(), all.last()) else {
        return Err("no class is named".into());
    };
    let ratio = interval(&least.1, &most.1)?;
    let verdict = match claim {
        Claim::Alike { within_ratio, .. } => bounded(ratio, *within_ratio, false),
        Claim::Unlike { beyond_ratio, .. } => bounded(ratio, *beyond_ratio, true),
        _ => Answer::NotMeasured,
    };
    Ok((verdict, format!("{} over {}: {}", most.0, least.0, times(ratio))))
}

fn smaller(claim: &Claim, class: Option<Class>, samples: &Samples<'_>) -> ClaimAnswer {
    let Claim::Smaller { of, than, within_ratio, arm: name, .. } = claim else {
        return Err("it is about no layers".into());
    };
    let sum = |layers: &[String]| -> Result<Vec<f64>, String> {
        let mut sums: Vec<f64> = Vec::new();
        for layer in layers {
            let what = What { layer: Some(layer), ..what(claim, class) };
            let (_, values) = arm(name.as_deref(), samples, &what)?;
            sums.resize(values.len().max(sums.len()), 0.0);
            sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
        }
        Ok(sums)
    };
    let ratio = interval(&sum(than)?, &sum(of)?)?;
    let because = format!("{} of {}: {}", of.join("+"), than.join("+"), times(ratio));
    Ok((bounded(ratio, *within_ratio, false), because))
}

/// A requested arm, and its blocks' values, or why there are none.
type ArmValues = (Arm, Result<Vec<f64>, String>);

/// The arms of a path, in a figure or in all.
fn of_path(
    experiment: &Experiment,
    figure: Option<&str>,
    path: DataPath,
    levels: &Knobs,
    samples: &Samples<'_>,
    what: &What<'_>,
) -> Vec<ArmValues> {
    let figure = figure.and_then(|name| experiment.figures.iter().find(|f| f.name == name));
    let wanted = match figure {
        Some(figure) => experiment.arms_of(figure),
        None => experiment.arms(),
    };
    let is = |arm: &Arm| {
        let mut set = levels.set_ones().map(|knob| knob.key);
        arm.level("path") == Some(path.as_str()) && set.all(|key| arm.level(key) == levels.get(key))
    };
    let values = |arm: &Arm| match samples.find(arm) {
        Some(n) => samples.values(n, what),
        None => Err(format!("{} was not measured", arm.name)),
    };
    let wanted = wanted.into_iter().filter(is);
    wanted
        .map(|arm| {
            let found = values(&arm);
            (arm, found)
        })
        .collect()
}

fn of_paths(
    experiment: &Experiment,
    claim: &Claim,
    figure: Option<&str>,
    samples: &Samples<'_>,
) -> ClaimAnswer {
    let of = |path: &DataPath, levels: &Knobs, what: &What<'_>| {
        of_path(experiment, figure, *path, levels, samples, what)
    };
    let by =
        |quantity| What { quantity: Some(claim.quantity().unwrap_or(quantity)), ..What::default() };
    match claim {
        Claim::Faster { path, than, levels, .. } => {
            let what = by(HANDLED);
            let mut because = Vec::new();
            let mut verdicts = Vec::new();
            let pairs = of(path, levels, &what).into_iter();
            for ((arm, one), (_, other)) in pairs.zip(of(than, levels, &what)) {
                let ratio = interval(&other?, &one?)?;
                verdicts.push(bounded(ratio, 1.0, true));
                because.push(format!("{} with {}", times(ratio), arm.name));
            }
            match because.is_empty() {
                true => Err("no arm is meant".into()),
                false => Ok((worst(verdicts), because.join(", "))),
            }
        }
        Claim::Pinned { path, levels, at_least, .. } => {
            let what = by(CPU_USE);
            let asked = of(path, levels, &what);
            let others = others(&asked, samples);
            let all = means(asked)?;
            let least = all.iter().map(|(_, mean)| *mean).fold(f64::INFINITY, f64::min);
            let text = samples.value_text(least, &what);
            let because = format!("{text} busy at the least");
            Ok(alone(holds(least >= *at_least), because, others))
        }
        Claim::Scales { path, levels, by: factor, .. } => {
            let what = by(CPU_USE);
            let asked = of(path, levels, &what);
            let others = others(&asked, samples);
            let mut all = means(asked)?;
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let ends = all.first().zip(all.last()).filter(|_| all.len() > 1);
            let ((_, least), (_, most)) = ends.ok_or("it takes two rates")?;
            let because = format!(
                "{} busy at the least rate, {} at the greatest",
                samples.value_text(*least, &what),
                samples.value_text(*most, &what)
            );
            Ok(alone(holds(*most >= factor * least), because, others))
        }
        _ => Err("it is about no path".into()),
    }
}

fn others(asked: &[ArmValues], samples: &Samples<'_>) -> Option<f64> {
    let arms = asked.iter().filter_map(|(arm, _)| samples.find(arm));
    most_others(arms, samples)
}

/// Other programs' use of the path's CPUs, in the arm where it was highest; none if it was not measured.
fn most_others(arms: impl Iterator<Item = usize>, samples: &Samples<'_>) -> Option<f64> {
    arms.filter_map(|arm| samples.others(arm)).max_by(f64::total_cmp)
}

/// A verdict about CPU use, unless other programs used the CPUs much: then the path got less than it would have
/// used, or took turns with them, and its own time shows neither.
fn alone(verdict: Answer, because: String, others: Option<f64>) -> (Answer, String) {
    match others.filter(|others| *others > MOST_OTHERS) {
        Some(others) => {
            (Answer::NotShown, format!("{because}, while other programs had {others:.2} CPUs"))
        }
        None => (verdict, because),
    }
}

/// The mean of each arm, by its offered rate.
fn means(all: Vec<ArmValues>) -> Result<Vec<(f64, f64)>, String> {
    let mut means = Vec::new();
    for (arm, values) in all {
        let offered = arm.level("rate").and_then(|rate| number_of("rate", rate));
        means.push((offered.unwrap_or(f64::INFINITY), mean(&values?)));
    }
    match means.is_empty() {
        true => Err("no arm is meant".into()),
        false => Ok(means),
    }
}

#[cfg(test)]
mod tests;
