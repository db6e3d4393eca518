//! Times of the running kernel: what is asked of an instrument that reads a
//! clock, and what it answers.
//!
//! An instrument works in windows. What it answers for a window is complete: the
//! calls that returned in it, or the packets that reached their last stage in it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction, Family, Proto, words};
use crate::loss::Loss;
use crate::quantity::{Declared, Figure, Kind, Quantity};
use crate::span::{StageKind, Times};

words! {
    /// By what a function or a stage is watched, the best first.
    Mechanism, "mechanism",
    /// One program, many functions, entry and exit, from Linux 7.
    FsessionMulti = "fsession_multi",
    /// One program for entry and exit.
    Fsession = "fsession",
    /// Two programs on one trampoline.
    FentryFexit = "fentry+fexit",
    /// One program for entry and exit by fprobe, from Linux 6.10.
    KprobeSession = "kprobe.session",
    /// A breakpoint or jump at entry, a trampoline at exit.
    Kretprobe = "kprobe+kretprobe",
    /// A tracepoint, its arguments typed.
    TpBtf = "tp_btf",
    /// A tracepoint, its arguments as numbers.
    RawTp = "raw_tp",
}

/// Which packets and tasks are looked at; what is empty or absent holds for all.
/// Evaluated in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Protocols.
    pub protos: Vec<Proto>,
    /// Version of IP.
    pub family: Option<Family>,
    /// Port of either end.
    pub port: Option<u16>,
    /// Address of either end.
    pub address: Option<IpAddr>,
    /// Index of the device that the packet is on.
    pub interface: Option<u32>,
    /// Inodes of network namespaces.
    pub namespaces: Vec<u32>,
    /// Process (thread group) that makes the call.
    pub pid: Option<u32>,
    /// Id of a cgroup (version 2) that the task is in.
    pub cgroup: Option<u64>,
}

/// Which functions are timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Names, with `*` for any letters.
    pub patterns: Vec<String>,
    /// Layers, as the rules name them.
    pub layers: Vec<String>,
    /// Names that a recording saw, the most telling first.
    pub recorded: Vec<String>,
    /// Functions that take an skb, from the kernel's type information. Where nothing
    /// is asked for, so it is too, after those that packets usually meet.
    pub discover: bool,
    /// At most so many.
    pub max_functions: u32,
    /// The share of time that measuring may take, if it is to be held to one: 0.05.
    /// Of stages as well.
    pub max_overhead: Option<f64>,
}

/// What tells of a task whether it sends or receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Roles {
    /// Its system call.
    #[default]
    Calls,
    /// Its name: threads of ours whose names begin so make packets, our others and those of
    /// programs that we have started handle them.
    Threads(String),
}

/// What an instrument is to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimingSpec {
    /// Which instrument, by its name.
    pub instrument: String,
    /// What the tasks are that it meets.
    pub roles: Roles,
    /// Which packets.
    pub filter: Filter,
    /// Which functions; not for stages.
    pub selection: Selection,
    /// Hold on to this mechanism, not the best that there is.
    pub mechanism: Option<Mechanism>,
    /// So many packets are to be told one by one, with the time of each step.
    pub one_packet: u32,
}

/// A function in one calling context. A parent comes before its children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedNode {
    /// Index of the caller among the nodes, of those functions that are timed.
    pub parent: Option<u32>,
    /// Index into [`Attached::functions`].
    pub function: u32,
    /// What was done with the packet; `other` where none was seen.
    pub direction: Direction,
    /// The protocol, where a packet was seen.
    pub proto: Option<Proto>,
    /// Whose time it was.
    pub context: Context,
}

/// A function that an instrument met, which did not know of it before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Met {
    /// Its symbol.
    pub name: String,
    /// Its module.
    pub module: Option<String>,
    /// Where it is; 0 for what has no address.
    pub address: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// What a function cost in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCost {
    /// Index into [`Costs::nodes`].
    pub node: u32,
    /// What was done with the packet; `other` where it was for none.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// How often it was entered; of samples, how many there are.
    pub calls: u64,
    /// What the function itself cost.
    pub own: u64,
}

