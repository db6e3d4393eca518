//! What the events of a span are on this kernel, and what they are about.

use std::collections::BTreeSet;

use netplumb_model::events::{EventRequest, nearest};
use netplumb_model::span::StageKind;
use netplumb_model::spans::{self, By, MAX_EVENTS, SpansSpec};
use netplumb_sys::bpf::signatures::{Argument, Signatures};

use super::layout::{
    BY_BIO, BY_CPU, BY_NOTHING, BY_REQUEST, BY_SKB, BY_STACK, BY_TASK, Event, KEY_ARGUMENT,
    KEY_CPU, KEY_FIELD, KEY_RETURNED, KEY_TASK,
};
use crate::events::format::{Field, fields};
use crate::events::resolve::{self, Resolved, Tracepoints};
use crate::live::LiveError;

/// Objects that go from event to event; the first one that all events have is the key.
const GOES_ON: &[&str] = &[
    "request",
    "bio",
    "sk_buff",
    "urb",
    "scsi_cmnd",
    "work_struct",
    "hrtimer",
    "timer_list",
    "task_struct",
    "sock",
    "folio",
    "page",
    "inode",
    "file",
];
/// Other names of structures.
const ALSO: &[(&str, &str)] = &[("skb", "sk_buff"), ("bio", "bio"), ("rq", "request")];
const TASK: &str = "task_struct";
/// The task that a tracepoint with two is about: `sched_switch` has both.
const SWITCHED_TO: &str = "next";
/// Arguments in registers.
const REGISTERS: usize = 6;
/// Arguments of a tracepoint that can be read.
const MOST_ARGUMENTS: usize = 12;
/// Tracepoints of system calls, which are not raw ones: their records are made at another tracepoint.
const SYSCALLS: &str = "syscalls";

/// How an event is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// A tracepoint by its name, with the kernel's arguments.
    Raw(String),
    /// A tracepoint, with the record made of the kernel's arguments.
    Record,
    /// A function, by a probe in it.
    Function,
    /// A function of the kernel, by a trampoline: its entry, or its exit.
    Trampoline { function: String, exit: bool },
}

/// An event, as this kernel has it.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) resolved: Resolved,
    pub(super) how: How,
    pub(super) key: Event,
    /// The key's name, as an argument, a field or a type.
    key_name: String,
    /// The structure that the key points to.
    points_to: Option<String>,
    arguments: Vec<Argument>,
    fields: Vec<Field>,
}

/// What is measured.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) events: Vec<Planned>,
    /// `SPANS_BY_*`.
    pub(super) by: u32,
    /// The name of each event's label in tables.
    labels: Vec<String>,
    kinds: Vec<StageKind>,
}

impl Plan {
    /// Look up the events and their keys.
    ///
    /// # Errors
    /// The event is unknown, or lacks the key.
    pub(super) fn from_spec(asked: &SpansSpec, trampolines: bool) -> Result<Plan, LiveError> {
        let count = asked.events.len();
        if !(2..=MAX_EVENTS).contains(&count) {
            return Err(LiveError::Asked(format!("{count} events; expected 2 to {MAX_EVENTS}")));
        }
        let mut signatures = Signatures::load().map_err(LiveError::programs(spans::INSTRUMENT))?;
        let mut tracepoints = Tracepoints::new();
        let mut events = Vec::new();
        for name in &asked.events {
            let planned = Planned::new(name, trampolines, &mut tracepoints, &mut signatures);
            events.push(planned?);
        }
        let default;
        let keys: Vec<&str> = match &asked.key[..] {
            [] => {
                default = in_common(&events);
                vec![default.as_str(); count]
            }
            [one] => vec![one.as_str(); count],
            each => each.iter().map(String::as_str).collect(),
        };
        for (event, key) in events.iter_mut().zip(keys) {
            event.choose(key)?;
        }
        let by = breakdown(asked.by, &events[0])?;
        let labels = labels(&events);
        let kinds = match asked.kinds.len() == count - 1 {
            true => asked.kinds.clone(),
            false => Vec::new(),
        };
        Ok(Plan { events, by, labels, kinds })
    }

    /// The name of the stage from one event to another.
    pub(super) fn stage(&self, from: usize, to: usize) -> String {
        format!("{} → {}", self.labels[from], self.labels[to])
    }

    /// Whether it is work or a wait: as the stages that it is made of, or as declared.
    pub(super) fn kind(&self, from: usize, to: usize) -> StageKind {
        let kinds = self.kinds.get(from..to).unwrap_or_default();
        match kinds {
            [first, rest @ ..] if rest.iter().all(|kind| kind == first) => *first,
            [_, ..] => StageKind::Either,
            [] => {
                let name = |n: usize| self.events[n].resolved.name.as_str();
                spans::kind_of(name(from), name(to))
            }
        }
    }

