//! The few rtnetlink requests that a topology is made of.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    LinkXdp, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use netplumb_model::class::Link;

/// A device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu_bytes: u32,
    pub(super) qdisc: String,
    pub(super) mac: Vec<u8>,
    pub(super) up: bool,
    pub(super) promiscuous: bool,
    /// Whether its frames are Ethernet's.
    pub(super) ethernet: bool,
    /// The address that it was made with, if it tells.
    pub(super) permanent_mac: Option<Vec<u8>>,
    /// The bridge, bond or team that it is a port of.
    pub(super) master: Option<u32>,
    /// What kind of virtual device it is, if it is one.
    pub(super) kind: Option<String>,
    /// The device of this namespace that it hands its packets to.
    pub(super) lower: Option<u32>,
    /// Its XDP program.
    pub(super) xdp: Option<u32>,
    is_loopback: bool,
    running: bool,
    state: State,
}

impl Device {
    /// Whether the kernel has seen its carrier. A driver that tells of none leaves the
    /// state unknown (RFC 2863), and what is up then runs; of a veth that is a moment
    /// before it tells.
    pub(super) fn running(&self) -> bool {
        let untold = self.state == State::Unknown && self.kind.as_deref() != Some("veth");
        self.running && (self.state == State::Up || untold)
    }

    /// Whether packets that are sent get out. A new device is said to run while its
    /// state is not known yet; one whose carrier comes with its peer, as that of veth,
    /// drops all packets until the kernel has seen to the carrier in a worker of its
    /// own: its queues are `noop` until then (linkwatch_do_dev, dev_activate).
    pub(super) fn ready(&self, link: Link) -> bool {
        let known = self.state == State::Up;
        self.running && (known || link != Link::Veth || self.is_loopback)
    }
}

