//! The search for settings that suit a goal: what can be set, what is wanted, and what was found.

use std::str::FromStr;

use crate::class::words;
use crate::experiment::{Knobs, NamedArm};
use crate::hosts::{rate_of, time_of};

words! {
    /// What is to become better.
    Goal, "goal",
    /// More bytes in a time.
    Throughput = "throughput",
    /// Less time from a request to its answer.
    Latency = "latency",
    /// Less CPU time for each byte.
    Cpu = "cpu",
}

/// What has to hold of settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hold {
    /// The median time from a request to its answer is less, in nanoseconds.
    Latency(u64),
    /// The throughput is more, in bits per second.
    Throughput(u64),
    /// The CPU use of each host is less.
    Busy(f64),
}

/// What was measured with settings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// Of a stream, in bits per second.
    pub throughput_bps: f64,
    /// The median time of a request alone, in nanoseconds.
    pub latency_ns: f64,
    /// During the stream: the CPU use of the sender and the receiver.
    pub busy: [f64; 2],
}

impl Measured {
    /// CPU time of both hosts for a KiB of the stream, in nanoseconds.
    pub fn cpu_ns_per_kib(&self) -> f64 {
        let kib = self.throughput_bps / 8.0 / 1024.0;
        (self.busy[0] + self.busy[1]) * 1e9 / kib
    }

    /// By goal, less is better.
    pub fn cost(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput => -self.throughput_bps,
            Goal::Latency => self.latency_ns,
            Goal::Cpu => self.cpu_ns_per_kib(),
        }
    }
}

impl Hold {
    /// By how much it is missed, as a share of the limit; 0 if it holds.
    pub fn missed(&self, measured: &Measured) -> f64 {
        let missed = match *self {
            Hold::Latency(most_ns) => measured.latency_ns / most_ns as f64 - 1.0,
            Hold::Throughput(least) => 1.0 - measured.throughput_bps / least as f64,
            Hold::Busy(most) => measured.busy[0].max(measured.busy[1]) / most - 1.0,
        };
        missed.max(0.0)
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(text: &str) -> Result<Hold, String> {
        let why = || {
            format!(
                "invalid condition `{}`; expected latency<TIME, throughput>RATE or busy<PERCENT, like latency<200us, \
                 throughput>900M or busy<50%",
                text.chars().take(40).collect::<String>()
            )
        };
        let (name, sign, value) = (text.find(['<', '>']))
            .map(|at| (text[..at].trim(), &text[at..=at], text[at + 1..].trim()))
            .ok_or_else(why)?;
        match (name, sign) {
            ("latency", "<") => {
                let ns = time_of(value).map_err(|_| why())?;
                (ns > 0).then_some(Hold::Latency(ns)).ok_or_else(why)
            }
            ("throughput", ">") => rate_of(value).map(Hold::Throughput).map_err(|_| why()),
            ("busy", "<") => {
                let percent = value.strip_suffix('%').ok_or_else(why)?;
                let percent: f64 = percent.trim().parse().map_err(|_| why())?;
                let is_share = percent > 0.0 && percent <= 100.0;
                is_share
                    .then_some(Hold::Busy(percent / 100.0))
                    .ok_or_else(why)
            }
            _ => Err(why()),
        }
    }
}

/// A level of something that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// In words; empty for the default.
    pub name: &'static str,
    /// Knobs with their levels.
    pub knobs: &'static [(&'static str, &'static str)],
    /// What does the same on a machine of one's own: a command line in which NIC is the interface.
    pub lines: &'static [&'static str],
}

const DEFAULT: Setting = Setting {
    name: "",
    knobs: &[],
    lines: &[],
};

/// Something that can be set between two hosts: its levels, the default first.
pub type Dimension = &'static [Setting];

/// What is searched. Moderation is by the kernel's timers, since those of QEMU's NICs have a floor of
/// 128 us, and one that the NIC would have for itself is its own level.
pub const DIMENSIONS: &[Dimension] = &[
    &[
        DEFAULT,
        Setting {
            name: "no TSO",
            knobs: &[("offload.tso", "off")],
            lines: &["ethtool -K NIC tso off"],
        },
    ],
    &[
        DEFAULT,
        Setting {
            name: "no GRO",
            knobs: &[("offload.gro", "off")],
            lines: &["ethtool -K NIC gro off"],
        },
    ],
    &[
        DEFAULT,
        Setting {
            name: "interrupts at once",
            knobs: &[("throttle", "off")],
            lines: &["ethtool -C NIC adaptive-rx off rx-usecs 0"],
        },
        Setting {
            name: "deferred 20us",
            knobs: &[
                ("throttle", "off"),
                ("gro_flush_timeout", "20us"),
                ("napi_defer_hard_irqs", "1"),
            ],
            lines: &[
                "ethtool -C NIC adaptive-rx off rx-usecs 0",
                "echo 20000 > /sys/class/net/NIC/gro_flush_timeout",
                "echo 1 > /sys/class/net/NIC/napi_defer_hard_irqs",
            ],
        },
        Setting {
            name: "deferred 50us",
            knobs: &[
                ("throttle", "off"),
                ("gro_flush_timeout", "50us"),
                ("napi_defer_hard_irqs", "1"),
            ],
            lines: &[
                "ethtool -C NIC adaptive-rx off rx-usecs 0",
                "echo 50000 > /sys/class/net/NIC/gro_flush_timeout",
                "echo 1 > /sys/class/net/NIC/napi_defer_hard_irqs",
            ],
        },
        Setting {
            name: "deferred 100us",
            knobs: &[
                ("throttle", "off"),
                ("gro_flush_timeout", "100us"),
                ("napi_defer_hard_irqs", "1"),
            ],
            lines: &[
                "ethtool -C NIC adaptive-rx off rx-usecs 0",
                "echo 100000 > /sys/class/net/NIC/gro_flush_timeout",
                "echo 1 > /sys/class/net/NIC/napi_defer_hard_irqs",
            ],
        },
    ],
    &[
        DEFAULT,
        Setting {
            name: "buffers of 64K",
            knobs: &[("buffer", "64K")],
            lines: &[
                "sysctl -w net.ipv4.tcp_wmem='4096 131072 131072' net.ipv4.tcp_rmem='4096 131072 131072'",
            ],
        },
        Setting {
            name: "buffers of 256K",
            knobs: &[("buffer", "256K")],
            lines: &[
                "sysctl -w net.ipv4.tcp_wmem='4096 524288 524288' net.ipv4.tcp_rmem='4096 524288 524288'",
            ],
        },
    ],
    &[
        DEFAULT,
        Setting {
            name: "rings of 1024",
            knobs: &[("rings.rx", "1024"), ("rings.tx", "1024")],
            lines: &["ethtool -G NIC rx 1024 tx 1024"],
        },
    ],
];

