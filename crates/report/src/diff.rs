//! Two recordings, or two arms of one, compared: every quantity that both measured, before and
//! after, with a verdict.
//!
//! There are two judges. Figures that repeat exactly are equal or they are not (`counts.rs`); for
//! all others the blocks are a sample (`blocks.rs`). Either makes [`DiffRow`]s of a [`ClassDiff`], and
//! every output handles both.
//!
//! The columns of both judges are in `diff/table/`. By how much numbers of samples vary is in `counting.rs` and
//! `netplumb_stats::counts`.

pub mod arms;
pub(crate) mod blocks;
mod calls;
mod code;
mod counts;
mod events;
pub mod exact;
pub mod facts;
pub mod functions;
pub mod json;
pub mod labels;
pub mod markdown;
pub mod mixed;
pub mod moves;
pub mod page;
mod rates;
mod renames;
mod row;
pub(crate) mod seeds;
pub mod sentence;
mod side;
pub(crate) mod table;
pub mod terminal;
pub mod tree;
mod trust;
mod within;

use std::borrow::Cow;
use std::collections::BTreeMap;

use netplumb_model::class::{Class, Direction};
use netplumb_model::events::COUNT;
use netplumb_model::experiment::Idle;
use netplumb_model::recording::Recording;
use netplumb_model::timing::INSTRUCTIONS;

use crate::acting;
use crate::number::printable;
use crate::shape::{Shape, shape, varying};
use crate::times::{as_costs, instrument};
use crate::{analysis, interval};
use arms::{ArmPair, OneArm, Pairs};
pub use code::Split;
use exact::{Delta, Spread};
use functions::Functions;
use moves::{Branch, Move};
pub use row::{BeforeAfter, Change, Counts, DiffRow, Judged, QUANTILES, Verdict};
pub use seeds::Seeds;
use side::Index;
pub use side::Sum;
use tree::UnionTree;
pub use within::of_arms;

/// The two sides of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a> {
    /// The recording before.
    pub before: &'a Recording,
    /// The recording after; may be the same one, if two of its arms are compared.
    pub after: &'a Recording,
    /// What the side before is called in text.
    pub before_name: &'a str,
    /// And the side after.
    pub after_name: &'a str,
}

impl<'a> Sides<'a> {
    /// The arms of a pair.
    fn arms_of(self, pair: ArmPair) -> [OneArm<'a>; 2] {
        let one = |recording, number| OneArm { recording, number };
        [one(self.before, pair.before), one(self.after, pair.after)]
    }
}

impl Sides<'_> {
    /// The arms of one recording, compared with each other.
    pub(crate) fn of_arms(recording: &Recording) -> Sides<'_> {
        Sides {
            before: recording,
            after: recording,
            before_name: "the recording",
            after_name: "the recording",
        }
    }

    /// Each recording with its name; one of both sides once.
    fn recordings(&self) -> impl Iterator<Item = (&Recording, &str)> {
        let sides = [(self.before, self.before_name), (self.after, self.after_name)];
        let one = std::ptr::eq(self.before, self.after);
        sides.into_iter().take(if one { 1 } else { 2 })
    }
}

/// The way figures are judged to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// They repeat exactly.
    Exact,
    /// They vary, and the blocks are a sample.
    Statistical,
}

impl Judge {
    /// The judge of two recordings.
    fn for_sides(sides: Sides<'_>) -> Judge {
        let vary = |r: &Recording| varying(r).is_some() || shape(r) != Shape::Costs;
        match vary(sides.before) || vary(sides.after) {
            true => Judge::Statistical,
            false => Judge::Exact,
        }
    }
}

/// A comparison of two recordings, or of arms of one.
#[derive(Debug, Clone)]
pub struct Diff<'a> {
    /// The two sides.
    pub sides: Sides<'a>,
    /// The judge of all rows.
    pub judge: Judge,
    /// Which function before is which after, where functions were counted exactly.
    pub functions: Functions,
    /// One for each pair of arms and direction that both sides have.
    pub classes: Vec<ClassDiff>,
    /// All classes of a pair of arms together, where it has several.
    pub sums: Vec<ClassDiff>,
    /// Whether both sides were measured by the same instrument.
    pub one_clock: bool,
    /// Where they were not: the functions that both instruments saw.
    pub both: Vec<mixed::ClassBoth>,
    /// Arms and directions that only one side has, in words.
    pub unpaired: Vec<String>,
    /// Differences of the kernels, machines and arms.
    pub differences: Vec<facts::Difference>,
    /// What else must be known: an incomplete recording, too few blocks.
    pub warnings: Vec<String>,
}

