//! Two recordings of two hosts compared. In virtual time their figures are the same in every run, so no test is
//! needed: each figure is equal, or differs by an exact amount. With several random seeds, or by this machine's clock,
//! they are a sample of seeds, or of blocks. Then all figures are judged together, with an interval on the ratio and
//! the smallest change that would have been seen.

use std::collections::BTreeSet;

use netplumb_model::hosts::{BUSY, CLOCKED, INSTRUMENT, THROUGHPUT, TURN, TURNS};
use netplumb_model::quantity::{Quantity, Repeats};
use netplumb_model::recording::Recording;
use netplumb_stats::judge::{Judged, Pair, Verdict, judge};
use netplumb_stats::ratio::Interval;
use netplumb_stats::welch::mean;
use serde::Serialize;

use super::{NAME_LETTERS, called};
use crate::diff::arms::{ArmPair, Pairs};
use crate::diff::facts::{Difference, builds, differences};
use crate::diff::json::SCHEMA;
use crate::diff::sentence::ratio_percent;
use crate::diff::{Sides, arms_alone, seeds};
use crate::interval;
use crate::json::pretty;
use crate::number::{counted, printable};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Letters of an arm's name: names are never cut.
const ARM_LETTERS: usize = 400;

/// The fact with the hash of every frame's time.
const FRAMES: &str = "wire.frames";

/// A figure on both sides.
#[derive(Debug, Clone, PartialEq)]
struct FigureRow {
    arms: String,
    /// With its label: "CPU use of sender".
    figure: String,
    /// Without: "CPU use".
    quantity: String,
    unit: String,
    before: f64,
    after: f64,
    /// The verdict on figures that vary, or of several seeds.
    judged: Option<Judged>,
}

/// Letters of the name of a figure with its unit.
const FIGURE_LETTERS: usize = 36;

impl FigureRow {
    /// Whether no difference was found.
    fn is_equal(&self) -> bool {
        match &self.judged {
            Some(judged) => !judged.verdict.differs(),
            None => self.before == self.after,
        }
    }

    /// The verdict in a word.
    fn verdict(&self) -> &'static str {
        match (&self.judged, self.is_equal()) {
            (None, true) => "equal",
            (None, false) => "different",
            (Some(judged), _) => match judged.verdict {
                Verdict::Faster => "less",
                Verdict::Slower => "more",
                other => other.as_str(),
            },
        }
    }

    /// The same in a narrow column.
    fn short_verdict(&self) -> &'static str {
        match self.judged.map(|judged| judged.verdict) {
            Some(Verdict::NoDifference) => "none seen",
            Some(Verdict::TooFew) => "too few",
            _ => self.verdict(),
        }
    }

    /// The ratio of both, with its interval.
    fn ratio(&self) -> Option<Interval> {
        self.judged?.ratio
    }

    /// The interval as changes in percent: "-1.2% to +3.4%".
    fn interval(&self) -> Value {
        let ratio = self.ratio().filter(|_| self.before != self.after || self.judged.is_some());
        ratio.map_or(Value::Missing, |ratio| {
            Value::Formatted(interval::interval_text(ratio, ratio_percent), None)
        })
    }

    /// The change relative to the figure before; none if that was 0.
    fn change(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.after / self.before - 1.0)
    }

    /// By how much it got worse, in percent; none if neither direction of the figure is better.
    fn worse_percent(&self) -> Option<f64> {
        let sign = match self.quantity.as_str() {
            name if [THROUGHPUT.name, TURNS.name].contains(&name) => -1.0,
            name if [TURN.name, BUSY.name].contains(&name) => 1.0,
            _ => return None,
        };
        let worse = sign * self.change()? * 100.0;
        (self.judged.is_none() || !self.is_equal()).then_some(worse)
    }
}