/// Settings that were tried, by the numbers of their levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The levels.
    pub settings: Vec<Setting>,
    /// What was measured.
    pub measured: Measured,
}

/// A choice of levels, of these dimensions.
pub fn chosen(dimensions: &[Dimension], point: &[usize]) -> Vec<Setting> {
    let levels = dimensions.iter().zip(point);
    levels.map(|(levels, level)| levels[*level]).collect()
}

/// In words: "no TSO, rings of 1024", or "default".
pub fn name_of(settings: &[Setting]) -> String {
    let names: Vec<&str> = settings
        .iter()
        .map(|s| s.name)
        .filter(|n| !n.is_empty())
        .collect();
    match names.is_empty() {
        true => "default".into(),
        false => names.join(", "),
    }
}

/// As an arm of an experiment.
///
/// # Errors
/// A level that a knob does not take, which a test rules out.
pub fn arm_of(settings: &[Setting]) -> Result<NamedArm, String> {
    let knobs = settings.iter().flat_map(|setting| setting.knobs);
    Ok(NamedArm {
        name: name_of(settings),
        knobs: Knobs::of(knobs.map(|(key, level)| (key.to_string(), *level)))?,
    })
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// What was wanted.
    pub goal: Goal,
    /// What had to hold.
    pub hold: Vec<Hold>,
    /// As it was before.
    pub default: Measured,
    /// The best.
    pub best: Choice,
    /// Those that no other beats in throughput, latency and CPU time, the best by goal first.
    pub front: Vec<Choice>,
    /// How many were tried.
    pub tried: usize,
    /// How many could be.
    pub possible: usize,
    /// Whether time ran out.
    pub ended_early: bool,
    /// The interface that lines name.
    pub nic: String,
}

impl Tuned {
    /// What had to hold and does not, of the best.
    pub fn missed(&self) -> bool {
        self.hold
            .iter()
            .any(|hold| hold.missed(&self.best.measured) > 0.0)
    }

    /// The command lines that set the best on a machine of one's own.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.best.settings.iter().flat_map(|setting| setting.lines);
        lines.map(|line| line.replace("NIC", &self.nic)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every level is one of its knob, that the first of each is the default, and that names
    /// tell levels apart.
    #[test]
    fn levels_are_levels() {
        let mut names = std::collections::BTreeSet::new();
        for dimension in DIMENSIONS {
            assert_eq!(dimension[0], DEFAULT);
            for setting in &dimension[1..] {
                assert!(names.insert(setting.name), "{}", setting.name);
                let arm = arm_of(std::slice::from_ref(setting)).unwrap();
                assert_eq!(arm.name, setting.name);
                assert!(!setting.lines.is_empty() && !setting.knobs.is_empty());
            }
        }
        assert_eq!(name_of(&chosen(DIMENSIONS, &[0, 0, 0, 0, 0])), "default");
        assert_eq!(
            name_of(&chosen(DIMENSIONS, &[1, 0, 2, 0, 0])),
            "no TSO, deferred 20us"
        );
    }

    /// Check which conditions are understood, and by how much they are missed.
    #[test]
    fn conditions() {
        let measured = Measured {
            throughput_bps: 900e6,
            latency_ns: 100_000.0,
            busy: [0.2, 0.6],
        };
        for (text, missed) in [
            ("latency<200us", 0.0),
            ("latency < 50us", 1.0),
            ("throughput>450M", 0.0),
            ("throughput>1G", 0.1),
            ("busy<30%", 1.0),
        ] {
            let hold: Hold = text.parse().unwrap();
            assert!((hold.missed(&measured) - missed).abs() < 1e-9, "{text}");
        }
        for text in [
            "latency>1us",
            "latency<0us",
            "busy<101%",
            "busy<1",
            "cpu<3",
            "",
            "latency<",
            "é<1us",
        ] {
            assert!(text.parse::<Hold>().is_err(), "{text}");
        }
        assert!((measured.cpu_ns_per_kib() - 7281.8).abs() < 0.1);
    }
}
