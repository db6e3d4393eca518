//! The columns of every table of a comparison, for both judges.

use netplumb_stats::ratio::Interval;

use super::costs::exact;
use super::line::{Columns, Line, LineSubject, WIDE, text_value};
use crate::diff::functions::Joint;
use crate::diff::sentence::{quantile, ratio_percent};
use crate::diff::{Diff, Judge, Judged, QUANTILES};
use crate::interval;
use crate::number::rate;
use crate::table::{Column, Value};

/// From here on there is room for layers and the smallest change of a sample...
const WIDER: usize = 100;
/// ...and for percentiles.
pub(super) const WITH_QUANTILES: usize = 132;
/// The least and the most letters of a name in a sample.
pub(super) const SAMPLE_NAME_LETTERS: [usize; 2] = [16, 40];
/// A layer is a word.
const WORD_LETTERS: usize = 16;

/// The subject of a table, which decides on its columns.
#[derive(Clone)]
pub(super) struct TableSubject<'a> {
    judge: Judge,
    rates: bool,
    /// Whether figures are numbers of samples.
    sampled: bool,
    /// Whether it is of the part below a function.
    below: bool,
    /// The heading of names.
    title: &'static str,
    /// The column beside names: `layer`, `kind` of a stage, or none.
    of: Option<&'static str>,
    unit: &'a str,
    /// The name of the compared quantity, where the unit does not identify it.
    quantity: Option<String>,
}

