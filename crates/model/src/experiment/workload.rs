//! What makes the packets, how often, and which of them are watched.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::time::{Share, Time};
use super::{Kind, Lab};
use crate::class::{Family, Proto};

/// What is wrong: the key that says so, and why.
pub(super) type Wrong = (&'static str, String);

/// What makes the packets of a block. What is not of its kind is refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Which kind.
    pub kind: Kind,
    /// Packets in a block.
    pub packets: Option<u32>,
    /// Packets sent before the first block of an arm and not counted.
    pub warmup_packets: Option<u32>,
    /// Packets a second, at most.
    pub rate: Option<u32>,
    /// The words of a command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Files that it needs in a guest, as `--with` has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// A command for the other end.
    pub peer: Option<String>,
    /// Connections of the guest's own before it.
    pub connections: Option<u32>,
    /// How long traffic is watched in all, or a command at most.
    pub duration: Option<Time>,
    /// How long one window over it is.
    pub window: Option<Time>,
}

/// Packets in a block, and before the first, where nothing is said.
pub const PACKETS: u32 = 200;

/// Bounds that keep a mistyped file from asking for years.
const MAX_PACKETS: u32 = 1_000_000;
const MAX_RATE: u32 = 100_000_000;
const MAX_BLOCKS: u32 = 10_000;
const MAX_SEEDS: u32 = 1_000;

impl Workload {
    /// One of this kind, of which nothing is said.
    pub fn of(kind: Kind) -> Workload {
        Workload {
            kind,
            ..Workload::default()
        }
    }

    /// Packets in a block that is over by packets.
    pub fn packets(&self) -> u32 {
        self.packets.unwrap_or(PACKETS)
    }

    /// Packets before the first block of an arm.
    pub fn warmup_packets(&self) -> u32 {
        self.warmup_packets.unwrap_or(PACKETS)
    }

