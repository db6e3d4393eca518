//! The file of an experiment that is a bench: figures, each a sweep, what others
//! published beside them, and claims.
//!
//! docs/reference/experiment.md describes it for users.

use std::time::Duration;

use serde::Deserialize;

use super::{Bench, BenchArm, DataPath, FrameKind, FrameSize, Frames, Offered, rate_of};
use crate::class::{Family, words};
use crate::experiment::ExperimentError;

words! {
    /// What a figure shows.
    Axis, "axis",
    /// CPUs that send.
    Cores = "cores",
    /// Packets offered, each second.
    Rate = "rate",
    /// Bytes of a frame.
    Size = "size",
    /// Flows.
    Flows = "flows",
    /// Packets handled, each second.
    Packets = "packets",
    /// CPUs that were busy.
    Cpu = "cpu",
}

/// A bench with figures, checked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchFile {
    /// Short name: the recording is called after it.
    pub name: String,
    /// One line.
    #[serde(default)]
    pub title: String,
    /// What it asks.
    #[serde(default)]
    pub question: String,
    /// What is sent, where a figure does not say otherwise.
    #[serde(default)]
    pub frames: FramesSaid,
    /// How often, and how long.
    #[serde(default)]
    pub blocks: BenchBlocks,
    /// The figures.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// What is tested.
    #[serde(default, rename = "claim")]
    pub claims: Vec<BenchClaim>,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FramesSaid {
    /// What frames carry.
    pub kind: FrameKind,
    /// Version of IP.
    pub family: Family,
}

impl Default for FramesSaid {
    fn default() -> Self {
        FramesSaid {
            kind: FrameKind::Udp,
            family: Family::V4,
        }
    }
}

/// Repetitions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BenchBlocks {
    /// Blocks of each arm.
    pub count: u32,
    /// How long each is measured.
    pub time_ms: u64,
    /// How long packets run before.
    pub warmup_ms: u64,
}

impl Default for BenchBlocks {
    fn default() -> Self {
        BenchBlocks {
            count: 5,
            time_ms: 500,
            warmup_ms: 200,
        }
    }
}

/// A figure: every combination of its lists is an arm.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What claims call it.
    pub name: String,
    /// One line.
    pub title: String,
    /// What is otherwise than where the published points are from, and whatever else is
    /// to be known of it.
    #[serde(default)]
    pub note: String,
    /// What is asked of the paths.
    pub bench: Bench,
    /// The paths: a line each.
    pub paths: Vec<DataPath>,
    /// What is along.
    pub x: Axis,
    /// What is up.
    pub y: Axis,
    /// CPUs that send.
    #[serde(default = "one")]
    pub cores: Vec<u32>,
    /// Bytes of a frame, or `imix`.
    #[serde(default = "shortest")]
    pub size: Vec<String>,
    /// Flows.
    #[serde(default = "one")]
    pub flows: Vec<u32>,
    /// Packets offered a second, as on the command line.
    #[serde(default = "most")]
    pub rate: Vec<String>,
    /// Whether paths have CPUs of their own.
    #[serde(default)]
    pub apart: bool,
    /// What others published.
    #[serde(default)]
    pub published: Vec<Marked>,
}

fn one() -> Vec<u32> {
    vec![1]
}

fn shortest() -> Vec<String> {
    vec!["60".into()]
}

fn most() -> Vec<String> {
    vec!["max".into()]
}

/// A point that somebody published.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marked {
    /// What it is of.
    pub label: String,
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
}

/// A statement that the data bear out or don't.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum BenchClaim {
    /// A path handles more packets than another one: the interval on the ratio is above
    /// 1.
    Faster {
        /// The statement.
        says: String,
        /// The figure whose arms are compared.
        figure: String,
        /// The path, and the one that it is compared with.
        path: DataPath,
        /// The other one.
        than: DataPath,
        /// Only arms in which so many CPUs send; none for all.
        #[serde(default)]
        cores: Option<u32>,
    },
    /// A path keeps its CPU busy whatever is offered.
    Pinned {
        /// The statement.
        says: String,
        /// The figure.
        figure: String,
        /// The path.
        path: DataPath,
        /// At least so many CPUs are busy in every arm, less those of the generator.
        at_least: f64,
    },
    /// A path's CPU use grows with what is offered: from the least to the most by a
    /// factor.
    Scales {
        /// The statement.
        says: String,
        /// The figure.
        figure: String,
        /// The path.
        path: DataPath,
        /// The least factor.
        by: f64,
    },
}

