//! The programs at events (events/callers.bpf.c), and their maps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use netplumb_model::events::INSTRUMENT;
use netplumb_sys::bpf::{Opened, drain, map};
use netplumb_sys::perf;
use netplumb_sys::plain::Plain;

use crate::events::resolve::Resolved;
use crate::live::LiveError;
use crate::own::Programs;
use crate::samples::Scope;

/// The programs, compiled from events/callers.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/callers.bpf.o"));

/// Frames of each half of a stack, at most: the default of kernel.perf_event_max_stack.
const FRAMES: u32 = 127;
/// A program that has chosen a half ends within microseconds, unless its CPU is not run.
const GRACE: Duration = Duration::from_millis(1);
mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/callers.rs"));
}

pub(super) use made::Count;
/// Events that are counted at once, at most.
pub(super) const MOST: usize = made::EVENTS;

/// How a program is run at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As each CPU's counter is incremented.
    Counter,
    Tracepoint,
    Probe,
    Entry,
    Exit,
}

impl How {
    pub(super) fn from_event(event: &Resolved, trampolines: bool) -> How {
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
pub(super) type Event = (Resolved, How);

/// Counts by event and stack.
pub(super) type Stacks = BTreeMap<(u32, u64), u64>;

/// What a half has.
#[derive(Debug, Default)]
pub(super) struct HalfCounts {
    /// By event.
    pub(super) counts: Vec<Count>,
    pub(super) stacks: Stacks,
}

/// The programs; detached when dropped.
pub(super) struct Attached {
    // Dropped before the object.
    ring: RingBuffer<'static>,
    links: Vec<Link>,
    counters: Vec<OwnedFd>,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
    counts: MapHandle,
    known: [MapHandle; 2],
    turn: MapHandle,
    on: bool,
    half: u64,
    scope: Scope,
    object: Object,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("on", &self.on).finish_non_exhaustive()
    }
}

impl Attached {
    /// Load the programs.
    pub(super) fn load(events: &[Event], scope: Scope, user: bool) -> Result<Attached, LiveError> {
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
        let wanted: Vec<String> =
            (events.iter().enumerate()).map(|(n, (_, how))| how.program(n)).collect();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let at = wanted.iter().position(|wanted| *wanted == name);
            program.set_autoload(scope.needs(&name) || at.is_some());
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
        Ok(Attached {
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
            scope,
            object,
        })
    }

    /// Attach them. `refused` is called with each event that can't be attached to.
    pub(super) fn attach(
        &mut self,
        events: &[Event],
        cpus: &[u32],
        mut refused: impl FnMut(&Resolved, &io::Error),
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
                Some(error) => refused(event, &error),
                None => attached += 1,
            }
        }
        for program in self.object.progs_mut() {
            if self.scope.needs(&program.name().to_string_lossy()) {
                let link = program.attach();
                self.links.push(link.map_err(LiveError::system("attach to the scheduler"))?);
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
    ) -> io::Result<()> {
        let mut attr = event.attr();
        attr.__bindgen_anon_1.sample_period = period;
        let counter = perf::open(&mut attr, Some(cpu as i32))?;
        let programs = self.object.progs();
        let found = programs.into_iter().find(|p| p.name() == program);
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        perf::attach(counter.as_fd(), found.as_fd())?;
        self.counters.push(counter);
        Ok(())
    }

    fn tell(&self) -> Result<(), LiveError> {
        let turn = made::Turn { on: u64::from(self.on), half: self.half };
        let zero = 0_u32.to_ne_bytes();
        let written = self.turn.update(&zero, turn.bytes(), MapFlags::ANY);
        written.map_err(LiveError::system("switch the counts of events"))
    }

    /// Begin to count, or stop.
    pub(super) fn switch(&mut self, on: bool) -> Result<(), LiveError> {
        self.on = on;
        self.tell()
    }

    /// Write to the other half from now on, and take what this one has.
    pub(super) fn take(&mut self, events: usize) -> Result<HalfCounts, LiveError> {
        let full = (self.half & 1) as usize;
        self.half += 1;
        self.tell()?;
        // Programs that ran as it was stopped write until then.
        thread::sleep(GRACE);
        let read = self.read(full, events);
        read.map_err(LiveError::system("read the counts of events"))
    }

    fn read(&self, half: usize, events: usize) -> Result<HalfCounts, libbpf_rs::Error> {
        let mut taken = HalfCounts::default();
        let empty = vec![vec![0; size_of::<Count>()]; libbpf_rs::num_possible_cpus()?];
        for event in 0..events {
            let key = ((half * made::EVENTS + event) as u32).to_ne_bytes();
            let cpus = self.counts.lookup_percpu(&key, MapFlags::ANY)?;
            let mut sum = Count::default();
            for cpu in cpus.unwrap_or_default() {
                let of = Count::read(&cpu).unwrap_or_default();
                sum.count += of.count;
                sum.lost += of.lost;
                sum.cut += of.cut;
                sum.run_ns += of.run_ns;
                sum.not_followed += of.not_followed;
            }
            if sum.count > 0 || sum.not_followed > 0 {
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
    pub(super) fn poll(&mut self) -> Result<Vec<Vec<u8>>, LiveError> {
        let consumed = self.ring.consume();
        consumed.map_err(LiveError::system("read stacks"))?;
        Ok(std::mem::take(&mut *self.arrived.borrow_mut()))
    }
}

impl Attached {
    /// Whether events are counted.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Runs so far that the kernel skipped, since a program ran already.
    pub(super) fn misses(&self) -> u64 {
        Programs::from_object(&self.object).totals().misses
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::events::EventRequest;

    use super::*;

    /// Check that each kind of event has its program, and a clock none.
    #[test]
    fn programs() {
        let of = |name: &str, trampolines| {
            let event = Resolved::named(name, EventRequest::parse(name).unwrap());
            How::from_event(&event, trampolines).program(3)
        };
        assert_eq!(of("page-faults", true), "callers_counter_3");
        assert_eq!(of("block:block_rq_issue", true), "callers_tracepoint_3");
        assert_eq!(of("kprobe:submit_bio", true), "callers_probe_3");
        assert_eq!(of("fentry:submit_bio", true), "callers_entry_3");
        assert_eq!(of("fexit:submit_bio", true), "callers_exit_3");
        assert_eq!(of("fexit:submit_bio", false), "callers_probe_3");
    }
}