/// Costs of a window, on a calling-context tree of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Of what.
    pub quantity: Quantity,
    /// The functions that were met.
    pub functions: Vec<Met>,
    /// Functions below others, by index: a parent comes before its children.
    pub nodes: Vec<(Option<u32>, u32)>,
    /// What they cost.
    pub costs: Vec<NodeCost>,
    /// What all of them come to.
    pub kernel: u64,
    /// What was in user mode, and is in none of them.
    pub user: u64,
}

/// A function that is timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFunctionInfo {
    /// Its symbol.
    pub name: String,
    /// Its module.
    pub module: Option<String>,
    /// By what.
    pub mechanism: Mechanism,
    /// Arguments, on which the probe's cost depends a little.
    pub arguments: u8,
}

/// What the probes cost, as measured on an empty function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// On which CPU; none where it is the median of all.
    pub cpu: Option<u32>,
    /// Of which.
    pub mechanism: Mechanism,
    /// On a function with so many arguments.
    pub arguments: u8,
    /// What is read for a function that does nothing.
    pub bias_ns: f64,
    /// What a probe pair takes altogether, the bias included.
    pub pair_ns: f64,
    /// Half the width of the 95 % interval of either.
    pub uncertainty_ns: f64,
}

/// What stands once an instrument is attached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The functions; empty for stages.
    pub functions: Vec<TimedFunctionInfo>,
    /// The probes' own cost.
    pub calibration: Vec<Calibration>,
    /// How much less a probe pair takes in a call within an RCU read section.
    pub nested_saving_ns: f64,
    /// Functions and tracepoints that could not be watched, each with the reason.
    pub refused: BTreeMap<String, String>,
    /// Functions left out to keep to the budget, the least telling first.
    pub shed: Vec<String>,
    /// How long attaching took.
    pub attach_ns: u64,
    /// Facts for the recording's environment, by dotted key.
    pub facts: BTreeMap<String, String>,
    /// What attaching took, and the like.
    pub figures: Vec<Figure>,
}

/// One function's times in one calling context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeTimes {
    /// Index into [`Window::nodes`].
    pub node: u32,
    /// Of its calls: entry to exit, less what interrupted it.
    pub times: Times,
    /// Stretches in which something else had the CPU, cut out of the times.
    pub interruptions: u64,
}

/// One stage of the way of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// The protocol.
    pub proto: Proto,
    /// Version of IP.
    pub family: Family,
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

/// One step of one packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which packet, from 0.
    pub packet: u32,
    /// The function or stage.
    pub name: String,
    /// When it began, on the monotonic clock.
    pub begin_ns: u64,
    /// How long it took; 0 for a moment.
    pub duration_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// In which thread.
    pub thread: u32,
    /// That thread's name.
    pub command: String,
    /// Whose time it was.
    pub context: Context,
}

/// Packets that an instrument followed, where nobody but the instrument counts them: what
/// it was offered nobody knows.
pub const FOLLOWED: Declared = Declared::new("packets", "followed", "packets", Kind::Count);
/// Packets that were seen, by the places of [`Window::ledger`].
pub const SEEN: Declared =
    Declared::new("packets", "seen", "packets", Kind::Count).by_label("place");
/// Packets that the kernel dropped, by the reason that it tells.
pub const DROPPED: Declared =
    Declared::new("packets", "dropped", "packets", Kind::Count).by_label("reason");
/// Packets that the workload received.
pub const DELIVERED: Declared = Declared::new("packets", "delivered", "packets/s", Kind::Rate);
/// The median of the times that packets took, as the workload saw them.
pub const LATENCY_P50: Declared = Declared::new("packets", "median latency", "ns", Kind::Duration);
/// The 99th percentile.
pub const LATENCY_P99: Declared = Declared::new(
    "packets",
    "99th percentile of latency",
    "ns",
    Kind::Duration,
);
/// CPUs that were busy, all together.
pub const BUSY: Declared = Declared::new("machine", "CPU use", "CPUs", Kind::Share);
/// CPU time of the probes in the kernel, and of the process that drains them.
pub const OWN_CPU: Declared = Declared::new("probes", "own CPU time", "ns", Kind::Duration);
/// How long nothing was attached, to keep to the share that measuring may take.
pub const PAUSED: Declared = Declared::new("probes", "paused", "ns", Kind::Duration);
/// Stretches in which something else had the CPU, cut out of the times.
pub const INTERRUPTIONS: Declared =
    Declared::new("functions", "interruptions", "interruptions", Kind::Count);
