//! What a recording holds: all that a report or a comparison needs, and nothing
//! that only the machine it was made on could tell.
//!
//! Costs hang on a calling-context tree, because everything else follows from
//! it: a function's self cost is the sum over its nodes, its inclusive cost the
//! sum over the subtrees of its outermost nodes, an edge the nodes of a function
//! under those of another. Ids are dense and start at 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction, Family, Link, Proto};
use crate::timing::{Calibration, Mechanism, StageKind, Step, Times};

/// Index into [`Recording::functions`].
pub type FunctionId = u32;
/// Index into [`Recording::nodes`].
pub type NodeId = u32;
/// Index into [`Recording::source_files`].
pub type SourceFileId = u32;

/// One `.plumb` file in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Facts about where and how it was measured, by dotted key: see [`env`].
    pub environment: BTreeMap<String, String>,
    /// The experiment file that it answers, as written; empty for `plumb path`.
    pub experiment_toml: String,
    /// What was compared, in the order of the plan.
    pub arms: Vec<Arm>,
    /// Measured repetitions, in the order they ran.
    pub blocks: Vec<Block>,
    /// Every function that any cost names.
    pub functions: Vec<Function>,
    /// Source files, as the compiler was told them, each once.
    pub source_files: Vec<String>,
    /// The calling-context tree; a parent comes before its children.
    pub nodes: Vec<Node>,
    /// What each node cost in each block, direction and context.
    pub costs: Vec<Cost>,
    /// What each node took in each block, direction and context, where the clock is
    /// one of nanoseconds.
    pub timed: Vec<Timed>,
    /// What each stage took.
    pub stages: Vec<Stage>,
    /// By what functions were timed.
    pub attachments: Vec<Attachment>,
    /// What the probes cost.
    pub calibration: Vec<Calibration>,
    /// Counts and rates of blocks.
    pub counters: Vec<Counter>,
    /// Packets told one by one.
    pub steps: Vec<Step>,
    /// What single lines of user code cost, of functions whose lines are known.
    pub line_costs: Vec<LineCost>,
    /// Everything that was lost, missed or could not be attributed.
    pub losses: Vec<Loss>,
    /// Whether the run reached its end. If not, what is here is still right.
    pub complete: bool,
}

/// Bytes of the name of a function, a module, a layer, a cause, a counter: what has more is
/// in no recording.
pub const MAX_NAME_BYTES: usize = 16 << 10;

/// The module of a function that stands for a thread of a command: the root of what
/// the thread called, which costs nothing itself.
pub const THREAD_MODULE: &str = "(thread)";

/// Keys of [`Recording::environment`] that more than one place needs.
pub mod env {
    /// The instrument, which is the clock: a [`Clock`](crate::timing::Clock).
    pub const CLOCK: &str = "clock";
    /// What one unit of cost is: "instructions" or "nanoseconds".
    pub const UNIT: &str = "clock.unit";
    /// Where it ran: "vm", "netns" or "host". Absent in old recordings: "vm".
    pub const LAB: &str = "lab";
    /// The user's own interfaces that a bench ran on, in words.
    pub const NICS: &str = "bench.nics";
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
    /// "on", or "off".
    pub const MITIGATIONS: &str = "kernel.mitigations";
    /// Version of QEMU.
    pub const QEMU: &str = "vm.qemu";
    /// The CPU model asked of QEMU.
    pub const CPU: &str = "vm.cpu";
    /// How `rep` string instructions count.
    pub const REP: &str = "vm.rep";
    /// Prefix: what an arm's guest had otherwise than the first one, as
    /// `arm.NAME.KEY`.
    pub const ARM: &str = "arm";
    /// Of an arm, as `arm.NAME.could_not_act.KNOB`: why a setting could not act there.
    pub const COULD_NOT_ACT: &str = "could_not_act";
    /// Prefix: why an arm has no blocks, or too few, as `failed.NAME`.
    pub const FAILED: &str = "failed";
    /// Under how many random seeds every arm was to be run.
    pub const SEEDS: &str = "plumb.seeds";
    /// Prefix: settings that a scan did not try, with the reason.
    pub const SCAN_SKIPPED: &str = "scan.skipped";

    // Keys of an arm's knobs that are no knobs.

