//! Topologies: namespaces, links and addresses.
//!
//! Two ends, or two ends with a router or a bridge in between. Neighbours are permanent, and router
//! solicitations and duplicate address detection of IPv6 are off, so that only the workload's
//! packets are on the link.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::{NicSettings, Within};
use netplumb_model::hosts::Side;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::sysctl;

use super::names::Names;
use super::plan::{Doing, Nic, Refusal, TopologyError, TopologyPlan, prefix_len};
use super::wire::{End, nap, until, wire, wire_to_other_host};
use super::{nft, nic, offload, qdisc};

/// Time for devices and IPv6 to settle before anything is measured.
const SETTLE: Duration = Duration::from_secs(3);

/// The ends' devices, and the router's to the receiver.
const TX_DEVICE: &str = "tx0";
const RX_DEVICE: &str = "rx0";
const ROUTER_DEVICE: &str = "r1";
/// Ports of the bridge, towards the sender and the receiver.
const PORTS: [&str; 2] = ["b0", "b1"];

/// A topology that is set up.
#[derive(Debug)]
pub struct Topology {
    /// The sender's namespace.
    pub tx: Namespace,
    /// The receiver's namespace.
    pub rx: Namespace,
    /// The router's namespace, if there is one.
    pub router: Option<Namespace>,
    /// The bridge's namespace, if there is one.
    pub bridge: Option<Namespace>,
    /// Address of the sender.
    pub tx_address: IpAddr,
    /// Address of the receiver.
    pub rx_address: IpAddr,
    /// Notes on knobs, by name.
    pub notes: BTreeMap<String, String>,
    /// The names of the namespaces, if they have any.
    pub names: Option<Names>,
    /// Which of two hosts it belongs to: both ends are the same then.
    pub host: Option<Side>,
}

impl Topology {
    /// Set up a topology on this machine, with names. What killed runs left behind is not removed:
    /// see [`super::names::sweep`].
    ///
    /// # Errors
    /// What failed, and the system's reason; nothing is left behind.
    pub fn build_named(plan: &TopologyPlan) -> Result<Topology, TopologyError> {
        let names = Names::new().doing(|| "write the journal of namespaces".into())?;
        let mut topology = Topology::join(plan, &[], Some(names))?;
        topology.apply(plan)?;
        Ok(topology)
    }

    /// Set up a topology in a guest. `nics` are the guest's, for links that need some.
    ///
    /// # Errors
    /// What failed, and the system's reason.
    pub fn build(plan: &TopologyPlan, nics: &[Nic]) -> Result<Topology, TopologyError> {
        let mut topology = Topology::join(plan, nics, None)?;
        topology.apply(plan)?;
        if plan.link != Link::Lo {
            std::thread::sleep(SETTLE);
        }
        Ok(topology)
    }

    /// Whether a topology can be changed into another one. One with changed settings can't: they
    /// would remain.
    pub fn can_become(standing: &TopologyPlan, wanted: &TopologyPlan) -> bool {
        let plain = TopologyPlan {
            sysctl: BTreeMap::new(),
            offload: BTreeMap::new(),
            nics: Default::default(),
            nft: None,
            qdisc: None,
            ..wanted.clone()
        };
        *standing == plain && !wanted.sysctl.keys().any(|key| acts_on_creation(key))
    }

