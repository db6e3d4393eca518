//! Times as OpenMetrics text: histograms in seconds.
//!
//! The recording's buckets are merged, four to an octave: all histograms of a family
//! have the same bounds, up to the longest that any needs. As read; the corrected
//! sums are a family of their own.

use netplumb_model::recording::Recording;
use netplumb_model::span::{StageKind, Times};
use netplumb_stats::histogram;

use std::collections::BTreeSet;

use super::analysis::{Stage, TimedClass, TimedFunction};
use super::between;
use crate::openmetrics::histogram::with_bounds;
use crate::openmetrics::metric::{self, Metric};
use crate::openmetrics::text::{Labels, Number, Text, conditions, escaped};

/// Buckets of ours in one of these.
const TOGETHER: u16 = 4;

/// The exposition, to its end mark.
pub(crate) fn render(recording: &Recording, classes: &[TimedClass<'_>]) -> String {
    let mut text = Text::default();
    let shown: BTreeSet<usize> = classes.iter().map(|class| class.arm).collect();
    let shown: Vec<usize> = shown.into_iter().collect();
    text.family(&metric::RECORDING, [(conditions(recording, &shown), Number::Whole(1))]);
    let functions = || classes.iter().flat_map(|c| c.functions.iter().map(move |f| (c, f)));
    let stages = || {
        classes.iter().flat_map(|c| {
            let parts = c.stages.iter();
            parts.map(move |s| (c, s))
        })
    };
    let each: Vec<(String, &Times)> =
        functions().map(|(c, f)| (function_labels(c, f), &f.times)).collect();
    histograms(&metric::FUNCTION_DURATION, &each, &mut text);
    if !each.is_empty() {
        for (metric, value) in [
            (&metric::FUNCTION_CORRECTED, (|f| f.corrected_ns) as fn(&TimedFunction) -> f64),
            (&metric::FUNCTION_SELF, |f| f.self_ns),
        ] {
            text.head(metric);
            for (class, function) in functions() {
                let labels = function_labels(class, function);
                text.line(&metric.name, &labels, Number::seconds(value(function)));
            }
        }
    }
    // Spans between events are no packets: they have neither protocol nor direction.
    let (duration, passed_over, of) = match between::is_of(recording) {
        true => (
            &metric::SPAN_DURATION,
            &metric::SPAN_PASSED_OVER,
            arm_label as fn(&TimedClass<'_>) -> String,
        ),
        false => (
            &metric::STAGE_DURATION,
            &metric::STAGE_PASSED_OVER,
            class_labels as fn(&TimedClass<'_>) -> String,
        ),
    };
    let labels = |class: &TimedClass<'_>, stage: &Stage| {
        format!("{},stage=\"{}\"", of(class), escaped(&stage.name))
    };
    let each: Vec<(String, &Times)> = stages()
        .map(|(class, stage)| {
            let labels = format!("{},kind=\"{}\"", labels(class, stage), stage.kind);
            (labels, &stage.times)
        })
        .collect();
    histograms(duration, &each, &mut text);
    if stages().any(|(_, s)| s.kind != StageKind::Total) {
        let name = format!("{}_total", passed_over.name);
        text.head(passed_over);
        for (class, stage) in stages() {
            let labels = labels(class, stage);
            text.line(&name, &labels, Number::Whole(stage.passed_over));
        }
    }
    let lost = recording.losses.iter().flat_map(|(instrument, losses)| {
        losses.iter().map(move |loss| {
            let labels = Labels::none().with("instrument", instrument);
            (labels.with("cause", &loss.cause), Number::Whole(loss.count))
        })
    });
    text.family(&metric::LOST, lost);
    text.end()
}

fn histograms(metric: &Metric, each: &[(String, &Times)], text: &mut Text) {
    let longest = each
        .iter()
        .filter_map(|(_, times)| times.buckets.last())
        .map(|(bucket, _)| (*bucket).min(histogram::BUCKETS as u16 - 1))
        .max()
        .unwrap_or(0);
    // The last bucket of ours has no upper bound.
    let bounds: Vec<u16> = (0..=longest / TOGETHER)
        .map(|n| n * TOGETHER + TOGETHER - 1)
        .filter(|b| usize::from(*b) < histogram::BUCKETS - 1)
        .collect();
    with_bounds(metric, &bounds, each, text);
}

fn arm_label(class: &TimedClass<'_>) -> String {
    format!("arm=\"{}\"", escaped(&class.arm().name))
}

fn class_labels(class: &TimedClass<'_>) -> String {
    format!(
        "{},proto=\"{}\",direction=\"{}\"",
        arm_label(class),
        class.class.proto,
        class.class.direction
    )
}

fn function_labels(class: &TimedClass<'_>, function: &TimedFunction) -> String {
    let data = &class.recording.functions[function.function as usize];
    format!(
        "{},function=\"{}\",module=\"{}\",layer=\"{}\"",
        class_labels(class),
        escaped(&data.name),
        escaped(data.module.as_deref().unwrap_or_default()),
        escaped(data.layer.as_deref().unwrap_or_default())
    )
}
