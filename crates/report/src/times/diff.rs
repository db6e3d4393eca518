//! Two recordings of times, or two arms of one, compared: by whole, function and
//! stage, each with an interval on its ratio and a verdict; or, where the sides read
//! different clocks, side by side without one.

mod facts;
pub mod json;
pub mod markdown;
pub mod mixed;
pub mod page;
mod side;
pub(crate) mod table;
pub mod terminal;

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Class, Direction};
use netplumb_model::experiment::Idle;
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_model::span::StageKind;
use netplumb_stats::judge::{Judged, Pair, Verdict, judge};

use super::analysis::{Per, percentile};
use super::instrument;
use crate::acting;
use crate::diff::Sides;
use crate::diff::arms::{ArmPair, Pairs, pair_within};
use crate::diff::facts::Difference;
use crate::diff::labels::labels;
use crate::interval;
use crate::number::printable;
use crate::terminal::continued;
use side::{Part, Side, sides};

/// Half the width of a 95 % interval, in standard errors.
const HALF_WIDTH: f64 = 1.96;

/// A comparison.
#[derive(Debug, Clone)]
pub struct TimesDiff<'a> {
    /// Of what.
    pub sides: Sides<'a>,
    /// How the sides differ by themselves, to be said first.
    pub differences: Vec<Difference>,
    /// Whether both read the same clock.
    pub one_clock: bool,
    /// One for each pair of arms and direction that both have.
    pub classes: Vec<ClassDiff>,
    /// Where the clocks differ: functions that both sides saw.
    pub both: Vec<mixed::ClassBoth>,
    /// Arms and directions that one side alone has, in words.
    pub unpaired: Vec<String>,
    /// What else must be known.
    pub warnings: Vec<String>,
}

/// One pair of arms and direction.
#[derive(Debug, Clone)]
pub struct ClassDiff {
    /// The arms.
    pub arms: ArmPair,
    /// The class before.
    pub before: Class,
    /// And after.
    pub after: Class,
    /// What tells the arms apart from other pairs; may be empty.
    pub label: String,
    /// Settings in which the arms differ and that could act in neither.
    pub idle: Vec<Idle>,
    /// Whether the arms differ in nothing else.
    pub idle_alone: bool,
    /// What times are shared by: "packet", "run" or "call".
    pub per: &'static str,
    /// All functions that both sides timed, together; not per call.
    pub total: Option<Row>,
    /// The whole way, where there are stages.
    pub way: Option<Row>,
    /// Own times of the functions, the largest change first.
    pub functions: Vec<Row>,
    /// The way's stages, in their order.
    pub stages: Vec<Row>,
    /// Functions that one side alone timed: no verdict is about them.
    pub one_side: Vec<String>,
    /// Functions too small to rank on both sides.
    pub small: usize,
    /// Whether one side was measured after the other: drift of the machine is between
    /// them, and verdicts allow for it.
    pub apart: bool,
}

/// One quantity of a class.
#[derive(Debug, Clone)]
pub struct Row {
    /// The function or stage.
    pub name: String,
    /// Its layer or kind.
    pub of: String,
    /// What came of it.
    pub judged: Judged,
    /// Of one call, or of one packet that went through the stage: the times in
    /// [`QUANTILES`], before and after. None of a sum.
    pub quantiles: [BeforeAfter; 2],
    pair: Pair,
}

/// A time before and after; none where nothing was timed.
pub type BeforeAfter = [Option<f64>; 2];

/// Shares of calls that comparisons show.
pub const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

impl Row {
    fn new(name: &str, of: &str, pair: Pair) -> Row {
        Row {
            name: name.into(),
            of: of.into(),
            judged: judge(std::slice::from_ref(&Pair::default()))[0],
            quantiles: [[None; 2]; 2],
            pair,
        }
    }

    /// With the times that shares of its calls or packets stay below.
    fn with_quantiles(mut self, of: impl Fn(f64) -> BeforeAfter) -> Row {
        self.quantiles = QUANTILES.map(|(_, share)| of(share));
        self
    }

