//! What costs belong to: protocol, direction and context.

mod link;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use link::{Devices, Link, LinkFacts};

/// A word that is not one of those expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{got}`; expected one of {}", .valid.join(", "))]
pub struct UnknownWord {
    /// The expected kind of word ("protocol").
    pub what: &'static str,
    /// The given text.
    pub got: String,
    /// All valid words.
    pub valid: Vec<&'static str>,
}

/// An enum whose variants each have one spelling, used in files, on the command
/// line and in output alike.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal, $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The spelling of every value, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The one spelling.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::class::UnknownWord;
            fn from_str(s: &str) -> Result<Self, crate::class::UnknownWord> {
                match s {
                    $($word => Ok($name::$variant),)+
                    _ => Err(crate::class::UnknownWord {
                        what: $what,
                        got: s.chars().take(80).collect(),
                        valid: vec![$($word),+],
                    }),
                }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The protocol of the workload.
    Proto, "protocol",
    /// ICMP echo over a raw socket, as `ping` does.
    Raw = "raw",
    /// Datagrams over connected UDP sockets.
    Udp = "udp",
    /// Small sends over one established TCP connection.
    Tcp = "tcp",
    /// A command, with all the packets that it sends and receives.
    Command = "command",
    /// No packets: work of CPUs, whatever it is for.
    Work = "work",
}

impl Proto {
    /// The unit that costs are divided by: a packet, or a run of a command.
    pub fn unit(self) -> &'static str {
        match self {
            Proto::Raw | Proto::Udp | Proto::Tcp => "packet",
            Proto::Command => "run",
            Proto::Work => "second",
        }
    }
}

words! {
    /// The address family: which version of the Internet Protocol.
    Family, "address family",
    /// IPv4.
    V4 = "ipv4",
    /// IPv6.
    V6 = "ipv6",
}

words! {
    /// The direction of the packets that a cost belongs to.
    Direction, "direction",
    /// Sending: the sender's system call down to the device, and the device's
    /// transmit completion.
    Tx = "tx",
    /// Receiving: interrupt, NAPI poll and protocol up to the socket, and the
    /// receiver's system call.
    Rx = "rx",
    /// Forwarding in a router: from its receive entry to its transmit.
    Forward = "forward",
    /// The kernel's own answer to an ICMP echo request: its reception, and the
    /// reply's transmission.
    Echo = "echo",
    /// Reception of a TCP segment that carries nothing but an acknowledgement.
    Ack = "ack",
    /// Reception of a frame that the driver drops, before the network stack has it.
    Drop = "drop",
    /// A connection is made: the client's system call, and the handshake at both ends.
    Connect = "connect",
    /// The server's system call that takes a connection.
    Accept = "accept",
    /// A connection is closed: the system calls, and the segments at both ends.
    Close = "close",
    /// A datagram is answered: sent by the receiver, and received by the sender.
    Reply = "reply",
    /// All that happens while a command runs, or CPUs are sampled.
    Run = "run",
    /// In the window, but not for a packet: timers, other tasks, idle time.
    Other = "other",
}

words! {
    /// One of the kernel's ten softirq vectors (include/linux/interrupt.h).
    Softirq, "softirq",
    /// High-priority tasklets.
    Hi = "HI",
    /// Timer wheel.
    Timer = "TIMER",
    /// Transmit completion and the qdisc.
    NetTx = "NET_TX",
    /// NAPI polls and the protocols above them.
    NetRx = "NET_RX",
    /// Block device completion.
    Block = "BLOCK",
    /// Block device polling.
    IrqPoll = "IRQ_POLL",
    /// Tasklets.
    Tasklet = "TASKLET",
    /// Load balancing.
    Sched = "SCHED",
    /// High-resolution timers.
    Hrtimer = "HRTIMER",
    /// RCU callbacks.
    Rcu = "RCU",
}

/// The context that code ran in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// The workload's own task: its system calls and faults.
    Task,
    /// Another task: kernel threads, idle.
    OtherTask,
    /// A softirq, whatever it interrupted.
    Softirq(Softirq),
    /// An interrupt handler.
    Hardirq,
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Context::Task => f.pad("task"),
            Context::OtherTask => f.pad("other-task"),
            Context::Softirq(s) => f.pad(&format!("softirq:{s}")),
            Context::Hardirq => f.pad("hardirq"),
        }
    }
}

impl FromStr for Context {
    type Err = UnknownWord;

    fn from_str(s: &str) -> Result<Self, UnknownWord> {
        match s {
            "task" => Ok(Context::Task),
            "other-task" => Ok(Context::OtherTask),
            "hardirq" => Ok(Context::Hardirq),
            _ => match s.strip_prefix("softirq:") {
                Some(vector) => Ok(Context::Softirq(vector.parse()?)),
                None => Err(UnknownWord {
                    what: "context",
                    got: s.chars().take(80).collect(),
                    valid: vec!["task", "other-task", "hardirq", "softirq:VECTOR"],
                }),
            },
        }
    }
}

impl Serialize for Context {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

/// Protocol and direction ("udp tx"): what each table of a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// The protocol of the packets.
    pub proto: Proto,
    /// Sending, receiving, forwarding or other work.
    pub direction: Direction,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proto {
            // It has no other direction.
            Proto::Work => f.pad(Proto::Work.as_str()),
            proto => f.pad(&format!("{proto} {}", self.direction)),
        }
    }
}

impl FromStr for Class {
    type Err = UnknownWord;

    fn from_str(s: &str) -> Result<Self, UnknownWord> {
        if s == Proto::Work.as_str() {
            return Ok(Class { proto: Proto::Work, direction: Direction::Run });
        }
        let (proto, direction) = s.split_once(' ').unwrap_or((s, ""));
        Ok(Class { proto: proto.parse()?, direction: direction.trim().parse()? })
    }
}

impl Serialize for Class {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every word reads back as what wrote it.
    #[test]
    fn words_round_trip() {
        for &p in Proto::ALL {
            for &direction in Direction::ALL {
                let class = Class { proto: p, direction };
                if p == Proto::Work && direction != Direction::Run {
                    continue;
                }
                assert_eq!(class.to_string().parse(), Ok(class));
            }
        }
        for context in
            [Context::Task, Context::OtherTask, Context::Hardirq, Context::Softirq(Softirq::NetRx)]
        {
            assert_eq!(context.to_string().parse(), Ok(context));
        }
    }

    /// Check that an unknown word is answered with the known ones.
    #[test]
    fn a_wrong_word_names_the_right_ones() {
        let error = "sctp".parse::<Proto>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown protocol `sctp`; expected one of raw, udp, tcp, command, work"
        );
    }
}
