//! Figures of an experiment: what is along, what is up, and what others published.

use serde::{Deserialize, Serialize};

use super::{Knob, Knobs, Takes, Vary};
use crate::bench::{FrameSize, Offered, rate_of};
use crate::class::Class;
use crate::recording::Arm;

/// A figure: a quantity by a knob, a line for each level of another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What claims call it.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub title: String,
    /// What is otherwise than where the published points are from, and whatever else is
    /// to be known of it.
    #[serde(default)]
    pub note: String,
    /// What is along: a knob, as a recording has it.
    pub x: String,
    /// What is up: a quantity by its name.
    pub y: String,
    /// The knob that has a line for each of its levels; none for `path`, or of packets
    /// `proto`.
    #[serde(default)]
    pub lines: Option<String>,
    /// The class that it is about, if the quantity is one of classes.
    #[serde(default)]
    pub class: Option<Class>,
    /// Only this layer.
    #[serde(default)]
    pub layer: Option<String>,
    /// Only this function, with its own cost.
    #[serde(default)]
    pub function: Option<String>,
    /// Knobs of its own, over those of the file.
    #[serde(default)]
    pub knobs: Knobs,
    /// What varies in it, beside what does in the file.
    #[serde(default)]
    pub vary: Vary,
    /// What others published.
    #[serde(default)]
    pub published: Vec<Marked>,
}

/// A point that somebody published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    /// What it is of.
    pub label: String,
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
}

impl Figure {
    /// Whether it has arms of its own.
    pub fn has_arms(&self) -> bool {
        !self.knobs.is_empty() || !self.vary.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, name) in [("x", Some(&self.x)), ("lines", self.lines.as_ref())] {
            let Some(name) = name else { continue };
            if !is_knob(name) {
                let nearest = super::KNOBS
                    .iter()
                    .min_by_key(|knob| strsim::damerau_levenshtein(name, knob.key));
                let hint = nearest.map_or("", |knob| knob.key);
                let what = format!("{key} is a knob, and `{name}` is none: did you mean `{hint}`?");
                return Err((key, what));
            }
        }
        match self.y.as_str() {
            "packets" => Err((
                "y",
                "y is a quantity by its name: packets are `handled`".into(),
            )),
            "cpu" => Err(("y", "y is a quantity by its name: `CPU use`".into())),
            "" => Err(("y", "y is empty: it is a quantity by its name".into())),
            _ => Ok(()),
        }
    }
}

/// Whether this is what a recording calls a knob, or a part of one: `nft.rules`.
fn is_knob(name: &str) -> bool {
    let (table, below) = name.split_once('.').unwrap_or((name, ""));
    Knob::of(table).is_some_and(|knob| match knob.takes {
        Takes::Rules => true,
        takes => takes.is_table() != below.is_empty(),
    })
}

/// A level of a knob as a number, to be along: a rate in packets a second, a mix of frames
/// by its mean; none where it is none.
pub fn number_of(knob: &str, level: &str) -> Option<f64> {
    match knob {
        "rate" => match rate_of(level) {
            Ok(Offered::Pps(pps)) => Some(pps),
            _ => None,
        },
        "size" => Some(level.parse::<FrameSize>().ok()?.mean_bytes()),
        _ => level.parse().ok(),
    }
}

impl Arm {
    /// The level of a knob, fields of the arm among them, in words.
    pub fn told(&self, knob: &str) -> Option<String> {
        // Of frames the payload and the protocol are only as good as their frames are.
        Some(match knob {
            "proto" => self.proto.to_string(),
            "family" => self.family.to_string(),
            "link" => self.link.to_string(),
            "forward" => if self.forward { "on" } else { "off" }.into(),
            "size_bytes" => self.size_bytes.to_string(),
            _ => self.level(knob)?.to_string(),
        })
    }
}
