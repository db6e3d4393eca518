//! Time from one event to the next, of anything that events are about: requests of disks, packets, tasks. Here are the
//! quantities, their keys and the names of stages.

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::events::{EventRequest, NameError};
use crate::quantity::{Declared, Kind};
use crate::span::{Buckets, StageKind, Times};
use crate::text::{counted, nanoseconds};

/// The instrument that measures the time between events, as recordings name it.
pub const INSTRUMENT: &str = "spans";
/// Events of a span, at most: `SPANS_EVENTS` of spans.h.
pub const MAX_EVENTS: usize = 8;

/// Time from the first event to the last, and its stages.
pub const TIME: Declared = Declared::new(INSTRUMENT, "time", "ns", Kind::Duration);
/// The same by the stack of who caused the first event.
pub const STACKS: Declared = Declared::new(INSTRUMENT, "stacks", "ns", Kind::Duration).of_times();
/// The slow spans.
pub const SLOW: Declared = Declared::new(INSTRUMENT, "slow", "ns", Kind::Duration).of_times();
/// The minimum number of spans before a share of them defines what is slow.
pub const ENOUGH: u64 = 100;
/// How long one has to take to be slow; missing where that is a share and [`ENOUGH`] never ended.
pub const THRESHOLD: Declared = Declared::new(INSTRUMENT, "threshold", "ns", Kind::Duration);
/// How often each event was seen, whoever caused it.
pub const SEEN: Declared =
    Declared::new(INSTRUMENT, "seen", "events", Kind::Count).by_label("event");
/// First events of requested spans.
pub const BEGUN: Declared = Declared::new(INSTRUMENT, "begun", "spans", Kind::Count);
/// Those that reached the last event.
pub const ENDED: Declared = Declared::new(INSTRUMENT, "ended", "spans", Kind::Count);
/// Those that had not when measuring ended: of windows that follow each other, after the last one.
pub const OPEN: Declared = Declared::new(INSTRUMENT, "open", "spans", Kind::Count);
/// Those that never will, by cause.
pub const UNMATCHED: Declared =
    Declared::new(INSTRUMENT, "unmatched", "spans", Kind::Count).by_label("cause");
/// Events that belong to nothing that had begun, by cause: in no other figure.
pub const APART: Declared =
    Declared::new(INSTRUMENT, "apart", "events", Kind::Count).by_label("cause");
/// Run time of the programs.
pub const PROGRAMS: Declared = Declared::new(INSTRUMENT, "programs", "ns", Kind::Duration);
/// How often they ran.
pub const RUNS: Declared = Declared::new(INSTRUMENT, "runs", "runs", Kind::Count);

/// All quantities, the distribution of times first.
pub const QUANTITIES: &[Declared] =
    &[TIME, STACKS, SLOW, THRESHOLD, SEEN, BEGUN, ENDED, OPEN, UNMATCHED, APART, PROGRAMS, RUNS];

/// The cause of [`UNMATCHED`] spans whose first event came again.
pub const BEGUN_AGAIN: &str = "begun again before the end";
/// The cause of spans for which the table had no room.
pub const NO_ROOM: &str = "no room in the table";
/// The cause of calls nested too deep within the same function: `SPANS_DEPTH` of spans.h.
pub const TOO_DEEP: &str = "nested more than 1,024 deep";
/// The cause of last events [`APART`].
pub const NOT_BEGUN: &str = "ended, not begun";
/// The cause of events between, without a first one.
pub const BETWEEN_NOT_BEGUN: &str = "between, not begun";
/// The cause of events that came a second time, or after a later one: the first time counts.
pub const OUT_OF_ORDER: &str = "repeated, or out of order";

words! {
    /// The breakdown of times.
    By, "breakdown",
    /// The stack of who caused the first event.
    Stack = "stack",
    /// The name of the task that was running at the first event.
    Task = "task",
    /// The disk or the network device.
    Device = "device",
    /// The CPU of the first event.
    Cpu = "cpu",
}