    /// After less before, in nanoseconds.
    pub fn delta(&self) -> f64 {
        self.judged.after - self.judged.before
    }
}

impl ClassDiff {
    /// The one figure that the class comes to: the whole way, or all functions.
    pub fn whole(&self) -> Option<&Row> {
        self.way.as_ref().or(self.total.as_ref())
    }

    /// The whole, and all its parts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        let whole = self.way.iter().chain(&self.total);
        whole.chain(&self.stages).chain(&self.functions)
    }

    /// By how much it got worse for certain, in percent and in nanoseconds: that of
    /// the whole, or of the parts that got slower where the whole does not tell.
    /// Zero where nothing did.
    pub fn worse_by(&self) -> (f64, f64) {
        let sure = |row: &Row| match (row.judged.verdict, row.judged.ratio) {
            (Verdict::Slower, Some(ratio)) => (ratio.low - 1.0) * row.judged.before,
            (Verdict::Slower, None) => row.judged.after,
            _ => 0.0,
        };
        let percent = |ns: f64, of: f64| if of > 0.0 { ns * 100.0 / of } else { 0.0 };
        let parts: f64 = self.changed().into_iter().map(sure).sum();
        match self.whole() {
            Some(whole) if whole.judged.verdict.differs() => {
                (percent(sure(whole), whole.judged.before), sure(whole))
            }
            Some(whole) => (percent(parts, whole.judged.before), parts),
            None => {
                let of = self.functions.iter().map(|r| r.judged.before).sum();
                (percent(parts, of), parts)
            }
        }
    }

    /// That a change of the whole by some nanoseconds may well have gone unseen, if that is
    /// so; in a sentence.
    pub fn may_miss(&self, ns: f64) -> Option<String> {
        let whole = self.whole()?;
        let judged = &whole.judged;
        let seen = judged.smallest.map(|share| share * judged.before);
        if judged.verdict.differs() || seen.is_some_and(|seen| seen <= ns) {
            return None;
        }
        let least = match judged.smallest.filter(|_| !judged.is_blind()) {
            Some(share) => format!(
                "such a run finds one of {:.1}% in four of five tries",
                share * 100.0
            ),
            None => "noise may hide any".into(),
        };
        Some(format!(
            "a change of that size of {} may not be seen ({least}): {}",
            terminal::subject(self),
            interval::remedy(self.apart)
        ))
    }

    /// Functions and stages that differ, the largest change first.
    pub fn changed(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .functions
            .iter()
            .chain(&self.stages)
            .filter(|r| r.judged.verdict.differs())
            .collect();
        rows.sort_by(|a, b| b.delta().abs().total_cmp(&a.delta().abs()));
        rows
    }
}

/// Compare pairs of arms, in some directions or, if none is named, in all.
pub fn compare<'a>(sides: Sides<'a>, paired: &Pairs, directions: &[Direction]) -> TimesDiff<'a> {
    let mut diff = TimesDiff {
        sides,
        differences: facts::facts(sides, &paired.pairs),
        one_clock: instrument(sides.before) == instrument(sides.after),
        classes: Vec::new(),
        both: Vec::new(),
        unpaired: Vec::new(),
        warnings: facts::warnings(sides),
    };
    for (recording, left, name) in [
        (sides.before, &paired.left_before, sides.before_name),
        (sides.after, &paired.left_after, sides.after_name),
    ] {
        for arm in left {
            let arm = printable(&recording.arms[*arm].name, 80);
            let name = printable(name, 120);
            diff.unpaired.push(format!("arm {arm}: only in {name}"));
        }
    }
    if !diff.one_clock {
        diff.both = mixed::both(sides, &paired.pairs, directions);
        return diff;
    }
    let (before, after) = (self::sides(sides.before), self::sides(sides.after));
    let several = paired.pairs.len() > 1 || std::ptr::eq(sides.before, sides.after);
    let labels = match several {
        true => labels(sides, &paired.pairs),
        false => vec![String::new(); paired.pairs.len()],
    };
    for (pair, label) in paired.pairs.iter().zip(labels) {
        for &direction in Direction::ALL {
            let asked = directions.is_empty() || directions.contains(&direction);
            if direction == Direction::Other || !asked {
                continue;
            }
            let of = |all: &'_ [Side<'a>], arm: usize| {
                let is = |s: &&Side<'a>| s.arm == arm && s.class.direction == direction;
                all.iter().find(is).cloned()
            };
            match (of(&before, pair.before), of(&after, pair.after)) {
                (Some(was), Some(is)) => {
                    let mut class = class(sides, *pair, &was, &is);
                    class.label = label.clone();
                    diff.classes.push(class);
                }
                (Some(class), None) => diff.unpaired.push(alone(&class, sides.before_name)),
                (None, Some(class)) => diff.unpaired.push(alone(&class, sides.after_name)),
                (None, None) => {}
            }
        }
    }
    judge_all(&mut diff.classes);
    diff.warnings.splice(0..0, facts::not_interleaved(&diff));
    diff
}

