//! Routes: existing ones, and plumb's own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use netplumb_model::class::Family;
use netplumb_model::topology::Route;

use crate::addresses::{family, unless_there};
use crate::netlink::Netlink;
use crate::netns::Namespace;

/// The protocol of plumb's routes: a number that no other program uses
/// (include/uapi/linux/rtnetlink.h, /etc/iproute2/rt_protos).
const OURS: RouteProtocol = RouteProtocol::Other(0xb6);
/// A route with plumb's protocol: to an address, by a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OurRoute {
    /// The device's index.
    pub device: u32,
    /// The address that the route leads to, as a /32 or /128.
    pub to: IpAddr,
    /// Whether it is of type `local`: packets are received as if the machine had the address.
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
            // The kernel's table of local addresses, RT_TABLE_LOCAL.
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

impl Netlink {
    /// Add a route by a device, without gateway.
    pub fn add_device_route(
        &mut self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        let message = device_route(index, destination, prefix_len);
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Delete a route through a device.
    pub fn remove_device_route(
        &mut self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        let message = device_route(index, destination, prefix_len);
        self.ask(RouteNetlinkMessage::DelRoute(message), 0).map(drop)
    }

    /// Add a route to `destination` via `gateway`.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix_len: u8,
        gateway: IpAddr,
    ) -> io::Result<()> {
        let mut message = to(destination, prefix_len);
        message.header.scope = RouteScope::Universe;
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Add a route of a topology, in this family if it names no address.
    pub fn add_topology_route(&mut self, route: &Route, family: Family) -> io::Result<()> {
        let device = |name: &String| {
            let found = self.devices()?.into_iter().find(|d| d.name == *name);
            let index = found.map(|d| d.index);
            index.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} is gone")))
        };
        let index = route.dev.as_ref().map(device).transpose()?;
        let (destination, prefix_len) = match (route.to, family) {
            (Some(to), _) => (to.network(), to.prefix_len()),
            (None, Family::V4) => (Ipv4Addr::UNSPECIFIED.into(), 0),
            (None, Family::V6) => (Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        match (route.via, index) {
            (None, Some(index)) => self.add_device_route(index, destination, prefix_len),
            (Some(gateway), None) => self.add_route(destination, prefix_len, gateway),
            (Some(gateway), Some(index)) => {
                let mut message = to(destination, prefix_len);
                message.header.scope = RouteScope::Universe;
                let gateway = RouteAttribute::Gateway(RouteAddress::from(gateway));
                message.attributes.extend([gateway, RouteAttribute::Oif(index)]);
                let message = RouteNetlinkMessage::NewRoute(message);
                self.ask(message, NLM_F_CREATE | NLM_F_EXCL).map(drop)
            }
            (None, None) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Look up the route to an address.
    fn route_to(&mut self, to: IpAddr) -> io::Result<Option<RouteMessage>> {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family(to);
        asked.header.destination_prefix_length = if to.is_ipv6() { 128 } else { 32 };
        asked.attributes = vec![RouteAttribute::Destination(RouteAddress::from(to))];
        let answers = self.ask(RouteNetlinkMessage::GetRoute(asked), 0)?;
        Ok(answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        }))
    }

    /// Whether an address is local to this namespace. An IPv6 address has no route until a worker
    /// of the kernel has processed it (addrconf_dad_work), even without duplicate address
    /// detection.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn is_local(&mut self, address: IpAddr) -> io::Result<bool> {
        match self.route_to(address) {
            Ok(route) => Ok(route.is_some_and(|r| r.header.kind == RouteType::Local)),
            // There is no route, or an unreachable one.
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
}

impl Namespace {
    /// Add a route by a device, without gateway; returns whether it is new.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn add_device_route(
        &self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<bool> {
        self.ask(|netlink| unless_there(netlink.add_device_route(index, destination, prefix_len)))
    }

    /// Delete a route through a device.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn remove_device_route(
        &self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_device_route(index, destination, prefix_len))
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

    /// Whether there is a route that plumb added.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn has_our_route(&self, route: &OurRoute) -> io::Result<bool> {
        let routes = self.routes(family(route.to))?;
        Ok(routes.iter().any(|r| route.is(r)))
    }

    /// Add a route with plumb's protocol.
    ///
    /// # Errors
    /// There is one to the same destination, or the device is down.
    pub fn add_our_route(&self, route: &OurRoute) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRoute(route.message());
        self.ask(|n| n.ask(message, NLM_F_CREATE | NLM_F_EXCL)).map(drop)
    }

    /// Delete a route that plumb added; others are kept.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_our_route(&self, route: &OurRoute) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(route.message());
        self.ask(|n| n.ask(message, 0)).map(drop)
    }

    /// The devices of default routes, and of routes to half of all addresses, as VPNs use them.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn default_route_devices(&self) -> io::Result<Vec<u32>> {
        let mut devices = Vec::new();
        for of in [AddressFamily::Inet, AddressFamily::Inet6] {
            let routes = match self.routes(of) {
                // The kernel lacks IPv6.
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

    /// The device of the route to an address.
    ///
    /// # Errors
    /// There is no route to it.
    pub fn device_to(&self, to: IpAddr) -> io::Result<Option<u32>> {
        let route = self.ask(|n| n.route_to(to))?;
        let attributes = route.map(|r| r.attributes).unwrap_or_default();
        Ok(attributes.into_iter().find_map(|a| match a {
            RouteAttribute::Oif(device) => Some(device),
            _ => None,
        }))
    }

    /// Whether an address is local to this namespace.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn is_local(&self, address: IpAddr) -> io::Result<bool> {
        self.ask(|n| n.is_local(address))
    }
}

fn to(destination: IpAddr, prefix_len: u8) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = prefix_len;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Destination(RouteAddress::from(destination))];
    message
}

fn device_route(index: u32, destination: IpAddr, prefix_len: u8) -> RouteMessage {
    let mut message = to(destination, prefix_len);
    message.header.scope = match destination {
        IpAddr::V4(_) => RouteScope::Link,
        // IPv6 routes have no scopes.
        IpAddr::V6(_) => RouteScope::Universe,
    };
    message.attributes.push(RouteAttribute::Oif(index));
    message
}
