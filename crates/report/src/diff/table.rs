//! The table of a comparison: wholes, layers, stages and functions before and after, each column
//! declared once for both judges and every output.

use netplumb_model::class::Context;
use netplumb_stats::judge;
use netplumb_stats::ratio::Interval;

use super::functions::Joint;
use super::sentence::{figure, percent, quantile, ratio_percent, signed, subject};
use super::{Change, ClassDiff, Delta, Diff, Judge, Judged, QUANTILES, Row, mixed};
use crate::interval;
use crate::number::rate;
use crate::table::{Column, Room, Table, Value};
use crate::view::View;

/// From here on there is room for every column of exact costs...
const WIDE: usize = 80;
/// ...for layers and the smallest change of a sample...
const WIDER: usize = 100;
/// ...and for percentiles.
const WITH_QUANTILES: usize = 132;
/// The least and the most letters of a name of exact costs.
const NAME_LETTERS: [usize; 2] = [16, 60];
/// And of one in a sample.
const SAMPLE_NAME_LETTERS: [usize; 2] = [16, 40];
/// A layer is a word.
const WORD_LETTERS: usize = 16;
/// Letters of a class.
const CLASS_LETTERS: usize = 200;

/// What a line is of.
enum Of<'a> {
    /// A row.
    Row(&'a Row),
    /// A function in one context: calls, own and inclusive.
    Context(&'a Row, Context, [Change; 3]),
    /// Several functions together.
    Rest(String, Delta),
}

/// A line.
pub(super) struct Line<'a> {
    diff: &'a Diff<'a>,
    class: &'a ClassDiff,
    /// `total`, `all functions`, `stage`, `function` ...
    kind: &'static str,
    of: Of<'a>,
}

impl<'a> Line<'a> {
    fn row(&self) -> Option<&'a Row> {
        match self.of {
            Of::Row(row) | Of::Context(row, ..) => Some(row),
            Of::Rest(..) => None,
        }
    }

    fn judged(&self) -> Option<&'a Judged> {
        Some(&self.row()?.judged)
    }

    fn sample(&self) -> Option<&'a judge::Judged> {
        self.judged()?.statistically()
    }

    /// Which function of either side it is.
    fn joint(&self) -> Option<&'a Joint> {
        let counts = self.row()?.counts.as_ref()?;
        self.diff.functions.joints.get(counts.function as usize)
    }

    /// Calls, own or inclusive.
    fn change(&self, which: usize) -> Option<Change> {
        if let Of::Context(_, _, changes) = self.of {
            return Some(changes[which]);
        }
        let counts = self.row()?.counts.as_ref()?;
        Some([counts.calls, counts.own, counts.inclusive][which])
    }

    /// The sums that the line is about.
    fn sums(&self) -> Option<Change> {
        match self.of {
            Of::Context(_, _, changes) => Some(changes[1]),
            _ => self.judged()?.exactly(),
        }
    }

    fn arm(&self, after: bool) -> Value {
        let (sides, arms) = (self.diff.sides, self.class.arms);
        Value::Text(match after {
            false => sides.before.arms[arms.before].name.clone(),
            true => sides.after.arms[arms.after].name.clone(),
        })
    }

    /// A figure, in the class's unit.
    fn figure(&self, of: fn(&Judged) -> f64) -> Value {
        let figure = self.judged().map_or(f64::NAN, of);
        match (self.class.unit.as_str(), self.class.rates) {
            ("ns", None) => Value::Ns(figure),
            // A part of a nanosecond may be much of a rate.
            _ => Value::Number(figure),
        }
    }

    /// After less before, with its sign.
    fn difference(&self) -> Value {
        let delta = self.row().map_or(f64::NAN, Row::delta);
        let told = match self.class.unit.as_str() {
            "ns" => Value::Ns(delta),
            _ => Value::Number(delta),
        };
        let sign = if delta > 0.0 { "+" } else { "" };
        Value::Told(format!("{sign}{}", told.told()), Some(delta))
    }

    /// One side as it is shown: exact figures to the last digit.
    fn side(&self, after: bool) -> Value {
        if let Of::Rest(..) = self.of {
            return told(String::new());
        }
        match (self.sums(), after) {
            (Some(sums), false) => told(figure(sums.before)),
            (Some(sums), true) => told(figure(sums.after)),
            (None, false) => self.figure(Judged::before),
            (None, true) => self.figure(Judged::after),
        }
    }

    /// By how much, in percent; of a function that the other kernel's path does not have, that it
    /// is new or gone.
    fn percent(&self) -> Value {
        if let Some(sample) = self.sample() {
            let ratio = sample.ratio.map(|ratio| ratio.value);
            return ratio.map_or(Value::Missing, |r| Value::Told(ratio_percent(r), Some(r)));
        }
        let other_kernel = (self.class.counted.as_ref()).is_some_and(|c| !c.same_kernel);
        told(match (self.joint().map(Joint::status), self.sums()) {
            (Some(status @ ("gone" | "new")), _) if other_kernel => status.into(),
            (_, Some(sums)) => percent(&sums),
            (_, None) => String::new(),
        })
    }
}

