//! Keeps the samples of a file, and the tree of places that they were taken in.

use std::hash::{BuildHasher, RandomState};

use linux_perf_data::linux_perf_event_reader::{
    CpuMode, EventRecord, Mmap2FileId, RawData, RecordType,
};
use netplumb_instruments::samples::is_made;
use netplumb_model::samples::{MAX_SAMPLES, Thread};
use rustc_hash::FxHashMap;

use crate::Options;
use crate::attributes::Attributes;
use crate::events::{Event, event};
use crate::facts::{Facts, until_zero};
use crate::frames::{Node, Place, Tree};
use crate::jitdump::{self, Dumps};
use crate::made;
use crate::records::Records;
use crate::sample::{Layout, Sample};
use crate::spaces::{Mapping, Spaces, Threads};

/// Numbers in a stack that give the context of what follows, not an address (enum
/// perf_callchain_context).
const CONTEXTS: u64 = -4095_i64 as u64;
const HYPERVISOR: u64 = -32_i64 as u64;
const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;
/// The user stack follows in a record of its own, which has the number after this (Linux 6.18, commit
/// c69993ecdd4d, "perf: Support deferred user unwind").
const USER_DEFERRED: u64 = -640_i64 as u64;
/// Frames that are kept of a stack; recordings have a limit.
const MAX_FRAMES: usize = 1024;
/// Maximum number of caller stacks whose nodes are remembered: stacks of processes that ended don't
/// come again.
const MAX_CALLERS: usize = 1 << 16;
/// Bytes of the longest instruction that calls.
const MAX_CALL_BYTES: u64 = 8;
/// The bit of a mapping's protection for executable code.
const EXECUTED: u32 = 4;
/// Where the kernel's own code is mapped from.
const KERNEL_TEXT: [&str; 2] = ["[kernel.kallsyms]", "[kernel.vmlinux]"];

/// A sample, before its places have names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSample {
    pub(crate) time_ns: u64,
    pub(crate) weight: u64,
    pub(crate) node: u32,
    pub(crate) thread: u32,
    pub(crate) cpu: u32,
    /// Whether it was in the kernel.
    pub(crate) kernel: bool,
}

/// Everything of a file.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) facts: Facts,
    /// The events, with their samples.
    pub(crate) events: Vec<(Event, Vec<RawSample>)>,
    pub(crate) places: Vec<Place>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) threads: Vec<Thread>,
    /// Names of threads, by number.
    pub(crate) names: Vec<String>,
    /// Files that were mapped, by number.
    pub(crate) files: Vec<String>,
    /// By the files' numbers: parts of the kernel, and from where to where they are.
    pub(crate) kernel: Vec<Mapping>,
    /// Where the kernel's symbol `_text` (or another one) was, if that is known.
    pub(crate) reference: Option<(String, u64)>,
    pub(crate) counts: Counts,
}

/// Counts of what was left out.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lost: u64,
    pub(crate) too_many: u64,
    pub(crate) cut_stacks: u64,
    /// Stacks with as many frames as the kernel takes, which had more.
    pub(crate) full_stacks: u64,
    /// The most frames that the kernel took.
    pub(crate) max_stack: usize,
    /// Files that a program wrote about the code that it made, and that are not read.
    pub(crate) unread_dumps: u64,
    pub(crate) branches: u64,
    /// Samples with a stack.
    pub(crate) chains: u64,
    /// Those whose user stack is in a record of its own.
    pub(crate) deferred: u64,
    pub(crate) stack_copies: u64,
    /// Of events that are not imported.
    pub(crate) others: u64,
    pub(crate) invalid: u64,
    pub(crate) elsewhere: u64,
    pub(crate) without_time: u64,
}

impl Gathered {
    /// How many samples there are.
    pub(crate) fn samples(&self) -> usize {
        self.events.iter().map(|(_, samples)| samples.len()).sum()
    }
}

/// Process all records, in the order of their times.
pub(crate) fn gather(mut facts: Facts, mut records: Records, options: &Options) -> Gathered {
    let attributes = records.attributes();
    let place = made::Place::from_facts(&facts, options);
    let mut gathering = Gathering::with(Dumps::at(place, attributes.are_monotonic()));
    let all = attributes.all().iter().enumerate();
    let named = |n: usize| attributes.layout(n).and_then(|of| facts.types.get(&of.event()));
    let events = all.map(|(n, of)| (event(of, &facts, (n, named(n))), Vec::new()));
    gathering.events = events.collect();
    loop {
        let (number, time_ns, record) = match records.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            // Records until the error are kept.
            Err(error) => {
                facts.stopped = Some(error.to_string());
                break;
            }
        };
        gathering.made_until(time_ns);
        if let (RecordType::SAMPLE, RawData::Single(body)) = (record.record_type, record.data) {
            match (attributes.layout(number))
                .and_then(|of| Some((of, of.parse(record.misc, body)?)))
            {
                Some((layout, sample)) => gathering.sample(&attributes, (number, layout), &sample),
                None => gathering.counts.invalid += 1,
            }
            continue;
        }
        match record.parse() {
            Ok(other) => gathering.change(other, &mut facts),
            Err(_) => gathering.counts.invalid += 1,
        }
    }
    gathering.done(facts)
}

