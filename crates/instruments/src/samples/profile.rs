//! A profile: where CPU time goes, of all work or of a process, a cgroup or a command.
//!
//! What a stack stands for is found out as soon as it arrives, while its process may still be
//! there; how often it was seen, when a window is closed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_model::class::{Context, Direction};
use netplumb_model::quantity::{Declared, Figure};
use netplumb_model::recording::THREAD_MODULE;
use netplumb_model::samples::{Sample, Thread};
use netplumb_model::timing::{
    Attached, CPU_TIME, Costs, FREQUENCY, IDLE, LATE, Met, OFF_CPU, ON_TIME, PERIOD, PROGRAMS,
    ProfileSpec, REACHED, READER, STACKS_CUT, TimingSpec, USER_STACKS, UserStacks, WAITS_BEGUN,
    WAITS_ENDED, WAITS_OPEN, Window,
};
use netplumb_sys::bpf::raw;
use netplumb_sys::cpus;
use netplumb_sys::perf::changes::Changes;

use super::arrived::{Copied, Place, Who};
use super::files::{Files, Within, unknown};
use super::kernel::{self, Kernel};
use super::late::late;
use super::layout::{
    Config, Counts, Crossed, FRAMES, KEYS, Known, REASON_BLOCKED, REASON_IO, REASON_PREEMPTED,
    REASON_SLEEP, SCOPE_ALL, SCOPE_CGROUP, SCOPE_CHILDREN, SCOPE_PROCESS, Time, USER_COPY,
    USER_FRAME_POINTERS, Wait,
};
use super::owner::context;
use super::sampler::{Event, Sampler, Setup};
use super::spaces::Spaces;
use super::tree::{Functions, Sum, Tree, nameless};
use super::unwind::Unwinders;
use super::{TAKEN, UNKNOWN};
use crate::live::{self, Live, LiveError};
use crate::own::{monotonic_ns, process_ns};

/// The limit of the kernel.
const MAX_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// What arrives is read this often: a process may be gone soon.
const POLL: Duration = Duration::from_millis(40);
/// Stacks that are kept, however many there are.
const MAX_PLACES: usize = 1 << 18;
/// Functions that threads begin with: a stack that ends there is whole.
const BEGINNINGS: &[&str] = &[
    "_start",
    "__libc_start",
    "start_thread",
    "clone",
    "__clone",
    "_dl_start",
    "_dl_relocate",
    "runtime.goexit",
    "runtime.mstart",
    "runtime.rt0_go",
    "_rt0_",
];
/// Of a user stack, at most; deeper ones are cut.
const COPIED_BYTES: u32 = 8 << 10;
/// How functions are called that run programs at a tracepoint.
const TRACEPOINTS: &[&str] = &["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_"];
/// Programs that measure time off the CPU.
const SWITCHING: &[&str] = &["samples_switch", "samples_waking"];
/// Programs that follow a process's children.
const FOLLOWING: &[&str] = &["samples_fork", "samples_exec", "samples_exit"];

/// CPUs that are sampled, window by window.
#[derive(Debug)]
pub(super) struct Profile {
    sampler: Sampler,
    changes: Changes,
    spaces: Spaces,
    files: Files,
    kernel: Kernel,
    functions: Functions,
    /// By hash.
    places: HashMap<u64, Found>,
    /// The same of waits.
    waits: HashMap<u64, Wait>,
    /// Waits that went on as a window ended.
    crossed: Vec<Crossed>,
    unwinders: Unwinders,
    /// User stacks that were unwound, by the hash of their samples: how often each.
    unwound: HashMap<u64, HashMap<Unwound, u64>>,
    /// What was counted in this window so far.
    counted: BTreeMap<u64, Known>,
    /// Stacks that have arrived since that was read.
    fresh: usize,
    times: Vec<Time>,
    attached: Attached,
    cpus: usize,
    off_cpu: bool,
    /// When the first window began.
    begun_ns: u64,
    period_ns: u64,
    polled: Instant,
    opened: Instant,
    counts: Counts,
    programs_ns: u64,
    reader_ns: u64,
    // While it is there, the kernel counts the run time of programs.
    _counting: Option<std::os::fd::OwnedFd>,
}