fn told(text: String) -> Value {
    match text.is_empty() {
        true => Value::Text(text),
        false => Value::Told(text, None),
    }
}

/// A change in JSON: sums as they were counted, and the difference.
fn object(change: Option<Change>) -> Value {
    let Some(change) = change else {
        return Value::Missing;
    };
    Value::object([
        ("before", Value::Count(change.before.sum)),
        ("after", Value::Count(change.after.sum)),
        ("change_per_packet", Value::Number(change.delta().value())),
        (
            "change_percent",
            change.percent().map_or(Value::Missing, Value::Number),
        ),
    ])
}

/// "2 → 3", or one figure for both.
fn both(change: &Change) -> String {
    let (was, is) = (figure(change.before), figure(change.after));
    match was == is {
        true => is,
        false => format!("{was} → {is}"),
    }
}

/// A function by its contexts.
fn contexts(row: &Row) -> Value {
    let one = |(context, [calls, own, inclusive]): &(Context, [Change; 3])| {
        Value::object([
            ("context", Value::Text(context.to_string())),
            ("calls", object(Some(*calls))),
            ("self_insns", object(Some(*own))),
            ("inclusive_insns", object(Some(*inclusive))),
        ])
    };
    let counts = row.counts.iter();
    Value::List(counts.flat_map(|c| c.contexts.iter().map(one)).collect())
}

type Columns<'a> = Vec<Column<'a, Line<'a>>>;

/// What a table is of, which decides on its columns.
#[derive(Clone)]
struct Shown<'a> {
    judge: Judge,
    rates: bool,
    /// What names are of.
    title: &'static str,
    /// What stands beside them: `layer`, `kind` of a stage, or nothing.
    of: Option<&'static str>,
    unit: &'a str,
}