    /// The arm that this one repeats under another seed.
    pub const SEED_OF: &str = "seed_of";
    /// Of a scan: the setting, with its values before and after.
    pub const SCAN_SETTING: &str = "scan.setting";
    /// Of a scan: the arm that this one is to be compared with.
    pub const SCAN_BASE: &str = "scan.base";
    /// Of a scan: nothing is changed in this arm but the writing of a setting.
    pub const SCAN_CONTROL: &str = "scan.control";
}

/// One combination of knob levels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// What it is called in tables.
    pub name: String,
    /// What it sends.
    pub proto: Proto,
    /// Over which IP.
    pub family: Family,
    /// Over what.
    pub link: Link,
    /// Whether a router stands between the ends.
    pub forward: bool,
    /// Payload of one packet: bytes above the transport header (after the ICMP
    /// header for `raw`).
    pub size_bytes: u32,
    /// Every other knob, by name, as set.
    pub knobs: BTreeMap<String, String>,
}

/// One measured repetition of one arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Index into [`Recording::arms`].
    pub arm: u32,
    /// Which repetition, from 0.
    pub index: u32,
    /// The ledger of its packets.
    pub ledger: Ledger,
    /// Kernel instructions counted while its window was open.
    pub kernel_insns: u64,
    /// User-mode instructions executed while its window was open.
    pub user_insns: u64,
    /// Calls of functions that began in the window.
    pub entered: u64,
    /// Of these, those that returned in the window.
    pub returned: u64,
    /// How long the window was open; 0 under a clock that has no time.
    pub duration_ns: u64,
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

impl Ledger {
    /// Whether every packet is accounted for.
    pub fn closes(&self) -> bool {
        self.offered == self.delivered + self.dropped.values().sum::<u64>()
    }
}

/// A line of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceLine {
    /// Index into [`Recording::source_files`].
    pub file: SourceFileId,
    /// The line, from 1.
    pub line: u32,
}

/// A function of the kernel, of one of its modules, or of a command's own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// The module, or the ELF file of user code, that it is in; none for the kernel
    /// itself.
    pub module: Option<String>,
    /// Its layer, if any rule names it.
    pub layer: Option<String>,
    /// Where it was.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is defined, if its file's debug information says so.
    pub source: Option<SourceLine>,
}

/// A function in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The caller's node; none where the context began.
    pub parent: Option<NodeId>,
    /// The function.
    pub function: FunctionId,
    /// Whether it was jumped to, not called.
    pub tail: bool,
}

/// What one node cost in one block, direction and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The node.
    pub node: NodeId,
    /// Times entered.
    pub calls: u64,
    /// Instructions executed in the function itself.
    pub self_insns: u64,
}

/// What one node took in one block, direction and context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The node.
    pub node: NodeId,
    /// Inclusive times of its calls, as read; what interrupted them is cut out.
    pub times: Times,
    /// Their sum, less the probes' own cost: the reading's bias for each call, and
    /// a pair's cost for each timed call below it.
    pub corrected_ns: f64,
    /// Half the width of the 95 % interval of that, from the calibration's.
    pub uncertainty_ns: f64,
}

/// What one stage took in one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// `tx`, `rx` or `forward`.
    pub direction: Direction,
    /// Its place on the way, from 0.
    pub order: u16,
    /// What it is called.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Of the packets that went through it.
    pub times: Times,
    /// Of all packets on this way, those that did not meet it.
    pub passed_over: u64,
}

/// By what a function was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The function.
    pub function: FunctionId,
    /// By what.
    pub mechanism: Mechanism,
    /// Its arguments.
    pub arguments: u8,
}

/// A count or rate of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// What: "packets seen at netif_receive_skb", dotted: `ledger.udp tx.xmit`.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what: "packets", "ns", "packets/s".
    pub unit: String,
}

/// What one line cost in one block: its own instructions in one function.
///
/// What was inlined keeps its own line, which may be of another file than the
/// function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCost {
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// The function whose code it is.
    pub function: FunctionId,
    /// The line.
    pub source: SourceLine,
    /// Instructions executed.
    pub insns: u64,
}

/// Something that was lost, missed or could not be attributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What happened, in a few words.
    pub cause: String,
    /// How often.
    pub count: u64,
    /// What it means for the figures.
    pub meaning: String,
}