/// Times of samples.
#[derive(Debug, Default)]
struct Timed {
    times: Vec<Time>,
    /// Without those of idle CPUs; none if some have no time.
    samples: Vec<Sample>,
    threads: Vec<Thread>,
}

/// What a stack stands for.
#[derive(Debug)]
struct Found {
    place: Place,
    /// Where its user code is, where the task was first.
    within: Vec<Option<Within>>,
}

/// The functions of a stack of user code, and whether they end before one that a thread begins with.
type Named = (Vec<u32>, bool);

/// The same before they have names, and whether it was unwound to its end.
type Unwound = (Vec<Option<Within>>, bool);

impl Profile {
    pub(super) fn attach(spec: &TimingSpec, asked: &ProfileSpec) -> Result<Profile, LiveError> {
        let begun = Instant::now();
        let reader_ns = process_ns();
        check_frequency(asked.frequency_hz)?;
        let cpus: Vec<u32> = cpus::online()
            .map_err(LiveError::system("read which CPUs are online"))?
            .into_iter()
            .collect();
        let event = Event::CpuClock;
        let period_ns = 1_000_000_000 / u64::from(asked.frequency_hz.max(1));
        let own = std::process::id();
        let (scope, tgid) = match (asked.children, spec.filter.pid, spec.filter.cgroup) {
            (true, ..) => (SCOPE_CHILDREN, own),
            (_, Some(pid), _) => (SCOPE_PROCESS, pid),
            (_, _, Some(_)) => (SCOPE_CGROUP, 0),
            _ => (SCOPE_ALL, 0),
        };
        let follows = [SCOPE_CHILDREN, SCOPE_PROCESS].contains(&scope);
        let mut programs = Vec::new();
        programs.extend(FOLLOWING.iter().filter(|_| follows));
        programs.extend(SWITCHING.iter().filter(|_| asked.off_cpu));
        let copies = asked.user_stacks == UserStacks::Dwarf;
        let setup = Setup {
            cpus: &cpus,
            event,
            period_ns,
            config: Config {
                scope: scope as u32,
                tgid,
                cgroup: spec.filter.cgroup.unwrap_or_default(),
                user: match copies {
                    true => USER_COPY,
                    false => USER_FRAME_POINTERS,
                } as u32,
                stack_bytes: COPIED_BYTES,
                times: 1,
                frames: FRAMES,
                ..Config::default()
            },
            copies,
            programs,
        };
        let sampler = Sampler::load(&setup)?;
        let changes =
            Changes::watch(&cpus).map_err(LiveError::system("watch what processes map"))?;
        let (mut spaces, mut files) = (Spaces::default(), Files::default());
        if !asked.children {
            spaces.read(spec.filter.pid, &mut files);
        }
        let attached = Attached {
            attach_ns: begun.elapsed().as_nanos() as u64,
            facts: BTreeMap::from([
                ("sampled.event".into(), event.name().into()),
                ("sampled.user_stacks".into(), asked.user_stacks.to_string()),
            ]),
            figures: vec![
                Figure::new(&PERIOD, period_ns as f64),
                Figure::new(&FREQUENCY, f64::from(asked.frequency_hz)),
            ],
            ..Attached::default()
        };
        Ok(Profile {
            counts: sampler.counts()?,
            programs_ns: sampler.totals().run_ns,
            sampler,
            changes,
            spaces,
            files,
            kernel: Kernel::default(),
            functions: Functions::default(),
            places: HashMap::new(),
            waits: HashMap::new(),
            crossed: Vec::new(),
            unwinders: Unwinders::default(),
            unwound: HashMap::new(),
            counted: BTreeMap::new(),
            fresh: 0,
            times: Vec::new(),
            attached,
            cpus: cpus.len(),
            off_cpu: asked.off_cpu,
            begun_ns: 0,
            period_ns,
            polled: begun,
            opened: begun,
            reader_ns,
            _counting: raw::count_run_times().ok(),
        })
    }

