//! Events by who caused them (events/callers.bpf.c): each counted by the stack that it happened on, of the
//! tasks that are asked for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use netplumb_model::events::{BROKEN_DOWN, By, CALLERS, COUNT, EventsSpec, INSTRUMENT, Whose};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Figure, Item};
use netplumb_model::timing::{Attached, Costs, Filter, TimingSpec, Window};
use netplumb_sys::bpf::{Opened, drain, map};
use netplumb_sys::cpus;
use netplumb_sys::perf;
use netplumb_sys::plain::Plain;

use super::counting::{PROBED, SCOPE, nothing};
use super::reasons;
use super::resolve::{Resolved, names};
use crate::live::{self, Live, LiveError};
use crate::own::{Programs, process_ns};
use crate::samples::{Causes, Scope};

/// The programs, compiled from events/callers.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/callers.bpf.o"));

/// Programs that follow a process's children.
const FOLLOWING: [&str; 3] = ["callers_fork", "callers_exec", "callers_free"];
/// Of each half of a stack, at most: the default of kernel.perf_event_max_stack.
const FRAMES: u32 = 127;
/// A program that has chosen a half ends within microseconds, unless its CPU is not run.
const GRACE: Duration = Duration::from_millis(1);
/// Functions in which the kernel tells what processes map and start (kernel/events/core.c).
const TELLING: [&str; 5] = [
    "perf_event_mmap",
    "perf_event_comm",
    "perf_event_fork",
    "perf_event_exec",
    "perf_event_task",
];
/// What arrives is read this often: a process may be gone soon.
const POLL: Duration = Duration::from_millis(40);

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/callers.rs"));
}

/// How a program is run at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// As a counter of each CPU is incremented.
    Counter,
    Tracepoint,
    Probe,
    Entry,
    Exit,
}

impl How {
    fn of(event: &Resolved, trampolines: bool) -> How {
        match event.trampoline() {
            Some((_, false)) if trampolines => How::Entry,
            Some((_, true)) if trampolines => How::Exit,
            _ if event.is_probe() => How::Probe,
            _ if event.is_tracepoint() => How::Tracepoint,
            _ => How::Counter,
        }
    }

    /// The program of an event.
    fn program(self, event: usize) -> String {
        let kind = match self {
            How::Counter => "counter",
            How::Tracepoint => "tracepoint",
            How::Probe => "probe",
            How::Entry => "entry",
            How::Exit => "exit",
        };
        format!("callers_{kind}_{event}")
    }
}

/// An event that is counted, and how.
type Event = (Resolved, How);

/// How often, by event and stack.
type Stacks = BTreeMap<(u32, u64), u64>;

/// What a half has.
#[derive(Debug, Default)]
struct Taken {
    /// By event.
    counts: Vec<made::Count>,
    stacks: Stacks,
}

/// The programs; detached when dropped.
struct At {
    // Before what they are links to, and read.
    ring: RingBuffer<'static>,
    links: Vec<Link>,
    counters: Vec<OwnedFd>,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
    counts: MapHandle,
    known: [MapHandle; 2],
    turn: MapHandle,
    on: bool,
    half: u64,
    follows: bool,
    object: Object,
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("At")
            .field("on", &self.on)
            .finish_non_exhaustive()
    }
}

