//! Times of the running kernel: the request to an instrument that measures time, and its results.
//!
//! An instrument works in windows. The results of a window are complete: the calls that returned in
//! it, or the packets that reached their last stage in it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction, Family, Proto, words};
use crate::events::EventsSpec;
use crate::loss::Loss;
use crate::quantity::{Declared, Figure, Kind, Quantity};
use crate::samples::{Sample, Thread};
use crate::span::{StageKind, Times};
use crate::spans::{Group, Slice, SpansSpec};
use crate::trace::{CallsSpec, TimedCalls};

words! {
    /// How a function or a stage is measured, the best method first.
    Mechanism, "mechanism",
    /// One program for entry and exit of many functions, from Linux 7.2.
    FsessionMulti = "fsession_multi",
    /// One program for entry and exit.
    Fsession = "fsession",
    /// Two programs on one trampoline.
    FentryFexit = "fentry+fexit",
    /// One program for entry and exit by fprobe, from Linux 6.10.
    KprobeSession = "kprobe.session",
    /// A breakpoint or jump at entry, a trampoline at exit.
    Kretprobe = "kprobe+kretprobe",
    /// A tracepoint with typed arguments.
    TpBtf = "tp_btf",
    /// A tracepoint with arguments as numbers.
    RawTp = "raw_tp",
}

/// Which packets and tasks are measured; empty or absent fields match all. Evaluated in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Protocols.
    pub protos: Vec<Proto>,
    /// The address family.
    pub family: Option<Family>,
    /// Port of either end.
    pub port: Option<u16>,
    /// Address of either end.
    pub address: Option<IpAddr>,
    /// Interface index of the packet's device.
    pub interface: Option<u32>,
    /// Inodes of network namespaces.
    pub namespaces: Vec<u32>,
    /// Process (thread group) of the current task.
    pub pid: Option<u32>,
    /// Id of a cgroup (version 2) that contains the current task.
    pub cgroup: Option<u64>,
}

/// Which functions are timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// Names, or glob patterns with `*`.
    pub patterns: Vec<String>,
    /// Layers, by name.
    pub layers: Vec<String>,
    /// Names from a recording, the most expensive first.
    pub recorded: Vec<String>,
    /// Functions with an skb as a parameter, according to BTF. The default if nothing else is
    /// given, after those that packets usually pass.
    pub discover: bool,
    /// Maximum number of functions.
    pub max_functions: u32,
    /// Maximum overhead, as a share of time, if limited: 0.05. Also applies to stages.
    pub max_overhead: Option<f64>,
}

/// How to determine whether a task sends or receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Roles {
    /// By its system call.
    #[default]
    Calls,
    /// By its name: threads of plumb whose names have this prefix send packets; its other threads,
    /// and the programs that it started, handle them.
    Threads(String),
}

words! {
    /// How the stacks of user code are found.
    #[derive(Default)]
    UserStacks, "kind of user stacks",
    /// By frame pointers where they hold, and by unwind tables where they don't.
    #[default]
    Auto = "auto",
    /// By frame pointers, in the kernel.
    FramePointers = "fp",
    /// By the unwind tables of files, on a copy of each stack.
    Dwarf = "dwarf",
}

words! {
    /// The event that samples CPUs.
    #[derive(Default)]
    SampleEvent, "event",
    /// A timer of each CPU.
    #[default]
    CpuClock = "cpu-clock",
    /// Its counter of cycles, which interrupts also where interrupts are off, if by an NMI.
    Cycles = "cycles",
    /// Cycles if there is a counter of them, or else the timer.
    Auto = "auto",
}

/// How the work of CPUs is sampled, whatever it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSpec {
    /// Samples of a CPU in a second.
    pub frequency_hz: u32,
    /// Whether to measure time off the CPU, too.
    pub off_cpu: bool,
    /// How the stacks of user code are found.
    pub user_stacks: UserStacks,
    /// What makes samples.
    pub event: SampleEvent,
    /// Of processes that this one starts from now on, and their descendants; otherwise as the filter selects.
    pub children: bool,
}

