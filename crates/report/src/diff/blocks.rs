//! Classes whose figures vary from block to block: times of functions and stages, and costs that
//! were sampled. Blocks are the sample.

mod side;

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Class, Direction};
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_model::span::StageKind;
use netplumb_stats::judge::{Pair, judge};

use super::arms::{ArmPair, Pairs};
use super::row::{BeforeAfter, DiffRow, Judged, QUANTILES};
use super::{ClassDiff, Sides, labels, one_sided};
use crate::analysis;
use crate::number::printable;
use crate::per::Per;
use crate::shape::{Shape, shape};
use crate::times::analysis::percentile;
use crate::times::is_between;
use side::{FunctionBlocks, SAMPLE, Side, counting, sides, zero};

/// Half the width of a 95 % interval, in standard errors.
const HALF_WIDTH: f64 = 1.96;

/// The unit of shares.
pub(super) const PERCENT: &str = "percent";
/// From here on a share is all, but for rounding.
const ALL_PERCENT: f64 = 99.999;

/// Quantities that are judged together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Function,
    /// Functions with all that they call.
    Inclusive,
    Stage,
    /// All functions, or the path from its first stage to its last.
    Total,
    Way,
    /// All classes of a pair of arms.
    Sum,
}

/// Blocks of one quantity, still to be judged.
struct Pending {
    class: usize,
    family: Family,
    pair: Pair,
    name: String,
    of: String,
    quantiles: [BeforeAfter; 2],
}

/// All classes of some pairs, each pair's sum over its classes, and classes on one side only.
pub(super) fn classes(
    sides: Sides<'_>,
    paired: &Pairs,
    directions: &[Direction],
) -> (Vec<ClassDiff>, Vec<ClassDiff>, Vec<String>) {
    let (before, after) = (self::sides(sides.before), self::sides(sides.after));
    let several = paired.pairs.len() > 1 || std::ptr::eq(sides.before, sides.after);
    let labels = match several {
        true => labels::labels(sides, &paired.pairs),
        false => vec![String::new(); paired.pairs.len()],
    };
    let (mut classes, mut alone, mut pending) = (Vec::new(), Vec::new(), Vec::new());
    for (pair, label) in paired.pairs.iter().zip(labels) {
        for &direction in Direction::ALL {
            let asked = directions.is_empty() || directions.contains(&direction);
            let is_class = [sides.before, sides.after].map(|r| analysis::is_class(r, direction));
            if is_class != [true; 2] || !asked {
                continue;
            }
            let of = |all: &[Side<'_>], arm: usize| {
                let is = |s: &&Side<'_>| s.arm == arm && s.class.direction == direction;
                all.iter().position(|s| is(&s))
            };
            let was = of(&before, pair.before).map(|n| &before[n]);
            let is = of(&after, pair.after).map(|n| &after[n]);
            // A class that one side does not have cost nothing there.
            let none = match (was, is) {
                (Some(side), None) if side.sees_all => zero(sides.after, pair.after, direction),
                (None, Some(side)) if side.sees_all => zero(sides.before, pair.before, direction),
                _ => None,
            };
            let (was, is) = match &none {
                Some(none) => (was.or(Some(none)), is.or(Some(none))),
                None => (was, is),
            };
            match (was, is) {
                (Some(was), Some(is)) if was.is_empty() && is.is_empty() => {}
                (Some(was), Some(is)) if was.is_nothing() && is.is_nothing() => {}
                // No cost below a function is the same as the other side's.
                (Some(side), None) | (None, Some(side)) if side.is_nothing() => {}
                (Some(was), Some(is)) => {
                    let number = classes.len();
                    let mut class = class(sides, *pair, label.clone(), was, is);
                    pending.extend(functions(sides, number, &mut class, was, is));
                    pending.extend(stages(number, &class, was, is));
                    classes.push(class);
                }
                (Some(side), None) => alone.push(one_sided(&side.label, sides.before_name)),
                (None, Some(side)) => alone.push(one_sided(&side.label, sides.after_name)),
                (None, None) => {}
            }
        }
    }
    for pair in &paired.pairs {
        pending.extend(sum(sides, *pair, &mut classes, &pending));
    }
    judge_all(&mut classes, pending);
    let (sums, classes) = classes.into_iter().partition(|c| c.of_classes > 0);
    (classes, sums, alone)
}

