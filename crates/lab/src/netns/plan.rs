//! Plans of topologies, and errors of setting them up.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::{BpfProgram, NicSettings, Offload, Qdisc, Ruleset};
use netplumb_model::hosts::Side;
use netplumb_model::message::{Refused, RefusedKind};
use netplumb_model::topology::ArmTopology;

/// The plan of a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyPlan {
    /// The type of link.
    pub link: Link,
    /// Which of two hosts it is on: then there is only that end. None for both.
    pub host: Option<Side>,
    /// The address family; the other one is disabled, unless tunnels use it.
    pub family: Family,
    /// Namespaces and devices.
    pub topology: ArmTopology,
    /// Queues of each veth device, per direction; none for its default.
    pub queues: Option<u32>,
    /// MTU of every device; none for its default.
    pub mtu_bytes: Option<u32>,
    /// Sysctls, for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Settings of the devices of the sender and of the receiver.
    pub nics: [NicSettings; 2],
    /// nftables rules, with their text.
    pub nft: Option<(Ruleset, String)>,
    /// The egress qdisc, if one is set.
    pub qdisc: Option<Qdisc>,
    /// BPF programs of the user's.
    pub programs: Vec<BpfProgram>,
}

impl TopologyPlan {
    /// Whether packets of a family are on the links.
    pub(super) fn uses(&self, family: Family) -> bool {
        self.family == family || self.topology.spec.has_tunnels_of(family)
    }

    /// Whether devices get an address.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        [Family::V4, Family::V6].into_iter().any(|of| of.is_of(address) && self.uses(of))
    }
}

/// A NIC of the machine, identified by its address; the first two are connected, then the next two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nic {
    /// MAC address.
    pub mac: [u8; 6],
}

/// An error of setting up a topology.
#[derive(Debug, thiserror::Error)]
#[error("can't {what}: {source}")]
pub struct TopologyError {
    pub(super) what: String,
    pub(super) source: io::Error,
}

impl TopologyError {
    /// Whether it failed for lack of privileges.
    pub fn lacks_rights(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether a driver or the kernel does not take a setting, which others may.
    pub fn is_not_taken(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::NotTaken(_)))
    }

    /// Whether the request names something missing, such as a feature that no device has. What the kernel finds invalid
    /// may be our mistake.
    pub fn is_asked(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::Asked(_)))
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.source.get_ref()?.downcast_ref()
    }

    /// Whether this system lacks a program or a kernel feature.
    pub fn lacks_means(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
    }
}

/// Why a setting can't be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// A driver or the kernel does not take it, whatever the kernel calls that.
    #[error("{0}")]
    NotTaken(String),
    /// The requested name or number does not exist.
    #[error("{0}")]
    Asked(String),
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        let kind = match refusal {
            Refusal::NotTaken(_) => io::ErrorKind::Unsupported,
            Refusal::Asked(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, refusal)
    }
}

impl From<TopologyError> for Refused {
    fn from(error: TopologyError) -> Refused {
        Refused {
            message: error.to_string(),
            kind: match error.is_asked() {
                true => RefusedKind::Asked,
                false if error.lacks_rights() || error.lacks_means() => RefusedKind::CannotRun,
                false => RefusedKind::Failed,
            },
        }
    }
}

pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, TopologyError>;
}

/// Something that has to be there, since the plan was checked.
impl<T> Doing<T> for Option<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, TopologyError> {
        self.ok_or_else(|| TopologyError { what: what(), source: io::ErrorKind::NotFound.into() })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, TopologyError> {
        self.map_err(|source| TopologyError { what: what(), source })
    }
}
