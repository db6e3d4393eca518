//! Events by who caused them (events/callers.bpf.c): each counted by the stack that it happened on, of the
//! tasks that are asked for.

mod attached;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use netplumb_model::events::{BROKEN_DOWN, By, CALLERS, COUNT, EventsSpec, Whose};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Figure, FigureKey};
use netplumb_model::timing::{Attached as Facts, Costs, Filter, TimingSpec, Window};
use netplumb_sys::cpus;

use self::attached::{Attached, Count, Event, HalfCounts, How, MOST, Stacks};
use super::counting::{NOT_FOLLOWED, PROBED, SCOPE, nothing};
use super::reasons;
use super::resolve::{Resolved, names};
use crate::live::{self, Live, LiveError};
use crate::own::process_ns;
use crate::samples::{Causes, Scope};

/// Functions in which the kernel reports what processes map and start (kernel/events/core.c).
const TELLING: [&str; 5] =
    ["perf_event_mmap", "perf_event_comm", "perf_event_fork", "perf_event_exec", "perf_event_task"];
/// How often records are read: a process may be gone soon.
const POLL: Duration = Duration::from_millis(40);

/// Events that are counted by who causes them, window by window.
#[derive(Debug)]
pub(super) struct Callers {
    events: Vec<Event>,
    at: Attached,
    causes: Causes,
    facts: Facts,
    opened: Instant,
    /// The end of a window that is not closed yet.
    stopped: Option<Instant>,
    polled: Instant,
    misses: u64,
    reader_ns: u64,
}

impl Callers {
    pub(super) fn attach(spec: &TimingSpec, asked: &EventsSpec) -> Result<Callers, LiveError> {
        let begun = Instant::now();
        let reader_ns = process_ns();
        let names = names(&asked.names)?;
        let mut refused = names.refused;
        let mut found = names.found;
        let unables = found.iter().any(|event| unable(event).is_some());
        found.retain(|event| match unable(event) {
            Some(why) => {
                refused.insert(event.name.clone(), why.into());
                false
            }
            None => true,
        });
        if found.is_empty() {
            // The reasons for events without callers are known.
            return Err(nothing(&refused, names.all_unknown && !unables));
        }
        if found.len() > MOST {
            return Err(LiveError::Asked(format!(
                "by who causes them, at most {} events are counted at once, not {}",
                MOST,
                found.len()
            )));
        }
        let by_stack = asked.by == Some(By::Stack);
        let children = asked.whose == Whose::Started;
        let own = (asked.whose == Whose::Own).then(std::process::id);
        let filter = Filter { pid: spec.filter.pid.or(own), ..spec.filter.clone() };
        let scope = Scope::new(children, &filter);
        let cpus: Vec<u32> = cpus::online()
            .map_err(LiveError::system("read which CPUs are online"))?
            .into_iter()
            .collect();
        let mut events: Vec<Event> = (found.into_iter())
            .map(|event| {
                let how = How::from_event(&event, true);
                (event, how)
            })
            .collect();
        let mut facts =
            BTreeMap::from([(SCOPE.to_string(), scope_text(&scope, asked).to_string())]);
        facts.extend((asked.by).map(|by| (BROKEN_DOWN.to_string(), by.to_string())));
        let is_trampoline = |(_, how): &Event| matches!(how, How::Entry | How::Exit);
        let mut no = BTreeMap::new();
        let begin = |events: &[Event], no: &mut BTreeMap<String, (String, bool)>| {
            let mut at = Attached::load(events, scope, by_stack)?;
            let attached = at.attach(events, &cpus, |event, error| {
                let (asked, name) = (&event.asked, event.name.clone());
                let is_unknown = reasons::is_unknown(asked, error);
                no.insert(name, (reasons::refused(asked, error), is_unknown));
            })?;
            Ok::<_, LiveError>((at, attached))
        };
        let (at, attached) = match begin(&events, &mut no) {
            Err(error) if events.iter().any(is_trampoline) => {
                facts.insert(PROBED.into(), error.to_string());
                for (event, how) in &mut events {
                    *how = How::from_event(event, false);
                }
                no.clear();
                begin(&events, &mut no)?
            }
            begun => begun?,
        };
        let all_unknown = names.all_unknown && !unables && no.values().all(|(_, is)| *is);
        refused.extend(no.into_iter().map(|(name, (why, _))| (name, why)));
        if attached == 0 {
            return Err(nothing(&refused, all_unknown));
        }
        // Watching mappings makes them cost more; without user code there is no need.
        let causes = match by_stack {
            true => Causes::watch(&cpus, children, filter.pid)?,
            false => Causes::watch(&[], true, None)?,
        };
        Ok(Callers {
            misses: at.misses(),
            events,
            at,
            causes,
            facts: Facts {
                refused,
                attach_ns: begun.elapsed().as_nanos() as u64,
                facts,
                ..Facts::default()
            },
            opened: begun,
            stopped: None,
            polled: begun,
            reader_ns,
        })
    }

    fn take(&mut self) -> Result<(), LiveError> {
        self.polled = Instant::now();
        let arrived = self.at.poll()?;
        self.causes.take(arrived.iter().map(Vec::as_slice));
        Ok(())
    }

