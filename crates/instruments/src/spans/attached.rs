//! The programs at events, and their maps.

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
use netplumb_model::spans::INSTRUMENT;
use netplumb_sys::bpf::{Opened, drain, map};
use netplumb_sys::perf;
use netplumb_sys::plain::Plain;

use super::layout::{
    BY_STACK, BY_TASK, Begun, Config, Counts, EVENTS, Group, KEYS, Known, OPEN, Times, Turn, rows,
};
use super::plan::{How, Plan};
use crate::events::reasons;
use crate::live::LiveError;
use crate::own::Programs;
use crate::samples::Scope;

/// The programs, compiled from spans/spans.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spans.bpf.o"));

/// A program that has chosen a half ends within microseconds, unless its CPU is not run.
const GRACE: Duration = Duration::from_millis(1);
/// Frames of each half of a stack, at most: the default of kernel.perf_event_max_stack.
const FRAMES: u32 = 127;
/// Sets how many may be under way, for tests.
const OPEN_VARIABLE: &str = "PLUMB_TEST_SPANS_OPEN";

/// What a half has.
#[derive(Debug, Default)]
pub(super) struct HalfTimes {
    /// By row.
    pub(super) times: BTreeMap<usize, netplumb_model::span::Times>,
    pub(super) groups: BTreeMap<String, netplumb_model::span::Times>,
    pub(super) stacks: BTreeMap<u64, Known>,
}

