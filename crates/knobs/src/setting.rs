//! All settings, and their descriptions; `value` reads and writes them, as text, and `refusal` explains why one can't
//! be.

mod refusal;
mod value;

use std::net::IpAddr;

use netplumb_model::experiment::{Channel, Coalescing, Offload, Ring, Steering};
use netplumb_sys::netns::Namespace;
use netplumb_sys::steering;
use serde::{Deserialize, Serialize};

use crate::disk::BlockDisk;
use crate::nic::Nic;

/// The value of a missing object.
pub const NONE: &str = "none";
/// The value of an object without other values.
pub const PRESENT: &str = "present";
/// The placeholder for the interface's name in the key of a sysctl.
const NAME: &str = "{}";

/// What a run changes and restores. Values are text, in the form that each variant gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Setting {
    /// A sysctl below `/proc/sys`.
    Sysctl {
        /// With dots; `{}` is the placeholder for the interface's name.
        key: String,
        /// The interface for the placeholder; none if the key has no placeholder.
        nic: Option<Nic>,
    },
    /// An offload of a device: `on` or `off`.
    Feature {
        /// Device whose offload it is.
        nic: Nic,
        /// Which offload of the device.
        which: Offload,
    },
    /// All wanted features of a device: words of bits.
    Features {
        /// Device whose features are saved as a whole.
        nic: Nic,
    },
    /// Whether an interface is `up` or `down`.
    Link {
        /// Interface that is set up or down.
        nic: Nic,
    },
    /// The MTU in bytes.
    Mtu {
        /// Interface whose MTU it is.
        nic: Nic,
    },
    /// Promiscuous mode: `on` or `off`.
    Promiscuous {
        /// Device whose mode it is.
        nic: Nic,
    },
    /// Channels in use: receive, send, other, combined.
    Queues {
        /// Device with the channels.
        nic: Nic,
    },
    /// Threaded NAPI: `on` or `off`.
    Threaded {
        /// Device whose NAPI it is.
        nic: Nic,
    },
    /// A feature of a device, by the kernel's name: `on` or `off`.
    NamedFeature {
        /// Device with the feature.
        nic: Nic,
        /// The feature, as `ethtool -k` has it.
        name: String,
    },
    /// When a device raises interrupts: a number, or `on` or `off`.
    Coalescing {
        /// Device that raises the interrupts.
        nic: Nic,
        /// The setting of `ethtool -C`.
        which: Coalescing,
    },
    /// How many packets a ring of a device holds.
    Ring {
        /// Device with the ring.
        nic: Nic,
        /// Receive or send ring.
        which: Ring,
    },
    /// How many queues of a kind a device has in use.
    Channel {
        /// Device with the queues.
        nic: Nic,
        /// The kind of queues, as in `ethtool -l`.
        which: Channel,
    },
    /// The CPUs that work for a queue of a device, as a list.
    Steering {
        /// Device with the queue.
        nic: Nic,
        /// The queue: `rx-0`.
        queue: String,
        /// Received packets or sent ones.
        which: Steering,
    },
    /// A number in a file of a device's own, which sets how it is polled.
    Polling {
        /// Device with the file in its sysfs directory.
        nic: Nic,
        /// The file's name: `gro_flush_timeout`.
        file: String,
    },
    /// CPU affinity of an interrupt, as a list.
    Affinity {
        /// The interrupt's number.
        irq: u32,
    },
    /// A bridge created by plumb.
    Bridge {
        /// Name of the bridge's interface.
        name: String,
    },
    /// The name of the bridge that a device is a port of.
    Master {
        /// Device that is the bridge's port.
        nic: Nic,
    },
    /// A route to an address, marked as plumb's.
    Route {
        /// Device that the route leads to.
        nic: Nic,
        /// The address that is routed.
        to: IpAddr,
        /// Whether it is of type `local`: packets are received as if the machine had the address.
        local: bool,
    },
    /// The MAC address of a permanent neighbour.
    Neighbour {
        /// Device that the neighbour is reached by.
        nic: Nic,
        /// The neighbour's IP address.
        address: IpAddr,
    },
    /// An nftables table created by plumb.
    Table {
        /// The table's family, as in `nft list tables`: `ip`.
        family: String,
        /// Name of the table within its family.
        name: String,
    },
    /// The qdisc clsact, for filters.
    Clsact {
        /// Device that the qdisc is attached to.
        nic: Nic,
    },
    /// An attribute of the queue of a disk.
    BlockQueue {
        /// Disk whose queue it is.
        disk: BlockDisk,
        /// Its name below the directory `queue`.
        which: String,
    },
}

/// A planned change, described for users.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned {
    /// The interface or disk; none for a change of the whole machine or namespace.
    pub on: Option<String>,
    /// The change, as a phrase.
    pub what: String,
}

impl Setting {
    /// The interface that it changes; none for a setting of the machine, namespace or a disk.
    pub fn nic(&self) -> Option<&Nic> {
        match self {
            Setting::Sysctl { nic, .. } => nic.as_ref(),
            Setting::Feature { nic, .. }
            | Setting::Features { nic }
            | Setting::Link { nic }
            | Setting::Mtu { nic }
            | Setting::Promiscuous { nic }
            | Setting::Queues { nic }
            | Setting::Threaded { nic }
            | Setting::NamedFeature { nic, .. }
            | Setting::Coalescing { nic, .. }
            | Setting::Ring { nic, .. }
            | Setting::Channel { nic, .. }
            | Setting::Steering { nic, .. }
            | Setting::Polling { nic, .. }
            | Setting::Master { nic }
            | Setting::Route { nic, .. }
            | Setting::Neighbour { nic, .. }
            | Setting::Clsact { nic } => Some(nic),
            Setting::Affinity { .. }
            | Setting::Bridge { .. }
            | Setting::Table { .. }
            | Setting::BlockQueue { .. } => None,
        }
    }