    /// Take what has arrived.
    fn take(&mut self) -> Result<(), LiveError> {
        self.polled = Instant::now();
        for (time, change) in self.changes.poll() {
            self.spaces.follow(time, change, &mut self.files);
        }
        let arrived = self.sampler.poll()?;
        self.fresh += arrived.places.len();
        for place in arrived.places {
            let found = self.find(place);
            self.places.insert(found.place.hash, found);
        }
        for copied in &arrived.copies {
            self.unwind(copied);
        }
        let waits = arrived.waits.into_iter();
        self.waits.extend(waits.map(|wait| (wait.hash, wait)));
        self.times.extend(arrived.times);
        self.crossed.extend(arrived.crossed);
        Ok(())
    }

    /// Read what was counted, before the map is full or as a window ends.
    fn drain(&mut self, window: bool) -> Result<(), LiveError> {
        self.fresh = 0;
        for (hash, more) in self.sampler.drain(window)? {
            let known = self.counted.entry(hash).or_default();
            known.count += more.count;
            known.ns += more.ns;
        }
        Ok(())
    }

    /// Unwind a copy of a user stack.
    fn unwind(&mut self, copied: &Copied) {
        let Some(found) = self.places.get(&copied.hash) else {
            return;
        };
        let Who::Process(pid) = found.place.who else {
            return;
        };
        let of = (pid, copied.time_ns);
        if !self.spaces.knows(pid) {
            self.spaces.read(Some(pid), &mut self.files);
        }
        let (spaces, files) = (&self.spaces, &mut self.files);
        let (frames, whole) = self.unwinders.frames(copied, of, spaces, files);
        let user = self.within(&frames, of);
        let known = self.unwound.entry(copied.hash).or_default();
        *known.entry((user, whole)).or_default() += 1;
    }

    /// Where some addresses of user code are, where the task was first. Its process may be gone
    /// later.
    fn within(&mut self, frames: &[u64], (pid, time_ns): (u32, u64)) -> Vec<Option<Within>> {
        if !frames.is_empty() && !self.spaces.knows(pid) {
            self.spaces.read(Some(pid), &mut self.files);
        }
        let mut within = Vec::with_capacity(frames.len());
        for (depth, address) in frames.iter().enumerate() {
            // Callers go by the instruction that calls.
            let at = address - u64::from(depth > 0 && *address > 0);
            let place = self.spaces.place(pid, time_ns, at);
            // What is in no mapping is what a register happened to have.
            if place.is_none() && depth > 0 {
                break;
            }
            if let Some(place) = place {
                self.files.hold(place.file, pid);
            }
            within.push(place);
        }
        within
    }

    /// Find out where a stack is.
    fn find(&mut self, place: Place) -> Found {
        let within = match place.who {
            Who::Process(pid) => self.within(&place.frames, (pid, place.time_ns)),
            Who::Idle | Who::Foreign => vec![None; place.frames.len()],
        };
        Found { place, within }
    }

    /// The functions of user code, where the task was first, and whether they end before one that
    /// a thread begins with.
    fn named(&mut self, within: &[Option<Within>], whole: bool) -> Named {
        let mut user = Vec::with_capacity(within.len());
        for at in within {
            let met = match at {
                Some(at) => self.files.function(*at),
                None => unknown(None),
            };
            user.push(self.functions.number(met));
        }
        let begins = |at: &u32| is_beginning(self.functions.name(*at));
        // By frame pointers, what is behind that is what a register happened to have.
        if let Some(first) = user.iter().position(begins).filter(|_| !whole) {
            user.truncate(first + 1);
            return (user, false);
        }
        let cut = !whole && !user.is_empty();
        (user, cut)
    }

