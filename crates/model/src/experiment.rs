//! The experiment file: varied and fixed settings, the workload, and claims to test on the results. One format for
//! every experiment.
//!
//! docs/reference/experiment.md describes it for users.
//!
//! `check.rs` and `check/arms.rs` have the rules. Command lines are experiments, too: `plumb` makes
//! them in `commands/path/args.rs` and `commands/bench/args.rs`, for example.

pub mod acting;
mod arms;
mod build;
mod chains;
mod check;
mod claim;
mod device;
mod disk;
mod error;
mod figure;
mod hosts;
mod knobs;
mod lasting;
mod machine;
mod measured;
mod module;
mod nft;
mod nic;
mod objects;
mod outside;
mod program;
mod qdisc;
mod samples;
mod scan;
mod setup;
mod shares;
mod time;
mod topologies;
mod trace;
mod within;
mod workload;

use serde::{Deserialize, Serialize};

pub use acting::{Idle, Load};
pub use arms::ArmKernel;
pub use build::Build;
pub use check::check_arm;
pub use claim::{Bound, Claim, Leg, OnlyIf, Published, Relation};
pub use device::{FromDevice, RxFault, Sender};
pub use disk::{
    DISK_DEVICE, DISK_FOLDER, Disk, DiskDevice, DiskPlan, FileSystem, IoScheduler, QueueSetting,
    selected,
};
pub use error::{ExperimentError, Key};
pub use figure::{At, Figure, Marked, number_of};
pub use hosts::{buffer_of, default_of_hosts, is_of_hosts, is_of_web, link_of};
pub use knobs::{
    ArmNaming, Bytes, Flag, KNOBS, Knob, KnobDefault, Knobs, Level, ONLY_ARM, Offload, Recorded,
    Takes, Vary, files, of_files,
};
pub use lasting::DURATION;
pub use machine::{MachinePlan, OwnDisk, OwnNic, is_of_nic};
pub use measured::Difference;
pub use module::Module;
pub use nft::{Hook, Looks, MAX_RULESET_BYTES, NeverMatching, Nft, Ruleset, TABLE};
pub use nic::{
    Channel, Coalescing, Ends, NO_CPUS, NicSettings, Polling, Ring, Steering, cpu_list, listed,
    module_options,
};
pub use program::{BpfHook, BpfProgram, MAX_OBJECT_BYTES, ProgramFile, file_and_program};
pub use qdisc::Qdisc;
pub use samples::Samples;
pub use scan::Scan;
pub use setup::{FileSize, Setup};
pub use shares::{PublishedShare, Shares};
pub use time::{Share, Time};
pub use trace::Trace;
pub use within::Within;
pub use workload::{
    Blocks, Filter, Flows, Functions, MAX_NEW_FLOWS, Nics, PACKETS, Probes, Workload,
};

use crate::calls::TIMED;
use crate::class::words;
use crate::events::Events;
use crate::recording::Recording;
use crate::spans::Spans;
use crate::topology::TopologySpec;

words! {
    /// Where the packets run.
    #[derive(Default)]
    Lab, "lab",
    /// A QEMU guest.
    #[default]
    Vm = "vm",
    /// Network namespaces of this machine.
    Netns = "netns",
    /// This machine's own interfaces.
    Host = "host",
}

words! {
    /// The kind of workload.
    #[derive(Default)]
    Kind, "kind of workload",
    /// Single packets, each sent when the previous one has arrived.
    #[default]
    Packets = "packets",
    /// Packets sent without waiting for the previous ones; between two hosts, bytes.
    Stream = "stream",
    /// Requests and answers between two hosts, one after the other.
    Request = "request",
    /// Files of a web server, between two hosts.
    Http = "http",
    /// Generated frames, on a data path.
    Frames = "frames",
    /// A command, with its arguments.
    Command = "command",
    /// The machine's own traffic.
    Traffic = "traffic",
    /// The work of the machine's CPUs, whatever it is for.
    Work = "work",
}

impl Kind {
    /// Whether plumb sends packets, through the stack.
    pub fn sends(self) -> bool {
        matches!(self, Kind::Packets | Kind::Stream)
    }
}

