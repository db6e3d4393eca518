//! Counts beside the times of a recording, as tables of its page: packets, the probes' cost, losses.

use std::collections::BTreeMap;

use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Ledger, Recording};
use netplumb_model::timing::{Calibration, DROPPED, SEEN};

use crate::number::printable;
use crate::page::{PageLedger, PagePart, PageSection, PageTable};
use crate::scalars::by_label;
use crate::table::{Column, Table, Value};

const NAME_LETTERS: usize = 500;
/// Letters of a class.
const CLASS_LETTERS: usize = 40;

/// All of it.
pub(super) fn sections(recording: &Recording) -> impl Iterator<Item = PageSection> {
    let some = |table: PageTable| (!table.rows.is_empty()).then_some(PagePart::Table(table));
    let or = |table: PageTable, sentence: &str| {
        some(table).unwrap_or(PagePart::Sentences { sentences: vec![sentence.into()] })
    };
    let ledgers = ledgers(recording);
    let seen = some(seen(counts(recording, &SEEN)));
    let dropped = counts(recording, &DROPPED);
    let counted = !ledgers.is_empty() || seen.is_some() || !dropped.is_empty();
    let packets = counted.then(|| {
        let ledgers = (!ledgers.is_empty()).then_some(PagePart::Ledgers { ledgers });
        let drops = or(drops(dropped), "The kernel dropped no packet that was seen.");
        ledgers.into_iter().chain(seen).chain([drops]).collect()
    });
    let packets = PageSection::new("ledger", "Ledger", packets.unwrap_or_default());
    let lost = or(losses(recording), "Nothing was missed: no call, no packet, no full map.");
    let calibration = some(calibration(recording)).into_iter();
    let parts = calibration.chain([lost]).chain(some(not_measured(recording)));
    let title = match recording.calibration.is_empty() {
        true => "Losses",
        false => "Probes and losses",
    };
    packets.into_iter().chain(PageSection::new("probes", title, parts.collect()))
}

/// A name and a count.
type NamedCount = (String, f64);

fn counts(recording: &Recording, quantity: &Declared) -> Vec<NamedCount> {
    let counts = by_label(recording, quantity, |_| true);
    (counts.iter().map(|(name, sum)| (name.to_string(), *sum))).collect()
}

/// Packets seen, a column for each class: `udp tx xmit` is `xmit` of `udp tx`.
fn seen(counts: Vec<NamedCount>) -> PageTable {
    let mut classes: Vec<String> = Vec::new();
    let mut places: Vec<(String, BTreeMap<String, f64>)> = Vec::new();
    for (label, count) in counts {
        let words: Vec<&str> = label.split(' ').collect();
        let (class, place) = match words.len() {
            ..=2 => (String::new(), label),
            _ => (words[..2].join(" "), words[2..].join(" ")),
        };
        if !classes.contains(&class) {
            classes.push(class.clone());
        }
        let known = places.iter().position(|(name, _)| *name == place);
        let at = known.unwrap_or_else(|| {
            places.push((place, BTreeMap::new()));
            places.len() - 1
        });
        places[at].1.insert(class, count);
    }
    type Place = (String, BTreeMap<String, f64>);
    let mut columns = vec![
        Column::text("place", |(place, _): &Place| place.clone())
            .hint("where in the kernel packets were counted")
            .page("place"),
    ];
    columns.extend(classes.into_iter().map(|class| {
        let title = match class.as_str() {
            "" => "count".into(),
            class => printable(class, CLASS_LETTERS),
        };
        Column::figure(title, move |(_, counts): &Place| {
            counts.get(&class).map_or(Value::Missing, |n| Value::Number(*n))
        })
        .hint("packets of the class, or bytes")
        .page("count")
    }));
    Table::new(columns, places).page("Packets seen, place by place, and bytes of payload")
}

fn drops(counts: Vec<NamedCount>) -> PageTable {
    let columns = vec![
        Column::text("reason", |(reason, _): &NamedCount| reason.clone())
            .hint("as the kernel names it")
            .page("reason"),
        Column::figure("count", |(_, count): &NamedCount| Value::Number(*count))
            .hint("packets")
            .page("count"),
    ];
    Table::new(columns, counts).page("Packets dropped, by the kernel's reasons")
}

