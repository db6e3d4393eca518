//! The table of what is judged by blocks: of wholes, stages and functions, each column
//! declared once.

use netplumb_stats::judge::{Judged, Verdict};
use netplumb_stats::ratio::Interval;

use super::mixed::{Both, ClassBoth};
use super::terminal::{percent, quantile, subject};
use super::{ClassDiff, QUANTILES, Row, TimesDiff};
use crate::interval;
use crate::table::{Column, Room, Table, Value};
use crate::terminal::View;

/// Terminals of so many columns have room for layers and for what could be seen...
const WIDE: usize = 100;
/// ...and of so many for percentiles.
const WITH_QUANTILES: usize = 132;
/// The least and the most letters of a name.
const NAME_LETTERS: [usize; 2] = [16, 40];
/// Layers are a word.
const WORD_LETTERS: usize = 16;
/// Letters of a class.
const CLASS_LETTERS: usize = 200;

/// A line: a quantity of a class.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) class: &'a ClassDiff,
    pub(super) row: &'a Row,
    /// `total`, `all functions`, `stage` or `function`.
    kind: &'static str,
    /// What the arms are called.
    arms: [&'a str; 2],
}

impl<'a> Line<'a> {
    fn new(
        diff: &'a TimesDiff<'_>,
        class: &'a ClassDiff,
        kind: &'static str,
        row: &'a Row,
    ) -> Self {
        let arms = [
            &diff.sides.before.arms[class.arms.before].name,
            &diff.sides.after.arms[class.arms.after].name,
        ];
        Line {
            class,
            row,
            kind,
            arms: arms.map(String::as_str),
        }
    }

    fn judged(&self) -> &Judged {
        &self.row.judged
    }

    /// A function's layer or a stage's kind, where it says more than its name.
    fn of(&self) -> &str {
        match self.row.of.as_str() {
            "unaccounted" | "total" => "",
            of => of,
        }
    }
}

/// A verdict for programs.
pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::NoDifference => "no_difference_seen",
        Verdict::TooFew => "too_few_blocks",
    }
}

/// What a verdict rests on, of whatever was judged; in CSV with so many digits.
pub(crate) fn of_judged<'t, R: 't>(
    judged: fn(&R) -> &Judged,
    digits: Option<usize>,
) -> Vec<Column<'t, R>> {
    let ratio = move |row: &R, of: fn(&Interval) -> f64| {
        let ratio = judged(row).ratio;
        ratio
            .as_ref()
            .map_or(Value::Missing, |r| Value::Number(of(r)))
    };
    let columns = [
        Column::machine(move |r: &R| ratio(r, |i| i.value)).key("ratio"),
        Column::machine(move |r: &R| ratio(r, |i| i.low)).key("ratio_low"),
        Column::machine(move |r: &R| ratio(r, |i| i.high)).key("ratio_high"),
        Column::machine(move |r: &R| Value::Number(judged(r).p)).json("p"),
        Column::machine(move |r: &R| judged(r).smallest.map_or(Value::Missing, Value::Number))
            .key("smallest_detectable"),
    ];
    let rounded = columns.into_iter().map(|column| match digits {
        Some(digits) => column.digits(digits),
        None => column,
    });
    rounded.collect()
}

/// Whether noise may hide any change of what was judged.
pub(crate) fn is_blind<'t, R: 't>(judged: fn(&R) -> &Judged) -> Column<'t, R> {
    Column::machine(move |r: &R| Value::Flag(judged(r).is_blind()))
}

/// What came of what was judged.
pub(crate) fn verdict<'t, R: 't>(judged: fn(&R) -> &Judged) -> Column<'t, R> {
    Column::machine(move |r: &R| Value::Text(word(judged(r).verdict).into())).key("verdict")
}

