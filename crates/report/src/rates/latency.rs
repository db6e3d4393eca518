//! How long packets took: percentiles, and what is in them.

use netplumb_model::span::Times;
use netplumb_stats::histogram;

use super::ArmRates;

/// What it is.
pub(super) const HEADING: &str =
    "one-way latency, from when a packet was due to when it was received, ns";
/// Said of an arm whose stamps nobody reads.
pub(super) const ABSENT: &str =
    "latency not measured: no program of ours on this path sees each packet";
/// What each figure is called.
pub(super) const TITLES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The figures.
pub(super) fn percentiles(times: &Times) -> [Option<f64>; 5] {
    let at = |share| histogram::quantile(&times.buckets, share, times.min_ns, times.max_ns);
    let [p50, p90, p99, p999] = SHARES.map(at);
    [p50, p90, p99, p999, Some(times.max_ns as f64)]
}

/// What these times have in them beside the path's.
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