    /// Functions that are attached to by trampolines, which the kernel may lack.
    pub(super) fn trampolines(&self) -> Vec<&str> {
        let events = self.events.iter();
        let by = events.filter(|event| matches!(event.how, How::Trampoline { .. }));
        by.map(|event| event.resolved.name.as_str()).collect()
    }

    /// The name of an event, as asked for.
    pub(super) fn name(&self, event: usize) -> &str {
        &self.events[event].resolved.name
    }

    /// Whether the first event is about a task, which need not be the one that runs: a wake-up is about
    /// who is woken up.
    pub(super) fn is_about_task(&self) -> bool {
        let first = &self.events[0];
        let is_argument = first.key.key == KEY_ARGUMENT as u32;
        is_argument && first.points_to.as_deref() == Some(TASK)
    }

    /// Whether the first and last event are calls of a function and its returns, by the task that makes them:
    /// a nested call does not begin the outer one again.
    pub(super) fn nests(&self) -> bool {
        let [first, .., last] = &self.events[..] else {
            return false;
        };
        let called = |event: &Planned| match &event.resolved.asked {
            EventRequest::Kernel { function, .. } => Some((None, function.clone())),
            EventRequest::User { file, function, .. } => {
                Some((Some(file.clone()), function.clone()))
            }
            _ => None,
        };
        let is_of_task = |event: &Planned| event.key.key == KEY_TASK as u32;
        !first.returns()
            && last.returns()
            && called(first) == called(last)
            && is_of_task(first)
            && is_of_task(last)
    }

    /// What events are paired by, in words.
    pub(super) fn keys(&self) -> String {
        let mut names: Vec<&str> = self.events.iter().map(|e| e.key_name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }
}

/// Names of events in names of stages: short, if that distinguishes them.
fn labels(events: &[Planned]) -> Vec<String> {
    let short = |event: &Planned| {
        let name = spans::short(&event.resolved.name);
        match &event.resolved.asked {
            EventRequest::Kernel { returns: true, .. }
            | EventRequest::User { returns: true, .. } => {
                format!("{name} returns")
            }
            _ => name.to_string(),
        }
    };
    let long = |event: &Planned| event.resolved.name.clone();
    let keyed = |event: &Planned| format!("{}({})", short(event), event.key_name);
    let are_different = |names: &[String]| {
        let set: BTreeSet<&String> = names.iter().collect();
        set.len() == names.len()
    };
    let each = |of: &dyn Fn(&Planned) -> String| events.iter().map(of).collect::<Vec<_>>();
    [each(&short), each(&long), each(&keyed)]
        .into_iter()
        .find(|names| are_different(names))
        .unwrap_or_else(|| {
            let numbered = each(&short).into_iter().zip(1..);
            numbered.map(|(name, n)| format!("{n}. {name}")).collect()
        })
}

/// The key that all events have in common, by the types of their arguments; else the running task.
fn in_common(events: &[Planned]) -> String {
    let has = |event: &Planned, what: &str| {
        let points = |argument: &Argument| argument.points_to.as_deref() == Some(what);
        event.arguments.iter().any(points)
    };
    let all_have = |what: &&&str| events.iter().all(|event| has(event, what));
    // A call is keyed by its task, whatever it is about.
    let function = |event: &Planned| match &event.resolved.asked {
        EventRequest::Kernel { function, .. } => Some(function.clone()),
        _ => None,
    };
    let called: BTreeSet<Option<String>> = events.iter().map(function).collect();
    if called.len() == 1 && !called.contains(&None) {
        return "task".into();
    }
    let found = GOES_ON.iter().find(all_have).copied();
    match found {
        None | Some(TASK) => "task".into(),
        Some(what) => what.into(),
    }
}

/// Whether a field is a number, which a key is.
fn is_number(field: &Field) -> bool {
    !field.elsewhere && [1, 2, 4, 8].contains(&field.bytes)
}

fn breakdown(by: Option<By>, first: &Planned) -> Result<u32, LiveError> {
    Ok(match by {
        None => BY_NOTHING,
        Some(By::Stack) => BY_STACK,
        Some(By::Task) => BY_TASK,
        Some(By::Cpu) => BY_CPU,
        Some(By::Device) => match first.points_to.as_deref() {
            Some("request") => BY_REQUEST,
            Some("bio") => BY_BIO,
            Some("sk_buff") => BY_SKB,
            _ => {
                return Err(LiveError::Asked(format!(
                    "--by device: the key of `{}` is {}, which names no device; it needs a \
                     request, a bio or an skb",
                    first.resolved.name, first.key_name
                )));
            }
        },
    } as u32)
}

impl Planned {
    fn new(
        name: &str,
        trampolines: bool,
        tracepoints: &mut Tracepoints,
        signatures: &mut Signatures,
    ) -> Result<Planned, LiveError> {
        let asked = spans::event(name).map_err(|why| {
            // A tracepoint without its subsystem may be one that only this kernel has.
            LiveError::Asked(why)
        })?;
        let found = resolve::one(name, asked.clone(), tracepoints);
        let by_itself = matches!(&asked, EventRequest::Kernel { trampoline, .. } if *trampoline);
        let mut found = match found {
            // Perf need not have it.
            Err(_) if by_itself && trampolines => vec![Resolved::named(name, asked.clone())],
            found => found.map_err(|refusal| match refusal.unknown {
                true => LiveError::Asked(format!("`{name}`: {}", refusal.why())),
                false => LiveError::CannotRun {
                    reason: format!("can't attach to `{name}`"),
                    remedy: refusal.why(),
                },
            })?,
        };
        let resolved =
            found.pop().ok_or_else(|| LiveError::Asked(format!("`{name}` is no event")))?;
        let (arguments, fields, how) = match &asked {
            EventRequest::Tracepoint(subsystem, of) => {
                let format = tracepoints.format(subsystem, of).unwrap_or_default();
                let arguments = match subsystem == SYSCALLS {
                    true => None,
                    false => signatures.tracepoint(of),
                };
                let how = match &arguments {
                    Some(_) => How::Raw(of.clone()),
                    None => How::Record,
                };
                (arguments.unwrap_or_default(), fields(&format), how)
            }
            EventRequest::Kernel { function, returns, trampoline } => {
                let arguments = signatures.function(function);
                let trampoline = *trampoline && trampolines && arguments.is_some();
                let how = match trampoline {
                    true => How::Trampoline { function: function.clone(), exit: *returns },
                    false => How::Function,
                };
                // At the return registers have other values.
                let arguments = arguments.filter(|_| trampoline || !returns);
                (arguments.unwrap_or_default(), Vec::new(), how)
            }
            _ => (Vec::new(), Vec::new(), How::Function),
        };
        Ok(Planned {
            resolved,
            how,
            key: Event::default(),
            key_name: String::new(),
            points_to: None,
            arguments,
            fields,
        })
    }