#[derive(Debug)]
struct Gathering {
    events: Vec<(Event, Vec<RawSample>)>,
    spaces: Spaces,
    /// Code that programs made, which is over what they mapped.
    made: Spaces,
    dumps: Dumps,
    threads: Threads,
    /// The last values of counters, by the ID of the event, and the thread if it has its own.
    values: FxHashMap<(u64, i32), u64>,
    /// The current sample's weight, by event.
    weights: Vec<(usize, u64)>,
    tree: Tree,
    /// Nodes of callers, by a hash of what they are; cleared when it has `MAX_CALLERS`.
    callers: FxHashMap<u64, u32>,
    hasher: RandomState,
    /// The stack of the sample that is being read: what and where, the innermost first.
    stack: Vec<(Mode, u64)>,
    kernel: Vec<Mapping>,
    reference: Option<(String, u64)>,
    samples: usize,
    counts: Counts,
}

/// Whose code an address of a stack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mode {
    Kernel,
    User,
    Elsewhere,
}

impl Mode {
    fn from_cpu_mode(mode: CpuMode) -> Mode {
        match mode {
            CpuMode::Kernel => Mode::Kernel,
            CpuMode::User => Mode::User,
            _ => Mode::Elsewhere,
        }
    }
}

impl Gathering {
    fn with(dumps: Dumps) -> Gathering {
        Gathering {
            dumps,
            events: Vec::new(),
            spaces: Spaces::default(),
            made: Spaces::default(),
            threads: Threads::default(),
            values: FxHashMap::default(),
            weights: Vec::new(),
            tree: Tree::default(),
            callers: FxHashMap::default(),
            hasher: RandomState::default(),
            stack: Vec::new(),
            kernel: Vec::new(),
            reference: None,
            samples: 0,
            counts: Counts::default(),
        }
    }

    fn sample(&mut self, attributes: &Attributes, of: (usize, &Layout), sample: &Sample<'_>) {
        let (number, layout) = of;
        let Some((of, _)) = self.events.get(number) else {
            self.counts.invalid += 1;
            return;
        };
        self.counts.branches += u64::from(of.branches && !layout.branches_are_callers());
        self.counts.stack_copies += u64::from(of.stack_copies);
        if of.quantity.is_none() {
            self.counts.others += 1;
            return;
        }
        let period = sample.period.unwrap_or(of.period);
        self.weigh(attributes, (number, layout, period), sample);
        let (time_ns, recorded) = (sample.time_ns.unwrap_or_default(), i64::MAX as u64);
        let is_recorded = |weight: u64| weight <= recorded && time_ns <= recorded;
        if !self.weights.iter().all(|(_, weight)| is_recorded(*weight)) {
            self.counts.invalid += 1;
            return;
        }
        if self.samples + self.weights.len() > MAX_SAMPLES {
            self.counts.too_many += self.weights.len() as u64;
            return;
        }
        if self.weights.is_empty() {
            return;
        }
        let mode = Mode::from_cpu_mode(sample.mode);
        self.read_stack(layout, mode, sample);
        let (thread, name, is_new) = self.threads.thread(sample.pid, sample.tid);
        if is_new {
            self.spaces.runs(sample.pid, sample.tid);
        }
        let node = self.node(sample.pid, name);
        self.counts.without_time += u64::from(sample.time_ns.is_none());
        self.counts.elsewhere += u64::from(mode == Mode::Elsewhere);
        self.samples += self.weights.len();
        for (event, weight) in &self.weights {
            let taken = RawSample {
                time_ns,
                weight: *weight,
                node,
                thread,
                cpu: sample.cpu.unwrap_or_default(),
                kernel: mode != Mode::User,
            };
            if let Some((_, samples)) = self.events.get_mut(*event) {
                samples.push(taken);
            }
        }
    }

