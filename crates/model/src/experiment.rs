//! The experiment file: what to vary, what to hold, what to send, and what is
//! claimed about the outcome. One format for every experiment.
//!
//! docs/reference/experiment.md describes it for users.

pub mod acting;
mod arms;
mod claim;
mod error;
mod figure;
mod knobs;
mod nft;
mod old;
mod qdisc;
mod scan;
mod time;
mod within;
mod workload;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

pub use acting::{Idle, Load};
pub use claim::{Claim, Published, Relation};
pub use error::ExperimentError;
pub use figure::{Figure, Marked, number_of};
pub use knobs::{
    Bytes, Flag, KNOBS, Knob, KnobDefault, Knobs, Level, Offload, Recorded, Said, Takes, Vary,
};
pub use nft::{Hook, Looks, MAX_RULESET_BYTES, NeverMatching, Nft, Ruleset, TABLE};
pub use old::current;
pub use qdisc::Qdisc;
pub use scan::Scan;
pub use time::{Share, Time};
pub use within::Within;
pub use workload::{Blocks, Filter, Functions, Nics, PACKETS, Probes, Workload};

use crate::class::{Family, Link, Proto, words};
use crate::recording::Arm;

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
    /// What makes the packets.
    #[derive(Default)]
    Kind, "kind of workload",
    /// Single packets, each when the one before has arrived.
    #[default]
    Packets = "packets",
    /// Packets that are sent without waiting for each other.
    Stream = "stream",
    /// Frames of a generator, along a data path.
    Frames = "frames",
    /// A command, and whatever it does.
    Command = "command",
    /// What the machine has.
    Traffic = "traffic",
}

/// An experiment, checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name: the recording is called after it.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub title: String,
    /// What it asks, in a sentence or two.
    #[serde(default)]
    pub question: String,
    /// The instruments that measure, by their names; the first is the clock. None for
    /// those of the lab and the workload.
    #[serde(default)]
    pub instruments: Option<Vec<String>>,
    /// The lab.
    #[serde(default)]
    pub lab: Lab,
    /// Only what this layer cost is the subject of the figures.
    #[serde(default)]
    pub layer: Option<String>,
    /// What came of it, in a sentence: `{name}` stands for what the claim of that
    /// name found.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// Whether it is also told why rates are what they are.
    #[serde(default)]
    pub explain: bool,
    /// What makes the packets.
    #[serde(default)]
    pub workload: Workload,
    /// How often.
    #[serde(default)]
    pub blocks: Blocks,
    /// Which packets are watched.
    #[serde(default)]
    pub filter: Filter,
    /// Which functions are timed.
    #[serde(default)]
    pub functions: Functions,
    /// What measuring may cost.
    #[serde(default)]
    pub probes: Probes,
    /// Interfaces of the user's that frames run on.
    #[serde(default)]
    pub nics: Option<Nics>,
    /// Knobs that are the same in every arm.
    #[serde(default)]
    pub knobs: Knobs,
    /// Knobs that differ: one arm for every combination.
    #[serde(default)]
    pub vary: Vary,
    /// Settings to be changed one at a time, beside the arms.
    #[serde(default)]
    pub scan: Option<Scan>,
    /// Arms written out one by one, beside those of `vary`.
    #[serde(default, rename = "arm")]
    pub arms: Vec<NamedArm>,
    /// What others published of classes, to be shown beside.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What is drawn.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// What is tested.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// An arm of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedArm {
    /// What it is called.
    pub name: String,
    /// How it differs from `[knobs]`.
    #[serde(default)]
    pub knobs: Knobs,
}

/// A bound that keeps a mistyped file from asking for years.
const MAX_ARMS: usize = 10_000;
/// Frames are set up for each of their blocks.
const MAX_ARMS_OF_FRAMES: usize = 1_000;
/// Largest UDP payload over IPv4 (RFC 768: 65,535 less 8 of UDP and 20 of IP).
const MAX_SIZE_BYTES: u32 = 65_507;

/// What a device of Ethernet's kind takes at least, as the kernel has it.
const MIN_MTU_BYTES: u32 = 68;
/// RFC 8200: below this, there is no IPv6.
const MIN_MTU_V6_BYTES: u32 = 1280;
const MAX_MTU_BYTES: u32 = 65_535;

