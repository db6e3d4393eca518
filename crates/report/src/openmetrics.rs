//! OpenMetrics text (OpenMetrics 1.0), for Prometheus and the like: families, their samples, and how
//! names, numbers and labels are written. `metric.rs` declares the families, `sums.rs` has those of
//! counts and costs; those of times are histograms, in `times/openmetrics.rs`.

pub mod metric;
mod sums;

use std::collections::BTreeSet;
use std::fmt::Write;

use netplumb_model::recording::{Recording, env};

use crate::analysis::ClassView;
use crate::number::{is_active, printable};
use crate::shape::{Shape, shape};
use crate::times;
use crate::trust::common::values_of_arms;
pub use metric::{METRICS, Metric};
pub use sums::{Keep, OTHER, Sums};

/// Letters of a label's value.
const LABEL_LETTERS: usize = 200;
/// The most functions of a recording that have a series of their own.
pub const FUNCTIONS: usize = 100;
/// The end of an exposition.
const END: &str = "# EOF\n";
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

/// An exposition that is being written.
#[derive(Debug, Clone, Default)]
pub struct Text {
    out: String,
}

impl Text {
    /// A family with its samples, each of labels and a value. Without samples there is no family.
    pub fn family(
        &mut self,
        metric: &Metric,
        samples: impl IntoIterator<Item = (Labels, Number)>,
    ) -> &mut Text {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return self;
        }
        self.head(metric);
        for (labels, value) in samples {
            let _ = write!(self.out, "{}{}", metric.name, metric.kind.suffix());
            if !labels.0.is_empty() {
                let _ = write!(self.out, "{{{}}}", labels.0);
            }
            let _ = writeln!(self.out, " {value}");
        }
        self
    }

    /// The lines above the samples of a family.
    pub(crate) fn head(&mut self, metric: &Metric) {
        let name = &metric.name;
        let _ = writeln!(self.out, "# TYPE {name} {}", metric.kind.as_str());
        if let Some(unit) = metric.unit {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.out, "# HELP {name} {}", metric.help);
    }

    /// A line of a sample, with all its labels.
    pub(crate) fn line(&mut self, name: &str, labels: &str, value: Number) {
        let _ = writeln!(self.out, "{name}{{{labels}}} {value}");
    }

    /// Text of whole families.
    pub fn append(&mut self, families: &str) -> &mut Text {
        self.out.push_str(families);
        self
    }

    /// What was written so far.
    pub fn as_str(&self) -> &str {
        &self.out
    }

    /// The whole, with its end mark.
    pub fn end(mut self) -> String {
        self.out.push_str(END);
        self.out
    }
}

/// The labels of a sample, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(String);

impl Labels {
    /// None.
    pub fn none() -> Labels {
        Labels::default()
    }

    /// One more: its name is a constant, its value may be anything.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Labels {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        let _ = write!(self.0, "{name}=\"{}\"", escaped(value));
        self
    }
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Another one.
    Real(f64),
}

impl Number {
    /// A time in seconds.
    pub fn seconds(ns: f64) -> Number {
        Number::Real(ns / 1e9)
    }
}

impl std::fmt::Display for Number {
    /// A float that is whole keeps its point.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Whole(value) => write!(f, "{value}"),
            Number::Real(v) if v.is_nan() => f.write_str("NaN"),
            Number::Real(v) if v.is_infinite() => f.write_str(match *v > 0.0 {
                true => "+Inf",
                false => "-Inf",
            }),
            Number::Real(v) => {
                let text = format!("{v}");
                let point = if text.contains('.') { "" } else { ".0" };
                write!(f, "{text}{point}")
            }
        }
    }
}

/// Under which conditions these arms were measured, as labels.
pub(crate) fn conditions(recording: &Recording, arms: &[usize]) -> Labels {
    let mut labels = Labels::none();
    for (label, key) in [
        ("clock", env::CLOCK),
        ("lab", env::LAB),
        ("kernel", env::KERNEL),
        ("plumb", env::PLUMB),
        ("name", env::NAME),
    ] {
        let values = values_of_arms(recording, arms, key);
        if !values.is_empty() {
            labels = labels.with(label, &values.join(" and "));
        }
    }
    labels.with("complete", if recording.complete { "yes" } else { "no" })
}

/// A label's value of limited length.
pub(crate) fn limited(value: &str) -> String {
    printable(value, LABEL_LETTERS)
}

/// A label's value: three letters have to be escaped, other control characters are not to reach a
/// terminal.
pub(crate) fn escaped(value: &str) -> String {
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

#[cfg(test)]
mod tests;