impl BenchClaim {
    /// The statement.
    pub fn says(&self) -> &str {
        match self {
            BenchClaim::Faster { says, .. }
            | BenchClaim::Pinned { says, .. }
            | BenchClaim::Scales { says, .. } => says,
        }
    }

    /// The figure that it is about, and the paths.
    fn about(&self) -> (&str, Vec<DataPath>) {
        match self {
            BenchClaim::Faster {
                figure, path, than, ..
            } => (figure, vec![*path, *than]),
            BenchClaim::Pinned { figure, path, .. } | BenchClaim::Scales { figure, path, .. } => {
                (figure, vec![*path])
            }
        }
    }
}

const MAX_ARMS: usize = 1_000;
const MAX_BLOCKS: u32 = 10_000;
const MAX_CORES: u32 = 1_024;
const MAX_FLOWS: u32 = 1_000_000;
const MAX_MS: u64 = 3_600_000;

impl BenchFile {
    /// Whether the text of an experiment is one of a bench.
    pub fn is(text: &str) -> bool {
        text.lines().any(|line| line.trim() == "[[figure]]")
    }

    /// Read and check one.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn parse(text: &str) -> Result<BenchFile, ExperimentError> {
        let file: BenchFile =
            toml::from_str(text).map_err(|e| ExperimentError::from_toml(text, &e))?;
        file.check()
            .map_err(|(key, what)| ExperimentError::about(text, key, what))?;
        Ok(file)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        crate::experiment::check_name(&self.name)?;
        let b = &self.blocks;
        if !(1..=MAX_BLOCKS).contains(&b.count) {
            return Err(("count", format!("count is {}: 1 to {MAX_BLOCKS}", b.count)));
        }
        if !(10..=MAX_MS).contains(&b.time_ms) {
            return Err((
                "time_ms",
                format!("time_ms is {}: 10 to {MAX_MS}", b.time_ms),
            ));
        }
        if b.warmup_ms > MAX_MS {
            return Err((
                "warmup_ms",
                format!("warmup_ms is {}: 0 to {MAX_MS}", b.warmup_ms),
            ));
        }
        for figure in &self.figures {
            figure.check()?;
        }
        let arms = self.arms()?;
        if arms.is_empty() || arms.len() > MAX_ARMS {
            return Err(("figure", format!("{} arms: 1 to {MAX_ARMS}", arms.len())));
        }
        for claim in &self.claims {
            let (name, paths) = claim.about();
            let figure = self.figures.iter().find(|f| f.name == name);
            let Some(figure) = figure else {
                let names: Vec<&str> = self.figures.iter().map(|f| f.name.as_str()).collect();
                return Err((
                    "figure =",
                    format!(
                        "no figure is called `{name}`: there are {}",
                        names.join(", ")
                    ),
                ));
            };
            if let Some(path) = paths.iter().find(|path| !figure.paths.contains(path)) {
                return Err(("path", format!("figure `{name}` has no path {path}")));
            }
        }
        Ok(())
    }

    /// The arms of a figure.
    ///
    /// # Errors
    /// The key and what is wrong with it: a size or a rate that is none.
    pub fn arms_of(&self, figure: &Figure) -> Result<Vec<BenchArm>, (&'static str, String)> {
        let sizes: Result<Vec<FrameSize>, String> =
            figure.size.iter().map(|size| size.parse()).collect();
        let rates: Result<Vec<Offered>, String> =
            figure.rate.iter().map(|rate| rate_of(rate)).collect();
        let sizes = sizes.map_err(|what| ("size", what))?;
        let rates = rates.map_err(|what| ("rate", what))?;
        let mut arms = Vec::new();
        for &path in &figure.paths {
            for &cores in &figure.cores {
                for &size in &sizes {
                    for &flows in &figure.flows {
                        for &offered in &rates {
                            arms.push(BenchArm {
                                frames: Frames {
                                    kind: self.frames.kind,
                                    family: self.frames.family,
                                    size,
                                    flows,
                                },
                                offered,
                                cores,
                                apart: figure.apart,
                                ..BenchArm::plain(figure.bench, path)
                            });
                        }
                    }
                }
            }
        }
        Ok(arms)
    }

    /// The arms of all figures, each once.
    ///
    /// # Errors
    /// As [`BenchFile::arms_of`].
    pub fn arms(&self) -> Result<Vec<BenchArm>, (&'static str, String)> {
        let mut arms: Vec<BenchArm> = Vec::new();
        for figure in &self.figures {
            for arm in self.arms_of(figure)? {
                if !arms.contains(&arm) {
                    arms.push(arm);
                }
            }
        }
        Ok(arms)
    }

    /// How long a block is measured, and how long packets run before.
    pub fn times(&self) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        (ms(self.blocks.time_ms), ms(self.blocks.warmup_ms))
    }
}

