//! What host and guest say to each other.
//!
//! The host sends a [`Request`], the guest answers with any number of
//! [`Reply::Output`], [`Reply::Chunk`] and [`Reply::BlockDone`], and then one of
//! [`Reply::Done`] or [`Reply::Failed`]. Frames are the lab's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::{BenchArm, Limit, Measured};
use crate::class::{Family, Link, Proto};
use crate::experiment::{Offload, Qdisc, Ruleset};
use crate::quantity::Figure;
use crate::recording::Ledger;
use crate::timing::{Attached, TimingSpec, Window};

/// Raised with any change of the messages below: host and guest are one binary,
/// but a saved guest may be older.
pub const PROTOCOL_VERSION: u32 = 15;

/// From the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send the file at this path of the guest, as chunks.
    ReadFile(String),
    /// Take a file: chunks of it follow as [`Request::Chunk`].
    WriteFile {
        /// Where it goes.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// A piece of the file being written; an empty one ends it.
    Chunk(Vec<u8>),
    /// Tell the facts of the running system.
    Describe,
    /// Build what this will need, so that the guest can be saved with it.
    Prepare(RunPlan),
    /// Come to rest once more: see `netplumb_lab::vm`.
    Rest,
    /// Run a workload.
    Run(RunPlan),
    /// Time functions with fentry and fexit while a workload runs: the second
    /// opinion.
    TimeFunctions {
        /// The functions, timed one at a time.
        functions: Vec<String>,
        /// Time them all at once, by the instrument and as this says.
        spec: Option<Box<TimingSpec>>,
        /// What runs meanwhile, once for each.
        plan: RunPlan,
    },
    /// Run a workload under an instrument that reads a clock: [`Reply::Attached`],
    /// and for each block a [`Reply::TimedBlock`].
    Time {
        /// What the instrument is to do.
        spec: TimingSpec,
        /// What runs meanwhile.
        plan: RunPlan,
        /// Every block once more without the instrument, to compare: the two take
        /// turns.
        bare: bool,
    },
    /// List the sysctls whose names begin with one of these, and try another value of each:
    /// set, read back, and restored.
    ListSysctls {
        /// "net.", say.
        prefixes: Vec<String>,
        /// Names that begin so are left out.
        skip: Vec<String>,
        /// What is to stand before: the settings are those of its namespaces.
        plan: RunPlan,
    },
    /// Unpack the files that came with the guest, and load modules among them.
    Unpack {
        /// Paths of modules, in the order to be loaded; what does not load is no
        /// error.
        modules: Vec<String>,
    },
    /// Send the code that the kernel lends to every process, as chunks.
    ReadVdso,
    /// Attach an instrument that reads a clock, for the next command:
    /// [`Reply::Attached`]. Apart from that command, whose time it is not.
    Attach {
        /// What it is to do.
        spec: TimingSpec,
        /// Whose namespaces it looks at.
        links: RunPlan,
    },
    /// Run a command: [`Reply::Output`] and [`Reply::Ended`] for each run, and a
    /// [`Reply::TimedBlock`] if an instrument is attached.
    Command(CommandPlan),
    /// Tell how many frames a second the generator of an arm makes by itself:
    /// [`Reply::BenchLimit`], or [`Reply::BenchCannot`].
    BenchLimit(BenchArm),
    /// Measure a block of a bench: [`Reply::BenchBlock`], or [`Reply::BenchCannot`].
    BenchBlock {
        /// What is measured.
        arm: BenchArm,
        /// How long its window is open.
        window_ns: u64,
        /// How long packets run before that.
        warmup_ns: u64,
        /// What the generator makes by itself.
        limit: Limit,
    },
    /// Run once more and tell where packets go: [`Reply::Diagnosis`].
    BenchDiagnose(BenchArm),
    /// Count what frames cost along a path: [`Reply::BlockDone`] for each block, the
    /// programs' symbols as chunks, and [`Reply::Facts`]; or [`Reply::BenchCannot`].
    BenchCount(CountPlan),
    /// Kill the command that runs; its request is answered then. This one is not.
    Stop,
    /// Power off.
    PowerOff,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The agent is ready.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol: u32,
        /// Whether it comes to rest now, until the host lets it go on.
        rests: bool,
    },
    /// A piece of a file; an empty one ends it.
    Chunk(Vec<u8>),
    /// Facts, by dotted key.
    Facts(BTreeMap<String, String>),
    /// One block is over.
    BlockDone {
        /// Which repetition.
        index: u32,
        /// Its packets.
        ledger: Ledger,
    },
    /// What a command, or its peer, said.
    Output(Output, Vec<u8>),
    /// How a run of a command ended.
    Ended(CommandEnd),
    /// What the second opinion saw, one entry a function.
    Timed(Vec<TimedFunction>),
    /// An instrument that reads a clock is attached.
    Attached(Box<Attached>),
    /// What it saw in a block of the second opinion.
    Window(Box<Window>),
    /// A block under it, or beside it.
    TimedBlock(Box<TimedBlock>),
    /// Sysctls, a part of the list.
    Sysctls(Vec<Sysctl>),
    /// What a generator makes by itself, frames a second.
    BenchLimit(Limit),
    /// A block of a bench, and facts of how it came about.
    BenchBlock(Box<Measured>, BTreeMap<String, String>),
    /// A path can't be here: why.
    BenchCannot(String),
    /// Where packets of a bench went.
    Diagnosis(String),
    /// The request was carried out.
    Done,
    /// It was not; why, in a sentence.
    Failed(String),
}

