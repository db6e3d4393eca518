//! The constraints on topologies: which keys a kind of device takes, and which names have to exist.

use std::collections::BTreeSet;

use super::{ArmTopology, DeviceKind, DeviceSpec, TopologySpec};
use crate::class::{Link, Proto};
use crate::recording::Arm;

/// More would be a typing error.
const MAX_NAMESPACES: usize = 64;
const MAX_DEVICES: usize = 256;
const MAX_ADDRESSES: usize = 16;
/// include/uapi/linux/if.h: IFNAMSIZ, with a zero.
const MAX_NAME_BYTES: usize = 15;
/// Other words for ends, in settings, ledgers and facts.
const RESERVED: [&str; 4] = ["both", "all", "sender", "receiver"];
/// A guest has NICs for this number of pairs.
const MAX_WIRES_OF_NICS: usize = 2;

/// A mistake in a topology.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct TopologyMistake {
    /// "device vxlan0".
    place: String,
    what: String,
}

fn mistake(place: impl Into<String>, what: impl Into<String>) -> TopologyMistake {
    TopologyMistake { place: place.into(), what: what.into() }
}

/// The keys that a kind of device takes, without the ones that all take: needed ones, and others.
fn keys(kind: DeviceKind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        DeviceKind::Link | DeviceKind::Veth => (&[], &["peer"]),
        DeviceKind::Bridge | DeviceKind::Dummy => (&[], &[]),
        DeviceKind::Bond => (&[], &["mode"]),
        DeviceKind::Vlan => (&["link", "id"], &[]),
        DeviceKind::Vxlan => (&["id", "remote"], &["local", "port", "link"]),
        DeviceKind::Geneve => (&["id", "remote"], &["port"]),
        DeviceKind::Gre => (&["local", "remote"], &["id"]),
        DeviceKind::Ipip => (&["local", "remote"], &[]),
        DeviceKind::Wireguard => (&["peer", "port", "allowed"], &["remote"]),
        DeviceKind::Macvlan | DeviceKind::Ipvlan => (&["link"], &["mode"]),
    }
}

/// The modes of a kind of device as in ip-link(8), with the kernel's numbers; the default first.
fn modes(kind: DeviceKind) -> &'static [(&'static str, u8)] {
    match kind {
        // include/uapi/linux/if_link.h: enum macvlan_mode, enum ipvlan_mode.
        DeviceKind::Macvlan => &[("bridge", 4), ("private", 1), ("vepa", 2), ("passthru", 8)],
        DeviceKind::Ipvlan => &[("l2", 0), ("l3", 1), ("l3s", 2)],
        // include/uapi/linux/if_bonding.h.
        DeviceKind::Bond => &[
            ("balance-rr", 0),
            ("active-backup", 1),
            ("balance-xor", 2),
            ("broadcast", 3),
            ("802.3ad", 4),
            ("balance-tlb", 5),
            ("balance-alb", 6),
        ],
        _ => &[],
    }
}