/// The settings of an instrument.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TimingSpec {
    /// The instrument, by name.
    pub instrument: String,
    /// How tasks are classified.
    pub roles: Roles,
    /// Which packets.
    pub filter: Filter,
    /// Which functions; not for stages.
    pub selection: Selection,
    /// Use this mechanism, not the best one available.
    pub mechanism: Option<Mechanism>,
    /// Number of packets to record step by step (per-packet traces).
    pub one_packet: u32,
    /// For a profile; otherwise work on packets is separated from other work.
    pub profile: Option<ProfileSpec>,
    /// For an instrument that counts events.
    pub events: Option<EventsSpec>,
    /// For the instrument that measures the time from one event to the next.
    pub spans: Option<SpansSpec>,
    /// For the instrument that times single calls.
    pub calls: Option<CallsSpec>,
}

/// A function in one calling context. A parent comes before its children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedNode {
    /// Index of the node of the nearest timed caller.
    pub parent: Option<u32>,
    /// Index into [`Attached::functions`].
    pub function: u32,
    /// The direction of the packet; `other` without one.
    pub direction: Direction,
    /// The protocol of the packet, if there was one.
    pub proto: Option<Proto>,
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
}

/// A function that an instrument found while measuring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Met {
    /// The function's symbol.
    pub name: String,
    /// Its module; of user code, its file.
    pub module: Option<String>,
    /// Whether it is user code.
    pub user: bool,
    /// Its address; 0 if it has none.
    pub address: u64,
    /// Bytes of its code.
    pub size_bytes: u64,
}

/// The cost of a function in one calling context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCost {
    /// Index into [`Costs::nodes`].
    pub node: u32,
    /// The direction of the packet; `other` for work without one.
    pub direction: Direction,
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
    /// Number of entries, or of samples.
    pub calls: u64,
    /// The self cost.
    pub own: u64,
}

/// Costs of a window, on a calling-context tree of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// What costs are measured in.
    pub quantity: Quantity,
    /// The functions that the tree's nodes refer to.
    pub functions: Vec<Met>,
    /// The tree: index of the parent node and of the function. A parent comes before its children.
    pub nodes: Vec<(Option<u32>, u32)>,
    /// Costs by node.
    pub costs: Vec<NodeCost>,
    /// Their sum.
    pub kernel: u64,
    /// Cost in user mode: not part of a packet's costs, and in a profile all but the kernel's.
    pub user: u64,
    /// Single samples, which add up to the costs: of [`Costs::nodes`] and [`Costs::threads`], with
    /// times since the first window began. None if they are not known.
    pub samples: Vec<Sample>,
    /// The threads of the samples.
    pub threads: Vec<Thread>,
}

/// A function that is timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFunctionInfo {
    /// The function's symbol.
    pub name: String,
    /// The module that has it; none for the kernel itself.
    pub module: Option<String>,
    /// How it is timed.
    pub mechanism: Mechanism,
    /// Number of its arguments, on which the cost of the probe depends a little.
    pub arguments: u8,
}

/// The cost of probes, measured on an empty function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The CPU; none for the median of all.
    pub cpu: Option<u32>,
    /// How the empty function is probed.
    pub mechanism: Mechanism,
    /// Number of arguments of the function.
    pub arguments: u8,
    /// The raw time of an empty function.
    pub bias_ns: f64,
    /// The cost of a pair of probes, including the bias.
    pub pair_ns: f64,
    /// Half the width of the 95 % interval of both.
    pub uncertainty_ns: f64,
}

