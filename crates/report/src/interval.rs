//! Intervals on ratios in words, and what to do about noise.

use netplumb_stats::judge::Judged;
use netplumb_stats::ratio::Interval;

/// "+17.1% to +18.6%", or the known end: `each` formats an end.
pub(crate) fn interval_text(interval: Interval, each: impl Fn(f64) -> String) -> String {
    match (interval.low > 0.0, interval.high.is_finite()) {
        (false, false) => "any".into(),
        (true, false) => format!("{} and more", each(interval.low)),
        (_, true) => format!("{} to {}", each(interval.low), each(interval.high)),
    }
}

/// The remedy where noise hides any change: `apart` is whether one side was measured after
/// the other.
pub(crate) fn remedy(apart: bool) -> &'static str {
    match apart {
        true => {
            "measure both sides as arms of one run, where they take turns, with more blocks (--blocks)"
        }
        false => "measure with more blocks (--blocks), or with longer ones",
    }
}

/// A note that noise hides any change of some rows, by name, and what helps; none where no row's
/// change is hidden.
pub(crate) fn noise<'r>(
    rows: impl Iterator<Item = (&'r str, &'r Judged)>,
    apart: bool,
) -> Option<String> {
    const NAMES: usize = 3;
    let blind: Vec<&str> =
        rows.filter(|(_, judged)| judged.is_blind()).map(|(name, _)| name).collect();
    if blind.is_empty() {
        return None;
    }
    let names: Vec<String> =
        (blind.iter().take(NAMES)).map(|name| crate::number::printable(name, 60)).collect();
    let more = match blind.len().saturating_sub(NAMES) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "noise may hide any change of {}{more}: not even a doubling would have been seen for \
         certain; {}",
        names.join(", "),
        remedy(apart)
    ))
}