/// As CSV (RFC 4180): one line for each whole, stage and function, or for the functions of
/// one layer; of two clocks, one for each function that both saw.
pub fn csv(diff: &TimesDiff<'_>, layer: Option<&str>) -> String {
    table::csv(diff, layer)
}

/// Sentences for a recording that has arms to compare. None if it has none.
pub fn of_arms(recording: &Recording, directions: &[Direction], columns: usize) -> Option<String> {
    let measured = |arm: usize| recording.blocks.iter().any(|b| b.arm as usize == arm);
    let mut pairs = pair_within(&recording.arms);
    pairs.retain(|p| measured(p.before) && measured(p.after));
    let sides = Sides {
        before: recording,
        after: recording,
        before_name: "the recording",
        after_name: "the recording",
    };
    let paired = Pairs {
        pairs,
        ..Pairs::default()
    };
    let diff = compare(sides, &paired, directions);
    if diff.classes.is_empty() {
        return None;
    }
    let mut out = String::new();
    let beware = facts::not_interleaved(&diff).map(|text| format!("Beware: {text}."));
    for line in beware
        .into_iter()
        .chain(diff.classes.iter().map(terminal::sentence))
    {
        out.push_str(&continued(&line, 2, columns));
        out.push('\n');
    }
    out.push('\n');
    Some(out)
}

fn alone(class: &Side<'_>, name: &str) -> String {
    format!("{}: only in {}", class.label, printable(name, 120))
}

fn class(sides: Sides<'_>, arms: ArmPair, before: &Side<'_>, after: &Side<'_>) -> ClassDiff {
    // Who counted no packets compares calls.
    let per = match (before.per, after.per) {
        (Per::Packet(_), Per::Packet(_)) | (Per::Run(_), Per::Run(_)) => before.per.word(),
        // Samples are no calls.
        (Per::Second(_), Per::Second(_)) if before.sees_all => before.per.word(),
        _ => "call",
    };
    let (idle, idle_alone) =
        acting::between((sides.before, arms.before), (sides.after, arms.after));
    let mut class = ClassDiff {
        arms,
        before: before.class,
        after: after.class,
        label: String::new(),
        idle,
        idle_alone,
        per,
        total: None,
        way: None,
        functions: Vec::new(),
        stages: Vec::new(),
        one_side: Vec::new(),
        small: 0,
        apart: facts::apart(sides, arms),
    };
    functions(sides, &mut class, before, after);
    let mut names: Vec<(u16, &str, StageKind)> = Vec::new();
    for stage in after.stages.iter().chain(&before.stages) {
        if !names.iter().any(|(_, name, _)| *name == stage.name) {
            names.push((stage.order, &stage.name, stage.kind));
        }
    }
    names.sort_by_key(|(order, _, _)| *order);
    for (_, name, kind) in names {
        let found = [before, after].map(|c| c.stages.iter().find(|s| s.name == name));
        let [was, is] = found.map(|stage| {
            stage.map_or_else(Vec::new, |s| s.by_block.iter().flatten().copied().collect())
        });
        let pair = Pair {
            before: was,
            after: is,
            shared: [0.0; 2],
            apart: class.apart,
        };
        let row = Row::new(name, kind.as_str(), pair)
            .with_quantiles(|share| found.map(|s| s.and_then(|s| percentile(&s.times, share))));
        match kind {
            StageKind::Total => class.way = Some(row),
            _ => class.stages.push(row),
        }
    }
    class
}

