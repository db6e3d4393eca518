//! What a bench compares: paths, frames, rates and CPUs, each combination an arm.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Bench, DataPath, Fault, FrameKind, Frames, Offered};
use crate::class::{Link, Proto};
use crate::recording::Arm;

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BenchArm {
    /// What is asked of the path.
    pub bench: Bench,
    /// What handles the packets.
    pub path: DataPath,
    /// What is sent.
    pub frames: Frames,
    /// How many of them, by all CPUs together.
    pub offered: Offered,
    /// CPUs that send.
    pub cores: u32,
    /// Frames that are made at a time.
    pub batch: u32,
    /// Whether the path has CPUs of its own.
    pub apart: bool,
    /// Whether frames say when they were to be sent.
    pub stamped: bool,
    /// How often the path's program is replaced by a fresh one in a window.
    pub swaps: u32,
    /// Sources on the path's list of those to be dropped, which changes while it runs; 0
    /// for no list.
    pub sources: u32,
    /// Whether the path's XDP program takes frames in several buffers, as one has to on a
    /// device whose MTU is too large for one.
    pub multi_buffer: bool,
    /// Over what packets come: veth, or NICs that a guest has.
    pub link: Link,
    /// What is planted, to see that it is found.
    pub planted: Planted,
}

/// The knob of an arm that is another one once more.
pub const AGAIN: &str = "again";

/// What an arm has on purpose that a measurement has to find, or must not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planted {
    /// Lookups in a map that the path's program does for each packet, for nothing.
    pub lookups: u32,
    /// What is broken: no block may count.
    pub fault: Option<Fault>,
    /// Whether it is another arm once more: nothing may differ.
    pub again: bool,
}

impl BenchArm {
    /// Its settings, as words: two arms are the same if these are.
    pub fn knobs(&self) -> BTreeMap<String, String> {
        let on = |on: bool| (if on { "on" } else { "off" }).to_string();
        let mut more = Vec::new();
        for (key, n) in [
            ("swaps", self.swaps),
            ("sources", self.sources),
            ("lookups", self.planted.lookups),
        ] {
            if n > 0 {
                more.push((key.to_string(), n.to_string()));
            }
        }
        if self.multi_buffer {
            more.push(("multi-buffer".into(), on(true)));
        }
        if let Some(fault) = self.planted.fault {
            more.push(("fault".into(), fault.to_string()));
        }
        if self.planted.again {
            more.push((AGAIN.into(), on(true)));
        }
        let knobs = [
            ("bench", self.bench.to_string()),
            ("path", self.path.to_string()),
            ("frames", self.frames.kind.to_string()),
            ("family", self.frames.family.to_string()),
            ("size", self.frames.size.to_string()),
            ("flows", self.frames.flows.to_string()),
            ("cores", self.cores.to_string()),
            ("rate", rate_word(self.offered)),
            ("batch", self.batch.to_string()),
            ("apart", on(self.apart)),
            ("stamps", on(self.stamped)),
        ];
        let knobs = knobs.map(|(key, value)| (key.to_string(), value));
        knobs.into_iter().chain(more).collect()
    }

    /// The arm whose instructions say why this one is as fast as it is: how many CPUs and
    /// which rate don't bear on what a packet costs.
    #[must_use]
    pub fn counted(&self) -> BenchArm {
        BenchArm {
            offered: Offered::Most,
            cores: 1,
            apart: false,
            stamped: false,
            swaps: 0,
            link: Link::Veth,
            ..*self
        }
    }

