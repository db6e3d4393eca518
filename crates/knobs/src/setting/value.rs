//! How settings are read and written.

use std::fs;
use std::io::{self, ErrorKind};
use std::process::{Command, Stdio};

use netplumb_model::experiment::Offload;
use netplumb_sys::ethnl::EthtoolNetlink;
use netplumb_sys::ethtool::{Channels, Ethtool, is_in};
use netplumb_sys::links::DeviceState;
use netplumb_sys::napi;
use netplumb_sys::netns::Namespace;
use netplumb_sys::routes::OurRoute;
use netplumb_sys::steering;

use super::{NAME, NONE, PRESENT, Setting};
use crate::error::KnobError;

/// Maximum length of a program's messages.
const SHOWN_CHARACTERS: usize = 300;

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
    fn state(&self, namespace: &Namespace) -> Result<Option<DeviceState>, KnobError> {
        if let Some(disk) = self.disk().filter(|disk| !disk.is_there()) {
            return Err(KnobError::Gone { what: "disk", name: disk.name.clone() });
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

    /// Set it.
    ///
    /// # Errors
    /// The interface is gone, or the value was refused.
    pub fn write(&self, namespace: &Namespace, value: &str) -> Result<(), KnobError> {
        let state = self.state(namespace)?;
        self.assign(namespace, state.as_ref(), value).map_err(|error| {
            let refused = self.not_accepted(value, &error);
            let doing = || KnobError::system(format!("set {} to {value}", self.whose()));
            refused.unwrap_or_else(|| doing()(error))
        })
    }

    /// The route, if it is one.
    fn route(&self) -> io::Result<OurRoute> {
        match self {
            Setting::Route { nic, to, local } => {
                Ok(OurRoute { device: nic.index, to: *to, local: *local })
            }
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
            Setting::NamedFeature { name: feature, .. } => ns.inside(|| {
                let ethtool = Ethtool::open()?;
                let number = number_of_feature(&ethtool, name, feature)?;
                Ok(on_off(is_in(&ethtool.features(name)?.active, number)))
            })?,
            Setting::Coalescing { which, .. } => {
                let all = ns.inside(|| EthtoolNetlink::open()?.coalescing(name))?;
                which.level(has(all.get(which))?)
            }
            Setting::Ring { which, .. } => {
                let all = ns.inside(|| EthtoolNetlink::open()?.rings(name))?;
                required(all.get(which))?
            }
            Setting::Channel { which, .. } => {
                let all = ns.inside(|| EthtoolNetlink::open()?.channels(name))?;
                required(all.get(which))?
            }
            Setting::Steering { queue, which, .. } => steering::read(ns, name, queue, *which)?,
            Setting::Polling { file, .. } => file_of(file)?.read(ns, name)?.to_string(),
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
                let to = Channels { receive, send, other, combined };
                ns.set_channels(name, to)
            }
            Setting::Threaded { .. } => set_threaded(ns, name, is_on(value)?),
            Setting::NamedFeature { name: feature, .. } => {
                let on = is_on(value)?;
                ns.inside(|| {
                    let ethtool = Ethtool::open()?;
                    let number = number_of_feature(&ethtool, name, feature)?;
                    ethtool.set_feature(name, number, on)
                })
            }
            Setting::Coalescing { which, .. } => {
                let level = match (which.is_switch(), value) {
                    (true, "on") => 1,
                    (true, "off") => 0,
                    _ => number(value)?,
                };
                let to = [(*which, level)].into();
                ns.inside(|| EthtoolNetlink::open()?.set_coalescing(name, &to))
            }
            Setting::Ring { which, .. } => {
                let to = [(*which, number(value)?)].into();
                ns.inside(|| EthtoolNetlink::open()?.set_rings(name, &to))
            }
            Setting::Channel { which, .. } => {
                let to = [(*which, number(value)?)].into();
                ns.inside(|| EthtoolNetlink::open()?.set_channels(name, &to))
            }
            Setting::Steering { queue, which, .. } => {
                steering::write(ns, name, queue, *which, value)
            }
            Setting::Polling { file, .. } => file_of(file)?.write(ns, name, number(value)?),
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

/// What a driver does not report, it does not have.
fn has(number: Option<&u32>) -> io::Result<u32> {
    let number = number.copied();
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn required(number: Option<&u32>) -> io::Result<String> {
    Ok(has(number)?.to_string())
}

fn number_of_feature(ethtool: &Ethtool, device: &str, feature: &str) -> io::Result<usize> {
    let names = ethtool.feature_names(device)?;
    let number = names.iter().position(|name| name == feature);
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// One of the files that a setting may name; no other is written.
fn file_of(name: &str) -> io::Result<napi::File> {
    let all = [napi::File::GroFlushTimeout, napi::File::NapiDeferHardIrqs];
    let found = all.into_iter().find(|file| file.name() == name);
    found.ok_or_else(|| ErrorKind::InvalidInput.into())
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
pub(super) fn key_of(key: &str, name: &str) -> String {
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
    let bytes: Option<Vec<u8>> = text.split(':').map(|b| u8::from_str_radix(b, 16).ok()).collect();
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
        .take(SHOWN_CHARACTERS)
        .collect();
    Err(io::Error::other(format!("nft says: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

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
