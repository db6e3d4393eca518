//! Plans of runs on this machine, by the source of packets or work.

use std::path::PathBuf;
use std::time::Duration;

use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::recording::Arm;
use netplumb_model::timing::TimingSpec;
use netplumb_model::topology::TopologySpec;

use super::machine::Change;
use crate::outside::without_probes;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct LivePlan {
    /// The settings of each instrument: at least one; for traffic of other programs exactly one.
    pub specs: Vec<TimingSpec>,
    /// The source of packets.
    pub source: Source,
}

/// Where packets come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Plumb, between namespaces.
    Packets(PacketPlan),
    /// Other programs, observed in windows.
    Traffic(TrafficPlan),
    /// None: work is sampled, or its events counted, whatever it is for.
    Work(WorkPlan),
}

/// Packets that plumb sends.
#[derive(Debug, Clone)]
pub struct PacketPlan {
    /// The arms to measure, by number.
    pub arms: Vec<Arm>,
    /// The topologies that arms may name besides the presets.
    pub topologies: Vec<TopologySpec>,
    /// Blocks of each, unless the run is a long one.
    pub blocks: u32,
    /// Duration of a long run, which repeats rounds of blocks until it has passed.
    pub long: Option<Duration>,
    /// Duration of a block; if absent, it ends after a number of packets.
    pub block: Option<Duration>,
    /// Packets in a block, unless it ends after a time.
    pub packets: u32,
    /// Warm-up packets before an arm's first block.
    pub warmup_packets: u32,
    /// Maximum number of packets per second.
    pub rate_pps: Option<u32>,
    /// Whether they are sent without waiting for each other.
    pub stream: bool,
    /// Whether every arm is also run without the instrument.
    pub measure_cost: bool,
}

impl PacketPlan {
    /// Its arms, and those without the instrument.
    pub(super) fn all_arms(&self) -> Vec<Arm> {
        let mut arms = self.arms.clone();
        if self.measure_cost {
            arms.extend(without_probes(&self.arms));
        }
        arms
    }
}

/// Traffic of other programs.
#[derive(Debug, Clone)]
pub struct TrafficPlan {
    /// Total duration; without, until the command exits.
    pub duration: Option<Duration>,
    /// Whether it is a long run, which can be resumed, and whose windows are merged as they get
    /// many.
    pub long: bool,
    /// Duration of a window; without, there is one until all is over.
    pub window: Option<Duration>,
    /// The command to run meanwhile: its arguments.
    pub command: Vec<String>,
    /// Whether the command's standard output is redirected to standard error.
    pub output_to_stderr: bool,
    /// Where the command runs: in namespaces as of this arm, or in the current one.
    pub within: Option<Arm>,
    /// The topologies that the arm may name besides the presets.
    pub topologies: Vec<TopologySpec>,
    /// The observed device, which may be removed.
    pub interface: Option<String>,
    /// The observed network namespace, which may be removed.
    pub namespace: Option<String>,
}

/// Work of CPUs.
#[derive(Debug, Clone)]
pub struct WorkPlan {
    /// The name of the arm: whose work it is.
    pub name: String,
    /// Total duration; without, until the command exits, the process ends, or the run is stopped.
    pub duration: Option<Duration>,
    /// How long windows are.
    pub length: Length,
    /// Whether only the latest window is kept, so that it can run forever.
    pub rolling: bool,
    /// Whole runs of commands, each a block, in place of windows.
    pub runs: Option<RunsPlan>,
    /// The command to run meanwhile: its arguments.
    pub command: Vec<String>,
    /// Whether the command's standard output is redirected to standard error.
    pub output_to_stderr: bool,
    /// The measured process, which may end.
    pub pid: Option<u32>,
    /// The directory of the measured cgroup, which may be removed.
    pub cgroup: Option<PathBuf>,
}

impl WorkPlan {
    /// Whether it runs until the user ends it, and all of it was measured then.
    pub(super) fn ends_by_signal(&self) -> bool {
        self.duration.is_none()
    }

    /// The arm where nothing is compared.
    pub fn arm(&self) -> Arm {
        Arm {
            name: self.name.clone(),
            proto: Proto::Work,
            family: Family::V4,
            link: Link::Any,
            forward: false,
            size_bytes: 0,
            knobs: Default::default(),
            made: None,
        }
    }
}

/// How long windows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// All of them.
    Each(Duration),
    /// The first one; later ones are a part of what went by, so that hours have some hundred.
    Growing {
        /// Duration of the first window, and minimum of later ones.
        shortest: Duration,
        /// Later windows last the time since the start divided by this.
        part: u32,
    },
}

impl Length {
    /// Growing windows, for a run that nobody watches.
    pub const UNWATCHED: Length =
        Length::Growing { shortest: Duration::from_millis(250), part: 10 };
}

/// Runs of commands.
#[derive(Debug, Clone)]
pub struct RunsPlan {
    /// Runs of each arm.
    pub blocks: u32,
    /// The arms: at least one.
    pub arms: Vec<RunsArm>,
}

/// An arm of such runs.
#[derive(Debug, Clone)]
pub struct RunsArm {
    /// As it is recorded.
    pub arm: Arm,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Settings in effect meanwhile.
    pub changes: Vec<Change>,
}
