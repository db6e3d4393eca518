//! A count of an event, or a part of one.

use std::borrow::Cow;

use netplumb_model::events::with_mode;

use crate::per::Per;

/// Events of functions, by the part before the first colon.
const OF_FUNCTIONS: &[&str] = &["fentry", "fexit", "kprobe", "kretprobe", "uprobe", "uretprobe"];
/// An event counted for less of the time shared its counter; above, the rest is rounding.
const WHOLE: f64 = 0.9999;

/// An event of an arm, in all its blocks.
#[derive(Debug, Clone)]
pub(crate) struct EventCount<'a> {
    /// Index of the arm.
    pub(crate) arm: usize,
    /// The event, as in the recording.
    pub(crate) name: &'a str,
    /// The CPU, if this is a part.
    pub(crate) cpu: Option<u32>,
    /// The name of the task's threads, if this is a part.
    pub(crate) task: Option<Cow<'a, str>>,
    /// The layer of the code that caused it, if this is a part.
    pub(crate) layer: Option<&'a str>,
    /// Whether `values` are times, in nanoseconds.
    pub(crate) is_time: bool,
    /// The count or time in each block.
    pub(crate) values: Vec<f64>,
    /// What each block is shared by.
    pub(crate) per: Vec<Per>,
    /// What all are shared by.
    pub(crate) per_all: Per,
    /// The total length of all blocks.
    pub(crate) seconds: f64,
    /// The time enabled and the time running, as in `perf_event_open`.
    pub(crate) counted_ns: Option<[f64; 2]>,
}

impl EventCount<'_> {
    /// The sum over all blocks.
    pub(crate) fn total(&self) -> f64 {
        self.values.iter().sum()
    }

    /// In each block per run, packet or second.
    pub(crate) fn each(&self) -> Vec<f64> {
        let both = self.values.iter().zip(&self.per);
        both.map(|(value, per)| per.each(*value)).collect()
    }

    /// The part of the time in which it was counted, where that is known.
    pub(crate) fn share(&self) -> Option<f64> {
        let [enabled, running] = self.counted_ns?;
        (enabled > 0.0).then(|| running / enabled)
    }

    /// Whether it was not counted all the time.
    pub(crate) fn is_shared(&self) -> bool {
        self.share().is_some_and(|share| share < WHOLE)
    }

    /// Whether it is a part of what was counted.
    pub(crate) fn is_part(&self) -> bool {
        self.cpu.is_some() || self.task.is_some() || self.layer.is_some()
    }

    /// Its subject: a subsystem that has a name, or the tracepoint's subsystem.
    pub(crate) fn focus(&self) -> &str {
        focus(self.name)
    }
}

/// The subject of an event by its name.
pub(crate) fn focus(name: &str) -> &str {
    match (with_mode(name), name.split_once(':')) {
        (Some((event, _)), _) => event.focus.as_str(),
        (None, Some((kind, _))) if OF_FUNCTIONS.contains(&kind) => "function",
        (None, Some((subsystem, _))) => subsystem,
        (None, None) => "",
    }
}