impl DeviceSpec {
    /// The keys that are set, of those that not all kinds take.
    fn set(&self) -> Vec<&'static str> {
        let all = [
            ("peer", self.peer.is_some()),
            ("link", self.link.is_some()),
            ("id", self.id.is_some()),
            ("local", self.local.is_some()),
            ("remote", self.remote.is_some()),
            ("port", self.port.is_some()),
            ("mode", self.mode.is_some()),
            ("allowed", !self.allowed.is_empty()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }

    /// The kernel's number of its mode.
    pub fn mode_number(&self) -> u8 {
        let modes = modes(self.kind);
        let is_named = |(mode, _): &&(&str, u8)| Some(*mode) == self.mode.as_deref();
        let found = modes.iter().find(is_named).or(modes.first());
        found.map_or(0, |(_, number)| *number)
    }

    fn check(&self, spec: &TopologySpec) -> Result<(), String> {
        if spec.namespace(&self.namespace).is_none() {
            return Err(format!("there is no namespace `{}`", self.namespace));
        }
        let (needed, others) = keys(self.kind);
        let set = self.set();
        if let Some(key) = needed.iter().find(|key| !set.contains(key)) {
            return Err(format!("kind {} needs {key}", self.kind));
        }
        if let Some(key) = set.iter().find(|key| !needed.contains(key) && !others.contains(key)) {
            return Err(format!("kind {} has no {key}", self.kind));
        }
        if let (Some(mode), modes) = (&self.mode, modes(self.kind))
            && !modes.iter().any(|(known, _)| known == mode)
        {
            let known: Vec<&str> = modes.iter().map(|(known, _)| *known).collect();
            return Err(format!("unknown mode `{mode}`; expected one of {}", known.join(", ")));
        }
        let most = match self.kind {
            DeviceKind::Vlan => 4_094,
            DeviceKind::Vxlan | DeviceKind::Geneve => (1 << 24) - 1,
            _ => u32::MAX,
        };
        if self.id.is_some_and(|id| id > most) {
            return Err(format!("invalid id; expected at most {most}"));
        }
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(format!("too many addresses; expected at most {MAX_ADDRESSES}"));
        }
        if let (Some(local), Some(remote)) = (self.local, self.remote)
            && local.is_ipv4() != remote.is_ipv4()
        {
            return Err("local and remote are of different families".into());
        }
        let before = spec.devices.iter().take_while(|device| device.name != self.name);
        if let Some(lower) = &self.link {
            let lower = (before.clone().find(|device| device.name == *lower)).ok_or_else(|| {
                format!("there is no device `{lower}` before it, which is its link")
            })?;
            let crosses = matches!(self.kind, DeviceKind::Macvlan | DeviceKind::Ipvlan);
            if lower.namespace != self.namespace && !crosses {
                return Err(format!("its link {} is in another namespace", lower.name));
            }
        }
        if let Some(master) = &self.master {
            let is_master = |device: &&DeviceSpec| {
                device.name == *master
                    && device.namespace == self.namespace
                    && matches!(device.kind, DeviceKind::Bridge | DeviceKind::Bond)
            };
            if !spec.devices.iter().any(|device| is_master(&device)) {
                return Err(format!("there is no bridge or bond `{master}` in its namespace"));
            }
            let above = |device: &&DeviceSpec| spec.device(device.master.as_deref()?);
            let mut masters = std::iter::successors(Some(self), above).skip(1).take(MAX_DEVICES);
            if masters.any(|device| device.name == self.name) {
                return Err("its masters form a circle".into());
            }
        }
        self.check_peer(spec)
    }