    /// Give the stacks that were counted their names.
    fn name(&mut self, hashes: impl Iterator<Item = u64>) -> HashMap<u64, Named> {
        let mut names = HashMap::new();
        for hash in hashes {
            let Some(found) = self.places.get_mut(&hash) else {
                continue;
            };
            let within = std::mem::take(&mut found.within);
            let named = self.named(&within, false);
            if let Some(found) = self.places.get_mut(&hash) {
                found.within = within;
            }
            names.insert(hash, named);
        }
        names
    }

    /// The times of samples that were counted in a window. The others are of the next one.
    fn timed(&mut self, counted: &BTreeMap<u64, Known>, charging: &Charging) -> Timed {
        let mut left: HashMap<u64, u64> = (counted.iter())
            .map(|(hash, known)| (*hash, known.count))
            .collect();
        let mut timed = Timed::default();
        let mut numbers: HashMap<Thread, u32> = HashMap::new();
        let mut later = Vec::new();
        for time in std::mem::take(&mut self.times) {
            match left.get_mut(&time.hash) {
                Some(count) if *count > 0 => *count -= 1,
                _ => {
                    later.push(time);
                    continue;
                }
            }
            timed.times.push(time);
            let (Some(charged), Some(found)) = (
                charging.charged.get(&time.hash),
                self.places.get(&time.hash),
            ) else {
                continue;
            };
            let thread = Thread {
                pid: match found.place.who {
                    Who::Process(pid) => pid,
                    Who::Idle | Who::Foreign => 0,
                },
                tid: time.tid,
                name: found.place.name.clone(),
            };
            let next = numbers.len() as u32;
            let thread = *numbers.entry(thread).or_insert_with_key(|thread| {
                timed.threads.push(thread.clone());
                next
            });
            timed.samples.push(Sample {
                time_ns: time.time_ns.saturating_sub(self.begun_ns),
                thread,
                cpu: time.cpu,
                ..*charged
            });
        }
        self.times = later;
        // All of them have a time, or what they add up to is not what was counted.
        if timed.samples.len() as u64 != charging.taken {
            timed.samples.clear();
            timed.threads.clear();
        }
        timed
    }

