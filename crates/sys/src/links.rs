//! Network devices by rtnetlink: listed, created, joined, brought up and deleted.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    LinkXdp, State, Stats64,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netplumb_model::class::Link;

use crate::netlink::Netlink;
use crate::netns::Namespace;

/// A device, as the kernel describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Its index in its namespace.
    pub index: u32,
    /// As in `ip link`, without alternative names.
    pub name: String,
    /// Its MAC address.
    pub mac: Vec<u8>,
    /// Its MTU.
    pub mtu_bytes: u32,
    /// The smallest and the largest MTU that its driver takes (IFLA_MIN_MTU, IFLA_MAX_MTU), where the kernel reports
    /// them.
    pub mtus: [Option<u32>; 2],
    /// Whether it is up (IFF_UP).
    pub up: bool,
    /// Whether it is running (carrier detected): a veth that was just brought up drops packets
    /// until then.
    pub running: bool,
    /// Whether it is in promiscuous mode.
    pub promiscuous: bool,
    /// Whether it is an Ethernet device, and not a loopback.
    pub ethernet: bool,
    /// Its permanent MAC address, if it reports one.
    pub permanent_mac: Option<Vec<u8>>,
    /// The index of its bridge, bond or team.
    pub master: Option<u32>,
    /// Its kind, if it is a virtual device: "veth", "vlan".
    pub kind: Option<String>,
    /// The device of the same namespace that it belongs to: a VLAN's NIC, a veth's peer.
    pub lower: Option<u32>,
    /// The id of its XDP program, if it has one.
    pub xdp: Option<u32>,
    /// Its root qdisc.
    pub qdisc: String,
    /// Whether it is the loopback device.
    pub loopback: bool,
    /// Whether it has the flag IFF_RUNNING, which a new device also has while its state is unknown.
    pub flagged_running: bool,
    /// Whether its state is known to be up (RFC 2863).
    pub known_up: bool,
}

impl DeviceState {
    /// Whether it transmits packets. A new device has IFF_RUNNING while its state is unknown; one
    /// whose carrier depends on its peer, such as veth, drops all packets until the kernel has
    /// processed the carrier change in a worker: its queues are `noop` until then
    /// (linkwatch_do_dev, dev_activate).
    pub fn ready(&self, link: Link) -> bool {
        self.flagged_running && (self.known_up || link != Link::Veth || self.loopback)
    }

    fn from_message(link: LinkMessage) -> DeviceState {
        let flag = |flag| link.header.flags.contains(flag);
        let mut device = DeviceState {
            index: link.header.index,
            up: flag(LinkFlags::Up),
            promiscuous: flag(LinkFlags::Promisc),
            ethernet: link.header.link_layer_type == LinkLayerType::Ether,
            loopback: flag(LinkFlags::Loopback),
            flagged_running: flag(LinkFlags::Running),
            ..DeviceState::default()
        };
        let mut state = State::Unknown;
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
                LinkAttribute::Xdp(attributes) => {
                    device.xdp = attributes.into_iter().find_map(|attribute| match attribute {
                        LinkXdp::ProgId(id) if id > 0 => Some(id),
                        _ => None,
                    });
                }
                LinkAttribute::Address(mac) => device.mac = mac,
                LinkAttribute::IfName(name) => device.name = name,
                LinkAttribute::Mtu(mtu) => device.mtu_bytes = mtu,
                LinkAttribute::MinMtu(mtu) => device.mtus[0] = Some(mtu),
                // 0: any (struct net_device: max_mtu).
                LinkAttribute::MaxMtu(mtu) => device.mtus[1] = Some(mtu).filter(|mtu| *mtu > 0),
                LinkAttribute::Qdisc(qdisc) => device.qdisc = qdisc,
                LinkAttribute::OperState(operational) => state = operational,
                _ => {}
            }
        }
        // A driver that does not report a carrier leaves the state unknown, and the device
        // transmits when it is up; for a veth this only holds until it reports one.
        device.known_up = state == State::Up;
        let unknown = state == State::Unknown && device.kind.as_deref() != Some("veth");
        device.running = device.flagged_running && (device.known_up || unknown);
        device
    }
}