/// What two recordings of two hosts, or arms of one, have in common.
#[derive(Debug)]
pub struct Compared {
    rows: Vec<FigureRow>,
    /// The pairs, each with whether the times of all frames are equal.
    pairs: Vec<(String, Option<bool>)>,
    /// Differences of their machines, kernels and programs.
    differences: Vec<Difference>,
    /// Arms that only one side has.
    unpaired: Vec<String>,
    clock: &'static str,
    /// The number of random seeds, if figures are of several.
    seeds: usize,
    /// The name of their subject.
    called: &'static str,
    names: [String; 2],
}

/// Compare pairs of arms.
pub fn compare(sides: Sides<'_>, paired: &Pairs) -> Compared {
    let paired = &seeds::once(sides, paired);
    let pairs = &paired.pairs;
    let mut differences = differences(sides, pairs);
    // Each figure has its own unit, and figures on both sides are compared.
    differences.retain(|difference| !difference.is_of_unit());
    differences.extend(builds(sides, pairs));
    let mut rows: Vec<FigureRow> = Vec::new();
    // Of the rows that vary, with their numbers.
    let mut varying: Vec<(usize, Pair)> = Vec::new();
    let apart = !std::ptr::eq(sides.before, sides.after);
    let mut equal = Vec::new();
    let (mut seeds, mut is_clocked) = (1, false);
    for pair in pairs {
        let name =
            |recording: &Recording, arm: usize| printable(&recording.arms[arm].name, ARM_LETTERS);
        let (was, is) = (name(sides.before, pair.before), name(sides.after, pair.after));
        let arms = if was == is { was } else { format!("{was} → {is}") };
        let hash = |recording: &Recording, arm: usize| {
            let notes = recording.notes.get(&(arm as u32))?;
            notes.facts.get(FRAMES).cloned()
        };
        let hashes = hash(sides.before, pair.before).zip(hash(sides.after, pair.after));
        equal.push((arms.clone(), hashes.map(|(was, is)| was == is)));
        let after = figures(sides.after, pair.after);
        let repeats = seeds::pairs(sides, *pair);
        seeds = seeds.max(repeats.len());
        // Each seed's figure once, in the order of seeds.
        let of_seeds = |recording: &Recording, arm: fn(&ArmPair) -> usize, figure: &str| {
            let mut arms: Vec<usize> = Vec::new();
            for arm in repeats.iter().map(arm) {
                if !arms.contains(&arm) {
                    arms.push(arm);
                }
            }
            let found = arms.into_iter().filter_map(|arm| {
                let all = figures(recording, arm);
                let found = all.into_iter().find(|(name, ..)| name == figure)?;
                Some(mean(&found.2))
            });
            found.collect::<Vec<f64>>()
        };
        for (figure, quantity, before) in figures(sides.before, pair.before) {
            let found = after.iter().find(|(name, ..)| *name == figure);
            let Some((.., after)) = found else {
                continue;
            };
            let (before, after, apart) = match repeats.len() {
                1 => (before, after.clone(), apart),
                // Seeds, unlike blocks, have no drift of the machine between them.
                _ => (
                    of_seeds(sides.before, |pair| pair.before, &figure),
                    of_seeds(sides.after, |pair| pair.after, &figure),
                    false,
                ),
            };
            if quantity.repeats == Repeats::Statistically || repeats.len() > 1 {
                is_clocked |= quantity.repeats == Repeats::Statistically;
                let pair =
                    Pair { before: before.clone(), after: after.clone(), apart, ..Pair::default() };
                varying.push((rows.len(), pair));
            }
            rows.push(FigureRow {
                arms: arms.clone(),
                figure,
                quantity: quantity.name.clone(),
                unit: printable(&quantity.unit, 20),
                before: mean(&before),
                after: mean(&after),
                judged: None,
            });
        }
    }
    let clock = if is_clocked { CLOCKED } else { INSTRUMENT };
    let (numbers, pairs): (Vec<usize>, Vec<Pair>) = varying.into_iter().unzip();
    for (number, judged) in numbers.into_iter().zip(judge(&pairs)) {
        rows[number].judged = Some(judged);
    }
    Compared {
        rows,
        pairs: equal,
        differences,
        unpaired: arms_alone(sides, paired),
        clock,
        seeds,
        called: called(sides.before),
        names: [sides.before_name, sides.after_name].map(|name| printable(name, 120)),
    }
}