    /// As a recording has it: its name says what it has otherwise than the others.
    pub fn arm(&self, all: &[BenchArm]) -> Arm {
        let knobs = self.knobs();
        let others: Vec<_> = all.iter().map(BenchArm::knobs).collect();
        let differs = |key: &String| others.iter().any(|o| o.get(key) != knobs.get(key));
        let mut name = self.path.to_string();
        for (key, value) in knobs.iter().filter(|(key, _)| key.as_str() != "path") {
            if differs(key) {
                // What is asked says itself, and so does what is on.
                let word = match (key.as_str(), value.as_str()) {
                    ("bench", asked) => asked.to_string(),
                    (key, "on") => key.to_string(),
                    (_, "off") => continue,
                    (key, value) => format!("{key}={value}"),
                };
                name.push_str(&format!(" {word}"));
            }
        }
        Arm {
            name,
            proto: match self.frames.kind {
                FrameKind::Udp => Proto::Udp,
                FrameKind::TcpSyn => Proto::Tcp,
                FrameKind::Icmp => Proto::Raw,
            },
            family: self.frames.family,
            link: self.link,
            forward: self.bench == Bench::Forward,
            size_bytes: self.frames.size.mean_bytes().round() as u32,
            knobs,
        }
    }
}

/// A rate as it is asked for: `max`, or packets a second.
pub fn rate_word(offered: Offered) -> String {
    match offered {
        Offered::Most => "max".into(),
        Offered::Pps(pps) if pps >= 1e6 => format!("{}M", rounded(pps / 1e6)),
        Offered::Pps(pps) if pps >= 1e3 => format!("{}k", rounded(pps / 1e3)),
        Offered::Pps(pps) => rounded(pps),
    }
}

fn rounded(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

/// What a rate is by its word; in words what is wrong with it, otherwise.
///
/// # Errors
/// It is no number, or none above 0.
pub fn rate_of(word: &str) -> Result<Offered, String> {
    if word == "max" {
        return Ok(Offered::Most);
    }
    let (digits, factor) = match word.char_indices().last() {
        Some((at, 'k' | 'K')) => (&word[..at], 1e3),
        Some((at, 'M')) => (&word[..at], 1e6),
        Some((at, 'G')) => (&word[..at], 1e9),
        _ => (word, 1.0),
    };
    let pps = digits.parse::<f64>().ok().map(|n| n * factor);
    match pps {
        Some(pps) if (1.0..=1e12).contains(&pps) => Ok(Offered::Pps(pps)),
        _ => Err(format!(
            "`{}` is no rate: it takes `max`, or packets a second from 1 on, like 250k or 1.5M",
            word.chars().take(40).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FrameSize;
    use super::*;
    use crate::class::Family;

    fn arm(path: DataPath) -> BenchArm {
        BenchArm {
            bench: Bench::Drop,
            path,
            frames: Frames {
                kind: FrameKind::Udp,
                family: Family::V4,
                size: FrameSize::Bytes(60),
                flows: 1,
            },
            offered: Offered::Most,
            cores: 1,
            batch: 64,
            apart: false,
            stamped: false,
            swaps: 0,
            sources: 0,
            multi_buffer: false,
            link: Link::Veth,
            planted: Planted::default(),
        }
    }

    /// Check that an arm's name says how it differs, and no more.
    #[test]
    fn names() {
        let one = arm(DataPath::Xdp);
        let two = BenchArm {
            cores: 2,
            offered: Offered::Pps(250_000.0),
            ..one
        };
        let all = [one, two];
        assert_eq!(one.arm(&all).name, "xdp cores=1 rate=max");
        assert_eq!(two.arm(&all).name, "xdp cores=2 rate=250k");
        let all = [one, arm(DataPath::Tc)];
        assert_eq!(all[1].arm(&all).name, "tc");
        let apart = BenchArm { apart: true, ..one };
        let all = [one, apart];
        assert_eq!(all.map(|a| a.arm(&all).name), ["xdp", "xdp apart"]);
    }

    /// Check rates, from words and back.
    #[test]
    fn rates() {
        for (word, pps) in [("1.5M", 1.5e6), ("250k", 250e3), ("999", 999.0)] {
            assert_eq!(rate_of(word), Ok(Offered::Pps(pps)));
            assert_eq!(rate_word(Offered::Pps(pps)), word);
        }
        assert_eq!(rate_of("max"), Ok(Offered::Most));
        for word in ["0", "-1", "nan", "inf", "", "M", "1e99", "0.5", "1 M", "é"] {
            let error = rate_of(word).unwrap_err();
            assert!(error.contains(&format!("`{word}`")), "{error}");
        }
    }
}