/// All columns. `title` is what names are of, `of` what stands beside them.
fn columns<'a>(title: &'static str, of: Option<&'static str>) -> Vec<Column<'a, Line<'a>>> {
    let name = match title {
        "stage" => Column::text(title, |l: &Line<'a>| l.row.name.clone()),
        _ => Column::code(title, |l: &Line<'a>| match &l.class.total {
            Some(total) if std::ptr::eq(total, l.row) => Value::Sum("all"),
            _ => Value::Name(l.row.name.clone(), None),
        }),
    };
    let mut columns: Vec<Column<'a, Line<'a>>> = vec![
        Column::machine(|l: &Line<'a>| Value::Text(l.arms[0].into())).csv("arm_before"),
        Column::machine(|l: &Line<'a>| Value::Text(l.arms[1].into())).csv("arm_after"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.before.to_string())).csv("class_before"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.after.to_string())).csv("class"),
        Column::machine(|l: &Line<'a>| Value::Text(l.kind.into())).csv("kind"),
        name.key("name").letters(NAME_LETTERS[1]).people(0),
        Column::machine(|l: &Line<'a>| Value::Text(l.row.of.clone())).key("of"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.per.into())).csv("per"),
        Column::figure("before", |l: &Line<'a>| Value::Ns(l.judged().before))
            .hint("the mean of blocks")
            .key("before_ns")
            .digits(3)
            .people(2),
        Column::figure("after", |l: &Line<'a>| Value::Ns(l.judged().after))
            .hint("the mean of blocks")
            .key("after_ns")
            .digits(3)
            .people(3),
        Column::machine(|l: &Line<'a>| Value::Ns(l.row.delta()))
            .csv("change_ns")
            .digits(3),
    ];
    let of = of.map(|of| Column::text(of, |l: &Line<'a>| l.of().into()));
    columns.extend(of.map(|of| of.letters(WORD_LETTERS).people(1).from(WIDE)));
    columns.extend(of_judged(Line::judged, Some(5)));
    columns.extend([
        is_blind(Line::judged).json("noise_hides_any_change"),
        verdict(Line::judged),
        Column::machine(|l: &Line<'a>| {
            Value::Text(if l.class.apart { "no" } else { "yes" }.into())
        })
        .csv("interleaved"),
        Column::figure("change", |l: &Line<'a>| {
            let ratio = l.judged().ratio.map(|r| r.value);
            ratio.map_or(Value::Missing, |r| Value::Told(percent(r), Some(r)))
        })
        .hint("of the ratio of the means")
        .people(4),
        Column::figure("95% interval", |l: &Line<'a>| {
            let ratio = l.judged().ratio;
            ratio.map_or(Value::Missing, |r| {
                Value::Told(interval::told(r, percent), None)
            })
        })
        .hint("of that change")
        .people(5),
        Column::figure("could see", |l: &Line<'a>| {
            l.judged().smallest.map_or(Value::Missing, Value::Share)
        })
        .hint("the smallest change that would be found in four of five such runs")
        .people(6)
        .from(WIDE),
    ]);
    for (n, (name, _)) in QUANTILES.iter().enumerate() {
        let side = move |l: &Line<'a>, side: usize| {
            l.row.quantiles[n][side].map_or(Value::Missing, Value::Ns)
        };
        columns.extend([
            Column::figure(*name, move |l: &Line<'a>| {
                Value::Told(quantile(l.row.quantiles[n]), None)
            })
            .hint("of a packet, or of a call with all that it calls, before and after")
            .people(7)
            .from(WITH_QUANTILES),
            Column::machine(move |l: &Line<'a>| side(l, 0))
                .csv(format!("{name}_before_ns"))
                .digits(1),
            Column::machine(move |l: &Line<'a>| side(l, 1))
                .csv(format!("{name}_after_ns"))
                .digits(1),
        ]);
    }
    columns.extend([
        Column::text("verdict", |l: &Line<'a>| l.judged().verdict.as_str().into()).people(8),
        Column::machine(|l: &Line<'a>| {
            let figure = |side: Option<f64>| side.map_or(Value::Missing, Value::Number);
            let all = QUANTILES.iter().zip(l.row.quantiles);
            Value::object(
                all.map(|((name, _), sides)| (*name, Value::List(sides.map(figure).into()))),
            )
        })
        .json("percentiles_ns"),
    ]);
    columns
}

/// The lines of all classes, or the functions of one layer, as CSV.
pub(super) fn csv(diff: &TimesDiff<'_>, layer: Option<&str>) -> String {
    if !diff.one_clock {
        let lines = diff.both.iter();
        let lines = lines.flat_map(|class| class.functions.iter().map(move |f| (class, f)));
        return Table::new(of_both(), lines).csv();
    }
    let lines = diff.classes.iter().flat_map(|class| {
        let line = |kind| move |row| Line::new(diff, class, kind, row);
        let whole = class.way.iter().map(line("total"));
        let stages = class.stages.iter().map(line("stage"));
        let all = class.total.iter().map(line("all functions"));
        let of_layer = class.functions.iter();
        let of_layer = of_layer.filter(|row| layer.is_none_or(|l| row.of == l));
        let wholes = whole.chain(stages).chain(all);
        let wholes = wholes.filter(|_| layer.is_none());
        wholes
            .chain(of_layer.map(line("function")))
            .collect::<Vec<_>>()
    });
    Table::new(columns("function", Some("layer")), lines).csv()
}

/// Some rows of a class as JSON.
pub(super) fn json<'a>(
    diff: &'a TimesDiff<'_>,
    class: &'a ClassDiff,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Vec<Value> {
    let lines = rows.into_iter().map(|row| Line::new(diff, class, "", row));
    Table::new(columns("function", Some("layer")), lines).json()
}

/// Stages with their whole, or functions with theirs.
fn of_rows<'a>(
    diff: &'a TimesDiff<'_>,
    class: &'a ClassDiff,
    what: &'static str,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Table<'a, Line<'a>> {
    let of = if what == "stage" { "kind" } else { "layer" };
    let lines = rows
        .into_iter()
        .map(|row| Line::new(diff, class, what, row));
    Table::new(columns(what, Some(of)), lines)
}

/// Some rows of a class for a terminal.
pub(super) fn terminal<'a>(
    diff: &'a TimesDiff<'_>,
    class: &'a ClassDiff,
    what: &'static str,
    rows: impl IntoIterator<Item = &'a Row>,
    view: &View,
) -> String {
    let beside = if view.columns >= WITH_QUANTILES {
        112
    } else {
        78
    };
    let [least, most] = NAME_LETTERS;
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    of_rows(diff, class, what, rows).terminal(Room::of(view.columns, name))
}

/// The same as Markdown.
pub(super) fn markdown<'a>(
    diff: &'a TimesDiff<'_>,
    class: &'a ClassDiff,
    what: &'static str,
    rows: impl IntoIterator<Item = &'a Row>,
    out: &mut String,
) {
    of_rows(diff, class, what, rows).markdown(out);
}