    /// The window until now.
    fn window(&mut self) -> Result<Window, LiveError> {
        self.drain(true)?;
        let counted = std::mem::take(&mut self.counted);
        let mut asleep = match self.off_cpu {
            true => self.sampler.asleep()?,
            false => Vec::new(),
        };
        self.take()?;
        let known: HashSet<(u32, u64)> = (asleep.iter())
            .map(|wait| (wait.tid, wait.begin_ns))
            .collect();
        let unseen = std::mem::take(&mut self.crossed).into_iter();
        asleep.extend(unseen.filter(|wait| {
            let window_ns = self.sampler.window_ns();
            wait.window_ns == window_ns && !known.contains(&(wait.tid, wait.begin_ns))
        }));
        let now = Instant::now();
        let counts = self.sampler.counts()?;
        let mut charging = Charging::default();
        let of_waits = counted.keys().filter_map(|hash| self.waits.get(hash));
        let of_waits = of_waits.map(|wait| wait.stack);
        let of_asleep = asleep.iter().map(|wait| wait.stack);
        let stacks: BTreeSet<u64> = (counted.keys().copied())
            .chain(of_waits)
            .chain(of_asleep)
            .collect();
        let names = self.name(stacks.into_iter());
        let mut unwound: HashMap<u64, HashMap<Named, u64>> = HashMap::new();
        for (hash, stacks) in std::mem::take(&mut self.unwound) {
            let of = unwound.entry(hash).or_default();
            for ((within, whole), samples) in stacks {
                *of.entry(self.named(&within, whole)).or_default() += samples;
            }
        }
        let nothing = (Vec::new(), false);
        let named = |hash: &u64| names.get(hash).unwrap_or(&nothing);
        let kernels = counted.keys().filter_map(|hash| self.places.get(hash));
        let addresses = kernels.flat_map(|found| &found.place.kernel);
        let symbols = self.kernel.symbols(addresses)?;
        let mut waiting = Charging::default();
        for (hash, known) in &counted {
            let place = self.places.get(hash);
            match (place, self.waits.get(hash)) {
                // It is there for a wait, and was not sampled.
                _ if known.count == 0 => {}
                (Some(found), _) => {
                    let stacks = unwound.remove(hash).unwrap_or_default();
                    let own = named(hash);
                    charging.add(found, own, known, &stacks, symbols, &mut self.functions);
                }
                (None, Some(wait)) => {
                    let of = (wait.stack, wait.waker, wait.reason);
                    let sum = (known.count, known.ns);
                    let own = &named(&wait.stack).0;
                    waiting.add_wait(&self.places, own, of, sum, symbols, &mut self.functions);
                }
                (None, None) => charging.unknown += known.count,
            }
        }
        for wait in &asleep {
            let of = (wait.stack, wait.waker, wait.reason);
            let own = &named(&wait.stack).0;
            waiting.add_wait(
                &self.places,
                own,
                of,
                (0, self.sampler.waited_ns(wait)),
                symbols,
                &mut self.functions,
            );
        }
        if self.places.len() > MAX_PLACES {
            self.places.clear();
        }
        if self.waits.len() > MAX_PLACES {
            self.waits.clear();
        }
        let duration = now - self.opened;
        let programs_ns = self.sampler.totals().run_ns;
        let timed = self.timed(&counted, &charging);
        let late = late(&timed.times, self.period_ns);
        let ticks = (counts.ticks - self.counts.ticks) as f64;
        let reached = ticks / self.cpus as f64 / duration.as_secs_f64();
        let of_programs = programs_ns.saturating_sub(self.programs_ns);
        let reader_ns = process_ns();
        let of_reader = reader_ns.saturating_sub(self.reader_ns);
        let since = |of: fn(&Counts) -> u64| of(&counts) - of(&self.counts);
        let figures = [
            (&TAKEN, charging.taken as f64),
            (&IDLE, charging.idle as f64),
            (&REACHED, reached),
            (&USER_STACKS, charging.user_stacks as f64),
            (&STACKS_CUT, charging.cut as f64),
            (&ON_TIME, late.timed as f64),
            (&LATE, late.late as f64),
            (&PROGRAMS, of_programs as f64),
            (&READER, of_reader as f64),
        ];
        let waits = [
            (&WAITS_BEGUN, since(|c| c.waits_begun) as f64),
            (&WAITS_ENDED, since(|c| c.waits_ended) as f64),
            (
                &WAITS_OPEN,
                (counts.waits_begun - counts.waits_ended) as f64,
            ),
        ];
        let waits = waits.into_iter().filter(|_| self.off_cpu);
        let losses = [
            (
                "samples lost: no room for more stacks",
                since(|c| c.lost_map),
                "their time is missing; a lower --frequency has fewer",
            ),
            (
                "samples lost: buffer full",
                since(|c| c.lost_ring),
                "their time is missing; a lower --frequency has fewer",
            ),
            (
                "samples lost: two stacks with one hash",
                since(|c| c.collided),
                "their time is missing",
            ),
            (
                "samples of stacks that are not known any more",
                charging.unknown,
                "their time is missing",
            ),
            (
                "samples without a stack",
                charging.stackless,
                "their time is in [unknown]",
            ),
            (
                "samples without a time",
                since(|c| c.without_time),
                "buffer full: they count, and are not among those that may be late",
            ),
            (
                "samples with more than 127 frames",
                since(|c| c.cut),
                "their outermost frames are missing",
            ),
            (
                "copies of user stacks lost: buffer full",
                since(|c| c.copies_lost),
                "their samples have no stack of programs",
            ),
            (
                "waits lost: no room for more",
                since(|c| c.waits_dropped) + waiting.unknown,
                "their time is missing",
            ),
            (
                "new processes that were not followed",
                since(|c| c.processes_dropped),
                "their samples are missing",
            ),
            (
                "changes of processes that were not told",
                std::mem::take(&mut self.spaces.lost),
                "code that was mapped then may have no name",
            ),
        ];
        let losses = live::losses(losses);
        let mut of_cpu = charging.costs(&self.functions, &CPU_TIME);
        (of_cpu.samples, of_cpu.threads) = (timed.samples, timed.threads);
        let mut costs = vec![of_cpu];
        costs.extend(
            self.off_cpu
                .then(|| waiting.costs(&self.functions, &OFF_CPU)),
        );
        self.counts = counts;
        self.programs_ns = programs_ns;
        self.reader_ns = reader_ns;
        self.opened = now;
        Ok(Window {
            duration_ns: duration.as_nanos() as u64,
            own_cpu_ns: of_programs + of_reader,
            figures: (figures.into_iter().chain(waits))
                .map(|(of, value)| Figure::new(of, value))
                .collect(),
            costs,
            losses,
            ..Window::default()
        })
    }
}