words! {
    /// Events that are often paired, with their keys.
    Preset, "preset",
    /// A request at its disk, from issue to completion.
    Disk = "disk",
    /// The same and its wait in the scheduler's queue before, if the disk has a scheduler.
    DiskQueue = "disk-queue",
    /// A task that was woken up until it runs.
    Runqueue = "runqueue",
    /// A task that does not run, until it runs again.
    OffCpu = "off-cpu",
    /// Work that was queued until it runs, and until it is done.
    Workqueue = "workqueue",
    /// A packet in its qdisc, and in the driver until it has taken it.
    Qdisc = "qdisc",
}

impl Preset {
    /// Its events and their keys.
    pub fn parts(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Preset::Disk => (&["block:block_rq_issue", "block:block_rq_complete"], &["request"]),
            Preset::DiskQueue => (
                &["block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete"],
                &["request"],
            ),
            Preset::Runqueue => (&["sched:sched_wakeup", "sched:sched_switch"], &["task"]),
            Preset::OffCpu => (&["sched:sched_switch", "sched:sched_switch"], &["prev", "next"]),
            Preset::Workqueue => (
                &[
                    "workqueue:workqueue_activate_work",
                    "workqueue:workqueue_execute_start",
                    "workqueue:workqueue_execute_end",
                ],
                &["work_struct"],
            ),
            Preset::Qdisc => {
                (&["net:net_dev_queue", "net:net_dev_start_xmit", "net:net_dev_xmit"], &["skb"])
            }
        }
    }
}

impl Preset {
    /// The kinds of its stages, where names of events don't show them: between switches a task may run or wait.
    pub fn kinds(self) -> &'static [StageKind] {
        match self {
            Preset::OffCpu => &[StageKind::Wait],
            _ => &[],
        }
    }
}

/// The definition of slow spans.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Slow {
    /// Spans longer than this share of all that ended before.
    Share(f64),
    /// Spans longer than this.
    Ns(u64),
}

impl std::fmt::Display for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Slow::Share(share) => write!(f, "p{}", (share * 1e6).round() / 1e4),
            Slow::Ns(ns) => write!(f, "{ns}ns"),
        }
    }
}

impl std::str::FromStr for Slow {
    type Err = String;

    fn from_str(text: &str) -> Result<Slow, String> {
        let wrong = || format!("invalid threshold `{text}`; expected like p99 or 10ms");
        if let Some(percent) = text.strip_prefix('p') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            return match percent > 0.0 && percent < 100.0 {
                true => Ok(Slow::Share(percent / 100.0)),
                false => Err(wrong()),
            };
        }
        let ns = nanoseconds(text).ok_or_else(wrong)?;
        match (1.0..=1e18).contains(&ns) {
            true => Ok(Slow::Ns(ns as u64)),
            false => Err(wrong()),
        }
    }
}

/// The spans to measure, in an experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spans {
    /// Events and keys by name, in place of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// The events, the first one first: two or more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The key that matches an event with a first one: one for all events, or one for each; by default what they have
    /// in common.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Whether a stage is work or a wait, one for each, where it is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<StageKind>,
    /// The breakdown of times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// From when on one is slow, like `p99` or `10ms`: these have a call graph of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<String>,
}