    fn disk(&self) -> Option<&BlockDisk> {
        match self {
            Setting::BlockQueue { disk, .. } => Some(disk),
            _ => None,
        }
    }

    /// Whether it belongs to the machine, not to a network namespace.
    pub(crate) fn is_of_machine(&self) -> bool {
        matches!(self, Setting::Affinity { .. } | Setting::BlockQueue { .. })
    }

    /// Whether a value means that there is no such thing: a disk's scheduler may be called so.
    pub(crate) fn is_absence(&self, value: &str) -> bool {
        value == NONE && !matches!(self, Setting::BlockQueue { .. })
    }

    /// Settings that change with it, and have to be restored after it is.
    pub(crate) fn change_with_it(&self, namespace: &Namespace) -> Vec<Setting> {
        match self {
            Setting::BlockQueue { disk, which } => {
                let others = disk.change_with(which).into_iter();
                let setting = |which| Setting::BlockQueue { disk: disk.clone(), which };
                others.map(setting).collect()
            }
            // Segmentation needs checksums, and is lost with them (netdev_fix_features, net/core/dev.c).
            Setting::Feature { nic, .. } | Setting::NamedFeature { nic, .. } => {
                vec![Setting::Features { nic: nic.clone() }]
            }
            // Queues that go take their settings along.
            Setting::Channel { nic, .. } => {
                let Ok(state) = nic.state(namespace) else {
                    return Vec::new();
                };
                let of = |which: &Steering| {
                    let queues = steering::queues(namespace, &state.name, *which);
                    let which = *which;
                    let setting = move |queue| Setting::Steering { nic: nic.clone(), queue, which };
                    queues.unwrap_or_default().into_iter().map(setting)
                };
                let all = Steering::ALL.iter().flat_map(of);
                all.filter(|setting| setting.read(namespace).is_ok()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Describes the setting in messages, with its article: "the MTU".
    pub fn name(&self) -> String {
        match self {
            Setting::Sysctl { key, nic } => {
                let name = nic.as_ref().map_or("", |nic| nic.name.as_str());
                format!("the setting {}", key.replace(NAME, &name.replace('.', "/")))
            }
            Setting::Feature { which, .. } => format!("the offload {which}"),
            Setting::Features { .. } => "the offloads".into(),
            Setting::Link { .. } => "the link".into(),
            Setting::Mtu { .. } => "the MTU".into(),
            Setting::Promiscuous { .. } => "promiscuous mode".into(),
            Setting::Queues { .. } => "the queues (receive, send, other, combined)".into(),
            Setting::Threaded { .. } => "threaded NAPI".into(),
            Setting::NamedFeature { name, .. } => format!("the feature {name}"),
            Setting::Coalescing { which, .. } => format!("the coalescing {which}"),
            Setting::Ring { which, .. } => format!("the ring {which}"),
            Setting::Channel { which, .. } => format!("the queues ({which})"),
            Setting::Steering { queue, which, .. } => format!("{which} of the queue {queue}"),
            Setting::Polling { file, .. } => file.clone(),
            Setting::Affinity { irq } => format!("CPUs of the interrupt {irq}"),
            Setting::Bridge { .. } => "a bridge of plumb's own".into(),
            Setting::Master { .. } => "the bridge that it is a port of".into(),
            Setting::Route { to, local: true, .. } => {
                format!("a local route to {to}")
            }
            Setting::Route { to, .. } => format!("a route to {to}"),
            Setting::Neighbour { address, .. } => format!("the neighbour {address}"),
            Setting::Table { family, .. } => {
                format!("a table of nftables of plumb's own ({family})")
            }
            Setting::Clsact { .. } => "the qdisc clsact, for a filter".into(),
            Setting::BlockQueue { which, .. } => which.clone(),
        }
    }

    /// The name of its interface or disk.
    pub fn object(&self) -> Option<&str> {
        let nic = self.nic().map(|nic| nic.name.as_str());
        nic.or_else(|| Some(self.disk()?.name.as_str()))
    }

    /// Describes the setting and its object in messages: "the MTU of eth0".
    pub fn whose(&self) -> String {
        let of = match self {
            // It is in its key.
            Setting::Sysctl { .. } => None,
            _ => self.object(),
        };
        match of {
            None => self.name(),
            Some(object) => format!("{} of {object}", self.name()),
        }
    }

    /// The planned change to a value.
    pub fn planned(&self, to: &str) -> Planned {
        let own_name = matches!(self, Setting::Master { .. } | Setting::Neighbour { .. });
        let name = self.name();
        Planned {
            on: self.object().map(String::from),
            what: match to {
                PRESENT => format!("{name} is added"),
                _ if self.is_absence(to) => format!("{name} is removed"),
                _ if own_name => format!("{name} is set"),
                _ => format!("{name} is set to {to}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a setting of an interface is named after it, including dots, and that
    /// descriptions contain neither internal names nor addresses that change.
    #[test]
    fn names() {
        let nic = Nic { name: "eth0.7".into(), index: 2, mac: "02".into() };
        let key = "net.ipv4.conf.{}.rp_filter".to_string();
        assert_eq!(value::key_of(&key, "eth0.7"), "net.ipv4.conf.eth0/7.rp_filter");
        let nic = Some(nic);
        let planned = Setting::Sysctl { key, nic }.planned("0");
        assert_eq!(planned.on.as_deref(), Some("eth0.7"));
        assert!(planned.what.ends_with("eth0/7.rp_filter is set to 0"));
        let table = Setting::Table { family: "ip".into(), name: "netplumb_x1y2z3".into() };
        assert!(!table.planned(PRESENT).what.contains("x1y2z3"));
    }
}