    /// Whether the program that was attached first runs first, as at tracepoints. Probes and
    /// trampolines are lists to whose head the last one is added (add_new_kprobe(), consumer_add(),
    /// __bpf_trampoline_link_prog()). A return is handled in the opposite order to the call
    /// (rethook_trampoline_handler()).
    pub(super) fn runs_in_order(&self) -> bool {
        match self.how {
            How::Raw(_) | How::Record => true,
            How::Trampoline { .. } => false,
            How::Function => {
                matches!(self.resolved.asked, EventRequest::Kernel { returns: true, .. })
            }
        }
    }

    fn returns(&self) -> bool {
        matches!(
            self.resolved.asked,
            EventRequest::Kernel { returns: true, .. } | EventRequest::User { returns: true, .. }
        )
    }

    /// Take a key.
    fn choose(&mut self, key: &str) -> Result<(), LiveError> {
        self.key_name = key.into();
        let is_plain = |kind: usize| Event { key: kind as u32, bytes: 8, ..Event::default() };
        if let Some(n) = self.argument(key) {
            let argument = self.arguments.get(n);
            self.points_to = argument.and_then(|a| a.points_to.clone());
            let most = match self.how {
                How::Raw(_) | How::Trampoline { .. } => MOST_ARGUMENTS,
                How::Record | How::Function => REGISTERS,
            };
            if n >= most {
                return Err(LiveError::Asked(format!(
                    "--key {key}: argument {n} of `{}` can't be read, only the first {most}",
                    self.resolved.name
                )));
            }
            self.key = Event {
                at: n as u32,
                bytes: argument.map_or(8, |a| u32::from(a.bytes)),
                ..is_plain(KEY_ARGUMENT)
            };
            return Ok(());
        }
        match key {
            "task" | "current" => {
                self.key = is_plain(KEY_TASK);
                return Ok(());
            }
            "cpu" => {
                self.key = is_plain(KEY_CPU);
                return Ok(());
            }
            "retval" if self.returns() => {
                // With a trampoline it comes after the arguments.
                let after = self.arguments.len();
                self.key = match self.how {
                    How::Trampoline { .. } if after >= MOST_ARGUMENTS => {
                        return Err(LiveError::Asked(format!(
                            "--key retval: `{}` has too many arguments for that; use kretprobe:",
                            self.resolved.name
                        )));
                    }
                    How::Trampoline { .. } => Event { at: after as u32, ..is_plain(KEY_ARGUMENT) },
                    _ => is_plain(KEY_RETURNED),
                };
                return Ok(());
            }
            _ => {}
        }
        if let Some(field) = self.fields.iter().find(|field| field.name == key) {
            if field.elsewhere {
                return Err(LiveError::Asked(format!(
                    "--key {key}: this field of `{}` is a text or an array of any length; a key is a \
                     number",
                    self.resolved.name
                )));
            }
            if !is_number(field) {
                return Err(LiveError::Asked(format!(
                    "--key {key}: this field of `{}` has {} bytes; a key is a number",
                    self.resolved.name, field.bytes
                )));
            }
            self.key = Event {
                key: KEY_FIELD as u32,
                at: field.at,
                bytes: field.bytes,
                ..Event::default()
            };
            self.how = How::Record;
            return Ok(());
        }
        Err(LiveError::Asked(self.has_no(key)))
    }