impl Spans {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        *self == Spans::default()
    }

    /// With the events, keys and kinds of its preset.
    pub fn whole(&self) -> Spans {
        let mut whole = self.clone();
        if let Some(preset) = whole.preset.take() {
            let (events, key) = preset.parts();
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect();
            whole.events = owned(events);
            whole.key = owned(key);
            if whole.kinds.is_empty() {
                whole.kinds = preset.kinds().to_vec();
            }
        }
        whole
    }

    /// Check what can be checked without a kernel.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(preset) = self.preset {
            if !(self.events.is_empty() && self.key.is_empty()) {
                let why = format!("preset {preset} has events and keys; leave out these");
                return Err(("preset", why));
            }
            return self.whole().check();
        }
        let count = self.events.len();
        if !(2..=MAX_EVENTS).contains(&count) {
            let why =
                format!("expected 2 to {MAX_EVENTS} events, the first one first, not {count}");
            return Err(("events", why));
        }
        for name in &self.events {
            event(name).map_err(|why| ("events", why))?;
        }
        let keys = self.key.len();
        if ![0, 1, count].contains(&keys) {
            let why =
                format!("{keys} keys for {count} events; expected one for all, or one for each");
            return Err(("key", why));
        }
        let is_block = |name: &String| name.starts_with("block:");
        let of_place = |key: &&String| ["dev", "sector", "nr_sector"].contains(&key.as_str());
        if let Some(key) = self.key.iter().find(of_place)
            && self.events.iter().any(is_block)
        {
            let why = format!(
                "requests can't be told apart by {key}: they are merged and split, and sectors are \
                 used again, so wrong events would be paired; use --key request"
            );
            return Err(("key", why));
        }
        let kinds = self.kinds.len();
        if kinds != 0 && kinds != count - 1 {
            let why = format!(
                "{} for {}; expected one for each",
                counted(kinds, "kind"),
                counted(count - 1, "stage")
            );
            return Err(("kinds", why));
        }
        let fits = |kind: &StageKind| matches!(kind, StageKind::Work | StageKind::Wait);
        if let Some(kind) = self.kinds.iter().find(|kind| !fits(kind)) {
            return Err(("kinds", format!("invalid kind `{kind}`; expected work or wait")));
        }
        if let Some(slow) = &self.slow {
            slow.parse::<Slow>().map_err(|why| ("slow", why))?;
            if self.by.is_some_and(|by| by != By::Stack) {
                let why = "slow ones are shown by stack; leave out the other breakdown";
                return Err(("slow", why.into()));
            }
        }
        Ok(())
    }

    /// As an instrument needs it.
    pub fn spec(&self, children: bool) -> SpansSpec {
        let whole = self.whole();
        let slow = whole.slow.as_ref().and_then(|slow| slow.parse().ok());
        SpansSpec {
            events: whole.events,
            key: whole.key,
            kinds: whole.kinds,
            by: whole.by.or(slow.map(|_| By::Stack)),
            slow,
            children,
        }
    }
}

/// The settings of the instrument.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SpansSpec {
    /// The events, the first one first.
    pub events: Vec<String>,
    /// Their keys: none for the common one, one for all, or one for each.
    pub key: Vec<String>,
    /// The kinds of the stages, or none.
    pub kinds: Vec<StageKind>,
    /// The breakdown of times.
    pub by: Option<By>,
    /// The definition of slow spans.
    pub slow: Option<Slow>,
    /// Only what processes begin that this one starts from now on.
    pub children: bool,
}

