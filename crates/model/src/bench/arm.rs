//! The arms of a bench: combinations of data paths, frames, rates and CPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rate::{Offered, rate_of, rate_word};
use super::{Bench, DataPath, Fault, FrameKind, FrameSize, Frames};
use crate::class::{Family, Link, Proto};
use crate::experiment::{Knob, Recorded};
use crate::recording::Arm;

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BenchArm {
    /// What the data path does with frames.
    pub bench: Bench,
    /// The data path.
    pub path: DataPath,
    /// What the generator sends.
    pub frames: Frames,
    /// The offered load of all CPUs together.
    pub offered: Offered,
    /// CPUs that generate frames.
    pub cores: u32,
    /// Queues of each veth device; none for one per core.
    pub queues: Option<u32>,
    /// Frames per batch.
    pub batch: u32,
    /// Whether the data path has its own CPUs.
    pub apart: bool,
    /// Whether frames carry their scheduled send time.
    pub stamped: bool,
    /// How often the XDP program is replaced in a block.
    pub swaps: u32,
    /// Source addresses in a block list that is updated during the run; 0 for none.
    pub sources: u32,
    /// Whether the XDP program has multi-buffer support, as needed for large MTUs.
    pub multi_buffer: bool,
    /// The link: veth, or emulated NICs of a guest.
    pub link: Link,
    /// Changes that a measurement has to detect, or must not.
    pub planted: Planted,
}

/// The knob of the second arm of an A/A test.
pub const AGAIN: &str = "again";

/// Deliberate changes that a measurement has to detect, or must not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planted {
    /// Additional map lookups per packet.
    pub lookups: u32,
    /// An injected fault: no block may be valid.
    pub fault: Option<Fault>,
    /// Whether it repeats another arm (A/A test): nothing may differ.
    pub again: bool,
}

/// A field that is a knob: how it is written and read.
struct Field {
    /// The knob's key.
    key: &'static str,
    /// As in recordings; none where it is not set.
    write: fn(&BenchArm) -> Option<String>,
    /// Whether the text is a level, which is set then.
    read: fn(&mut BenchArm, &str) -> bool,
}

/// All of them.
const FIELDS: &[Field] = &[
    Field {
        key: "bench",
        write: |arm| text(arm.bench),
        read: |arm, level| set(&mut arm.bench, level),
    },
    Field {
        key: "path",
        write: |arm| text(arm.path),
        read: |arm, level| set(&mut arm.path, level),
    },
    Field {
        key: "frames",
        write: |arm| text(arm.frames.kind),
        read: |arm, level| set(&mut arm.frames.kind, level),
    },
    Field {
        key: "family",
        write: |arm| text(arm.frames.family),
        read: |arm, level| set(&mut arm.frames.family, level),
    },
    Field {
        key: "size",
        write: |arm| text(arm.frames.size),
        read: |arm, level| set(&mut arm.frames.size, level),
    },
    Field {
        key: "flows",
        write: |arm| text(arm.frames.flows),
        read: |arm, level| set(&mut arm.frames.flows, level),
    },
    Field {
        key: "cores",
        write: |arm| text(arm.cores),
        read: |arm, level| set(&mut arm.cores, level),
    },
    Field {
        key: "queues",
        write: |arm| arm.queues.and_then(text),
        read: |arm, level| set_some(&mut arm.queues, level),
    },
    Field {
        key: "rate",
        write: |arm| text(rate_word(arm.offered)),
        read: |arm, level| rate_of(level).is_ok_and(|rate| replace(&mut arm.offered, rate)),
    },
    Field {
        key: "batch",
        write: |arm| text(arm.batch),
        read: |arm, level| set(&mut arm.batch, level),
    },
    Field {
        key: "apart",
        write: |arm| switch(arm.apart),
        read: |arm, level| replace(&mut arm.apart, level == "on"),
    },
    Field {
        key: "stamps",
        write: |arm| switch(arm.stamped),
        read: |arm, level| replace(&mut arm.stamped, level == "on"),
    },
    Field {
        key: "swaps",
        write: |arm| text(arm.swaps),
        read: |arm, level| set(&mut arm.swaps, level),
    },
    Field {
        key: "sources",
        write: |arm| text(arm.sources),
        read: |arm, level| set(&mut arm.sources, level),
    },
    Field {
        key: "lookups",
        write: |arm| text(arm.planted.lookups),
        read: |arm, level| set(&mut arm.planted.lookups, level),
    },
    Field {
        key: "multi-buffer",
        write: |arm| switch(arm.multi_buffer),
        read: |arm, level| replace(&mut arm.multi_buffer, level == "on"),
    },
    Field {
        key: "fault",
        write: |arm| arm.planted.fault.and_then(text),
        read: |arm, level| set_some(&mut arm.planted.fault, level),
    },
    Field {
        key: AGAIN,
        write: |arm| switch(arm.planted.again),
        read: |arm, level| replace(&mut arm.planted.again, level == "on"),
    },
];

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn switch(on: bool) -> Option<String> {
    text(if on { "on" } else { "off" })
}

