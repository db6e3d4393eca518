//! Claims that set arms side by side.

mod lines;
mod numbers;
mod part;

use std::collections::BTreeMap;

use netplumb_model::chain;
use netplumb_model::class::Class;
use netplumb_model::experiment::{Bound, Claim, Relation};

use super::fit::{LEAST_POINTS, line};
use super::ratio::published;
use super::{Answer, Outcome, find, holds, largest_over_smallest, list, missing};
use crate::acting;
use crate::analysis::{ClassView, functions};
use crate::number::{counted, per_packet, printable};
use crate::seeds;
use lines::{linear, points};
use numbers::signed;
use part::{NAME_CHARACTERS, PathPart, of_arms, part};

pub(crate) use lines::drawn;
pub(crate) use part::steady;

/// How many functions a `changed-by` names by default.
const TOP: usize = 3;

/// The reason if a chain matches no call of a recording.
pub(super) fn nothing_below(chain: &str) -> String {
    let chain = printable(&chain::chain_text(chain), NAME_CHARACTERS);
    format!("there are no calls of {chain} in the recording")
}

pub(super) fn outcome(claim: &Claim, classes: &[ClassView<'_>]) -> Outcome {
    if let (Some(chain), Some(view)) = (claim.below(), classes.first())
        && !chain::below(view.recording, chain).contains(&true)
    {
        return Outcome::not_measured(nothing_below(chain));
    }
    let mut outcomes = Vec::new();
    for class in claim.classes() {
        match of_class(claim, *class, classes) {
            Ok(outcome) => outcomes.push(outcome),
            Err(why) => return Outcome::not_measured(why),
        }
    }
    let verdict =
        outcomes.iter().map(|o| o.verdict).find(|v| *v != Answer::Holds).unwrap_or(Answer::Holds);
    let joined = |of: fn(&Outcome) -> &str| {
        let joined: Vec<&str> = outcomes.iter().map(of).collect();
        joined.join("; ")
    };
    let (mut because, mut finding) = (joined(|o| &o.because), joined(|o| &o.finding));
    if let Claim::Compare { arm, against, .. } = claim {
        let against = against.clone().or_else(|| {
            let first = find(classes, *claim.classes().first()?, None)?;
            Some(seeds::name(first.arm()).to_string())
        });
        let pair = format!(
            "with {} instead of {}",
            printable(arm, NAME_CHARACTERS),
            printable(&against.unwrap_or_default(), NAME_CHARACTERS),
        );
        let all = list(outcomes.iter().map(|o| o.finding.clone()));
        finding = format!("{pair}, {all}");
        because = format!("{pair}: {because}{}", published(claim));
    }
    Outcome { verdict, because, finding }
}

fn of_class(claim: &Claim, class: Class, classes: &[ClassView<'_>]) -> Result<Outcome, String> {
    match claim {
        Claim::Linear { knob, unit, layer, function, arms, from, to, within_percent, .. } => {
            let part = part(layer, function, &None);
            let range = from.unwrap_or(i64::MIN)..=to.unwrap_or(i64::MAX);
            let mut points = points(class, &part, knob, arms, classes);
            points.retain(|point| range.contains(&point.x));
            if points.len() < LEAST_POINTS {
                return Err(format!(
                    "of {class} there {} {} with a {}: a line takes {LEAST_POINTS}",
                    if points.len() == 1 { "is" } else { "are" },
                    counted(points.len(), "arm"),
                    printable(knob, NAME_CHARACTERS)
                ));
            }
            let line = line(&points).ok_or("there is no line through these")?;
            let unit = unit.as_deref().unwrap_or(knob);
            let of = format!("{}{}", part.within(), among(arms));
            Ok(linear(class, &of, &points, &line, unit, *within_percent))
        }
        Claim::Compare { arm, against, layer, function, below, is, .. } => {
            let (one, other) = pair(class, arm, against.as_deref(), classes)?;
            Ok(compare(class, &part(layer, function, below), [one, other], *is, claim.bound()))
        }
        Claim::Unchanged { layer, function, below, arms, .. } => unchanged(
            class,
            &part(layer, function, below),
            &of_arms(class, arms, classes).collect::<Vec<_>>(),
            &among(arms),
            claim.bound(),
        ),
        Claim::ChangedBy { arm, against, top, .. } => {
            let (one, other) = pair(class, arm, against.as_deref(), classes)?;
            Ok(changed_by(class, one, other, top.unwrap_or(TOP)))
        }
        Claim::Ranking { layer, function, below, arms, .. } => {
            ranking(class, &part(layer, function, below), of_arms(class, arms, classes).collect())
        }
        Claim::TurningPoint { .. } => {
            Err("a turning point needs a figure of blocks: name it as `quantity`".into())
        }
        Claim::Course { .. } => {
            Err("a course needs a figure of blocks: name it as `quantity`".into())
        }
        _ => Err("this kind of claim is about one arm".into()),
    }
}

/// The arms that a claim is about, where it isn't about all.
fn among(arms: &[String]) -> String {
    const NAMES: usize = 4;
    let names = || arms.iter().map(|arm| printable(arm, NAME_CHARACTERS));
    match arms {
        [] => String::new(),
        arms if arms.len() <= NAMES => format!(" with {}", list(names())),
        arms => {
            let more = arms.len() - NAMES;
            let named: Vec<String> = names().take(NAMES).collect();
            format!(" with {} and {more} more", named.join(", "))
        }
    }
}

type Pair<'c, 'r> = (&'c ClassView<'r>, &'c ClassView<'r>);

fn pair<'c, 'r>(
    class: Class,
    arm: &str,
    against: Option<&str>,
    classes: &'c [ClassView<'r>],
) -> Result<Pair<'c, 'r>, String> {
    let of = |arm| find(classes, class, arm).ok_or_else(|| missing(class, arm));
    Ok((of(Some(arm))?, of(against)?))
}

/// Per packet.
fn mean(insns: u64, view: &ClassView<'_>) -> f64 {
    insns as f64 / view.packets.max(1) as f64
}

fn share(change: f64, before: f64) -> String {
    if before > 0.0 { format!("{:+.1}%", change * 100.0 / before) } else { "from nothing".into() }
}

fn arm_name(view: &ClassView<'_>) -> String {
    printable(seeds::name(view.arm()), NAME_CHARACTERS)
}

fn compare(
    class: Class,
    part: &PathPart<'_>,
    [one, other]: [&ClassView<'_>; 2],
    is: Option<Relation>,
    bound: Option<Bound>,
) -> Outcome {
    let exactly = matches!(is, Some(Relation::Same | Relation::Different));
    let insns = |view| {
        if exactly { part.steady_insns(view) } else { part.insns(view) }
    };
    let (after, before) = (insns(one), insns(other));
    let same = u128::from(after) * u128::from(other.packets)
        == u128::from(before) * u128::from(one.packets);
    let (now, was) = (mean(after, one), mean(before, other));
    let change = now - was;
    let verdict = match is {
        None => match bound {
            Some(bound) => holds(bound.has(now / was)),
            None => Answer::Answered,
        },
        Some(Relation::Same) => holds(same),
        Some(Relation::Different) => holds(!same),
        Some(Relation::Less) => holds(!same && now < was),
        Some(Relation::More) => holds(!same && now > was),
    };
    let of = part.within();
    let finding = if same {
        format!("{class}{of} costs the same ({})", per_packet(after, one.packets))
    } else {
        let word = if now < was { "less" } else { "more" };
        format!(
            "{class}{of} costs {} {word} ({} against {}, {})",
            signed(change.abs()).trim_start_matches('+'),
            per_packet(after, one.packets),
            per_packet(before, other.packets),
            share(change, was)
        )
    };
    let finding = format!("{finding}{}", idle(one, other, !same));
    let claimed = bound
        .map_or_else(String::new, |bound| format!(": {:.3} times, claimed {bound}", now / was));
    Outcome { verdict, because: format!("{finding}{claimed}"), finding }
}

/// Those settings in which two arms differ that could not act, for the end of a sentence.
fn idle(one: &ClassView<'_>, other: &ClassView<'_>, differs: bool) -> String {
    let (before, after) = ((other.recording, other.arm), (one.recording, one.arm));
    let (idle, alone) = acting::between(before, after);
    acting::idle_text(&idle, alone, differs)
}

/// The same, if it is equal for all arms.
fn idle_in_all(first: &ClassView<'_>, rest: &[&ClassView<'_>]) -> String {
    let mut texts = rest.iter().map(|view| idle(view, first, false));
    let one = texts.next().unwrap_or_default();
    match texts.all(|other| other == one) {
        true => one,
        false => String::new(),
    }
}

fn unchanged(
    class: Class,
    part: &PathPart<'_>,
    views: &[&ClassView<'_>],
    among: &str,
    bound: Option<Bound>,
) -> Result<Outcome, String> {
    let [first, rest @ ..] = views else {
        return Err(missing(class, None));
    };
    if rest.is_empty() {
        return Err(format!("only one arm has {class}"));
    }
    let insns = part.steady_insns(first);
    let other = rest.iter().find(|view| {
        u128::from(part.steady_insns(view)) * u128::from(first.packets)
            != u128::from(insns) * u128::from(view.packets)
    });
    let of = format!("{}{among}", part.within());
    let cost = |view: &ClassView<'_>| per_packet(part.steady_insns(view), view.packets);
    let finding = match other {
        None => format!(
            "{class}{of} costs {} in all {} arms{}",
            cost(first),
            views.len(),
            idle_in_all(first, rest)
        ),
        Some(other) => format!(
            "{class}{of} is not the same in all arms: {} with {}, {} with {}",
            cost(first),
            arm_name(first),
            cost(other),
            arm_name(other)
        ),
    };
    let listed: Vec<String> =
        views.iter().map(|view| format!("{} {}", arm_name(view), cost(view))).collect();
    if let Some(bound) = bound {
        let costs = views.iter().map(|view| mean(part.insns(view), view));
        let (ratio, range) = largest_over_smallest(costs);
        let listed = format!("{class}{of}: {}: {range}, claimed {bound}", listed.join(", "));
        return Ok(Outcome {
            verdict: holds(bound.has(ratio)),
            finding: format!("{class}{of}: {range}"),
            because: listed,
        });
    }
    Ok(Outcome {
        verdict: holds(other.is_none()),
        because: format!("{class}{of}: {}", listed.join(", ")),
        finding,
    })
}

fn changed_by(class: Class, one: &ClassView<'_>, other: &ClassView<'_>, top: usize) -> Outcome {
    let change = mean(one.total, one) - mean(other.total, other);
    let mut changes = changes(one, other);
    let all = changes.len();
    changes.truncate(top);
    let changed: Vec<String> = changes
        .iter()
        .map(|(name, change)| format!("{} {}", printable(name, NAME_CHARACTERS), signed(*change)))
        .collect();
    let finding = if all == 0 {
        let (one, other) = (arm_name(one), arm_name(other));
        format!("no function of {class} changes with {one} instead of {other}")
    } else {
        format!(
            "with {} instead of {} {class} changes by {}, most in {}",
            arm_name(one),
            arm_name(other),
            signed(change),
            list(changed.into_iter())
        )
    };
    let finding = format!("{finding}{}", idle(one, other, all > 0));
    Outcome {
        verdict: Answer::Answered,
        because: format!("{finding}; functions that differ: {all}"),
        finding,
    }
}

/// Functions by which `one` differs from `other`, instructions per packet, the
/// largest first.
pub(crate) fn changes(one: &ClassView<'_>, other: &ClassView<'_>) -> Vec<(String, f64)> {
    let (after, before) = (functions(one), functions(other));
    let names: std::collections::BTreeSet<&str> =
        after.keys().chain(before.keys()).copied().collect();
    let mut changes: Vec<(String, f64)> = names
        .into_iter()
        .filter_map(|name| {
            let of = |functions: &BTreeMap<&str, u64>| functions.get(name).copied().unwrap_or(0);
            let (now, was) = (of(&after), of(&before));
            let same = u128::from(now) * u128::from(other.packets)
                == u128::from(was) * u128::from(one.packets);
            (!same).then(|| (name.to_string(), mean(now, one) - mean(was, other)))
        })
        .collect();
    changes.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
    changes
}

fn ranking(
    class: Class,
    part: &PathPart<'_>,
    mut views: Vec<&ClassView<'_>>,
) -> Result<Outcome, String> {
    views.sort_by(|a, b| mean(part.insns(a), a).total_cmp(&mean(part.insns(b), b)));
    let (Some(first), Some(last)) = (views.first(), views.last()) else {
        return Err(missing(class, None));
    };
    let cost = |view: &ClassView<'_>| per_packet(part.insns(view), view.packets);
    let least = mean(part.insns(first), first);
    let ranked: Vec<String> = views
        .iter()
        .map(|view| {
            let now = mean(part.insns(view), view);
            let beside = match now > least {
                true => format!(" ({})", share(now - least, least)),
                false => String::new(),
            };
            format!("{} {}{beside}", arm_name(view), cost(view))
        })
        .collect();
    let of = part.within();
    Ok(Outcome {
        verdict: Answer::Answered,
        because: format!("{class}{of}: {}", ranked.join(", ")),
        finding: format!(
            "{class}{of} costs least with {} ({}) and most with {} ({})",
            arm_name(first),
            cost(first),
            arm_name(last),
            cost(last)
        ),
    })
}

#[cfg(test)]
mod tests;