    /// The number of an argument by its name, its type, or its number.
    fn argument(&self, key: &str) -> Option<usize> {
        if key == "current" {
            return None;
        }
        let by = |is: &dyn Fn(&Argument) -> bool| self.arguments.iter().position(is);
        let is_key = |argument: &Argument| argument.bytes > 0;
        let named = by(&|argument| argument.name == key && is_key(argument));
        let also = ALSO.iter().find(|(also, _)| *also == key);
        let of = match key {
            "task" => TASK,
            _ => also.map_or(key, |(_, of)| of),
        };
        let points = |argument: &Argument| argument.points_to.as_deref() == Some(of);
        let typed = || {
            // When tasks are switched, the next one.
            let next = by(&|argument| points(argument) && argument.name == SWITCHED_TO);
            next.or_else(|| by(&points))
        };
        let numbered = || {
            let n: usize = key.strip_prefix("arg")?.parse().ok()?;
            let is_function = self.how == How::Function && !self.returns();
            let known = self.arguments.get(n).is_some_and(is_key);
            // How many a program's function has is not known.
            (known || is_function && self.arguments.is_empty()).then_some(n)
        };
        named.or_else(typed).or_else(numbered)
    }

    /// The error for a missing key, with the keys that it has.
    fn has_no(&self, key: &str) -> String {
        let mut has: Vec<String> = Vec::new();
        for argument in &self.arguments {
            match (&argument.points_to, argument.name.as_str()) {
                (Some(to), "") => has.push(to.clone()),
                (Some(to), name) => has.push(format!("{name} ({to})")),
                (None, "") => {}
                (None, name) if argument.bytes > 0 => has.push(name.into()),
                _ => {}
            }
        }
        let names = self.arguments.iter().map(|a| &a.name);
        let known: Vec<String> = names
            .chain(self.fields.iter().map(|field| &field.name))
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        for field in &self.fields {
            if is_number(field) && !self.arguments.iter().any(|a| a.name == field.name) {
                has.push(field.name.clone());
            }
        }
        if self.arguments.is_empty() && self.how == How::Function && !self.returns() {
            has.push("arg0 to arg5".into());
        }
        if self.returns() {
            has.push("retval".into());
        }
        has.extend(["task".into(), "cpu".into()]);
        let meant = nearest(key, known.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        format!(
            "--key {key}: `{}` has no such argument or field{meant}; it has {}",
            self.resolved.name,
            has.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::format::FORMAT;

    fn planned(name: &str, arguments: &[(&str, Option<&str>, u8)]) -> Planned {
        let asked = spans::event(name).unwrap();
        let how = match &asked {
            EventRequest::Tracepoint(_, of) => How::Raw(of.clone()),
            _ => How::Function,
        };
        let argument = |(name, to, bytes): &(&str, Option<&str>, u8)| Argument {
            name: (*name).into(),
            points_to: to.map(Into::into),
            bytes: *bytes,
        };
        Planned {
            resolved: Resolved::named(name, asked),
            how,
            key: Event::default(),
            key_name: String::new(),
            points_to: None,
            arguments: arguments.iter().map(argument).collect(),
            fields: fields(FORMAT),
        }
    }

    const SWITCH: &[(&str, Option<&str>, u8)] =
        &[("preempt", None, 1), ("prev", Some("task_struct"), 8), ("next", Some("task_struct"), 8)];

    /// Check the source of each kind of key, and that the default is the common key.
    #[test]
    fn keys() {
        let issue = || planned("block:block_rq_issue", &[("rq", Some("request"), 8)]);
        let complete = || {
            let all = [("rq", Some("request"), 8), ("error", None, 1), ("nr_bytes", None, 4)];
            planned("block:block_rq_complete", &all)
        };
        let switch = || planned("sched:sched_switch", SWITCH);
        assert_eq!(in_common(&[issue(), complete()]), "request");
        assert_eq!(in_common(&[switch(), switch()]), "task");
        assert_eq!(in_common(&[issue(), switch()]), "task");
        let of = |mut event: Planned, key: &str| {
            event.choose(key).unwrap();
            (event.key.key as usize, event.key.at, event.how)
        };
        let raw = |name: &str| How::Raw(name.into());
        assert_eq!(of(issue(), "request"), (KEY_ARGUMENT, 0, raw("block_rq_issue")));
        assert_eq!(of(complete(), "nr_bytes"), (KEY_ARGUMENT, 2, raw("block_rq_complete")));
        assert_eq!(of(switch(), "task"), (KEY_ARGUMENT, 2, raw("sched_switch")));
        assert_eq!(of(switch(), "prev"), (KEY_ARGUMENT, 1, raw("sched_switch")));
        assert_eq!(of(switch(), "current"), (KEY_TASK, 0, raw("sched_switch")));
        assert_eq!(of(issue(), "dev"), (KEY_FIELD, 8, How::Record));
        assert_eq!(of(issue(), "cpu"), (KEY_CPU, 0, raw("block_rq_issue")));
        let program = || planned("uprobe:/bin/x:f", &[]);
        assert_eq!(of(program(), "arg1"), (KEY_ARGUMENT, 1, How::Function));
        let back = || planned("uretprobe:/bin/x:f", &[]);
        assert_eq!(of(back(), "retval"), (KEY_RETURNED, 0, How::Function));
        for (mut event, key, has) in [
            (issue(), "sectr", "did you mean `sector`?"),
            (issue(), "foo", "rq (request), dev, sector, name, task, cpu"),
            (issue(), "rwbs", "has 10 bytes"),
            (issue(), "cmd", "a text or an array"),
            (issue(), "text", "a text or an array"),
            (back(), "arg0", "retval"),
            (program(), "foo", "arg0 to arg5"),
            (program(), "arg6", "only the first 6"),
        ] {
            let error = event.choose(key).unwrap_err().to_string();
            assert!(error.contains(has), "{error}");
        }
    }

    /// Check which events are about a task other than the running one.
    #[test]
    fn about_a_task() {
        let is_about = |key: &str| {
            let mut event = planned("sched:sched_switch", SWITCH);
            event.choose(key).unwrap();
            let plan = Plan { events: vec![event], by: 0, labels: Vec::new(), kinds: Vec::new() };
            plan.is_about_task()
        };
        assert!(is_about("task") && is_about("prev"));
        assert!(!is_about("current") && !is_about("cpu") && !is_about("preempt"));
    }

    /// Check that the names of stages distinguish events.
    #[test]
    fn names() {
        let named = |names: &[(&str, &str)]| {
            let each = |(name, key): &(&str, &str)| {
                let mut event = planned(name, SWITCH);
                event.choose(key).unwrap();
                event
            };
            let events: Vec<Planned> = names.iter().map(each).collect();
            labels(&events).join(" ")
        };
        assert_eq!(named(&[("block:a", "task"), ("block:b", "task")]), "a b");
        assert_eq!(named(&[("x:a", "task"), ("y:a", "task")]), "x:a y:a");
        assert_eq!(named(&[("sched:s", "prev"), ("sched:s", "next")]), "s(prev) s(next)");
        assert_eq!(named(&[("kprobe:f", "task"), ("kretprobe:f", "task")]), "f f returns");
        assert_eq!(named(&[("x:a", "cpu"), ("x:a", "cpu")]), "1. a 2. a");
    }

    /// Check that only requests, bios and packets have devices.
    #[test]
    fn devices() {
        let mut event = planned("block:block_rq_issue", &[("rq", Some("request"), 8)]);
        event.choose("rq").unwrap();
        assert_eq!(breakdown(Some(By::Device), &event).unwrap(), BY_REQUEST as u32);
        event.points_to = None;
        let error = breakdown(Some(By::Device), &event).unwrap_err().to_string();
        assert!(error.contains("a request, a bio or an skb"), "{error}");
    }
}
