//! The tables of what got cheaper or dearer: of functions and of layers, each column declared
//! once.

use netplumb_model::class::Context;

use super::functions::Joint;
use super::sentence::{figure, percent, signed, subject};
use super::{Change, ClassDiff, Delta, Diff, FunctionChange};
use crate::table::{Column, Room, Table, Value};
use crate::terminal::View;

/// From here on there is room for every column of a terminal.
const WIDE: usize = 80;
/// The least and the most letters of a name.
const NAME_LETTERS: [usize; 2] = [16, 60];
/// A layer is a word.
const WORD_LETTERS: usize = 16;
/// Letters of a class.
const CLASS_LETTERS: usize = 200;

/// What a line is of.
enum Of<'a> {
    /// A function: calls, self and inclusive; in one context, if one is named.
    Function(&'a FunctionChange, Option<Context>, [Change; 3]),
    /// A layer.
    Layer(&'a str, Change),
    /// Several functions together.
    Rest(String, Delta),
    /// The whole class.
    All,
}

/// A line.
pub(super) struct Line<'a> {
    diff: &'a Diff<'a>,
    class: &'a ClassDiff,
    of: Of<'a>,
}

impl<'a> Line<'a> {
    fn function(diff: &'a Diff<'a>, class: &'a ClassDiff, of: &'a FunctionChange) -> Line<'a> {
        let all = [of.calls, of.self_insns, of.inclusive_insns];
        Line {
            diff,
            class,
            of: Of::Function(of, None, all),
        }
    }

    fn joint(&self) -> Option<(&'a FunctionChange, &'a Joint)> {
        match self.of {
            Of::Function(f, ..) => Some((f, &self.diff.functions.joints[f.function as usize])),
            _ => None,
        }
    }

    /// Of its function.
    fn about(&self, of: impl Fn(&'a FunctionChange, &'a Joint) -> Value) -> Value {
        self.joint()
            .map_or(Value::Text(String::new()), |(f, joint)| of(f, joint))
    }

    /// Calls, self or inclusive.
    fn change(&self, which: usize) -> Option<Change> {
        match &self.of {
            Of::Function(_, _, all) => Some(all[which]),
            _ => None,
        }
    }

    /// What the table is about.
    fn own(&self) -> Option<Change> {
        match &self.of {
            Of::Function(_, _, all) => Some(all[1]),
            Of::Layer(_, change) => Some(*change),
            Of::Rest(..) => None,
            Of::All => Some(self.class.total),
        }
    }

    /// By how much, in percent; of what the other side does not have, that it is new or gone.
    fn percent(&self) -> String {
        match (&self.of, self.own()) {
            (Of::Function(f, ..), _) => self.class.percent(self.diff, f),
            (_, Some(change)) => percent(&change),
            (_, None) => String::new(),
        }
    }

    /// A sum before or after, as it was counted.
    fn sum(&self, which: usize, after: bool) -> Value {
        self.change(which).map_or(Value::Missing, |change| {
            let side = if after { change.after } else { change.before };
            Value::Count(side.sum)
        })
    }
}

/// A change in JSON: sums as they were counted, and what that comes to.
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

fn told(text: String) -> Value {
    Value::Told(text, None)
}

/// "2 → 3", or one figure for both.
fn both(change: &Change) -> String {
    let (was, is) = (figure(change.before), figure(change.after));
    match was == is {
        true => is,
        false => format!("{was} → {is}"),
    }
}

/// What a line is of.
fn name<'a>(title: &'static str) -> Column<'a, Line<'a>> {
    Column::code(title, |l: &Line<'a>| match &l.of {
        Of::Function(..) => l.about(|_, j| Value::Name(j.name.clone(), None)),
        Of::Layer(layer, _) => Value::Text((*layer).into()),
        Of::Rest(what, _) => Value::Text(what.clone()),
        Of::All => Value::Sum("all"),
    })
    .people(0)
}

/// What it cost before and after.
fn own<'a>() -> Vec<Column<'a, Line<'a>>> {
    vec![
        Column::figure("before", |l: &Line<'a>| {
            told(l.own().map_or_else(String::new, |c| figure(c.before)))
        })
        .people(2),
        Column::figure("after", |l: &Line<'a>| {
            told(l.own().map_or_else(String::new, |c| figure(c.after)))
        })
        .people(3),
        Column::figure("change", |l: &Line<'a>| match (&l.of, l.own()) {
            (Of::Rest(_, delta), _) => told(signed(delta)),
            (_, Some(change)) => told(signed(&change.delta())),
            (_, None) => told(String::new()),
        })
        .people(4),
        Column::figure("", |l: &Line<'a>| told(l.percent())).people(5),
    ]
}

