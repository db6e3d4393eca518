//! Topologies: namespaces, and the devices that join a sender and a receiver, as data.
//!
//! Presets are files of the same form, in `topologies/`. docs/reference/topology.md describes the form for users.

mod check;
mod route;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use check::TopologyMistake;
pub use route::Route;

use crate::class::{Family, words};
use crate::recording::Arm;

words! {
    /// The kind of a device, as in `ip link add type KIND`.
    #[derive(Default)]
    DeviceKind, "kind of device",
    /// An end of a link, made of what the knob `link` names.
    #[default]
    Link = "link",
    /// An end of a veth pair, whatever the knob names.
    Veth = "veth",
    /// A bridge.
    Bridge = "bridge",
    /// A bond.
    Bond = "bond",
    /// A VLAN on a device.
    Vlan = "vlan",
    /// A VXLAN tunnel.
    Vxlan = "vxlan",
    /// A Geneve tunnel.
    Geneve = "geneve",
    /// A GRE tunnel, of IP packets.
    Gre = "gre",
    /// A tunnel of IP in IP.
    Ipip = "ipip",
    /// A WireGuard tunnel.
    Wireguard = "wireguard",
    /// A macvlan on a device.
    Macvlan = "macvlan",
    /// An ipvlan on a device.
    Ipvlan = "ipvlan",
    /// A device that drops what is sent.
    Dummy = "dummy",
}

impl DeviceKind {
    /// Whether it is an end of a pair.
    pub fn is_wired(self) -> bool {
        matches!(self, DeviceKind::Link | DeviceKind::Veth)
    }

    /// Whether packets over it have a MAC address of its own.
    pub fn has_mac(self) -> bool {
        !matches!(
            self,
            DeviceKind::Gre
                | DeviceKind::Ipip
                | DeviceKind::Wireguard
                | DeviceKind::Vlan
                | DeviceKind::Ipvlan
        )
    }

    /// Whether packets over it have neighbours.
    pub fn has_neighbours(self) -> bool {
        !matches!(self, DeviceKind::Gre | DeviceKind::Ipip | DeviceKind::Wireguard)
    }
}

/// Namespaces and devices, and the ways that packets may go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologySpec {
    /// What arms call it.
    #[serde(default)]
    pub name: String,
    /// A description, in a line.
    #[serde(default)]
    pub about: String,
    /// In the order in which they are made.
    #[serde(default, rename = "namespace")]
    pub namespaces: Vec<NamespaceSpec>,
    /// In the order in which they are made: links first.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceSpec>,
    /// The first one is the default.
    #[serde(default, rename = "way")]
    pub ways: Vec<TopologyWay>,
}

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Its name.
    pub name: String,
    /// Whether it forwards IP packets.
    #[serde(default)]
    pub forwards: bool,
    /// In the words of `ip route add`: `default via 198.18.1.1`, `198.18.2.0/24 dev wg0`.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// nftables rules, for `nft -f`; empty for none.
    #[serde(default)]
    pub nft: String,
    /// Sysctls, by name.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
}

/// A network device. `check.rs` has the keys that each kind takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name, which no other device of the topology has.
    pub name: String,
    /// The namespace that it is in.
    #[serde(rename = "in")]
    pub namespace: String,
    /// Its kind.
    #[serde(default)]
    pub kind: DeviceKind,
    /// The other end of a link, which one of the two names; of WireGuard, the device of the peer.
    #[serde(default)]
    pub peer: Option<String>,
    /// Its addresses, with the lengths of their prefixes.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Its MTU; none for the kernel's.
    #[serde(default)]
    pub mtu_bytes: Option<u32>,
    /// The bridge or bond that it is a port of.
    #[serde(default)]
    pub master: Option<String>,
    /// The device that it is on.
    #[serde(default)]
    pub link: Option<String>,
    /// The number of a VLAN, the network of a VXLAN or Geneve tunnel, the key of GRE.
    #[serde(default)]
    pub id: Option<u32>,
    /// The own end of a tunnel.
    #[serde(default)]
    pub local: Option<IpAddr>,
    /// The other end of a tunnel; of WireGuard, of the first handshake.
    #[serde(default)]
    pub remote: Option<IpAddr>,
    /// The UDP port of a tunnel.
    #[serde(default)]
    pub port: Option<u16>,
    /// The mode of a macvlan, ipvlan or bond.
    #[serde(default)]
    pub mode: Option<String>,
    /// The addresses behind a WireGuard peer.
    #[serde(default)]
    pub allowed: Vec<IpNet>,
    /// The root qdisc, as in `tc qdisc replace dev DEV root`; empty for the kernel's.
    #[serde(default)]
    pub qdisc: String,
}