/// The state after attaching an instrument.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The functions; empty for stages.
    pub functions: Vec<TimedFunctionInfo>,
    /// The cost of the probes.
    pub calibration: Vec<Calibration>,
    /// The saving of a pair of probes within an RCU read-side critical section.
    pub nested_saving_ns: f64,
    /// Functions and tracepoints that could not be measured, each with the reason.
    pub refused: BTreeMap<String, String>,
    /// Functions detached to stay within the maximum overhead, the least relevant first.
    pub over_budget: Vec<String>,
    /// Time to attach.
    pub attach_ns: u64,
    /// Facts for the recording's environment, by dotted key.
    pub facts: BTreeMap<String, String>,
    /// Figures of attaching.
    pub figures: Vec<Figure>,
}

/// One function's times in one calling context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeTimes {
    /// Index into [`Window::nodes`].
    pub node: u32,
    /// Times of its calls, from entry to exit, without interruptions.
    pub times: Times,
    /// Interruptions: intervals in which something else ran on the CPU, excluded from the times.
    pub interruptions: u64,
}

/// A stage of the path of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// The protocol of the packets.
    pub proto: Proto,
    /// The address family.
    pub family: Family,
    /// `tx`, `rx` or `forward`.
    pub direction: Direction,
    /// Its place on the path, from 0.
    pub order: u16,
    /// The name that reports use.
    pub name: String,
    /// Work or wait.
    pub kind: StageKind,
    /// Times of the packets that passed it, without the instrument's own time.
    pub times: Times,
    /// The subtracted time, of all packets together; 0 if nothing was subtracted.
    pub own_ns: u64,
    /// Packets on this path that skipped it.
    pub passed_over: u64,
}

/// A step of a per-packet trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which packet, from 0.
    pub packet: u32,
    /// The function or stage.
    pub name: String,
    /// Its start, by the monotonic clock.
    pub begin_ns: u64,
    /// Its duration; 0 for an event.
    pub duration_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread's number.
    pub thread: u32,
    /// The thread's name.
    pub command: String,
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
}

/// Packets that an instrument followed, if their offered number is unknown, as for traffic of other
/// programs.
pub const FOLLOWED: Declared = Declared::new("packets", "followed", "packets", Kind::Count);
/// Packets seen, by the places of [`Window::ledger`].
pub const SEEN: Declared =
    Declared::new("packets", "seen", "packets", Kind::Count).by_label("place");
/// Packets dropped by the kernel, by the reason that it gives.
pub const DROPPED: Declared =
    Declared::new("packets", "dropped", "packets", Kind::Count).by_label("reason");
/// Packets that the workload received.
pub const DELIVERED: Declared = Declared::new("packets", "delivered", "packets/s", Kind::Rate);
/// The median latency, measured by the workload.
pub const LATENCY_P50: Declared = Declared::new("packets", "median latency", "ns", Kind::Duration);
/// The 99th percentile.
pub const LATENCY_P99: Declared =
    Declared::new("packets", "99th percentile of latency", "ns", Kind::Duration);
/// Number of busy CPUs.
pub const BUSY: Declared = Declared::new("machine", "CPU use", "CPUs", Kind::Share);
/// CPU time of the probes in the kernel, and of the process that reads their results.
pub const OWN_CPU: Declared = Declared::new("probes", "own CPU time", "ns", Kind::Duration);
/// Time without probes, to stay within the maximum overhead.
pub const PAUSED: Declared = Declared::new("probes", "paused", "ns", Kind::Duration);
/// Interruptions: intervals in which something else ran on the CPU, excluded from the times.
pub const INTERRUPTIONS: Declared =
    Declared::new("functions", "interruptions", "interruptions", Kind::Count);
/// Time to attach.
pub const ATTACH: Declared = Declared::new("probes", "attach", "ns", Kind::Duration);
/// Time to attach, by mechanism.
pub const ATTACH_EACH: Declared =
    Declared::new("functions", "attach by mechanism", "ns", Kind::Duration).by_label("mechanism");
