//! The source of the packets, their rate, and the packets to observe.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::setup::FileSize;
use super::time::{Share, Time};
use super::{Kind, Lab};
use crate::class::{Family, Proto, words};

words! {
    /// The flows of packets.
    Flows, "flows",
    /// All packets belong to one.
    Steady = "steady",
    /// Each packet is the first of another one.
    New = "new",
}

/// Most flows of a run: each has a port of its own.
pub const MAX_NEW_FLOWS: u16 = 20_000;

/// The source of a block's packets. Keys that its kind does not support are errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Which kind.
    pub kind: Kind,
    /// Packets in a block.
    pub packets: Option<u32>,
    /// Warm-up packets before the first block of an arm, not measured.
    pub warmup_packets: Option<u32>,
    /// Whether packets belong to one flow, or each to a new one: the knob `new_flows` of all arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// Maximum number of packets per second.
    pub rate: Option<u32>,
    /// The command and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Files that it needs in a guest, as with `--with`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// A command to run on the other host.
    pub peer: Option<String>,
    /// Connections to open before it starts; between two hosts, those that share a stream or requests.
    pub connections: Option<u32>,
    /// Between two hosts: the bytes of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<FileSize>,
    /// The bytes given to each send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<FileSize>,
    /// The number of requests of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The number of requests to a web server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Its directories of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<u32>,
    /// Total measuring time; maximum time of a command.
    pub duration: Option<Time>,
    /// Length of one window of it.
    pub window: Option<Time>,
}

/// Default number of packets in a block, and of warm-up packets.
pub const PACKETS: u32 = 200;

/// Limits, so that a typing error does not result in years of measuring.
const MAX_PACKETS: u32 = 1_000_000;
const MAX_RATE: u32 = 100_000_000;
const MAX_BLOCKS: u32 = 10_000;
const MAX_SEEDS: u32 = 1_000;

impl Workload {
    /// A workload of this kind with all defaults.
    pub fn from_kind(kind: Kind) -> Workload {
        Workload { kind, ..Workload::default() }
    }

    /// Packets in a block that ends after a number of packets.
    pub fn packets(&self) -> u32 {
        self.packets.unwrap_or(PACKETS)
    }

    /// Warm-up packets before the first block of an arm.
    pub fn warmup_packets(&self) -> u32 {
        self.warmup_packets.unwrap_or(PACKETS)
    }

    pub(super) fn check(&self, lab: Lab) -> Result<(), Wrong> {
        let kind = self.kind;
        let labs: &[Lab] = match kind {
            Kind::Packets | Kind::Stream => &[Lab::Vm, Lab::Netns],
            Kind::Request | Kind::Http => &[Lab::Vm, Lab::Netns],
            Kind::Frames | Kind::Command => Lab::ALL,
            Kind::Traffic | Kind::Work => &[Lab::Host],
        };
        if !labs.contains(&lab) {
            let why = match kind {
                Kind::Traffic | Kind::Work => {
                    format!("a workload of kind {kind} needs lab = \"host\"")
                }
                _ => format!(
                    "a workload of kind {kind} is not supported by lab host; use lab = \"netns\" \
                     or \"vm\""
                ),
            };
            return Err(("kind", why));
        }
        let sends: &[Kind] = &[Kind::Packets, Kind::Stream];
        let runs: &[Kind] = &[Kind::Command];
        let connects: &[Kind] = &[Kind::Command, Kind::Stream, Kind::Http];
        let starts: &[Kind] = &[Kind::Command, Kind::Work];
        let watches: &[Kind] = &[Kind::Traffic, Kind::Command, Kind::Work];
        let lasts: &[Kind] =
            &[Kind::Packets, Kind::Stream, Kind::Traffic, Kind::Command, Kind::Work];
        for (key, given, kinds) in [
            ("packets", self.packets.is_some(), sends),
            ("warmup_packets", self.warmup_packets.is_some(), sends),
            ("rate", self.rate.is_some(), sends),
            ("command", !self.command.is_empty(), starts),
            ("with", !self.with.is_empty(), runs),
            ("peer", self.peer.is_some(), runs),
            ("connections", self.connections.is_some(), connects),
            ("duration", self.duration.is_some(), lasts),
            ("window", self.window.is_some(), watches),
        ] {
            if given && !kinds.contains(&kind) {
                let of: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
                let of = of.join(" or ");
                let instead = match (kind, key) {
                    (Kind::Frames, "rate") => "; for frames it is a knob: [knobs] rate = \"250k\"",
                    (Kind::Frames, "packets") => {
                        "; for frames set the time of a block: [blocks] time"
                    }
                    _ => "",
                };
                let why = format!(
                    "{key} is not supported by workloads of kind {kind}, only by kind {of}{instead}"
                );
                return Err((key, why));
            }
        }
        let bounds = [
            ("packets", self.packets, 1, MAX_PACKETS),
            ("warmup_packets", self.warmup_packets, 0, MAX_PACKETS),
            ("rate", self.rate, 1, MAX_RATE),
            ("connections", self.connections, 0, MAX_PACKETS),
        ];
        for (key, value, least, most) in bounds {
            if let Some(value) = value.filter(|n| !(least..=most).contains(n)) {
                let why = format!("invalid {key} `{value}`; expected {least} to {most}");
                return Err((key, why));
            }
        }
        if lab != Lab::Vm
            && let Some((key, _)) = [("with", self.with.is_empty()), ("peer", self.peer.is_none())]
                .iter()
                .find(|(_, absent)| !absent)
        {
            return Err((key, format!("{key} is not supported by lab {lab}; use lab = \"vm\"")));
        }
        Ok(())
    }
}