impl DeviceSpec {
    /// Its address of a family, with the length of its prefix.
    pub fn address(&self, family: Family) -> Option<IpNet> {
        self.addresses.iter().copied().find(|address| family.is_of(address.addr()))
    }
}

/// From where to where packets are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyWay {
    /// Its name; the only one needs none.
    #[serde(default)]
    pub name: String,
    /// A description, in a line.
    #[serde(default)]
    pub about: String,
    /// The device whose address the sender has.
    pub from: String,
    /// The device whose address the receiver has.
    pub to: String,
    /// The addresses that packets are sent to, if the receiver is not reached by its own: a published port's.
    #[serde(default)]
    pub at: Vec<IpAddr>,
}

/// The topology of an arm, and the way of its packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmTopology {
    /// Namespaces and devices.
    pub spec: TopologySpec,
    /// From which device to which.
    pub way: TopologyWay,
}

impl ArmTopology {
    /// Sender and receiver on one link.
    pub fn direct() -> ArmTopology {
        // INVARIANT: a test makes all presets.
        #[allow(clippy::unwrap_used)]
        ArmTopology::preset("direct").unwrap()
    }

    /// A router between them.
    pub fn forward() -> ArmTopology {
        // INVARIANT: as above.
        #[allow(clippy::unwrap_used)]
        ArmTopology::preset("forward").unwrap()
    }

    /// The first way of a preset.
    pub fn preset(name: &str) -> Option<ArmTopology> {
        let spec = TopologySpec::preset(name)?;
        let way = spec.ways.first()?.clone();
        Some(ArmTopology { spec, way })
    }

    /// The topology of an arm: one of these, or a preset.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn from_arm(arm: &Arm, own: &[TopologySpec]) -> Result<ArmTopology, String> {
        let level = match arm.knobs.get("topology") {
            Some(level) => level.as_str(),
            None if arm.forward => "forward",
            None if arm.is_on("bridge") => "bridge",
            None => "direct",
        };
        let (name, way) = name_and_way(level);
        let found = own.iter().find(|spec| spec.name == name).cloned();
        let spec = found.or_else(|| TopologySpec::preset(name)).ok_or_else(|| {
            let own = own.iter().map(|spec| spec.name.clone());
            let known: Vec<String> = own.chain(presets().map(String::from)).collect();
            format!(
                "unknown topology `{}`; expected a file, like office.toml, or one of {}",
                name.chars().take(80).collect::<String>(),
                known.join(", ")
            )
        })?;
        let way = spec.way(way)?.clone();
        Ok(ArmTopology { spec, way })
    }

    /// The device of the sender.
    pub fn sender(&self) -> Option<&DeviceSpec> {
        self.spec.device(&self.way.from)
    }

    /// The device of the receiver.
    pub fn receiver(&self) -> Option<&DeviceSpec> {
        self.spec.device(&self.way.to)
    }
}

impl Family {
    /// Whether an address belongs to it.
    pub fn is_of(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Family::V4)
    }
}

/// The presets, by name.
const PRESETS: &[(&str, &str)] = &[
    ("direct", include_str!("../topologies/direct.toml")),
    ("forward", include_str!("../topologies/forward.toml")),
    ("bridge", include_str!("../topologies/bridge.toml")),
    ("container", include_str!("../topologies/container.toml")),
    ("vlan", include_str!("../topologies/vlan.toml")),
    ("vxlan", include_str!("../topologies/vxlan.toml")),
    ("geneve", include_str!("../topologies/geneve.toml")),
    ("gre", include_str!("../topologies/gre.toml")),
    ("ipip", include_str!("../topologies/ipip.toml")),
    ("wireguard", include_str!("../topologies/wireguard.toml")),
    ("macvlan", include_str!("../topologies/macvlan.toml")),
    ("ipvlan", include_str!("../topologies/ipvlan.toml")),
    ("bond", include_str!("../topologies/bond.toml")),
];
/// Maximum size of a topology's file.
pub const MAX_TOPOLOGY_BYTES: u64 = 1 << 20;
/// The separator of a topology's name and a way's.
const BETWEEN: char = ':';

/// The names of the presets, in the order in which they are listed.
pub fn presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a preset's file.
pub fn preset_text(name: &str) -> Option<&'static str> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// The name of a topology, or its file, and the name of its way, if that is named: `container:in`.
pub fn name_and_way(level: &str) -> (&str, &str) {
    let split = level.rsplit_once(BETWEEN).filter(|(_, way)| !way.contains('/'));
    split.unwrap_or((level, ""))
}

/// Whether a level of the knob names a file.
pub fn is_file(level: &str) -> bool {
    name_and_way(level).0.ends_with(".toml")
}

