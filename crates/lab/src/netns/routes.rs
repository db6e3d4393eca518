//! Routes, neighbours and filters of a namespace, as far as somebody wants to know what
//! there was, and to put in and take out what is told from others'.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::Namespace;
use super::netlink::family;

/// Who made a route: none of the numbers that others have
/// (include/uapi/linux/rtnetlink.h, /etc/iproute2/rt_protos).
const OURS: RouteProtocol = RouteProtocol::Other(0xb6);
/// `TC_H_MAJ(TC_H_CLSACT)`.
const CLSACT: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0,
};

/// A route that says it is ours: to one address, by a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OurRoute {
    /// The device, by number.
    pub device: u32,
    /// Where to.
    pub to: IpAddr,
    /// Whether packets to it are this machine's own, as if it had the address.
    pub local: bool,
}

impl OurRoute {
    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(self.to);
        header.destination_prefix_length = if self.to.is_ipv6() { 128 } else { 32 };
        header.protocol = OURS;
        header.table = RouteHeader::RT_TABLE_MAIN;
        header.kind = RouteType::Unicast;
        header.scope = RouteScope::Link;
        if self.local {
            // The kernel's own table of addresses, RT_TABLE_LOCAL.
            header.table = 255;
            header.kind = RouteType::Local;
            header.scope = RouteScope::Host;
        }
        if self.to.is_ipv6() {
            header.scope = RouteScope::Universe;
        }
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(self.to)),
            RouteAttribute::Oif(self.device),
        ];
        message
    }

    fn is(&self, other: &RouteMessage) -> bool {
        let mine = self.message();
        let has = |a: &RouteAttribute| other.attributes.contains(a);
        other.header.protocol == OURS
            && other.header.kind == mine.header.kind
            && other.header.table == mine.header.table
            && other.header.destination_prefix_length == mine.header.destination_prefix_length
            && mine.attributes.iter().all(has)
    }
}