/// One pair of arms and direction.
#[derive(Debug, Clone)]
pub struct ClassDiff {
    /// Indexes of the arms in their recordings.
    pub arms: ArmPair,
    /// The class before.
    pub before: Class,
    /// And after: another protocol if arms of two were paired.
    pub after: Class,
    /// How many classes it is the sum of; 0 of a single one.
    pub of_classes: usize,
    /// What distinguishes its arms from other pairs ("link lo → veth; 1024 bytes"); may be empty.
    pub label: String,
    /// The function whose subtree is compared; none for whole arms.
    pub root: Option<String>,
    /// Settings in which the arms differ and that had no effect in either.
    pub idle: Vec<Idle>,
    /// Whether the arms differ in nothing else.
    pub idle_alone: bool,
    /// What costs are shared by: "packet", "run", "second" or "call".
    pub per: &'static str,
    /// The unit of all figures.
    pub unit: String,
    /// Whether these are numbers of samples, which have a counting error.
    pub sampled: bool,
    /// All functions that both sides measured; none per call.
    pub total: Option<DiffRow>,
    /// The path from its first stage to its last, where there are stages.
    pub way: Option<DiffRow>,
    /// By context, where costs were counted exactly.
    pub contexts: Vec<DiffRow>,
    /// By layer, the largest change first, where costs were counted exactly.
    pub layers: Vec<DiffRow>,
    /// Own costs of the functions, the largest change first.
    pub functions: Vec<DiffRow>,
    /// Of samples: functions with all that they call, the largest change first; those that call
    /// something.
    pub inclusive: Vec<DiffRow>,
    /// Stages in their order.
    pub stages: Vec<DiffRow>,
    /// Functions that only one side measured: they have no verdict.
    pub one_side: Vec<String>,
    /// How many functions are too small on both sides to be ranked.
    pub small: usize,
    /// Whether one side was measured after the other: then drift of the machine is between them.
    pub apart: bool,
    /// Of a bench: packets per second that were handled, before and after.
    pub rates: Option<[f64; 2]>,
    /// Further results of an exact comparison.
    pub counted: Option<ExactVerdict>,
    /// The call trees of exact costs, one for each context.
    pub trees: Vec<UnionTree>,
}

/// The results of a comparison of exact costs besides its rows.
#[derive(Debug, Clone)]
pub struct ExactVerdict {
    /// The change of the whole class.
    pub total: Change,
    /// The verdict on it.
    pub verdict: Verdict,
    /// The change that the verdict is about: the total's or, where the blocks differ too much to
    /// judge it, the sum over functions that did change.
    pub certain: Delta,
    /// The blocks before, and after.
    pub blocks: [Spread; 2],
    /// Whether both sides ran the same kernel, as far as is known.
    pub same_kernel: bool,
    /// Between kernels: the change split by whether functions have the same code in both, where known.
    pub code: Option<Split>,
    /// The same under other random seeds, and how much of the change they confirm.
    pub seeds: Option<(Seeds, f64)>,
    /// Cost that went from one function to another.
    pub moves: Vec<Move>,
    /// Calls that only one side makes.
    pub branches: Vec<Branch>,
}

impl ExactVerdict {
    /// Where blocks of one side differ: the smallest change of the total, per packet, that would
    /// have been seen for certain.
    pub fn blind(&self) -> Option<f64> {
        let [before, after] = &self.blocks;
        (!before.exact() || !after.exact()).then(|| before.blind(after))
    }
}