/// Check that each arm has a name of its own.
fn check_names(arms: &[Arm]) -> Result<(), (&'static str, String)> {
    let mut names = HashSet::new();
    match arms.iter().find(|arm| !names.insert(arm.name.as_str())) {
        Some(arm) => Err((
            "name",
            format!("duplicate arm name `{}`: is a level given twice?", arm.name),
        )),
        None => Ok(()),
    }
}

/// Check that an arm can be run: the key that says otherwise, and why.
///
/// # Errors
/// What is impossible, in a sentence.
pub fn check_arm(arm: &Arm) -> Result<(), (&'static str, String)> {
    if arm.size_bytes > MAX_SIZE_BYTES {
        return Err((
            "size_bytes",
            format!(
                "size_bytes is {}: at most {MAX_SIZE_BYTES} (63K), which with its headers is the \
                 largest packet that IP has",
                arm.size_bytes
            ),
        ));
    }
    if arm.proto == Proto::Command {
        return Err((
            "proto",
            "a command is no protocol: it is measured by `plumb path -- COMMAND`".into(),
        ));
    }
    if arm.link == Link::Any {
        return Err((
            "link",
            "`any` is no link to be made: it is what the host's own packets come over".into(),
        ));
    }
    if arm.forward && arm.link == Link::Lo {
        return Err((
            "forward",
            "forward needs a link with two ends: lo has one; use veth".into(),
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
                "mtu_bytes is {mtu}: {least} to {MAX_MTU_BYTES} with {}",
                arm.family
            ),
        ));
    }
    let two_ends = [
        ("bridge", "--bridge", arm.knobs.contains_key("bridge")),
        ("queues", "--queues", arm.knobs.contains_key("queues")),
    ];
    for (key, flag, set) in two_ends {
        if set && arm.link == Link::Lo {
            return Err((
                key,
                format!("{key} ({flag}) needs a link with two ends: lo has one; use veth"),
            ));
        }
    }
    if arm.forward && arm.knobs.get("bridge").is_some_and(|on| on == "on") {
        return Err((
            "bridge",
            "either a bridge (--bridge) is between the ends or a router (forward, --forward)"
                .into(),
        ));
    }
    if arm.knobs.contains_key("queues") && arm.link != Link::Veth {
        return Err((
            "queues",
            "queues (--queues) are of veth devices: use veth".into(),
        ));
    }
    if let Some(ruleset) = Ruleset::of(arm) {
        ruleset.check(arm).map_err(|why| ("nft", why))?;
    }
    if let Some(qdisc) = Qdisc::of(arm) {
        qdisc.check(arm).map_err(|why| ("qdisc", why))?;
    }
    Ok(())
}

/// Check that a recording can be called so.
pub(crate) fn check_name(name: &str) -> Result<(), (&'static str, String)> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 80 || !name.chars().all(fits) || name.starts_with('.') {
        return Err((
            "name",
            "name is to be 1 to 80 letters, digits, `-`, `_` or `.`: a file is called after it"
                .into(),
        ));
    }
    Ok(())
}