    /// Change it to a plan that it [can become](Self::can_become).
    ///
    /// # Errors
    /// What failed, and the system's reason.
    pub fn change(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        for namespace in self.all() {
            change_settings(namespace, &plan.sysctl)?;
        }
        self.apply(plan)?;
        if !plan.offload.is_empty() || plan.nics.iter().any(|nic| !nic.is_empty()) {
            // The link may have been down, and needs the same time as at first.
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    /// Apply the offloads and the rules, which need the devices.
    fn apply(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        let mut notes = BTreeMap::new();
        let of_nics = self.nics(plan);
        if !plan.offload.is_empty() || !of_nics.is_empty() {
            for namespace in self.all().into_iter().filter(|_| !plan.offload.is_empty()) {
                let offload_notes = namespace
                    .inside(|| offload::set_all(&plan.offload, plan.link == Link::Lo))
                    .doing(|| "set offloads".into())?;
                notes.extend(offload_notes);
            }
            for (namespace, settings) in of_nics {
                let nic_notes = nic::set_all(namespace, settings, plan.link == Link::Lo);
                notes.extend(nic_notes.doing(|| "set up the NIC".into())?);
            }
            // Some drivers take the link down for that.
            let nap = nap(self.names.is_some());
            for namespace in self.all() {
                namespace
                    .inside(|| until(|| Netlink::open()?.all_ready(plan.link), nap, "no carrier"))
                    .doing(|| "bring the link up again".into())?;
            }
        }
        if let Some((ruleset, text)) = &plan.nft {
            for (namespace, _) in self.within(ruleset.within, plan.link) {
                let (rules, elements) = namespace
                    .inside(|| nft::apply(text, ruleset.expected()))
                    .doing(|| "apply the nft rules".into())?;
                notes.insert("nft.rules".into(), rules.to_string());
                notes.insert("nft.set_elements".into(), elements.to_string());
            }
        }
        if let Some(qdisc) = &plan.qdisc {
            for (namespace, device) in self.within(qdisc.within, plan.link) {
                let note = namespace
                    .inside(|| qdisc::apply(qdisc, device))
                    .doing(|| format!("set the queueing discipline of {device}"))?;
                notes.insert(format!("qdisc.{device}"), note);
            }
        }
        self.notes = notes;
        Ok(())
    }

    /// The ends whose devices have settings, with these.
    fn nics<'a>(&'a self, plan: &'a TopologyPlan) -> Vec<(&'a Namespace, &'a NicSettings)> {
        let [tx, rx] = &plan.nics;
        let ends = match self.host {
            // Both namespaces are the same one.
            Some(Side::Tx) => vec![(&self.tx, tx)],
            Some(Side::Rx) => vec![(&self.tx, rx)],
            None if plan.link == Link::Lo => vec![(&self.tx, tx)],
            None => vec![(&self.tx, tx), (&self.rx, rx)],
        };
        let set = ends.into_iter().filter(|(_, settings)| !settings.is_empty());
        set.collect()
    }

    /// The namespaces of a place, each with the device of its egress; for the router and the bridge
    /// the one towards the receiver.
    fn within(&self, within: Within, link: Link) -> Vec<(&Namespace, &'static str)> {
        let lo = link == Link::Lo;
        let tx = (&self.tx, if lo { "lo" } else { TX_DEVICE });
        let rx = (&self.rx, if lo { "lo" } else { RX_DEVICE });
        match within {
            Within::Tx => vec![tx],
            Within::Rx => vec![rx],
            // On lo they are the same.
            Within::Both if lo => vec![tx],
            Within::Both => vec![tx, rx],
            Within::Router => self.router.iter().map(|r| (r, ROUTER_DEVICE)).collect(),
            Within::Bridge => self.bridge.iter().map(|b| (b, PORTS[1])).collect(),
        }
    }

    /// A device that was removed meanwhile, and the end that had it.
    pub fn gone(&self, link: Link) -> Option<String> {
        let lost = |end: &str, namespace: &Namespace, names: &[&str]| {
            let devices = namespace.inside(|| Netlink::open()?.devices()).ok()?;
            let gone = |name: &&&str| !devices.iter().any(|d| d.name == **name);
            let name = names.iter().find(gone)?;
            Some(format!("the device {name} of the {end}"))
        };
        if link == Link::Lo {
            return None;
        }
        let router = self.router.as_ref();
        lost("sender", &self.tx, &[TX_DEVICE])
            .or_else(|| lost("receiver", &self.rx, &[RX_DEVICE]))
            .or_else(|| lost("router", router?, &["r0", ROUTER_DEVICE]))
            .or_else(|| lost("bridge", self.bridge.as_ref()?, &[PORTS[0], PORTS[1], "br0"]))
    }

    /// All its namespaces.
    pub fn all(&self) -> Vec<&Namespace> {
        [&self.tx, &self.rx]
            .into_iter()
            .take(if self.host.is_some() { 1 } else { 2 })
            .chain(&self.router)
            .chain(&self.bridge)
            .collect()
    }

    fn join(
        plan: &TopologyPlan,
        nics: &[Nic],
        mut names: Option<Names>,
    ) -> Result<Topology, TopologyError> {
        let mut new = |end: &str| {
            let made = Namespace::new().and_then(|namespace| {
                if let Some(names) = &mut names {
                    names.give(end, &namespace)?;
                }
                Ok(namespace)
            });
            made.doing(|| "make a network namespace".into())
        };
        let tx = new("tx")?;
        prepare(&tx, plan, false)?;
        if plan.link == Link::Lo {
            let rx = tx.try_clone().doing(|| "open a network namespace".into())?;
            let rx = Namespace::from(rx);
            let address: IpAddr = match plan.family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            };
            return Ok(Topology {
                tx,
                rx,
                router: None,
                bridge: None,
                tx_address: address,
                rx_address: address,
                notes: BTreeMap::new(),
                names,
                host: None,
            });
        }
        if let Some(side) = plan.host {
            return Topology::one_end(tx, plan, side, nics);
        }

        let rx = new("rx")?;
        prepare(&rx, plan, false)?;
        let middle = match (plan.forward, plan.bridge) {
            (true, _) => Some(new("router")?),
            (_, true) => Some(new("bridge")?),
            _ => None,
        };
        let on_machine = names.is_some();
        let address = |net, host| address(plan.family, net, host);
        let end = |namespace, name, address| End { namespace, name, address };
        let tx_end = end(&tx, TX_DEVICE, Some(address(1, 1)));
        let (rx_address, router, bridge) = match middle {
            Some(router) if plan.forward => {
                prepare(&router, plan, true)?;
                let near = end(&router, "r0", Some(address(1, 2)));
                let far = end(&router, ROUTER_DEVICE, Some(address(2, 2)));
                let rx_end = end(&rx, RX_DEVICE, Some(address(2, 1)));
                wire(plan, nics.get(..2), on_machine, &tx_end, &near)?;
                wire(plan, nics.get(2..4), on_machine, &far, &rx_end)?;
                for (namespace, net, gateway) in [(&tx, 2, address(1, 2)), (&rx, 1, address(2, 2))]
                {
                    let to = address(net, 0);
                    namespace
                        .inside(|| Netlink::open()?.add_route(to, prefix_len(plan.family), gateway))
                        .doing(|| format!("route to {to}"))?;
                }
                (address(2, 1), Some(router), None)
            }
            Some(bridge) => {
                prepare(&bridge, plan, false)?;
                let near = end(&bridge, PORTS[0], None);
                let far = end(&bridge, PORTS[1], None);
                let rx_end = end(&rx, RX_DEVICE, Some(address(1, 2)));
                wire(plan, nics.get(..2), on_machine, &tx_end, &near)?;
                wire(plan, nics.get(2..4), on_machine, &far, &rx_end)?;
                bridge.inside(|| make_bridge(&PORTS)).doing(|| "make a bridge".into())?;
                neighbours(&tx_end, &rx_end)?;
                (address(1, 2), None, Some(bridge))
            }
            None => {
                let rx_end = end(&rx, RX_DEVICE, Some(address(1, 2)));
                wire(plan, nics.get(..2), on_machine, &tx_end, &rx_end)?;
                (address(1, 2), None, None)
            }
        };
        Ok(Topology {
            tx,
            rx,
            router,
            bridge,
            tx_address: address(1, 1),
            rx_address,
            notes: BTreeMap::new(),
            names,
            host: None,
        })
    }

