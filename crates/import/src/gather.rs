//! Keeps the samples of a file, and the tree of places that they were taken in.

use std::hash::{BuildHasher, RandomState};

use linux_perf_data::linux_perf_event_reader::{
    CpuMode, EventRecord, Mmap2FileId, RawDataU64, SampleRecord,
};
use netplumb_model::samples::{MAX_SAMPLES, Thread};
use rustc_hash::FxHashMap;

use crate::events::{Event, event};
use crate::facts::{Facts, until_zero};
use crate::frames::{Node, Place, Tree};
use crate::records::Records;
use crate::spaces::{Mapping, Spaces, Threads};

/// Numbers in a stack that say what follows, not where (enum perf_callchain_context).
const CONTEXTS: u64 = -4095_i64 as u64;
const HYPERVISOR: u64 = -32_i64 as u64;
const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;
/// The user stack follows in a record of its own, which has the number after this (Linux 6.18, commit
/// c69993ecdd4d, "perf: Support deferred user unwind").
const USER_DEFERRED: u64 = -640_i64 as u64;
/// Frames that are kept of a stack; recordings have a limit.
const MAX_FRAMES: usize = 1024;
/// Stacks of callers whose nodes are remembered: those of processes that ended don't come again.
const MAX_CALLERS: usize = 1 << 16;
/// The bit of a mapping's protection that says it is executed.
const EXECUTED: u32 = 4;
/// Where the kernel's own code is mapped from.
const KERNEL_TEXT: [&str; 2] = ["[kernel.kallsyms]", "[kernel.vmlinux]"];

/// A sample, before its places have names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
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
    pub(crate) events: Vec<(Event, Vec<Taken>)>,
    pub(crate) places: Vec<Place>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) threads: Vec<Thread>,
    /// Names of threads, by number.
    pub(crate) names: Vec<String>,
    /// Files that were mapped, by number.
    pub(crate) files: Vec<String>,
    /// By the files' numbers: parts of the kernel, and from where to where they are.
    pub(crate) kernel: Vec<Mapping>,
    /// Where the kernel's symbol `_text` (or another one) was, if that is said.
    pub(crate) reference: Option<(String, u64)>,
    pub(crate) counts: Counts,
}

/// What was left out.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lost: u64,
    pub(crate) too_many: u64,
    pub(crate) cut_stacks: u64,
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

/// Take what all records say, by their times.
pub(crate) fn gather(mut facts: Facts, mut records: Records) -> Gathered {
    let mut gathering = Gathering::default();
    let attributes = records.attributes().all().iter().enumerate();
    let events = attributes.map(|(n, of)| (event(of, &facts, n), Vec::new()));
    gathering.events = events.collect();
    loop {
        let (number, record) = match records.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            // What there is until then is kept.
            Err(error) => {
                facts.stopped = Some(error.to_string());
                break;
            }
        };
        match record.parse() {
            Ok(EventRecord::Sample(sample)) => gathering.sample(number, &sample),
            Ok(other) => gathering.change(other, &mut facts),
            Err(_) => gathering.counts.invalid += 1,
        }
    }
    gathering.done(facts)
}

#[derive(Debug, Default)]
struct Gathering {
    events: Vec<(Event, Vec<Taken>)>,
    spaces: Spaces,
    threads: Threads,
    tree: Tree,
    /// Nodes of callers, by a hash of what they are: of the last so many.
    callers: FxHashMap<u64, u32>,
    hasher: RandomState,
    /// The stack of the sample that is being read: what and where, the innermost first.
    stack: Vec<(Mode, u64)>,
    kernel: Vec<Mapping>,
    reference: Option<(String, u64)>,
    samples: usize,
    counts: Counts,
}

/// What an address of a stack is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mode {
    Kernel,
    User,
    Elsewhere,
}

impl Mode {
    fn of(mode: CpuMode) -> Mode {
        match mode {
            CpuMode::Kernel => Mode::Kernel,
            CpuMode::User => Mode::User,
            _ => Mode::Elsewhere,
        }
    }
}