/// The figures of an arm by block: the name, the quantity, and the values.
fn figures(recording: &Recording, arm: usize) -> Vec<(String, &Quantity, Vec<f64>)> {
    let mut all = Vec::new();
    for (id, quantity) in recording.quantities.iter().enumerate() {
        let is_its = |block: Option<u32>| {
            let block = block.and_then(|block| recording.blocks.get(block as usize));
            block.is_some_and(|block| block.arm as usize == arm)
        };
        let its = recording.scalars.iter();
        let its = its.filter(|s| s.quantity as usize == id && is_its(s.block()));
        let its: Vec<(Option<&str>, f64)> =
            its.map(|s| (s.item.label.as_deref(), s.value)).collect();
        let labels: BTreeSet<Option<&str>> = its.iter().map(|(label, _)| *label).collect();
        for label in labels {
            let values: Vec<f64> =
                (its.iter().filter(|(of, _)| *of == label)).map(|(_, value)| *value).collect();
            let figure = match label {
                Some(label) => format!("{} of {}", quantity.name, label),
                None => quantity.name.clone(),
            };
            all.push((printable(&figure, NAME_LETTERS), quantity, values));
        }
    }
    all
}

/// The columns; where any figure was `judged`, with its interval and the smallest change that would have been seen.
fn columns<'r>(judged: bool) -> Vec<Column<'r, &'r FigureRow>> {
    let change = |row: &&FigureRow| match (row.before == row.after, row.change()) {
        (true, _) => Value::Formatted("equal".into(), Some(0.0)),
        (false, Some(change)) => Value::Formatted(format!("{:+.2}%", change * 100.0), Some(change)),
        (false, None) => Value::Formatted("from nothing".into(), None),
    };
    let ratio = |row: &&FigureRow, end: fn(Interval) -> f64| {
        let end = row.ratio().map(end).filter(|end| end.is_finite());
        end.map_or(Value::Missing, Value::Number)
    };
    let smallest = |row: &&FigureRow| row.judged.and_then(|judged| judged.smallest);
    let mut columns = vec![
        Column::machine(|row: &&FigureRow| Value::Text(row.arms.clone())).key("arm"),
        Column::machine(|row: &&FigureRow| Value::Text(row.figure.clone())).key("figure"),
        Column::machine(|row: &&FigureRow| Value::Text(row.unit.clone())).key("unit"),
        Column::text("figure", |row: &&FigureRow| match row.unit.as_str() {
            "" => row.figure.clone(),
            unit => format!("{}, {unit}", row.figure),
        })
        .letters(FIGURE_LETTERS)
        .people(1),
        Column::figure("before", |row: &&FigureRow| Value::Number(row.before))
            .people(3)
            .key("before"),
        Column::figure("after", |row: &&FigureRow| Value::Number(row.after)).people(4).key("after"),
        Column::figure("change", change).people(5).key("change"),
        Column::machine(move |row: &&FigureRow| ratio(row, |i| i.value)).key("ratio"),
        Column::machine(move |row: &&FigureRow| ratio(row, |i| i.low)).key("ratio_low"),
        Column::machine(move |row: &&FigureRow| ratio(row, |i| i.high)).key("ratio_high"),
        Column::machine(move |row: &&FigureRow| {
            smallest(row).map_or(Value::Missing, Value::Number)
        })
        .key("smallest_detectable"),
    ];
    if judged {
        columns.extend([
            Column::text("95% interval", |row: &&FigureRow| row.interval().cell_text()).people(6),
            Column::figure("sees", move |row: &&FigureRow| {
                smallest(row).map_or(Value::Missing, Value::Share)
            })
            .people(7),
        ]);
    }
    columns.extend([
        Column::machine(|row: &&FigureRow| Value::Text(row.verdict().into())).key("verdict"),
        Column::text("verdict", |row: &&FigureRow| row.short_verdict().into()).people(8),
    ]);
    columns
}