/// Whether threads begin with a function.
fn is_beginning(name: &str) -> bool {
    BEGINNINGS.iter().any(|begins| name.starts_with(begins))
}

/// The frames of a stack that was taken at a tracepoint, without those of the tracepoint.
fn without_tracepoint<'a>(
    symbols: &SymbolTable,
    stack: &'a [Option<usize>],
) -> &'a [Option<usize>] {
    let of_tracepoint = |at: &Option<usize>| {
        let name = kernel::name(symbols, *at);
        TRACEPOINTS.iter().any(|begins| name.starts_with(begins))
    };
    let first = stack.iter().position(|at| !of_tracepoint(at));
    &stack[first.unwrap_or(0)..]
}

/// The kernel refuses to sample more often, or it takes a pause.
fn check_frequency(hz: u32) -> Result<(), LiveError> {
    let most = std::fs::read_to_string(MAX_RATE).ok();
    match most.and_then(|most| most.trim().parse::<u32>().ok()) {
        Some(most) if hz > most => Err(LiveError::CannotRun {
            reason: format!(
                "the kernel takes at most {most} samples a second of each CPU, not {hz}"
            ),
            remedy: format!(
                "use --frequency {most}, or raise the limit: sysctl \
                 kernel.perf_event_max_sample_rate={hz}"
            ),
        }),
        _ => Ok(()),
    }
}

impl Live for Profile {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.opened = Instant::now();
        self.begun_ns = monotonic_ns();
        self.sampler.begin()
    }

    fn poll(&mut self) -> Result<(), LiveError> {
        if self.polled.elapsed() < POLL {
            return Ok(());
        }
        self.take()?;
        match self.fresh > KEYS / 2 {
            true => self.drain(false),
            false => Ok(()),
        }
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        self.window()
    }

    fn stop(&mut self) {
        self.sampler.stop();
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        self.window()
    }
}

/// Charges samples to where they were.
#[derive(Debug, Default)]
struct Charging {
    tree: Tree,
    /// Samples of each stack, by its hash, if they are all alike; without time, CPU and thread.
    charged: HashMap<u64, Sample>,
    kernel_ns: u64,
    user_ns: u64,
    taken: u64,
    idle: u64,
    user_stacks: u64,
    cut: u64,
    stackless: u64,
    unknown: u64,
}

