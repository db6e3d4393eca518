//! The experiment file: what to vary, what to hold, what to send, and what is
//! claimed about the outcome. One format for every experiment.
//!
//! docs/reference/experiment.md describes it for users.

pub mod acting;
mod claim;
mod error;
mod knobs;
mod nft;
mod qdisc;
mod scan;

use serde::Deserialize;

pub use acting::{Idle, Load};
pub use claim::{Claim, Published, Relation};
pub use error::ExperimentError;
pub use knobs::{
    Bytes, Flag, KNOBS, Knob, KnobDefault, Knobs, Level, Offload, Recorded, Said, Takes, Vary,
    Within,
};
pub use nft::{Hook, Looks, MAX_RULESET_BYTES, NeverMatching, Nft, Ruleset, TABLE};
pub use qdisc::Qdisc;
pub use scan::Scan;

use crate::class::{Family, Link, Proto, words};
use crate::recording::Arm;

words! {
    /// What measures.
    Instrument, "instrument",
    /// Instruction accounting in a QEMU guest.
    Exact = "exact",
}

words! {
    /// Where the packets run.
    Lab, "lab",
    /// A QEMU guest.
    Vm = "vm",
    /// Network namespaces of this machine.
    Netns = "netns",
    /// This machine's own interfaces.
    Host = "host",
}

words! {
    /// What makes the packets.
    Kind, "kind of workload",
    /// Single packets, each when the one before has arrived.
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
    /// The instruments that measure; the first is the clock.
    #[serde(default = "exact_only")]
    pub instruments: Vec<Instrument>,
    /// The lab.
    #[serde(default = "vm")]
    pub lab: Lab,
    /// Only what this layer cost is the subject of the figures.
    #[serde(default)]
    pub layer: Option<String>,
    /// What is sent.
    #[serde(default)]
    pub workload: Workload,
    /// How often.
    #[serde(default)]
    pub blocks: Blocks,
    /// Knobs that are the same in every arm.
    #[serde(default)]
    pub knobs: Knobs,
    /// Knobs that differ: one arm for every combination.
    #[serde(default)]
    pub vary: Vary,
    /// Arms written out one by one, beside those of `vary`.
    #[serde(default, rename = "arm")]
    pub arms: Vec<NamedArm>,
    /// What others published, to be shown beside.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What is tested.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// What came of it, in a sentence: `{name}` stands for what the claim of that
    /// name found.
    #[serde(default)]
    pub conclusion: Option<String>,
    /// Settings to be changed one at a time, beside the arms.
    #[serde(default)]
    pub scan: Option<Scan>,
}

fn exact_only() -> Vec<Instrument> {
    vec![Instrument::Exact]
}

fn vm() -> Lab {
    Lab::Vm
}

/// What is sent in one block.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Packets in a block.
    pub packets: u32,
    /// Packets sent before the first block and not counted.
    pub warmup_packets: u32,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            packets: 200,
            warmup_packets: 200,
        }
    }
}

/// The repetitions of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Blocks {
    /// Blocks of each arm.
    pub count: u32,
    /// Random seeds under which every arm is run.
    pub seeds: u32,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { count: 5, seeds: 1 }
    }
}

/// An arm of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedArm {
    /// What it is called.
    pub name: String,
    /// How it differs from `[knobs]`.
    #[serde(default)]
    pub knobs: Knobs,
}

/// Bounds that keep a mistyped file from asking for years.
const MAX_PACKETS: u32 = 1_000_000;
const MAX_BLOCKS: u32 = 10_000;
const MAX_SEEDS: u32 = 1_000;
const MAX_ARMS: usize = 10_000;
/// Largest UDP payload over IPv4 (RFC 768: 65,535 less 8 of UDP and 20 of IP).
const MAX_SIZE_BYTES: u32 = 65_507;

