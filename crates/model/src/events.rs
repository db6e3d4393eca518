//! Events that the kernel counts: what there is to count, how events are named, and whose are
//! counted.

mod declared;
mod name;

use serde::{Deserialize, Serialize};

pub use declared::{EVENTS, Event, Source, find, is_time};
pub use name::{EventRequest, Mode, NameError, Ratio, nearest, with_mode, within};

use crate::class::words;
use crate::quantity::{Declared, Kind};

/// The instrument that counts events.
pub const INSTRUMENT: &str = "events";

/// Events of a block, by event and optionally by CPU.
pub const COUNT: Declared =
    Declared::new(INSTRUMENT, "count", "events", Kind::Count).by_number("CPU").by_label("event");
/// The same of events that are times: `task-clock`, `cpu-clock`.
pub const TIME: Declared =
    Declared::new(INSTRUMENT, "time", "ns", Kind::Duration).by_number("CPU").by_label("event");
/// Events by task: by the threads of a process that share a name. The number is one of these threads in the recording,
/// which stands for them.
pub const TASK_COUNT: Declared = Declared::new(INSTRUMENT, "count by task", "events", Kind::Count)
    .by_number("thread")
    .by_label("event");
/// The same of events that are times.
pub const TASK_TIME: Declared = Declared::new(INSTRUMENT, "time by task", "ns", Kind::Duration)
    .by_number("thread")
    .by_label("event");
/// How long an event was to be counted, of all its CPUs and tasks.
pub const ENABLED: Declared =
    Declared::new(INSTRUMENT, "enabled", "ns", Kind::Duration).by_label("event");
/// How long it was: less if there were more events than counters.
pub const RUNNING: Declared =
    Declared::new(INSTRUMENT, "running", "ns", Kind::Duration).by_label("event");

/// The counted quantities, in a table of their own.
pub const COUNTED: [&Declared; 4] = [&COUNT, &TIME, &TASK_COUNT, &TASK_TIME];
/// The key of what counts are broken down by, in [`Recording::environment`](crate::recording::Recording).
pub const BROKEN_DOWN: &str = "events.by";
/// The call graph of who caused them.
pub const CALLERS: Declared =
    Declared::new(INSTRUMENT, "callers", "events", Kind::Count).of_events();

words! {
    /// A subsystem to look at.
    Focus, "focus",
    /// Tasks: starting, switching, waking up, ending.
    Process = "process",
    /// Execution by CPUs.
    Cpu = "cpu",
    /// Pages, caches and allocations.
    Memory = "memory",
    /// Requests of block devices.
    Block = "block",
    /// The page cache, readahead, writeback and file systems.
    Filesystem = "filesystem",
    /// Packets and sockets.
    Network = "network",
    /// Interrupts, softirqs and timers.
    Interrupt = "interrupt",
}

words! {
    /// The breakdown of counts.
    By, "breakdown",
    /// CPUs.
    Cpu = "cpu",
    /// Tasks: the threads of one name.
    Task = "task",
    /// The kernel layer of the code that caused it.
    Layer = "layer",
    /// The call graph of who caused it.
    Stack = "stack",
}

words! {
    /// Whose events are counted, unless the filter names a process or a cgroup.
    #[derive(Default)]
    Whose, "scope of events",
    /// Events of all CPUs.
    #[default]
    All = "all",
    /// Events of programs that this process starts from now on, each from its exec.
    Started = "started",
    /// Events of this thread and the threads that it starts.
    Own = "own",
}

/// The settings of an instrument that counts events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsSpec {
    /// Names, as typed.
    pub names: Vec<String>,
    /// Whose.
    pub whose: Whose,
    /// The directory of the cgroup, if the filter names one.
    pub cgroup: Option<String>,
    /// The breakdown of counts.
    pub by: Option<By>,
}