fn losses(recording: &Recording) -> PageTable {
    use netplumb_model::loss::Loss;
    let columns = vec![
        Column::text("cause", |loss: &&Loss| loss.cause.clone())
            .hint("what was missed")
            .page("cause"),
        Column::figure("count", |loss: &&Loss| Value::Count(loss.count))
            .hint("how often")
            .page("count"),
        Column::text("what it means", |loss: &&Loss| loss.meaning.clone())
            .hint("its effect on the figures")
            .page("meaning"),
    ];
    Table::new(columns, recording.all_losses()).page("What was missed")
}

fn not_measured(recording: &Recording) -> PageTable {
    let over_budget = recording.all_over_budget().into_iter();
    let over_budget = over_budget.map(|name| (name, "left out to keep to the budget"));
    let columns = vec![
        Column::code("function or tracepoint", |(name, _): &(&str, &str)| {
            Value::Name((*name).into(), None)
        })
        .hint("its symbol")
        .page("name"),
        Column::text("why", |(_, why): &(&str, &str)| (*why).into())
            .hint("why it was not watched")
            .page("why"),
    ];
    let rows = recording.all_not_measured().into_iter().chain(over_budget);
    Table::new(columns, rows).page("What was not watched; what it took is in its callers' own time")
}

/// The probes' cost, on one CPU or on all.
fn calibration(recording: &Recording) -> PageTable {
    let functions = |c: &&Calibration| {
        let by = recording.attachments.iter();
        by.filter(|a| (a.mechanism, a.arguments) == (c.mechanism, c.arguments)).count() as u64
    };
    let columns = vec![
        Column::text("by", |c: &&Calibration| c.mechanism.to_string())
            .hint("by what functions were timed")
            .page("mechanism"),
        Column::figure("arguments", |c: &&Calibration| Value::Count(c.arguments.into()))
            .hint("of the function")
            .page("arguments"),
        Column::text("CPU", |c: &&Calibration| c.cpu.map_or("all".into(), |cpu| cpu.to_string()))
            .hint("`all` is the median of the CPUs")
            .page("cpu"),
        Column::figure("functions", move |c: &&Calibration| Value::Count(functions(c)))
            .hint("that were timed so")
            .page("functions"),
        Column::figure("an empty function reads", |c: &&Calibration| Value::Ns(c.bias_ns))
            .hint("what is read for a function that does nothing")
            .unit("ns")
            .page("bias"),
        Column::figure("a pair takes", |c: &&Calibration| Value::Ns(c.pair_ns))
            .hint("both probes of a call together")
            .unit("ns")
            .page("pair"),
        Column::figure("\u{b1} (95%)", |c: &&Calibration| Value::Ns(c.uncertainty_ns))
            .hint("half the width of the interval of either")
            .unit("ns")
            .page("uncertainty"),
    ];
    Table::new(columns, &recording.calibration)
        .page("What the probes cost, measured on a function that does nothing; ns")
}

/// The workload's count of its own packets, by arm.
fn ledgers(recording: &Recording) -> Vec<PageLedger> {
    let arms = recording.arms.iter().enumerate();
    arms.filter_map(|(n, arm)| {
        let blocks = || recording.blocks.iter().filter(|b| b.arm as usize == n);
        let sum = |of: fn(&Ledger) -> u64| {
            blocks().fold(0, |sum: u64, b| sum.saturating_add(of(&b.ledger)))
        };
        let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, count) in blocks().flat_map(|b| &b.ledger.dropped) {
            let sum = dropped.entry(printable(cause, 120)).or_default();
            *sum = sum.saturating_add(*count);
        }
        let ledger = PageLedger {
            arm: printable(&arm.name, NAME_LETTERS),
            offered: sum(|l| l.offered),
            delivered: sum(|l| l.delivered),
            dropped: dropped.into_iter().collect(),
            closes: blocks().all(|b| b.ledger.closes()),
        };
        (ledger.offered > 0).then_some(ledger)
    })
    .collect()
}