    /// The end of one of two hosts: `nics` has the NICs of both, the sender's first.
    fn one_end(
        namespace: Namespace,
        plan: &TopologyPlan,
        side: Side,
        nics: &[Nic],
    ) -> Result<Topology, TopologyError> {
        let again = namespace.try_clone().doing(|| "open a network namespace".into())?;
        let addresses = [address(plan.family, 1, 1), address(plan.family, 1, 2)];
        let [tx_nic, rx_nic] = nics else {
            return Err(TopologyError {
                what: format!("wire {}", plan.link),
                source: io::Error::other("the machine has too few NICs"),
            });
        };
        let (name, own, peer) = match side {
            Side::Tx => (TX_DEVICE, (tx_nic, addresses[0]), (rx_nic, addresses[1])),
            Side::Rx => (RX_DEVICE, (rx_nic, addresses[1]), (tx_nic, addresses[0])),
        };
        let end = End { namespace: &namespace, name, address: Some(own.1) };
        wire_to_other_host(plan, &end, own.0, (peer.1, peer.0))?;
        Ok(Topology {
            tx: namespace,
            rx: Namespace::from(again),
            router: None,
            bridge: None,
            tx_address: addresses[0],
            rx_address: addresses[1],
            notes: BTreeMap::new(),
            names: None,
            host: Some(side),
        })
    }
}