/// The index of a device in this thread's namespace.
///
/// # Errors
/// The interface does not exist.
pub fn index_of(name: &CStr) -> io::Result<u32> {
    // SAFETY: the name ends with a zero and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The name of a device in this thread's namespace.
///
/// # Errors
/// The interface does not exist.
pub fn name_of(index: u32) -> io::Result<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the room that the call may fill.
    if unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has put a string with its end into the buffer.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

impl Netlink {
    /// Whether every device that is up transmits packets.
    pub fn all_ready(&mut self) -> io::Result<bool> {
        Ok(self.devices()?.iter().all(|d| d.running || !d.up))
    }

    /// Every device of this namespace.
    pub fn devices(&mut self) -> io::Result<Vec<DeviceState>> {
        let asked = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let device = |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(DeviceState::from_message(link)),
            _ => None,
        };
        let answers = self.ask(asked, NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(device).collect())
    }

    /// The counters of a device (struct rtnl_link_stats64), by the names of its fields.
    pub fn statistics(&mut self, device: &str) -> io::Result<Vec<(&'static str, u64)>> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(device.to_string())];
        let answers = self.ask(RouteNetlinkMessage::GetLink(message), 0)?;
        let stats = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => {
                link.attributes.into_iter().find_map(|a| match a {
                    LinkAttribute::Stats64(stats) => Some(by_name(&stats)),
                    _ => None,
                })
            }
            _ => None,
        });
        Ok(stats.into_iter().flatten().collect())
    }

    /// Create a veth pair: one end here, the other in `peer_namespace`, or here, too.
    pub fn add_veth(
        &mut self,
        (name, mac): (&str, [u8; 6]),
        (peer_name, peer_mac): (&str, [u8; 6]),
        peer_namespace: Option<BorrowedFd<'_>>,
        queues: Option<u32>,
        numbers: Option<[u32; 2]>,
    ) -> io::Result<()> {
        // The kernel accepts the peer's index only together with the device's (veth_newlink).
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
        ];
        let elsewhere = peer_namespace.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd()));
        peer.attributes.extend(elsewhere);
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
        self.ask(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Create a bridge, without spanning tree.
    pub fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.ask(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Make a device a port of a bridge.
    pub fn set_bridge(&mut self, port: u32, bridge: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = port;
        link.attributes = vec![LinkAttribute::Controller(bridge)];
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Add a forwarding entry: the port of a bridge for a MAC address.
    pub fn add_forwarding(&mut self, port: u32, mac: [u8; 6]) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = port;
        // For the port's bridge: NTF_MASTER.
        message.header.flags = NeighbourFlags::Controller;
        message.header.state = NeighbourState::Noarp;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
        self.ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Move a device to another namespace, with a new name.
    pub fn move_device(
        &mut self,
        index: u32,
        name: &str,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes =
            vec![LinkAttribute::IfName(name.into()), LinkAttribute::NetNsFd(namespace.as_raw_fd())];
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Bring a device up, with an MTU if one is given.
    pub fn set_up(&mut self, index: u32, mtu_bytes: Option<u32>) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = mtu_bytes.map(LinkAttribute::Mtu).into_iter().collect();
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Turn promiscuous mode on or off.
    pub fn set_promiscuous(&mut self, index: u32, on: bool) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.change_mask = LinkFlags::Promisc;
        if on {
            link.header.flags = LinkFlags::Promisc;
        }
        self.ask(RouteNetlinkMessage::SetLink(link), 0).map(drop)
    }

    /// Delete a device.
    pub fn remove_device(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.ask(RouteNetlinkMessage::DelLink(link), 0).map(drop)
    }
}

/// struct rtnl_link_stats64, by the names of its fields.
fn by_name(stats: &Stats64) -> [(&'static str, u64); 21] {
    [
        ("rx_packets", stats.rx_packets),
        ("tx_packets", stats.tx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("tx_bytes", stats.tx_bytes),
        ("rx_errors", stats.rx_errors),
        ("tx_errors", stats.tx_errors),
        ("rx_dropped", stats.rx_dropped),
        ("tx_dropped", stats.tx_dropped),
        ("multicast", stats.multicast),
        ("collisions", stats.collisions),
        ("rx_length_errors", stats.rx_length_errors),
        ("rx_over_errors", stats.rx_over_errors),
        ("rx_crc_errors", stats.rx_crc_errors),
        ("rx_frame_errors", stats.rx_frame_errors),
        ("rx_fifo_errors", stats.rx_fifo_errors),
        ("rx_missed_errors", stats.rx_missed_errors),
        ("tx_aborted_errors", stats.tx_aborted_errors),
        ("tx_carrier_errors", stats.tx_carrier_errors),
        ("tx_fifo_errors", stats.tx_fifo_errors),
        ("rx_nohandler", stats.rx_nohandler),
        ("rx_otherhost_dropped", stats.rx_otherhost_dropped),
    ]
}

impl Namespace {
    /// The devices of the namespace.
    ///
    /// # Errors
    /// It can't be entered, or its devices can't be listed.
    pub fn device_states(&self) -> io::Result<Vec<DeviceState>> {
        self.ask(Netlink::devices)
    }

    /// Create a veth pair, one end here, the other in another namespace: name and MAC address of
    /// each.
    ///
    /// # Errors
    /// The name exists, or the kernel lacks veth.
    pub fn add_veth(
        &self,
        here: (&str, [u8; 6]),
        there: (&str, [u8; 6]),
        namespace: &Namespace,
        queues: Option<u32>,
    ) -> io::Result<()> {
        self.ask(|netlink| netlink.add_veth(here, there, Some(namespace.as_fd()), queues, None))
    }

    /// Create a bridge without spanning tree; returns its index.
    ///
    /// # Errors
    /// The name exists, or the kernel lacks bridges.
    pub fn add_bridge(&self, name: &str) -> io::Result<u32> {
        self.ask(|netlink| {
            netlink.add_bridge(name)?;
            let devices = netlink.devices()?;
            let bridge = devices.into_iter().find(|d| d.name == name);
            bridge.map(|d| d.index).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    /// Make a device a port of a bridge, or of none.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_bridge(&self, port: u32, bridge: Option<u32>) -> io::Result<()> {
        self.ask(|netlink| netlink.set_bridge(port, bridge.unwrap_or(0)))
    }

    /// Add a forwarding entry: the port of a bridge for a MAC address.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn add_forwarding(&self, port: u32, mac: [u8; 6]) -> io::Result<()> {
        self.ask(|netlink| netlink.add_forwarding(port, mac))
    }

    /// Delete a device, and a veth's peer with it.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn remove_device(&self, index: u32) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_device(index))
    }

    /// Bring a device up, with an MTU if one is given.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_up(&self, index: u32, mtu_bytes: Option<u32>) -> io::Result<()> {
        self.ask(|netlink| netlink.set_up(index, mtu_bytes))
    }

    /// Turn promiscuous mode on or off.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_promiscuous(&self, index: u32, on: bool) -> io::Result<()> {
        self.ask(|netlink| netlink.set_promiscuous(index, on))
    }

    /// Bring a device down.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_down(&self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.change_mask = LinkFlags::Up;
        self.ask(|n| n.ask(RouteNetlinkMessage::SetLink(link), 0)).map(drop)
    }

    /// Set the MTU of a device.
    ///
    /// # Errors
    /// The driver refuses it.
    pub fn set_mtu(&self, index: u32, mtu_bytes: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Mtu(mtu_bytes)];
        self.ask(|n| n.ask(RouteNetlinkMessage::SetLink(link), 0)).map(drop)
    }

    /// The indices of its devices, by name.
    ///
    /// # Errors
    /// It can't be entered, or its devices can't be listed.
    pub fn devices(&self) -> io::Result<BTreeMap<String, u32>> {
        let devices = self.device_states()?;
        Ok(devices.into_iter().map(|d| (d.name, d.index)).collect())
    }

    /// The index and the address of one of its devices.
    ///
    /// # Errors
    /// It can't be entered, or has no such device.
    pub fn device(&self, name: &str) -> io::Result<(u32, [u8; 6])> {
        let devices = self.device_states()?;
        let device = devices.into_iter().find(|d| d.name == name);
        let found = device.and_then(|d| Some((d.index, d.mac.try_into().ok()?)));
        found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no such device {name}, or it has no Ethernet address"),
            )
        })
    }
}