/// All functions of all classes of a pair of arms, where the classes are shared by the same and their blocks
/// are the same ones.
fn sum(
    sides: Sides<'_>,
    arms: ArmPair,
    classes: &mut Vec<ClassDiff>,
    pending: &[Pending],
) -> Option<Pending> {
    let is_part = |class: &ClassDiff| class.arms == arms && class.of_classes == 0;
    let parts: Vec<&ClassDiff> = classes.iter().filter(|class| is_part(class)).collect();
    let first = *parts.first()?;
    let totals: Vec<&Pending> = (pending.iter())
        .filter(|p| p.family == Family::Total && is_part(&classes[p.class]))
        .collect();
    let is_alike = parts.iter().all(|class| (class.per, &class.unit) == (first.per, &first.unit));
    if parts.len() < 2 || totals.len() < parts.len() || !is_alike || first.per == SAMPLE {
        return None;
    }
    let mut pair = Pair { apart: first.apart, ..Pair::default() };
    let blocks = |p: &Pair| (p.before.len(), p.after.len());
    if totals.iter().any(|t| blocks(&t.pair) != blocks(&totals[0].pair)) {
        return None;
    }
    for total in &totals {
        self::add(&mut pair, &total.pair);
    }
    let class = |class: Class| Class { direction: Direction::Other, ..class };
    let both = [class(first.before), class(first.after)];
    let of = (first.per, first.unit.clone());
    let all = ClassDiff {
        of_classes: parts.len(),
        sampled: first.sampled,
        ..ClassDiff::empty(sides, arms, both, first.label.clone(), of)
    };
    classes.push(all);
    Some(Pending {
        class: classes.len() - 1,
        family: Family::Sum,
        pair,
        name: "all".into(),
        of: String::new(),
        quantiles: Default::default(),
    })
}

fn class(
    sides: Sides<'_>,
    arms: ArmPair,
    label: String,
    before: &Side<'_>,
    after: &Side<'_>,
) -> ClassDiff {
    // Without counted packets, calls are compared. For samples, which are not calls, shares are:
    // windows of equal length do not have equal load.
    let sampled = before.sample.is_some() && after.sample.is_some();
    let are_spans = is_between(sides.before) && is_between(sides.after);
    let per = match (before.per, after.per) {
        _ if are_spans => "span",
        (Per::Packet(_), Per::Packet(_))
        | (Per::Connection(_), Per::Connection(_))
        | (Per::Run(_), Per::Run(_)) => before.per.word(),
        _ if sampled => SAMPLE,
        (Per::Second(_), Per::Second(_)) if before.sees_all => before.per.word(),
        _ => "call",
    };
    let unit = match shape(sides.after) {
        _ if per == SAMPLE => PERCENT.into(),
        Shape::Costs => analysis::quantity(sides.after).unit,
        Shape::Times | Shape::Rates | Shape::Counts | Shape::Hosts => "ns".into(),
    };
    ClassDiff {
        sampled,
        ..ClassDiff::empty(sides, arms, [before.class, after.class], label, (per, unit))
    }
}

fn stages(number: usize, class: &ClassDiff, before: &Side<'_>, after: &Side<'_>) -> Vec<Pending> {
    let mut names: Vec<(u16, &str, StageKind)> = Vec::new();
    for stage in after.stages.iter().chain(&before.stages) {
        if !names.iter().any(|(_, name, _)| *name == stage.name) {
            names.push((stage.order, &stage.name, stage.kind));
        }
    }
    names.sort_by_key(|(order, _, _)| *order);
    let pending = |(_, name, kind): (u16, &str, StageKind)| {
        let found = [before, after].map(|c| c.stages.iter().find(|s| s.name == name));
        let [was, is] = found.map(|stage| {
            stage.map_or_else(Vec::new, |s| s.by_block.iter().flatten().copied().collect())
        });
        let quantile = |share| found.map(|s| s.and_then(|s| percentile(&s.times, share)));
        Pending {
            class: number,
            family: match kind {
                StageKind::Total => Family::Way,
                _ => Family::Stage,
            },
            name: name.into(),
            of: kind.as_str().into(),
            quantiles: QUANTILES.map(|(_, share)| quantile(share)),
            pair: Pair {
                before: was,
                after: is,
                shared: [0.0; 2],
                apart: class.apart,
                counting: None,
            },
        }
    };
    names.into_iter().map(pending).collect()
}

