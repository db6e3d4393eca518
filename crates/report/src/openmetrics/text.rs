//! How an exposition is written: families, their samples, and names, numbers and labels.

use std::fmt::Write;

use netplumb_model::recording::{Recording, env};

use super::metric::Metric;
use crate::number::{is_active, printable};
use crate::trust::common::values_of_arms;

/// Letters of a label's value.
const LABEL_LETTERS: usize = 200;
/// The end of an exposition.
const END: &str = "# EOF\n";

/// An exposition that is being written.
#[derive(Debug, Clone, Default)]
pub struct Text {
    out: String,
}

impl Text {
    /// A family with its samples, each with labels and a value. Without samples the family is left out.
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

    /// The text written so far.
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
    /// No labels.
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
    /// A number with decimals.
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

/// The conditions of these arms' measurement, as labels.
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

/// A label's value: three characters have to be escaped, other control characters must not reach a
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