impl Experiment {
    /// Read and check an experiment file; one in a spelling of old is refused with the new one.
    ///
    /// # Errors
    /// The line, what is wrong with it, and the nearest thing that is right.
    pub fn parse(text: &str) -> Result<Experiment, ExperimentError> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|e| ExperimentError::from_toml(text, &e))?;
        experiment
            .check()
            .map_err(|(key, what)| ExperimentError::about(text, key, what))?;
        Ok(experiment)
    }

    /// Check that the layers that it names are among `layers`.
    ///
    /// # Errors
    /// The line, and the nearest layer that there is.
    pub fn check_layers(&self, text: &str, layers: &[&str]) -> Result<(), ExperimentError> {
        let own = self.layer.iter().map(String::as_str);
        for layer in own.chain(self.claims.iter().flat_map(Claim::layers)) {
            if !layers.contains(&layer) {
                return Err(ExperimentError::about_word(text, "layer", layer, layers));
            }
        }
        Ok(())
    }

    /// Check that the instruments that it names are among these.
    ///
    /// # Errors
    /// The line, and the nearest instrument that there is.
    pub fn check_instruments(&self, text: &str, known: &[&str]) -> Result<(), ExperimentError> {
        let named = self.instruments.iter().flatten();
        match named.map(String::as_str).find(|name| !known.contains(name)) {
            Some(name) => Err(ExperimentError::about_word(text, "instrument", name, known)),
            None => Ok(()),
        }
    }

    /// Check that it can be carried out, as far as that is known without a machine.
    ///
    /// # Errors
    /// The key that says otherwise, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.workload.check(self.lab)?;
        self.blocks.check(self.lab, &self.workload)?;
        self.functions.check()?;
        check_name(&self.name)?;
        if self.instruments.as_ref().is_some_and(Vec::is_empty) {
            return Err((
                "instruments",
                "instruments is empty: nothing would measure".into(),
            ));
        }
        self.check_places()?;
        for figure in &self.figures {
            figure.check()?;
        }
        match self.workload.kind {
            Kind::Frames => self.check_frames()?,
            _ => self.check_arms()?,
        }
        if let Some(scan) = &self.scan {
            scan.check()?;
            if (self.lab, self.workload.kind) != (Lab::Vm, Kind::Packets) {
                return Err(("scan", "a scan is of packets in the lab vm".into()));
            }
        }
        self.check_claims()
    }

    fn check_arms(&self) -> Result<(), (&'static str, String)> {
        if self.explain {
            return Err(("explain", "explain is for a workload of kind frames".into()));
        }
        if self.nics.is_some() {
            return Err(("nics", "nics are for a workload of kind frames".into()));
        }
        let arms = self.arms();
        if arms.len() > MAX_ARMS {
            return Err(("vary", format!("{} arms: at most {MAX_ARMS}", arms.len())));
        }
        for arm in &arms {
            check_arm(arm)?;
            if self.lab == Lab::Netns && !matches!(arm.link, Link::Lo | Link::Veth) {
                return Err((
                    "link",
                    "the lab netns has lo and veth; other links are in the lab vm (--lab vm)"
                        .into(),
                ));
            }
        }
        check_names(&arms)?;
        if self.workload.kind == Kind::Command && arms.len() > 1 {
            return Err((
                "vary",
                "a command runs under one arm: compare recordings".into(),
            ));
        }
        Ok(())
    }

    fn check_frames(&self) -> Result<(), (&'static str, String)> {
        let arms = self.bench_arms()?;
        if arms.is_empty() || arms.len() > MAX_ARMS_OF_FRAMES {
            let why = format!("{} arms: 1 to {MAX_ARMS_OF_FRAMES}", arms.len());
            return Err((
                if self.figures.is_empty() {
                    "vary"
                } else {
                    "figure"
                },
                why,
            ));
        }
        check_names(&self.arms())?;
        if let Some(n) = (1..arms.len()).find(|n| arms[..*n].contains(&arms[*n])) {
            let name = &self.arms()[n].name;
            let why = format!(
                "arm `{name}` has the settings of another one; knobs.again = \"on\" measures it once \
                 more"
            );
            return Err(("arm", why));
        }
        let first = arms[0].link;
        if arms.iter().any(|arm| arm.link != first) {
            return Err(("link", "frames go over one link: compare recordings".into()));
        }
        if first != Link::Veth && self.lab != Lab::Vm {
            return Err((
                "link",
                "NICs that QEMU emulates are in guests: add --lab vm (lab = \"vm\"); your own are \
                 named by --nic and --from ([nics])"
                    .into(),
            ));
        }
        if first != Link::Veth && self.explain {
            return Err((
                "explain",
                "explain (--explain) counts over veth: leave link (--link) out, or run it once more \
                 with it"
                    .into(),
            ));
        }
        if first != Link::Veth && arms.iter().any(|arm| arm.planted.fault.is_some()) {
            return Err((
                "fault",
                "fault (--plant) breaks labs of veth: leave link (--link) out".into(),
            ));
        }
        if self.vary.get("kernel").len() > 1 {
            return Err((
                "kernel",
                "frames go in one kernel: compare recordings".into(),
            ));
        }
        if self.nics.is_some() != (self.lab == Lab::Host) {
            return Err((
                "lab",
                "frames on interfaces of this machine take lab = \"host\" and [nics]".into(),
            ));
        }
        Ok(())
    }

    /// Check that every knob can be in the lab, and with the workload.
    fn check_places(&self) -> Result<(), (&'static str, String)> {
        let kind = self.workload.kind;
        // What explains rates is counted in guests.
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
            (Kind::Command | Kind::Traffic, _) => 1,
            (Kind::Frames, _) | (_, Lab::Vm) => 5,
            (_, Lab::Netns | Lab::Host) => 10,
        };
        self.blocks.count.unwrap_or(default)
    }

    /// As a file.
    ///
    /// # Errors
    /// It can't be written as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

#[cfg(test)]
mod tests;