impl Gathering {
    fn sample(&mut self, event: usize, sample: &SampleRecord<'_>) {
        let Some((of, _)) = self.events.get(event) else {
            self.counts.invalid += 1;
            return;
        };
        self.counts.branches += u64::from(of.branches);
        self.counts.stack_copies += u64::from(of.stack_copies);
        if of.quantity.is_none() {
            self.counts.others += 1;
            return;
        }
        if self.samples == MAX_SAMPLES {
            self.counts.too_many += 1;
            return;
        }
        let weight = sample.period.unwrap_or(of.period);
        let (time_ns, recorded) = (sample.timestamp.unwrap_or_default(), i64::MAX as u64);
        if weight > recorded || time_ns > recorded {
            self.counts.invalid += 1;
            return;
        }
        let (pid, tid) = (sample.pid.unwrap_or(-1), sample.tid.unwrap_or(-1));
        let mode = Mode::of(sample.cpu_mode);
        self.read_stack(sample.callchain, mode, sample.ip);
        let (thread, name) = self.threads.thread(pid, tid);
        let node = self.node(pid, name);
        self.counts.without_time += u64::from(sample.timestamp.is_none());
        self.counts.elsewhere += u64::from(mode == Mode::Elsewhere);
        self.samples += 1;
        let taken = Taken {
            time_ns,
            weight,
            node,
            thread,
            cpu: sample.cpu.unwrap_or_default(),
            kernel: mode != Mode::User,
        };
        if let Some((_, samples)) = self.events.get_mut(event) {
            samples.push(taken);
        }
    }

    /// Read the addresses of a stack: of callers, the instruction that calls.
    fn read_stack(&mut self, chain: Option<RawDataU64<'_>>, mode: Mode, ip: Option<u64>) {
        self.stack.clear();
        let mut now = mode;
        let mut first = true;
        let numbers = chain
            .iter()
            .flat_map(|all| (0..all.len()).map(|n| all.get(n)));
        self.counts.chains += u64::from(chain.is_some());
        let mut numbers = numbers.flatten();
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
            if self.stack.len() == MAX_FRAMES {
                self.counts.cut_stacks += 1;
                break;
            }
            let address = number.wrapping_sub(u64::from(!first));
            self.stack.push((now, address));
            first = false;
        }
        if self.stack.is_empty() {
            self.stack.extend(ip.map(|ip| (mode, ip)));
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
        let version = self.spaces.version(pid);
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
            Mode::User => match self.spaces.at(pid, address) {
                Some(at) => Place::File(at.file, (address - at.start).wrapping_add(at.offset)),
                None => Place::Nowhere,
            },
        }
    }

    /// What changes with time.
    fn change(&mut self, record: EventRecord<'_>, facts: &mut Facts) {
        match record {
            EventRecord::Comm(comm) => {
                let name = until_zero(&comm.name.as_slice());
                self.threads.named(comm.tid, &name);
                if comm.is_execve {
                    self.spaces.execute(comm.pid);
                }
            }
            EventRecord::Fork(fork) => {
                self.spaces.fork(fork.pid, fork.ppid);
                self.threads.started(fork.tid, fork.ptid);
            }
            EventRecord::Exit(exit) if exit.pid == exit.tid => self.spaces.end(exit.pid),
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
                    self.map(map.pid, map.cpu_mode, at, path);
                }
            }
            EventRecord::Mmap(map) if map.is_executable => {
                let path = until_zero(&map.path.as_slice());
                let at = (map.address, map.length, map.page_offset);
                self.map(map.pid, map.cpu_mode, at, path);
            }
            _ => {}
        }
    }

    fn map(&mut self, pid: i32, mode: CpuMode, at: (u64, u64, u64), path: String) {
        let (start, bytes, offset) = at;
        let mapping = |file| Mapping {
            start,
            end: start.saturating_add(bytes),
            offset,
            file,
        };
        if mode != CpuMode::Kernel {
            let file = self.spaces.file(path);
            self.spaces.map(pid, mapping(file));
            return;
        }
        // The kernel's own code is called by the symbol that says where it is.
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
        let file = self.spaces.file(path);
        self.kernel.push(mapping(file));
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
