//! Histograms in seconds, of buckets of a recording.

use netplumb_model::span::{SUB_BITS, Times};
use netplumb_stats::histogram;

use super::metric::Metric;
use super::text::{Number, Text};

/// Bounds that are the same whatever the times are, an octave each: a series of a bucket that begins
/// late has no rate before.
pub(crate) fn octaves() -> Vec<u16> {
    const OCTAVE: u16 = 1 << SUB_BITS;
    (OCTAVE - 1..histogram::BUCKETS as u16 - 1).step_by(OCTAVE.into()).collect()
}

/// Histograms whose buckets have these upper bounds, and one without.
pub(crate) fn with_bounds(
    metric: &Metric,
    bounds: &[u16],
    each: &[(String, &Times)],
    text: &mut Text,
) {
    if each.is_empty() {
        return;
    }
    text.head(metric);
    let name = &metric.name;
    let bucket = format!("{name}_bucket");
    for (labels, times) in each {
        let mut buckets = times.buckets.iter().peekable();
        let mut below = 0_u64;
        for bound in bounds {
            while let Some((_, n)) = buckets.next_if(|(b, _)| b <= bound) {
                below = below.saturating_add(*n);
            }
            let le = Number::seconds(histogram::upper(*bound) as f64);
            text.line(&bucket, &format!("{labels},le=\"{le}\""), Number::Whole(below));
        }
        let count = Number::Whole(times.count);
        text.line(&bucket, &format!("{labels},le=\"+Inf\""), count);
        text.line(&format!("{name}_count"), labels, count);
        let sum = Number::seconds(times.total_ns as f64);
        text.line(&format!("{name}_sum"), labels, sum);
    }
}
