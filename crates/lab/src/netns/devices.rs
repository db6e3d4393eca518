//! The devices of a topology: pairs, then devices on them, in the order of the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use ipnet::IpNet;
use netplumb_model::class::Family;
use netplumb_model::topology::{DeviceKind, DeviceSpec};
use netplumb_sys::links::DeviceState;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::wireguard::{WireguardEnd, WireguardKey};

use super::making::{Making, Namespaces, find};
use super::plan::{Doing, Nic, TopologyError, TopologyPlan};
use super::wire::{configure, nap, until, wire};

/// Make all devices of a plan, with their addresses, neighbours and routes.
pub(super) fn make(
    plan: &TopologyPlan,
    namespaces: &Namespaces,
    nics: &[Nic],
    on_machine: bool,
) -> Result<(), TopologyError> {
    let macs = macs(plan);
    let making = Making { plan, namespaces, on_machine, macs };
    let mut nics = nics.chunks_exact(2);
    for (number, (one, other)) in plan.topology.spec.wires().enumerate() {
        let pair = (one.kind == DeviceKind::Link && plan.link.has_nics()).then(|| nics.next());
        wire(&making, number as u32, pair.flatten(), one, other)?;
    }
    for device in plan.topology.spec.devices.iter().filter(|device| !device.kind.is_wired()) {
        making.device(device)?;
    }
    making.wireguard()?;
    making.neighbours()?;
    for spec in &plan.topology.spec.namespaces {
        let namespace = making.namespace(&spec.name)?;
        for route in &spec.routes {
            for family in [Family::V4, Family::V6] {
                if plan.uses(family) && route.family().is_none_or(|of| of == family) {
                    namespace
                        .inside(|| Netlink::open()?.add_topology_route(route, family))
                        .doing(|| format!("add the route `{route}` of namespace {}", spec.name))?;
                }
            }
        }
    }
    Ok(())
}

/// Locally administered MAC addresses of the devices that have some: from the address, or a number.
fn macs(plan: &TopologyPlan) -> BTreeMap<&str, [u8; 6]> {
    let mut macs = BTreeMap::new();
    let mut taken = BTreeSet::new();
    let mut without = 0..=u8::MAX;
    for device in plan.topology.spec.devices.iter().filter(|device| device.kind.has_mac()) {
        let is_bridge = device.kind == DeviceKind::Bridge;
        let of_address = device.address(plan.family).map(|net| match net.addr() {
            std::net::IpAddr::V4(v4) => {
                let [.., net, host] = v4.octets();
                [0x02, 0x4e, 0x50, 4, net, host]
            }
            std::net::IpAddr::V6(v6) => {
                let octets = v6.octets();
                [0x02, 0x4e, 0x50, 6, octets[7], octets[15]]
            }
        });
        let mac = match of_address.filter(|mac| !taken.contains(mac)) {
            Some(mac) => mac,
            // It has its ports'.
            None if is_bridge => continue,
            None => [0x02, 0x4e, 0x50, 0xb, 0, b'0'.wrapping_add(without.next().unwrap_or(0))],
        };
        taken.insert(mac);
        macs.insert(device.name.as_str(), mac);
    }
    macs
}

/// The private key of a device, from its name: the same in every run, and no secret.
fn private_key(name: &str) -> WireguardKey {
    let mut key = [0x4e; 32];
    for (at, byte) in name.bytes().enumerate() {
        key[at % key.len()] ^= byte.rotate_left(at as u32 % 8);
    }
    key
}

