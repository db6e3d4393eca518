//! Messages between host and guest.
//!
//! The host sends a [`Request`], the guest answers with any number of [`Reply::Output`],
//! [`Reply::Chunk`] and [`Reply::BlockDone`], and then one of [`Reply::Done`] or [`Reply::Failed`].
//! Framing is the lab's task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::{BenchArm, BlockRates, Limit};
use crate::class::{Family, Link, Proto};
use crate::experiment::{BpfProgram, DiskPlan, FromDevice, NicSettings, Offload, Qdisc, Ruleset};
use crate::hosts::{HostBlock, HostLoad, Latch, Side};
use crate::quantity::Figure;
use crate::reads::FileReads;
use crate::recording::Ledger;
use crate::timing::{Attached, TimingSpec, Window};
use crate::topology::ArmTopology;
use crate::web::WebPlan;

/// Raised with any change of the messages below: `plumb` and its agent are built
/// together, but a saved guest may be older.
pub const PROTOCOL_VERSION: u32 = 26;

/// A message from the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send the file at this path of the guest, as chunks.
    ReadFile(String),
    /// Take a file: chunks of it follow as [`Request::Chunk`].
    WriteFile {
        /// Its path in the guest.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A piece of the file being written; an empty one ends it.
    Chunk(Vec<u8>),
    /// Report facts of the running system.
    Describe,
    /// Set up the topology of this plan, so that the guest can be saved with it.
    Prepare(RunPlan),
    /// Pause again to be saved: see `netplumb_lab::vm`.
    Rest,
    /// Run a workload.
    Run(RunPlan),
    /// Be one of two hosts that send to each other: [`Reply::HostBlock`] for each block, and
    /// [`Reply::HostEnd`].
    BeHost(HostPlan),
    /// Run a workload in rounds of its blocks, without end: a [`Reply::Chunk`] with the symbols of modules, empty if
    /// none were loaded for its rules, and a [`Reply::BlockDone`] for each block, after its round.
    RunOn(RunPlan),
    /// Time functions with fentry and fexit while a workload runs: an independent check.
    TimeFunctions {
        /// The functions, timed one at a time.
        functions: Vec<String>,
        /// Time them all at once, by the instrument and with these settings.
        spec: Option<Box<TimingSpec>>,
        /// The workload, run once for each function.
        plan: RunPlan,
    },
    /// Run a workload with an instrument that measures time: [`Reply::Attached`], and for each
    /// block a [`Reply::TimedBlock`].
    Time {
        /// The settings of the instrument.
        spec: TimingSpec,
        /// The workload, and what to set up before it.
        plan: RunPlan,
        /// Whether to repeat every block without the instrument, alternating, to measure the
        /// overhead.
        bare: bool,
    },
    /// List the sysctls whose names begin with one of these, and try another value of each:
    /// set, read back, and restored.
    ListSysctls {
        /// Prefixes, like "net.".
        prefixes: Vec<String>,
        /// Prefixes to leave out.
        skip: Vec<String>,
        /// The topology to set up before: the settings apply to its namespaces.
        plan: RunPlan,
    },
    /// Unpack the files that came with the guest, and load modules among them.
    Unpack {
        /// Paths of modules, in load order; a module that doesn't load is not an error.
        modules: Vec<String>,
    },
    /// Send the vDSO, as chunks.
    ReadVdso,
    /// Report the page frames of pages of files: [`Reply::Frames`].
    FindFrames(Vec<FilePages>),
    /// Attach an instrument that measures time, for the next command: [`Reply::Attached`]. A
    /// request of its own, so that the time to attach is not the command's.
    Attach {
        /// The settings of the instrument.
        spec: TimingSpec,
        /// The topology whose namespaces it observes.
        links: RunPlan,
    },
    /// Run a command: [`Reply::Output`] and [`Reply::Ended`] for each run, and a
    /// [`Reply::TimedBlock`] if an instrument is attached.
    Command(CommandPlan),
    /// Measure the rate of an arm's generator alone: [`Reply::BenchLimit`], or
    /// [`Reply::BenchCannot`].
    BenchLimit(BenchArm),
    /// Measure a block of a bench: [`Reply::BenchBlock`], or [`Reply::BenchCannot`].
    BenchBlock {
        /// The data path, its frames and their load.
        arm: BenchArm,
        /// Duration of the window.
        window_ns: u64,
        /// Warm-up time.
        warmup_ns: u64,
        /// The rate of the generator alone.
        limit: Limit,
    },
    /// Run again and trace where packets go: [`Reply::Diagnosis`].
    BenchDiagnose(BenchArm),
    /// Count the instructions of frames along a path: [`Reply::BlockDone`] for each block, the
    /// programs' symbols as chunks, and [`Reply::Facts`]; or [`Reply::BenchCannot`].
    BenchCount(CountPlan),
    /// Kill the running command, whose request is then answered; this one has no answer.
    Stop,
    /// Power off.
    PowerOff,
}

