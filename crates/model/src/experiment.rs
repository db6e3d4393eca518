//! The experiment file: what varies, what is fixed, what is sent, and which claims about the
//! results are tested. One format for every experiment.
//!
//! docs/reference/experiment.md describes it for users.

pub mod acting;
mod arms;
mod build;
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
mod old;
mod qdisc;
mod samples;
mod scan;
mod setup;
mod shares;
mod time;
mod trace;
mod within;
mod workload;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

pub use acting::{Idle, Load};
pub use arms::ArmKernel;
pub use build::Build;
pub use claim::{Bound, Claim, OnlyIf, Published, Relation};
pub use device::{FromDevice, RxFault, Sender};
pub use disk::{
    DISK_DEVICE, DISK_FOLDER, Disk, DiskDevice, DiskPlan, FileSystem, IoScheduler, QueueSetting,
    selected,
};
use error::Mistake;
pub use error::{ExperimentError, Key};
pub use figure::{At, Figure, Marked, number_of};
pub use hosts::{buffer_of, is_of_hosts, is_of_web, link_of};
pub use knobs::{
    Bytes, Flag, KNOBS, Knob, KnobDefault, Knobs, Level, Offload, Recorded, Said, Takes, Vary,
    files, of_files,
};
pub use lasting::DURATION;
pub use machine::{MachinePlan, OwnDisk, OwnNic};
pub use measured::Difference;
pub use module::Module;
pub use nft::{Hook, Looks, MAX_RULESET_BYTES, NeverMatching, Nft, Ruleset, TABLE};
pub use nic::{
    Channel, Coalescing, Ends, NO_CPUS, NicSettings, Polling, Ring, Steering, cpu_list, listed,
    module_options,
};
pub use old::current;
pub use qdisc::Qdisc;
pub use samples::Samples;
pub use scan::Scan;
pub use setup::{FileSize, Setup};
pub use shares::{PublishedShare, Shares};
pub use time::{Share, Time};
pub(crate) use trace::number;
pub use trace::{Condition, FIELDS as OF_CALLS, Of as OfCall, Trace};
pub use within::Within;
pub use workload::{Blocks, Filter, Functions, Nics, PACKETS, Probes, Workload};

use crate::class::{Family, Link, Proto, words};
use crate::events::{self, Events};
use crate::quantity::Declared;
use crate::recording::{Arm, Recording};
use crate::spans::{self, Spans};
use crate::timing::{INSTRUCTIONS, SAMPLED};
use crate::trace::TIMED;

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
    /// What generates the packets.
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
    /// A command.
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
    /// The lab.
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
    /// What is built before anything is measured.
    #[serde(default, skip_serializing_if = "Build::is_empty")]
    pub build: Build,
    /// What is done in a guest before a command is measured.
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
    /// Knobs that are the same in every arm.
    #[serde(default, skip_serializing_if = "is_default")]
    pub knobs: Knobs,
    /// Knobs that differ: one arm for every combination.
    #[serde(default, skip_serializing_if = "is_default")]
    pub vary: Vary,
    /// Sysctls to change one at a time, each an additional arm.
    #[serde(default)]
    pub scan: Option<Scan>,
    /// Arms that are written out, in addition to those of `vary`.
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
    /// Its name.
    pub name: String,
    /// Its settings, over those of `[knobs]`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub knobs: Knobs,
}

/// A file that is written has only what it says something about.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Limit, so that a typing error does not result in years of measuring.
const MAX_ARMS: usize = 10_000;
/// Frames are set up for each of their blocks.
const MAX_ARMS_OF_FRAMES: usize = 1_000;
/// Largest UDP payload over IPv4 (RFC 768: 65,535 less 8 of UDP and 20 of IP).
const MAX_SIZE_BYTES: u32 = 65_507;

/// Minimum MTU of Ethernet devices (include/uapi/linux/if_ether.h: ETH_MIN_MTU).
const MIN_MTU_BYTES: u32 = 68;
/// RFC 8200: below this, there is no IPv6.
const MIN_MTU_V6_BYTES: u32 = 1280;
const MAX_MTU_BYTES: u32 = 65_535;