#[derive(Serialize)]
struct HostsDiffJson<'a> {
    schema: u32,
    document: &'static str,
    clock: &'static str,
    before: &'a str,
    after: &'a str,
    differences: &'a [Difference],
    unpaired: &'a [String],
    figures: Vec<Value>,
}

impl Compared {
    /// Whether nothing could be compared.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Figures that got worse by more than a limit in percent: throughput, turns and CPU use.
    pub fn worse_than(&self, percent: f64) -> Vec<String> {
        let worse = self.rows.iter().filter_map(|row| {
            let by = row.worse_percent().filter(|by| *by > percent)?;
            Some(format!("{}: {} by {by:.2}%", row.arms, row.figure))
        });
        worse.collect()
    }

    /// The rows that are shown: different ones, or all if figures vary.
    fn shown(&self) -> impl Iterator<Item = &FigureRow> {
        let all = self.varies();
        self.rows.iter().filter(move |row| all || !row.is_equal())
    }

    fn varies(&self) -> bool {
        self.rows.iter().any(|row| row.judged.is_some())
    }

    /// The table of each pair of arms.
    fn tables(&self) -> impl Iterator<Item = (&str, Table<'_, &FigureRow>)> {
        let of = |arms: &str| -> Vec<&FigureRow> {
            self.shown().filter(|row| row.arms == arms).collect()
        };
        let pairs = self.pairs.iter().map(move |(arms, _)| (arms.as_str(), of(arms)));
        let pairs = pairs.filter(|(_, rows)| !rows.is_empty());
        pairs.map(|(arms, rows)| (arms, Table::new(columns(self.varies()), rows)))
    }