impl TopologySpec {
    /// Parse and check a topology's file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(name: &str, text: &str) -> Result<TopologySpec, String> {
        let parsed: Result<TopologySpec, _> = toml::from_str(text);
        let mut spec = parsed.map_err(|error| error.to_string().trim_end().to_string())?;
        spec.name = name.into();
        spec.check().map_err(|mistake| mistake.to_string())?;
        Ok(spec)
    }

    /// A preset.
    pub fn preset(name: &str) -> Option<TopologySpec> {
        // INVARIANT: a test parses all of them.
        #[allow(clippy::unwrap_used)]
        preset_text(name).map(|text| TopologySpec::parse(name, text).unwrap())
    }

    /// As the text of a file.
    pub fn to_toml(&self) -> String {
        // Tables of words and numbers: nothing that TOML lacks.
        toml::to_string(self).unwrap_or_default()
    }

    /// A way by its name; the first one without a name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn way(&self, name: &str) -> Result<&TopologyWay, String> {
        let found = match name {
            "" => self.ways.first(),
            name => self.ways.iter().find(|way| way.name == name),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.ways.iter().map(|way| way.name.as_str()).collect();
            format!(
                "topology {} has no way `{}`; it has {}",
                self.name,
                name.chars().take(80).collect::<String>(),
                known.join(", ")
            )
        })
    }

    /// A device by its name.
    pub fn device(&self, name: &str) -> Option<&DeviceSpec> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// A namespace by its name.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceSpec> {
        self.namespaces.iter().find(|namespace| namespace.name == name)
    }

    /// The pairs of devices that are connected, in order: the end that names the other one first.
    pub fn wires(&self) -> impl Iterator<Item = (&DeviceSpec, &DeviceSpec)> {
        let wired = self.devices.iter().filter(|device| device.kind.is_wired());
        wired.filter_map(|one| Some((one, self.device(one.peer.as_deref()?)?)))
    }

    /// How many pairs are made of what the knob `link` names.
    pub fn links(&self) -> usize {
        self.wires().filter(|(one, _)| one.kind == DeviceKind::Link).count()
    }

    /// The segment of each device, in their order: devices of one number reach each other by MAC addresses.
    pub fn segments(&self) -> Vec<usize> {
        let mut of: Vec<usize> = (0..self.devices.len()).collect();
        let position = |name: &str| self.devices.iter().position(|device| device.name == name);
        let join = |of: &mut Vec<usize>, one: usize, other: usize| {
            let (from, to) = (of[one], of[other]);
            of.iter_mut().filter(|segment| **segment == from).for_each(|segment| *segment = to);
        };
        for (n, device) in self.devices.iter().enumerate() {
            let peer = device.peer.as_deref().filter(|_| device.kind.is_wired());
            for other in peer.into_iter().chain(device.master.as_deref()).filter_map(position) {
                join(&mut of, n, other);
            }
        }
        // What is on a device comes after it.
        let mut overlays: Vec<(DeviceKind, Option<u32>, Option<usize>, usize)> = Vec::new();
        for (n, device) in self.devices.iter().enumerate() {
            let lower = device.link.as_deref().and_then(position);
            match device.kind {
                DeviceKind::Macvlan | DeviceKind::Ipvlan => {
                    lower.into_iter().for_each(|lower| join(&mut of, n, lower));
                }
                DeviceKind::Vlan | DeviceKind::Vxlan | DeviceKind::Geneve => {
                    // VLANs of a segment, and tunnels of a number.
                    let below = (device.kind == DeviceKind::Vlan).then(|| lower.map(|l| of[l]));
                    let key = (device.kind, device.id, below.flatten());
                    let same = overlays.iter().find(|known| (known.0, known.1, known.2) == key);
                    if let Some((.., first)) = same.copied() {
                        join(&mut of, n, first);
                    }
                    overlays.push((key.0, key.1, key.2, n));
                }
                _ => {}
            }
        }
        of
    }

    /// Whether tunnels are over a family.
    pub fn has_tunnels_of(&self, family: Family) -> bool {
        let ends = self.devices.iter().flat_map(|d| [d.local, d.remote]);
        ends.flatten().any(|end| family.is_of(end))
    }

    /// Whether its kernel has to have more than pairs of devices and bridges, which may be in modules.
    pub fn needs_requests(&self) -> bool {
        let plain = |kind: DeviceKind| kind.is_wired() || kind == DeviceKind::Bridge;
        self.has_rules() || self.devices.iter().any(|device| !plain(device.kind))
    }

    /// Whether a namespace has rules.
    pub fn has_rules(&self) -> bool {
        self.namespaces.iter().any(|namespace| !namespace.nft.is_empty())
    }

    /// Whether it has a bridge.
    pub fn has_bridge(&self) -> bool {
        self.devices.iter().any(|device| device.kind == DeviceKind::Bridge)
    }
}

#[cfg(test)]
mod tests;