    /// The weight of a sample: if it has values of counters, each one's increase since the sample before, as in perf.
    fn weigh(
        &mut self,
        attributes: &Attributes,
        (number, layout, period): (usize, &Layout, u64),
        sample: &Sample<'_>,
    ) {
        self.weights.clear();
        let thread = if layout.is_inherited() { sample.tid } else { 0 };
        let mut has_values = false;
        for (id, value) in sample.values.iter() {
            has_values = true;
            let before = self.values.insert((id, thread), value).unwrap_or_default();
            let more = value.saturating_sub(before);
            let event = attributes.by_id(id).filter(|_| more > 0);
            let imported = |event: &usize| {
                let known = self.events.get(*event);
                known.is_some_and(|(of, _)| of.quantity.is_some())
            };
            let event = event.filter(imported);
            self.weights.extend(event.map(|event| (event, more)));
        }
        if !has_values {
            self.weights.push((number, period));
        }
    }

    /// Read the addresses of a stack: of callers, the instruction that calls.
    fn read_stack(&mut self, layout: &Layout, mode: Mode, sample: &Sample<'_>) {
        self.stack.clear();
        let Some(chain) = sample.chain else {
            self.stack.extend(sample.ip.map(|ip| (mode, ip)));
            return;
        };
        self.counts.chains += 1;
        let has_branches = sample.branches().next().is_some();
        let by_branches = layout.branches_are_callers() && has_branches;
        let mut now = mode;
        let mut first = true;
        let mut frames = 0;
        let mut numbers = chain.iter();
        while let Some(number) = numbers.next() {
            if number == USER_DEFERRED {
                self.counts.deferred += 1;
                // No address, but which record.
                numbers.next();
                continue;
            }
            if number >= CONTEXTS {
                now = match number {
                    KERNEL => Mode::Kernel,
                    USER => Mode::User,
                    HYPERVISOR => Mode::Elsewhere,
                    _ => Mode::Elsewhere,
                };
                first = true;
                continue;
            }
            frames += 1;
            let address = number.wrapping_sub(u64::from(!first));
            if first || now != Mode::User || !by_branches {
                self.push(now, address);
            }
            first = false;
        }
        if by_branches {
            let callers = sample.branches();
            callers.for_each(|address| self.push(Mode::User, address));
        } else if frames >= layout.max_stack() {
            self.counts.full_stacks += 1;
            self.counts.max_stack = self.counts.max_stack.max(layout.max_stack());
        }
        if self.stack.len() > MAX_FRAMES {
            self.stack.truncate(MAX_FRAMES);
            self.counts.cut_stacks += 1;
        }
        if let Some(ip) = sample.ip {
            self.begin_at(mode, ip);
        }
    }

    /// Add a caller; one more than are kept shows that there are more.
    fn push(&mut self, mode: Mode, address: u64) {
        if self.stack.len() <= MAX_FRAMES {
            self.stack.push((mode, address));
        }
    }

    /// A sample is where its own address is: what its stack begins with is where the interrupt came,
    /// which may be later.
    fn begin_at(&mut self, mode: Mode, ip: u64) {
        match mode {
            Mode::Elsewhere if !self.stack.is_empty() => return,
            // It has no callers in the kernel, whatever the interrupt came in.
            Mode::User => {
                let user = self.stack.iter().position(|(of, _)| *of == Mode::User);
                self.stack.drain(..user.unwrap_or(self.stack.len()));
            }
            _ => {}
        }
        match self.stack[..] {
            [(of, at), (by, caller), ..] if (of, by) == (mode, mode) && at != ip => {
                // It is the call of the function that the interrupt came in.
                let is_call = caller.wrapping_sub(ip) < MAX_CALL_BYTES;
                self.stack.drain(..usize::from(is_call));
                self.stack[0] = (mode, ip);
            }
            [(of, _), ..] if of == mode => self.stack[0] = (mode, ip),
            _ => self.stack.insert(0, (mode, ip)),
        }
    }

    /// The node of the stack that was read. Most stacks differ in where the CPU was, and have
    /// callers that were met before.
    fn node(&mut self, pid: i32, name: u32) -> u32 {
        let stack = std::mem::take(&mut self.stack);
        let (innermost, callers) = match stack.split_first() {
            Some((first, callers)) => (Some(*first), callers),
            None => (None, &[][..]),
        };
        let version = (self.spaces.version(pid), self.made.version(pid));
        let key = self.hasher.hash_one((version, name, callers));
        let mut node = match self.callers.get(&key) {
            Some(node) => *node,
            None => {
                let mut node = self.tree.node(None, Place::Thread(name));
                for (mode, address) in callers.iter().rev() {
                    let place = self.place(pid, *mode, *address);
                    node = self.tree.node(Some(node), place);
                }
                if self.callers.len() == MAX_CALLERS {
                    self.callers.clear();
                }
                self.callers.insert(key, node);
                node
            }
        };
        if let Some((mode, address)) = innermost {
            let place = self.place(pid, mode, address);
            node = self.tree.node(Some(node), place);
        }
        self.stack = stack;
        node
    }

