//! Latencies of packets: percentiles, and what they include.

use netplumb_model::span::Times;
use netplumb_stats::histogram;

use super::ArmRates;
use super::columns::name;
use crate::number::thousands;
use crate::table::{Column, Table, Value};

/// What it is.
pub(super) const HEADING: &str =
    "one-way latency, from when a packet was due to when it was received, ns";
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
pub(super) fn table<'r>(arms: &[&'r ArmRates<'r>]) -> Table<'r, &'r ArmRates<'r>> {
    type ArmRow<'r> = &'r ArmRates<'r>;
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
    let arms = arms.iter().copied().filter(|arm| arm.latency().is_some());
    Table::new(all, arms)
}

/// What these times include besides the path's own.
pub(super) fn explained(arms: &[&ArmRates<'_>]) -> String {
    let knob = |arm: &ArmRates<'_>, key: &str| arm.arm.knobs.get(key).cloned();
    let mut sizes: Vec<String> = arms.iter().filter_map(|arm| knob(arm, "batch")).collect();
    sizes.sort();
    sizes.dedup();
    let unpaced = |arm: &&&ArmRates<'_>| knob(arm, "rate").is_none_or(|rate| rate == "max");
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