/// A function by its name and module: ids are each recording's own.
fn by_name<'s>(side: &'s Side<'_>) -> BTreeMap<(&'s str, Option<&'s str>), &'s FunctionBlocks> {
    let key = |id: FunctionId| {
        let function = &side.recording.functions[id as usize];
        (function.name.as_str(), function.module.as_deref())
    };
    side.parts.iter().map(|f| (key(f.function), f)).collect()
}

fn functions(
    sides: Sides<'_>,
    number: usize,
    class: &mut ClassDiff,
    before: &Side<'_>,
    after: &Side<'_>,
) -> Vec<Pending> {
    let (was, is) = (by_name(before), by_name(after));
    let keys: BTreeSet<_> = was.keys().chain(is.keys()).copied().collect();
    let watched = |recording: &Recording, key: &(&str, Option<&str>)| {
        recording.attachments.iter().any(|a| {
            let function = &recording.functions[a.function as usize];
            (function.name.as_str(), function.module.as_deref()) == *key
        })
    };
    // Within one recording the correction is the same on both sides.
    let one = std::ptr::eq(sides.before, sides.after);
    let mut total = Pair { apart: class.apart, ..Pair::default() };
    let sides_of = [before, after];
    let mut whole = sides_of.map(|side| vec![0.0; side.per_by_block.len()]);
    let mut pending = Vec::new();
    for key in keys {
        let (a, b) = (was.get(&key).copied(), is.get(&key).copied());
        let seen = |f: Option<&FunctionBlocks>, side: &Side<'_>| {
            f.is_some() || side.sees_all || watched(side.recording, &key)
        };
        if !seen(a, before) || !seen(b, after) {
            class.one_side.push(printable(key.0, 80));
            continue;
        }
        let shared = |side: &Side<'_>, f: Option<&FunctionBlocks>| match f {
            Some(f) if !one => {
                let each = match class.per {
                    "call" => f.uncertainty / f.calls.max(1) as f64,
                    _ => side.per.each(f.uncertainty),
                };
                each / HALF_WIDTH
            }
            _ => 0.0,
        };
        let pair = Pair {
            before: before.by_block(a, class.per),
            after: after.by_block(b, class.per),
            shared: [shared(before, a), shared(after, b)],
            apart: class.apart,
            counting: {
                let own = [(a, before), (b, after)].map(|(f, side)| match f {
                    Some(f) => f.own_by_block.clone(),
                    None => vec![0.0; side.per_by_block.len()],
                });
                for (whole, own) in whole.iter_mut().zip(&own) {
                    for (whole, own) in whole.iter_mut().zip(own) {
                        *whole += own;
                    }
                }
                counting(sides_of, [&own[0], &own[1]], class.per)
            },
        };
        add(&mut total, &pair);
        let layer = match b.map(|f| after.layer(f)) {
            Some(layer) => layer,
            None => a.map_or("", |f| before.layer(f)),
        };
        let found = inclusive(sides_of, [a, b], class);
        pending.extend(found.map(|pair| Pending {
            class: number,
            family: Family::Inclusive,
            pair,
            name: key.0.into(),
            of: layer.into(),
            quantiles: Default::default(),
        }));
        if [a, b].iter().flatten().all(|f| f.small) {
            // A function that only calls others has no own cost to rank.
            let costs =
                |f: &&FunctionBlocks| f.calls > 0 || f.own_by_block.iter().any(|own| *own > 0.0);
            class.small += usize::from([a, b].iter().flatten().any(costs));
            continue;
        }
        let timed = [a, b].map(|f| f.and_then(|f| f.timed.as_ref()));
        let quantile = |share| timed.map(|f| f.and_then(|f| f.percentile(share)));
        pending.push(Pending {
            class: number,
            family: Family::Function,
            pair,
            name: key.0.into(),
            of: layer.into(),
            quantiles: QUANTILES.map(|(_, share)| quantile(share)),
        });
    }
    total.counting = counting(sides_of, [&whole[0], &whole[1]], class.per);
    if class.per == SAMPLE && class.root.is_some() {
        // The part below the function is a share of all samples, and its functions are shares of that.
        let all =
            sides_of.map(|side| Side { all_by_block: side.whole_by_block.clone(), ..side.clone() });
        total.before = all[0].of_costs(&whole[0], class.per);
        total.after = all[1].of_costs(&whole[1], class.per);
        total.counting = counting([&all[0], &all[1]], [&whole[0], &whole[1]], class.per);
    }
    // All samples are 100 %: there is nothing to compare.
    let is_all = |share: &f64| class.per == SAMPLE && (share.is_nan() || *share > ALL_PERCENT);
    let all = total.before.iter().chain(&total.after).all(is_all);
    let none = total.before.is_empty() || total.after.is_empty();
    if class.per != "call" && !none && !all {
        pending.push(Pending {
            class: number,
            family: Family::Total,
            pair: total,
            name: "all".into(),
            of: String::new(),
            quantiles: Default::default(),
        });
    }
    pending
}