/// Check that an arm can be run.
///
/// # Errors
/// The key that is wrong, and a message.
pub fn check_arm(arm: &Arm) -> Result<(), (&'static str, String)> {
    if arm.size_bytes > MAX_SIZE_BYTES {
        return Err((
            "size_bytes",
            format!(
                "invalid size_bytes `{}`; expected at most {MAX_SIZE_BYTES} (63K)",
                arm.size_bytes
            ),
        ));
    }
    if matches!(arm.proto, Proto::Command | Proto::Work) {
        return Err((
            "proto",
            "command is not a protocol; use [workload] kind = \"command\", or `plumb path -- COMMAND`"
                .into(),
        ));
    }
    if arm.link == Link::Any {
        return Err(("link", "link any is only for traffic in lab host".into()));
    }
    if arm.forward && arm.link == Link::Lo {
        return Err((
            "forward",
            "forward is not supported by link lo; use veth".into(),
        ));
    }
    let least = match arm.family {
        Family::V4 => MIN_MTU_BYTES,
        Family::V6 => MIN_MTU_V6_BYTES,
    };
    if let Some(mtu) = arm.knobs.get("mtu_bytes")
        && !mtu
            .parse()
            .is_ok_and(|mtu: u32| (least..=MAX_MTU_BYTES).contains(&mtu))
    {
        return Err((
            "mtu_bytes",
            format!(
                "invalid mtu_bytes `{mtu}`; expected {least} to {MAX_MTU_BYTES} for {}",
                arm.family
            ),
        ));
    }
    if arm.knobs.contains_key("bridge") && arm.link == Link::Lo {
        return Err((
            "bridge",
            "bridge is not supported by link lo; use veth".into(),
        ));
    }
    if arm.forward && arm.knobs.get("bridge").is_some_and(|on| on == "on") {
        return Err(("bridge", "bridge and forward can't be used together".into()));
    }
    if arm.knobs.contains_key("queues") && arm.link != Link::Veth {
        return Err((
            "queues",
            format!("queues is not supported by link {}; use veth", arm.link),
        ));
    }
    match FromDevice::of(arm) {
        Some(frames) => frames.check(arm)?,
        None => device::check_without(arm)?,
    }
    if let Some(ruleset) = Ruleset::of(arm) {
        ruleset.check(arm).map_err(|why| ("nft", why))?;
    }
    if let Some(qdisc) = Qdisc::of(arm) {
        qdisc.check(arm).map_err(|why| ("qdisc", why))?;
    }
    if let Some(disk) = DiskPlan::of(arm) {
        disk.check()?;
    }
    Ok(())
}

/// Check that a recording can have this name.
pub(crate) fn check_name(name: &str) -> Result<(), (&'static str, String)> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 80 || !name.chars().all(fits) || name.starts_with('.') {
        return Err((
            "name",
            format!(
                "invalid name `{}`; expected 1 to 80 letters, digits, `-`, `_` or `.` (the \
                 recording is named after it)",
                name.chars().take(80).collect::<String>()
            ),
        ));
    }
    Ok(())
}

