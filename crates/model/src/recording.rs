//! The contents of a recording: all that a report or a comparison needs, on any machine.
//!
//! Costs belong to nodes of a calling-context tree, from which everything else follows: a function's self cost is the
//! sum over its nodes, its inclusive cost the sum over the subtrees of its outermost nodes, an edge the nodes of one
//! function below another's. Ids are dense and start at 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::arch::Arch;
use crate::bench::Hop;
use crate::class::{Family, Link, Proto};
use crate::code::FunctionCode;
use crate::loss::Loss;
use crate::quantity::{Declared, Figure, FigureKey, Quantity, QuantityId, Scalar, Subject};
use crate::samples::{MAX_SAMPLES, Samples, Thread};
use crate::span::{Call, Span, Stage};
use crate::spans::{Group, Slice};
use crate::timing::{Calibration, Mechanism};
use crate::trace::Trace;

mod below;
mod kept;
mod merge;
mod of_threads;
mod part;
mod redact;
mod rename;
mod traces;

pub use merge::{INTO_RUN, MAX_BLOCKS, MERGED, SESSIONS};
pub use redact::{Redaction, Secret};
pub use rename::FunctionKey;

pub use crate::tree::{
    Cost, Function, FunctionId, LineCost, Node, NodeId, SourceFileId, SourceLine,
};

/// One `.plumb` file in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Facts about the setup, by dotted key: see [`mod@env`]. Measurements are not among them.
    pub environment: BTreeMap<String, String>,
    /// The experiment file as written; empty for `plumb path`.
    pub experiment_toml: String,
    /// The quantities that costs, totals and scalars refer to.
    pub quantities: Vec<Quantity>,
    /// The arms, in the order of the plan.
    pub arms: Vec<Arm>,
    /// Notes on arms, by index.
    pub notes: BTreeMap<u32, ArmNotes>,
    /// Measured repetitions, in the order they ran.
    pub blocks: Vec<Block>,
    /// Every function with a cost.
    pub functions: Vec<Function>,
    /// Source files, with the paths that the compiler was given, each once.
    pub source_files: Vec<String>,
    /// The text of source files, as far as they were found on the recorded machine.
    pub source_texts: BTreeMap<SourceFileId, String>,
    /// The calling-context tree; a parent comes before its children.
    pub nodes: Vec<Node>,
    /// Costs by node, block, direction and context.
    pub costs: Vec<Cost>,
    /// Samples with their times, by block and quantity: `costs` has their sums, see
    /// [`Recording::add_samples`].
    pub samples: Vec<Samples>,
    /// The threads that these were taken in.
    pub threads: Vec<Thread>,
    /// Times from one event to the next: of functions, each in its calling context, and of the
    /// stages of a packet's path.
    pub spans: Vec<Span>,
    /// Times between events by what they are broken down by, if they are.
    pub groups: Vec<Group>,
    /// Times between events over time, in the order of time.
    pub slices: Vec<Slice>,
    /// How functions were timed.
    pub attachments: Vec<Attachment>,
    /// The cost of probes.
    pub calibration: Vec<Calibration>,
    /// Single figures of blocks, arms and the run.
    pub scalars: Vec<Scalar>,
    /// The ledger of hops, in the order of blocks and of each block's hops.
    pub hops: Vec<BlockHop>,
    /// Single traces, of calls and of packets.
    pub traces: Vec<Trace>,
    /// Names, arguments and others of their texts, each once.
    pub trace_texts: Vec<String>,
    /// Costs of source lines of user code, where lines are known.
    pub line_costs: Vec<LineCost>,
    /// Instructions of functions, where they were counted, in the order of arms.
    pub code: Vec<FunctionCode>,
    /// Everything that was lost, missed or could not be attributed, by instrument (empty in old
    /// recordings, which don't have it).
    pub losses: BTreeMap<String, Vec<Loss>>,
    /// Functions and tracepoints that an instrument could not measure, by instrument, each with the
    /// reason.
    pub not_measured: BTreeMap<String, BTreeMap<String, String>>,
    /// Functions that an instrument left out to stay within its limits, in the order in which it
    /// gave them up.
    pub over_budget: BTreeMap<String, Vec<String>>,
    /// Settings that a scan did not try, each with the reason.
    pub not_tried: BTreeMap<String, String>,
    /// Whether the run was completed. If not, the contents are valid nevertheless.
    pub complete: bool,
}

/// Maximum length in bytes of the name of a function, a module, a layer, a cause or a counter.
pub const MAX_NAME_BYTES: usize = 16 << 10;