impl ClassDiff {
    /// Of two classes, without rows.
    fn empty(
        sides: Sides<'_>,
        arms: ArmPair,
        [before, after]: [Class; 2],
        label: String,
        (per, unit): (&'static str, String),
    ) -> ClassDiff {
        let (idle, idle_alone) =
            acting::between((sides.before, arms.before), (sides.after, arms.after));
        ClassDiff {
            arms,
            before,
            after,
            of_classes: 0,
            label,
            root: sides.after.root().map(Into::into),
            idle,
            idle_alone,
            per,
            unit,
            sampled: false,
            total: None,
            way: None,
            contexts: Vec::new(),
            layers: Vec::new(),
            functions: Vec::new(),
            inclusive: Vec::new(),
            stages: Vec::new(),
            one_side: Vec::new(),
            small: 0,
            apart: facts::apart(sides, arms) && facts::drifts(sides),
            rates: None,
            counted: None,
            trees: Vec::new(),
        }
    }

    /// Whether its figures are percentages of samples.
    pub(crate) fn is_share(&self) -> bool {
        self.unit == blocks::PERCENT
    }

    /// The unit of its figures: "ns per packet", "percent of samples".
    pub(crate) fn per_what(&self) -> String {
        match self.is_share() {
            true if self.root.is_some() => format!("{} of the subtree's samples", self.unit),
            true => format!("{} of samples", self.unit),
            false => format!("{} per {}", printable(&self.unit, 40), self.per),
        }
    }

    /// The one figure of the class: the whole path, or all functions.
    pub fn whole(&self) -> Option<&DiffRow> {
        self.way.as_ref().or(self.total.as_ref())
    }

    /// The whole, and all its parts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &DiffRow> {
        let whole = self.way.iter().chain(&self.total);
        whole.chain(&self.stages).chain(&self.functions)
    }

    /// Functions and stages that differ, the largest change first.
    pub fn changed(&self) -> Vec<&DiffRow> {
        let rows = self.functions.iter().chain(&self.stages);
        let mut rows: Vec<&DiffRow> = rows.filter(|r| r.judged.differs()).collect();
        // Exact ones are already in order, free of rounding.
        if self.counted.is_none() {
            rows.sort_by(|a, b| b.delta().abs().total_cmp(&a.delta().abs()));
        }
        rows
    }

    /// Whether its figures are counts of events.
    pub(crate) fn is_events(&self) -> bool {
        self.unit == COUNT.unit
    }

    /// The verdict on one of its rows in words. Fewer events or instructions are not called faster.
    pub(crate) fn verdict(&self, judged: &Judged) -> &'static str {
        let counted = self.is_events() || self.unit == INSTRUCTIONS.unit;
        match judged.as_str() {
            "faster" if counted => "fewer",
            "slower" if counted => "more",
            words => words,
        }
    }

    /// Its functions that were counted exactly.
    pub fn counts(&self) -> impl Iterator<Item = (&Counts, &DiffRow)> {
        let functions = self.functions.iter();
        functions.filter_map(|row| Some((row.counts.as_ref()?, row)))
    }

    /// How many functions changed by no more than the blocks of one side do, and the sum of
    /// their changes.
    pub fn unsure(&self) -> Option<(usize, Delta)> {
        let none = self.counted.as_ref()?.total.delta().none();
        let unsure = self.counts().filter(|(_, row)| match row.judged {
            Judged::Exactly(_, verdict) => !verdict.differs() && verdict != Verdict::Equal,
            Judged::Statistically(_) => false,
        });
        Some(unsure.fold((0, none), |(count, sum), (f, _)| (count + 1, sum.plus(&f.own.delta()))))
    }

    /// Whether only one side has it: the other may count its cost in another class.
    pub fn is_one_sided(&self) -> bool {
        let whole = self.whole().map(|whole| [whole.judged.before(), whole.judged.after()]);
        whole.is_some_and(|[before, after]| (before == 0.0) != (after == 0.0))
    }

    /// The class's name, after its arms' label.
    pub fn class(&self) -> String {
        if self.of_classes > 0 {
            return match self.before.proto == self.after.proto {
                true => format!("{}, all classes", self.before.proto),
                false => format!("{} → {}, all classes", self.before.proto, self.after.proto),
            };
        }
        if self.before == self.after {
            self.before.to_string()
        } else {
            format!("{} → {}", self.before, self.after)
        }
    }

    /// By how much it got worse for certain, in percent and in its unit: the change of the whole or,
    /// where that is not certain, of the parts that got worse. Zero where nothing did.
    pub fn worse_by(&self) -> (f64, f64) {
        let percent = |cost: f64, of: f64| if of > 0.0 { cost * 100.0 / of } else { 0.0 };
        if let Some(counted) = &self.counted {
            let more = match (counted.verdict, &counted.seeds) {
                (Verdict::Worse, Some((_, certain))) => *certain,
                (Verdict::Worse, None) => counted.certain.value(),
                _ => 0.0,
            };
            return (percent(more, counted.total.before.value()), more);
        }
        let sure = |row: &DiffRow| match row.judged.statistically() {
            Some(judged) if row.judged.is_worse() => match judged.ratio {
                Some(ratio) => (ratio.low - 1.0) * judged.before,
                None => judged.after,
            },
            _ => 0.0,
        };
        let parts: f64 = self.changed().into_iter().map(sure).sum();
        match self.whole() {
            Some(whole) if whole.judged.differs() => {
                (percent(sure(whole), whole.judged.before()), sure(whole))
            }
            Some(whole) => (percent(parts, whole.judged.before()), parts),
            None => {
                let of = self.functions.iter().map(|r| r.judged.before()).sum();
                (percent(parts, of), parts)
            }
        }
    }

    /// A sentence if a change of the whole by `cost` may well have gone unseen.
    pub fn may_miss(&self, cost: f64) -> Option<String> {
        if let Some(counted) = &self.counted
            && counted.verdict == Verdict::Placement
            && counted.total.delta().value() > cost
        {
            return Some(format!(
                "{} changed by {} though no code on its path did: compare recordings made with --seeds 3",
                sentence::subject(self),
                sentence::signed(&counted.total.delta())
            ));
        }
        let judged = self.whole()?.judged.statistically()?;
        let seen = judged.smallest.map(|share| share * judged.before);
        if judged.verdict.differs() || seen.is_some_and(|seen| seen <= cost) {
            return None;
        }
        let least = match judged.smallest.filter(|_| !judged.is_blind()) {
            Some(share) => {
                format!("such a run finds one of {:.1}% in four of five tries", share * 100.0)
            }
            None => "noise may hide any".into(),
        };
        Some(format!(
            "a change of that size of {} may not be seen ({least}): {}",
            sentence::subject(self),
            interval::remedy(self.apart)
        ))
    }
}