/// How long attaching took.
pub const ATTACH: Declared = Declared::new("probes", "attach", "ns", Kind::Duration);
/// Of each mechanism, how long attaching by it took.
pub const ATTACH_EACH: Declared =
    Declared::new("functions", "attach by mechanism", "ns", Kind::Duration).by_label("mechanism");
/// How long attaching took without measuring what probes cost.
pub const ATTACH_ONLY: Declared = Declared::new("functions", "attach alone", "ns", Kind::Duration);
/// How long measuring what probes cost took.
pub const CALIBRATION: Declared = Declared::new("functions", "calibration", "ns", Kind::Duration);
/// How long it took the kernel to patch functions that were held.
pub const RELEASE: Declared = Declared::new("functions", "release", "ns", Kind::Duration);
/// What a probe pair takes outside of what it reads.
pub const OUTSIDE: Declared =
    Declared::new("functions", "outside of a reading", "ns", Kind::Duration);
/// From one sample of a CPU to the next.
pub const PERIOD: Declared = Declared::new("samples", "period", "ns", Kind::Duration);
/// The most memory that QEMU had.
pub const QEMU_PEAK: Declared = Declared::new("machine", "peak of QEMU", "bytes", Kind::Count);
/// What a stage of a packet's way takes.
pub const STAGE_TIME: Declared = Declared::new("stages", "stage time", "ns", Kind::Duration);
/// A function's own time, without that of the timed functions below it.
pub const OWN_TIME: Declared = Declared::new("functions", "own time", "ns", Kind::Duration);
/// Instructions of the kernel, or of a command.
pub const INSTRUCTIONS: Declared =
    Declared::new("exact", "instructions", "instructions", Kind::Count).exactly();
/// CPU time, by samples of what CPUs did.
pub const CPU_TIME: Declared = Declared::new("samples", "CPU time", "ns", Kind::Duration).sampled();

/// A way of packets by the places of [`Window::ledger`], whose names come after the
/// protocol's there.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The first place.
    pub begins: &'static str,
    /// The last ones: a packet ends at one of them.
    pub ends: &'static [&'static str],
    /// Those that had begun and not ended when the window closed for good.
    pub under_way: &'static str,
    /// Whether packets of TCP are the same ones from place to place: its queues merge them.
    pub of_tcp: bool,
}

/// All ways.
pub const WAYS: [Way; 3] = [
    Way {
        begins: "tx queue",
        ends: &["tx sent", "tx dropped"],
        under_way: "tx under way",
        of_tcp: true,
    },
    Way {
        begins: "forward queue",
        ends: &["forward sent", "forward dropped"],
        under_way: "forward under way",
        of_tcp: true,
    },
    Way {
        begins: "rx arrived",
        ends: &[
            "rx merged",
            "rx user",
            "rx dropped",
            "rx answered by the kernel",
            "rx other reader",
            "forward queue",
        ],
        under_way: "rx under way",
        of_tcp: false,
    },
];

/// What an instrument saw in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// How long it was open.
    pub duration_ns: u64,
    /// Of it, how long nothing was attached, to keep to the share that measuring may
    /// take.
    pub paused_ns: u64,
    /// All nodes seen since the instrument was attached: later windows append.
    pub nodes: Vec<TimedNode>,
    /// Those of them that are called within an RCU read section, ascending.
    pub nested: Vec<u32>,
    /// Times by node.
    pub functions: Vec<NodeTimes>,
    /// Times by stage.
    pub stages: Vec<StageTimes>,
    /// Packets that were seen, at each place where they are counted: "udp tx
    /// netif_receive_skb", say.
    pub ledger: BTreeMap<String, u64>,
    /// Packets dropped, by protocol and reason ("udp NO_SOCKET"), where the kernel tells.
    pub drops: BTreeMap<String, u64>,
    /// What the instrument missed.
    pub losses: Vec<Loss>,
    /// Packets told one by one.
    pub steps: Vec<Step>,
    /// CPU time of the programs in the kernel, if it is counted, and of the
    /// process that drains them.
    pub own_cpu_ns: u64,
    /// What functions cost, if the instrument has costs and no times.
    pub costs: Option<Costs>,
    /// Single figures of its own.
    pub figures: Vec<Figure>,
}
