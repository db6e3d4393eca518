//! WireGuard devices, by its generic netlink (include/uapi/linux/wireguard.h).

use std::io;
use std::net::SocketAddr;

use ipnet::IpNet;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute,
    WireguardCmd, WireguardPeer, WireguardPeerAttribute,
};

use crate::genl::GenericNetlink;
use crate::netns::Namespace;

/// WGDEVICE_A_PUBLIC_KEY.
const PUBLIC_KEY: u16 = 4;

/// A key.
pub type WireguardKey = [u8; WireguardAttribute::WG_KEY_LEN];

/// The other end of a tunnel.
#[derive(Debug, Clone)]
pub struct WireguardEnd {
    /// Its public key.
    pub public_key: WireguardKey,
    /// Where handshakes are sent to; none to wait for them.
    pub endpoint: Option<SocketAddr>,
    /// The addresses behind it.
    pub allowed: Vec<IpNet>,
}

impl Namespace {
    fn ask_wireguard(
        &self,
        command: WireguardCmd,
        flags: u16,
        device: &str,
        attributes: Vec<WireguardAttribute>,
    ) -> io::Result<std::collections::BTreeMap<u16, Vec<u8>>> {
        self.inside(|| {
            let mut all = vec![WireguardAttribute::IfName(device.into())];
            all.extend(attributes);
            GenericNetlink::open("wireguard")?.ask(command.into(), flags, all.as_slice())
        })
    }

    /// Give a WireGuard device its private key and UDP port; returns its public key, which the kernel computes.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn set_wireguard(
        &self,
        device: &str,
        private_key: WireguardKey,
        port: u16,
    ) -> io::Result<WireguardKey> {
        let attributes =
            vec![WireguardAttribute::PrivateKey(private_key), WireguardAttribute::ListenPort(port)];
        self.ask_wireguard(WireguardCmd::SetDevice, 0, device, attributes)?;
        let found = self.ask_wireguard(WireguardCmd::GetDevice, NLM_F_DUMP, device, Vec::new())?;
        let key = found.get(&PUBLIC_KEY).and_then(|key| key.as_slice().try_into().ok());
        key.ok_or_else(|| io::Error::other("the kernel did not report its public key"))
    }

    /// Add the other end of a WireGuard device's tunnel.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn add_wireguard_end(&self, device: &str, end: &WireguardEnd) -> io::Result<()> {
        let allowed = end.allowed.iter().map(|net| {
            let family = match net {
                IpNet::V4(_) => WireguardAddressFamily::Ipv4,
                IpNet::V6(_) => WireguardAddressFamily::Ipv6,
            };
            WireguardAllowedIp(vec![
                WireguardAllowedIpAttr::Family(family),
                WireguardAllowedIpAttr::IpAddr(net.network()),
                WireguardAllowedIpAttr::Cidr(net.prefix_len()),
            ])
        });
        let mut peer = vec![
            WireguardPeerAttribute::PublicKey(end.public_key),
            WireguardPeerAttribute::AllowedIps(allowed.collect()),
        ];
        peer.extend(end.endpoint.map(WireguardPeerAttribute::Endpoint));
        let attributes = vec![WireguardAttribute::Peers(vec![WireguardPeer(peer)])];
        self.ask_wireguard(WireguardCmd::SetDevice, 0, device, attributes).map(drop)
    }
}