    fn place(&self, pid: i32, mode: Mode, address: u64) -> Place {
        match mode {
            Mode::Kernel => Place::Kernel(address),
            Mode::Elsewhere => Place::Elsewhere,
            Mode::User => {
                let made = self.made.at(pid, address);
                match made.or_else(|| self.spaces.at(pid, address)) {
                    Some(at) if at.made => Place::Made(pid, address),
                    Some(at) => Place::File(at.file, (address - at.start).wrapping_add(at.offset)),
                    None => Place::Nowhere,
                }
            }
        }
    }

    /// Process a record that changes processes, threads or mappings.
    fn change(&mut self, record: EventRecord<'_>, facts: &mut Facts) {
        match record {
            EventRecord::Comm(comm) => {
                let name = until_zero(&comm.name.as_slice());
                self.threads.named(comm.tid, &name);
                if comm.is_execve {
                    self.spaces.execute(comm.pid);
                    self.made.execute(comm.pid);
                }
                self.spaces.runs(comm.pid, comm.tid);
            }
            EventRecord::Fork(fork) => {
                self.spaces.fork(fork.pid, fork.ppid);
                self.made.fork(fork.pid, fork.ppid);
                self.spaces.runs(fork.pid, fork.tid);
                self.threads.started(fork.tid, fork.ptid);
            }
            EventRecord::Exit(exit) => {
                let was_last = self.spaces.ended(exit.pid, exit.tid);
                if was_last {
                    self.made.end(exit.pid);
                }
            }
            EventRecord::Lost(lost) => {
                self.counts.lost = self.counts.lost.saturating_add(lost.count);
            }
            EventRecord::Mmap2(map) => {
                let path = until_zero(&map.path.as_slice());
                if let Mmap2FileId::BuildId(id) = &map.file_id {
                    facts.add_build_id(&path, id);
                }
                if map.protection & EXECUTED != 0 {
                    let at = (map.address, map.length, map.page_offset);
                    self.map(map.pid, map.cpu_mode, (at, facts.table(&path)), path);
                }
            }
            EventRecord::Mmap(map) if map.is_executable => {
                let path = until_zero(&map.path.as_slice());
                let at = (map.address, map.length, map.page_offset);
                self.map(map.pid, map.cpu_mode, (at, facts.table(&path)), path);
            }
            _ => {}
        }
    }

    /// A process mapped a file. Its symbols, if known, are at addresses of the process or of the file.
    fn map(
        &mut self,
        pid: i32,
        mode: CpuMode,
        (at, absolute): ((u64, u64, u64), Option<bool>),
        path: String,
    ) {
        let (start, bytes, offset) = at;
        let offset = if absolute == Some(true) { start } else { offset };
        let mut mapping =
            Mapping { start, end: start.saturating_add(bytes), offset, file: 0, made: false };
        if mode != CpuMode::Kernel {
            if let Some(dumped) = jitdump::is_dump(&path).then(|| self.dumps.read(pid, &path)) {
                self.counts.unread_dumps += u64::from(!dumped);
                return;
            }
            mapping.made = absolute.is_none() && is_made(&path);
            mapping.file = self.spaces.file(path);
            self.spaces.map(pid, mapping);
            return;
        }
        // The name of the kernel's own code includes the symbol that locates it.
        let symbol = KERNEL_TEXT.iter().find_map(|name| path.strip_prefix(name));
        if let Some(symbol) = symbol
            && !symbol.is_empty()
            && self.reference.is_none()
        {
            self.reference = Some((symbol.to_string(), offset));
        }
        let path = match symbol {
            Some(_) => KERNEL_TEXT[0].to_string(),
            None => path,
        };
        mapping.file = self.spaces.file(path);
        self.kernel.push(mapping);
    }

    /// Take what code programs made until a time.
    fn made_until(&mut self, time_ns: u64) {
        while let Some((pid, made)) = self.dumps.next(time_ns) {
            let mapping = Mapping {
                start: made.start,
                end: made.end,
                offset: 0,
                file: self.spaces.file(made.path()),
                made: false,
            };
            self.made.map(pid, mapping);
        }
    }

    fn done(self, facts: Facts) -> Gathered {
        let (places, nodes) = self.tree.into_parts();
        let (threads, names) = self.threads.into_parts();
        Gathered {
            facts,
            events: self.events,
            places,
            nodes,
            threads,
            names,
            files: self.spaces.into_files(),
            kernel: self.kernel,
            reference: self.reference,
            counts: self.counts,
        }
    }
}