impl At {
    /// Load the programs.
    fn load(events: &[Event], scope: Scope, user: bool) -> Result<At, LiveError> {
        let failed = || LiveError::programs(INSTRUMENT);
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let config = made::Config {
            pidns_dev: namespace.dev(),
            pidns_inode: namespace.ino(),
            cgroup: scope.cgroup,
            scope: scope.scope,
            tgid: scope.tgid,
            frames: FRAMES,
            user: u32::from(user),
        };
        let mut open = Opened::new(OBJECT).map_err(failed())?;
        open.set_constants(config.bytes()).map_err(failed())?;
        let wanted: Vec<String> = (events.iter().enumerate())
            .map(|(n, (_, how))| how.program(n))
            .collect();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let follows = scope.follows() && FOLLOWING.contains(&name.as_str());
            let at = wanted.iter().position(|wanted| *wanted == name);
            program.set_autoload(follows || at.is_some());
            let Some((event, How::Entry | How::Exit)) = at.map(|n| &events[n]) else {
                continue;
            };
            if let Some((function, _)) = event.trampoline() {
                let to = program.set_attach_target(0, Some(function.into()));
                to.map_err(LiveError::system("find a function of the kernel"))?;
            }
        }
        let object = open.load().map_err(failed())?;
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let take: Rc<RefCell<Vec<Vec<u8>>>> = Rc::clone(&arrived);
        let ring = map(&object, "ring").map_err(failed())?;
        let doing = "read stacks";
        let mut builder = RingBufferBuilder::new();
        let built = builder.add(&ring, move |bytes| {
            take.borrow_mut().push(bytes.to_vec());
            0
        });
        built.map_err(LiveError::system(doing))?;
        Ok(At {
            ring: builder.build().map_err(LiveError::system(doing))?,
            links: Vec::new(),
            counters: Vec::new(),
            arrived,
            counts: map(&object, "counts").map_err(failed())?,
            known: [
                map(&object, "known_even").map_err(failed())?,
                map(&object, "known_odd").map_err(failed())?,
            ],
            turn: map(&object, ".data").map_err(failed())?,
            on: false,
            half: 0,
            follows: scope.follows(),
            object,
        })
    }

    /// Attach them to all events but those that `refused` is told of.
    fn attach(
        &mut self,
        events: &[Event],
        cpus: &[u32],
        mut refused: impl FnMut(&Resolved, String),
    ) -> Result<usize, LiveError> {
        let first = cpus.first().copied().unwrap_or(0);
        let mut attached = 0;
        for (n, (event, how)) in events.iter().enumerate() {
            let name = how.program(n);
            let why = match how {
                How::Entry | How::Exit => {
                    let mut programs = self.object.progs_mut();
                    let found = programs.find(|p| p.name().to_string_lossy() == name);
                    let link = found.map(|program| program.attach()).transpose();
                    match link.map_err(LiveError::system("attach to a function"))? {
                        Some(link) => self.links.push(link),
                        None => continue,
                    }
                    None
                }
                // Of all CPUs and tasks, though it is opened on one.
                How::Tracepoint | How::Probe => self.counter(event, &name, first, 0).err(),
                How::Counter => {
                    let each = cpus.iter().map(|cpu| self.counter(event, &name, *cpu, 1));
                    each.collect::<Result<(), _>>().err()
                }
            };
            match why {
                Some(error) => refused(event, reasons::refused(&event.asked, &error)),
                None => attached += 1,
            }
        }
        if self.follows {
            for program in self.object.progs_mut() {
                if FOLLOWING.contains(&&*program.name().to_string_lossy()) {
                    let link = program.attach();
                    self.links
                        .push(link.map_err(LiveError::system("attach to the scheduler"))?);
                }
            }
        }
        Ok(attached)
    }

    fn counter(
        &mut self,
        event: &Resolved,
        program: &str,
        cpu: u32,
        period: u64,
    ) -> std::io::Result<()> {
        let mut attr = event.attr();
        attr.__bindgen_anon_1.sample_period = period;
        let counter = perf::open(&mut attr, Some(cpu as i32))?;
        let programs = self.object.progs();
        let found = programs.into_iter().find(|p| p.name() == program);
        let found = found.ok_or(std::io::ErrorKind::NotFound)?;
        perf::attach(counter.as_fd(), found.as_fd())?;
        self.counters.push(counter);
        Ok(())
    }

    fn tell(&self) -> Result<(), LiveError> {
        let turn = made::Turn {
            on: u64::from(self.on),
            half: self.half,
        };
        let zero = 0_u32.to_ne_bytes();
        let told = self.turn.update(&zero, turn.bytes(), MapFlags::ANY);
        told.map_err(LiveError::system("switch the counts of events"))
    }

    /// Begin to count, or stop.
    fn switch(&mut self, on: bool) -> Result<(), LiveError> {
        self.on = on;
        self.tell()
    }

    /// Write to the other half from now on, and take what this one has.
    fn take(&mut self, events: usize) -> Result<Taken, LiveError> {
        let full = (self.half & 1) as usize;
        self.half += 1;
        self.tell()?;
        // Also of programs that just ran as it was stopped.
        thread::sleep(GRACE);
        let read = self.read(full, events);
        read.map_err(LiveError::system("read the counts of events"))
    }

    fn read(&self, half: usize, events: usize) -> Result<Taken, libbpf_rs::Error> {
        let mut taken = Taken::default();
        let empty = vec![vec![0; size_of::<made::Count>()]; libbpf_rs::num_possible_cpus()?];
        for event in 0..events {
            let key = ((half * made::EVENTS + event) as u32).to_ne_bytes();
            let cpus = self.counts.lookup_percpu(&key, MapFlags::ANY)?;
            let mut sum = made::Count::default();
            for cpu in cpus.unwrap_or_default() {
                let of = made::Count::read(&cpu).unwrap_or_default();
                sum.count += of.count;
                sum.lost += of.lost;
                sum.cut += of.cut;
                sum.run_ns += of.run_ns;
            }
            if sum.count > 0 {
                self.counts.update_percpu(&key, &empty, MapFlags::ANY)?;
            }
            taken.counts.push(sum);
        }
        let map = &self.known[half];
        for (key, value) in drain(map)? {
            if let (Some(key), Some(known)) = (made::Key::read(&key), made::Known::read(&value)) {
                taken.stacks.insert((key.event, key.hash), known.count);
            }
        }
        Ok(taken)
    }

    /// What the ring has.
    fn poll(&mut self) -> Result<Vec<Vec<u8>>, LiveError> {
        let consumed = self.ring.consume();
        consumed.map_err(LiveError::system("read stacks"))?;
        Ok(std::mem::take(&mut *self.arrived.borrow_mut()))
    }
}