    pub(super) fn check(&self, lab: Lab) -> Result<(), Wrong> {
        let kind = self.kind;
        let labs: &[Lab] = match kind {
            Kind::Packets | Kind::Stream => &[Lab::Vm, Lab::Netns],
            Kind::Frames | Kind::Command => Lab::ALL,
            Kind::Traffic => &[Lab::Host],
        };
        if !labs.contains(&lab) {
            let why = match kind {
                Kind::Traffic => "traffic is what a machine has of its own: lab = \"host\"".into(),
                _ => format!("the lab host sends no {kind}: use lab = \"netns\" or \"vm\""),
            };
            return Err(("kind", why));
        }
        let sends: &[Kind] = &[Kind::Packets, Kind::Stream];
        let runs: &[Kind] = &[Kind::Command];
        let watches: &[Kind] = &[Kind::Traffic, Kind::Command];
        for (key, given, kinds) in [
            ("packets", self.packets.is_some(), sends),
            ("warmup_packets", self.warmup_packets.is_some(), sends),
            ("rate", self.rate.is_some(), sends),
            ("command", !self.command.is_empty(), runs),
            ("with", !self.with.is_empty(), runs),
            ("peer", self.peer.is_some(), runs),
            ("connections", self.connections.is_some(), runs),
            ("duration", self.duration.is_some(), watches),
            ("window", self.window.is_some(), watches),
        ] {
            if given && !kinds.contains(&kind) {
                let of: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
                let of = of.join(" or ");
                let instead = match (kind, key) {
                    (Kind::Frames, "rate") => "; of frames it is a knob: [knobs] rate = \"250k\"",
                    (Kind::Frames, "packets") => "; of frames a block is over by [blocks] time",
                    _ => "",
                };
                let why = format!(
                    "{key} is for a workload of kind {of}, and this one is of kind {kind}{instead}"
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
                return Err((key, format!("{key} is {value}: {least} to {most}")));
            }
        }
        if kind == Kind::Command && self.command.is_empty() {
            let why = "a workload of kind command needs command = [\"curl\", ...]";
            return Err(("kind", why.into()));
        }
        if lab != Lab::Vm
            && let Some((key, _)) = [
                ("with", self.with.is_empty()),
                ("peer", self.peer.is_none()),
            ]
            .iter()
            .find(|(_, absent)| !absent)
        {
            return Err((
                key,
                format!("{key} is for a command in a guest: lab = \"vm\""),
            ));
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
    /// Random seeds under which every arm is run.
    pub seeds: Option<u32>,
    /// How long a block is, where it is over by time.
    pub time: Option<Time>,
    /// How long frames run before that.
    pub warmup: Option<Time>,
    /// Whether the rate that loses nothing is searched.
    #[serde(skip_serializing_if = "is_false")]
    pub search: bool,
}

fn is_false(on: &bool) -> bool {
    !on
}

impl Blocks {
    /// Random seeds under which every arm is run.
    pub fn seeds(&self) -> u32 {
        self.seeds.unwrap_or(1)
    }

    pub(super) fn check(&self, lab: Lab, workload: &Workload) -> Result<(), Wrong> {
        for (key, value, most) in [
            ("count", self.count, MAX_BLOCKS),
            ("seeds", self.seeds, MAX_SEEDS),
        ] {
            if let Some(value) = value.filter(|n| !(1..=most).contains(n)) {
                return Err((key, format!("{key} is {value}: 1 to {most}")));
            }
        }
        let kind = workload.kind;
        let frames = kind == Kind::Frames;
        let by_time = frames || matches!(kind, Kind::Packets | Kind::Stream);
        for (key, wrong, why) in [
            (
                "time",
                self.time.is_some() && !by_time,
                format!("a block of kind {kind} is as long as the command or a window"),
            ),
            (
                "time",
                self.time.is_some() && workload.packets.is_some(),
                "a block is over by time or by packets: leave out packets, or this".into(),
            ),
            (
                "warmup",
                self.warmup.is_some() && !frames,
                "warmup is for a workload of kind frames; packets have warmup_packets".into(),
            ),
            (
                "search",
                self.search && !frames,
                "search is for a workload of kind frames".into(),
            ),
            (
                "seeds",
                self.seeds() > 1 && (lab != Lab::Vm || frames),
                "seeds are of guests that packets run in: lab = \"vm\", and no frames".into(),
            ),
        ] {
            if wrong {
                return Err((key, why));
            }
        }
        Ok(())
    }
}

/// Which packets are watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Of these protocols; all if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proto: Vec<Proto>,
    /// Of this version of IP.
    pub family: Option<Family>,
    /// With this port at either end.
    pub port: Option<u16>,
    /// With this address at either end.
    pub address: Option<IpAddr>,
    /// On this device.
    pub interface: Option<String>,
    /// In this network namespace: a name, a process, or a path.
    pub netns: Option<String>,
    /// Of this process.
    pub pid: Option<u32>,
    /// Of tasks in this cgroup: its path.
    pub cgroup: Option<String>,
}

/// Which functions are timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Functions {
    /// Names, with `*` for any letters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Those that take a packet, from the kernel's type information.
    #[serde(skip_serializing_if = "is_false")]
    pub discover: bool,
    /// Those that a recording saw: its file.
    pub recorded: Option<String>,
    /// At most so many.
    pub most: Option<u32>,
}

impl Functions {
    /// Whether any are chosen.
    pub fn is_empty(&self) -> bool {
        *self == Functions::default()
    }
}

/// What measuring may cost, and what it tells beside figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// The share of the work that measuring may take.
    pub max_overhead: Option<Share>,
    /// Whether every block is also run without probes, to tell what they cost.
    #[serde(skip_serializing_if = "is_false")]
    pub measure_cost: bool,
    /// Whether one packet is told step by step.
    #[serde(skip_serializing_if = "is_false")]
    pub one_packet: bool,
}

/// Most functions that can be timed at once.
const MAX_FUNCTIONS: u32 = 4_096;

impl Functions {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        match self.most {
            Some(n) if !(1..=MAX_FUNCTIONS).contains(&n) => {
                Err(("most", format!("most is {n}: 1 to {MAX_FUNCTIONS}")))
            }
            _ => Ok(()),
        }
    }
}

/// Interfaces of the user's that frames run on. That these may be changed is said where
/// the experiment is run, never in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// Frames come in here.
    pub nic: String,
    /// They are sent from this one, which a cable joins to it.
    pub from: String,
    /// They are sent on by this one.
    pub to: Option<String>,
    /// They come out here, at the other end of its cable.
    pub sink: Option<String>,
}