    /// The call graphs of causes, and how many events have an unknown one.
    fn costs(&mut self, stacks: &Stacks) -> Result<(Costs, u64), LiveError> {
        let events = &self.events;
        let each = stacks.iter().filter(|(_, count)| **count > 0);
        let each = each.filter_map(|((event, hash), count)| {
            let (event, _) = events.get(*event as usize)?;
            Some((Some(event.name.as_str()), *hash, (*count, *count)))
        });
        let costs = self.causes.costs(each, &CALLERS);
        self.causes.bound();
        Ok(costs)
    }

    fn window(&mut self) -> Result<Window, LiveError> {
        self.take()?;
        let now = self.stopped.take().unwrap_or_else(Instant::now);
        let mut taken = self.at.take(self.events.len())?;
        // Records from before the half was switched.
        self.take()?;
        self.causes.name(taken.stacks.keys().map(|(_, hash)| *hash))?;
        let own = self.leave_out_own(&mut taken);
        let (costs, unknown) = self.costs(&taken.stacks)?;
        let is_counted = |event: &Resolved| !self.facts.refused.contains_key(&event.name);
        let each = self.events.iter().zip(&taken.counts);
        let figures = each.filter(|((event, _), _)| is_counted(event));
        let figures = figures.map(|((event, _), of)| {
            Figure::new(&COUNT, of.count as f64).with_key(FigureKey::label(&event.name))
        });
        let figures = figures.collect();
        let sum = |of: fn(&Count) -> u64| taken.counts.iter().map(of).sum::<u64>();
        let misses = self.at.misses();
        let losses = lost(&[
            misses.saturating_sub(self.misses),
            sum(|of| of.lost) + unknown,
            sum(|of| of.cut),
            self.causes.lost(),
            own,
            sum(|of| of.not_followed),
        ]);
        let reader_ns = process_ns();
        let own_cpu_ns = (reader_ns - self.reader_ns) + sum(|of| of.run_ns);
        let duration_ns = (now - self.opened).as_nanos() as u64;
        (self.misses, self.reader_ns, self.opened) = (misses, reader_ns, now);
        Ok(Window {
            duration_ns,
            figures,
            costs: vec![costs],
            losses,
            own_cpu_ns,
            ..Window::default()
        })
    }

    /// Leave out events of the kernel's reports to this process on what others map, which exist
    /// only while somebody watches that. Returns their number.
    fn leave_out_own(&self, taken: &mut HalfCounts) -> u64 {
        let mut own = 0;
        let counts = &mut taken.counts;
        taken.stacks.retain(|(event, hash), count| {
            let is_own = self.causes.passes(*hash, &TELLING);
            if let Some(of) = counts.get_mut(*event as usize).filter(|_| is_own) {
                of.count = of.count.saturating_sub(*count);
                own += *count;
            }
            !is_own
        });
        own
    }
}

/// Why an event can't be counted by its causes.
fn unable(event: &Resolved) -> Option<&'static str> {
    match () {
        () if event.is_time && !event.is_tracepoint() => {
            Some("a clock has no callers: plumb profile samples where time goes")
        }
        () if event.is_hardware => Some(
            "the CPU counts too many to look at each: plumb profile --event cycles samples them",
        ),
        () => None,
    }
}

/// Describes whose events are counted.
fn scope_text(scope: &Scope, asked: &EventsSpec) -> &'static str {
    match (asked.whose, scope.tgid, scope.cgroup) {
        (Whose::Started, ..) => "a command, from its exec, and what it starts",
        (Whose::Own, ..) => "plumb itself, whose threads send and receive",
        (Whose::All, 0, 0) => "all CPUs",
        (Whose::All, 0, _) => "a cgroup",
        (Whose::All, ..) => "a process, and what it starts from then on",
    }
}

/// A window's losses.
fn lost(counts: &[u64; 6]) -> Vec<Loss> {
    let [misses, stackless, cut, changes, own, not_followed] = *counts;
    live::losses([
        (
            "events at which a program did not run, of any task",
            misses,
            "one was running on that CPU already: these are not counted",
        ),
        (
            "events without a stack",
            stackless,
            "too many stacks, or one event on top of another: they are counted, and not in the call graph",
        ),
        ("events with a stack of 127 frames or more", cut, "outer frames may be missing"),
        ("unreported changes of processes", changes, "code that was mapped then may have no name"),
        (
            "plumb's own events, since the kernel reported to it what processes map",
            own,
            "they are not counted",
        ),
        (NOT_FOLLOWED, not_followed, "their events are missing"),
    ])
}

impl Live for Callers {
    fn attached(&self) -> &Facts {
        &self.facts
    }

    fn open(&mut self) -> Result<(), LiveError> {
        if !self.at.is_on() {
            self.misses = self.at.misses();
            self.at.switch(true)?;
            self.opened = Instant::now();
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), LiveError> {
        match self.polled.elapsed() >= POLL {
            true => self.take(),
            false => Ok(()),
        }
    }

    fn polled_every(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        self.window()
    }

    fn stop(&mut self) {
        if self.at.is_on() {
            // If that fails, so does closing the window.
            let _ = self.at.switch(false);
            self.stopped = Some(Instant::now());
        }
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        self.window()
    }
}