/// The module of the function that represents a thread of a command: the root of the thread's
/// calls, without costs of its own.
pub const THREAD_MODULE: &str = "(thread)";

/// The module of the function that represents an event: the root of those who caused it, without
/// costs of its own.
pub const EVENT_MODULE: &str = "(event)";

/// Keys of [`Recording::environment`] that are used in several places.
pub mod env {
    /// The instrument, or the first of several.
    pub const CLOCK: &str = "clock";
    /// The unit of costs: "instructions" or "nanoseconds".
    pub const UNIT: &str = "clock.unit";
    /// Where it ran: "vm", "netns" or "host". Absent in old recordings: "vm".
    pub const LAB: &str = "lab";
    /// The interfaces of this machine that a bench ran on, in words.
    pub const NICS: &str = "bench.nics";
    /// The CPUs of two hosts of this machine: the sender's and the receiver's.
    pub const HOSTS_CPUS: &str = "hosts.cpus";
    /// The interface of this machine that settings were searched for.
    pub const TUNED_NIC: &str = "tune.nic";
    /// The command that made its load.
    pub const TUNED_COMMAND: &str = "tune.command";
    /// The machine whose echoes are the latency.
    pub const TUNED_PEER: &str = "tune.peer";
    /// The source of their CPU use: `tracepoints` or `/proc/stat`.
    pub const HOSTS_CPU_USE: &str = "hosts.cpu_use";
    /// "yes" if the guest ran without an instruction clock.
    pub const QUICK: &str = "clock.quick";
    /// Version of Netplumb.
    pub const PLUMB: &str = "plumb.version";
    /// The command line, as typed.
    pub const ARGV: &str = "plumb.argv";
    /// Seconds since the epoch when the run began.
    pub const STARTED: &str = "plumb.started_unix_s";
    /// The recording's name: of the experiment, or "path".
    pub const NAME: &str = "plumb.name";
    /// Release of the measured kernel.
    pub const KERNEL: &str = "kernel.release";
    /// Content hash of the measured kernel.
    pub const KERNEL_HASH: &str = "kernel.hash";
    /// Its command line.
    pub const CMDLINE: &str = "kernel.cmdline";
    /// Prefixes of the options in its configuration that matter to a packet.
    pub const CONFIG: &str = "config.";
    /// An option that a configuration does not have.
    pub const NOT_SET: &str = "absent";
    /// "on", or "off".
    pub const MITIGATIONS: &str = "kernel.mitigations";
    /// Version of QEMU.
    pub const QEMU: &str = "vm.qemu";
    /// A topology of the user's: its name, and a hash of it.
    pub const TOPOLOGY: &str = "topology.hash";
    /// BPF objects of the user's: hook, device and hash of each.
    pub const OBJECTS: &str = "bpf.objects";
    /// The architecture of the guests.
    pub const ARCH: &str = "vm.arch";
    /// The CPU that QEMU emulates.
    pub const CPU: &str = "vm.cpu";
    /// Features of that CPU that this QEMU can't emulate.
    pub const CPU_LACKS: &str = "vm.cpu.lacks";
    /// How instructions count: on x86-64, `rep` string instructions.
    pub const REP: &str = "vm.rep";
    /// Where the guest's random numbers come from: "seed", the plan's seed, or "boot", the boot.
    pub const RANDOM: &str = "guest.random";
    /// Hash of this program, as it runs in the guest.
    pub const PROGRAM: &str = "guest.program";
    /// Hash of this machine's `nft` and its libraries, as copied into the guest.
    pub const NFT_FILES: &str = "files.nft";
    /// The same of `tc`.
    pub const TC_FILES: &str = "files.tc";
    /// The same of `nginx`.
    pub const NGINX_FILES: &str = "files.nginx";
    /// The same of the program that makes a file system.
    pub const MKFS_FILES: &str = "files.mkfs";
    /// The program whose file it was made of, with its version.
    pub const IMPORTED: &str = "imported.from";
    /// perf's name for the sampled events.
    pub const SAMPLED_EVENT: &str = "sampled.event";
    /// The command line of that program.
    pub const IMPORTED_LINE: &str = "imported.command_line";
    /// The machine that was measured.
    pub const IMPORTED_HOST: &str = "imported.host";
    /// Its architecture, as in `uname -m`.
    pub const IMPORTED_ARCH: &str = "imported.arch";
    /// The architecture of the machine that imported it.
    pub const IMPORTED_ON: &str = "imported.on";
    /// Where names of the kernel's functions are from.
    pub const IMPORTED_SYMBOLS: &str = "imported.kernel_symbols";
    /// How many files of programs were there to find names in, in words.
    pub const IMPORTED_FILES: &str = "imported.files";
    /// Whether samples have stacks: `yes` or `no`.
    pub const IMPORTED_STACKS: &str = "imported.stacks";
    /// The request, as an experiment without its presentation: a run that continues the recording must measure the
    /// same. Absent in old recordings.
    pub const ASKED: &str = "plumb.asked";
    /// Number of random seeds per arm.
    pub const SEEDS: &str = "plumb.seeds";
    /// In a part of a recording: the names of its threads.
    pub const THREADS: &str = "part.threads";
    /// In a part of a recording: the function that it is below. Never stored in a file.
    pub const BELOW: &str = "part.below";
}

