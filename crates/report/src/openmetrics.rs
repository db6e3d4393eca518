//! OpenMetrics text (OpenMetrics 1.0), for Prometheus and the like. `metric.rs` declares the families, `text.rs`
//! writes them and their samples; `sums.rs` has counts and costs; times are histograms, in
//! `times/openmetrics.rs`, which `histogram.rs` writes.

pub(crate) mod histogram;
pub mod metric;
mod sums;
pub(crate) mod text;

use std::collections::BTreeSet;

use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::shape::{Shape, shape};
use crate::times;
pub use metric::{METRICS, Metric};
pub use sums::{Keep, OTHER, Sums};
pub use text::{Labels, Number, Text};

/// The most functions of a recording that have a series of their own.
pub const FUNCTIONS: usize = 100;
/// The media type of an exposition.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The exposition of a recording of times, counts or costs, to its end mark: of these classes.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    times: &[times::TimedClass<'_>],
) -> String {
    if shape(recording) == Shape::Times {
        return times::openmetrics::render(recording, times);
    }
    let mut sums = Sums::new(Keep::all(FUNCTIONS));
    let only = classes.iter();
    let only: BTreeSet<_> = only.map(|class| (class.arm as u32, class.class.direction)).collect();
    sums.add(recording, 0, &|arm, direction| only.contains(&(arm, direction)));
    let mut text = Text::default();
    sums.render(&mut text);
    text.end()
}

#[cfg(test)]
mod tests;