/// Events that are counted by who causes them, window by window.
#[derive(Debug)]
pub(super) struct Callers {
    events: Vec<Event>,
    at: At,
    causes: Causes,
    attached: Attached,
    opened: Instant,
    /// When the window ended that is not closed yet.
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
            // What can't have callers is known.
            return Err(nothing(&refused, names.all_unknown && !unables));
        }
        if found.len() > made::EVENTS {
            return Err(LiveError::Asked(format!(
                "by who causes them, at most {} events are counted at once, not {}",
                made::EVENTS,
                found.len()
            )));
        }
        let by_stack = asked.by == Some(By::Stack);
        let children = asked.whose == Whose::Started;
        let own = (asked.whose == Whose::Own).then(std::process::id);
        let filter = Filter {
            pid: spec.filter.pid.or(own),
            ..spec.filter.clone()
        };
        let scope = Scope::of(children, &filter);
        let cpus: Vec<u32> = cpus::online()
            .map_err(LiveError::system("read which CPUs are online"))?
            .into_iter()
            .collect();
        let mut events: Vec<Event> = (found.into_iter())
            .map(|event| {
                let how = How::of(&event, true);
                (event, how)
            })
            .collect();
        let mut facts = BTreeMap::from([(SCOPE.to_string(), told(&scope, asked).to_string())]);
        facts.extend((asked.by).map(|by| (BROKEN_DOWN.to_string(), by.to_string())));
        let is_trampoline = |(_, how): &Event| matches!(how, How::Entry | How::Exit);
        let mut no = BTreeMap::new();
        let begin = |events: &[Event], no: &mut BTreeMap<String, String>| {
            let mut at = At::load(events, scope, by_stack)?;
            let attached = at.attach(events, &cpus, |event, why| {
                no.insert(event.name.clone(), why);
            })?;
            Ok::<_, LiveError>((at, attached))
        };
        let (at, attached) = match begin(&events, &mut no) {
            Err(error) if events.iter().any(is_trampoline) => {
                facts.insert(PROBED.into(), error.to_string());
                for (event, how) in &mut events {
                    *how = How::of(event, false);
                }
                no.clear();
                begin(&events, &mut no)?
            }
            begun => begun?,
        };
        refused.extend(no);
        if attached == 0 {
            return Err(nothing(&refused, false));
        }
        // Who watches what is mapped makes it cost more; without user code there is no need.
        let causes = match by_stack {
            true => Causes::watch(&cpus, children, filter.pid)?,
            false => Causes::watch(&[], true, None)?,
        };
        Ok(Callers {
            misses: Programs::of(&at.object).totals().misses,
            events,
            at,
            causes,
            attached: Attached {
                refused,
                attach_ns: begun.elapsed().as_nanos() as u64,
                facts,
                ..Attached::default()
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

    /// Who caused what, and how much of it is not known.
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
        // What was told until the half was switched.
        self.take()?;
        self.causes
            .name(taken.stacks.keys().map(|(_, hash)| *hash))?;
        let own = self.leave_out_own(&mut taken);
        let (costs, unknown) = self.costs(&taken.stacks)?;
        let is_counted = |event: &Resolved| !self.attached.refused.contains_key(&event.name);
        let each = self.events.iter().zip(&taken.counts);
        let figures = each.filter(|((event, _), _)| is_counted(event));
        let figures = figures.map(|((event, _), of)| {
            Figure::new(&COUNT, of.count as f64).of(Item::label(&event.name))
        });
        let figures = figures.collect();
        let sum = |of: fn(&made::Count) -> u64| taken.counts.iter().map(of).sum::<u64>();
        let misses = Programs::of(&self.at.object).totals().misses;
        let losses = lost(&[
            misses.saturating_sub(self.misses),
            sum(|of| of.lost) + unknown,
            sum(|of| of.cut),
            self.causes.lost(),
            own,
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

    /// Leave out what happens as the kernel tells this process what others map: only where somebody
    /// watches that. Returns how many events that were.
    fn leave_out_own(&self, taken: &mut Taken) -> u64 {
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

/// Why it can't be told who causes an event.
fn unable(event: &Resolved) -> Option<&'static str> {
    match () {
        () if event.is_time => {
            Some("a clock has no callers: plumb profile samples where time goes")
        }
        () if event.is_hardware => Some(
            "the CPU counts too many to look at each: plumb profile --event cycles samples them",
        ),
        () => None,
    }
}

/// Whose events they are.
fn told(scope: &Scope, asked: &EventsSpec) -> &'static str {
    match (asked.whose, scope.tgid, scope.cgroup) {
        (Whose::Started, ..) => "a command, from its exec, and what it starts",
        (Whose::Own, ..) => "plumb itself, whose threads send and receive",
        (Whose::All, 0, 0) => "all CPUs",
        (Whose::All, 0, _) => "a cgroup",
        (Whose::All, ..) => "a process, and what it starts from then on",
    }
}

/// What was lost of a window.
fn lost(counts: &[u64; 5]) -> Vec<Loss> {
    let [misses, stackless, cut, changes, own] = *counts;
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
        (
            "events with a stack of 127 frames or more",
            cut,
            "outer frames may be missing",
        ),
        (
            "changes of processes that were not told",
            changes,
            "code that was mapped then may have no name",
        ),
        (
            "events of plumb's own, as the kernel told it what processes map",
            own,
            "they are not counted",
        ),
    ])
}

impl Live for Callers {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        if !self.at.on {
            self.misses = Programs::of(&self.at.object).totals().misses;
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
        if self.at.on {
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

#[cfg(test)]
mod tests {
    use netplumb_model::events::Asked;

    use super::*;

    /// Check that each kind of event has its program, and a clock none.
    #[test]
    fn programs() {
        let of = |name: &str, trampolines| {
            let event = Resolved::named(name, Asked::parse(name).unwrap());
            How::of(&event, trampolines).program(3)
        };
        assert_eq!(of("page-faults", true), "callers_counter_3");
        assert_eq!(of("block:block_rq_issue", true), "callers_tracepoint_3");
        assert_eq!(of("kprobe:submit_bio", true), "callers_probe_3");
        assert_eq!(of("fentry:submit_bio", true), "callers_entry_3");
        assert_eq!(of("fexit:submit_bio", true), "callers_exit_3");
        assert_eq!(of("fexit:submit_bio", false), "callers_probe_3");
    }
}
