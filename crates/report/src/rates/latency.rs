//! Latencies of packets: percentiles, and what they include.

use std::rc::Rc;

use netplumb_model::span::Times;
use netplumb_stats::histogram;

use super::columns::name;
use super::{ArmRates, ArmRow, NAME_LETTERS, names};
use crate::number::thousands;
use crate::page::PagePart;
use crate::section::Section;
use crate::table::{Column, Table, Value};

/// What it is.
const HEADING: &str = "one-way latency, from when a packet was due to when it was received, ns";
/// Said of an arm whose stamps nobody reads.
pub(super) const ABSENT: &str =
    "latency not measured: no program of ours on this path sees each packet";
/// The heading of each percentile.
const TITLES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

fn percentiles(times: &Times) -> [Option<f64>; 5] {
    let at = |share| histogram::quantile(&times.buckets, share, times.min_ns, times.max_ns);
    let [p50, p90, p99, p999] = SHARES.map(at);
    [p50, p90, p99, p999, Some(times.max_ns as f64)]
}

/// A line for each arm whose packets were timed.
fn table<'r>(arms: &[ArmRow<'r>]) -> Table<'r, ArmRow<'r>> {
    let mut all = Vec::from(name());
    all.push(
        Column::figure("packets", |arm: &ArmRow<'r>| {
            let times = arm.latency();
            times.map_or(Value::Missing, |times| Value::Count(times.count))
        })
        .hint("that were timed")
        .people(1)
        .page("packets"),
    );
    all.extend((0..).zip(TITLES).map(|(n, title): (usize, _)| {
        Column::figure(title, move |arm: &ArmRow<'r>| {
            let ns = arm.latency().and_then(|times| percentiles(&times)[n]);
            ns.map_or(Value::Missing, |ns| Value::Formatted(thousands(ns.round() as u64), Some(ns)))
        })
        .hint("one-way latency")
        .unit("ns")
        .people(1)
        .page(title)
    }));
    let arms = arms.iter().filter(|arm| arm.latency().is_some()).cloned();
    Table::new(all, arms)
}

/// A line for each of some arms whose packets were timed, and why others' were not.
pub(super) fn section<'r>(arms: &[ArmRow<'r>]) -> Section<'r> {
    let timed = |arm: &&ArmRow<'r>| arm.latency().is_some();
    let timed: Rc<[ArmRow<'r>]> = arms.iter().filter(timed).cloned().collect();
    let without = arms.iter().filter(|arm| arm.lacks_latency());
    let without: Vec<&str> = without.map(|arm| arm.arm.name.as_str()).collect();
    let absent = (!without.is_empty()).then(|| format!("{}: {ABSENT}", names(&without)));
    if timed.is_empty() {
        return Section::words(absent.into_iter().collect()).drawn(Vec::new);
    }
    let rows = timed.clone();
    Section::rows(NAME_LETTERS, move |_| table(&rows).flush())
        .heading(HEADING)
        .sentences(absent.into_iter().collect())
        .place("latency", "Latency")
        .drawn(move || {
            let sentences = vec![explained(&timed)];
            vec![PagePart::Table(table(&timed).page(HEADING)), PagePart::Sentences { sentences }]
        })
}

/// What these times include besides the path's own.
fn explained(arms: &[ArmRow<'_>]) -> String {
    let knob = |arm: &ArmRates<'_>, key: &str| arm.arm.knobs.get(key).cloned();
    let mut sizes: Vec<String> = arms.iter().filter_map(|arm| knob(arm, "batch")).collect();
    sizes.sort();
    sizes.dedup();
    let unpaced = |arm: &&ArmRow<'_>| knob(arm, "rate").is_none_or(|rate| rate == "max");
    let mut text = String::from(
        "The time begins when a frame was due, so a generator that falls behind shows in it.",
    );
    if arms.iter().filter(unpaced).count() > 0 {
        text.push_str(" With no rate asked for, it begins when the frame was made.");
    }
    if sizes.iter().any(|size| size != "1") || sizes.is_empty() {
        let size = match &sizes[..] {
            [size] => format!(" of {size}"),
            _ => String::new(),
        };
        text.push_str(&format!(
            " The generator sends frames in batches{size}: a frame waits until its batch is \
             full, and then for those of the batch that are handled before it. Both waits are in \
             these figures; with --batch 1 there are none."
        ));
    }
    text
}
