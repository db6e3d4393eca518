//! What a topology is to be, and why it could not be made.

use std::collections::BTreeMap;
use std::io;

use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::{Offload, Qdisc, Ruleset};

/// What kind of topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyPlan {
    /// What joins the ends.
    pub link: Link,
    /// Which IP: the other version stays off.
    pub family: Family,
    /// Whether a router stands between.
    pub forward: bool,
    /// Whether a bridge does.
    pub bridge: bool,
    /// Queues of every veth device, each way, if not as many as it has by itself.
    pub queues: Option<u32>,
    /// MTU of every device, if not its own.
    pub mtu_bytes: Option<u32>,
    /// Settings below /proc/sys for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Rules of nftables, their place, and their text.
    pub nft: Option<(Ruleset, String)>,
    /// A queueing discipline.
    pub qdisc: Option<Qdisc>,
}

/// One NIC of the machine, known by its address; wires are in order: the first
/// two are joined, then the next two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nic {
    /// MAC address.
    pub mac: [u8; 6],
}

/// What could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("can't {what}: {source}")]
pub struct TopologyError {
    pub(super) what: String,
    pub(super) source: io::Error,
}

impl TopologyError {
    /// Whether the system would have let somebody with more rights.
    pub fn lacks_rights(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether this system lacks what it takes: a program, or a part of the kernel.
    pub fn lacks_means(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
    }
}

pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, TopologyError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, TopologyError> {
        self.map_err(|source| TopologyError {
            what: what(),
            source,
        })
    }
}

/// Bits of an address that tell its network.
pub(super) fn prefix_len(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}
