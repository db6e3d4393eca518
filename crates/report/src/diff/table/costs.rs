//! The columns of costs that were counted: both sides, and the change.

use netplumb_model::class::Context;

use super::line::{Columns, Line, WIDE, exactly, text_value};
use crate::diff::exact::PerPacket;
use crate::diff::sentence::{figure, signed};
use crate::diff::{Change, DiffRow, Judged};
use crate::table::{Column, Value};

/// And for inclusive costs.
pub(super) const WIDER: usize = 104;

/// Both sides of exact costs, and the change.
pub(super) fn costs<'a>() -> Columns<'a> {
    vec![
        Column::figure("before", |l: &Line<'a>| l.side(false))
            .hint("self, before")
            .people(2)
            .page("before"),
        Column::figure("after", |l: &Line<'a>| l.side(true))
            .hint("self, after")
            .people(3)
            .page("after"),
        Column::figure("change", Line::signed).hint("of self").people(4).page("difference"),
        // No heading on a terminal.
        Column::figure("", Line::percent).people(5),
        Column::machine(Line::percent).title("%").hint("of self before").rank(5).page("percent"),
    ]
}

/// Columns of functions that only the page has, computed from trees.
pub(super) fn from_tree<'a>() -> Columns<'a> {
    let column = |title: &'static str, key: &'static str, hint: &'static str, rank: u8| {
        Column::machine(|_: &Line<'a>| Value::Absent).title(title).hint(hint).rank(rank).page(key)
    };
    vec![
        column("incl. before", "inclusive_before", "with all that it calls, before", 6),
        column("incl. after", "inclusive_after", "with all that it calls, after", 6),
        column("incl. change", "inclusive_difference", "of inclusive", 6),
        column("calls before", "calls_before", "entries, or samples", 7),
        column("calls after", "calls_after", "entries, or samples", 7),
        column("module", "module", "the module that it is in; of a command, the file", 9).words(),
        column("source", "source", "where it is defined, after", 9).words(),
    ]
}

/// The inclusive cost of a function, before and after: the figure of interest below a function.
pub(super) fn inclusive<'a>() -> Columns<'a> {
    let side = |l: &Line<'a>, of: fn(Change) -> PerPacket| {
        let change = l.change(2);
        change.map_or_else(|| text_value(String::new()), |c| exactly(of(c)))
    };
    vec![
        Column::figure("incl. before", move |l: &Line<'a>| side(l, |c| c.before))
            .hint("with all that it calls, before")
            .people(6)
            .from(WIDER),
        Column::figure("incl. after", move |l: &Line<'a>| side(l, |c| c.after))
            .hint("with all that it calls, after")
            .people(6)
            .from(WIDER),
    ]
}

/// The counted costs and calls of a function, in all of a recording or in the part below a
/// function.
pub(super) fn exact<'a>(below: bool) -> Columns<'a> {
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
    let keys =
        [(0, "calls", "calls"), (1, "self", "self_insns"), (2, "inclusive", "inclusive_insns")];
    for (which, json, key) in keys {
        columns.extend([
            Column::machine(move |l: &Line<'a>| object(l.change(which))).json(json),
            Column::machine(move |l: &Line<'a>| sum(l.change(which), false, false))
                .csv(format!("{key}_before")),
            Column::machine(move |l: &Line<'a>| sum(l.change(which), true, false)).csv(key),
        ]);
    }
    columns.extend(below.then(inclusive).into_iter().flatten());
    columns.extend([
        Column::figure("inclusive", |l: &Line<'a>| {
            text_value(l.change(2).map_or_else(String::new, |c| signed(&c.delta())))
        })
        .hint("the change with all that it calls")
        .people(6)
        .from(WIDE),
        Column::figure("calls", |l: &Line<'a>| {
            text_value(l.change(0).map_or_else(String::new, |c| both(&c)))
        })
        .hint("per packet, before and after")
        .people(7)
        .from(WIDE),
        Column::machine(|l: &Line<'a>| {
            l.sums().map_or(Value::Missing, |c| Value::Number(c.delta().value()))
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

/// A change in JSON: sums as counted, and the difference.
pub(in crate::diff) fn object(change: Option<Change>) -> Value {
    let Some(change) = change else {
        return Value::Missing;
    };
    Value::object([
        ("before", Value::Count(change.before.sum)),
        ("after", Value::Count(change.after.sum)),
        ("change_per_packet", Value::Number(change.delta().value())),
        ("change_percent", change.percent().map_or(Value::Missing, Value::Number)),
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
fn contexts(row: &DiffRow) -> Value {
    let one = |(context, [calls, own, inclusive]): &(Context, [Change; 3])| {
        Value::object([
            ("context", Value::Text(context.to_string())),
            ("calls", object(Some(*calls))),
            ("self", object(Some(*own))),
            ("inclusive", object(Some(*inclusive))),
        ])
    };
    let counts = row.counts.iter();
    Value::List(counts.flat_map(|c| c.contexts.iter().map(one)).collect())
}
