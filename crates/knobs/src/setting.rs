//! All settings, with how they are read and written. Values are text.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::process::{Command, Stdio};

use netplumb_model::experiment::Offload;
use netplumb_sys::ethtool::Channels;
use netplumb_sys::links::DeviceState;
use netplumb_sys::napi;
use netplumb_sys::netns::Namespace;
use netplumb_sys::routes::OurRoute;
use serde::{Deserialize, Serialize};

use crate::disk::{BlockDisk, REQUESTS};
use crate::error::KnobError;
use crate::nic::Nic;

/// The value of a missing object.
pub const NONE: &str = "none";
/// The value of an object without other values.
pub const PRESENT: &str = "present";
/// The placeholder for the interface's name in the key of a sysctl.
const NAME: &str = "{}";
/// Maximum length of a program's messages.
const TOLD_CHARACTERS: usize = 300;

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Setting {
    /// A sysctl.
    Sysctl {
        /// With dots; `{}` is the placeholder for the interface's name.
        key: String,
        /// Its interface, if any.
        nic: Option<Nic>,
    },
    /// An offload of a device: `on` or `off`.
    Feature {
        /// The device.
        nic: Nic,
        /// The offload.
        which: Offload,
    },
    /// All wanted features of a device: words of bits.
    Features {
        /// The device.
        nic: Nic,
    },
    /// Whether an interface is `up` or `down`.
    Link {
        /// The interface.
        nic: Nic,
    },
    /// The MTU in bytes.
    Mtu {
        /// The interface.
        nic: Nic,
    },
    /// Promiscuous mode: `on` or `off`.
    Promiscuous {
        /// The device.
        nic: Nic,
    },
    /// Channels in use: receive, send, other, combined.
    Queues {
        /// The device.
        nic: Nic,
    },
    /// Threaded NAPI: `on` or `off`.
    Threaded {
        /// The device.
        nic: Nic,
    },
    /// CPU affinity of an interrupt, as a list.
    Affinity {
        /// The interrupt's number.
        irq: u32,
    },
    /// A bridge created by plumb.
    Bridge {
        /// Its name.
        name: String,
    },
    /// The name of the bridge that a device is a port of.
    Master {
        /// The device.
        nic: Nic,
    },
    /// A route to an address, marked as plumb's.
    Route {
        /// The device.
        nic: Nic,
        /// The destination.
        to: IpAddr,
        /// Whether it is of type `local`: packets are received as if the machine had the address.
        local: bool,
    },
    /// The MAC address of a permanent neighbour.
    Neighbour {
        /// The device.
        nic: Nic,
        /// The neighbour's IP address.
        address: IpAddr,
    },
    /// An nftables table created by plumb.
    Table {
        /// Its family.
        family: String,
        /// Its name.
        name: String,
    },
    /// The qdisc clsact, for filters.
    Clsact {
        /// The device.
        nic: Nic,
    },
    /// An attribute of the queue of a disk.
    BlockQueue {
        /// The disk.
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
    /// What is changed.
    pub what: String,
}

fn on_off(on: bool) -> String {
    (if on { "on" } else { "off" }).into()
}

fn is_on(value: &str) -> io::Result<bool> {
    match value {
        "on" | "up" | PRESENT => Ok(true),
        "off" | "down" | NONE => Ok(false),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

fn number<T: std::str::FromStr>(value: &str) -> io::Result<T> {
    value.parse().map_err(|_| ErrorKind::InvalidInput.into())
}

impl Setting {
    fn nic(&self) -> Option<&Nic> {
        match self {
            Setting::Sysctl { nic, .. } => nic.as_ref(),
            Setting::Feature { nic, .. }
            | Setting::Features { nic }
            | Setting::Link { nic }
            | Setting::Mtu { nic }
            | Setting::Promiscuous { nic }
            | Setting::Queues { nic }
            | Setting::Threaded { nic }
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

    /// Its disk.
    fn disk(&self) -> Option<&BlockDisk> {
        match self {
            Setting::BlockQueue { disk, .. } => Some(disk),
            _ => None,
        }
    }

    /// Whether it is of the machine, and of no network namespace.
    pub(crate) fn is_of_machine(&self) -> bool {
        matches!(self, Setting::Affinity { .. } | Setting::BlockQueue { .. })
    }

    /// Settings that change with it, and have to be restored after it is.
    pub(crate) fn change_with_it(&self) -> Vec<Setting> {
        let Setting::BlockQueue { disk, which } = self else {
            return Vec::new();
        };
        let others = disk.change_with(which).into_iter();
        let setting = |which| Setting::BlockQueue {
            disk: disk.clone(),
            which,
        };
        others.map(setting).collect()
    }

    /// Its description.
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
            Setting::Affinity { irq } => format!("CPUs of the interrupt {irq}"),
            Setting::Bridge { .. } => "a bridge of plumb's own".into(),
            Setting::Master { .. } => "the bridge that it is a port of".into(),
            Setting::Route {
                to, local: true, ..
            } => {
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
    fn object(&self) -> Option<&str> {
        let nic = self.nic().map(|nic| nic.name.as_str());
        nic.or_else(|| Some(self.disk()?.name.as_str()))
    }

    /// Its description with its object.
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
                NONE => format!("{name} is removed"),
                _ if own_name => format!("{name} is set"),
                _ => format!("{name} is set to {to}"),
            },
        }
    }

    fn state(&self, namespace: &Namespace) -> Result<Option<DeviceState>, KnobError> {
        if let Some(disk) = self.disk().filter(|disk| !disk.is_there()) {
            return Err(KnobError::Gone {
                what: "disk",
                name: disk.name.clone(),
            });
        }
        self.nic().map(|nic| nic.state(namespace)).transpose()
    }

    /// Read its value.
    ///
    /// # Errors
    /// The interface is gone, or it can't be read.
    pub fn read(&self, namespace: &Namespace) -> Result<String, KnobError> {
        let state = self.state(namespace)?;
        let value = self.value(namespace, state.as_ref());
        value.map_err(|error| {
            self.missing(&error)
                .unwrap_or_else(|| KnobError::system(format!("read {}", self.whose()))(error))
        })
    }

    /// The error that a disk has no such attribute.
    fn missing(&self, error: &io::Error) -> Option<KnobError> {
        match self {
            Setting::BlockQueue { disk, which } if error.kind() == ErrorKind::NotFound => {
                Some(KnobError::Missing {
                    what: self.whose(),
                    why: disk.why_not(which),
                })
            }
            _ => None,
        }
    }

    /// The error of a value that a disk's queue does not accept.
    fn not_accepted(&self, value: &str, error: &io::Error) -> Option<KnobError> {
        let Setting::BlockQueue { disk, which } = self else {
            return None;
        };
        if error.raw_os_error() != Some(libc::EINVAL) {
            return self.missing(error);
        }
        let why = match disk.choices(which) {
            Some(words) => format!("expected one of {words}"),
            None if which == REQUESTS => {
                "the kernel does not accept it for this disk; try less, or with another scheduler"
                    .into()
            }
            None => "the kernel does not accept it for this disk".into(),
        };
        Some(KnobError::NotAccepted {
            what: self.whose(),
            asked: value.into(),
            why,
        })
    }

    /// Set it.
    ///
    /// # Errors
    /// The interface is gone, or the value was refused.
    pub fn write(&self, namespace: &Namespace, value: &str) -> Result<(), KnobError> {
        let state = self.state(namespace)?;
        self.assign(namespace, state.as_ref(), value)
            .map_err(|error| {
                let refused = self.not_accepted(value, &error);
                let doing = || KnobError::system(format!("set {} to {value}", self.whose()));
                refused.unwrap_or_else(|| doing()(error))
            })
    }

    /// The route, if it is one.
    fn route(&self) -> io::Result<OurRoute> {
        match self {
            Setting::Route { nic, to, local } => Ok(OurRoute {
                device: nic.index,
                to: *to,
                local: *local,
            }),
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn value(&self, ns: &Namespace, state: Option<&DeviceState>) -> io::Result<String> {
        let name = state.map_or("", |s| s.name.as_str());
        let there = |there: bool| (if there { PRESENT } else { NONE }).to_string();
        Ok(match self {
            Setting::Sysctl { key, .. } => ns.sysctl(&key_of(key, name))?,
            Setting::Feature { which, .. } => on_off(ns.offload(name, *which)?),
            Setting::Features { .. } => {
                let words = ns.features(name)?.wanted;
                let words: Vec<String> = words.iter().map(|w| format!("{w:08x}")).collect();
                words.join(" ")
            }
            Setting::Link { .. } => match state.is_some_and(|s| s.up) {
                true => "up".into(),
                false => "down".into(),
            },
            Setting::Mtu { .. } => state.map_or(0, |s| s.mtu_bytes).to_string(),
            Setting::Promiscuous { .. } => on_off(state.is_some_and(|s| s.promiscuous)),
            Setting::Queues { .. } => {
                let c = ns.channels(name)?;
                format!("{} {} {} {}", c.receive, c.send, c.other, c.combined)
            }
            Setting::Threaded { .. } => on_off(napi::is_threaded(ns, name)?),
            Setting::Affinity { irq } => fs::read_to_string(affinity(*irq))?.trim().into(),
            Setting::Bridge { name } => there(bridge(ns, name)?.is_some()),
            Setting::Master { .. } => match state.and_then(|s| s.master) {
                None => NONE.into(),
                Some(master) => {
                    let mut states = ns.device_states()?.into_iter();
                    let found = states.find(|s| s.index == master);
                    found.map_or_else(|| format!("number {master}"), |s| s.name)
                }
            },
            Setting::Route { .. } => there(ns.has_our_route(&self.route()?)?),
            Setting::Neighbour { nic, address } => match ns.neighbour(nic.index, *address)? {
                Some(mac) if !mac.is_empty() => mac_text(&mac),
                _ => NONE.into(),
            },
            Setting::Table { family, name } => {
                let tables = nft(ns, &["list", "tables"])?;
                let wanted = format!("table {family} {name}");
                there(tables.lines().any(|line| line.trim() == wanted))
            }
            Setting::Clsact { nic } => there(ns.has_clsact(nic.index)?),
            Setting::BlockQueue { disk, which } => disk.value(which)?,
        })
    }

    fn assign(&self, ns: &Namespace, state: Option<&DeviceState>, value: &str) -> io::Result<()> {
        let name = state.map_or("", |s| s.name.as_str());
        match self {
            Setting::Sysctl { key, .. } => ns.set_sysctl(&key_of(key, name), value),
            Setting::Feature { which, .. } => ns.set_offload(name, *which, is_on(value)?),
            Setting::Features { .. } => {
                let word = |w| u32::from_str_radix(w, 16).map_err(io::Error::other);
                let words: io::Result<Vec<u32>> = value.split(' ').map(word).collect();
                ns.want_features(name, &words?)
            }
            Setting::Link { nic } => match is_on(value)? {
                true => ns.set_up(nic.index, None),
                false => ns.set_down(nic.index),
            },
            Setting::Mtu { nic } => ns.set_mtu(nic.index, number(value)?),
            Setting::Promiscuous { nic } => ns.set_promiscuous(nic.index, is_on(value)?),
            Setting::Queues { .. } => {
                let numbers: io::Result<Vec<u32>> = value.split(' ').map(number).collect();
                let [receive, send, other, combined] = numbers?[..] else {
                    return Err(ErrorKind::InvalidInput.into());
                };
                let to = Channels {
                    receive,
                    send,
                    other,
                    combined,
                };
                ns.set_channels(name, to)
            }
            Setting::Threaded { .. } => set_threaded(ns, name, is_on(value)?),
            Setting::Affinity { irq } => fs::write(affinity(*irq), value),
            Setting::Bridge { name } => match (is_on(value)?, bridge(ns, name)?) {
                (true, None) => ns.add_bridge(name).map(drop),
                (false, Some(index)) => ns.remove_device(index),
                _ => Ok(()),
            },
            Setting::Master { nic } => {
                let bridge = match value {
                    NONE => None,
                    name => Some(bridge(ns, name)?.ok_or(ErrorKind::NotFound)?),
                };
                ns.set_bridge(nic.index, bridge)
            }
            Setting::Route { .. } => match is_on(value)? {
                true => ns.add_our_route(&self.route()?),
                false => ns.remove_our_route(&self.route()?),
            },
            Setting::Neighbour { nic, address } => match value {
                NONE => ns.remove_neighbour(nic.index, *address),
                mac => {
                    let mac = mac_of(mac).ok_or(ErrorKind::InvalidInput)?;
                    ns.add_neighbour(nic.index, *address, mac).map(drop)
                }
            },
            Setting::Table { family, name } => match is_on(value)? {
                true => nft(ns, &["add", "table", family, name]).map(drop),
                false => nft(ns, &["delete", "table", family, name]).map(drop),
            },
            Setting::Clsact { nic } => ns.set_clsact(nic.index, is_on(value)?),
            Setting::BlockQueue { disk, which } => disk.set(which, value),
        }
    }
}

/// A device without NAPI refuses this setting (netif_set_threaded, net/core/dev.c), and may have it
/// nevertheless: a veth whose XDP program was detached since. GRO gives it NAPI.
fn set_threaded(ns: &Namespace, name: &str, on: bool) -> io::Result<()> {
    let set = || napi::set_threaded(ns, name, on);
    match set() {
        Err(error)
            if error.raw_os_error() == Some(libc::EOPNOTSUPP)
                && !ns.offload(name, Offload::Gro)? =>
        {
            ns.set_offload(name, Offload::Gro, true)?;
            let done = set();
            ns.set_offload(name, Offload::Gro, false)?;
            done
        }
        other => other,
    }
}

/// A key with an interface's name, in which dots become slashes (sysctl(8)).
fn key_of(key: &str, name: &str) -> String {
    key.replace(NAME, &name.replace('.', "/"))
}

fn affinity(irq: u32) -> String {
    format!("/proc/irq/{irq}/smp_affinity_list")
}

/// A MAC address as text.
pub(crate) fn mac_text(mac: &[u8]) -> String {
    let bytes: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    bytes.join(":")
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|b| u8::from_str_radix(b, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

/// Create a bridge of this name, without ports.
fn bridge(ns: &Namespace, name: &str) -> io::Result<Option<u32>> {
    let mut states = ns.device_states()?.into_iter();
    let found = states.find(|s| s.name == name && s.kind.as_deref() == Some("bridge"));
    Ok(found.map(|s| s.index))
}

fn nft(ns: &Namespace, words: &[&str]) -> io::Result<String> {
    let mut command = Command::new("nft");
    // Include the directories of root's programs, which $PATH may lack.
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(words)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    let output = ns.inside(|| command.output())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said: String = String::from_utf8_lossy(&output.stderr)
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .take(TOLD_CHARACTERS)
        .collect();
    Err(io::Error::other(format!("nft says: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a setting of an interface is named after it, including dots, and that
    /// descriptions contain neither internal names nor addresses that change.
    #[test]
    fn names() {
        let nic = Nic {
            name: "eth0.7".into(),
            index: 2,
            mac: "02".into(),
        };
        let key = "net.ipv4.conf.{}.rp_filter".to_string();
        assert_eq!(key_of(&key, "eth0.7"), "net.ipv4.conf.eth0/7.rp_filter");
        let nic = Some(nic);
        let planned = Setting::Sysctl { key, nic }.planned("0");
        assert_eq!(planned.on.as_deref(), Some("eth0.7"));
        assert!(planned.what.ends_with("eth0/7.rp_filter is set to 0"));
        let table = Setting::Table {
            family: "ip".into(),
            name: "netplumb_x1y2z3".into(),
        };
        assert!(!table.planned(PRESENT).what.contains("x1y2z3"));
    }

    /// Check that MAC addresses round-trip.
    #[test]
    fn addresses() {
        let mac = [2, 0x4e, 0, 0xff, 0, 1];
        assert_eq!(mac_of(&mac_text(&mac)), Some(mac));
        for wrong in ["", "02:00", "02:00:00:00:00:00:00", "zz:00:00:00:00:00"] {
            assert_eq!(mac_of(wrong), None, "{wrong}");
        }
    }
}