    /// Sentences about equal figures.
    fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (arms, frames) in &self.pairs {
            let of = self.rows.iter().filter(|row| row.arms == *arms);
            let (equal, different): (Vec<&FigureRow>, Vec<&FigureRow>) =
                of.partition(|row| row.is_equal());
            let equal = match (equal.len(), different.len()) {
                (0, 0) => "no figure in common".to_string(),
                (equal, 0) if self.varies() => {
                    format!("no difference seen in {}", counted(equal, "figure"))
                }
                (equal, 0) => format!("all {} are equal", counted(equal, "figure")),
                (equal, different) => {
                    format!("{different} of {} differ", counted(equal + different, "figure"))
                }
            };
            let frames = match frames {
                Some(true) => "; the times of all frames are equal",
                Some(false) => "; frames have other times",
                None => "",
            };
            all.push(format!("{arms}: {equal}{frames}"));
        }
        all.extend(self.unpaired.iter().cloned());
        all
    }

    /// For a terminal: what differs.
    pub fn terminal(&self, columns: usize) -> String {
        let [before, after] = &self.names;
        let mut out = format!("{}, before: {before}, after: {after}\n", self.called);
        for difference in &self.differences {
            out.push_str(&continued(&format!("differs   {difference}"), 10, columns));
            out.push('\n');
        }
        out.push('\n');
        for sentence in self.sentences() {
            out.push_str(&continued(&sentence, 3, columns));
            out.push('\n');
        }
        for (arms, table) in self.tables() {
            out.push('\n');
            out.push_str(&continued(arms, 2, columns));
            out.push('\n');
            out.push_str(&table.terminal(Room::new(columns, FIGURE_LETTERS)));
        }
        out.push('\n');
        out.push_str(&continued(&self.basis(), 0, columns));
        out.push('\n');
        out
    }

    /// How differences are judged, in a sentence.
    fn basis(&self) -> String {
        const JUDGED: &str = "of all differences that are reported, at most 2% are false (Welch's test, Benjamini and \
                              Hochberg). Sees: the smallest change that four of five such runs would show.";
        match (self.varies(), self.seeds) {
            (true, 1) => format!("These figures vary from block to block: {JUDGED}"),
            (true, seeds) => {
                format!(
                    "These figures are means over {seeds} random seeds, which are the sample: {JUDGED}"
                )
            }
            (false, _) => {
                let besides = match self.differences.is_empty() {
                    true => "",
                    false => ", or comes from another difference that is listed above",
                };
                format!(
                    "These figures are the same in every run of a plan, so each difference is one of what was \
                     compared{besides}. They have no interval: what another random seed would change, only --seeds 3 \
                     or more shows."
                )
            }
        }
    }

    /// As CSV, all figures.
    pub fn csv(&self) -> String {
        Table::new(columns(true), self.rows.iter()).csv()
    }

    /// As JSON, all figures.
    pub fn json(&self) -> String {
        let [before, after] = &self.names;
        pretty(&HostsDiffJson {
            schema: SCHEMA,
            document: "diff",
            clock: self.clock,
            before,
            after,
            differences: &self.differences,
            unpaired: &self.unpaired,
            figures: Table::new(columns(true), self.rows.iter()).json(),
        })
    }

    /// As Markdown, what differs.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {} compared\n\n", self.called);
        for difference in &self.differences {
            let difference = crate::text::prose(&difference.to_string(), 400);
            out.push_str(&format!("- **differs** {difference}\n"));
        }
        if !self.differences.is_empty() {
            out.push('\n');
        }
        for sentence in self.sentences() {
            out.push_str(&format!("{}\n\n", crate::text::prose(&sentence, 400)));
        }
        for (arms, table) in self.tables() {
            out.push_str(&format!("**{}**\n\n", crate::text::prose(arms, 2 * ARM_LETTERS + 3)));
            table.markdown(&mut out);
        }
        out.push_str(&format!("{}\n", self.basis()));
        out
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::hosts::clocked;
    use netplumb_model::quantity::{Figure, Subject};
    use netplumb_model::recording::{Block, Ledger, env};

    use super::super::tests::recording;
    use super::*;
    use crate::diff::arms::ArmPair;

    /// The first arms of both sides.
    fn both(arms: usize) -> Pairs {
        let pair = |n| ArmPair { before: n, after: n };
        Pairs {
            pairs: (0..arms).map(pair).collect(),
            left_before: Vec::new(),
            left_after: Vec::new(),
        }
    }

    /// Check that arms of only one side are named, in each output, and that another unit of the recordings is not a
    /// difference: each figure has its own.
    #[test]
    fn arms_of_one_side() {
        let (before, mut after) = (recording(), recording());
        after.arms[1].name = "another".into();
        after.environment.insert(env::UNIT.into(), "ells".into());
        let sides = Sides { before: &before, after: &after, before_name: "a", after_name: "b" };
        let pairs = Pairs { left_before: vec![1], left_after: vec![1], ..both(1) };
        let compared = compare(sides, &pairs);
        for text in [compared.terminal(200), compared.markdown(), compared.json()] {
            for part in ["arm tso=off ", ": only in a", "arm another: only in b"] {
                assert!(text.contains(part), "no `{part}` in:\n{text}");
            }
            assert!(!text.contains("ells"), "{text}");
        }
    }

    /// Check that equal figures are reported as such, others with their difference, and that the
    /// worse side depends on the figure.
    #[test]
    fn equal_or_not() {
        let (before, mut after) = (recording(), recording());
        fn sides<'r>(before: &'r Recording, after: &'r Recording) -> Sides<'r> {
            Sides { before, after, before_name: "a", after_name: "b" }
        }
        let pairs = both(before.arms.len());
        let same = compare(sides(&before, &after), &pairs);
        assert!(same.shown().next().is_none());
        assert!(same.terminal(100).contains("are equal"));
        assert_eq!(same.worse_than(0.0), [""; 0]);
        for scalar in &mut after.scalars {
            if after.quantities[scalar.quantity as usize].name == THROUGHPUT.name {
                scalar.value *= 0.9;
            }
        }
        let other = compare(sides(&before, &after), &pairs);
        let text = other.terminal(120);
        assert!(text.contains("-10.00%"), "{text}");
        assert_eq!(other.shown().count(), before.arms.len());
        assert_eq!(other.worse_than(9.0).len(), before.arms.len());
        assert_eq!(other.worse_than(11.0), [""; 0]);
        assert!(other.csv().lines().count() > other.shown().count() + 1);
        assert!(other.markdown().contains("-10.00%"));
        assert!(other.json().contains("\"change\": -0.0999"), "{}", other.json());
    }

    /// Check that differing programs of guests are named, in each output.
    #[test]
    fn other_programs_are_named() {
        let (mut before, mut after) = (recording(), recording());
        for key in [env::NGINX_FILES, env::PROGRAM] {
            before.environment.insert(key.into(), "aaaa".into());
            after.environment.insert(key.into(), "bbbb".into());
        }
        let sides = |after| Sides { before: &before, after, before_name: "a", after_name: "b" };
        let pairs = both(1);
        let other = compare(sides(&after), &pairs);
        for text in [other.terminal(200), other.markdown()] {
            for what in ["nginx and its libraries", "build of plumb"] {
                let line = format!("{what}: aaaa → bbbb");
                assert!(text.contains(&line), "no `{line}` in:\n{text}");
            }
        }
        let document: serde_json::Value = serde_json::from_str(&other.json()).unwrap();
        assert_eq!(document["differences"][0]["after"], "bbbb");
        let same = compare(sides(&before), &pairs).terminal(200);
        assert!(!same.contains("differs"), "{same}");
    }

    /// Check that figures which vary are judged: a run beside itself shows nothing, noise is no
    /// difference, and a planted one is found, with its side.
    #[test]
    fn judged_where_they_vary() {
        let of = |factor: f64| {
            let mut recording = Recording::default();
            recording.arms = super::super::tests::recording().arms[..1].to_vec();
            for index in 0..8_u32 {
                recording.blocks.push(Block {
                    arm: 0,
                    instrument: CLOCKED.into(),
                    index,
                    ledger: Ledger::default(),
                    totals: Vec::new(),
                    entered: 0,
                    returned: 0,
                    duration_ns: 1_000_000,
                });
                // Some percent up and down.
                let noise = 1.0 + 0.01 * f64::from(index * 5 % 8) - 0.035;
                let quantity = clocked(&THROUGHPUT);
                let figure = Figure::new(&quantity, 1e9 * noise * factor);
                recording.add_figure(Subject::Block(index), figure);
            }
            recording
        };
        let compared = |factor: f64| {
            let (before, after) = (of(1.0), of(factor));
            let sides = Sides { before: &before, after: &after, before_name: "a", after_name: "b" };
            compare(sides, &both(1))
        };
        let none = compared(1.001).terminal(120);
        assert!(none.contains("no difference seen in 1 figure"), "{none}");
        assert_eq!(compared(0.999).worse_than(0.0), [""; 0]);
        let worse = compared(0.6);
        let text = worse.terminal(120);
        assert!(text.contains("less") && text.contains("-40.00%"), "{text}");
        assert_eq!(worse.worse_than(39.0).len(), 1);
        assert_eq!(compared(1.6).rows[0].verdict(), "more");
    }

    /// Check that each output has the interval on the ratio and the smallest change that would have been seen, that the
    /// text has 100 columns at most and whole names of arms, and that a bounded change is distinguished from none.
    #[test]
    fn intervals() {
        let long = format!("client=iperf3 {}", "qdisc=fq_codel_with_options ".repeat(5));
        let of = |retransmitted: [f64; 5], throughput: f64| {
            let mut recording = Recording::default();
            recording.arms = super::super::tests::recording().arms[..1].to_vec();
            recording.arms[0].name = long.trim().into();
            for (index, value) in (0..).zip(retransmitted) {
                recording.blocks.push(Block {
                    arm: 0,
                    instrument: CLOCKED.into(),
                    index,
                    ledger: Ledger::default(),
                    totals: Vec::new(),
                    entered: 0,
                    returned: 0,
                    duration_ns: 1_000_000,
                });
                let noise = 1.0 + 0.01 * f64::from(index * 3 % 5);
                let rate = Figure::new(&clocked(&THROUGHPUT), throughput * noise);
                recording.add_figure(Subject::Block(index), rate);
                let busy = Figure::new(&clocked(&BUSY), value);
                recording.add_figure(Subject::Block(index), busy);
            }
            recording
        };
        let before = of([0.0, 150.0, 2.0, 0.0, 31.0], 1e9);
        let after = of([1.0, 0.0, 0.0, 3.0, 0.0], 0.6e9);
        let sides = Sides { before: &before, after: &after, before_name: "a", after_name: "b" };
        let compared = compare(sides, &both(1));
        let text = compared.terminal(100);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(long.trim()), "{text}");
        for part in ["95% interval", "sees", "-40.00%", "none seen"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let document: serde_json::Value = serde_json::from_str(&compared.json()).unwrap();
        let figures = document["figures"].as_array().unwrap();
        let rate = figures.iter().find(|f| f["figure"] == THROUGHPUT.name).unwrap();
        let (low, high) = (rate["ratio_low"].as_f64(), rate["ratio_high"].as_f64());
        assert!(low.unwrap() > 0.5 && high.unwrap() < 0.7, "{rate}");
        assert!(rate["smallest_detectable"].as_f64().unwrap() < 0.2, "{rate}");
        assert_eq!(rate["arm"], long.trim());
        assert!(compared.markdown().contains("95% interval"), "{}", compared.markdown());
        assert!(
            compared
                .csv()
                .lines()
                .next()
                .unwrap()
                .contains("ratio_low,ratio_high,smallest_detectable")
        );
    }

    /// Check that random seeds in virtual time are the sample of an interval, and reported as one comparison.
    #[test]
    fn seeds_are_a_sample() {
        let of = |rates: [f64; 3]| {
            let whole = super::super::tests::recording();
            let mut recording = Recording::default();
            for (n, rate) in (0..).zip(rates) {
                let mut arm = whole.arms[0].clone();
                arm.name = "slow".into();
                if n > 0 {
                    arm.name = format!("slow seed={}", n + 1);
                    arm.knobs.insert("seed".into(), (n + 1).to_string());
                    arm.made = Some(netplumb_model::recording::Derivation {
                        from: "slow".into(),
                        by: netplumb_model::recording::MadeBy::Seed,
                    });
                }
                recording.arms.push(arm);
                recording.blocks.push(Block {
                    arm: n,
                    instrument: INSTRUMENT.into(),
                    index: 0,
                    ledger: Ledger::default(),
                    totals: Vec::new(),
                    entered: 0,
                    returned: 0,
                    duration_ns: 1_000_000,
                });
                recording.add_figure(Subject::Block(n), Figure::new(&THROUGHPUT, rate));
            }
            recording
        };
        let compared = |after: [f64; 3]| {
            let (before, after) = (of([891e6, 803e6, 850e6]), of(after));
            let sides = Sides { before: &before, after: &after, before_name: "a", after_name: "b" };
            let pairs = both(3);
            let compared = compare(sides, &pairs);
            (compared.rows.len(), compared.rows[0].verdict(), compared.terminal(100))
        };
        let (rows, verdict, text) = compared([840e6, 880e6, 810e6]);
        assert_eq!((rows, verdict), (1, "no difference seen"), "{text}");
        assert!(text.contains("3 random seeds"), "{text}");
        assert_eq!(compared([440e6, 480e6, 410e6]).1, "less");
    }
}