/// Neighbour entries for the ends of a bridge, which are on different wires. The sender's entry is
/// the last, as on a wire.
fn neighbours(one: &End<'_>, other: &End<'_>) -> Result<(), TopologyError> {
    for (end, peer) in [(other, one), (one, other)] {
        let mac = (peer.namespace)
            .inside(|| {
                let devices = Netlink::open()?.devices()?;
                let device = devices.into_iter().find(|d| d.name == peer.name);
                Ok(device.map(|d| d.mac).unwrap_or_default())
            })
            .doing(|| format!("find {}", peer.name))?;
        if let (Some(address), Ok(mac)) = (peer.address, <[u8; 6]>::try_from(mac)) {
            end.namespace
                .inside(|| {
                    let mut netlink = Netlink::open()?;
                    let devices = netlink.devices()?;
                    let own = devices.iter().find(|d| d.name == end.name);
                    own.map_or(Ok(()), |own| netlink.add_neighbour(own.index, address, mac))
                })
                .doing(|| format!("add the neighbour entry of {}", end.name))?;
        }
    }
    Ok(())
}

fn make_bridge(ports: &[&str]) -> io::Result<()> {
    const NAME: &str = "br0";
    let mut netlink = Netlink::open()?;
    netlink.add_bridge(NAME)?;
    let devices = netlink.devices()?;
    let index = |name: &str| {
        let found = devices.iter().find(|d| d.name == name);
        found
            .map(|d| d.index)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} is gone")))
    };
    let bridge = index(NAME)?;
    for port in ports {
        netlink.set_bridge(index(port)?, bridge)?;
    }
    netlink.set_up(bridge, None)
}

fn address(family: Family, net: u8, host: u8) -> IpAddr {
    match family {
        // 198.18.0.0/15 is for benchmarks (RFC 2544, RFC 6890).
        Family::V4 => Ipv4Addr::new(198, 18, net, host).into(),
        // So is 2001:2::/48 (RFC 5180).
        Family::V6 => Ipv6Addr::new(0x2001, 2, 0, net.into(), 0, 0, 0, host.into()).into(),
    }
}

/// Bring up loopback, set forwarding, disable background traffic, and apply the plan's settings
/// last.
fn prepare(namespace: &Namespace, plan: &TopologyPlan, router: bool) -> Result<(), TopologyError> {
    let on = |b| if b { "1" } else { "0" };
    let v6 = plan.family == Family::V6;
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            for device in netlink.devices()? {
                netlink.set_up(device.index, None)?;
            }
            // A kernel without IPv6 lacks these, and has no such traffic.
            for (key, value) in [
                ("net.ipv6.conf.all.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.accept_ra", "0"),
                ("net.ipv6.conf.default.accept_dad", "0"),
                ("net.ipv6.conf.default.router_solicitations", "0"),
                ("net.ipv6.conf.all.forwarding", on(v6 && router)),
                ("net.ipv4.ip_forward", on(!v6 && router)),
            ] {
                match sysctl::set(key, value) {
                    Err(e) if !v6 && e.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
            Ok(())
        })
        .doing(|| "prepare a network namespace".into())?;
    change_settings(namespace, &plan.sysctl)
}

fn change_settings(
    namespace: &Namespace,
    settings: &BTreeMap<String, String>,
) -> Result<(), TopologyError> {
    for (key, value) in settings {
        sysctl::set_anywhere(namespace, key, value)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::Unsupported => {
                    Refusal::NotTaken(error.to_string()).into()
                }
                ErrorKind::InvalidInput => Refusal::Asked(error.to_string()).into(),
                _ => error,
            })
            .doing(|| format!("set {key} to `{value}`"))?;
    }
    Ok(())
}

/// Whether a setting only affects devices that are created later.
fn acts_on_creation(key: &str) -> bool {
    key.split('.').any(|word| word == "default") || key == "net.core.default_qdisc"
}
