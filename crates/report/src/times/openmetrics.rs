//! Times as OpenMetrics text (OpenMetrics 1.0): histograms in seconds.
//!
//! Buckets are those of the recording, four to an octave put together: all of a
//! family have the same bounds, up to the longest that any needs. As read; the
//! corrected sums are a family of their own.

use std::fmt::Write;

use netplumb_model::recording::{Recording, env};
use netplumb_model::span::{StageKind, Times};
use netplumb_stats::histogram;

use super::analysis::{TimedClass, TimedFunction};
use crate::number::is_active;

/// Buckets of ours in one of these.
const TOGETHER: u16 = 4;

/// The exposition, to its end mark.
pub fn render(recording: &Recording, classes: &[TimedClass<'_>]) -> String {
    let mut out = String::new();
    info(recording, &mut out);
    let functions = || {
        classes
            .iter()
            .flat_map(|c| c.functions.iter().map(move |f| (c, f)))
    };
    let stages = || {
        classes.iter().flat_map(|c| {
            let parts = c.stages.iter();
            parts.map(move |s| (c, s))
        })
    };
    let each: Vec<(String, &Times)> = functions()
        .map(|(c, f)| (function_labels(c, f), &f.times))
        .collect();
    histograms(
        "plumb_function_duration_seconds",
        "Time from a function's entry to its exit, as read.",
        &each,
        &mut out,
    );
    if !each.is_empty() {
        for (name, help, value) in [
            (
                "plumb_function_corrected_seconds",
                "The same in all, less the probes' own cost; recursion counts once.",
                (|f| f.corrected_ns) as fn(&TimedFunction) -> f64,
            ),
            (
                "plumb_function_self_seconds",
                "That without the timed functions below.",
                |f| f.self_ns,
            ),
        ] {
            head(name, "gauge", Some("seconds"), help, &mut out);
            for (class, function) in functions() {
                let labels = function_labels(class, function);
                let value = number(value(function) / 1e9);
                let _ = writeln!(out, "{name}{{{labels}}} {value}");
            }
        }
    }
    let each: Vec<(String, &Times)> = stages()
        .map(|(class, stage)| {
            let labels = format!(
                "{},stage=\"{}\",kind=\"{}\"",
                class_labels(class),
                escaped(&stage.name),
                stage.kind
            );
            (labels, &stage.times)
        })
        .collect();
    histograms(
        "plumb_stage_duration_seconds",
        "Time of a packet in a stage of its way, as read.",
        &each,
        &mut out,
    );
    if stages().any(|(_, s)| s.kind != StageKind::Total) {
        let name = "plumb_stage_passed_over";
        let help = "Packets of the way that did not meet the stage.";
        head(name, "counter", None, help, &mut out);
        for (class, stage) in stages() {
            let _ = writeln!(
                out,
                "{name}_total{{{},stage=\"{}\"}} {}",
                class_labels(class),
                escaped(&stage.name),
                stage.passed_over
            );
        }
    }
    if !recording.losses.is_empty() {
        let name = "plumb_lost";
        let help = "What was lost, missed or could not be attributed.";
        head(name, "counter", None, help, &mut out);
        for loss in recording.all_losses() {
            let cause = escaped(&loss.cause);
            let _ = writeln!(out, "{name}_total{{cause=\"{cause}\"}} {}", loss.count);
        }
    }
    out.push_str("# EOF\n");
    out
}

fn head(name: &str, kind: &str, unit: Option<&str>, help: &str, out: &mut String) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if let Some(unit) = unit {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

/// Under which conditions, as labels of one sample.
fn info(recording: &Recording, out: &mut String) {
    let name = "plumb_recording";
    head(name, "info", None, "How it was measured.", out);
    let labels: Vec<String> = [
        ("clock", env::CLOCK),
        ("lab", env::LAB),
        ("kernel", env::KERNEL),
        ("plumb", env::PLUMB),
        ("name", env::NAME),
    ]
    .iter()
    .filter_map(|(label, key)| {
        let value = recording.environment.get(*key)?;
        Some(format!("{label}=\"{}\"", escaped(value)))
    })
    .chain([format!(
        "complete=\"{}\"",
        if recording.complete { "yes" } else { "no" }
    )])
    .collect();
    let _ = writeln!(out, "{name}_info{{{}}} 1", labels.join(","));
}

fn histograms(name: &str, help: &str, each: &[(String, &Times)], out: &mut String) {
    if each.is_empty() {
        return;
    }
    head(name, "histogram", Some("seconds"), help, out);
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
    for (labels, times) in each {
        let mut buckets = times.buckets.iter().peekable();
        let mut below = 0_u64;
        for bound in &bounds {
            while let Some((_, n)) = buckets.next_if(|(b, _)| b <= bound) {
                below = below.saturating_add(*n);
            }
            let le = number(histogram::upper(*bound) as f64 / 1e9);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {below}");
        }
        let count = times.count;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
        let sum = number(times.total_ns as f64 / 1e9);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}");
    }
}

fn class_labels(class: &TimedClass<'_>) -> String {
    format!(
        "arm=\"{}\",proto=\"{}\",direction=\"{}\"",
        escaped(&class.arm().name),
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

/// A float as the format has it: one that is whole keeps its point.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".into(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.into(),
        v => {
            let text = format!("{v}");
            match text.contains('.') {
                true => text,
                false => text + ".0",
            }
        }
    }
}

/// A label's value: three letters have to be escaped, other control characters are
/// not to reach a terminal.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if is_active(c) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