/// A conversation with the namespace that this thread was in when it began.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink {
            socket,
            sequence: 0,
        })
    }

    /// Send one request, and take the answer: messages up to the acknowledgement.
    pub(super) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while rest.len() >= 16 {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                match answer.payload {
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(answers),
                            Some(_) => Err(error.to_io()),
                        };
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
        }
    }

    /// Whether packets get out of every device that is up.
    pub(super) fn all_ready(&mut self, link: Link) -> io::Result<bool> {
        Ok(self.devices()?.iter().all(|d| d.ready(link) || !d.up))
    }

    /// Every device of this namespace.
    pub(super) fn devices(&mut self) -> io::Result<Vec<Device>> {
        let dump = netlink_packet_core::NLM_F_DUMP;
        let answers = self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), dump)?;
        let mut devices = Vec::new();
        for answer in answers {
            let RouteNetlinkMessage::NewLink(link) = answer else {
                continue;
            };
            let mut device = Device {
                index: link.header.index,
                up: link.header.flags.contains(LinkFlags::Up),
                promiscuous: link.header.flags.contains(LinkFlags::Promisc),
                ethernet: link.header.link_layer_type == LinkLayerType::Ether,
                permanent_mac: None,
                master: None,
                kind: None,
                lower: None,
                xdp: None,
                is_loopback: link.header.flags.contains(LinkFlags::Loopback),
                running: link.header.flags.contains(LinkFlags::Running),
                name: String::new(),
                mtu_bytes: 0,
                qdisc: String::new(),
                mac: Vec::new(),
                state: State::Unknown,
            };
            let elsewhere = |a: &LinkAttribute| matches!(a, LinkAttribute::LinkNetNsId(_));
            let elsewhere = link.attributes.iter().any(elsewhere);
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::PermAddress(mac) => device.permanent_mac = Some(mac),
                    LinkAttribute::Controller(index) => device.master = Some(index),
                    LinkAttribute::Link(index) if !elsewhere => device.lower = Some(index),
                    LinkAttribute::LinkInfo(infos) => {
                        device.kind = infos.into_iter().find_map(|info| match info {
                            LinkInfo::Kind(kind) => Some(kind.to_string()),
                            _ => None,
                        });
                    }
                    LinkAttribute::Xdp(told) => {
                        device.xdp = told.into_iter().find_map(|told| match told {
                            LinkXdp::ProgId(id) if id > 0 => Some(id),
                            _ => None,
                        });
                    }
                    LinkAttribute::Address(mac) => device.mac = mac,
                    LinkAttribute::IfName(name) => device.name = name,
                    LinkAttribute::Mtu(mtu) => device.mtu_bytes = mtu,
                    LinkAttribute::Qdisc(qdisc) => device.qdisc = qdisc,
                    LinkAttribute::OperState(state) => device.state = state,
                    _ => {}
                }
            }
            devices.push(device);
        }
        Ok(devices)
    }

    /// A veth pair: one end here, the other in `peer_namespace`.
    pub(super) fn add_veth(
        &mut self,
        (name, mac): (&str, [u8; 6]),
        (peer_name, peer_mac): (&str, [u8; 6]),
        peer_namespace: BorrowedFd<'_>,
        queues: Option<u32>,
        numbers: Option<[u32; 2]>,
    ) -> io::Result<()> {
        // The kernel takes the peer's number only along with its own (veth_newlink).
        let [number, peer_number] = numbers.unwrap_or_default();
        let queues = || {
            queues
                .into_iter()
                .flat_map(|n| [LinkAttribute::NumTxQueues(n), LinkAttribute::NumRxQueues(n)])
        };
        let mut peer = LinkMessage::default();
        peer.header.index = peer_number;
        peer.attributes = vec![
            LinkAttribute::IfName(peer_name.into()),
            LinkAttribute::Address(peer_mac.to_vec()),
            LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()),
        ];
        peer.attributes.extend(queues());
        let mut link = LinkMessage::default();
        link.header.index = number;
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        link.attributes.extend(queues());
        self.ask(
            RouteNetlinkMessage::NewLink(link),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// A bridge, without spanning tree.
    pub(super) fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.ask(
            RouteNetlinkMessage::NewLink(link),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Make a device a port of a bridge.
    pub(super) fn set_bridge(&mut self, port: u32, bridge: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes = vec![LinkAttribute::Controller(bridge)];
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Tell a bridge behind which of its ports an address is.
    pub(super) fn add_forwarding(&mut self, port: u32, mac: [u8; 6]) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = port;
        // For the bridge that the port is of: NTF_MASTER.
        message.header.flags = NeighbourFlags::Controller;
        message.header.state = NeighbourState::Noarp;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
        self.ask(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// Give a device to another namespace, under a name.
    pub(super) fn move_device(
        &mut self,
        index: u32,
        name: &str,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::NetNsFd(namespace.as_raw_fd()),
        ];
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Bring a device up, with an MTU if one is asked for.
    pub(super) fn set_up(&mut self, index: u32, mtu_bytes: Option<u32>) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = mtu_bytes.map(LinkAttribute::Mtu).into_iter().collect();
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Have a device take frames that are to others, or not.
    pub(super) fn set_promiscuous(&mut self, index: u32, on: bool) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.change_mask = LinkFlags::Promisc;
        if on {
            link.header.flags = LinkFlags::Promisc;
        }
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Give a device an address, without duplicate address detection.
    pub(super) fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewAddress(address_of(index, address, prefix_len)),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// The same, where it has not got it yet.
    pub(super) fn give_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewAddress(address_of(index, address, prefix_len)),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Take an address from a device.
    pub(super) fn take_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        let message = address_of(index, address, prefix_len);
        self.ask(RouteNetlinkMessage::DelAddress(message), 0)
            .map(drop)
    }

    /// Take a device away.
    pub(super) fn remove_device(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.ask(RouteNetlinkMessage::DelLink(link), 0).map(drop)
    }

    /// A neighbour that is known for good: no ARP or ND in the measured path.
    pub(super) fn add_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewNeighbour(neighbour_of(index, address, Some(mac))),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
        .map(drop)
    }

    /// The same, where nothing is known of it yet.
    pub(super) fn new_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> io::Result<()> {
        self.ask(
            RouteNetlinkMessage::NewNeighbour(neighbour_of(index, address, Some(mac))),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Forget a neighbour.
    pub(super) fn remove_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let message = neighbour_of(index, address, None);
        self.ask(RouteNetlinkMessage::DelNeighbour(message), 0)
            .map(drop)
    }

    /// A route to what is behind a device.
    pub(super) fn add_device_route(
        &mut self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        let message = device_route(index, destination, prefix_len);
        self.ask(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Take such a route away.
    pub(super) fn remove_device_route(
        &mut self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        let message = device_route(index, destination, prefix_len);
        self.ask(RouteNetlinkMessage::DelRoute(message), 0)
            .map(drop)
    }

    /// Whether packets to an address are for this namespace. An address of IPv6 has no
    /// route before a worker of the kernel has seen to it (addrconf_dad_work), even if
    /// nobody is asked whether it is taken.
    pub(super) fn is_local(&mut self, address: IpAddr) -> io::Result<bool> {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let message = route_to(address, bits);
        match self.ask(RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(answers) => Ok(answers.iter().any(|answer| match answer {
                RouteNetlinkMessage::NewRoute(route) => route.header.kind == RouteType::Local,
                _ => false,
            })),
            Err(e) if e.kind() == io::ErrorKind::NetworkUnreachable => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A route to `destination` by way of `gateway`.
    pub(super) fn add_route(
        &mut self,
        destination: IpAddr,
        prefix_len: u8,
        gateway: IpAddr,
    ) -> io::Result<()> {
        let mut message = route_to(destination, prefix_len);
        message.header.scope = RouteScope::Universe;
        message
            .attributes
            .push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
        self.ask(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
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

fn route_to(destination: IpAddr, prefix_len: u8) -> RouteMessage {
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
    let mut message = route_to(destination, prefix_len);
    message.header.scope = match destination {
        IpAddr::V4(_) => RouteScope::Link,
        // There are no scopes of routes in IPv6.
        IpAddr::V6(_) => RouteScope::Universe,
    };
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