/// Time to attach without calibration.
pub const ATTACH_ONLY: Declared = Declared::new("functions", "attach alone", "ns", Kind::Duration);
/// Time of calibration: measuring the cost of probes.
pub const CALIBRATION: Declared = Declared::new("functions", "calibration", "ns", Kind::Duration);
/// Time that the kernel took to patch functions that were held.
pub const RELEASE: Declared = Declared::new("functions", "release", "ns", Kind::Duration);
/// The cost of a pair of probes outside of the time that it measures.
pub const OUTSIDE: Declared =
    Declared::new("functions", "outside of a reading", "ns", Kind::Duration);
/// Sampling period.
pub const PERIOD: Declared = Declared::new("samples", "period", "ns", Kind::Duration);
/// Peak memory of QEMU.
pub const QEMU_PEAK: Declared = Declared::new("machine", "peak of QEMU", "bytes", Kind::Count);
/// Time of a stage of a packet's path.
pub const STAGE_TIME: Declared = Declared::new("stages", "stage time", "ns", Kind::Duration);
/// The instrument's own time in a stage, of all its packets, which is subtracted; by direction and stage.
pub const STAGE_OWN: Declared =
    Declared::new("stages", "own time", "ns", Kind::Duration).by_label("stage");
/// A function's self time, less its timed callees.
pub const OWN_TIME: Declared = Declared::new("functions", "own time", "ns", Kind::Duration);
/// Instructions of the kernel, or of a command.
pub const INSTRUCTIONS: Declared =
    Declared::new("exact", "instructions", "instructions", Kind::Count).exactly();
/// Instructions of a guest's kernel, by samples: each was as likely to be sampled as any other.
pub const SAMPLED: Declared =
    Declared::new("samples", "sampled", "instructions", Kind::Count).sampled();
/// The same by samples as a timer would take them: a sample that falls where interrupts are off waits until they are on
/// again.
pub const DEFERRED: Declared =
    Declared::new("samples", "deferred", "instructions", Kind::Count).sampled();
/// The function of [`DEFERRED`] samples in user mode: those that fell in the kernel and waited until
/// it was left.
pub const USER_MODE: &str = "[user mode]";
/// Instructions of the kernel that ran with interrupts off.
pub const INTERRUPTS_OFF: Declared =
    Declared::new("samples", "interrupts off", "instructions", Kind::Count).by_label("direction");
/// All instructions of the kernel, including [`INTERRUPTS_OFF`].
pub const IN_KERNEL: Declared =
    Declared::new("samples", "in the kernel", "instructions", Kind::Count).by_label("direction");
/// Instructions from one sample to the next, on average.
pub const SAMPLE_PERIOD: Declared =
    Declared::new("samples", "sample period", "instructions", Kind::Count);
/// The random seeds: a block has the samples of all seeds, and the mean of their costs.
pub const SAMPLE_SEED: Declared =
    Declared::new("samples", "sample seed", "seed", Kind::Count).by_number("sampling");
/// CPU time, by sampling.
pub const CPU_TIME: Declared = Declared::new("samples", "CPU time", "ns", Kind::Duration).sampled();
/// Cycles of CPUs that are not halted, by sampling.
pub const CYCLES: Declared = Declared::new("samples", "cycles", "cycles", Kind::Count).sampled();

/// Time off the CPU, by the stack that was switched out: waiting, or runnable.
pub const OFF_CPU: Declared = Declared::new("samples", "off-CPU", "ns", Kind::Duration).sampled();
/// The requested samples of a CPU in a second.
pub const FREQUENCY: Declared = Declared::new("samples", "frequency", "samples/s", Kind::Rate);
/// The same as reached: of a CPU that was sampled, whatever ran there.
pub const REACHED: Declared = Declared::new("samples", "reached", "samples/s", Kind::Rate);
/// Events on all CPUs, whatever ran there, including samples of a process.
pub const TICKS: Declared = Declared::new("samples", "ticks", "ticks", Kind::Count);
/// Samples of idle CPUs, which are in no cost.
pub const IDLE: Declared = Declared::new("samples", "idle", "samples", Kind::Count);
/// Samples taken; in profiles, without samples of idle CPUs.
pub const TAKEN: Declared = Declared::new("samples", "samples", "samples", Kind::Count);
/// Samples with a stack of user code.
pub const USER_STACKS: Declared = Declared::new("samples", "user stacks", "samples", Kind::Count);
/// User stacks that end before a function that a thread begins with.
pub const STACKS_CUT: Declared =
    Declared::new("samples", "user stacks cut", "samples", Kind::Count);