/// A sysctl of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Its name, with dots.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Another that the kernel takes, or why there is none.
    pub other: Result<String, String>,
}

/// A block under an instrument that reads a clock, or without it to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedBlock {
    /// Which repetition; those without the instrument count for themselves.
    pub index: u32,
    /// Its packets; nobody's of a command.
    pub ledger: Ledger,
    /// How long it was, on the guest's clock.
    pub duration_ns: u64,
    /// What else was measured.
    pub figures: Vec<Figure>,
    /// What the instrument saw, if it was attached.
    pub window: Option<Window>,
}

/// Frames along a path, to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CountPlan {
    /// The path, and what is sent.
    pub arm: BenchArm,
    /// Frames of a block.
    pub frames: u32,
    /// Frames before the first one.
    pub warmup_frames: u32,
    /// Blocks.
    pub blocks: u32,
}

/// A command to be run, and around it what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandPlan {
    /// The links, and settings; its packets don't count.
    pub links: RunPlan,
    /// Path of the program.
    pub program: String,
    /// The command's words, the first its name.
    pub words: Vec<String>,
    /// Path and words of what runs at the other end, if anything does.
    pub peer: Option<(String, Vec<String>)>,
    /// The folder that both run in.
    pub folder: String,
    /// Path of the file that is its standard input, or none.
    pub stdin: Option<String>,
    /// Connections that the guest makes before, so that what its kernel does at the first use of
    /// its network is not the command's.
    pub warmup: u32,
    /// Repetitions.
    pub blocks: u32,
    /// Bytes of output that are kept, of each stream.
    pub output_bytes: u64,
    /// The kernel's code that prepares a new task's stack, from and to.
    pub watch: Option<(u64, u64)>,
}

/// Who said something, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Output {
    /// The command, on standard output.
    Stdout,
    /// The command, on standard error.
    Stderr,
    /// The peer, on either.
    Peer,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// How one run of a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Which repetition.
    pub index: u32,
    /// The command itself.
    pub exit: Exit,
    /// It was killed because its time was over.
    pub stopped: bool,
    /// The peer, if it ended before the command did.
    pub peer: Option<Exit>,
    /// The peer had a socket open before the command began; or there is no peer.
    pub peer_ready: bool,
    /// Names of processes that it left behind, killed since.
    pub left: Vec<String>,
    /// Bytes of output that were not kept.
    pub unkept_bytes: u64,
}

/// What fentry and fexit saw of one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFunction {
    /// Its name.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Of the calls, those made within an RCU read section, where the probe costs
    /// a little less.
    pub in_rcu: u64,
    /// Why it could not be timed, if so.
    pub error: Option<String>,
}

/// One arm's traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// What to send.
    pub proto: Proto,
    /// Over which IP.
    pub family: Family,
    /// Over what.
    pub link: Link,
    /// Whether a router stands between.
    pub forward: bool,
    /// Whether a bridge does.
    pub bridge: bool,
    /// Queues of every veth device, each way, if not as many as it has by itself.
    pub queues: Option<u32>,
    /// Payload bytes.
    pub size_bytes: u32,
    /// MTU of the links, if not the device's own.
    pub mtu_bytes: Option<u32>,
    /// Packets in a block, if it is not over by time.
    pub packets: u32,
    /// How long a block goes on, if it is not over by packets.
    pub block_ns: Option<u64>,
    /// Packets a second, at most; without, as many as there can be.
    pub rate_pps: Option<u32>,
    /// Whether packets are sent and received by a thread each, without waiting for one
    /// another; without, one at a time.
    pub stream: bool,
    /// Packets before the first block.
    pub warmup_packets: u32,
    /// Blocks.
    pub blocks: u32,
    /// Whether packets keep away from the timer's ticks. Without an instruction
    /// clock that would only be waiting.
    pub aligned: bool,
    /// Settings below /proc/sys, for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Rules of nftables.
    pub nft: Option<Ruleset>,
    /// A queueing discipline.
    pub qdisc: Option<Qdisc>,
}
