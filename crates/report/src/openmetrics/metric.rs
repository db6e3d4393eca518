//! The families of expositions, each declared once: the text and its reference go by this table.
//!
//! `sums.rs` adds windows up; `plumb serve` measures in `experiment/serve.rs` and answers by `http.rs` of `plumb`.

use std::borrow::Cow;

use netplumb_model::quantity::Quantity;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A sum that only rises while what measures it runs.
    Counter,
    /// A value that may rise and fall.
    Gauge,
    /// A distribution, in cumulative buckets.
    Histogram,
    /// Facts, as labels of a sample that is always 1.
    Info,
}

impl Type {
    /// The name that a `# TYPE` line has.
    pub fn as_str(self) -> &'static str {
        match self {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
            Type::Info => "info",
        }
    }

    /// The end of the names of its samples.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge | Type::Histogram => "",
        }
    }
}

/// A metric family, as OpenMetrics calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Its name, with its unit at the end.
    pub name: Cow<'static, str>,
    /// The type, which decides its samples' suffix.
    pub kind: Type,
    /// Its unit, if it is a base unit of OpenMetrics.
    pub unit: Option<&'static str>,
    /// The labels of its samples.
    pub labels: &'static str,
    /// The text of the `# HELP` line.
    pub help: Cow<'static, str>,
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: Type,
        unit: Option<&'static str>,
        labels: &'static str,
        help: &'static str,
    ) -> Metric {
        Metric { name: Cow::Borrowed(name), kind, unit, labels, help: Cow::Borrowed(help) }
    }
}

const SECONDS: Option<&str> = Some("seconds");
/// Labels of a class's samples.
const OF_CLASS: &str = "arm, proto, direction";
const OF_FUNCTION: &str = "arm, proto, direction, function, module, layer";

/// Declares families, and the table of them all.
macro_rules! metrics {
    ($($constant:ident: $kind:ident, $name:literal, $unit:expr, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help]
        pub const $constant: Metric =
            Metric::new($name, Type::$kind, $unit, $labels, $help);)*
        /// All families of fixed names.
        pub static METRICS: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    RECORDING: Info, "plumb_recording", None, "clock, lab, kernel, plumb, name, complete",
        "How it was measured.";
    WINDOWS: Counter, "plumb_windows", None, "instrument",
        "Windows in which an instrument measured.";
    WINDOW_TIME: Counter, "plumb_window_seconds", SECONDS, "instrument",
        "The time of these windows.";
    OWN_CPU_TIME: Counter, "plumb_own_cpu_seconds", SECONDS, "instrument",
        "CPU time of an instrument's programs in the kernel, and of this whole process meanwhile.";
    LOST: Counter, "plumb_lost", None, "instrument, cause",
        "What was lost, missed or could not be attributed.";
    EVENTS: Counter, "plumb_events", None, "arm, event, focus; cpu, task or layer",
        "How often an event happened.";
    EVENT_TIME: Counter, "plumb_event_time_seconds", SECONDS, "arm, event, focus; cpu or task",
        "The time of an event that is a clock.";
    EVENT_ENABLED: Counter, "plumb_event_enabled_seconds", SECONDS, "arm, event",
        "How long an event was to be counted, of all CPUs or tasks together.";
    EVENT_RUNNING: Counter, "plumb_event_running_seconds", SECONDS, "arm, event",
        "How long it was counted; less than it was to be if there are more events than counters.";
    EVENT_UNAVAILABLE: Info, "plumb_event_unavailable", None, "event, reason",
        "An event that is not counted, and why.";
    SERIES_LEFT_OUT: Gauge, "plumb_series_left_out", None, "family",
        "Series that are not here because a family has too many.";
    FUNCTION_DURATION: Histogram, "plumb_function_duration_seconds", SECONDS, OF_FUNCTION,
        "Time from a function's entry to its exit, as read.";
    FUNCTION_CORRECTED: Gauge, "plumb_function_corrected_seconds", SECONDS, OF_FUNCTION,
        "The same in all, less the probes' own cost; recursion counts once.";
    FUNCTION_SELF: Gauge, "plumb_function_self_seconds", SECONDS, OF_FUNCTION,
        "That without the timed functions below.";
    STAGE_DURATION: Histogram, "plumb_stage_duration_seconds", SECONDS,
        "arm, proto, direction, stage, kind",
        "Time of a packet in a stage of its way, less the programs' own.";
    SPAN_DURATION: Histogram, "plumb_span_duration_seconds", SECONDS, "arm, stage, kind",
        "Time from one event to another, as read.";
    HTTP_REQUESTS: Counter, "plumb_http_requests", None, "code",
        "Responses to requests, by status.";
    HTTP_DROPPED: Counter, "plumb_http_dropped", None, "reason",
        "Connections that were closed without a response.";
    PROCESS_CPU: Counter, "process_cpu_seconds", SECONDS, "",
        "CPU time of the whole process, in user mode and in the kernel.";
    PROCESS_MEMORY: Gauge, "process_resident_memory_bytes", Some("bytes"), "",
        "Resident memory of the process.";
    STAGE_PASSED_OVER: Counter, "plumb_stage_passed_over", None, "arm, proto, direction, stage",
        "Packets of the way that did not meet the stage.";
    SPAN_PASSED_OVER: Counter, "plumb_span_passed_over", None, "arm, stage",
        "Spans between events that did not meet the stage.";
}

/// The family of functions' own costs, by a quantity. A duration is in seconds.
pub(crate) fn of_functions(quantity: &Quantity) -> Metric {
    named(
        "plumb_function",
        quantity,
        OF_FUNCTION,
        format!(
            "{}, of functions themselves; {} is what has no series of its own.",
            capital(&quantity.name),
            super::OTHER
        ),
    )
}

/// The family of a quantity's total, in the kernel and in user mode.
pub(crate) fn of_modes(quantity: &Quantity) -> Metric {
    let help = format!("{}, in the kernel and in user mode.", capital(&quantity.name));
    named("plumb", quantity, "instrument, arm, mode", help)
}

/// The family of how many samples or calls a quantity's costs stand for.
pub(crate) fn of_calls(quantity: &Quantity) -> Metric {
    let calls = quantity.calls.title();
    let plain = word(&quantity.name);
    Metric {
        name: format!("plumb_{plain}_{calls}").into(),
        kind: Type::Counter,
        unit: None,
        labels: OF_CLASS,
        help: format!("{} with a known {}.", capital(calls), quantity.name).into(),
    }
}

fn named(before: &str, quantity: &Quantity, labels: &'static str, help: String) -> Metric {
    let (unit, base) = match quantity.unit.as_str() {
        "ns" => ("seconds".to_string(), SECONDS),
        other => (word(other), None),
    };
    let name = word(&quantity.name);
    let name = match name == unit || name.ends_with(&format!("_{unit}")) {
        true => name,
        false => format!("{name}_{unit}"),
    };
    Metric {
        name: format!("{before}_{name}").into(),
        kind: Type::Counter,
        unit: base,
        labels,
        help: help.into(),
    }
}

/// A name allowed for a family: `cpu_time` for `CPU time`.
fn word(name: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
        _ => '_',
    };
    // A recording may have names of any length.
    name.chars().take(60).map(letter).collect()
}

fn capital(text: &str) -> String {
    let text = crate::number::printable(text, 60).replace(['\\', '"'], "?");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => text,
    }
}