/// The events to count, in an experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Events {
    /// Names, globs of tracepoints, and functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// All declared events of these subsystems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub focus: Vec<Focus>,
    /// Ratios of two events, like `page-faults/task-clock`: both are counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<String>,
    /// The breakdown of counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

impl Events {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        *self == Events::default()
    }

    /// The names of all events to count, each once: focuses, named events and the terms of ratios; without any, the
    /// default ones.
    pub fn all(&self) -> Vec<String> {
        let focus = self.focus.iter();
        let of_focus = focus.flat_map(|focus| EVENTS.iter().filter(|e| e.focus == *focus));
        let mut all: Vec<String> = of_focus.map(|event| event.name.to_string()).collect();
        all.extend(self.names.iter().cloned());
        let ratios = self.ratios.iter().filter_map(|text| Ratio::parse(text).ok());
        all.extend(ratios.flat_map(|ratio| [ratio.over, ratio.under]));
        if all.is_empty() {
            all.extend((EVENTS.iter().filter(|e| e.default)).map(|e| e.name.to_string()));
        }
        let mut once: Vec<String> = Vec::new();
        for name in all {
            let name = find(&name).map_or(name, |event| event.name.to_string());
            if !once.contains(&name) {
                once.push(name);
            }
        }
        once
    }

    /// Check how names are written; whether this kernel has them is found out when they are opened.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for text in &self.ratios {
            Ratio::parse(text).map_err(|why| ("ratios", why.to_string()))?;
        }
        for name in &self.names {
            match EventRequest::parse(name) {
                // Among others it is a row with the reason.
                Ok(_) | Err(NameError::Unknown { .. }) => {}
                Err(why) => return Err(("names", why.to_string())),
            }
        }
        Ok(())
    }
}

/// Why counts of a command, a process or plumb's own threads have no breakdown by task, and what has.
pub const NOT_BY_TASK: &str = "by task, events of all CPUs or of a cgroup are counted: the counters of a command or a process \
                               are of all its tasks together; leave it out and use --by task alone, or with --cgroup";

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names of focuses, lists and ratios are counted once each, aliases as what they stand
    /// for, and that there is a default.
    #[test]
    fn all_of_them() {
        let events = Events {
            names: vec!["faults".into(), "block:*".into(), "page-faults".into()],
            focus: vec![Focus::Process],
            ratios: vec!["page-faults/cs".into()],
            by: None,
        };
        let all = events.all();
        assert_eq!(all.iter().filter(|name| *name == "page-faults").count(), 1);
        assert_eq!(all.iter().filter(|name| *name == "context-switches").count(), 1);
        assert!(all.contains(&"sched:sched_process_exec".into()));
        assert!(all.contains(&"block:*".into()));
        assert!(events.check().is_ok());
        let default = Events::default().all();
        assert_eq!(default.first().map(String::as_str), Some("task-clock"));
        assert!(default.contains(&"page-faults".into()));
    }

    /// Check that impossible names are refused, with the key, and names that are merely unknown are not.
    #[test]
    fn checked() {
        let of = |names: &[&str], ratios: &[&str]| Events {
            names: names.iter().map(|n| (*n).to_string()).collect(),
            ratios: ratios.iter().map(|n| (*n).to_string()).collect(),
            ..Events::default()
        };
        assert!(of(&["page-fualts"], &[]).check().is_ok());
        assert_eq!(of(&["cycles:x"], &[]).check().unwrap_err().0, "names");
        assert_eq!(of(&[], &["cycles"]).check().unwrap_err().0, "ratios");
    }

    /// Check that what perf counts in nanoseconds is known to be a time, and that other tracepoints are not.
    #[test]
    fn times() {
        for (name, is) in [
            ("task-clock", true),
            ("sched:sched_stat_runtime", true),
            ("sched:sched_stat_iowait", true),
            ("sched:sched_switch", false),
            ("page-faults", false),
        ] {
            assert_eq!(is_time(name), is, "{name}");
        }
    }
}