/// A function by its name and module: ids are each recording's own.
fn by_name<'s>(side: &'s Side<'_>) -> BTreeMap<(&'s str, Option<&'s str>), &'s Part> {
    let key = |id: FunctionId| {
        let function = &side.recording.functions[id as usize];
        (function.name.as_str(), function.module.as_deref())
    };
    side.parts.iter().map(|f| (key(f.function), f)).collect()
}

fn functions(sides: Sides<'_>, class: &mut ClassDiff, before: &Side<'_>, after: &Side<'_>) {
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
    let mut total = Pair {
        apart: class.apart,
        ..Pair::default()
    };
    for key in keys {
        let (a, b) = (was.get(&key).copied(), is.get(&key).copied());
        let seen = |f: Option<&Part>, side: &Side<'_>| {
            f.is_some() || side.sees_all || watched(side.recording, &key)
        };
        if !seen(a, before) || !seen(b, after) {
            class.one_side.push(printable(key.0, 80));
            continue;
        }
        let shared = |side: &Side<'_>, f: Option<&Part>| match f {
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
        };
        sum(&mut total, &pair);
        if [a, b].iter().flatten().all(|f| f.small) {
            class.small += 1;
            continue;
        }
        let layer = match b.map(|f| after.layer(f)) {
            Some(layer) => layer,
            None => a.map_or("", |f| before.layer(f)),
        };
        let timed = [a, b].map(|f| f.and_then(|f| f.timed.as_ref()));
        let row = Row::new(key.0, layer, pair)
            .with_quantiles(|share| timed.map(|f| f.and_then(|f| f.percentile(share))));
        class.functions.push(row);
    }
    if class.per != "call" && !total.before.is_empty() && !total.after.is_empty() {
        class.total = Some(Row::new("all", "", total));
    }
}

/// Add blocks to blocks. Errors that all calls share add up.
fn sum(total: &mut Pair, one: &Pair) {
    for (total, one) in [
        (&mut total.before, &one.before),
        (&mut total.after, &one.after),
    ] {
        total.resize(one.len().max(total.len()), 0.0);
        for (sum, value) in total.iter_mut().zip(one) {
            *sum += value;
        }
    }
    for n in 0..2 {
        total.shared[n] += one.shared[n];
    }
}

/// Functions are judged together, so are stages, and wholes.
fn judge_all(classes: &mut [ClassDiff]) {
    let family = |rows: &mut Vec<&mut Row>| {
        let pairs: Vec<Pair> = rows.iter().map(|r| r.pair.clone()).collect();
        for (row, judged) in rows.iter_mut().zip(judge(&pairs)) {
            row.judged = judged;
        }
    };
    family(
        &mut classes
            .iter_mut()
            .flat_map(|c| c.functions.iter_mut())
            .collect(),
    );
    family(
        &mut classes
            .iter_mut()
            .flat_map(|c| c.stages.iter_mut())
            .collect(),
    );
    family(
        &mut classes
            .iter_mut()
            .flat_map(|c| c.total.iter_mut().chain(c.way.iter_mut()))
            .collect(),
    );
    for class in classes {
        class.functions.sort_by(|a, b| {
            let size = b.delta().abs().total_cmp(&a.delta().abs());
            size.then_with(|| a.name.cmp(&b.name))
        });
    }
}