impl Diff<'_> {
    /// The pairs of arms that are compared, each once.
    fn pairs(&self) -> Vec<ArmPair> {
        let mut pairs = Vec::new();
        for class in &self.classes {
            if !pairs.contains(&class.arms) {
                pairs.push(class.arms);
            }
        }
        pairs
    }

    /// The classes and sums that may be called worse. A class that one side lacks may be part of another
    /// there, so only the sum of its arms is judged.
    pub fn judged(&self) -> impl Iterator<Item = &ClassDiff> {
        let moved = |arms: ArmPair| {
            let is_summed = self.sums.iter().any(|sum| sum.arms == arms);
            let mut classes = self.classes.iter().filter(move |class| class.arms == arms);
            is_summed && classes.any(ClassDiff::is_one_sided)
        };
        let classes = self.classes.iter().filter(move |class| !moved(class.arms));
        classes.chain(&self.sums)
    }

    /// The classes, with each pair of arms' sum after its classes.
    pub(crate) fn with_sums(&self) -> Vec<&ClassDiff> {
        let mut all: Vec<&ClassDiff> = Vec::new();
        for (n, class) in self.classes.iter().enumerate() {
            all.push(class);
            let is_last = !self.classes[n + 1..].iter().any(|c| c.arms == class.arms);
            all.extend(self.sums.iter().filter(|sum| is_last && sum.arms == class.arms));
        }
        all
    }

    /// The facts of both sides, as the compared arms have them. Where these arms differ, the recording's
    /// facts.
    fn environments(&self) -> [BTreeMap<String, String>; 2] {
        let pairs = self.pairs();
        let both: Vec<[OneArm<'_>; 2]> =
            pairs.iter().map(|pair| self.sides.arms_of(*pair)).collect();
        let recordings = [self.sides.before, self.sides.after];
        [0, 1].map(|side| {
            let arms = || both.iter().map(|both| both[side]);
            let known = recordings[side].environment.iter();
            let fact = |(key, value): (&String, &String)| {
                let mut values = arms().filter_map(|one| one.fact(key));
                let first = values.next().filter(|first| values.all(|v| v == *first));
                (key.clone(), first.unwrap_or(value).to_string())
            };
            known.map(fact).collect()
        })
    }

    /// What rows are, and the group that they belong to: functions of a layer, or events of a focus.
    fn noun(&self) -> (&'static str, &'static str) {
        match shape(self.sides.after) {
            Shape::Counts => ("event", "focus"),
            _ => ("function", "layer"),
        }
    }

    /// The name of the compared quantity, where the unit does not identify it.
    fn quantity(&self) -> Option<String> {
        let quantity = analysis::quantity(self.sides.after);
        analysis::name_beside_unit(&quantity).map(String::from)
    }
}

/// As CSV (RFC 4180): a line for each row and, of exact costs, each context; or for the functions
/// of one layer. Of two instruments, a line for each function that both saw.
pub fn csv(diff: &Diff<'_>, layer: Option<&str>) -> String {
    table::csv(diff, layer)
}

