//! Claims that cost is a line along some knob.

use netplumb_model::class::Class;
use netplumb_model::experiment::Claim;

use super::super::fit::{FittedLine, LEAST_POINTS, Point, line};
use super::super::{Outcome, holds};
use super::numbers::{decimal, number, signed};
use super::part::{NAME_CHARACTERS, PathPart, level, of_arms, part};
use crate::analysis::ClassView;
use crate::number::{per_packet, printable};

/// Cost by a knob's level, of every arm that has one.
pub(super) fn points(
    class: Class,
    part: &PathPart<'_>,
    knob: &str,
    arms: &[String],
    classes: &[ClassView<'_>],
) -> Vec<Point> {
    of_arms(class, arms, classes)
        .filter_map(|view| {
            Some(Point {
                x: level(view, knob)?,
                insns: part.steady_insns(view),
                packets: view.packets,
            })
        })
        .collect()
}

/// A claim of a line, to be drawn: a class's measurements, and the line itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) class: Class,
    /// Levels and costs of a packet, of all arms, by level.
    pub(crate) points: Vec<(f64, f64)>,
    /// The line's ends, if there is one.
    pub(crate) line: Option<[(f64, f64); 2]>,
    /// The line in words: "4,534 + 69 for each rule".
    pub(crate) formula: String,
}

/// What a claim of a line is about, class by class; nothing of other claims.
pub(crate) fn drawn(claim: &Claim, classes: &[ClassView<'_>]) -> Vec<Drawn> {
    let Claim::Linear { knob, unit, layer, function, arms, from, to, .. } = claim else {
        return Vec::new();
    };
    let part = part(layer, function, &None);
    let range = from.unwrap_or(i64::MIN)..=to.unwrap_or(i64::MAX);
    let of = |class: &Class| {
        let mut all = points(*class, &part, knob, arms, classes);
        all.sort_by_key(|point| point.x);
        let at = |p: &Point| (p.x as f64, p.insns as f64 / p.packets.max(1) as f64);
        let within: Vec<Point> = (all.iter().copied()).filter(|p| range.contains(&p.x)).collect();
        let line = (within.len() >= LEAST_POINTS).then(|| line(&within)).flatten();
        let ends = within.first().zip(within.last());
        let on = |line: &FittedLine, p: &Point| (p.x as f64, line.fixed + line.each * p.x as f64);
        Drawn {
            class: *class,
            points: all.iter().map(at).collect(),
            formula: line
                .map_or_else(String::new, |line| formula(&line, unit.as_deref().unwrap_or(knob))),
            line: (line.zip(ends)).map(|(line, (a, b))| [on(&line, a), on(&line, b)]),
        }
    };
    claim.classes().iter().map(of).collect()
}

/// "4,534 + 69 for each rule".
fn formula(line: &FittedLine, unit: &str) -> String {
    format!(
        "{} {} {} for each {}",
        decimal((line.fixed * 10.0).round() / 10.0),
        if line.each < 0.0 { "-" } else { "+" },
        decimal(line.each.abs()),
        printable(unit, NAME_CHARACTERS),
    )
}

/// The outcome of a claim of a line for a class.
pub(super) fn linear(
    class: Class,
    of: &str,
    points: &[Point],
    line: &FittedLine,
    unit: &str,
    within_percent: Option<f64>,
) -> Outcome {
    let unit = printable(unit, NAME_CHARACTERS);
    let least = points.iter().map(|p| p.x).min().unwrap_or_default();
    let most = points.iter().map(|p| p.x).max().unwrap_or_default();
    let range = format!("from {} to {}", number(least), number(most));
    let formula = formula(line, &unit);
    let listed: Vec<String> = points
        .iter()
        .map(|p| format!("{} at {}", per_packet(p.insns, p.packets), number(p.x)))
        .collect();
    let off = if line.exact {
        "to the instruction".to_string()
    } else {
        format!(
            "at worst {} off, at {} ({:.2}% of the cost at most)",
            signed(line.worst),
            number(line.worst_x),
            line.worst_share * 100.0
        )
    };
    let straight = match within_percent {
        None => line.exact,
        Some(percent) => line.worst_share * 100.0 <= percent,
    };
    Outcome {
        verdict: holds(straight),
        because: format!("{class}{of}: {formula}, {off}; {}", listed.join(", ")),
        finding: match (straight, line.exact) {
            (true, true) if line.each == 0.0 => {
                format!("{class}{of} costs {} whatever the {unit}, {range}", decimal(line.fixed))
            }
            (true, true) => {
                format!("{class}{of} costs {formula}, to the instruction, {range}")
            }
            (true, false) => format!(
                "{class}{of} costs {formula}, to within {:.1}%, {range}",
                line.worst_share * 100.0
            ),
            (false, _) => format!(
                "{class}{of} is no line {range}: {formula} comes nearest, and is {} off at {}",
                signed(line.worst),
                number(line.worst_x)
            ),
        },
    }
}
