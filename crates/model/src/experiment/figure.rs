//! Figures of an experiment: a quantity over a knob, with published points.

use serde::{Deserialize, Serialize};

use super::error::Mistake;
use super::{Knob, Knobs, Ruleset, Takes, Vary};
use crate::bench::{FrameSize, Offered, rate_of};
use crate::class::Class;
use crate::hosts;
use crate::recording::{Arm, Recording};

/// A figure: a quantity over a knob, with a line for each level of another knob.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in claims.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub title: String,
    /// How it differs from the measurement of the published points, and other remarks.
    #[serde(default)]
    pub note: String,
    /// The x axis: a knob, by its name in a recording.
    pub x: String,
    /// The y axis: the name of a quantity.
    pub y: String,
    /// The knob with a line for each of its levels; by default `path` for frames, `proto` for
    /// packets.
    #[serde(default)]
    pub lines: Option<String>,
    /// The class, if the quantity has classes.
    #[serde(default)]
    pub class: Option<Class>,
    /// Only this layer.
    #[serde(default)]
    pub layer: Option<String>,
    /// Only the self cost of this function.
    #[serde(default)]
    pub function: Option<String>,
    /// Additional settings, which override the file's.
    #[serde(default)]
    pub knobs: Knobs,
    /// Additional knobs that vary, which override the file's.
    #[serde(default)]
    pub vary: Vary,
    /// Published points.
    #[serde(default)]
    pub published: Vec<Marked>,
}

/// A published point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    /// What the point is called.
    pub label: String,
    /// On the x axis.
    pub x: At,
    /// On the y axis.
    pub y: f64,
}

/// A place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum At {
    /// A numeric level; times are in microseconds, percentages are shares.
    Number(f64),
    /// A level that is not a number, or the name of an arm.
    Name(String),
}

/// The x axis of a figure with the arms themselves.
pub(super) const ARM: &str = "arm";

impl Figure {
    /// Whether it has arms of its own.
    pub fn has_arms(&self) -> bool {
        !self.knobs.is_empty() || !self.vary.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), Mistake> {
        for (key, name) in [("x", Some(&self.x)), ("lines", self.lines.as_ref())] {
            let Some(name) = name else { continue };
            if !is_knob(name) && name != ARM {
                let known: Vec<&str> = super::KNOBS.iter().map(|knob| knob.key).collect();
                return Err(Mistake::unknown(key, "knob", name, &known));
            }
        }
        match self.y.as_str() {
            "packets" => Err(unknown_quantity("packets", "handled")),
            "cpu" => Err(unknown_quantity("cpu", "CPU use")),
            "" => Err(("y", "y is empty; expected the name of a quantity".to_string()).into()),
            _ => Ok(()),
        }
    }
}

fn unknown_quantity(name: &str, meant: &str) -> Mistake {
    Mistake {
        hint: Some(format!("did you mean `{meant}`?")),
        ..("y", format!("unknown quantity `{name}`")).into()
    }
}

/// Whether this is the name of a knob in a recording, or of a part of one: `nft.rules`.
fn is_knob(name: &str) -> bool {
    let (table, below) = name.split_once('.').unwrap_or((name, ""));
    Knob::by_key(table).is_some_and(|knob| match knob.takes {
        Takes::Rules => true,
        takes => takes.is_table() != below.is_empty(),
    })
}

/// The level of a knob as a number, for an axis: a rate in packets per second, a mix of frames
/// as its mean size, a time in microseconds, a percentage as a share; none if it is not a number.
pub fn number_of(knob: &str, level: &str) -> Option<f64> {
    match knob {
        "rate" => match rate_of(level) {
            Ok(Offered::Pps(pps)) => Some(pps),
            _ => None,
        },
        "size" => Some(level.parse::<FrameSize>().ok()?.mean_bytes()),
        "wire_rate" => hosts::rate_of(level).ok().map(|bps| bps as f64),
        "wire_delay" | "wire_jitter" | "gro_flush_timeout" => {
            hosts::time_of(level).ok().map(|ns| ns as f64 / 1e3)
        }
        "wire_loss" => hosts::loss_of(level).ok().map(|ppb| ppb as f64 / 1e9),
        _ => level.parse().ok(),
    }
}

impl Recording {
    /// The level of a knob of an arm as text: of rules that weren't generated, the number of rules and of elements of
    /// sets that was read back.
    pub fn level(&self, arm: usize, knob: &str) -> Option<String> {
        let of = self.arms.get(arm)?;
        of.level_text(knob).or_else(|| {
            let fact = match knob {
                "nft.rules" => "nft.rules",
                "nft.set" => "nft.set_elements",
                _ => return None,
            };
            let rules = Ruleset::from_arm(of).filter(|rules| !rules.is_generated());
            rules.and_then(|_| self.fact(arm, fact)).map(String::from)
        })
    }
}

impl Arm {
    /// The level of a knob as text, including those that are fields of the arm.
    pub fn level_text(&self, knob: &str) -> Option<String> {
        // For frames, the payload size and the protocol are the frames' own.
        Some(match knob {
            ARM => self.name.clone(),
            "proto" => self.proto.to_string(),
            "family" => self.family.to_string(),
            "link" => self.link.to_string(),
            "forward" => if self.forward { "on" } else { "off" }.into(),
            "size_bytes" => self.size_bytes.to_string(),
            _ => self.level(knob)?.to_string(),
        })
    }
}