/// What a device of Ethernet's kind takes at least, as the kernel has it.
const MIN_MTU_BYTES: u32 = 68;
/// RFC 8200: below this, there is no IPv6.
const MIN_MTU_V6_BYTES: u32 = 1280;
const MAX_MTU_BYTES: u32 = 65_535;

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
    /// Read and check an experiment file.
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
                return Err(ExperimentError::about_layer(text, layer, layers));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let w = &self.workload;
        if w.packets == 0 || w.packets > MAX_PACKETS {
            return Err((
                "packets",
                format!("packets is {}: 1 to {MAX_PACKETS}", w.packets),
            ));
        }
        if w.warmup_packets > MAX_PACKETS {
            return Err((
                "warmup_packets",
                format!("warmup_packets is {}: 0 to {MAX_PACKETS}", w.warmup_packets),
            ));
        }
        if self.blocks.count == 0 || self.blocks.count > MAX_BLOCKS {
            return Err((
                "count",
                format!("count is {}: 1 to {MAX_BLOCKS}", self.blocks.count),
            ));
        }
        if self.blocks.seeds == 0 || self.blocks.seeds > MAX_SEEDS {
            return Err((
                "seeds",
                format!("seeds is {}: 1 to {MAX_SEEDS}", self.blocks.seeds),
            ));
        }
        check_name(&self.name)?;
        if self.instruments.is_empty() {
            return Err((
                "instruments",
                "instruments is empty: nothing would measure".into(),
            ));
        }
        if self.lab != Lab::Vm {
            return Err(("lab", format!("lab is {}: so far it is vm", self.lab)));
        }
        self.check_places()?;
        let arms = self.arms();
        if arms.len() > MAX_ARMS {
            return Err(("vary", format!("{} arms: at most {MAX_ARMS}", arms.len())));
        }
        for (n, arm) in arms.iter().enumerate() {
            check_arm(arm)?;
            if arms[..n].iter().any(|other| other.name == arm.name) {
                return Err(("name", format!("two arms are called `{}`", arm.name)));
            }
        }
        if let Some(scan) = &self.scan {
            scan.check()?;
        }
        self.check_claims()
    }

    /// Check that every knob can be in the lab, and with the workload.
    fn check_places(&self) -> Result<(), (&'static str, String)> {
        let named = self.arms.iter().map(|arm| &arm.knobs);
        let misplaced = std::iter::once(&self.knobs)
            .chain(named)
            .find_map(|knobs| knobs.misplaced(self.lab, Kind::Packets));
        match misplaced.or_else(|| self.vary.misplaced(self.lab, Kind::Packets)) {
            Some(misplaced) => Err(misplaced),
            None => Ok(()),
        }
    }

    /// Every place that may name a file of rules, to be read.
    pub fn rulesets_mut(&mut self) -> impl Iterator<Item = &mut Nft> {
        let named = self.arms.iter_mut().map(|arm| &mut arm.knobs);
        std::iter::once(&mut self.knobs)
            .chain(named)
            .flat_map(Knobs::rules_mut)
            .chain(self.vary.rules_mut())
    }

    /// Every place that may name a module's file.
    pub fn modules_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let named = self.arms.iter_mut().map(|arm| &mut arm.knobs);
        std::iter::once(&mut self.knobs)
            .chain(named)
            .filter_map(|knobs| knobs.text_mut("module"))
            .chain(self.vary.texts_mut("module"))
    }

    /// The arms, each with every knob set.
    pub fn arms(&self) -> Vec<Arm> {
        let mut arms = Vec::new();
        let combinations = self.vary.combinations(MAX_ARMS);
        if self.arms.is_empty() || !self.vary.is_empty() {
            for combination in combinations {
                let name = self.vary.describe(&combination);
                arms.push(combination.over(&self.knobs).arm(name, self.lab));
            }
        }
        for named in &self.arms {
            arms.push(
                named
                    .knobs
                    .over(&self.knobs)
                    .arm(named.name.clone(), self.lab),
            );
        }
        arms
    }
}

#[cfg(test)]
mod tests;