impl Figure {
    fn check(&self) -> Result<(), (&'static str, String)> {
        let possible = DataPath::of(self.bench);
        if let Some(path) = self.paths.iter().find(|path| !possible.contains(path)) {
            let names: Vec<&str> = possible.iter().map(|p| p.as_str()).collect();
            return Err((
                "paths",
                format!(
                    "{path} is no path of `{}`: they are {}",
                    self.bench,
                    names.join(", ")
                ),
            ));
        }
        if self.paths.is_empty() {
            return Err(("paths", "paths is empty: nothing would be measured".into()));
        }
        let within =
            |all: &[u32], most| !all.is_empty() && all.iter().all(|n| (1..=most).contains(n));
        if !within(&self.cores, MAX_CORES) {
            return Err(("cores", format!("cores are numbers from 1 to {MAX_CORES}")));
        }
        if !within(&self.flows, MAX_FLOWS) {
            return Err(("flows", format!("flows are numbers from 1 to {MAX_FLOWS}")));
        }
        if matches!(self.x, Axis::Packets | Axis::Cpu) {
            return Err(("x", "x is one of cores, rate, size, flows".into()));
        }
        if !matches!(self.y, Axis::Packets | Axis::Cpu) {
            return Err(("y", "y is packets or cpu".into()));
        }
        Ok(())
    }

    /// Where an arm is, along.
    pub fn x_of(&self, arm: &BenchArm) -> f64 {
        match (self.x, arm.offered) {
            (Axis::Rate, Offered::Pps(pps)) => pps,
            (Axis::Size, _) => arm.frames.size.mean_bytes(),
            (Axis::Flows, _) => f64::from(arm.frames.flows),
            _ => f64::from(arm.cores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
name = "small"

[[figure]]
name = "3"
title = "by cores"
bench = "drop"
paths = ["xdp", "tc"]
x = "cores"
y = "packets"
cores = [1, 2]
published = [{ label = "XDP", x = 1, y = 24e6 }]

[[figure]]
name = "4"
title = "by load"
bench = "drop"
paths = ["xdp"]
x = "rate"
y = "cpu"
rate = ["100k", "1M"]
apart = true

[[claim]]
kind = "faster"
says = "XDP is ahead"
figure = "3"
path = "xdp"
than = "tc"
"#;

    /// Check that every combination is an arm, once.
    #[test]
    fn arms() {
        let file = BenchFile::parse(FILE).unwrap();
        assert!(BenchFile::is(FILE));
        let arms = file.arms().unwrap();
        assert_eq!(arms.len(), 2 * 2 + 2);
        let along: Vec<f64> = (file.arms_of(&file.figures[1]).unwrap().iter())
            .map(|arm| file.figures[1].x_of(arm))
            .collect();
        assert_eq!(along, [100e3, 1e6]);
        assert!(arms[5].apart && !arms[0].apart);
    }

    /// Check that what is wrong is told, with its line.
    #[test]
    fn mistakes() {
        for (right, wrong, says) in [
            (
                "[\"xdp\", \"tc\"]",
                "[\"xdp\", \"route\"]",
                "no path of `drop`",
            ),
            ("cores = [1, 2]", "cores = [0]", "from 1 to"),
            (
                "rate = [\"100k\", \"1M\"]",
                "rate = [\"fast\"]",
                "is no rate",
            ),
            (
                "figure = \"3\"",
                "figure = \"9\"",
                "no figure is called `9`",
            ),
            ("than = \"tc\"", "than = \"dpdk\"", "has no path dpdk"),
            ("x = \"cores\"", "x = \"cpu\"", "x is one of"),
            ("name = \"small\"", "name = \"../x\"", "name is to be"),
            ("apart = true", "apurt = true", "did you mean `apart`"),
        ] {
            assert!(FILE.contains(right));
            let said = BenchFile::parse(&FILE.replace(right, wrong)).unwrap_err();
            assert!(said.to_string().contains(says), "{wrong}: {said}");
        }
    }
}