/// The repetitions of an arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Blocks {
    /// Blocks of each arm.
    pub count: Option<u32>,
    /// Number of random seeds; every arm runs with each.
    pub seeds: Option<u32>,
    /// Length of a block that ends after a time.
    pub time: Option<Time>,
    /// Warm-up time before each block of frames, not measured.
    pub warmup: Option<Time>,
    /// Whether to search for the highest rate without loss.
    #[serde(skip_serializing_if = "is_false")]
    pub search: bool,
}

fn is_false(on: &bool) -> bool {
    !on
}

impl Blocks {
    /// Number of random seeds; every arm runs with each.
    pub fn seeds(&self) -> u32 {
        self.seeds.unwrap_or(1)
    }

    pub(super) fn check(&self, lab: Lab, workload: &Workload) -> Result<(), Wrong> {
        for (key, value, most) in
            [("count", self.count, MAX_BLOCKS), ("seeds", self.seeds, MAX_SEEDS)]
        {
            if let Some(value) = value.filter(|n| !(1..=most).contains(n)) {
                return Err((key, format!("invalid {key} `{value}`; expected 1 to {most}")));
            }
        }
        let kind = workload.kind;
        let frames = kind == Kind::Frames;
        let several = self.count.is_some_and(|count| count > 1);
        let by_time = frames || matches!(kind, Kind::Packets | Kind::Stream);
        for (key, wrong, why) in [
            (
                "time",
                self.time.is_some() && !by_time,
                format!("time is not supported by workloads of kind {kind}"),
            ),
            (
                "time",
                self.time.is_some() && workload.packets.is_some(),
                "time and packets can't be used together: a block ends by one of them".into(),
            ),
            (
                "count",
                several && workload.window.is_some(),
                "blocks and windows (--interval) can't be used together: with windows a command \
                 runs once"
                    .into(),
            ),
            (
                "count",
                several && kind == Kind::Work && workload.duration.is_some(),
                "blocks and a duration can't be used together: with a duration a command runs once, and is \
                 measured in windows (--interval)"
                    .into(),
            ),
            (
                "count",
                several && kind == Kind::Command && lab != Lab::Vm,
                format!(
                    "blocks are runs of a command, which in lab {lab} runs once: measure it in windows of a length \
                     (--interval), or repeat it in lab vm{}",
                    match lab {
                        Lab::Host => " or as a workload of kind work",
                        _ => " or host",
                    }
                ),
            ),
            (
                "warmup",
                self.warmup.is_some() && !frames,
                "warmup needs a workload of kind frames; for packets use warmup_packets".into(),
            ),
            (
                "search",
                self.search && !frames,
                "search needs a workload of kind frames".into(),
            ),
            (
                "seeds",
                self.seeds() > 1 && lab != Lab::Vm,
                "seeds need lab vm (guests): elsewhere blocks differ without them".into(),
            ),
            (
                "seeds",
                self.seeds() > 1 && frames,
                "seeds are not supported by a workload of kind frames".into(),
            ),
        ] {
            if wrong {
                return Err((key, why));
            }
        }
        Ok(())
    }
}

/// Which packets are observed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Only these protocols; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proto: Vec<Proto>,
    /// Only this address family.
    pub family: Option<Family>,
    /// With this source or destination port.
    pub port: Option<u16>,
    /// With this source or destination address.
    pub address: Option<IpAddr>,
    /// On this device.
    pub interface: Option<String>,
    /// In this network namespace: a name, a PID, or a path.
    pub netns: Option<String>,
    /// Only this process.
    pub pid: Option<u32>,
    /// Only tasks in this cgroup: its path.
    pub cgroup: Option<String>,
}

impl Filter {
    /// Whether it selects at most a process, and nothing else.
    pub fn is_of_process(&self) -> bool {
        let of_process = Filter { pid: self.pid, ..Filter::default() };
        *self == of_process
    }
}

/// Which functions are timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Functions {
    /// Names, or globs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// All functions with a packet as an argument, from BTF.
    #[serde(skip_serializing_if = "is_false")]
    pub discover: bool,
    /// All functions in a recording: its file.
    pub recorded: Option<String>,
    /// Maximum number of functions.
    pub most: Option<u32>,
}

impl Functions {
    /// Whether any are chosen.
    pub fn is_empty(&self) -> bool {
        *self == Functions::default()
    }
}

/// Limits of measurement overhead, and additional output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// Maximum overhead, as a share of the CPU time of the work.
    pub max_overhead: Option<Share>,
    /// Whether every block is also run without probes, to measure the overhead.
    #[serde(skip_serializing_if = "is_false")]
    pub measure_cost: bool,
    /// Whether to record per-packet traces.
    #[serde(skip_serializing_if = "is_false")]
    pub one_packet: bool,
}

/// Maximum number of functions that can be timed at once.
const MAX_FUNCTIONS: u32 = 4_096;

impl Functions {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        match self.most {
            Some(n) if !(1..=MAX_FUNCTIONS).contains(&n) => {
                Err(("most", format!("invalid most `{n}`; expected 1 to {MAX_FUNCTIONS}")))
            }
            _ => Ok(()),
        }
    }
}

/// Interfaces of this machine to send frames over. Changing their settings has to be allowed on
/// the command line, never in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// The interface that receives frames.
    pub nic: String,
    /// The interface that sends them, connected to it by a cable.
    pub from: String,
    /// The interface that forwards them.
    pub to: Option<String>,
    /// The interface that receives forwarded frames, at the other end of its cable.
    pub sink: Option<String>,
}
