//! A wire: two connected devices, brought up, with their addresses.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netplumb_model::class::Link;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;

use super::nic::not_taken;
use super::plan::{Doing, Nic, TopologyError, TopologyPlan, prefix_len};

/// Maximum time for a device to appear or to have a carrier, in guest time.
const PATIENCE: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(50);
/// Polling interval on the machine itself, where users wait.
const SHORT_NAP: Duration = Duration::from_millis(2);

/// An end of a wire: its namespace and its address. Ports of a bridge have no address.
pub(super) struct End<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) name: &'static str,
    pub(super) address: Option<IpAddr>,
}

/// Interface indices of a pair on the machine. If a device has the index of its own peer, as in
/// similar namespaces, the kernel signals its carrier at most once a second
/// (linkwatch_urgent_event, net/core/link_watch.c).
const NUMBERS: [u32; 2] = [10, 11];

/// Connect two ends, and wait for their carrier. In a guest, where waiting takes no real time and
/// counts may depend on indices, devices get the next free ones.
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
        configure(plan, end, &mac)?;
    }
    for (end, mac) in [(one, macs[0]), (other, macs[1])] {
        wait_for(plan, end, &mac, on_machine)?;
    }
    // All namespaces share a table of eight buckets, and a new entry becomes the head of its bucket (neigh_hash_alloc,
    // ___neigh_create in net/core/neighbour.c). The sender's is added last, so that it is found first in every boot,
    // whatever the other's bucket.
    for (end, mac, peer, peer_mac) in
        [(other, macs[1], one, macs[0]), (one, macs[0], other, macs[1])]
    {
        if let (Some(_), Some(peer)) = (end.address, peer.address) {
            add_neighbour(end, &mac, peer, peer_mac)?;
        }
    }
    Ok(())
}

/// Configure the NIC of one of two hosts; the other one has this address and MAC address.
pub(super) fn wire_to_other_host(
    plan: &TopologyPlan,
    end: &End<'_>,
    nic: &Nic,
    (peer, peer_nic): (IpAddr, &Nic),
) -> Result<(), TopologyError> {
    adopt(end, nic, NAP).doing(|| format!("find the NIC for {}", end.name))?;
    configure(plan, end, &nic.mac)?;
    wait_for(plan, end, &nic.mac, false)?;
    add_neighbour(end, &nic.mac, peer, peer_nic.mac)
}

/// Bring a device up, with its address.
fn configure(plan: &TopologyPlan, end: &End<'_>, mac: &[u8]) -> Result<(), TopologyError> {
    end.namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            let device = find(&mut netlink, mac)?;
            (netlink.set_up(device.index, plan.mtu_bytes))
                .map_err(|error| of_mtu(error, &device, plan.mtu_bytes))?;
            if let Some(address) = end.address {
                netlink.add_address(device.index, address, prefix_len(plan.family))?;
            }
            Ok(())
        })
        .doing(|| format!("configure {}", end.name))
}

/// The error of a device that did not come up: which MTUs it takes, if it was given another one.
fn of_mtu(error: io::Error, device: &DeviceState, wanted: Option<u32>) -> io::Error {
    let [least, most] = device.mtus;
    let Some(mtu) = wanted else {
        return error;
    };
    let takes = match (least, most) {
        (_, Some(most)) if mtu > most => format!("takes one of at most {most}"),
        (Some(least), _) if mtu < least => format!("takes one of at least {least}"),
        // It does not report its limits, or they depend on something else.
        _ => format!("refuses it ({error})"),
    };
    not_taken(&format!("an MTU of {mtu} is not supported: its driver {takes}"))
}

/// Wait for the carrier of a device.
fn wait_for(
    plan: &TopologyPlan,
    end: &End<'_>,
    mac: &[u8],
    on_machine: bool,
) -> Result<(), TopologyError> {
    let nap = nap(on_machine);
    end.namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            until(|| Ok(find(&mut netlink, mac)?.ready(plan.link)), nap, "no carrier")?;
            match end.address.filter(|_| on_machine) {
                Some(address) => until(|| netlink.is_local(address), nap, "no route"),
                None => Ok(()),
            }
        })
        .doing(|| format!("bring {} up", end.name))
}

fn add_neighbour(
    end: &End<'_>,
    mac: &[u8],
    peer: IpAddr,
    peer_mac: [u8; 6],
) -> Result<(), TopologyError> {
    end.namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            let device = find(&mut netlink, mac)?;
            netlink.add_neighbour(device.index, peer, peer_mac)
        })
        .doing(|| format!("add the neighbour entry of {}", end.name))
}

/// A locally administered MAC address, from the end's IP address or name.
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

/// Move a NIC from this namespace, where the kernel creates it, to its end.
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

/// The polling interval.
pub(super) fn nap(on_machine: bool) -> Duration {
    match on_machine {
        true => SHORT_NAP,
        false => NAP,
    }
}

/// Wait until a condition holds.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an MTU beyond what a driver takes is named, with the limit; and that without one the error is
    /// another.
    #[test]
    fn mtus_that_drivers_refuse() {
        let device = DeviceState { mtus: [Some(46), Some(16_110)], ..DeviceState::default() };
        let message = |device: &DeviceState, mtu| {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            of_mtu(error, device, mtu).to_string()
        };
        let large = message(&device, Some(20_000));
        assert!(large.contains("MTU of 20000"), "{large}");
        assert!(large.contains("at most 16110"), "{large}");
        let small = message(&device, Some(40));
        assert!(small.contains("at least 46"), "{small}");
        let odd = message(&DeviceState::default(), Some(1499));
        assert!(odd.contains("MTU of 1499") && odd.contains("Invalid argument"), "{odd}");
        assert!(!message(&device, None).contains("MTU"));
    }
}