/// One combination of knob levels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// The name that reports use.
    pub name: String,
    /// The protocol of its packets.
    pub proto: Proto,
    /// The address family.
    pub family: Family,
    /// The type of link.
    pub link: Link,
    /// Whether there is a router between the ends.
    pub forward: bool,
    /// Payload of one packet: bytes above the transport header (after the ICMP
    /// header for `raw`).
    pub size_bytes: u32,
    /// The levels of all other knobs, by name.
    pub knobs: BTreeMap<String, String>,
    /// How it was made, if it is not in the experiment itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Derivation>,
}

/// How an arm was made from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derivation {
    /// The name of the original arm, its baseline.
    pub from: String,
    /// How the arm differs from its original.
    pub by: MadeBy,
}

/// How an arm was made from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadeBy {
    /// Another random seed.
    Seed,
    /// A scan, which changes one setting.
    Scan {
        /// The setting, with its values before and after.
        setting: String,
        /// Whether the setting is written with its current value, to see the effect of writing
        /// alone.
        control: bool,
    },
}

impl Arm {
    /// The arm that this one repeats with another seed.
    pub fn repeats(&self) -> Option<&str> {
        let made = self.made.as_ref()?;
        matches!(made.by, MadeBy::Seed).then_some(made.from.as_str())
    }

    /// For an arm of a scan: the arm that it is compared with, the setting, and whether it is a
    /// control.
    pub fn scanned(&self) -> Option<(&str, &str, bool)> {
        let made = self.made.as_ref()?;
        match &made.by {
            MadeBy::Seed => None,
            MadeBy::Scan { setting, control } => Some((&made.from, setting, *control)),
        }
    }
}

/// One measured repetition of one arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Index into [`Recording::arms`].
    pub arm: u32,
    /// The instrument that measured it; empty for a block without one, which shows the overhead.
    pub instrument: String,
    /// Which repetition by that instrument, from 0.
    pub index: u32,
    /// The ledger of its packets.
    pub ledger: Ledger,
    /// The total of each quantity of its costs, counted independently.
    pub totals: Vec<Total>,
    /// Functions entered in the window.
    pub entered: u64,
    /// Calls that returned in the window.
    pub returned: u64,
    /// Duration of the window; 0 if the instrument measures no time.
    pub duration_ns: u64,
}

/// The total of a quantity in a block, counted independently of its costs, which add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Index into [`Recording::quantities`].
    pub quantity: QuantityId,
    /// In the kernel, while the block's window was open.
    pub kernel: u64,
    /// In user mode.
    pub user: u64,
}

/// Notes on an arm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmNotes {
    /// Why it has no blocks, or too few, by instrument.
    pub failed: BTreeMap<String, String>,
    /// Facts of its guest that differ from the first one, by the keys of the environment.
    pub facts: BTreeMap<String, String>,
    /// Settings that could not act on its packets, each with the reason.
    pub inert: BTreeMap<String, String>,
    /// Where the missing packets of an invalid block went.
    pub diagnosis: Option<String>,
    /// For a search: why a goal, by its number, has no regular result.
    pub irregular: BTreeMap<u32, String>,
}

impl ArmNotes {
    /// Whether all notes are empty.
    pub fn is_empty(&self) -> bool {
        *self == ArmNotes::default()
    }
}

/// A hop of a block's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockHop {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// Its name, and its packets by where they went.
    pub hop: Hop,
}

/// Packets offered = delivered + dropped by named cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Sent by the workload.
    pub offered: u64,
    /// Received by the workload.
    pub delivered: u64,
    /// Not received, by cause.
    pub dropped: BTreeMap<String, u64>,
}