fn replace<T>(field: &mut T, value: T) -> bool {
    *field = value;
    true
}

fn set<T: std::str::FromStr>(field: &mut T, level: &str) -> bool {
    level.parse().is_ok_and(|value| replace(field, value))
}

fn set_some<T: std::str::FromStr>(field: &mut Option<T>, level: &str) -> bool {
    level.parse().is_ok_and(|value| replace(field, Some(value)))
}

impl BenchArm {
    /// UDP frames of minimum size on a data path, at maximum rate.
    pub fn plain(bench: Bench, path: DataPath) -> BenchArm {
        BenchArm {
            bench,
            path,
            frames: Frames {
                kind: FrameKind::Udp,
                family: Family::V4,
                size: FrameSize::Imix,
                flows: 1,
            },
            offered: Offered::Most,
            cores: 1,
            queues: None,
            batch: 64,
            apart: false,
            stamped: false,
            swaps: 0,
            sources: 0,
            multi_buffer: false,
            link: Link::Veth,
            planted: Planted::default(),
        }
        .shortest()
    }

    /// The same with frames of minimum size.
    fn shortest(mut self) -> BenchArm {
        self.frames.size = FrameSize::Bytes(self.frames.size_bytes_least(self.stamped));
        self
    }

    /// From the levels of its knobs, in an experiment or a recording. Defaults are the first data
    /// path of the bench and the minimum frame size.
    ///
    /// # Errors
    /// The knob, and what is wrong with its level.
    pub fn from_levels<'l>(
        level: &dyn Fn(&'static str) -> Option<&'l str>,
    ) -> Result<BenchArm, (&'static str, String)> {
        let bench = level("bench").and_then(|bench| bench.parse().ok());
        let bench = bench.unwrap_or(Bench::Drop);
        let mut arm = BenchArm::plain(bench, DataPath::for_bench(bench)[0]);
        for field in FIELDS {
            if let Some(level) = level(field.key)
                && !(field.read)(&mut arm, level)
            {
                return Err((field.key, format!("invalid {} `{level}`", field.key)));
            }
        }
        if let Some(link) = level("link") {
            set(&mut arm.link, link);
        }
        arm = match level("size") {
            Some(_) => arm,
            None => arm.shortest(),
        };
        arm.check()?;
        Ok(arm)
    }

    /// Check that the data path supports all settings.
    fn check(&self) -> Result<(), (&'static str, String)> {
        use DataPath::{AfXdp, Xdp, XdpRedirect, XdpSkb, XdpTx};
        let possible = DataPath::for_bench(self.bench);
        let program = matches!(self.path, Xdp | XdpSkb);
        if !possible.contains(&self.path) {
            let names: Vec<&str> = possible.iter().map(|p| p.as_str()).collect();
            let (path, bench) = (self.path, self.bench);
            return Err((
                "path",
                format!(
                    "data path {path} is not supported by bench {bench}; expected one of {}",
                    names.join(", ")
                ),
            ));
        }
        if self.sources > 0 && self.path != Xdp {
            return Err((
                "sources",
                format!(
                    "sources (--blocklist) is not supported by path {}, only by xdp of bench drop",
                    self.path
                ),
            ));
        }
        if self.planted.lookups > 0 && (!program || self.sources > 0) {
            return Err((
                "lookups",
                match program {
                    true => "lookups can't be used together with sources (--blocklist)".into(),
                    false => format!(
                        "lookups is not supported by path {}, only by xdp and xdp-skb",
                        self.path
                    ),
                },
            ));
        }
        if self.multi_buffer && !(program || matches!(self.path, XdpTx | XdpRedirect | AfXdp)) {
            return Err((
                "multi-buffer",
                format!(
                    "multi-buffer is not supported by path {}, only by xdp, xdp-skb, xdp-tx, \
                     xdp-redirect and af-xdp",
                    self.path
                ),
            ));
        }
        if self.swaps > 0 && !(program || matches!(self.path, XdpTx | XdpRedirect)) {
            return Err((
                "swaps",
                format!(
                    "swaps is not supported by path {}, only by xdp, xdp-skb, xdp-tx and \
                     xdp-redirect",
                    self.path
                ),
            ));
        }
        if !self.link.declared().frames {
            return Err((
                "link",
                format!(
                    "link {} is not supported by frames, only {}",
                    self.link,
                    Link::listed(|link| link.declared().frames)
                ),
            ));
        }
        Ok(())
    }