    fn check_peer(&self, spec: &TopologySpec) -> Result<(), String> {
        let kind = self.kind;
        let of_same = |device: &&DeviceSpec| device.kind == kind && device.name != self.name;
        let naming: Vec<&str> = (spec.devices.iter())
            .filter(|device| of_same(device) && device.peer.as_ref() == Some(&self.name))
            .map(|device| device.name.as_str())
            .collect();
        match &self.peer {
            Some(peer) if !spec.devices.iter().any(|d| of_same(&d) && d.name == *peer) => {
                Err(format!("its peer `{peer}` is no device of kind {kind}"))
            }
            Some(_) if kind.is_wired() && !naming.is_empty() => {
                Err(format!("{} names it as its peer, too; one of the two is enough", naming[0]))
            }
            None if kind.is_wired() && naming.len() != 1 => Err(format!(
                "{} devices name it as their peer; expected one, or a peer of its own",
                naming.len()
            )),
            _ => Ok(()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let has_word = name.contains(|c: char| c.is_ascii_alphanumeric());
    name.len() <= MAX_NAME_BYTES && has_word && name.chars().all(fits)
}

impl TopologySpec {
    /// Check that it can be made, as far as that is known without a kernel.
    ///
    /// # Errors
    /// What is wrong, and with which part.
    pub fn check(&self) -> Result<(), TopologyMistake> {
        if self.namespaces.is_empty() || self.namespaces.len() > MAX_NAMESPACES {
            let why = format!("{}; expected 1 to {MAX_NAMESPACES}", self.namespaces.len());
            return Err(mistake("number of namespaces", why));
        }
        if self.devices.len() > MAX_DEVICES {
            let why = format!("{}; expected at most {MAX_DEVICES}", self.devices.len());
            return Err(mistake("number of devices", why));
        }
        let mut names = BTreeSet::new();
        for namespace in &self.namespaces {
            let place = || format!("namespace `{}`", namespace.name);
            if !is_name(&namespace.name) || RESERVED.contains(&namespace.name.as_str()) {
                return Err(mistake(place(), "invalid name"));
            }
            if !names.insert(&namespace.name) {
                return Err(mistake(place(), "another one has this name"));
            }
            for route in &namespace.routes {
                let is_there = |name: &String| {
                    (self.device(name)).is_some_and(|device| device.namespace == namespace.name)
                };
                if let Some(device) = route.dev.as_ref().filter(|name| !is_there(name)) {
                    let why = format!("route `{route}`: it has no device `{device}`");
                    return Err(mistake(place(), why));
                }
            }
        }
        let place = |device: &DeviceSpec| format!("device `{}`", device.name);
        for device in &self.devices {
            if !is_name(&device.name) || ["lo", "all", "default"].contains(&device.name.as_str()) {
                let why = format!(
                    "invalid name; expected 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`, and not lo"
                );
                return Err(mistake(place(device), why));
            }
            if !names.insert(&device.name) {
                return Err(mistake(place(device), "another device or namespace has this name"));
            }
        }
        let mut addresses = BTreeSet::new();
        for device in &self.devices {
            if let Some(net) = device
                .addresses
                .iter()
                .find(|net| !addresses.insert((net.addr(), &device.namespace)))
            {
                return Err(mistake(
                    place(device),
                    format!("its namespace has {} twice", net.addr()),
                ));
            }
            let place = || place(device);
            device.check(self).map_err(|what| mistake(place(), what))?;
        }
        let mut ways = BTreeSet::new();
        if self.ways.is_empty() {
            return Err(mistake("[[way]]", "there is none: from which device to which?"));
        }
        for way in &self.ways {
            let place = match way.name.as_str() {
                "" => "[[way]]".to_string(),
                name => format!("way `{name}`"),
            };
            if !ways.insert(&way.name) || (way.name.is_empty() && self.ways.len() > 1) {
                return Err(mistake(place, "each of several needs a name of its own"));
            }
            if !way.name.is_empty() && !is_name(&way.name) {
                return Err(mistake(place, "invalid name"));
            }
            for (key, name) in [("from", &way.from), ("to", &way.to)] {
                match self.device(name) {
                    None => {
                        return Err(mistake(place, format!("{key}: there is no device `{name}`")));
                    }
                    Some(device) if device.addresses.is_empty() => {
                        return Err(mistake(place, format!("{key}: device {name} has no address")));
                    }
                    Some(_) => {}
                }
            }
            let within = |name: &str| self.device(name).map(|device| device.namespace.as_str());
            let [sender, receiver] = [within(&way.from), within(&way.to)];
            if sender == receiver {
                let why = "its ends are in one namespace, where packets don't leave lo";
                return Err(mistake(place, why));
            }
            // `nft_in = "tx"` is about the sender.
            for (word, end) in [("tx", sender), ("rx", receiver)] {
                if self.namespace(word).is_some() && end != Some(word) {
                    let why = format!("namespace `{word}` is not its end; give it another name");
                    return Err(mistake(place, why));
                }
            }
        }
        Ok(())
    }
}

impl ArmTopology {
    /// Check that an arm can use it.
    ///
    /// # Errors
    /// Why not, as a sentence with what to try.
    pub fn check(&self, arm: &Arm) -> Result<(), String> {
        let ArmTopology { spec, way } = self;
        let (name, links) = (&spec.name, spec.links());
        if arm.link == Link::Lo && *self != ArmTopology::direct() {
            return Err(format!(
                "topology {name} is not supported by link lo, which has one namespace; use veth"
            ));
        }
        if arm.link.has_nics() && links > MAX_WIRES_OF_NICS {
            return Err(format!(
                "topology {name} has {links} links, and a guest has NICs for {MAX_WIRES_OF_NICS}; use link veth, or \
                 kind = \"veth\" for some of them"
            ));
        }
        for device in [&way.from, &way.to] {
            let has = |spec: &DeviceSpec| spec.address(arm.family).is_some();
            if !spec.device(device).is_some_and(has) {
                return Err(format!("topology {name} has no {} address on {device}", arm.family));
            }
        }
        if !way.at.is_empty() && !way.at.iter().any(|at| arm.family.is_of(*at)) {
            return Err(format!("topology {name}, way {} has no {} address", way.name, arm.family));
        }
        if !way.at.is_empty() && arm.proto == Proto::Raw {
            return Err(format!(
                "way {} of topology {name} leads to a published port, and protocol raw has no ports; use udp or tcp",
                way.name
            ));
        }
        Ok(())
    }
}