impl Recording {
    /// A fact of an arm's guest or machine: the arm's own, or else the recording's.
    pub fn fact(&self, arm: usize, key: &str) -> Option<&str> {
        let notes = self.notes.get(&(arm as u32));
        let of_arm = notes.and_then(|notes| notes.facts.get(key));
        let fact = of_arm.or_else(|| self.environment.get(key));
        fact.map(String::as_str)
    }

    /// The architecture of the code of an arm.
    pub fn arch(&self, arm: usize) -> Arch {
        // Recordings of older versions have a single architecture.
        self.fact(arm, env::ARCH).and_then(Arch::named).unwrap_or(Arch::X86_64)
    }

    /// The index of a quantity, which is added if it is new.
    pub fn quantity(&mut self, declared: &Declared) -> QuantityId {
        match self.quantities.iter().position(|q| q.is(declared)) {
            Some(at) => at as QuantityId,
            None => self.new_quantity(declared.into()),
        }
    }

    /// The index of a quantity that was declared elsewhere.
    pub fn quantity_of(&mut self, quantity: &Quantity) -> QuantityId {
        match self.quantities.iter().position(|q| q == quantity) {
            Some(at) => at as QuantityId,
            None => self.new_quantity(quantity.clone()),
        }
    }

    fn new_quantity(&mut self, quantity: Quantity) -> QuantityId {
        self.quantities.push(quantity);
        self.quantities.len() as QuantityId - 1
    }

    /// Add a figure.
    pub fn add(&mut self, of: Subject, quantity: &Declared, item: FigureKey, value: f64) {
        let quantity = self.quantity(quantity);
        self.scalars.push(Scalar { of, quantity, item, value });
    }

    /// Add a figure that was reported from elsewhere.
    pub fn add_figure(&mut self, of: Subject, figure: Figure) {
        let Figure { quantity, item, value } = figure;
        let quantity = self.quantity_of(&quantity);
        self.scalars.push(Scalar { of, quantity, item, value });
    }

    /// Set a reported figure of the run; a later one replaces it.
    pub fn set_figure(&mut self, figure: Figure) {
        let of_run = |s: &Scalar, of: &[Quantity]| {
            s.of == Subject::Run
                && s.item == figure.item
                && of.get(s.quantity as usize) == Some(&figure.quantity)
        };
        let known = &self.quantities;
        match self.scalars.iter_mut().find(|s| of_run(s, known)) {
            Some(scalar) => scalar.value = figure.value,
            None => self.add_figure(Subject::Run, figure),
        }
    }