/// The programs; detached when dropped.
pub(super) struct Attached {
    // Dropped before the object.
    ring: Option<RingBuffer<'static>>,
    links: Vec<Link>,
    probes: Vec<OwnedFd>,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
    times: MapHandle,
    known: [MapHandle; 2],
    groups: [MapHandle; 2],
    under_way: MapHandle,
    depths: MapHandle,
    counts: MapHandle,
    turn: MapHandle,
    half: u64,
    open: bool,
    slow_ns: u64,
    rows: usize,
    by: u32,
    scope: Scope,
    object: Object,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached")
            .field("rows", &self.rows)
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

/// The program of an event.
fn program(how: &How, event: usize) -> String {
    let kind = match how {
        How::Raw(_) => "raw",
        How::Record => "record",
        How::Trampoline { exit: false, .. } => "entry",
        How::Trampoline { exit: true, .. } => "exit",
        How::Function => "function",
    };
    format!("spans_{kind}_{event}")
}

impl Attached {
    /// Load the programs.
    ///
    /// # Errors
    /// This user may not, or the kernel refuses them.
    pub(super) fn load(plan: &Plan, scope: Scope) -> Result<Attached, LiveError> {
        let failed = || LiveError::programs(INSTRUMENT);
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let count = plan.events.len();
        let mut config = Config {
            pidns_dev: namespace.dev(),
            pidns_inode: namespace.ino(),
            cgroup: scope.cgroup,
            scope: scope.scope,
            tgid: scope.tgid,
            frames: FRAMES,
            count: count as u32,
            rows: rows(count) as u32,
            by: plan.by,
            about_task: u32::from(plan.is_about_task()),
            nests: u32::from(plan.nests()),
            ..Config::default()
        };
        for (to, event) in config.events.iter_mut().zip(&plan.events) {
            *to = event.key;
        }
        let mut open = Opened::new(OBJECT).map_err(failed())?;
        open.set_constants(config.bytes()).map_err(failed())?;
        let wanted: Vec<String> =
            (plan.events.iter().enumerate()).map(|(n, event)| program(&event.how, n)).collect();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let at = wanted.iter().position(|wanted| *wanted == name);
            program.set_autoload(scope.needs(&name) || at.is_some());
            if let Some(How::Trampoline { function, .. }) = at.map(|n| &plan.events[n].how) {
                let to = program.set_attach_target(0, Some(function.clone()));
                to.map_err(LiveError::system("find a function of the kernel"))?;
            }
        }
        let under_way = std::env::var(OPEN_VARIABLE).ok();
        let under_way = under_way.and_then(|n| n.parse().ok()).unwrap_or(OPEN as u32);
        let stacks = plan.by == BY_STACK as u32;
        // Maps of unused features take no memory.
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "under_way" => under_way,
                "depths" if plan.nests() => under_way,
                "depths" => 1,
                "times" => 2 * rows(count) as u32,
                "known_even" | "known_odd" if !stacks => 1,
                "known_even" | "known_odd" => KEYS as u32,
                _ => continue,
            };
            map.set_max_entries(entries).map_err(LiveError::system("size a map"))?;
        }
        let object = open.load().map_err(failed())?;
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let take: Rc<RefCell<Vec<Vec<u8>>>> = Rc::clone(&arrived);
        let ring = match stacks {
            false => None,
            true => {
                let ring = map(&object, "ring").map_err(failed())?;
                let doing = "read stacks";
                let mut builder = RingBufferBuilder::new();
                let built = builder.add(&ring, move |bytes| {
                    take.borrow_mut().push(bytes.to_vec());
                    0
                });
                built.map_err(LiveError::system(doing))?;
                Some(builder.build().map_err(LiveError::system(doing))?)
            }
        };
        let maps = |names: [&str; 2]| -> Result<[MapHandle; 2], LiveError> {
            Ok([
                map(&object, names[0]).map_err(failed())?,
                map(&object, names[1]).map_err(failed())?,
            ])
        };
        Ok(Attached {
            ring,
            links: Vec::new(),
            probes: Vec::new(),
            arrived,
            times: map(&object, "times").map_err(failed())?,
            known: maps(["known_even", "known_odd"])?,
            groups: maps(["groups_even", "groups_odd"])?,
            under_way: map(&object, "under_way").map_err(failed())?,
            depths: map(&object, "depths").map_err(failed())?,
            counts: map(&object, "counts").map_err(failed())?,
            turn: map(&object, ".data").map_err(failed())?,
            half: 0,
            open: false,
            slow_ns: u64::MAX,
            rows: rows(count),
            by: plan.by,
            scope,
            object,
        })
    }

    /// Attach the programs, and count all events from one moment on.
    ///
    /// # Errors
    /// An event can't be attached to.
    pub(super) fn begin(&mut self, plan: &Plan) -> Result<(), LiveError> {
        for program in self.object.progs_mut() {
            if self.scope.needs(&program.name().to_string_lossy()) {
                let link = program.attach();
                self.links.push(link.map_err(LiveError::system("attach to the scheduler"))?);
            }
        }
        // What ends at an event runs before what begins at it, which would else be paired with itself.
        let (first_runs_first, last_runs_first): (Vec<_>, Vec<_>) =
            (plan.events.iter().enumerate()).partition(|(_, event)| event.runs_in_order());
        let order = first_runs_first.into_iter().rev().chain(last_runs_first);
        for (n, event) in order {
            let name = program(&event.how, n);
            if let How::Raw(tracepoint) = &event.how {
                let link = self.find(&name)?.attach_raw_tracepoint(tracepoint);
                let doing = format!("attach to `{}`", event.resolved.name);
                self.links.push(link.map_err(LiveError::system(&doing))?);
                continue;
            }
            if let How::Trampoline { .. } = &event.how {
                let link = self.find(&name)?.attach();
                let doing = format!("attach to `{}`", event.resolved.name);
                self.links.push(link.map_err(LiveError::system(&doing))?);
                continue;
            }
            // Of all CPUs and tasks, though it is opened on one.
            let mut attr = event.resolved.attr();
            let opened = perf::open(&mut attr, Some(0));
            let attached = opened.and_then(|probe| {
                let programs = self.object.progs();
                let found = programs.into_iter().find(|p| p.name() == name.as_str());
                let found = found.ok_or(io::ErrorKind::NotFound)?;
                perf::attach(probe.as_fd(), found.as_fd())?;
                Ok(probe)
            });
            let probe = attached.map_err(|error| {
                let (name, asked) = (&event.resolved.name, &event.resolved.asked);
                let why = reasons::refused(asked, &error);
                match reasons::is_unknown(asked, &error) {
                    true => LiveError::Asked(format!("can't attach to `{name}`: {why}")),
                    false => LiveError::CannotRun {
                        reason: format!("can't attach to `{name}`"),
                        remedy: why,
                    },
                }
            })?;
            self.probes.push(probe);
        }
        self.open = true;
        self.tell()
    }

    fn find(&mut self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, LiveError> {
        let mut programs = self.object.progs_mut();
        let found = programs.find(|program| program.name() == name);
        found.ok_or_else(|| LiveError::Asked(format!("the compiled programs have no `{name}`")))
    }

    /// Count no event from now on, whichever it is, and detach the programs.
    ///
    /// # Errors
    /// The programs' switch can't be written; they are still detached.
    pub(super) fn stop(&mut self) -> Result<(), LiveError> {
        self.open = false;
        let written = self.tell();
        self.links.clear();
        self.probes.clear();
        written
    }

    /// Whether they are attached.
    pub(super) fn is_attached(&self) -> bool {
        !(self.links.is_empty() && self.probes.is_empty())
    }

    fn tell(&self) -> Result<(), LiveError> {
        let turn = Turn { open: u64::from(self.open), half: self.half, slow_ns: self.slow_ns };
        let zero = 0_u32.to_ne_bytes();
        let written = self.turn.update(&zero, turn.bytes(), MapFlags::ANY);
        written.map_err(LiveError::system("switch the programs of spans"))
    }

    /// Set the threshold from which a span is slow.
    pub(super) fn set_slow(&mut self, slow_ns: u64) {
        self.slow_ns = slow_ns;
    }

    /// The threshold that applies now.
    pub(super) fn slow_ns(&self) -> u64 {
        self.slow_ns
    }

    /// Write to the other half from now on, and take what this one has.
    ///
    /// # Errors
    /// The maps can't be read.
    pub(super) fn take(&mut self) -> Result<HalfTimes, LiveError> {
        let full = (self.half & 1) as usize;
        self.half += 1;
        self.tell()?;
        // Programs that were just detached write until then.
        thread::sleep(GRACE);
        let read = self.read(full);
        read.map_err(LiveError::system("read the times between events"))
    }

    fn read(&self, half: usize) -> Result<HalfTimes, libbpf_rs::Error> {
        let mut taken = HalfTimes::default();
        let empty = vec![vec![0; size_of::<Times>()]; libbpf_rs::num_possible_cpus()?];
        for row in 0..self.rows {
            let key = ((half * self.rows + row) as u32).to_ne_bytes();
            let cpus = self.times.lookup_percpu(&key, MapFlags::ANY)?;
            let sum = sum(&cpus.unwrap_or_default());
            if sum.count > 0 {
                taken.times.insert(row, sum);
                self.times.update_percpu(&key, &empty, MapFlags::ANY)?;
            }
        }
        match self.by as usize {
            BY_STACK => {
                let map = &self.known[half];
                for (key, value) in drain(map)? {
                    let hash = key.try_into().map(u64::from_ne_bytes);
                    if let (Ok(hash), Some(known)) = (hash, Known::read(&value)) {
                        taken.stacks.insert(hash, known);
                    }
                }
            }
            0 => {}
            by => {
                let map = &self.groups[half];
                let keys: Vec<Vec<u8>> = map.keys().collect();
                for key in keys {
                    let cpus = map.lookup_percpu(&key, MapFlags::ANY)?;
                    let sum = sum(&cpus.unwrap_or_default());
                    map.delete(&key)?;
                    if let Some(group) = Group::read(&key) {
                        taken.groups.entry(named(&group, by)).or_default().add(&sum);
                    }
                }
            }
        }
        Ok(taken)
    }

    /// What the ring has.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn poll(&mut self) -> Result<Vec<Vec<u8>>, LiveError> {
        if let Some(ring) = &self.ring {
            ring.consume().map_err(LiveError::system("read stacks"))?;
        }
        Ok(std::mem::take(&mut *self.arrived.borrow_mut()))
    }

    /// What all CPUs have counted.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn counts(&self) -> Result<Counts, LiveError> {
        let doing = "read the counts of events";
        let cpus = self.counts.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(LiveError::system(doing))?.unwrap_or_default();
        let mut sum = Counts::default();
        for cpu in cpus.iter().filter_map(|cpu| Counts::read(cpu)) {
            for n in 0..EVENTS {
                sum.seen[n] += cpu.seen[n];
            }
            sum.begun += cpu.begun;
            sum.ended += cpu.ended;
            sum.again += cpu.again;
            sum.no_room += cpu.no_room;
            sum.too_deep += cpu.too_deep;
            sum.not_begun += cpu.not_begun;
            sum.between += cpu.between;
            sum.out_of_order += cpu.out_of_order;
            sum.no_key += cpu.no_key;
            sum.lost_stacks += cpu.lost_stacks;
            sum.lost_groups += cpu.lost_groups;
            sum.cut += cpu.cut;
            sum.processes_dropped += cpu.processes_dropped;
            sum.run_ns += cpu.run_ns;
        }
        Ok(sum)
    }

    /// Forget spans under way, and count them: once nothing is attached, since the count has no end otherwise.
    ///
    /// # Errors
    /// The table can't be read.
    pub(super) fn give_up(&self) -> Result<u64, LiveError> {
        let failed = || LiveError::system("read what is under way");
        drain(&self.depths).map_err(failed())?;
        let all = drain(&self.under_way).map_err(failed())?;
        let is_begun = |(_, value): &&(Vec<u8>, Vec<u8>)| Begun::read(value).is_some();
        Ok(all.iter().filter(is_begun).count() as u64)
    }

    /// Runs so far that the kernel skipped, since the program ran already.
    pub(super) fn misses(&self) -> u64 {
        Programs::from_object(&self.object).totals().misses
    }
}

/// The times of all CPUs.
fn sum(cpus: &[Vec<u8>]) -> netplumb_model::span::Times {
    let mut all = netplumb_model::span::Times::default();
    for cpu in cpus.iter().filter_map(|cpu| Times::read(cpu)) {
        let buckets = (0_u16..).zip(cpu.buckets).filter(|(_, count)| *count > 0);
        all.add(&netplumb_model::span::Times {
            count: cpu.count,
            total_ns: cpu.total_ns,
            min_ns: cpu.min_ns,
            max_ns: cpu.max_ns,
            buckets: buckets.collect(),
        });
    }
    all
}

/// The name of a group.
fn named(group: &Group, by: usize) -> String {
    if by == super::layout::BY_CPU {
        let number = group.name.first_chunk().copied().unwrap_or_default();
        return format!("CPU {}", u32::from_ne_bytes(number));
    }
    let bytes = &group.name;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    match (end, by) {
        (0, BY_TASK) => "[idle]".into(),
        (0, _) => "[none]".into(),
        _ => String::from_utf8_lossy(&bytes[..end]).into_owned(),
    }
}