impl Charging {
    /// Charge samples of a stack, some of them with a user stack that was unwound.
    fn add(
        &mut self,
        found: &Found,
        (own, own_cut): &Named,
        known: &Known,
        unwound: &HashMap<Named, u64>,
        symbols: &SymbolTable,
        functions: &mut Functions,
    ) {
        let place = &found.place;
        let stack = kernel::found(symbols, &place.kernel);
        let names: Vec<&str> = stack.iter().map(|at| kernel::name(symbols, *at)).collect();
        let context = context(&names);
        if place.who == Who::Idle && context == Context::Task {
            self.idle += known.count;
            return;
        }
        self.taken += known.count;
        match place.user {
            true => self.user_ns += known.ns,
            false => self.kernel_ns += known.ns,
        }
        let root = functions.number(root(&place.name));
        let stack: Vec<u32> = (stack.iter().rev())
            .map(|at| functions.number(kernel::met(symbols, *at)))
            .collect();
        let mut left = known.count;
        let mut alike = None;
        let mut charge = |user: &[u32], cut: bool, samples: u64, ns: u64| {
            if samples == 0 {
                return;
            }
            if !user.is_empty() {
                self.user_stacks += samples;
                self.cut += if cut { samples } else { 0 };
            }
            let mut node = self.tree.node(None, root);
            for function in user.iter().rev().chain(&stack) {
                node = self.tree.node(Some(node), *function);
            }
            if stack.is_empty() && user.is_empty() {
                self.stackless += samples;
                let function = functions.number(nameless(UNKNOWN));
                node = self.tree.node(Some(node), function);
            }
            let sum = Sum { samples, ns };
            self.tree.charge((Direction::Run, context, node), sum);
            alike = Some(node).filter(|_| samples == known.count);
        };
        let mut left_ns = known.ns;
        for ((user, cut), samples) in unwound {
            let samples = (*samples).min(left);
            // The last takes what division leaves.
            let ns = match samples == left {
                true => left_ns,
                false => known.ns / known.count * samples,
            };
            charge(user, *cut, samples, ns);
            left -= samples;
            left_ns -= ns;
        }
        charge(own, *own_cut, left, left_ns);
        let weight = known.ns / known.count;
        if let Some(node) = alike.filter(|_| known.ns == weight * known.count) {
            let sample = Sample {
                time_ns: 0,
                weight,
                node,
                thread: 0,
                cpu: 0,
                direction: Direction::Run,
                context,
            };
            self.charged.insert(place.hash, sample);
        }
    }

    /// Charge waits of a stack, to why and for whom.
    fn add_wait(
        &mut self,
        places: &HashMap<u64, Found>,
        user: &[u32],
        (stack, waker, reason): (u64, u64, u32),
        (samples, ns): (u64, u64),
        symbols: &SymbolTable,
        functions: &mut Functions,
    ) {
        let Some(found) = places.get(&stack) else {
            self.unknown += samples;
            return;
        };
        self.kernel_ns += ns;
        let root = functions.number(root(&found.place.name));
        let mut node = self.tree.node(None, root);
        for function in user.iter().rev() {
            node = self.tree.node(Some(node), *function);
        }
        let stack = kernel::found(symbols, &found.place.kernel);
        for at in without_tracepoint(symbols, &stack).iter().rev() {
            let function = functions.number(kernel::met(symbols, *at));
            node = self.tree.node(Some(node), function);
        }
        let waker = places.get(&waker).map(|found| {
            let stack = kernel::found(symbols, &found.place.kernel);
            let names: Vec<&str> = stack.iter().map(|at| kernel::name(symbols, *at)).collect();
            match context(&names) {
                Context::Task | Context::OtherTask => found.place.name.clone(),
                other => other.to_string(),
            }
        });
        let reason = match reason as usize {
            REASON_PREEMPTED => "[preempted]",
            REASON_SLEEP => "[sleep]",
            REASON_IO => "[I/O]",
            REASON_BLOCKED => "[blocked]",
            _ => UNKNOWN,
        };
        let leaves = std::iter::once(reason.to_string())
            .chain(waker.map(|waker| format!("[woken by {waker}]")));
        for leaf in leaves {
            node = self
                .tree
                .node(Some(node), functions.number(nameless(&leaf)));
        }
        let sum = Sum { samples, ns };
        let to = (Direction::Run, Context::Task, node);
        self.tree.charge(to, sum);
    }

    fn costs(self, functions: &Functions, quantity: &Declared) -> Costs {
        let sums = (self.kernel_ns, self.user_ns);
        self.tree.costs(functions, quantity, sums)
    }
}

/// What stands for a thread: its name.
fn root(name: &str) -> Met {
    Met {
        name: match name {
            "" => "[idle]".into(),
            name => name.into(),
        },
        module: Some(THREAD_MODULE.into()),
        user: true,
        ..Met::default()
    }
}