impl<'a> TableSubject<'a> {
    pub(super) fn new(
        diff: &'a Diff<'_>,
        title: &'static str,
        of: Option<&'static str>,
    ) -> TableSubject<'a> {
        let first = diff.classes.first();
        TableSubject {
            judge: diff.judge,
            rates: first.is_some_and(|c| c.rates.is_some()),
            sampled: first.is_some_and(|c| c.sampled),
            below: first.is_some_and(|c| c.root.is_some()),
            title,
            of,
            unit: first.map_or("ns", |c| &c.unit),
            quantity: diff.quantity(),
        }
    }

    /// A key of a figure in the unit.
    fn key(&self, name: &str) -> String {
        let clean = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let unit: String = self.unit.chars().map(clean).collect();
        format!("{name}_{unit}")
    }

    pub(super) fn columns(&self) -> Columns<'a> {
        let mut columns = match self.rates {
            true => Vec::new(),
            false => arms(),
        };
        columns.extend(self.names());
        if let Some(name) = self.quantity.clone() {
            let name = move |_: &Line<'a>| Value::Text(name.clone());
            columns.push(Column::machine(name).csv("quantity"));
        }
        match self.judge {
            Judge::Exact => columns.extend(exact(self.below)),
            Judge::Statistical => columns.extend(self.sample()),
        }
        columns
    }

    /// The columns that identify a row.
    pub(super) fn names(&self) -> Columns<'a> {
        let exact = self.judge == Judge::Exact;
        let mut columns: Columns<'a> = Vec::new();
        if exact {
            columns.extend([
                Column::machine(|l: &Line<'a>| match l.of {
                    LineSubject::Context(_, context, _) => Value::Text(context.to_string()),
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
        let is_code = !matches!(self.title, "stage" | "layer");
        let name = Column::code(self.title, move |l: &Line<'a>| match (&l.of, l.kind) {
            (_, "all functions") if l.class.is_share() && l.class.root.is_some() => {
                Value::Sum("of all samples")
            }
            (_, "all functions") => Value::Sum("all"),
            (LineSubject::Rest(what, _), _) => Value::Text(what.clone()),
            (LineSubject::Row(row) | LineSubject::Context(row, ..), "function" | "arm")
                if is_code =>
            {
                Value::Name(row.name.clone(), None)
            }
            (LineSubject::Row(row) | LineSubject::Context(row, ..), _) => {
                Value::Text(row.name.clone())
            }
        })
        .hint("what is compared");
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
                    let counts = l.row().and_then(|row| row.counts.as_ref());
                    let same = counts.and_then(|counts| counts.same_code);
                    same.map_or(Value::Absent, Value::Flag)
                })
                .json("same_code"),
                Column::machine(|l: &Line<'a>| {
                    Value::words(l.joint().and_then(|j| j.module.as_deref()))
                })
                .key("module"),
            ]);
        }
        // The name of these includes it already.
        let of = |l: &Line<'a>| match l.row().map_or("", |row| &row.of) {
            "unaccounted" | "total" => String::new(),
            of => of.into(),
        };
        let of = self.of.map(|title| Column::text(title, of).letters(WORD_LETTERS));
        let hint = match self.of {
            Some("focus") => "the subsystem that it is of",
            Some("kind") => "work: a CPU processes the packet; wait: the packet is queued",
            _ => "the part of the network stack that it is in",
        };
        columns.extend(of.map(|of| of.hint(hint).page("of")).map(|of| match exact {
            // Inclusive costs take its place.
            true if self.below => of.people(8).from(WITH_QUANTILES).markdown_rank(1),
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

    /// Figures that vary, their ratio and the verdict.
    pub(super) fn sample(&self) -> Columns<'a> {
        let mut columns: Columns<'a> = Vec::new();
        if self.rates {
            let pps = |l: &Line<'a>, at: usize| l.class.rates.map_or(0.0, |pps| pps[at]);
            for (at, key, title) in
                [(0, "before_pps", "packets/s before"), (1, "after_pps", "after")]
            {
                columns.extend([
                    Column::machine(move |l: &Line<'a>| Value::Number(pps(l, at))).key(key),
                    Column::figure(title, move |l: &Line<'a>| text_value(rate(pps(l, at))))
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
            ratio.as_ref().map_or(Value::Missing, |r| Value::Number(of(r)))
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
                    .unit(self.unit.to_string())
                    .key(self.key("before"))
                    .people(2)
                    .page("before"),
                3,
            ),
            digits(
                Column::figure("after", |l: &Line<'a>| l.figure(Judged::after))
                    .hint(hint)
                    .unit(self.unit.to_string())
                    .key(self.key("after"))
                    .people(3)
                    .page("after"),
                3,
            ),
        ]);
        columns.extend(self.intervals());
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
                    Value::Formatted(interval::interval_text(r, ratio_percent), Some(r.low))
                })
            })
            .hint("of that change")
            .people(5)
            .page("interval"),
            Column::machine(|_: &Line<'a>| Value::Absent).rank(5).page_own("drawn"),
            digits(Column::machine(move |l: &Line<'a>| ratio(l, |i| i.value)).key("ratio"), 5),
            digits(Column::machine(move |l: &Line<'a>| ratio(l, |i| i.low)).key("ratio_low"), 5),
            digits(Column::machine(move |l: &Line<'a>| ratio(l, |i| i.high)).key("ratio_high"), 5),
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
                if !self.sampled {
                    columns.extend(self.quantiles());
                }
            }
        }
        columns
    }

    /// For samples: the interval of each side's figure.
    fn intervals(&self) -> Columns<'a> {
        if !self.sampled {
            return Vec::new();
        }
        let end = |l: &Line<'a>, after: bool, end: fn((f64, f64)) -> f64| {
            let side = l.sample().and_then(|s| s.sides[usize::from(after)]);
            side.map_or(Value::Missing, |ends| Value::Number(end(ends)))
        };
        let mut columns = Columns::new();
        for (after, title, name) in [(false, "95% before", "before"), (true, "95% after", "after")]
        {
            columns.extend([
                Column::figure(title, move |l: &Line<'a>| l.interval(after))
                    .hint("the interval of that side's figure")
                    .unit(self.unit.to_string())
                    .people(if after { 3 } else { 2 })
                    .from(WITH_QUANTILES)
                    .page(format!("interval_{name}")),
                Column::machine(move |l: &Line<'a>| end(l, after, |(low, _)| low))
                    .key(self.key(&format!("{name}_low")))
                    .digits(5),
                Column::machine(move |l: &Line<'a>| end(l, after, |(_, high)| high))
                    .key(self.key(&format!("{name}_high")))
                    .digits(5),
            ]);
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
                    Value::Formatted(quantile(sides(l)), sides(l)[1])
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
        let words = l.judged().map_or("", |judged| l.class.verdict(judged));
        words.into()
    })
    .hint("whether it differs for certain, and which way")
}