/// A message from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The agent is ready.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol: u32,
        /// Whether it pauses now, until the host resumes it.
        rests: bool,
    },
    /// A piece of a file; an empty one ends it.
    Chunk(Vec<u8>),
    /// The page frames of the requested pages, in their order; 0 if unknown.
    Frames(Vec<u32>),
    /// Facts, by dotted key.
    Facts(BTreeMap<String, String>),
    /// A block is complete.
    BlockDone {
        /// Which repetition, from 0.
        index: u32,
        /// Counts of the block's packets.
        ledger: Ledger,
    },
    /// Output of a command, or of its peer.
    Output(Output, Vec<u8>),
    /// How a run of a command ended.
    Ended(CommandEnd),
    /// Results of the independent check, one for each function.
    Timed(Vec<TimedFunction>),
    /// An instrument that measures time is attached.
    Attached(Box<Attached>),
    /// The window of a block of the independent check.
    Window(Box<Window>),
    /// A block with the instrument, or without it.
    TimedBlock(Box<TimedBlock>),
    /// A part of the list of sysctls.
    Sysctls(Vec<Sysctl>),
    /// The rate of the generator alone.
    BenchLimit(Limit),
    /// A block of a bench, and facts about its set-up.
    BenchBlock(Box<BlockRates>, BTreeMap<String, String>),
    /// A block of one of two hosts; they are sent when both have ended.
    HostBlock(Box<HostBlock>),
    /// After these, the values of the wire when both had ended.
    HostEnd(Box<Latch>),
    /// A path is not supported here: why.
    BenchCannot(String),
    /// Where packets of a bench went.
    Diagnosis(String),
    /// A module does not load: instead of [`Reply::Hello`].
    NotLoaded(Box<NotLoaded>),
    /// The request was carried out.
    Done,
    /// The request failed.
    Failed(Refused),
}

/// More facts than any guest of ours has, in one reply and in all: such a guest wants to fill this machine's memory.
const MAX_FACTS: usize = 10_000;
/// Hours of blocks have some each.
pub const MAX_ALL_FACTS: usize = 1_000_000;
const MAX_FACT_BYTES: usize = 256 << 10;
/// Packets of a block, and causes of their loss.
const MAX_PACKETS: u64 = 1 << 48;
const MAX_CAUSES: usize = 100;

impl Reply {
    /// What no agent would send: more than there can be. A kernel, and with it the agent, is anyone's.
    pub fn excess(&self) -> Option<String> {
        match self {
            Reply::Facts(facts) => {
                let longest =
                    facts.iter().map(|(key, value)| key.len() + value.len()).max().unwrap_or(0);
                let is_excess = facts.len() > MAX_FACTS || longest > MAX_FACT_BYTES;
                is_excess.then(|| format!("{} facts of up to {longest} bytes", facts.len()))
            }
            Reply::BlockDone { ledger, .. } => {
                let most =
                    ledger.dropped.values().chain([&ledger.offered, &ledger.delivered]).max();
                let (most, causes) = (*most.unwrap_or(&0), ledger.dropped.len());
                let is_excess = most > MAX_PACKETS || causes > MAX_CAUSES;
                is_excess.then(|| format!("a block of {most} packets, lost by {causes} causes"))
            }
            _ => None,
        }
    }
}

/// Pages of a file in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePages {
    /// The file's path in the guest.
    pub path: String,
    /// Their offsets in the file, ascending.
    pub offsets: Vec<u64>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// A sentence for the user.
    pub message: String,
    /// Whose matter it is.
    pub kind: RefusedKind,
}

/// Whose matter it is that a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedKind {
    /// The user's: the request names something that does not exist.
    Asked,
    /// The guest's: it can't be done there.
    CannotRun,
    /// Something else failed.
    Failed,
}

impl From<String> for Refused {
    fn from(message: String) -> Refused {
        Refused { message, kind: RefusedKind::Failed }
    }
}

impl From<&str> for Refused {
    fn from(message: &str) -> Refused {
        message.to_string().into()
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Refused {
        error.to_string().into()
    }
}

/// A module that the guest's kernel does not load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLoaded {
    /// The name of the module that was refused.
    pub module: String,
    /// Why, in words.
    pub why: String,
    /// What to try, if the module is the user's.
    pub remedy: String,
    /// What the kernel printed about it.
    pub kernel: Vec<String>,
}

/// A sysctl of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Its name, with dots.
    pub key: String,
    /// The current value.
    pub value: String,
    /// Another value that the kernel accepts, or why none is known.
    pub other: Result<String, String>,
}

/// A block with an instrument that measures time, or without it, to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedBlock {
    /// Which repetition; blocks without the instrument are numbered separately.
    pub index: u32,
    /// Its packets; empty for a command.
    pub ledger: Ledger,
    /// Its duration by the guest's clock.
    pub duration_ns: u64,
    /// Other figures.
    pub figures: Vec<Figure>,
    /// The instrument's window, if it was attached.
    pub window: Option<Window>,
}