impl Making<'_> {
    fn state(&self, device: &DeviceSpec) -> Result<DeviceState, TopologyError> {
        let namespace = self.namespace(&device.namespace)?;
        let state = namespace.inside(|| find(&mut Netlink::open()?, &device.name));
        state.doing(|| format!("find {}", device.name))
    }

    /// Create a virtual device, with its ports, bring it up, and give it its addresses.
    fn device(&self, device: &DeviceSpec) -> Result<(), TopologyError> {
        let name = &device.name;
        let namespace = self.namespace(&device.namespace)?;
        let spec = &self.plan.topology.spec;
        let lower = device.link.as_deref().and_then(|lower| spec.device(lower));
        let index = lower.map(|lower| self.state(lower)).transpose()?.map(|lower| lower.index);
        // It is made where its lower device is.
        let at = lower.map_or(Ok(namespace), |lower| self.namespace(&lower.namespace))?;
        let other = (lower.is_some_and(|lower| lower.namespace != device.namespace))
            .then(|| namespace.as_fd());
        let mac = self.macs.get(name.as_str()).copied();
        at.inside(|| Netlink::open()?.add_virtual(device, mac, index, other))
            .map_err(without_kind(device.kind))
            .doing(|| format!("make {name}, a device of kind {}", device.kind))?;
        let index = self.state(device)?.index;
        // Ports that are made later join it then.
        let at = spec.devices.iter().position(|known| known.name == *name).unwrap_or(0);
        let exists = |(n, port): &(usize, &DeviceSpec)| port.kind.is_wired() || *n < at;
        let ports = spec.devices.iter().enumerate().filter(exists).map(|(_, port)| port);
        for port in ports.filter(|port| port.master.as_ref() == Some(name)) {
            self.join(port, device, index)?;
        }
        let master = device.master.as_deref().and_then(|master| spec.device(master));
        let is_later = |master: &&DeviceSpec| {
            spec.devices.iter().position(|known| known.name == master.name) < Some(at)
        };
        if let Some(master) = master.filter(is_later) {
            self.join(device, master, self.state(master)?.index)?;
        }
        configure(self.plan, namespace, device)?;
        if device.kind == DeviceKind::Bridge {
            self.forwarding(device)?;
        }
        let nap = nap(self.on_machine);
        let ready = || Ok(find(&mut Netlink::open()?, name)?.running);
        // Without ports a bridge has no carrier, which is no mistake.
        match device.kind {
            DeviceKind::Bridge if device.address(self.plan.family).is_none() => Ok(()),
            _ => namespace
                .inside(|| until(ready, nap, "no carrier"))
                .doing(|| format!("bring {name} up")),
        }
    }

    /// Make a device a port of a bridge or bond.
    fn join(
        &self,
        port: &DeviceSpec,
        master: &DeviceSpec,
        index: u32,
    ) -> Result<(), TopologyError> {
        let namespace = self.namespace(&port.namespace)?;
        let at = self.state(port)?.index;
        // bond_enslave() in drivers/net/bonding/bond_main.c takes none that is up, and brings it up.
        let is_free = match master.kind {
            DeviceKind::Bond => namespace.set_down(at),
            _ => Ok(()),
        };
        is_free
            .and_then(|()| namespace.set_bridge(at, Some(index)))
            .doing(|| format!("make {} a port of {}", port.name, master.name))
    }

    /// Forwarding entries of a bridge, for the devices at the other ends of its ports: neighbours are permanent, so that no
    /// ARP would make them, and without them it would send copies to all ports. With two ports there is no choice.
    fn forwarding(&self, bridge: &DeviceSpec) -> Result<(), TopologyError> {
        let spec = &self.plan.topology.spec;
        let is_port = |device: &DeviceSpec| device.master.as_ref() == Some(&bridge.name);
        if spec.devices.iter().filter(|device| is_port(device)).count() < 3
            && bridge.addresses.is_empty()
        {
            return Ok(());
        }
        let namespace = self.namespace(&bridge.namespace)?;
        let wires = spec.wires().flat_map(|(one, other)| [(one, other), (other, one)]);
        for (port, end) in wires.filter(|(port, _)| is_port(port)) {
            let Ok(mac) = <[u8; 6]>::try_from(self.state(end)?.mac) else { continue };
            let port_index = self.state(port)?.index;
            namespace
                .inside(|| Netlink::open()?.add_forwarding(port_index, mac))
                .doing(|| format!("add the forwarding entry of {}", port.name))?;
        }
        Ok(())
    }

    /// Give WireGuard's devices their keys, and each the public one of its peer.
    fn wireguard(&self) -> Result<(), TopologyError> {
        let devices = || {
            let devices = self.plan.topology.spec.devices.iter();
            devices.filter(|device| device.kind == DeviceKind::Wireguard)
        };
        let mut public_keys = BTreeMap::new();
        for device in devices() {
            let namespace = self.namespace(&device.namespace)?;
            let (key, port) = (private_key(&device.name), device.port.unwrap_or_default());
            let public = namespace.set_wireguard(&device.name, key, port);
            let public = public.doing(|| format!("set the key of {}", device.name))?;
            public_keys.insert(device.name.as_str(), public);
        }
        for device in devices() {
            let peer = device.peer.as_deref().and_then(|peer| self.plan.topology.spec.device(peer));
            let Some((peer, key)) = peer.and_then(|p| Some((p, public_keys.get(p.name.as_str())?)))
            else {
                continue;
            };
            let endpoint = device.remote.zip(peer.port).map(SocketAddr::from);
            let allowed = device.allowed.clone();
            let end = WireguardEnd { public_key: *key, endpoint, allowed };
            self.namespace(&device.namespace)?
                .add_wireguard_end(&device.name, &end)
                .doing(|| format!("set the peer of {}", device.name))?;
        }
        Ok(())
    }

    /// Neighbour entries for devices that reach each other by MAC addresses, except for the ones that their wire made. The
    /// sender's entry is the last, as on a wire.
    fn neighbours(&self) -> Result<(), TopologyError> {
        let spec = &self.plan.topology.spec;
        let segments = spec.segments();
        let reached: Vec<(&DeviceSpec, usize)> = (spec.devices.iter().zip(segments))
            .filter(|(device, _)| device.kind.has_neighbours())
            .collect();
        let mut pairs = Vec::new();
        for (number, (one, segment)) in reached.iter().enumerate() {
            for (other, of) in &reached[number + 1..] {
                if one.namespace != other.namespace && segment == of {
                    pairs.extend([(*other, *one), (*one, *other)]);
                }
            }
        }
        for (device, peer) in pairs {
            let made = peer.address(self.plan.family).filter(|_| {
                let ends = [&device.name, &peer.name];
                let wired = |(one, other): (&DeviceSpec, &DeviceSpec)| {
                    ends.contains(&&one.name) && ends.contains(&&other.name)
                };
                device.address(self.plan.family).is_some() && spec.wires().any(wired)
            });
            let is_shared = |net: &&IpNet| {
                let own = device.addresses.iter().any(|own| own.trunc() == net.trunc());
                own && self.plan.has(net.addr()) && Some(**net) != made
            };
            let shared: Vec<&IpNet> = peer.addresses.iter().filter(is_shared).collect();
            if shared.is_empty() {
                continue;
            }
            let (own, other) = (self.state(device)?, self.state(peer)?);
            let Ok(mac) = <[u8; 6]>::try_from(other.mac) else { continue };
            let namespace = self.namespace(&device.namespace)?;
            for net in shared {
                namespace
                    .inside(|| Netlink::open()?.add_neighbour(own.index, net.addr(), mac))
                    .doing(|| format!("add the neighbour entry of {}", device.name))?;
            }
        }
        Ok(())
    }
}

/// The error of a kernel without a kind of device.
fn without_kind(kind: DeviceKind) -> impl Fn(io::Error) -> io::Error {
    move |error| match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel has no devices of kind {kind}, or lacks their module"),
        ),
        _ => error,
    }
}