/// Compare pairs of arms, in some directions or, if none is named, in all.
pub fn compare<'a>(sides: Sides<'a>, paired: &Pairs, directions: &[Direction]) -> Diff<'a> {
    compare_by(Judge::for_sides(sides), sides, paired, directions)
}

fn compare_by<'a>(
    judge: Judge,
    sides: Sides<'a>,
    paired: &Pairs,
    directions: &[Direction],
) -> Diff<'a> {
    let paired = &seeds::once(sides, paired);
    let mut diff = Diff {
        sides,
        judge,
        functions: Functions::default(),
        classes: Vec::new(),
        sums: Vec::new(),
        one_clock: judge == Judge::Exact || instrument(sides.before) == instrument(sides.after),
        both: Vec::new(),
        unpaired: arms_alone(sides, paired),
        differences: facts::differences(sides, &paired.pairs),
        warnings: facts::warnings(judge, sides, &paired.pairs),
    };
    let alone;
    match judge {
        _ if !diff.one_clock => {
            diff.both = mixed::both(sides, &paired.pairs, directions);
            return diff;
        }
        Judge::Exact => {
            let labels = labels::where_needed(sides, &paired.pairs);
            let before = Index::new(sides.before);
            let after = match std::ptr::eq(sides.before, sides.after) {
                true => None,
                false => Some(Index::new(sides.after)),
            };
            let indexes = (&before, after.as_ref().unwrap_or(&before));
            let found = counts::classes(sides, indexes, paired, &labels, directions);
            (diff.functions, diff.classes) = (found.functions, found.classes);
            (diff.sums, alone) = (found.sums, found.unpaired);
        }
        Judge::Statistical => {
            (diff.classes, alone) = match shape(sides.before) {
                Shape::Rates => (rates::classes(sides, paired), Vec::new()),
                Shape::Counts => (events::classes(sides, paired), Vec::new()),
                Shape::Times | Shape::Costs | Shape::Hosts => {
                    let (classes, sums, alone) = blocks::classes(sides, paired, directions);
                    diff.sums = sums;
                    (classes, alone)
                }
            };
            diff.warnings.splice(0..0, facts::not_interleaved(&diff));
            diff.warnings.extend(events::shared(sides));
        }
    }
    diff.unpaired.extend(alone);
    diff
}

/// The same comparison with the call trees of both sides, which judging by blocks does not need: it is
/// judged like exact costs, for `show` to take the trees from.
fn with_trees<R>(diff: &Diff<'_>, show: impl FnOnce(&Diff<'_>) -> R) -> R {
    if diff.judge == Judge::Exact {
        return show(diff);
    }
    let costs = |recording| match shape(recording) {
        Shape::Times => Cow::Owned(as_costs(recording)),
        Shape::Costs | Shape::Rates | Shape::Counts | Shape::Hosts => Cow::Borrowed(recording),
    };
    let (before, after) = (costs(diff.sides.before), costs(diff.sides.after));
    let same = std::ptr::eq(diff.sides.before, diff.sides.after);
    let sides = Sides { before: &before, after: if same { &before } else { &after }, ..diff.sides };
    let pairs = Pairs { pairs: diff.pairs(), ..Pairs::default() };
    show(&compare_by(Judge::Exact, sides, &pairs, &[]))
}

/// The class of a comparison with trees that is the same as one without.
fn tree_of<'d>(trees: &'d Diff<'_>, class: &ClassDiff) -> Option<&'d ClassDiff> {
    let same =
        |c: &&ClassDiff| (c.arms, c.before, c.after) == (class.arms, class.before, class.after);
    // Sums over windows of different length can't be subtracted.
    trees.classes.iter().find(same).filter(|_| class.per != "call")
}

/// The arms that only one side has.
pub(crate) fn arms_alone(sides: Sides<'_>, paired: &Pairs) -> Vec<String> {
    let both = [
        (sides.before, &paired.left_before, sides.before_name),
        (sides.after, &paired.left_after, sides.after_name),
    ];
    let alone = both.into_iter().flat_map(|(recording, left, name)| {
        left.iter().map(move |arm| {
            let arm = printable(&recording.arms[*arm].name, 80);
            one_sided(&format!("arm {arm}"), name)
        })
    });
    alone.collect()
}

/// A note that only one side has something.
fn one_sided(what: &str, side: &str) -> String {
    format!("{what}: only in {}", printable(side, 120))
}

#[cfg(test)]
pub(crate) mod tests;