/// What tells which function a line is of.
fn of_function<'a>() -> Vec<Column<'a, Line<'a>>> {
    vec![
        Column::machine(|l: &Line<'a>| {
            let arms = &l.diff.sides.before.arms;
            Value::Text(arms[l.class.arms.before].name.clone())
        })
        .csv("arm_before"),
        Column::machine(|l: &Line<'a>| {
            let arms = &l.diff.sides.after.arms;
            Value::Text(arms[l.class.arms.after].name.clone())
        })
        .csv("arm_after"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.before.to_string())).csv("class_before"),
        Column::machine(|l: &Line<'a>| Value::Text(l.class.after.to_string())).csv("class"),
        Column::machine(|l: &Line<'a>| match l.of {
            Of::Function(_, Some(context), _) => Value::Text(context.to_string()),
            _ => Value::Missing,
        })
        .csv("context"),
        Column::machine(|l: &Line<'a>| {
            l.about(|_, j| Value::Text(j.was.as_ref().unwrap_or(&j.name).clone()))
        })
        .csv("function_before"),
        name("function").csv("function").json("name"),
        Column::machine(|l: &Line<'a>| l.about(|_, j| Value::words(j.was.as_deref())))
            .json("name_before"),
        Column::machine(|l: &Line<'a>| l.about(|_, j| Value::words(j.why.as_deref())))
            .json("same_because"),
        Column::machine(|l: &Line<'a>| l.about(|_, j| Value::words(j.module.as_deref())))
            .key("module"),
        Column::text("layer", |l: &Line<'a>| {
            l.joint().map_or_else(String::new, |(_, j)| j.layer.clone())
        })
        .key("layer")
        .letters(WORD_LETTERS)
        .people(8)
        .from(WIDE)
        .markdown_rank(1),
        Column::machine(|l: &Line<'a>| l.about(|_, j| Value::Text(j.status().into())))
            .key("status"),
    ]
}

/// Its sums, and what came of it.
fn sums<'a>() -> Vec<Column<'a, Line<'a>>> {
    let packets = |change: Option<Change>, after: bool| {
        change.map_or(Value::Missing, |change| {
            let side = if after { change.after } else { change.before };
            Value::Count(side.packets)
        })
    };
    let mut columns: Vec<Column<'a, Line<'a>>> = vec![
        Column::machine(move |l: &Line<'a>| packets(l.own(), false)).csv("packets_before"),
        Column::machine(move |l: &Line<'a>| packets(l.own(), true)).csv("packets"),
        Column::machine(|l: &Line<'a>| l.about(|f, _| Value::Text(f.verdict.as_str().into())))
            .json("verdict"),
        Column::machine(|l: &Line<'a>| l.about(|f, _| Value::Text(f.verdict.key().into())))
            .json("verdict_detail"),
    ];
    for (which, key) in [(0, "calls"), (1, "self_insns"), (2, "inclusive_insns")] {
        columns.extend([
            Column::machine(move |l: &Line<'a>| object(l.change(which))).json(key),
            Column::machine(move |l: &Line<'a>| l.sum(which, false)).csv(format!("{key}_before")),
            Column::machine(move |l: &Line<'a>| l.sum(which, true)).csv(key),
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
        .people(7)
        .from(WIDE),
        Column::machine(|l: &Line<'a>| {
            l.own()
                .map_or(Value::Missing, |c| Value::Number(c.delta().value()))
        })
        .csv("self_insns_change_per_packet")
        .digits(4),
        Column::machine(|l: &Line<'a>| l.about(|f, _| Value::Text(f.verdict.as_str().into())))
            .csv("verdict"),
        Column::machine(|l: &Line<'a>| l.about(|f, _| contexts(f))).json("contexts"),
    ]);
    columns
}

/// A function by its contexts.
fn contexts(function: &FunctionChange) -> Value {
    let one = |(context, [calls, own, inclusive]): &(Context, [Change; 3])| {
        Value::object([
            ("context", Value::Text(context.to_string())),
            ("calls", object(Some(*calls))),
            ("self_insns", object(Some(*own))),
            ("inclusive_insns", object(Some(*inclusive))),
        ])
    };
    Value::List(function.contexts.iter().map(one).collect())
}

fn columns<'a>() -> Vec<Column<'a, Line<'a>>> {
    let mut columns = of_function();
    columns.extend(own());
    columns.extend(sums());
    columns
}

/// The functions of all classes, or those of one layer, as CSV (RFC 4180): a line for each
/// context. The verdict is the function's in all its contexts.
pub(super) fn csv(diff: &Diff<'_>, layer: Option<&str>) -> String {
    let joint = |f: &FunctionChange| &diff.functions.joints[f.function as usize];
    let lines = diff.classes.iter().flat_map(|class| {
        let functions = class.functions.iter();
        let functions = functions.filter(|f| layer.is_none_or(|l| joint(f).layer == l));
        functions.flat_map(move |f| {
            f.contexts.iter().map(move |(context, changes)| Line {
                diff,
                class,
                of: Of::Function(f, Some(*context), *changes),
            })
        })
    });
    Table::new(columns(), lines).csv()
}

/// The functions of a class as JSON.
pub(super) fn json(diff: &Diff<'_>, class: &ClassDiff) -> Vec<Value> {
    let lines = class
        .functions
        .iter()
        .map(|f| Line::function(diff, class, f));
    Table::new(columns(), lines).json()
}

/// The first functions of a class that changed, of one layer or of all; what the others come
/// to, and the whole.
fn changed<'a>(
    diff: &'a Diff<'a>,
    class: &'a ClassDiff,
    layer: Option<&str>,
    top: usize,
) -> Table<'a, Line<'a>> {
    let joint = |f: &FunctionChange| &diff.functions.joints[f.function as usize];
    let mut changed: Vec<&FunctionChange> = (class.changed())
        .filter(|f| layer.is_none_or(|l| joint(f).layer == l))
        .collect();
    let top = if top == 0 { changed.len() } else { top };
    let rest = changed.split_off(top.min(changed.len()));
    let mut lines: Vec<Line<'a>> = (changed.into_iter())
        .map(|f| Line::function(diff, class, f))
        .collect();
    let mut add = |of| lines.push(Line { diff, class, of });
    if !rest.is_empty() {
        let deltas = rest.iter().map(|f| f.self_insns.delta());
        let sum = deltas.fold(class.nothing(), |sum, delta| sum.plus(&delta));
        add(Of::Rest(format!("{} more", rest.len()), sum));
    }
    if layer.is_none() {
        let (count, unsure) = class.unsure();
        if count > 0 {
            add(Of::Rest(format!("{count} too small to tell"), unsure));
        }
        add(Of::All);
    }
    Table::new(columns(), lines)
}

/// Those for a terminal.
pub(super) fn terminal(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> String {
    let beside = if view.columns >= WIDE { 75 } else { 42 };
    let [least, most] = NAME_LETTERS;
    let name = view.columns.saturating_sub(beside).clamp(least, most);
    let table = changed(diff, class, view.layer.as_deref(), view.top);
    table.terminal(Room::of(view.columns, name))
}

/// Those as Markdown.
pub(super) fn markdown(diff: &Diff<'_>, class: &ClassDiff, top: usize, out: &mut String) {
    changed(diff, class, None, top).markdown(out);
}

/// Some functions of several classes as Markdown.
pub(super) fn markdown_of_classes<'a>(
    diff: &'a Diff<'a>,
    functions: impl IntoIterator<Item = (&'a ClassDiff, &'a FunctionChange)>,
    out: &mut String,
) {
    let class = Column::text("class", |l: &Line<'a>| subject(l.class)).letters(CLASS_LETTERS);
    let mut columns = vec![class.people(0), name("function")];
    columns.extend(own());
    let lines = functions
        .into_iter()
        .map(|(class, f)| Line::function(diff, class, f));
    Table::new(columns, lines).markdown(out);
}

/// The layers of a class that changed, and the whole, for a terminal.
pub(super) fn layers(diff: &Diff<'_>, class: &ClassDiff, view: &View) -> String {
    let layers = class.layers.iter();
    let layers = layers.filter(|(_, change)| change.delta().numerator != 0);
    let layers = layers.map(|(layer, change)| Of::Layer(layer, *change));
    let lines = layers.chain([Of::All]).map(|of| Line { diff, class, of });
    let mut columns = vec![name("layer")];
    columns.extend(own());
    Table::new(columns, lines).terminal(Room::of(view.columns, WORD_LETTERS))
}
