//! Addresses and neighbours of devices.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::Netlink;
use crate::netns::Namespace;

impl Netlink {
    /// Add an address to a device, without duplicate address detection.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewAddress(address_of(index, address, prefix_len)),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// The same; an error if it has it already.
    pub fn give_address(&mut self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewAddress(address_of(index, address, prefix_len)),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Remove an address from a device.
    pub fn take_address(&mut self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        let message = address_of(index, address, prefix_len);
        self.ask(RouteNetlinkMessage::DelAddress(message), 0).map(drop)
    }

    /// Add a permanent neighbour: no ARP or ND in the measured path.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewNeighbour(neighbour_of(index, address, Some(mac))),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// The same; an error if there is an entry already.
    pub fn new_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewNeighbour(neighbour_of(index, address, Some(mac))),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Remove a neighbour.
    pub fn remove_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let message = neighbour_of(index, address, None);
        self.ask(RouteNetlinkMessage::DelNeighbour(message), 0).map(drop)
    }
}

impl Namespace {
    /// Add an address to a device; returns whether it is new.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn give_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<bool> {
        self.ask(|netlink| unless_there(netlink.give_address(index, address, prefix_len)))
    }

    /// Remove an address from a device.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn take_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.ask(|netlink| netlink.take_address(index, address, prefix_len))
    }

    /// Add a permanent neighbour, replacing an entry; returns whether there was none.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn add_neighbour(&self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<bool> {
        self.ask(|netlink| {
            let new = unless_there(netlink.new_neighbour(index, address, mac))?;
            if !new {
                netlink.add_neighbour(index, address, mac)?;
            }
            Ok(new)
        })
    }

    /// Remove a neighbour.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn remove_neighbour(&self, index: u32, address: IpAddr) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_neighbour(index, address))
    }

    /// The MAC address of a permanent neighbour; empty for an entry that the kernel made itself.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn neighbour(&self, device: u32, address: IpAddr) -> io::Result<Option<Vec<u8>>> {
        let mut asked = NeighbourMessage::default();
        asked.header.family = family(address);
        let message = RouteNetlinkMessage::GetNeighbour(asked);
        let wanted = NeighbourAttribute::Destination(match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        });
        for answer in self.ask(|n| n.ask(message, NLM_F_DUMP))? {
            let RouteNetlinkMessage::NewNeighbour(found) = answer else {
                continue;
            };
            if found.header.ifindex != device || !found.attributes.contains(&wanted) {
                continue;
            }
            if found.header.state != NeighbourState::Permanent {
                return Ok(Some(Vec::new()));
            }
            let mac = found.attributes.into_iter().find_map(|a| match a {
                NeighbourAttribute::LinkLayerAddress(mac) => Some(mac),
                _ => None,
            });
            return Ok(Some(mac.unwrap_or_default()));
        }
        Ok(None)
    }
}

/// Whether it was done; false if it existed.
pub(crate) fn unless_there(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        other => other.map(|()| true),
    }
}

fn address_of(index: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_len;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

fn neighbour_of(index: u32, address: IpAddr, mac: Option<[u8; 6]>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![NeighbourAttribute::Destination(match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    })];
    let mac = mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    message.attributes.extend(mac);
    message
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