    /// Its settings as text: arms are equal if these are.
    pub fn knobs(&self) -> BTreeMap<String, String> {
        let plain = BenchArm::plain(self.bench, self.path);
        let is_kept = |field: &&Field| {
            let knob = Knob::by_key(field.key).map(|knob| knob.recorded);
            let always = matches!(knob, Some(Recorded::Always | Recorded::Field));
            always || (field.write)(self) != (field.write)(&plain)
        };
        let kept = FIELDS.iter().filter(is_kept);
        kept.filter_map(|field| Some((field.key.to_string(), (field.write)(self)?))).collect()
    }

    /// The arm whose instructions are counted to explain this one; CPUs and rate don't change
    /// the cost of a packet.
    #[must_use]
    pub fn counted(&self) -> BenchArm {
        BenchArm {
            offered: Offered::Most,
            cores: 1,
            queues: None,
            apart: false,
            stamped: false,
            swaps: 0,
            link: Link::Veth,
            ..*self
        }
    }

    /// As recorded; its name contains the settings that differ from the other arms.
    pub fn arm(&self, all: &[BenchArm]) -> Arm {
        let knobs = self.knobs();
        let others: Vec<_> = all.iter().map(BenchArm::knobs).collect();
        let differs = |key: &String| others.iter().any(|o| o.get(key) != knobs.get(key));
        let mut name = self.path.to_string();
        for (key, value) in knobs.iter().filter(|(key, _)| key.as_str() != "path") {
            if differs(key) {
                // The bench and switches that are on need no `KEY=`.
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
            made: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{KNOBS, Kind};

    fn arm(path: DataPath) -> BenchArm {
        BenchArm::plain(Bench::Drop, path)
    }

    /// Check that every knob of frames has its field, and that an arm reads back as it was.
    #[test]
    fn fields_are_knobs() {
        let of_frames = KNOBS.iter().filter(|k| k.workloads.contains(&Kind::Frames));
        // These belong to the guest, and are the same for all arms.
        let apart = ["link", "kernel", "load"];
        let keys: Vec<&str> = of_frames.map(|k| k.key).filter(|key| !apart.contains(key)).collect();
        let mut fields: Vec<&str> = FIELDS.iter().map(|field| field.key).collect();
        let order = |key: &&str| KNOBS.iter().position(|knob| knob.key == *key);
        fields.sort_by_key(order);
        assert_eq!(fields, keys);
        let mut arm = arm(DataPath::XdpSkb);
        (arm.cores, arm.queues, arm.offered) = (2, Some(4), Offered::Pps(250e3));
        (arm.apart, arm.stamped, arm.planted.again) = (true, true, true);
        arm.frames.size = FrameSize::Bytes(512);
        arm.planted.fault = Some(Fault::WrongMac);
        arm.planted.lookups = 3;
        let knobs = arm.knobs();
        let read = BenchArm::from_levels(&|key| knobs.get(key).map(String::as_str));
        assert_eq!(read, Ok(arm));
        assert_eq!(knobs["queues"], "4");
        assert!(!knobs.contains_key("sources"));
    }

    /// Check that an arm's name shows its differences, and nothing else.
    #[test]
    fn names() {
        let one = arm(DataPath::Xdp);
        let two = BenchArm { cores: 2, offered: Offered::Pps(250_000.0), ..one };
        let all = [one, two];
        assert_eq!(one.arm(&all).name, "xdp cores=1 rate=max");
        assert_eq!(two.arm(&all).name, "xdp cores=2 rate=250k");
        let all = [one, arm(DataPath::Tc)];
        assert_eq!(all[1].arm(&all).name, "tc");
        let apart = BenchArm { apart: true, ..one };
        let all = [one, apart];
        assert_eq!(all.map(|a| a.arm(&all).name), ["xdp", "xdp apart"]);
    }
}
