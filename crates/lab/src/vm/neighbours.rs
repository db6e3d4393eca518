//! The guest's tables of neighbours, with enough buckets to give each neighbour of a measurement its own.
//!
//! A neighbour's bucket is found by its address, by where the kernel allocated its device, and by a
//! random number (`arp_hashfn`, `ndisc_hashfn`). A table begins with eight buckets, so that another
//! module, command line or seed put neighbours into one bucket, and took them apart:
//! `ip_finish_output2` took five instructions more, or fewer. Tables grow with their entries, and never
//! shrink (`___neigh_create`, net/core/neighbour.c).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netplumb_sys::links::index_of;
use netplumb_sys::netlink::Netlink;

/// Neighbours in each of the networks: 510 in all, for which a table has 512 buckets.
const NEIGHBOURS: u8 = u8::MAX;
const NETWORKS: u8 = 2;
const MAC: [u8; 6] = [0x02, 0x4e, 0x50, 0, 0, 0xfd];

/// A pair of devices for the time being, and their indices, which later devices don't get.
const PAIR: [(&str, [u8; 6], u32); 2] = [
    ("neighbours0", [0x02, 0x4e, 0x50, 0, 0, 0xfb], 1001),
    ("neighbours1", [0x02, 0x4e, 0x50, 0, 0, 0xfc], 1002),
];

/// Make both tables grow. To be called when random numbers depend on the seed.
///
/// # Errors
/// The kernel has no such table.
pub(super) fn spread() -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    // On a kernel without IPv6 there is nothing to spread, and the others are to be.
    let of_v6 = index_of(c"lo").and_then(|lo| fill(&mut netlink, lo, v6));
    // On lo all IPv4 neighbours are one (`arp_constructor`): another device is needed.
    let devices = netlink.devices()?;
    match devices.iter().find(|device| device.name != "lo") {
        Some(device) => fill(&mut netlink, device.index, v4)?,
        None => {
            let [here, there] = PAIR.map(|(name, mac, _)| (name, mac));
            let numbers = PAIR.map(|(_, _, number)| number);
            // Without veth no link has neighbours with buckets.
            if netlink.add_veth(here, there, None, None, Some(numbers)).is_ok() {
                let filled = fill(&mut netlink, numbers[0], v4);
                netlink.remove_device(numbers[0])?;
                filled?;
            }
        }
    }
    of_v6
}

fn fill(netlink: &mut Netlink, device: u32, of: fn(u8, u8) -> IpAddr) -> io::Result<()> {
    for (network, host) in all() {
        netlink.add_neighbour(device, of(network, host), MAC)?;
    }
    for (network, host) in all() {
        netlink.remove_neighbour(device, of(network, host))?;
    }
    Ok(())
}

fn all() -> impl Iterator<Item = (u8, u8)> {
    (0..NETWORKS).flat_map(|network| (1..=NEIGHBOURS).map(move |host| (network, host)))
}

/// An address for benchmarks (RFC 2544).
fn v4(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, network, host).into()
}

/// One for documentation (RFC 3849).
fn v6(network: u8, host: u8) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, network.into(), host.into()).into()
}