impl Namespace {
    /// What the kernel calls it for as long as it runs, which it gives to no other (Linux
    /// 5.14).
    ///
    /// # Errors
    /// An older kernel, which has none.
    pub fn cookie(&self) -> io::Result<u64> {
        /// include/uapi/asm-generic/socket.h.
        const SO_NETNS_COOKIE: libc::c_int = 71;
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            let mut cookie = 0_u64;
            let mut bytes = size_of::<u64>() as libc::socklen_t;
            // SAFETY: the pointers are to a number of ours and to its size.
            let done = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    SO_NETNS_COOKIE,
                    (&raw mut cookie).cast(),
                    &mut bytes,
                )
            };
            match done {
                0 => Ok(cookie),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }

    fn routes(&self, of: AddressFamily) -> io::Result<Vec<RouteMessage>> {
        let mut asked = RouteMessage::default();
        asked.header.address_family = of;
        let answers = self.ask(|n| n.ask(RouteNetlinkMessage::GetRoute(asked), NLM_F_DUMP))?;
        let route = |answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        };
        Ok(answers.into_iter().filter_map(route).collect())
    }

    /// Whether there is a route of ours.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_our_route(&self, route: &OurRoute) -> io::Result<bool> {
        let routes = self.routes(family(route.to))?;
        Ok(routes.iter().any(|r| route.is(r)))
    }

    /// Add a route, and say that it is ours.
    ///
    /// # Errors
    /// There is one to the same place, or the device is down.
    pub fn add_our_route(&self, route: &OurRoute) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.ask(|n| n.ask(message, NLM_F_CREATE | NLM_F_EXCL))
            .map(drop)
    }

    /// Take a route of ours away; one of others stays.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_our_route(&self, route: &OurRoute) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        self.ask(|n| n.ask(message, 0)).map(drop)
    }

    /// Devices that most of what leaves this namespace leaves by: those of default routes,
    /// and of routes to half of all addresses, as VPNs make them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn default_route_devices(&self) -> io::Result<Vec<u32>> {
        let mut devices = Vec::new();
        for of in [AddressFamily::Inet, AddressFamily::Inet6] {
            let routes = match self.routes(of) {
                // A kernel without IPv6.
                Err(error)
                    if of == AddressFamily::Inet6
                        && matches!(
                            error.raw_os_error(),
                            Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                        ) =>
                {
                    continue;
                }
                other => other?,
            };
            for route in routes {
                if route.header.destination_prefix_length > 1
                    || route.header.kind != RouteType::Unicast
                {
                    continue;
                }
                for attribute in route.attributes {
                    match attribute {
                        RouteAttribute::Oif(device) => devices.push(device),
                        RouteAttribute::MultiPath(hops) => {
                            devices.extend(hops.iter().map(|hop| hop.interface_index));
                        }
                        _ => {}
                    }
                }
            }
        }
        devices.sort_unstable();
        devices.dedup();
        Ok(devices)
    }

    /// The device that packets to an address leave by.
    ///
    /// # Errors
    /// There is no route to it.
    pub fn device_to(&self, to: IpAddr) -> io::Result<Option<u32>> {
        let route = self.route_to(to)?;
        let attributes = route.map(|r| r.attributes).unwrap_or_default();
        Ok(attributes.into_iter().find_map(|a| match a {
            RouteAttribute::Oif(device) => Some(device),
            _ => None,
        }))
    }

    /// Whether packets to an address are taken in as this namespace's own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_local(&self, address: IpAddr) -> io::Result<bool> {
        match self.route_to(address) {
            Ok(route) => Ok(route.is_some_and(|r| r.header.kind == RouteType::Local)),
            // There is no route, or one that says so.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The route that packets to an address take.
    fn route_to(&self, to: IpAddr) -> io::Result<Option<RouteMessage>> {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family(to);
        asked.header.destination_prefix_length = if to.is_ipv6() { 128 } else { 32 };
        asked.attributes = vec![RouteAttribute::Destination(RouteAddress::from(to))];
        let answers = self.ask(|n| n.ask(RouteNetlinkMessage::GetRoute(asked), 0))?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        }))
    }

    /// The link-layer address of a neighbour that was entered for good; an empty one for
    /// a neighbour that the kernel has found, or looked for, by itself.
    ///
    /// # Errors
    /// The kernel's.
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

    /// Whether a device has the queueing discipline that filters are hung on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_clsact(&self, device: u32) -> io::Result<bool> {
        let asked = TcMessage::with_index(i32::try_from(device).map_err(io::Error::other)?);
        let message = RouteNetlinkMessage::GetQueueDiscipline(asked);
        let answers = self.ask(|n| n.ask(message, NLM_F_DUMP))?;
        Ok(answers.into_iter().any(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(found) => {
                u32::try_from(found.header.index) == Ok(device) && found.header.handle == CLSACT
            }
            _ => false,
        }))
    }

    /// Give a device that discipline, or take it away with all of its filters.
    ///
    /// # Errors
    /// It has it already, or not.
    pub fn set_clsact(&self, device: u32, on: bool) -> io::Result<()> {
        let mut message = TcMessage::with_index(i32::try_from(device).map_err(io::Error::other)?);
        message.header.handle = CLSACT;
        message.header.parent = TcHandle::CLSACT;
        message.attributes = vec![TcAttribute::Kind("clsact".into())];
        let (message, flags) = match on {
            true => (
                RouteNetlinkMessage::NewQueueDiscipline(message),
                NLM_F_CREATE | NLM_F_EXCL,
            ),
            false => (RouteNetlinkMessage::DelQueueDiscipline(message), 0),
        };
        self.ask(|n| n.ask(message, flags)).map(drop)
    }

    /// Take a device down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_down(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.change_mask = LinkFlags::Up;
        self.ask(|n| n.ask(RouteNetlinkMessage::SetLink(link), 0))
            .map(drop)
    }

    /// Change the longest packet of a device.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn set_mtu(&self, index: u32, mtu_bytes: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Mtu(mtu_bytes)];
        self.ask(|n| n.ask(RouteNetlinkMessage::SetLink(link), 0))
            .map(drop)
    }
}
