//! Functions that two clocks saw, side by side: instructions and nanoseconds.

use std::collections::BTreeMap;

use netplumb_model::class::{Class, Direction};
use netplumb_model::timing::{INSTRUCTIONS, OWN_TIME};

use crate::analysis;
use crate::diff::Sides;
use crate::diff::arms::ArmPair;
use crate::number::printable;
use crate::table::{Column, Table, Value};
use crate::times::analysis::classes;
use crate::times::instrument;

/// A class that both sides have.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ClassBoth {
    /// Protocol and direction, on the side that counted instructions.
    pub class: Class,
    /// What times are shared by: "packet", "run" or "second".
    pub per: &'static str,
    /// The functions, the most own time first.
    pub functions: Vec<TwoClocks>,
}

/// A function on two clocks, per packet.
#[derive(Debug, Clone, serde::Serialize)]
pub struct TwoClocks {
    /// The function's symbol, as both sides have it.
    pub name: String,
    /// Times it was called, as the exact side counted.
    pub calls: f64,
    /// Instructions of its own.
    pub self_insns: f64,
    /// Its own instructions and its callees'.
    pub inclusive_insns: f64,
    /// Times it was called, as the other side timed.
    pub timed_calls: f64,
    /// Its own time, including functions that were not timed.
    pub self_ns: f64,
    /// Time of its own and of functions below it.
    pub total_ns: f64,
}

/// The functions that an exact recording and one of function times both saw. Empty
/// for any other two clocks: they share no functions.
pub(super) fn both(
    sides: Sides<'_>,
    pairs: &[ArmPair],
    directions: &[Direction],
) -> Vec<ClassBoth> {
    let own = [sides.before, sides.after].map(|side| instrument(side).unwrap_or_default());
    let (counts, times) = (INSTRUCTIONS.instrument, OWN_TIME.instrument);
    let flipped = match () {
        () if own == [counts, times] => false,
        () if own == [times, counts] => true,
        () => return Vec::new(),
    };
    let (counted, timed) = match flipped {
        false => (sides.before, sides.after),
        true => (sides.after, sides.before),
    };
    let times = classes(timed);
    let mut found = Vec::new();
    for pair in pairs {
        let (counted_arm, timed_arm) = match flipped {
            false => (pair.before, pair.after),
            true => (pair.after, pair.before),
        };
        for time in times.iter().filter(|c| c.arm == timed_arm) {
            let direction = time.class.direction;
            let asked = directions.is_empty() || directions.contains(&direction);
            if direction == Direction::Other || !asked {
                continue;
            }
            let count = analysis::class(counted, counted_arm, direction);
            let by_name: BTreeMap<&str, _> =
                count.functions.iter().map(|f| (count.name(f.function), f)).collect();
            let each = |sum: u64| sum as f64 / count.packets.max(1) as f64;
            let functions: Vec<TwoClocks> = time
                .functions
                .iter()
                .filter_map(|f| {
                    let name = time.name(f.function);
                    let counted = by_name.get(name)?;
                    Some(TwoClocks {
                        name: printable(name, 80),
                        calls: each(counted.calls),
                        self_insns: each(counted.self_insns),
                        inclusive_insns: each(counted.inclusive_insns),
                        timed_calls: time.per.each(f.times.count as f64),
                        self_ns: time.per.each(f.self_ns),
                        total_ns: time.per.each(f.corrected_ns),
                    })
                })
                .collect();
            if !functions.is_empty() {
                found.push(ClassBoth { class: count.class, per: time.per.word(), functions });
            }
        }
    }
    found
}

/// A class and a function that two instruments saw.
type SeenFunction<'a> = (&'a ClassBoth, &'a TwoClocks);

/// The figures of both.
fn of_both<'a>() -> Vec<Column<'a, SeenFunction<'a>>> {
    let figure =
        |title: &'static str, key: &'static str, hint: &'static str, of: fn(&TwoClocks) -> f64| {
            Column::figure(title, move |(_, f): &SeenFunction<'a>| Value::Number(of(f)))
                .hint(hint)
                .csv(key)
                .digits(3)
                .page(key)
        };
    let time =
        |title: &'static str, key: &'static str, hint: &'static str, of: fn(&TwoClocks) -> f64| {
            Column::figure(title, move |(_, f): &SeenFunction<'a>| Value::Ns(of(f)))
                .hint(hint)
                .unit("ns")
                .csv(key)
                .digits(3)
                .page(key)
        };
    vec![
        Column::machine(|(class, _): &SeenFunction<'a>| Value::Text(class.class.to_string()))
            .csv("class"),
        Column::code("function", |(_, f): &SeenFunction<'a>| Value::Name(f.name.clone(), None))
            .hint("its symbol")
            .csv("function")
            .people(0)
            .page("name"),
        Column::machine(|(class, _): &SeenFunction<'a>| Value::Text(class.per.into())).csv("per"),
        figure("calls", "calls", "as the exact side counted", |f| f.calls).people(1),
        figure("own insns", "self_insns", "instructions of its own code", |f| f.self_insns)
            .people(2),
        figure("all insns", "inclusive_insns", "instructions with all that it calls", |f| {
            f.inclusive_insns
        })
        .people(3),
        figure("calls timed", "timed_calls", "as the other side timed", |f| f.timed_calls)
            .people(4),
        time("own ns", "self_ns", "in its own code, and below it what was not timed", |f| {
            f.self_ns
        })
        .people(5),
        time("all ns", "total_ns", "with all that it calls", |f| f.total_ns).people(6),
        Column::figure("ns/insn", |(_, f): &SeenFunction<'a>| match f.inclusive_insns > 0.0 {
            true => {
                let each = f.total_ns / f.inclusive_insns;
                Value::Formatted(format!("{each:.2}"), Some(each))
            }
            false => Value::Missing,
        })
        .hint("of all that it calls")
        .people(7)
        .page("ratio"),
    ]
}

/// The functions of a class that two instruments saw: the first ones.
pub(super) fn table<'a>(class: &'a ClassBoth, top: usize) -> Table<'a, SeenFunction<'a>> {
    let top = if top == 0 { usize::MAX } else { top };
    let lines = class.functions.iter().take(top).map(|f| (class, f));
    Table::new(of_both(), lines)
}

/// The functions of all classes as CSV.
pub(super) fn csv(classes: &[ClassBoth]) -> String {
    let lines = classes.iter();
    let lines = lines.flat_map(|class| class.functions.iter().map(move |f| (class, f)));
    Table::new(of_both(), lines).csv()
}