/// An event of a span, by its name.
///
/// # Errors
/// The event is unknown, or no program can be attached to it.
pub fn event(name: &str) -> Result<EventRequest, String> {
    match EventRequest::parse(name) {
        Ok(EventRequest::Tracepoint(subsystem, of))
            if [&subsystem, &of].iter().any(|w| w.contains(['*', '?'])) =>
        {
            Err(format!("`{name}` may be several events; expected one, like block:block_rq_issue"))
        }
        Ok(
            asked @ (EventRequest::Tracepoint(..)
            | EventRequest::Kernel { .. }
            | EventRequest::User { .. }),
        ) => Ok(asked),
        Ok(_) => Err(format!(
            "`{name}` is a counter, which has no moment; expected a tracepoint (block:block_rq_issue), \
             fentry:FUNCTION, kprobe:FUNCTION, or uprobe:FILE:FUNCTION"
        )),
        // Whether a kernel has it is only found out there.
        Err(NameError::Unknown { name, meant }) => Err(match meant {
            Some(meant) => format!("no such event `{name}`; did you mean `{meant}`?"),
            None => format!(
                "no such event `{name}`; expected a tracepoint (block:block_rq_issue), \
                 fentry:FUNCTION, kprobe:FUNCTION, or uprobe:FILE:FUNCTION"
            ),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// The last part of an event's name.
pub fn short(event: &str) -> &str {
    event.rsplit_once(':').map_or(event, |(_, last)| last)
}

/// A stage that has a name: between these events, the next one being the second.
#[derive(Debug, Clone, Copy)]
struct NamedStage {
    from: &'static str,
    to: &'static str,
    kind: StageKind,
}

/// Whether a stage is work or a wait. A stage of a syscall, or of a function, may be either.
const KNOWN: &[NamedStage] = &[
    known("block:block_getrq", "block:block_rq_insert", StageKind::Work),
    known("block:block_bio_queue", "block:block_rq_insert", StageKind::Work),
    known("block:block_bio_queue", "block:block_getrq", StageKind::Wait),
    known("block:block_rq_insert", "block:block_rq_issue", StageKind::Wait),
    known("block:block_getrq", "block:block_rq_issue", StageKind::Wait),
    known("block:block_rq_issue", "block:block_rq_complete", StageKind::Wait),
    known("block:block_rq_insert", "block:block_rq_complete", StageKind::Wait),
    known("block:block_io_start", "block:block_io_done", StageKind::Wait),
    known("sched:sched_waking", "sched:sched_wakeup", StageKind::Work),
    known("sched:sched_waking", "sched:sched_switch", StageKind::Wait),
    known("sched:sched_wakeup", "sched:sched_switch", StageKind::Wait),
    known("irq:irq_handler_entry", "irq:irq_handler_exit", StageKind::Work),
    known("irq:softirq_raise", "irq:softirq_entry", StageKind::Wait),
    known("irq:softirq_entry", "irq:softirq_exit", StageKind::Work),
    known("timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit", StageKind::Work),
    known("timer:timer_expire_entry", "timer:timer_expire_exit", StageKind::Work),
    known("workqueue:workqueue_queue_work", "workqueue:workqueue_execute_start", StageKind::Wait),
    known(
        "workqueue:workqueue_activate_work",
        "workqueue:workqueue_execute_start",
        StageKind::Wait,
    ),
    known("workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end", StageKind::Work),
    known("net:net_dev_queue", "net:net_dev_start_xmit", StageKind::Wait),
    known("net:net_dev_start_xmit", "net:net_dev_xmit", StageKind::Work),
    known("net:netif_rx", "net:netif_receive_skb", StageKind::Wait),
    known("qdisc:qdisc_enqueue", "qdisc:qdisc_dequeue", StageKind::Wait),
    known("syscalls:sys_enter_nanosleep", "syscalls:sys_exit_nanosleep", StageKind::Wait),
    known(
        "syscalls:sys_enter_clock_nanosleep",
        "syscalls:sys_exit_clock_nanosleep",
        StageKind::Wait,
    ),
    known("lock:contention_begin", "lock:contention_end", StageKind::Wait),
];

const fn known(from: &'static str, to: &'static str, kind: StageKind) -> NamedStage {
    NamedStage { from, to, kind }
}

/// Whether the time from one event to the next is work or a wait, by declaration.
pub fn kind_of(from: &str, to: &str) -> StageKind {
    let is = |known: &&NamedStage| known.from == from && known.to == to;
    KNOWN.iter().find(is).map_or(StageKind::Either, |known| known.kind)
}

/// The times of all that one breakdown has in common: a device, a task, a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The kind of breakdown.
    pub by: By,
    /// The device, task or CPU.
    pub name: String,
    /// From the first event to the last.
    pub times: Times,
}

/// The times of all that ended in a while, for a picture over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// When it began, since the first window did.
    pub begin_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// From the first event to the last: buckets of [`Times`], four together under the number of the
    /// first.
    pub buckets: Buckets,
}

/// Buckets that a slice has as one.
pub const COARSE: u16 = 4;

/// As a slice has them.
pub fn coarse(buckets: &Buckets) -> Buckets {
    let mut all: Buckets = Vec::new();
    for (bucket, count) in buckets {
        let first = bucket / COARSE * COARSE;
        match all.last_mut() {
            Some((last, sum)) if *last == first => *sum += count,
            _ => all.push((first, *count)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(events: &[&str], key: &[&str]) -> Spans {
        let all = |names: &[&str]| names.iter().map(|n| (*n).to_string()).collect();
        Spans { events: all(events), key: all(key), ..Spans::default() }
    }

    const BLOCK: [&str; 2] = ["block:block_rq_issue", "block:block_rq_complete"];

    /// Check that what can't be paired is refused, with the key and what to write.
    #[test]
    fn refused() {
        let of = |events: &[&str], key: &[&str]| spans(events, key).check().unwrap_err();
        assert!(spans(&BLOCK, &[]).check().is_ok());
        assert!(spans(&BLOCK, &["request"]).check().is_ok());
        assert!(spans(&BLOCK, &["request", "rq"]).check().is_ok());
        assert_eq!(of(&BLOCK[..1], &[]).0, "events");
        assert_eq!(of(&["page-faults", "block:block_rq_issue"], &[]).0, "events");
        assert!(of(&["block:*", "block:block_rq_issue"], &[]).1.contains("several events"));
        let wrong = of(&["block_rq_isue", "block:block_rq_complete"], &[]).1;
        assert!(wrong.contains("did you mean `block:block_rq_issue`?"), "{wrong}");
        assert_eq!(of(&BLOCK, &["a", "b", "c"]).0, "key");
        for key in [&["sector"][..], &["dev", "sector"]] {
            let (of, why) = of(&BLOCK, key);
            assert!(of == "key" && why.contains("--key request"), "{why}");
        }
        let mut slow = spans(&BLOCK, &[]);
        slow.slow = Some("p100".into());
        assert_eq!(slow.check().unwrap_err().0, "slow");
        slow.slow = Some("p99".into());
        assert!(slow.check().is_ok());
        assert_eq!(slow.spec(false).by, Some(By::Stack));
        slow.by = Some(By::Cpu);
        assert_eq!(slow.check().unwrap_err().0, "slow");
        let mut kinds = spans(&BLOCK, &[]);
        kinds.kinds = vec![StageKind::Total];
        assert_eq!(kinds.check().unwrap_err().0, "kinds");
        kinds.kinds = vec![StageKind::Work, StageKind::Wait];
        let wrong = kinds.check().unwrap_err();
        assert_eq!(wrong, ("kinds", "2 kinds for 1 stage; expected one for each".into()));
    }

    /// Check that each preset is one that may be written out, and that it is not mixed with others.
    #[test]
    fn presets() {
        for preset in Preset::ALL {
            let mut spans = Spans { preset: Some(*preset), ..Spans::default() };
            assert_eq!(spans.check(), Ok(()), "{preset}");
            assert_eq!(spans.whole().check(), Ok(()), "{preset}");
            assert!(spans.spec(false).events.len() >= 2);
            let whole = spans.whole();
            for (n, pair) in whole.events.windows(2).enumerate() {
                let declared = whole.kinds.get(n).copied();
                let kind = declared.unwrap_or_else(|| kind_of(&pair[0], &pair[1]));
                assert_ne!(kind, StageKind::Either, "{preset}: {pair:?}");
            }
            spans.events = vec![BLOCK[0].into()];
            assert_eq!(spans.check().unwrap_err().0, "preset");
        }
    }

    /// Check thresholds: shares, times, and how they are written.
    #[test]
    fn thresholds() {
        assert_eq!("p99.9".parse::<Slow>().map(|s| s.to_string()), Ok("p99.9".into()));
        assert_eq!("10ms".parse(), Ok(Slow::Ns(10_000_000)));
        assert_eq!("250us".parse(), Ok(Slow::Ns(250_000)));
        for wrong in ["", "p", "p0", "p100", "px", "10"] {
            assert!(wrong.parse::<Slow>().is_err(), "{wrong}");
        }
    }

    /// Check that stages which are declared are named as events are, and that others are either.
    #[test]
    fn kinds() {
        assert_eq!(kind_of(BLOCK[0], BLOCK[1]), StageKind::Wait);
        assert_eq!(kind_of(BLOCK[1], BLOCK[0]), StageKind::Either);
        assert_eq!(short("uprobe:/lib/x.so:f"), "f");
    }

    /// Check that slices lose no time, only detail.
    #[test]
    fn slices() {
        let fine = vec![(3, 1), (4, 2), (7, 3), (8, 4)];
        assert_eq!(coarse(&fine), [(0, 1), (4, 5), (8, 4)]);
    }
}