/// A function with all that it calls on both sides, of samples; none where it calls nothing, or is too
/// small to rank.
fn inclusive(
    sides: [&Side<'_>; 2],
    parts: [Option<&FunctionBlocks>; 2],
    class: &ClassDiff,
) -> Option<Pair> {
    let known = || parts.iter().flatten();
    let large = |side: &Side<'_>, part: &FunctionBlocks| {
        let samples = part.inclusive.as_ref().map_or(0, |(_, samples)| *samples);
        samples >= side.per_by_block.len() as u64
    };
    let any_large =
        (sides.iter().zip(parts)).any(|(side, part)| part.is_some_and(|p| large(side, p)));
    if !known().any(|part| part.inclusive.is_some()) || !any_large {
        return None;
    }
    // A function that calls nothing on one side has its own cost there.
    let costs = [0, 1].map(|n: usize| match parts[n] {
        Some(part) => match &part.inclusive {
            Some((costs, _)) => costs.clone(),
            None => part.own_by_block.clone(),
        },
        None => vec![0.0; sides[n].per_by_block.len()],
    });
    let [before, after] = [0, 1].map(|n: usize| sides[n].of_costs(&costs[n], class.per));
    // The root of the tree.
    let is_all = |share: &f64| class.per == SAMPLE && (share.is_nan() || *share > ALL_PERCENT);
    if class.root.is_some() && before.iter().chain(&after).all(is_all) {
        return None;
    }
    Some(Pair {
        before,
        after,
        shared: [0.0; 2],
        apart: class.apart,
        counting: counting(sides, [&costs[0], &costs[1]], class.per),
    })
}

/// Add blocks to blocks. Errors that all calls share add up.
fn add(total: &mut Pair, one: &Pair) {
    for (total, one) in [(&mut total.before, &one.before), (&mut total.after, &one.after)] {
        total.resize(one.len().max(total.len()), 0.0);
        for (sum, value) in total.iter_mut().zip(one) {
            *sum += value;
        }
    }
    for n in 0..2 {
        total.shared[n] += one.shared[n];
    }
}

/// Functions are judged together, and so are inclusive costs, stages, and wholes.
fn judge_all(classes: &mut [ClassDiff], pending: Vec<Pending>) {
    let (functions, others): (Vec<_>, Vec<_>) =
        (pending.into_iter()).partition(|p| p.family == Family::Function);
    let (inclusive, others): (Vec<_>, Vec<_>) =
        (others.into_iter()).partition(|p| p.family == Family::Inclusive);
    let (stages, wholes): (Vec<_>, Vec<_>) =
        (others.into_iter()).partition(|p| p.family == Family::Stage);
    // The sum of several wholes is not another independent test among them.
    let (sums, wholes): (Vec<_>, Vec<_>) =
        (wholes.into_iter()).partition(|p| p.family == Family::Sum);
    for family in [functions, inclusive, stages, wholes, sums] {
        let pairs: Vec<Pair> = family.iter().map(|p| p.pair.clone()).collect();
        for (pending, judged) in family.into_iter().zip(judge(&pairs)) {
            let class = &mut classes[pending.class];
            let row = DiffRow {
                quantiles: pending.quantiles,
                ..DiffRow::new(&pending.name, &pending.of, Judged::Statistically(judged))
            };
            match pending.family {
                Family::Function => class.functions.push(row),
                Family::Inclusive => class.inclusive.push(row),
                Family::Stage => class.stages.push(row),
                Family::Way => class.way = Some(row),
                Family::Total | Family::Sum => class.total = Some(row),
            }
        }
    }
    for class in classes {
        for rows in [&mut class.functions, &mut class.inclusive] {
            rows.sort_by(|a, b| {
                let size = b.delta().abs().total_cmp(&a.delta().abs());
                size.then_with(|| a.name.cmp(&b.name))
            });
        }
    }
}