/// An experiment, checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name; the recording is named after it.
    pub name: String,
    /// One line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The question that it answers, in a sentence or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// Names of the instruments; none for the default of the lab and the workload.
    #[serde(default)]
    pub instruments: Option<Vec<String>>,
    /// The lab to measure in.
    #[serde(default)]
    pub lab: Lab,
    /// The number of hosts: two guests with a wire between them, or one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// The layer whose costs the figures show; none for all.
    #[serde(default)]
    pub layer: Option<String>,
    /// The conclusion, in a sentence; `{name}` stands for the result of the claim of that
    /// name.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// Whether to explain rates by where CPU time goes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub explain: bool,
    /// What makes the packets.
    #[serde(default)]
    pub workload: Workload,
    /// Repetitions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blocks: Blocks,
    /// Builds before anything is measured.
    #[serde(default, skip_serializing_if = "Build::is_empty")]
    pub build: Build,
    /// Steps in a guest before a command is measured.
    #[serde(default, skip_serializing_if = "Setup::is_empty")]
    pub setup: Setup,
    /// Which packets are observed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub filter: Filter,
    /// Which functions are timed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub functions: Functions,
    /// Limits of measurement overhead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub probes: Probes,
    /// How samples are drawn in guests.
    #[serde(default, skip_serializing_if = "Samples::is_empty")]
    pub samples: Samples,
    /// Which events are counted.
    #[serde(default, skip_serializing_if = "Events::is_empty")]
    pub events: Events,
    /// Which calls are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// Between which events time is measured.
    #[serde(default, skip_serializing_if = "Spans::is_empty")]
    pub spans: Spans,
    /// Interfaces of this machine to send frames over.
    #[serde(default)]
    pub nics: Option<Nics>,
    /// Topologies that arms may name. An arm that names none has the first of them, if there are any.
    #[serde(default, rename = "topology", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "topologies::one_or_several")]
    pub topologies: Vec<TopologySpec>,
    /// Knobs that are the same in every arm.
    #[serde(default, skip_serializing_if = "is_default")]
    pub knobs: Knobs,
    /// Knobs that differ: one arm for every combination.
    #[serde(default, skip_serializing_if = "is_default")]
    pub vary: Vary,
    /// Sysctls to change one at a time, each an additional arm.
    #[serde(default)]
    pub scan: Option<Scan>,
    /// Arms written out, in addition to the product of `vary`.
    #[serde(default, rename = "arm", skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<NamedArm>,
    /// Published results, for comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Shares of functions, beside published ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Shares>,
    /// Figures.
    #[serde(default, rename = "figure", skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Claims to test.
    #[serde(default, rename = "claim", skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

/// An arm that is written out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedArm {
    /// The arm's name in recordings.
    pub name: String,
    /// The arm's own settings, which override `[knobs]`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub knobs: Knobs,
}

/// Limit, so that a typing error does not result in years of measuring.
const MAX_ARMS: usize = 10_000;

/// A written file leaves out what is at its default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Experiment {
    /// Parse and check an experiment file. A former spelling is an error that names the new one.
    ///
    /// # Errors
    /// The line, what is wrong with it, and what was probably meant.
    pub fn parse(text: &str) -> Result<Experiment, ExperimentError> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|e| ExperimentError::from_toml(text, &e))?;
        let experiment = experiment.with_own_knobs();
        experiment.judge().map_err(|mistake| ExperimentError::at_line(text, mistake))?;
        Ok(experiment)
    }

    /// The experiment of a recording, if it has one: read as it was meant when it was measured,
    /// also if its file would be refused today.
    ///
    /// # Errors
    /// It can't be parsed.
    pub fn of_recording(recording: &Recording) -> Result<Option<Experiment>, ExperimentError> {
        let text = recording.experiment_toml.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = toml::from_str(text);
        parsed
            .map(|e: Experiment| Some(e.with_own_knobs()))
            .map_err(|e| ExperimentError::from_toml(text, &e))
    }

    /// Check that all layers in the experiment are among `layers`.
    ///
    /// # Errors
    /// The line, and the layer that was probably meant.
    pub fn check_layers(&self, text: &str, layers: &[&str]) -> Result<(), ExperimentError> {
        let own = self.layer.iter().map(String::as_str);
        for layer in own.chain(self.claims.iter().flat_map(Claim::layers)) {
            if !layers.contains(&layer) {
                return Err(ExperimentError::about_word(text, "layer", layer, layers));
            }
        }
        Ok(())
    }

    /// Check that all instruments in the experiment are among `known`.
    ///
    /// # Errors
    /// The line, and the instrument that was probably meant.
    pub fn check_instruments(&self, text: &str, known: &[&str]) -> Result<(), ExperimentError> {
        let named = self.instruments.iter().flatten();
        match named.map(String::as_str).find(|name| !known.contains(name)) {
            Some(name) => Err(ExperimentError::about_word(text, "instrument", name, known)),
            None => Ok(()),
        }
    }

    /// Check that it can be run, as far as that is known without a machine.
    ///
    /// # Errors
    /// The key that is wrong, and a message.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.judge().map_err(|mistake| (mistake.key, mistake.what))
    }

    /// Whether single calls are timed.
    pub fn times_calls(&self) -> bool {
        let mut named = self.instruments.iter().flatten();
        named.any(|name| name == TIMED.step.instrument)
    }

    /// Blocks of each arm.
    pub fn block_count(&self) -> u32 {
        let default = match (self.workload.kind, self.lab) {
            (Kind::Command | Kind::Traffic | Kind::Work, _) => 1,
            (Kind::Frames, _) | (_, Lab::Vm) => 5,
            (_, Lab::Netns | Lab::Host) => 10,
        };
        self.blocks.count.unwrap_or(default)
    }

    /// As the text of a file.
    ///
    /// # Errors
    /// It can't be serialised as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

#[cfg(test)]
mod tests;