/// Rows of several classes as Markdown.
pub(super) fn markdown_of_classes<'a>(
    diff: &'a TimesDiff<'_>,
    rows: impl IntoIterator<Item = (&'a ClassDiff, &'a Row)>,
    out: &mut String,
) {
    let mut columns = columns("what", None);
    let class = Column::text("class", |l: &Line<'a>| subject(l.class)).letters(CLASS_LETTERS);
    columns.insert(0, class.people(0));
    let lines = rows
        .into_iter()
        .map(|(class, row)| Line::new(diff, class, "", row));
    Table::new(columns, lines).markdown(out);
}

/// A class and a function that two clocks saw.
type Seen<'a> = (&'a ClassBoth, &'a Both);

/// What two clocks say of it.
fn of_both<'a>() -> Vec<Column<'a, Seen<'a>>> {
    let figure = |title: &'static str, key: &'static str, of: fn(&Both) -> f64| {
        Column::figure(title, move |(_, f): &Seen<'a>| Value::Number(of(f)))
            .csv(key)
            .digits(3)
    };
    let time = |title: &'static str, key: &'static str, of: fn(&Both) -> f64| {
        Column::figure(title, move |(_, f): &Seen<'a>| Value::Ns(of(f)))
            .csv(key)
            .digits(3)
    };
    vec![
        Column::machine(|(class, _): &Seen<'a>| Value::Text(class.class.to_string())).csv("class"),
        Column::code("function", |(_, f): &Seen<'a>| {
            Value::Name(f.name.clone(), None)
        })
        .csv("function")
        .people(0),
        Column::machine(|(class, _): &Seen<'a>| Value::Text(class.per.into())).csv("per"),
        figure("calls", "calls", |f| f.calls).people(1),
        figure("own insns", "self_insns", |f| f.self_insns).people(2),
        figure("all insns", "inclusive_insns", |f| f.inclusive_insns).people(3),
        figure("calls timed", "timed_calls", |f| f.timed_calls).people(4),
        time("own ns", "self_ns", |f| f.self_ns).people(5),
        time("all ns", "total_ns", |f| f.total_ns).people(6),
        Column::figure("ns/insn", |(_, f): &Seen<'a>| {
            match f.inclusive_insns > 0.0 {
                true => {
                    let each = f.total_ns / f.inclusive_insns;
                    Value::Told(format!("{each:.2}"), Some(each))
                }
                false => Value::Missing,
            }
        })
        .people(7),
    ]
}

/// The functions of a class that two clocks saw: the first ones.
fn both<'a>(class: &'a ClassBoth, top: usize) -> Table<'a, Seen<'a>> {
    let top = if top == 0 { usize::MAX } else { top };
    let lines = class.functions.iter().take(top).map(|f| (class, f));
    Table::new(of_both(), lines)
}

pub(super) fn both_terminal(class: &ClassBoth, view: &View) -> String {
    both(class, view.top).terminal(Room::of(view.columns, NAME_LETTERS[1]))
}

pub(super) fn both_markdown(class: &ClassBoth, top: usize, out: &mut String) {
    both(class, top).markdown(out);
}
