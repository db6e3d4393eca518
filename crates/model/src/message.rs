//! What host and guest say to each other.
//!
//! The host sends a [`Request`], the guest answers with any number of
//! [`Reply::Console`], [`Reply::Chunk`] and [`Reply::BlockDone`], and then one of
//! [`Reply::Done`] or [`Reply::Failed`]. Frames are the lab's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::{Family, Link, Proto};
use crate::experiment::{Offload, Ruleset};
use crate::recording::Ledger;

/// Raised with any change of the messages below: host and guest are one binary,
/// but a saved guest may be older.
pub const PROTOCOL_VERSION: u32 = 3;

/// From the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send the file at this path of the guest, as chunks.
    ReadFile(String),
    /// Take a file: chunks of it follow as [`Request::Chunk`].
    WriteFile {
        /// Where it goes.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// A piece of the file being written; an empty one ends it.
    Chunk(Vec<u8>),
    /// Tell the facts of the running system.
    Describe,
    /// Build what this will need, so that the guest can be saved with it.
    Prepare(RunPlan),
    /// Come to rest once more: see `netplumb_lab::vm`.
    Rest,
    /// Run a workload.
    Run(RunPlan),
    /// Time functions with fentry and fexit while a workload runs: the second
    /// opinion.
    TimeFunctions {
        /// The functions, timed one at a time.
        functions: Vec<String>,
        /// What runs meanwhile, once for each.
        plan: RunPlan,
    },
    /// List the settings below /proc/sys whose names begin with one of these, and
    /// try another value of each: tried, read back, and put back.
    ListSettings {
        /// "net.", say.
        prefixes: Vec<String>,
        /// Names that begin so are left out.
        skip: Vec<String>,
        /// What is to stand before: the settings are those of its namespaces.
        plan: RunPlan,
    },
    /// Power off.
    PowerOff,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The agent is ready.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol: u32,
        /// Whether it comes to rest now, until the host lets it go on.
        rests: bool,
    },
    /// A piece of a file; an empty one ends it.
    Chunk(Vec<u8>),
    /// Facts, by dotted key.
    Facts(BTreeMap<String, String>),
    /// One block is over.
    BlockDone {
        /// Which repetition.
        index: u32,
        /// Its packets.
        ledger: Ledger,
    },
    /// What the second opinion saw, one entry a function.
    Timed(Vec<TimedFunction>),
    /// Settings, a part of the list.
    Settings(Vec<Setting>),
    /// The request was carried out.
    Done,
    /// It was not; why, in a sentence.
    Failed(String),
}

/// A setting below /proc/sys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name, with dots.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Another that the kernel takes, or why there is none.
    pub other: Result<String, String>,
}

/// What fentry and fexit saw of one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFunction {
    /// Its name.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Of the calls, those made within an RCU read section, where the probe costs
    /// a little less.
    pub in_rcu: u64,
    /// Why it could not be timed, if so.
    pub error: Option<String>,
}

/// One arm's traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPlan {
    /// What to send.
    pub proto: Proto,
    /// Over which IP.
    pub family: Family,
    /// Over what.
    pub link: Link,
    /// Whether a router stands between.
    pub forward: bool,
    /// Payload bytes.
    pub size_bytes: u32,
    /// MTU of the links, if not the device's own.
    pub mtu_bytes: Option<u32>,
    /// Packets in a block.
    pub packets: u32,
    /// Packets before the first block.
    pub warmup_packets: u32,
    /// Blocks.
    pub blocks: u32,
    /// Whether packets keep away from the timer's ticks. Without an instruction
    /// clock that would only be waiting.
    pub aligned: bool,
    /// Settings below /proc/sys, for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Rules of nftables.
    pub nft: Option<Ruleset>,
}