    /// All figures of a quantity, in the order in which they were added.
    pub fn scalars_of<'r>(&'r self, quantity: &Declared) -> impl Iterator<Item = &'r Scalar> {
        let at = self.quantities.iter().position(|q| q.is(quantity));
        // Nothing to search if it was not measured.
        let all = at.map_or(&[][..], |_| &self.scalars[..]);
        let of = move |s: &&Scalar| Some(s.quantity as usize) == at;
        all.iter().filter(of)
    }

    /// Set a figure of the run; a later one replaces it.
    pub fn set(&mut self, quantity: &Declared, item: FigureKey, value: f64) {
        let id = self.quantity(quantity);
        let is = |s: &&mut Scalar| (s.of, s.quantity, &s.item) == (Subject::Run, id, &item);
        match self.scalars.iter_mut().find(is) {
            Some(scalar) => scalar.value = value,
            None => self.add(Subject::Run, quantity, item, value),
        }
    }

    /// Set a figure of the run to the maximum of this value and the existing one.
    pub fn set_most(&mut self, quantity: &Declared, value: f64) {
        let before = self.scalars_of(quantity).find(|s| s.of == Subject::Run);
        let most = before.map_or(value, |s| s.value.max(value));
        self.set(quantity, FigureKey::ONLY, most);
    }

    /// Add the samples of a quantity in a block, and the costs that they add up to. Nothing else adds
    /// to the costs of that block and quantity: a file has the samples alone. Returns whether their
    /// times are kept, for there may be [too many](MAX_SAMPLES).
    pub fn add_samples(&mut self, samples: Samples) -> bool {
        self.costs.extend(samples.costs());
        let known: usize = self.samples.iter().map(Samples::len).sum();
        let fits = known + samples.len() <= MAX_SAMPLES;
        if fits && !samples.is_empty() {
            self.samples.push(samples);
        }
        fits
    }

    /// Remove all blocks and their contents: figures, costs with their functions, samples, times and traces. What
    /// belongs to the run stays, such as losses.
    pub fn forget_blocks(&mut self) {
        self.blocks.clear();
        self.scalars.retain(|scalar| scalar.block().is_none());
        self.functions.clear();
        self.source_files.clear();
        self.source_texts.clear();
        self.nodes.clear();
        self.costs.clear();
        self.samples.clear();
        self.threads.clear();
        self.spans.clear();
        self.groups.clear();
        self.slices.clear();
        self.attachments.clear();
        self.hops.clear();
        self.traces.clear();
        self.trace_texts.clear();
        self.line_costs.clear();
        self.code.clear();
    }

    /// The notes on an arm, to be added to.
    pub fn notes_of(&mut self, arm: usize) -> &mut ArmNotes {
        self.notes.entry(arm as u32).or_default()
    }

    /// Why an arm has no blocks of an instrument, or too few, if that is the case.
    pub fn failed(&self, arm: usize, instrument: &str) -> Option<&str> {
        let failed = &self.notes.get(&(arm as u32))?.failed;
        failed.get(instrument).map(String::as_str)
    }

    /// The instruments that measured, and those that failed: first the one that was named first,
    /// then by name.
    pub fn instruments(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        let failed = self.notes.values().flat_map(|notes| notes.failed.keys());
        let measured = self.blocks.iter().map(|block| &block.instrument);
        for name in measured.chain(failed) {
            if !name.is_empty() && !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        let first = self.environment.get(env::CLOCK);
        all.sort_unstable_by_key(|name| (Some(*name) != first.map(String::as_str), *name));
        all
    }

    /// The times of functions.
    pub fn calls(&self) -> impl Iterator<Item = (&Span, &Call)> {
        let call = |span| Some((span, Span::call(span)?));
        self.spans.iter().filter_map(call)
    }

    /// The times of stages.
    pub fn stages(&self) -> impl Iterator<Item = (&Span, &Stage)> {
        let stage = |span| Some((span, Span::stage(span)?));
        self.spans.iter().filter_map(stage)
    }

    /// The losses of all instruments.
    pub fn all_losses(&self) -> impl Iterator<Item = &Loss> {
        self.losses.values().flatten()
    }

    /// Add a loss of an instrument to others of the same cause; a count of 0 is ignored.
    pub fn add_loss(&mut self, instrument: &str, loss: Loss) {
        if loss.count == 0 {
            return;
        }
        let losses = self.losses.entry(instrument.into()).or_default();
        match losses.iter_mut().find(|known| known.cause == loss.cause) {
            Some(known) => known.count = known.count.saturating_add(loss.count),
            None => losses.push(loss),
        }
    }

    /// Everything that could not be measured, by any instrument, with the reason.
    pub fn all_not_measured(&self) -> BTreeMap<&str, &str> {
        let each = self.not_measured.values().flatten();
        each.map(|(name, why)| (name.as_str(), why.as_str())).collect()
    }

    /// All functions left out to stay within limits, by any instrument.
    pub fn all_over_budget(&self) -> Vec<&str> {
        let each = self.over_budget.values().flatten();
        each.map(String::as_str).collect()
    }

    /// The path and number of a line.
    pub fn source(&self, source: SourceLine) -> Option<(&str, u32)> {
        let file = self.source_files.get(source.file as usize)?;
        Some((file, source.line))
    }

    /// Where a function is defined, if that is known.
    pub fn source_of(&self, function: FunctionId) -> Option<(&str, u32)> {
        self.source(self.functions.get(function as usize)?.source?)
    }
}

impl Block {
    /// The total of the quantity of its costs: the first one, if there are several; zero without
    /// costs.
    pub fn total(&self) -> Total {
        self.totals.first().copied().unwrap_or_default()
    }

    /// The same in the kernel.
    pub fn kernel(&self) -> u64 {
        self.total().kernel
    }

    /// The same in user mode.
    pub fn user(&self) -> u64 {
        self.total().user
    }
}

impl Ledger {
    /// Whether every packet is accounted for.
    pub fn closes(&self) -> bool {
        let mut parts = self.dropped.values();
        let sum = parts.try_fold(self.delivered, |sum, part| sum.checked_add(*part));
        sum == Some(self.offered)
    }
}

/// How a function was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The timed function.
    pub function: FunctionId,
    /// How the function was timed.
    pub mechanism: Mechanism,
    /// The number of its arguments.
    pub arguments: u8,
}