impl<'a> Shown<'a> {
    fn new(diff: &'a Diff<'_>, title: &'static str, of: Option<&'static str>) -> Shown<'a> {
        let first = diff.classes.first();
        Shown {
            judge: diff.judge,
            rates: first.is_some_and(|c| c.rates.is_some()),
            title,
            of,
            unit: first.map_or("ns", |c| &c.unit),
        }
    }

    /// A key of a figure in the unit.
    fn key(&self, name: &str) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let unit: String = self.unit.chars().map(clean).collect();
        format!("{name}_{unit}")
    }

    fn columns(&self) -> Columns<'a> {
        let mut columns = match self.rates {
            true => Vec::new(),
            false => arms(),
        };
        columns.extend(self.names());
        match self.judge {
            Judge::Exact => columns.extend(exact()),
            Judge::Statistical => columns.extend(self.sample()),
        }
        columns
    }

    /// What distinguishes a row.
    fn names(&self) -> Columns<'a> {
        let exact = self.judge == Judge::Exact;
        let mut columns: Columns<'a> = Vec::new();
        if exact {
            columns.extend([
                Column::machine(|l: &Line<'a>| match l.of {
                    Of::Context(_, context, _) => Value::Text(context.to_string()),
                    _ => Value::Missing,
                })
                .csv("context"),
                Column::machine(|l: &Line<'a>| {
                    let name = l.joint().map(|j| j.was.as_ref().unwrap_or(&j.name));
                    Value::words(name.map(String::as_str))
                })
                .csv("function_before"),
            ]);
        } else if !self.rates {
            columns.push(Column::machine(|l: &Line<'a>| Value::Text(l.kind.into())).csv("kind"));
        }
        let is_code = !matches!(self.title, "stage");
        let name = Column::code(self.title, move |l: &Line<'a>| match (&l.of, l.kind) {
            (_, "all functions") => Value::Sum("all"),
            (Of::Rest(what, _), _) => Value::Text(what.clone()),
            (Of::Row(row) | Of::Context(row, ..), "function" | "arm") if is_code => {
                Value::Name(row.name.clone(), None)
            }
            (Of::Row(row) | Of::Context(row, ..), _) => Value::Text(row.name.clone()),
        });
        let name = if is_code { name } else { name.words() };
        let csv = if exact { "function" } else { "name" };
        let name = name.csv(csv).json("name").people(0).page("name");
        columns.push(match exact {
            true => name,
            false => name.letters(SAMPLE_NAME_LETTERS[1]),
        });
        if exact {
            columns.extend([
                Column::machine(|l: &Line<'a>| {
                    Value::words(l.joint().and_then(|j| j.was.as_deref()))
                })
                .json("name_before"),
                Column::machine(|l: &Line<'a>| {
                    Value::words(l.joint().and_then(|j| j.why.as_deref()))
                })
                .json("same_because"),
                Column::machine(|l: &Line<'a>| {
                    Value::words(l.joint().and_then(|j| j.module.as_deref()))
                })
                .key("module"),
            ]);
        }
        // The name of these says it already.
        let of = |l: &Line<'a>| match l.row().map_or("", |row| &row.of) {
            "unaccounted" | "total" => String::new(),
            of => of.into(),
        };
        let of = self
            .of
            .map(|title| Column::text(title, of).letters(WORD_LETTERS));
        columns.extend(of.map(|of| of.page("of")).map(|of| match exact {
            true => of.people(8).from(WIDE).markdown_rank(1),
            false => of.people(1).from(WIDER),
        }));
        if !self.rates {
            let key = if exact { "layer" } else { "of" };
            let of = |l: &Line<'a>| Value::words(l.row().map(|row| row.of.as_str()));
            columns.push(Column::machine(of).key(key));
        }
        if exact {
            let status = |l: &Line<'a>| Value::words(l.joint().map(Joint::status));
            columns.push(Column::machine(status).key("status"));
        } else if !self.rates {
            columns
                .push(Column::machine(|l: &Line<'a>| Value::Text(l.class.per.into())).csv("per"));
        }
        columns
    }

    /// Figures that vary, their ratio and what was made of it.
    fn sample(&self) -> Columns<'a> {
        let mut columns: Columns<'a> = Vec::new();
        if self.rates {
            let pps = |l: &Line<'a>, at: usize| l.class.rates.map_or(0.0, |pps| pps[at]);
            for (at, key, title) in [
                (0, "before_pps", "packets/s before"),
                (1, "after_pps", "after"),
            ] {
                columns.extend([
                    Column::machine(move |l: &Line<'a>| Value::Number(pps(l, at))).key(key),
                    Column::figure(title, move |l: &Line<'a>| told(rate(pps(l, at))))
                        .hint("packets per second that were handled")
                        .people(1),
                ]);
            }
        }
        let digits = |column: Column<'a, Line<'a>>, digits: usize| match self.rates {
            true => column,
            false => column.digits(digits),
        };
        let ratio = |l: &Line<'a>, of: fn(&Interval) -> f64| {
            let ratio = l.sample().and_then(|sample| sample.ratio);
            ratio
                .as_ref()
                .map_or(Value::Missing, |r| Value::Number(of(r)))
        };
        let hint = match self.rates {
            true => "wall time of a packet: 1 / rate",
            false => "the mean of blocks",
        };
        let before = if self.rates { "ns before" } else { "before" };
        columns.extend([
            digits(
                Column::figure(before, |l: &Line<'a>| l.figure(Judged::before))
                    .hint(hint)
                    .key(self.key("before"))
                    .people(2)
                    .page("before"),
                3,
            ),
            digits(
                Column::figure("after", |l: &Line<'a>| l.figure(Judged::after))
                    .hint(hint)
                    .key(self.key("after"))
                    .people(3)
                    .page("after"),
                3,
            ),
        ]);
        if !self.rates {
            let delta = |l: &Line<'a>| l.row().map_or(Value::Missing, |r| Value::Number(r.delta()));
            columns.push(Column::machine(delta).csv(self.key("change")).digits(3));
            columns.push(
                Column::machine(Line::difference)
                    .title("difference")
                    .hint("after less before")
                    .rank(4)
                    .page("difference"),
            );
        }
        columns.extend([
            Column::figure("change", Line::percent)
                .hint("by the ratio of the means")
                .people(4)
                .page("change"),
            Column::figure("95% interval", |l: &Line<'a>| {
                let ratio = l.sample().and_then(|sample| sample.ratio);
                ratio.map_or(Value::Missing, |r| {
                    Value::Told(interval::told(r, ratio_percent), Some(r.low))
                })
            })
            .hint("of that change")
            .people(5)
            .page("interval"),
            Column::machine(|_: &Line<'a>| Value::Absent)
                .rank(5)
                .page_own("drawn"),
            digits(
                Column::machine(move |l: &Line<'a>| ratio(l, |i| i.value)).key("ratio"),
                5,
            ),
            digits(
                Column::machine(move |l: &Line<'a>| ratio(l, |i| i.low)).key("ratio_low"),
                5,
            ),
            digits(
                Column::machine(move |l: &Line<'a>| ratio(l, |i| i.high)).key("ratio_high"),
                5,
            ),
            Column::machine(|l: &Line<'a>| {
                l.sample().map_or(Value::Missing, |s| Value::Number(s.p))
            })
            .json("p"),
            digits(
                Column::figure("could see", |l: &Line<'a>| {
                    let smallest = l.sample().and_then(|sample| sample.smallest);
                    smallest.map_or(Value::Missing, Value::Share)
                })
                .hint("the smallest change that would be found in four of five such runs")
                .key("smallest_detectable")
                .people(6)
                .from(if self.rates { 0 } else { WIDER })
                .page("smallest"),
                5,
            ),
        ]);
        let blind =
            Column::machine(|l: &Line<'a>| Value::Flag(l.sample().is_some_and(|s| s.is_blind())));
        let interleaved = Column::machine(|l: &Line<'a>| Value::Flag(!l.class.apart));
        columns.push(verdict().people(8).page("verdict"));
        match self.rates {
            true => columns.extend([
                blind.key("noise_hides_any_change"),
                interleaved.key("interleaved"),
                Column::machine(|l: &Line<'a>| Value::words(l.judged().map(Judged::key)))
                    .key("verdict"),
            ]),
            false => {
                columns.extend([
                    blind.json("noise_hides_any_change"),
                    Column::machine(|l: &Line<'a>| Value::words(l.judged().map(Judged::key)))
                        .key("verdict"),
                    Column::machine(|l: &Line<'a>| {
                        Value::Text(if l.class.apart { "no" } else { "yes" }.into())
                    })
                    .csv("interleaved"),
                ]);
                columns.extend(self.quantiles());
            }
        }
        columns
    }

    fn quantiles(&self) -> Columns<'a> {
        let mut columns: Columns<'a> = Vec::new();
        for (n, (name, _)) in QUANTILES.iter().enumerate() {
            let sides = move |l: &Line<'a>| l.row().map_or([None; 2], |row| row.quantiles[n]);
            let side =
                move |l: &Line<'a>, at: usize| sides(l)[at].map_or(Value::Missing, Value::Ns);
            columns.extend([
                Column::figure(*name, move |l: &Line<'a>| {
                    Value::Told(quantile(sides(l)), sides(l)[1])
                })
                .hint("of a packet, or of a call with all that it calls, before and after")
                .people(7)
                .from(WITH_QUANTILES)
                .page(*name),
                Column::machine(move |l: &Line<'a>| side(l, 0))
                    .csv(format!("{name}_before_ns"))
                    .digits(1),
                Column::machine(move |l: &Line<'a>| side(l, 1))
                    .csv(format!("{name}_after_ns"))
                    .digits(1),
            ]);
        }
        columns.push(
            Column::machine(|l: &Line<'a>| {
                let figure = |side: Option<f64>| side.map_or(Value::Missing, Value::Number);
                let quantiles = l.row().map(|row| row.quantiles).unwrap_or_default();
                let all = QUANTILES.iter().zip(quantiles);
                Value::object(
                    all.map(|((name, _), sides)| (*name, Value::List(sides.map(figure).into()))),
                )
            })
            .json("percentiles_ns"),
        );
        columns
    }
}

/// The arms and classes that are compared.
fn arms<'a>() -> Columns<'a> {
    vec![
        Column::machine(|l: &Line<'a>| l.arm(false)).csv("arm_before"),
        Column::machine(|l: &Line<'a>| l.arm(true)).csv("arm_after"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.before.to_string())).csv("class_before"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.after.to_string())).csv("class"),
    ]
}

/// The verdict in words.
fn verdict<'a>() -> Column<'a, Line<'a>> {
    Column::text("verdict", |l: &Line<'a>| {
        l.judged().map_or_else(String::new, |j| j.as_str().into())
    })
}

/// Both sides of exact costs, and the change.
fn costs<'a>() -> Columns<'a> {
    vec![
        Column::figure("before", |l: &Line<'a>| l.side(false)).people(2),
        Column::figure("after", |l: &Line<'a>| l.side(true)).people(3),
        Column::figure("change", |l: &Line<'a>| match (&l.of, l.sums()) {
            (Of::Rest(_, delta), _) => told(signed(delta)),
            (_, Some(sums)) => told(signed(&sums.delta())),
            (_, None) => told(String::new()),
        })
        .people(4),
        Column::figure("", Line::percent).people(5),
    ]
}

/// The costs and calls of a function that were counted.
fn exact<'a>() -> Columns<'a> {
    let sum = |change: Option<Change>, after: bool, packets: bool| {
        change.map_or(Value::Missing, |change| {
            let side = if after { change.after } else { change.before };
            Value::Count(if packets { side.packets } else { side.sum })
        })
    };
    let mut columns = costs();
    columns.extend([
        Column::machine(move |l: &Line<'a>| sum(l.sums(), false, true)).csv("packets_before"),
        Column::machine(move |l: &Line<'a>| sum(l.sums(), true, true)).csv("packets"),
    ]);
    for (which, key) in [(0, "calls"), (1, "self_insns"), (2, "inclusive_insns")] {
        columns.extend([
            Column::machine(move |l: &Line<'a>| object(l.change(which))).json(key),
            Column::machine(move |l: &Line<'a>| sum(l.change(which), false, false))
                .csv(format!("{key}_before")),
            Column::machine(move |l: &Line<'a>| sum(l.change(which), true, false)).csv(key),
        ]);
    }
    columns.extend([
        Column::figure("inclusive", |l: &Line<'a>| {
            told(l.change(2).map_or_else(String::new, |c| signed(&c.delta())))
        })
        .hint("the change with all that it calls")
        .people(6)
        .from(WIDE),
        Column::figure("calls", |l: &Line<'a>| {
            told(l.change(0).map_or_else(String::new, |c| both(&c)))
        })
        .hint("per packet, before and after")
        .people(7)
        .from(WIDE),
        Column::machine(|l: &Line<'a>| {
            l.sums()
                .map_or(Value::Missing, |c| Value::Number(c.delta().value()))
        })
        .csv("self_insns_change_per_packet")
        .digits(4),
        Column::machine(|l: &Line<'a>| Value::words(l.judged().map(Judged::key))).key("verdict"),
        Column::machine(|l: &Line<'a>| match l.judged() {
            Some(Judged::Exactly(_, verdict)) => Value::Text(verdict.key().into()),
            _ => Value::Missing,
        })
        .json("verdict_detail"),
        Column::machine(|l: &Line<'a>| l.row().map_or(Value::Missing, contexts)).json("contexts"),
    ]);
    columns
}

/// Lines of some rows of a class.
fn lines<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    kind: &'static str,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Vec<Line<'a>> {
    let line = |row| Line {
        diff,
        class,
        kind,
        of: Of::Row(row),
    };
    rows.into_iter().map(line).collect()
}

/// The lines of all classes, or the functions of one layer, as CSV.
pub(super) fn csv(diff: &Diff<'_>, layer: Option<&str>) -> String {
    if !diff.one_clock {
        return mixed::csv(&diff.both);
    }
    let lines = diff.classes.iter().flat_map(|class| {
        let functions = class.functions.iter();
        let functions = functions.filter(|row| layer.is_none_or(|l| row.of == l));
        if diff.judge == Judge::Exact {
            // The verdict is the function's in all its contexts.
            let of_contexts = functions.flat_map(|row| {
                let contexts = row.counts.iter().flat_map(|c| &c.contexts);
                contexts.map(move |(context, changes)| Line {
                    diff,
                    class,
                    kind: "function",
                    of: Of::Context(row, *context, *changes),
                })
            });
            return of_contexts.collect::<Vec<_>>();
        }
        let mut all = Vec::new();
        if layer.is_none() {
            all.extend(lines(diff, class, "total", &class.way));
            all.extend(lines(diff, class, "stage", &class.stages));
            all.extend(lines(diff, class, "all functions", &class.total));
        }
        all.extend(lines(diff, class, "function", functions));
        all
    });
    let shown = Shown::new(diff, "function", None);
    Table::new(shown.columns(), lines).csv()
}

/// Some rows of a class as JSON.
pub(super) fn json<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Vec<Value> {
    let shown = Shown::new(diff, "function", None);
    Table::new(shown.columns(), lines(diff, class, "function", rows)).json()
}

/// The wholes of several classes as one table: arms of a bench.
pub(super) fn wholes<'a>(diff: &'a Diff<'_>) -> Table<'a, Line<'a>> {
    let classes = diff.classes.iter();
    let lines = classes.flat_map(|class| lines(diff, class, "arm", class.whole()));
    Table::new(Shown::new(diff, "arm", None).columns(), lines)
}

/// Functions of a class, those that differ first, and their sum; and how many are left out. Of
/// exact costs only those that differ, and the sums of the others.
pub(super) fn functions<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    layer: Option<&str>,
    top: usize,
) -> (Table<'a, Line<'a>>, usize) {
    let of_layer = |r: &&Row| layer.is_none_or(|l| r.of == l);
    let functions = class.functions.iter().filter(of_layer);
    let (mut rows, others): (Vec<&Row>, Vec<&Row>) =
        functions.partition(|row| row.judged.differs());
    if class.counted.is_none() {
        rows.extend(others);
    }
    let top = if top == 0 { rows.len() } else { top };
    let rest = rows.split_off(top.min(rows.len()));
    let mut all = lines(diff, class, "function", rows);
    let mut add = |what: String, delta| {
        all.push(Line {
            diff,
            class,
            kind: "rest",
            of: Of::Rest(what, delta),
        });
    };
    let mut left = rest.len();
    if let Some(counted) = &class.counted {
        if !rest.is_empty() {
            let deltas = rest
                .iter()
                .filter_map(|r| Some(r.judged.exactly()?.delta()));
            let sum = deltas.fold(counted.total.delta().none(), |sum, delta| sum.plus(&delta));
            add(format!("{} more", rest.len()), sum);
        }
        let unsure = class.unsure().filter(|(n, _)| *n > 0 && layer.is_none());
        if let Some((count, unsure)) = unsure {
            add(format!("{count} too small to tell"), unsure);
        }
        left = 0;
    }
    let total = class.total.as_ref().filter(|_| layer.is_none());
    all.extend(lines(diff, class, "all functions", total));
    let shown = Shown::new(diff, "function", Some("layer"));
    (Table::new(shown.columns(), all), left)
}

/// The room for names on a terminal.
pub(super) fn room(diff: &Diff<'_>, view: &View) -> Room {
    let (beside, [least, most]) = match diff.judge {
        Judge::Exact if view.columns >= WIDE => (75, NAME_LETTERS),
        Judge::Exact => (42, NAME_LETTERS),
        Judge::Statistical if view.columns >= WITH_QUANTILES => (112, SAMPLE_NAME_LETTERS),
        Judge::Statistical => (78, SAMPLE_NAME_LETTERS),
    };
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    Room::of(view.columns, name)
}

/// The stages of a class, with the whole path.
pub(super) fn stages<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> Table<'a, Line<'a>> {
    let rows = class.stages.iter().chain(&class.way);
    let shown = Shown::new(diff, "stage", Some("kind"));
    Table::new(shown.columns(), lines(diff, class, "stage", rows))
}

/// Any rows of a class for the page, under the heading of `title` and `of`.
pub(super) fn rows<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    (title, of): (&'static str, &'static str),
    rows: &[&'a Row],
) -> Table<'a, Line<'a>> {
    let shown = Shown::new(diff, title, Some(of));
    Table::new(
        shown.columns(),
        lines(diff, class, title, rows.iter().copied()),
    )
}

/// The layers of a class that changed, and the whole.
pub(super) fn layers<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> Table<'a, Line<'a>> {
    let layers = class.layers.iter().filter(|row| row.judged.differs());
    let mut all = lines(diff, class, "layer", layers);
    all.extend(lines(diff, class, "all functions", &class.total));
    let mut columns = Shown::new(diff, "layer", None).names();
    columns.extend(costs());
    Table::new(columns, all)
}

/// Some rows of several classes as Markdown.
pub(super) fn markdown_of_classes<'a>(
    diff: &'a Diff<'_>,
    rows: impl IntoIterator<Item = (&'a ClassDiff, &'a Row)>,
    out: &mut String,
) {
    let class = Column::text("class", |l: &Line<'a>| subject(l.class)).letters(CLASS_LETTERS);
    let (title, exact) = match diff.judge {
        Judge::Exact => ("function", true),
        Judge::Statistical => ("what", false),
    };
    let shown = Shown::new(diff, title, None);
    let mut columns = vec![class.people(0)];
    columns.extend(shown.names());
    columns.extend(if exact { costs() } else { shown.sample() });
    let rows = rows.into_iter();
    let lines = rows.flat_map(|(class, row)| lines(diff, class, "function", [row]));
    Table::new(columns, lines).markdown(out);
}