/// Samples whose user stack was copied, and unwound by tables.
pub const STACKS_COPIED: Declared =
    Declared::new("samples", "user stacks copied", "samples", Kind::Count);
/// Samples in the kernel whose time is known.
pub const ON_TIME: Declared = Declared::new("samples", "timed", "samples", Kind::Count);
/// Timed samples that came late: what ran before had interrupts off, or the CPU itself did not run.
pub const LATE: Declared = Declared::new("samples", "late", "samples", Kind::Count);
/// Run time of the programs that take samples.
pub const PROGRAMS: Declared = Declared::new("samples", "programs", "ns", Kind::Duration);
/// CPU time of the process that reads samples, without [`NAMES`].
pub const READER: Declared = Declared::new("samples", "reader", "ns", Kind::Duration);
/// CPU time of finding the functions that were sampled: the symbols of the kernel and of files.
pub const NAMES: Declared = Declared::new("samples", "names", "ns", Kind::Duration);
/// CPU time of finding the source lines that were sampled.
pub const LINES: Declared = Declared::new("samples", "lines", "ns", Kind::Duration);
/// Intervals off the CPU that began.
pub const WAITS_BEGUN: Declared = Declared::new("samples", "waits begun", "waits", Kind::Count);
/// Those that ended.
pub const WAITS_ENDED: Declared = Declared::new("samples", "waits ended", "waits", Kind::Count);
/// Those that had not ended when the window did.
pub const WAITS_OPEN: Declared = Declared::new("samples", "waits open", "waits", Kind::Count);

/// A path of packets through the places of [`Window::ledger`], whose names follow the protocol
/// there.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The first place.
    pub begins: &'static str,
    /// The last places: a packet ends at one of them.
    pub ends: &'static [&'static str],
    /// The place of packets that were under way when the last window closed.
    pub under_way: &'static str,
    /// Whether TCP packets stay the same from place to place: its queues merge them.
    pub of_tcp: bool,
}

/// All paths.
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

/// The results of an instrument in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// How long the window was open.
    pub duration_ns: u64,
    /// Time in it without probes, to stay within the maximum overhead.
    pub paused_ns: u64,
    /// All nodes since the instrument was attached: later windows append.
    pub nodes: Vec<TimedNode>,
    /// Nodes that are called within an RCU read-side critical section, ascending.
    pub nested: Vec<u32>,
    /// Times by node.
    pub functions: Vec<NodeTimes>,
    /// Times by stage.
    pub stages: Vec<StageTimes>,
    /// Packets seen at each place where they are counted, like "udp tx netif_receive_skb".
    pub ledger: BTreeMap<String, u64>,
    /// Packets dropped, by protocol and reason ("udp NO_SOCKET"), if the kernel gives it.
    pub drops: BTreeMap<String, u64>,
    /// The losses of the instrument.
    pub losses: Vec<Loss>,
    /// Per-packet traces.
    pub steps: Vec<Step>,
    /// CPU time of the programs in the kernel, if it is counted, and of the process that reads
    /// their results.
    pub own_cpu_ns: u64,
    /// Costs of functions, by quantity, if the instrument measures costs and not times.
    pub costs: Vec<Costs>,
    /// Single figures of the window.
    pub figures: Vec<Figure>,
    /// The threads that figures by thread are of.
    pub threads: Vec<Thread>,
    /// Times by what they are broken down by; their blocks are for the recording to know.
    pub groups: Vec<Group>,
    /// Times over time, likewise.
    pub slices: Vec<Slice>,
    /// Single calls, if the instrument traces them.
    pub calls: Option<TimedCalls>,
}
