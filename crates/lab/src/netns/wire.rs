//! One wire: two devices that are joined, brought up, with their addresses.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netplumb_model::class::Link;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;

use super::plan::{Doing, Nic, TopologyError, TopologyPlan, prefix_len};

/// How long a device may take to appear or to see its carrier, guest time.
const PATIENCE: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(50);
/// On the machine itself, where people wait.
const SHORT_NAP: Duration = Duration::from_millis(2);

/// One end of a wire: in which namespace, at which address. A bridge's has none.
pub(super) struct End<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) name: &'static str,
    pub(super) address: Option<IpAddr>,
}

/// Numbers of a pair's devices on the machine. Where an end's peer has its own number, as
/// in namespaces that are all alike, the kernel tells of its carrier no more than once a
/// second (linkwatch_urgent_event, net/core/link_watch.c).
const NUMBERS: [u32; 2] = [10, 11];

/// Join two ends, and wait for their carrier. In a guest, where waiting is nobody's and
/// counts may hang on numbers, devices have those that come.
pub(super) fn wire(
    plan: &TopologyPlan,
    nics: Option<&[Nic]>,
    on_machine: bool,
    one: &End<'_>,
    other: &End<'_>,
) -> Result<(), TopologyError> {
    let nap = nap(on_machine);
    let macs = match (plan.link, nics) {
        (Link::Veth, _) => {
            let macs = [mac_of(one), mac_of(other)];
            one.namespace
                .inside(|| {
                    Netlink::open()?.add_veth(
                        (one.name, macs[0]),
                        (other.name, macs[1]),
                        Some(other.namespace.as_fd()),
                        plan.queues,
                        on_machine.then_some(NUMBERS),
                    )
                })
                .doing(|| "make a veth pair".into())?;
            macs
        }
        (_, Some([first, second])) => {
            for (end, nic) in [(one, first), (other, second)] {
                adopt(end, nic, nap).doing(|| format!("find the NIC for {}", end.name))?;
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
    for (end, mac) in [(one, macs[0]), (other, macs[1])] {
        end.namespace
            .inside(|| {
                let mut netlink = Netlink::open()?;
                let device = find(&mut netlink, &mac)?;
                netlink.set_up(device.index, plan.mtu_bytes)?;
                if let Some(address) = end.address {
                    netlink.add_address(device.index, address, prefix_len(plan.family))?;
                }
                Ok(())
            })
            .doing(|| format!("configure {}", end.name))?;
    }
    for (end, mac) in [(one, macs[0]), (other, macs[1])] {
        end.namespace
            .inside(|| {
                let mut netlink = Netlink::open()?;
                until(
                    || Ok(find(&mut netlink, &mac)?.ready(plan.link)),
                    nap,
                    "no carrier",
                )?;
                match end.address.filter(|_| on_machine) {
                    Some(address) => until(|| netlink.is_local(address), nap, "no route"),
                    None => Ok(()),
                }
            })
            .doing(|| format!("bring {} up", end.name))?;
    }
    // All namespaces share one table of eight buckets, and a new entry goes to the head of
    // its bucket (neigh_hash_alloc, ___neigh_create in net/core/neighbour.c). The sender's
    // is the last, so that it is found at once in every boot, wherever the other fell.
    for (end, mac, peer, peer_mac) in [
        (other, macs[1], one, macs[0]),
        (one, macs[0], other, macs[1]),
    ] {
        if let (Some(_), Some(peer)) = (end.address, peer.address) {
            end.namespace
                .inside(|| {
                    let mut netlink = Netlink::open()?;
                    let device = find(&mut netlink, &mac)?;
                    netlink.add_neighbour(device.index, peer, peer_mac)
                })
                .doing(|| format!("add the neighbour entry of {}", end.name))?;
        }
    }
    Ok(())
}

/// Locally administered, and telling which end it is: by its address, or by its name.
fn mac_of(end: &End<'_>) -> [u8; 6] {
    match end.address {
        Some(IpAddr::V4(v4)) => {
            let [.., net, host] = v4.octets();
            [0x02, 0x4e, 0x50, 4, net, host]
        }
        Some(IpAddr::V6(v6)) => {
            let octets = v6.octets();
            [0x02, 0x4e, 0x50, 6, octets[7], octets[15]]
        }
        None => {
            let last = end.name.bytes().last().unwrap_or_default();
            [0x02, 0x4e, 0x50, 0xb, 0, last]
        }
    }
}

/// Move a NIC from this namespace, where the kernel puts them, to its end.
fn adopt(end: &End<'_>, nic: &Nic, nap: Duration) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let mut found = None;
    until(
        || {
            found = netlink.devices()?.into_iter().find(|d| d.mac == nic.mac);
            Ok(found.is_some())
        },
        nap,
        "it does not appear: is its driver loaded?",
    )?;
    match found {
        Some(device) => netlink.move_device(device.index, end.name, end.namespace.as_fd()),
        None => Ok(()),
    }
}

fn find(netlink: &mut Netlink, mac: &[u8]) -> io::Result<DeviceState> {
    netlink
        .devices()?
        .into_iter()
        .find(|d| d.mac == mac)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the device is gone"))
}

/// How long to wait between looks.
pub(super) fn nap(on_machine: bool) -> Duration {
    match on_machine {
        true => SHORT_NAP,
        false => NAP,
    }
}

/// Wait until something is so.
pub(super) fn until(
    mut ready: impl FnMut() -> io::Result<bool>,
    nap: Duration,
    why_not: &str,
) -> io::Result<()> {
    let started = Instant::now();
    while !ready()? {
        if started.elapsed() > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, why_not.to_string()));
        }
        std::thread::sleep(nap);
    }
    Ok(())
}
