//! Virtual devices, as `ip link add ... type KIND` creates them.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BondMode, GreIOFlags, InfoBond, InfoData, InfoGeneve, InfoGre, InfoGre6, InfoIpTunnel,
    InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan, InfoVxlan, IpVlanMode, LinkAttribute, LinkInfo,
    LinkMessage, MacVlanMode,
};
use netplumb_model::topology::{DeviceKind, DeviceSpec};

use crate::netlink::Netlink;

/// RFC 7348; the kernel's own default is older.
const VXLAN_PORT: u16 = 4789;
/// How often a bond looks at the carriers of its ports, in milliseconds, as drivers/net/bonding advises.
const MIIMON_MS: u32 = 100;

impl Netlink {
    /// Create a virtual device, neither up nor with addresses: on the device of index `lower`, and in `namespace` if
    /// that is another one than this.
    ///
    /// # Errors
    /// The kernel lacks the kind, or refuses the settings.
    pub fn add_virtual(
        &mut self,
        device: &DeviceSpec,
        mac: Option<[u8; 6]>,
        lower: Option<u32>,
        namespace: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let (kind, data) = info(device, lower);
        let mut infos = vec![LinkInfo::Kind(kind)];
        infos.extend(data.map(LinkInfo::Data));
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(device.name.clone())];
        link.attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
        link.attributes.extend(lower.map(LinkAttribute::Link));
        link.attributes.extend(namespace.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        link.attributes.push(LinkAttribute::LinkInfo(infos));
        self.ask(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }
}

/// The kind of a device and its settings, as rtnetlink has them.
fn info(device: &DeviceSpec, lower: Option<u32>) -> (InfoKind, Option<InfoData>) {
    let id = device.id.unwrap_or_default();
    let ends = [device.local, device.remote];
    let is_v6 = ends.iter().flatten().any(IpAddr::is_ipv6);
    let mode = device.mode_number();
    match device.kind {
        // These are pairs, which are created together.
        DeviceKind::Link | DeviceKind::Veth => (InfoKind::Veth, None),
        DeviceKind::Bridge => (InfoKind::Bridge, None),
        DeviceKind::Dummy => (InfoKind::Dummy, None),
        DeviceKind::Bond => {
            let data = vec![InfoBond::Mode(BondMode::from(mode)), InfoBond::MiiMon(MIIMON_MS)];
            (InfoKind::Bond, Some(InfoData::Bond(data)))
        }
        DeviceKind::Vlan => (InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(id as u16)]))),
        DeviceKind::Vxlan => {
            let mut data = vec![InfoVxlan::Id(id)];
            data.extend(device.remote.map(|remote| match remote {
                IpAddr::V4(v4) => InfoVxlan::Group(v4),
                IpAddr::V6(v6) => InfoVxlan::Group6(v6),
            }));
            data.extend(device.local.map(|local| match local {
                IpAddr::V4(v4) => InfoVxlan::Local(v4),
                IpAddr::V6(v6) => InfoVxlan::Local6(v6),
            }));
            data.extend(lower.map(InfoVxlan::Link));
            data.push(InfoVxlan::Port(device.port.unwrap_or(VXLAN_PORT)));
            (InfoKind::Vxlan, Some(InfoData::Vxlan(data)))
        }
        DeviceKind::Geneve => {
            let mut data = vec![InfoGeneve::Id(id)];
            data.extend(device.remote.map(|remote| match remote {
                IpAddr::V4(v4) => InfoGeneve::Remote(v4),
                IpAddr::V6(v6) => InfoGeneve::Remote6(v6),
            }));
            data.extend(device.port.map(InfoGeneve::Port));
            (InfoKind::Geneve, Some(InfoData::Geneve(data)))
        }
        DeviceKind::Gre if is_v6 => {
            let mut data = Vec::new();
            for (end, make) in ends.into_iter().zip([InfoGre6::Local, InfoGre6::Remote]) {
                if let Some(IpAddr::V6(v6)) = end {
                    data.push(make(v6));
                }
            }
            if device.id.is_some() {
                data.extend([InfoGre6::IKey(id), InfoGre6::OKey(id)]);
                data.extend([InfoGre6::IFlags(GreIOFlags::Key), InfoGre6::OFlags(GreIOFlags::Key)]);
            }
            (InfoKind::GreTun6, Some(InfoData::GreTun6(data)))
        }
        DeviceKind::Gre => {
            let mut data = Vec::new();
            for (end, make) in ends.into_iter().zip([InfoGre::Local, InfoGre::Remote]) {
                if let Some(IpAddr::V4(v4)) = end {
                    data.push(make(v4));
                }
            }
            if device.id.is_some() {
                data.extend([InfoGre::IKey(id), InfoGre::OKey(id)]);
                data.extend([InfoGre::IFlags(GreIOFlags::Key), InfoGre::OFlags(GreIOFlags::Key)]);
            }
            (InfoKind::GreTun, Some(InfoData::GreTun(data)))
        }
        DeviceKind::Ipip => {
            let mut data = Vec::new();
            data.extend(device.local.map(InfoIpTunnel::Local));
            data.extend(device.remote.map(InfoIpTunnel::Remote));
            let kind = if is_v6 { InfoKind::Ip6Tnl } else { InfoKind::IpIp };
            (kind, Some(InfoData::IpTunnel(data)))
        }
        DeviceKind::Wireguard => (InfoKind::Wireguard, None),
        DeviceKind::Macvlan => {
            let data = vec![InfoMacVlan::Mode(MacVlanMode::from(u32::from(mode)))];
            (InfoKind::MacVlan, Some(InfoData::MacVlan(data)))
        }
        DeviceKind::Ipvlan => {
            let data = vec![InfoIpVlan::Mode(IpVlanMode::from(u16::from(mode)))];
            (InfoKind::IpVlan, Some(InfoData::IpVlan(data)))
        }
    }
}