impl Experiment {
    /// Parse and check an experiment file. A former spelling is an error that names the new one.
    ///
    /// # Errors
    /// The line, what is wrong with it, and what was probably meant.
    pub fn parse(text: &str) -> Result<Experiment, ExperimentError> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|e| ExperimentError::from_toml(text, &e))?;
        experiment
            .judge()
            .map_err(|mistake| ExperimentError::of(text, mistake))?;
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
            .map(Some)
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

    fn judge(&self) -> Result<(), Mistake> {
        self.check_hosts()?;
        self.workload.check(self.lab)?;
        self.blocks.check(self.lab, &self.workload)?;
        self.functions.check()?;
        self.check_duration()?;
        self.check_samples()?;
        self.check_events()?;
        self.check_trace()?;
        self.check_spans()?;
        let within = Mistake::within("build", 0);
        self.build.check().map_err(|wrong| within(wrong.into()))?;
        self.check_setup()?;
        check_name(&self.name)?;
        if self.instruments.as_ref().is_some_and(Vec::is_empty) {
            return Err((
                "instruments",
                "instruments is empty; leave it out for the default".into(),
            )
                .into());
        }
        self.check_places()?;
        self.check_settings()?;
        for (n, figure) in self.figures.iter().enumerate() {
            figure.check().map_err(Mistake::within("figure", n))?;
        }
        match self.workload.kind {
            Kind::Frames => self.check_frames()?,
            _ => self.check_arms()?,
        }
        if let Some(scan) = &self.scan {
            scan.check()?;
            if (self.lab, self.workload.kind) != (Lab::Vm, Kind::Packets) {
                let why = "scan is only supported in lab vm, with a workload of kind packets";
                return Err(("scan", why.to_string()).into());
            }
        }
        self.check_shares()?;
        self.check_claims()
    }

    /// A duration would be without effect where blocks end after a number of packets.
    fn check_duration(&self) -> Result<(), Mistake> {
        let workload = &self.workload;
        let both = workload.duration.is_some() && workload.packets.is_some();
        if both && workload.kind == Kind::Packets && self.lab != Lab::Vm {
            let why = "duration can't be combined with packets in this lab, where blocks end after so many; \
                       leave packets out";
            return Err(("duration", why.to_string()).into());
        }
        Ok(())
    }

    fn check_setup(&self) -> Result<(), Mistake> {
        let within = Mistake::within("setup", 0);
        self.setup.check().map_err(|wrong| within(wrong.into()))?;
        let of_command = (self.lab, self.workload.kind) == (Lab::Vm, Kind::Command);
        match self.setup.is_empty() || of_command {
            true => Ok(()),
            false => {
                let why = "[setup] is for commands in guests: it needs lab vm, and a workload of kind command";
                Err(("setup", why.to_string()).into())
            }
        }
    }

    fn check_samples(&self) -> Result<(), Mistake> {
        let within = Mistake::within("samples", 0);
        self.samples.check().map_err(|wrong| within(wrong.into()))?;
        let mut named = self.instruments.iter().flatten();
        if self.samples.is_empty() {
            return Ok(());
        }
        let of_work = self.samples.of_work();
        if self.workload.kind == Kind::Work {
            return match self.samples.of_guests() {
                None => Ok(()),
                Some(key) => {
                    let why = format!("{key} is for guests: it needs lab = \"vm\"");
                    Err(within((key, why).into()))
                }
            };
        }
        if let Some(key) = of_work {
            let why = format!("{key} needs a workload of kind work");
            return Err(within((key, why).into()));
        }
        if self.lab != Lab::Vm || self.workload.kind == Kind::Frames {
            let why = "[samples] is for guests: it needs lab = \"vm\", and is not supported by \
                       workloads of kind frames";
            return Err(("samples", why.to_string()).into());
        }
        match named.any(|name| name == SAMPLED.instrument) {
            true => Ok(()),
            false => {
                let why = "[samples] needs instrument `samples`";
                Err(("samples", why.to_string()).into())
            }
        }
    }

    fn check_events(&self) -> Result<(), Mistake> {
        let within = Mistake::within("events", 0);
        self.events.check().map_err(|wrong| within(wrong.into()))?;
        let is_work = self.workload.kind == Kind::Work && !self.runs_command();
        let is_of_all = is_work && self.filter.pid.is_none();
        if self.events.by == Some(events::By::Task) && !is_of_all {
            return Err(within(("by", events::NOT_BY_TASK.to_string()).into()));
        }
        let mut named = self.instruments.iter().flatten();
        match self.events.is_empty() || named.any(|name| name == events::INSTRUMENT) {
            true => Ok(()),
            false => {
                let why = "[events] needs instrument `events`";
                Err(("events", why.to_string()).into())
            }
        }
    }

    /// Whether single calls are timed.
    pub fn times_calls(&self) -> bool {
        let mut named = self.instruments.iter().flatten();
        named.any(|name| name == TIMED.step.instrument)
    }

    fn check_trace(&self) -> Result<(), Mistake> {
        let Some(trace) = &self.trace else {
            return match self.times_calls() {
                true => {
                    let why =
                        "instrument `calls` needs [trace], with the function whose calls are timed";
                    Err(("instruments", why.to_string()).into())
                }
                false => Ok(()),
            };
        };
        let within = Mistake::within("trace", 0);
        trace.check().map_err(|wrong| within(wrong.into()))?;
        let only = |of: &Declared| {
            let mut named = self.instruments.iter().flatten();
            named.all(|name| name == of.instrument)
        };
        let timed = self.times_calls();
        let kind = self.workload.kind;
        trace
            .check_clock(timed)
            .map_err(|wrong| within(wrong.into()))?;
        let why = match () {
            () if timed && !only(&TIMED.step) => {
                "calls are timed by instrument `calls`, and no other"
            }
            () if timed && !matches!(kind, Kind::Packets | Kind::Command | Kind::Work) => {
                "it is not supported by this kind of workload, only by packets, commands and work"
            }
            () if timed && kind != Kind::Work && self.long().is_some() => {
                "a run with a duration would have too many of them"
            }
            () if timed && self.scan.is_some() => "a scan has too many arms",
            () if timed && !self.filter.is_of_process() => {
                "calls are timed of all tasks, a process or a command: leave out the other keys of [filter]"
            }
            () if timed => return Ok(()),
            () if self.lab != Lab::Vm => {
                "instructions are counted in guests (lab = \"vm\"); elsewhere calls are timed, by instruments = [\"calls\"]"
            }
            () if !matches!(kind, Kind::Packets | Kind::Command) => {
                "it is not supported by this kind of workload, only by packets and commands"
            }
            () if !only(&INSTRUCTIONS) => "it needs instrument `exact` or `calls`, and no other",
            () if self.long().is_some() => "a run with a duration would have too many of them",
            () if self.scan.is_some() => "a scan has too many arms",
            () => return Ok(()),
        };
        Err(("trace", format!("[trace]: {why}")).into())
    }

    fn check_spans(&self) -> Result<(), Mistake> {
        let within = Mistake::within("spans", 0);
        let mut named = self.instruments.iter().flatten();
        match (
            self.spans.is_empty(),
            named.any(|name| name == spans::INSTRUMENT),
        ) {
            (true, false) => Ok(()),
            (_, true) => self.spans.check().map_err(|wrong| within(wrong.into())),
            (false, false) => {
                let why = "[spans] needs instrument `spans`";
                Err(("spans", why.to_string()).into())
            }
        }
    }

    fn check_arms(&self) -> Result<(), Mistake> {
        if self.explain {
            let why = "explain needs a workload of kind frames";
            return Err(("explain", why.to_string()).into());
        }
        if self.nics.is_some() {
            let why = "[nics] needs a workload of kind frames";
            return Err(("nics", why.to_string()).into());
        }
        let arms = self.arms();
        if arms.len() > MAX_ARMS {
            let why = format!(
                "too many arms ({}); expected at most {MAX_ARMS}",
                arms.len()
            );
            return Err(("vary", why).into());
        }
        for arm in &arms {
            self.check_queues(arm)
                .map_err(|wrong| self.of_arm(arm, wrong))?;
            check_arm(arm).map_err(|wrong| self.of_arm(arm, wrong))?;
            self.check_host_arm(arm)
                .map_err(|wrong| self.of_arm(arm, wrong))?;
            if self.lab == Lab::Netns && arm.link.has_nics() {
                let why = format!(
                    "link {} is not supported by lab netns, only {}; use lab vm",
                    arm.link,
                    Link::listed(|link| !link.has_nics())
                );
                return Err(self.of_arm(arm, ("link", why)));
            }
        }
        self.check_machine(&arms).map_err(|wrong| {
            match arms.iter().find(|a| a.knobs.contains_key(wrong.0)) {
                Some(arm) => self.of_arm(arm, wrong),
                None => wrong.into(),
            }
        })?;
        self.check_names(&arms)?;
        let mut named = self.instruments.iter().flatten();
        if let Some(arm) = arms.iter().find(|arm| FromDevice::of(arm).is_some())
            && let Some(other) = named.find(|name| {
                ![INSTRUCTIONS.instrument, SAMPLED.instrument].contains(&name.as_str())
            })
        {
            let why = format!(
                "sender = \"device\" is measured by `{}` and `{}`, not by `{other}`",
                INSTRUCTIONS.instrument, SAMPLED.instrument
            );
            return Err(self.of_arm(arm, ("sender", why)));
        }
        match self.workload.kind {
            Kind::Command => self.check_commands(&arms),
            Kind::Work if !arms.is_empty() => self.check_has_commands(&arms),
            _ => Ok(()),
        }
    }

    fn check_commands(&self, arms: &[Arm]) -> Result<(), Mistake> {
        if self.lab != Lab::Vm && arms.len() > 1 {
            let why = "a workload of kind command supports several arms in lab vm only; use a \
                       recording for each, and compare them with `plumb diff`";
            return Err(("vary", why.to_string()).into());
        }
        self.check_has_commands(arms)
    }

    fn check_has_commands(&self, arms: &[Arm]) -> Result<(), Mistake> {
        let has_none = |arm: &&Arm| !arm.knobs.contains_key("command");
        if self.workload.command.is_empty() && arms.iter().any(|arm| has_none(&arm)) {
            let why = format!(
                "a workload of kind {} needs command, like [\"curl\", \"...\"]",
                self.workload.kind
            );
            return Err(("kind", why).into());
        }
        Ok(())
    }

    /// The mistake in an arm, located in its `[[arm]]` if that sets the knob.
    fn of_arm(&self, arm: &Arm, wrong: (&'static str, String)) -> Mistake {
        let sets = |named: &NamedArm| named.knobs.set_ones().any(|knob| knob.key == wrong.0);
        let of = |named: &NamedArm| named.name == arm.name && sets(named);
        match self.arms.iter().position(of) {
            Some(n) => Mistake::within("arm", n)(wrong.into()),
            None => wrong.into(),
        }
    }

    /// Check that each arm has a name of its own.
    fn check_names(&self, arms: &[Arm]) -> Result<(), Mistake> {
        let mut names = HashSet::new();
        match arms.iter().find(|arm| !names.insert(arm.name.as_str())) {
            Some(arm) => Err(self.duplicate(arm)),
            None => Ok(()),
        }
    }

    /// The mistake of two arms with one name: a duplicate `[[arm]]`, or a duplicate level.
    fn duplicate(&self, arm: &Arm) -> Mistake {
        let what = format!("duplicate arm `{}`", arm.name);
        let written = self.arms.iter().rposition(|named| named.name == arm.name);
        match (written, self.vary.repeated()) {
            (Some(n), _) => Mistake::within("arm", n)(("name", what).into()),
            (None, Some(knob)) => {
                let what = format!("{what}: {} has a duplicate level", knob.key);
                Mistake::within("vary", 0)((knob.key, what).into())
            }
            (None, None) => ("vary", what).into(),
        }
    }

    /// Check that no knob is both fixed and varied, and that knobs which need another one have it.
    fn check_settings(&self) -> Result<(), Mistake> {
        let own = std::iter::once((("vary", 0), &self.knobs, &self.vary));
        let figures = self.figures.iter().enumerate();
        let figures = figures.map(|(n, f)| (("figure", n), &f.knobs, &f.vary));
        for ((table, n), knobs, vary) in own.chain(figures) {
            if let Some(key) = vary.also_in(knobs) {
                let knob = Knob::of(key.split('.').next().unwrap_or(&key));
                let mistake = Mistake {
                    hint: Some("remove it from one of them".into()),
                    ..(
                        knob.map_or("vary", |knob| knob.key),
                        format!("{key} is set in both knobs and vary"),
                    )
                        .into()
                };
                return Err(Mistake::within(table, n)(mistake));
            }
        }
        let knobs = [&self.knobs].into_iter();
        let knobs = knobs.chain(self.arms.iter().map(|arm| &arm.knobs));
        let knobs = knobs.chain(self.figures.iter().map(|figure| &figure.knobs));
        let vary = [&self.vary].into_iter();
        let vary = vary.chain(self.figures.iter().map(|figure| &figure.vary));
        let mut set: Vec<&'static Knob> = knobs.flat_map(Knobs::set_ones).collect();
        set.extend(vary.flat_map(Vary::set_ones));
        for knob in &set {
            if let Recorded::With(other) | Recorded::IfSetWith(other) = knob.recorded
                && !set.iter().any(|knob| knob.key == other)
            {
                return Err((knob.key, format!("{} needs {other}", knob.key)).into());
            }
        }
        Ok(())
    }

    fn check_frames(&self) -> Result<(), Mistake> {
        let arms = self.bench_arms()?;
        if arms.is_empty() || arms.len() > MAX_ARMS_OF_FRAMES {
            let why = format!(
                "invalid number of arms ({}); expected 1 to {MAX_ARMS_OF_FRAMES}",
                arms.len()
            );
            return Err((
                if self.figures.is_empty() {
                    "vary"
                } else {
                    "figure"
                },
                why,
            )
                .into());
        }
        self.check_names(&self.arms())?;
        if let Some(n) = (1..arms.len()).find(|n| arms[..*n].contains(&arms[*n])) {
            let name = &self.arms()[n].name;
            let why = format!(
                "arm `{name}` has the same settings as another arm; knobs.again = \"on\" measures \
                 each arm twice"
            );
            return Err(("arm", why).into());
        }
        let first = arms[0].link;
        if arms.iter().any(|arm| arm.link != first) {
            return Err((
                "link",
                "frames support one link per recording; compare recordings with `plumb diff`"
                    .into(),
            )
                .into());
        }
        if first.has_nics() && self.lab != Lab::Vm {
            return Err((
                "link",
                format!(
                    "link {first} needs lab vm (--lab vm, lab = \"vm\"); for interfaces of this \
                     machine use --nic and --from ([nics])"
                ),
            )
                .into());
        }
        if first != Link::Veth && self.explain {
            return Err((
                "explain",
                format!("explain is not supported by link {first}; use veth"),
            )
                .into());
        }
        if first != Link::Veth && arms.iter().any(|arm| arm.planted.fault.is_some()) {
            return Err((
                "fault",
                format!("fault (--plant) is not supported by link {first}; use veth"),
            )
                .into());
        }
        if self.vary.get("kernel").len() > 1 {
            return Err((
                "kernel",
                "frames support one kernel per recording; compare recordings with `plumb diff`"
                    .into(),
            )
                .into());
        }
        if self.nics.is_some() != (self.lab == Lab::Host) {
            return Err((
                "lab",
                "frames on interfaces of this machine need both lab = \"host\" and [nics]".into(),
            )
                .into());
        }
        Ok(())
    }

    /// Check that the lab and the workload support every knob.
    fn check_places(&self) -> Result<(), (&'static str, String)> {
        let kind = self.workload.kind;
        // Instructions that explain rates are counted in guests.
        let mut labs = vec![self.lab];
        labs.extend(self.explain.then_some(Lab::Vm));
        let named = self.arms.iter().map(|arm| &arm.knobs);
        let knobs = std::iter::once(&self.knobs)
            .chain(named)
            .chain(self.figures.iter().map(|figure| &figure.knobs));
        let vary = std::iter::once(&self.vary).chain(self.figures.iter().map(|f| &f.vary));
        let misplaced = knobs
            .filter_map(|knobs| knobs.misplaced(&labs, kind))
            .chain(vary.filter_map(|vary| vary.misplaced(&labs, kind)))
            .next();
        misplaced.map_or(Ok(()), Err)
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
