//! A wire: two connected devices, brought up, with their addresses.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netplumb_model::class::Link;
use netplumb_model::topology::{DeviceKind, DeviceSpec};
use netplumb_sys::links::DeviceState;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;

use super::making::{Making, find};
use super::nic::not_taken;
use super::plan::{Doing, Nic, TopologyError, TopologyPlan};

/// Maximum time for a device to appear or to have a carrier, in guest time.
const PATIENCE: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(50);
/// Polling interval on the machine itself, where users wait.
const SHORT_NAP: Duration = Duration::from_millis(2);

/// Interface indices of a pair on the machine. If a device has the index of its own peer, as in
/// similar namespaces, the kernel signals its carrier at most once a second
/// (linkwatch_urgent_event, net/core/link_watch.c).
const FIRST_NUMBER: u32 = 10;

/// Connect two ends, and wait for their carrier. In a guest, where waiting takes no real time and
/// counts may depend on indices, devices get the next free ones.
pub(super) fn wire(
    making: &Making<'_>,
    number: u32,
    nics: Option<&[Nic]>,
    one: &DeviceSpec,
    other: &DeviceSpec,
) -> Result<(), TopologyError> {
    let (plan, on_machine) = (making.plan, making.on_machine);
    let [here, there] = [making.namespace(&one.namespace)?, making.namespace(&other.namespace)?];
    let nap = nap(on_machine);
    let macs = match (one.kind, nics) {
        (DeviceKind::Link, Some([first, second])) => {
            for (namespace, end, nic) in [(here, one, first), (there, other, second)] {
                adopt(namespace, end, nic, nap)
                    .doing(|| format!("find the NIC for {}", end.name))?;
            }
            [first.mac, second.mac]
        }
        (DeviceKind::Link, _) if plan.link.has_nics() => {
            return Err(TopologyError {
                what: format!("wire {}", plan.link),
                source: io::Error::other("the machine has too few NICs"),
            });
        }
        _ => {
            let macs = [making.mac(one), making.mac(other)];
            let first = FIRST_NUMBER + 2 * number;
            here.inside(|| {
                Netlink::open()?.add_veth(
                    (&one.name, macs[0]),
                    (&other.name, macs[1]),
                    Some(there.as_fd()),
                    plan.queues,
                    on_machine.then_some([first, first + 1]),
                )
            })
            .doing(|| "make a veth pair".into())?;
            macs
        }
    };
    for (namespace, end) in [(here, one), (there, other)] {
        configure(plan, namespace, end)?;
    }
    for (namespace, end) in [(here, one), (there, other)] {
        wait_for(plan, namespace, end, on_machine)?;
    }
    // All namespaces share a table of eight buckets, and a new entry becomes the head of its bucket (neigh_hash_alloc,
    // ___neigh_create in net/core/neighbour.c). The sender's is added last, so that it is found first in every boot,
    // whatever the other's bucket.
    for (namespace, end, peer, mac) in [(there, other, one, macs[0]), (here, one, other, macs[1])] {
        let addresses = [end, peer].map(|end| end.address(plan.family));
        if let [Some(_), Some(address)] = addresses {
            add_neighbour(namespace, end, address.addr(), mac)?;
        }
    }
    Ok(())
}

/// Configure the NIC of one of two hosts; the other one has this address and MAC address.
pub(super) fn wire_to_other_host(
    plan: &TopologyPlan,
    namespace: &Namespace,
    (end, nic): (&DeviceSpec, &Nic),
    (peer, peer_nic): (&DeviceSpec, &Nic),
) -> Result<(), TopologyError> {
    adopt(namespace, end, nic, NAP).doing(|| format!("find the NIC for {}", end.name))?;
    configure(plan, namespace, end)?;
    wait_for(plan, namespace, end, false)?;
    match peer.address(plan.family) {
        Some(address) => add_neighbour(namespace, end, address.addr(), peer_nic.mac),
        None => Ok(()),
    }
}

/// Bring a device up, with its addresses.
pub(super) fn configure(
    plan: &TopologyPlan,
    namespace: &Namespace,
    end: &DeviceSpec,
) -> Result<(), TopologyError> {
    // The MTU of all links is the arm's; of the devices on them, their own.
    let mtu_bytes = match end.kind.is_wired() {
        true => plan.mtu_bytes.or(end.mtu_bytes),
        false => end.mtu_bytes,
    };
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            let device = find(&mut netlink, &end.name)?;
            (netlink.set_up(device.index, mtu_bytes))
                .map_err(|error| of_mtu(error, &device, mtu_bytes))?;
            for net in end.addresses.iter().filter(|net| plan.has(net.addr())) {
                netlink.add_address(device.index, net.addr(), net.prefix_len())?;
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
    namespace: &Namespace,
    end: &DeviceSpec,
    on_machine: bool,
) -> Result<(), TopologyError> {
    let nap = nap(on_machine);
    let link = if end.kind == DeviceKind::Veth { Link::Veth } else { plan.link };
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            until(|| Ok(find(&mut netlink, &end.name)?.ready(link)), nap, "no carrier")?;
            match end.address(plan.family).filter(|_| on_machine) {
                Some(address) => until(|| netlink.is_local(address.addr()), nap, "no route"),
                None => Ok(()),
            }
        })
        .doing(|| format!("bring {} up", end.name))
}

fn add_neighbour(
    namespace: &Namespace,
    end: &DeviceSpec,
    peer: IpAddr,
    peer_mac: [u8; 6],
) -> Result<(), TopologyError> {
    namespace
        .inside(|| {
            let mut netlink = Netlink::open()?;
            let device = find(&mut netlink, &end.name)?;
            netlink.add_neighbour(device.index, peer, peer_mac)
        })
        .doing(|| format!("add the neighbour entry of {}", end.name))
}

/// Move a NIC from this namespace, where the kernel creates it, to its end.
fn adopt(namespace: &Namespace, end: &DeviceSpec, nic: &Nic, nap: Duration) -> io::Result<()> {
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
        Some(device) => netlink.move_device(device.index, &end.name, namespace.as_fd()),
        None => Ok(()),
    }
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
