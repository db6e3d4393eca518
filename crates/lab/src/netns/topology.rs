//! Who is joined to whom, by what, under which addresses.
//!
//! Two ends `a` and `b`, or `a` - `r` - `b` with a router between. Neighbours
//! are permanent and IPv6 chatter (router solicitations, duplicate address
//! detection) is off, so that nothing but the workload's packets is on the wire.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use netplumb_model::class::{Family, Link};
use netplumb_model::experiment::{NftIn, Offload, Ruleset};

use super::netlink::{Device, Netlink};
use super::settings::{set_anywhere, set_sysctl};
use super::{Namespace, nft, offload};

/// How long a device may take to appear or to see its carrier, guest time.
const PATIENCE: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(50);
/// Left to the devices and to IPv6 before anything is measured.
const SETTLE: Duration = Duration::from_secs(3);

/// What kind of topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyPlan {
    /// What joins the ends.
    pub link: Link,
    /// Which IP: the other version stays off.
    pub family: Family,
    /// Whether a router stands between.
    pub forward: bool,
    /// MTU of every device, if not its own.
    pub mtu_bytes: Option<u32>,
    /// Settings below /proc/sys for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path.
    pub offload: BTreeMap<Offload, bool>,
    /// Rules of nftables, their place, and their text.
    pub nft: Option<(Ruleset, String)>,
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
    what: String,
    source: io::Error,
}

trait Doing<T> {
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

/// A topology that stands.
#[derive(Debug)]
pub struct Topology {
    /// Where the sender is.
    pub tx: Namespace,
    /// Where the receiver is.
    pub rx: Namespace,
    /// The router between, if there is one.
    pub router: Option<Namespace>,
    /// Address of the sender.
    pub tx_address: IpAddr,
    /// Address of the receiver.
    pub rx_address: IpAddr,
    /// What came of the knobs, by name, where there is something to say.
    pub notes: BTreeMap<String, String>,
}

/// One end of a wire: in which namespace, at which address.
struct End<'a> {
    namespace: &'a Namespace,
    name: &'static str,
    address: IpAddr,
}

impl Topology {
    /// Build what is planned. `nics` are the machine's, for links that need some.
    ///
    /// # Errors
    /// What could not be done, and the system's reason.
    pub fn build(plan: &TopologyPlan, nics: &[Nic]) -> Result<Topology, TopologyError> {
        let mut topology = Topology::join(plan, nics)?;
        topology.apply(plan)?;
        if plan.link != Link::Lo {
            std::thread::sleep(SETTLE);
        }
        Ok(topology)
    }

    /// Whether a topology that stands as planned can be changed into another one. One
    /// with settings of its own can't: they would stay.
    pub fn can_become(standing: &TopologyPlan, wanted: &TopologyPlan) -> bool {
        let plain = TopologyPlan {
            sysctl: BTreeMap::new(),
            offload: BTreeMap::new(),
            nft: None,
            ..wanted.clone()
        };
        *standing == plain && !wanted.sysctl.keys().any(|key| acts_on_creation(key))
    }