/// Frames along a path whose instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CountPlan {
    /// The path and its frames.
    pub arm: BenchArm,
    /// Frames per block.
    pub frames: u32,
    /// Warm-up frames.
    pub warmup_frames: u32,
    /// Blocks.
    pub blocks: u32,
}

/// What one of two hosts is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlan {
    /// Which of them, and its settings.
    pub links: RunPlan,
    /// What is sent.
    pub load: HostLoad,
    /// The requested size of its socket's buffer; none for the kernel's own.
    pub buffer_bytes: Option<u32>,
    /// The sender's part, if it is a web server.
    pub web: Option<WebPlan>,
    /// Repetitions.
    pub blocks: u32,
}

/// A command to run, with its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandPlan {
    /// The topology and settings; its packets are ignored.
    pub links: RunPlan,
    /// Path of the program.
    pub program: String,
    /// The arguments, with the program's name first.
    pub words: Vec<String>,
    /// Path and arguments of the peer, if there is one.
    pub peer: Option<(String, Vec<String>)>,
    /// The working directory of both.
    pub folder: String,
    /// Path of the file that is its standard input, or none.
    pub stdin: Option<String>,
    /// Connections that the guest opens before, so that what the kernel does when its network is
    /// first used is not counted as the command's.
    pub warmup: u32,
    /// Repetitions.
    pub blocks: u32,
    /// Maximum number of bytes kept of each output stream.
    pub output_bytes: u64,
    /// Address range of the kernel's code that prepares a new task's stack.
    pub watch: Option<(u64, u64)>,
    /// The guest's disk, if it has one.
    pub disk: Option<DiskPlan>,
    /// Steps before the first run.
    pub setup: SetupPlan,
    /// If the command is `plumb read-file`: what it reads. The program is this one then.
    pub reads: Option<FileReads>,
}

/// Steps in a guest before a command is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupPlan {
    /// Modules that have to be loaded by now, by name.
    pub modules: Vec<String>,
    /// Files to make, each with its size in bytes.
    pub files: Vec<(String, u32)>,
    /// Commands to run: the path and arguments of each.
    pub commands: Vec<(String, Vec<String>)>,
    /// Whether the caches of files are dropped before each run.
    pub drop_caches: bool,
}

/// Source of output.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Which repetition, from 0.
    pub index: u32,
    /// The command itself.
    pub exit: Exit,
    /// Whether it was killed by the timeout.
    pub stopped: bool,
    /// How the peer ended, if it ended before the command.
    pub peer: Option<Exit>,
    /// Whether the peer had a socket open before the command started; also true without a peer.
    pub peer_ready: bool,
    /// Events beside executing instructions: reads of its disk, page faults.
    pub figures: Vec<Figure>,
    /// Names of processes that it left running, which were killed.
    pub left: Vec<String>,
    /// Bytes of output that were discarded.
    pub unkept_bytes: u64,
}

/// Times of one function by fentry and fexit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFunction {
    /// The function's symbol.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// The shortest time of a call.
    pub min_ns: u64,
    /// Calls within an RCU read-side critical section, in which the probe costs a little less.
    pub in_rcu: u64,
    /// Why it could not be timed, if it couldn't.
    pub error: Option<String>,
}

/// The traffic and topology of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The protocol of the packets.
    pub proto: Proto,
    /// The address family.
    pub family: Family,
    /// The type of link.
    pub link: Link,
    /// Which of two hosts it is about; none if both ends are in one guest.
    pub host: Option<Side>,
    /// What is between sender and receiver.
    pub topology: ArmTopology,
    /// Queues of each veth device, per direction; none for its default.
    pub queues: Option<u32>,
    /// Payload bytes.
    pub size_bytes: u32,
    /// MTU of the links; none for the device's default.
    pub mtu_bytes: Option<u32>,
    /// Packets in a block, unless it ends after a time.
    pub packets: u32,
    /// Duration of a block, unless it ends after a number of packets.
    pub block_ns: Option<u64>,
    /// Maximum number of packets per second; none for no limit.
    pub rate_pps: Option<u32>,
    /// Whether packets are sent and received by separate threads, without waiting for each other;
    /// otherwise one at a time.
    pub stream: bool,
    /// Whether each packet is the first of a flow of its own; of TCP, a connection.
    pub new_flows: bool,
    /// Whether the receiver answers each datagram.
    pub replies: bool,
    /// Warm-up packets.
    pub warmup_packets: u32,
    /// Blocks.
    pub blocks: u32,
    /// Whether packets are timed to avoid the timer tick. Without an instruction clock that would
    /// only delay them.
    pub aligned: bool,
    /// Sysctls, for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Settings of NICs, of the sender and the receiver.
    pub nics: [NicSettings; 2],
    /// nftables rules.
    pub nft: Option<Ruleset>,
    /// The egress qdisc to set, and on which hosts; none for the default.
    pub qdisc: Option<Qdisc>,
    /// BPF programs to attach.
    pub programs: Vec<BpfProgram>,
    /// Whether the receiver's device sends, and what; none if a socket does.
    pub from_device: Option<FromDevice>,
}