    /// Change one that [can become](Self::can_become) what is planned.
    ///
    /// # Errors
    /// What could not be done, and the system's reason.
    pub fn change(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        for namespace in self.all() {
            change_settings(namespace, &plan.sysctl)?;
        }
        self.apply(plan)?;
        if !plan.offload.is_empty() {
            // The link may have been down, and comes up as it did at first.
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    /// The offloads and the rules, which need the devices to be there.
    fn apply(&mut self, plan: &TopologyPlan) -> Result<(), TopologyError> {
        let mut notes = BTreeMap::new();
        if !plan.offload.is_empty() {
            for namespace in self.all() {
                let told = namespace
                    .inside(|| offload::set_all(&plan.offload, plan.link == Link::Lo))
                    .doing(|| "set offloads".into())?;
                notes.extend(told);
            }
            // Some drivers take the link down for it.
            for namespace in self.all() {
                namespace
                    .inside(|| until(|| Netlink::open()?.all_running(), "no carrier"))
                    .doing(|| "bring the link up again".into())?;
            }
        }
        if let Some((ruleset, text)) = &plan.nft {
            let ends = match ruleset.within {
                NftIn::Tx => vec![&self.tx],
                NftIn::Rx => vec![&self.rx],
                // On lo they are the same.
                NftIn::Both if plan.link == Link::Lo => vec![&self.tx],
                NftIn::Both => vec![&self.tx, &self.rx],
                NftIn::Router => self.router.iter().collect(),
            };
            for namespace in ends {
                let (rules, elements) = namespace
                    .inside(|| nft::apply(text, ruleset.expected()))
                    .doing(|| "apply the nft rules".into())?;
                notes.insert("nft.rules".into(), rules.to_string());
                notes.insert("nft.set_elements".into(), elements.to_string());
            }
        }
        self.notes = notes;
        Ok(())
    }

    fn all(&self) -> Vec<&Namespace> {
        [&self.tx, &self.rx]
            .into_iter()
            .chain(&self.router)
            .collect()
    }

    fn join(plan: &TopologyPlan, nics: &[Nic]) -> Result<Topology, TopologyError> {
        let new = || Namespace::new().doing(|| "make a network namespace".into());
        let tx = new()?;
        prepare(&tx, plan, false)?;
        if plan.link == Link::Lo {
            let rx = Namespace {
                fd: tx.try_clone().doing(|| "hold a namespace".into())?,
            };
            let address: IpAddr = match plan.family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            };
            return Ok(Topology {
                tx,
                rx,
                router: None,
                tx_address: address,
                rx_address: address,
                notes: BTreeMap::new(),
            });
        }

        let rx = new()?;
        prepare(&rx, plan, false)?;
        let address = |net, host| address(plan.family, net, host);
        let (tx_address, rx_address, router) = if plan.forward {
            let router = new()?;
            prepare(&router, plan, true)?;
            wire(
                plan,
                nics.get(..2),
                &End {
                    namespace: &tx,
                    name: "tx0",
                    address: address(1, 1),
                },
                &End {
                    namespace: &router,
                    name: "r0",
                    address: address(1, 2),
                },
            )?;
            wire(
                plan,
                nics.get(2..4),
                &End {
                    namespace: &router,
                    name: "r1",
                    address: address(2, 2),
                },
                &End {
                    namespace: &rx,
                    name: "rx0",
                    address: address(2, 1),
                },
            )?;
            for (namespace, net, gateway) in [(&tx, 2, address(1, 2)), (&rx, 1, address(2, 2))] {
                let to = address(net, 0);
                namespace
                    .inside(|| Netlink::open()?.add_route(to, prefix_len(plan.family), gateway))
                    .doing(|| format!("route to {to}"))?;
            }
            (address(1, 1), address(2, 1), Some(router))
        } else {
            wire(
                plan,
                nics.get(..2),
                &End {
                    namespace: &tx,
                    name: "tx0",
                    address: address(1, 1),
                },
                &End {
                    namespace: &rx,
                    name: "rx0",
                    address: address(1, 2),
                },
            )?;
            (address(1, 1), address(1, 2), None)
        };
        Ok(Topology {
            tx,
            rx,
            router,
            tx_address,
            rx_address,
            notes: BTreeMap::new(),
        })
    }
}

fn address(family: Family, net: u8, host: u8) -> IpAddr {
    match family {
        // 198.18.0.0/15 is for benchmarks (RFC 2544, RFC 6890).
        Family::V4 => Ipv4Addr::new(198, 18, net, host).into(),
        // So is 2001:2::/48 (RFC 5180).
        Family::V6 => Ipv6Addr::new(0x2001, 2, 0, net.into(), 0, 0, 0, host.into()).into(),
    }
}

fn prefix_len(family: Family) -> u8 {
    match family {
        Family::V4 => 24,
        Family::V6 => 64,
    }
}

/// Loopback up, forwarding and quiet as asked, the plan's own settings last.
fn prepare(namespace: &Namespace, plan: &TopologyPlan, router: bool) -> Result<(), TopologyError> {
    let on = |b| if b { "1" } else { "0" };
    let v6 = plan.family == Family::V6;
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            for device in netlink.devices()? {
                netlink.set_up(device.index, None)?;
            }
            // A kernel without IPv6 has none of these; it is then as quiet as can be.
            for (key, value) in [
                ("net.ipv6.conf.all.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.disable_ipv6", on(!v6)),
                ("net.ipv6.conf.default.accept_ra", "0"),
                ("net.ipv6.conf.default.accept_dad", "0"),
                ("net.ipv6.conf.default.router_solicitations", "0"),
                ("net.ipv6.conf.all.forwarding", on(v6 && router)),
                ("net.ipv4.ip_forward", on(!v6 && router)),
            ] {
                match set_sysctl(key, value) {
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
    sysctl: &BTreeMap<String, String>,
) -> Result<(), TopologyError> {
    for (key, value) in sysctl {
        set_anywhere(namespace, key, value).doing(|| format!("set {key} to `{value}`"))?;
    }
    Ok(())
}

/// Whether a setting bears on devices when they are made, and not afterwards.
fn acts_on_creation(key: &str) -> bool {
    key.split('.').any(|word| word == "default") || key == "net.core.default_qdisc"
}

fn wire(
    plan: &TopologyPlan,
    nics: Option<&[Nic]>,
    one: &End<'_>,
    other: &End<'_>,
) -> Result<(), TopologyError> {
    let macs = match (plan.link, nics) {
        (Link::Veth, _) => {
            let macs = [mac_of(one.address), mac_of(other.address)];
            one.namespace
                .inside(|| {
                    Netlink::open()?.add_veth(
                        (one.name, macs[0]),
                        (other.name, macs[1]),
                        other.namespace.as_fd(),
                    )
                })
                .doing(|| "make a veth pair".into())?;
            macs
        }
        (_, Some([first, second])) => {
            for (end, nic) in [(one, first), (other, second)] {
                adopt(end, nic).doing(|| format!("find the NIC for {}", end.name))?;
            }
            [first.mac, second.mac]
        }
        (link, _) => {
            return Err(TopologyError {
                what: format!("wire {link}"),
                source: io::Error::other("the machine has too few NICs"),
            });
        }
    };
    for (end, mac, peer, peer_mac) in [
        (one, macs[0], other, macs[1]),
        (other, macs[1], one, macs[0]),
    ] {
        end.namespace
            .inside(|| {
                let mut netlink = Netlink::open()?;
                let device = find(&mut netlink, &mac)?;
                netlink.set_up(device.index, plan.mtu_bytes)?;
                netlink.add_address(device.index, end.address, prefix_len(plan.family))?;
                netlink.add_neighbour(device.index, peer.address, peer_mac)
            })
            .doing(|| format!("configure {}", end.name))?;
    }
    for (end, mac) in [(one, macs[0]), (other, macs[1])] {
        end.namespace
            .inside(|| {
                let mut netlink = Netlink::open()?;
                until(|| Ok(find(&mut netlink, &mac)?.running), "no carrier")
            })
            .doing(|| format!("bring {} up", end.name))?;
    }
    Ok(())
}

/// Locally administered, and telling by its address which end it is.
fn mac_of(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(v4) => {
            let [.., net, host] = v4.octets();
            [0x02, 0x4e, 0x50, 4, net, host]
        }
        IpAddr::V6(v6) => {
            let octets = v6.octets();
            [0x02, 0x4e, 0x50, 6, octets[7], octets[15]]
        }
    }
}

/// Move a NIC from this namespace, where the kernel puts them, to its end.
fn adopt(end: &End<'_>, nic: &Nic) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let mut found = None;
    until(
        || {
            found = netlink.devices()?.into_iter().find(|d| d.mac == nic.mac);
            Ok(found.is_some())
        },
        "it does not appear: is its driver loaded?",
    )?;
    match found {
        Some(device) => netlink.move_device(device.index, end.name, end.namespace.as_fd()),
        None => Ok(()),
    }
}

fn find(netlink: &mut Netlink, mac: &[u8]) -> io::Result<Device> {
    netlink
        .devices()?
        .into_iter()
        .find(|d| d.mac == mac)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the device is gone"))
}

fn until(mut ready: impl FnMut() -> io::Result<bool>, why_not: &str) -> io::Result<()> {
    let started = Instant::now();
    while !ready()? {
        if started.elapsed() > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, why_not.to_string()));
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}
