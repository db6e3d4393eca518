//! Single changes to a namespace, for those who build a topology of their own. Who
//! makes one undoes it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use netplumb_model::experiment::Offload;

use super::facts::ethtool;
use super::netlink::Netlink;
use super::{Namespace, offload, settings};

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// A device, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceState {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its link-layer address.
    pub mac: Vec<u8>,
    /// The longest packet, without the link header.
    pub mtu_bytes: u32,
    /// Whether it was brought up.
    pub up: bool,
    /// Whether the kernel has seen its carrier: a veth that was just brought up drops
    /// what it is given until then.
    pub running: bool,
    /// Whether it takes frames that are to others.
    pub promiscuous: bool,
    /// Whether its frames are Ethernet's, and it is no loopback.
    pub ethernet: bool,
    /// The address that it was made with, where it tells.
    pub permanent_mac: Option<Vec<u8>>,
    /// The bridge, bond or team that it is a port of, by number.
    pub master: Option<u32>,
    /// What kind of virtual device it is, if it is one: "veth", "vlan".
    pub kind: Option<String>,
    /// The device of the same namespace that it belongs to: a VLAN's NIC, a veth's peer.
    pub lower: Option<u32>,
    /// The number of its XDP program, if it has one.
    pub xdp: Option<u32>,
}

/// Queues of a device that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// To receive by.
    pub receive: u32,
    /// To send by.
    pub send: u32,
}

/// Whether it was done, or had been before.
fn unless_there(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        other => other.map(|()| true),
    }
}

impl From<OwnedFd> for Namespace {
    /// A namespace by a descriptor of it.
    fn from(fd: OwnedFd) -> Namespace {
        Namespace { fd }
    }
}

impl Namespace {
    pub(super) fn ask<T>(&self, f: impl FnOnce(&mut Netlink) -> io::Result<T>) -> io::Result<T> {
        self.inside(|| f(&mut Netlink::open()?))
    }

    /// Its devices.
    ///
    /// # Errors
    /// It can't be entered, or its devices not be listed.
    pub fn device_states(&self) -> io::Result<Vec<DeviceState>> {
        let devices = self.ask(Netlink::devices)?;
        let state = |d: super::netlink::Device| DeviceState {
            running: d.running(),
            promiscuous: d.promiscuous,
            ethernet: d.ethernet,
            permanent_mac: d.permanent_mac,
            master: d.master,
            kind: d.kind,
            lower: d.lower,
            xdp: d.xdp,
            index: d.index,
            name: d.name,
            mac: d.mac,
            mtu_bytes: d.mtu_bytes,
            up: d.up,
        };
        Ok(devices.into_iter().map(state).collect())
    }

    /// A pair of veth devices, one here, the other in another namespace: name and
    /// link-layer address of each.
    ///
    /// # Errors
    /// There is such a device, or the kernel has no veth.
    pub fn add_veth(
        &self,
        here: (&str, [u8; 6]),
        there: (&str, [u8; 6]),
        namespace: &Namespace,
        queues: Option<u32>,
    ) -> io::Result<()> {
        self.ask(|netlink| netlink.add_veth(here, there, namespace.as_fd(), queues, None))
    }

    /// A bridge without spanning tree; its device's number.
    ///
    /// # Errors
    /// There is such a device, or the kernel has no bridges.
    pub fn add_bridge(&self, name: &str) -> io::Result<u32> {
        self.ask(|netlink| {
            netlink.add_bridge(name)?;
            let devices = netlink.devices()?;
            let bridge = devices.into_iter().find(|d| d.name == name);
            bridge
                .map(|d| d.index)
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    /// Make a device a port of a bridge, or of none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_bridge(&self, port: u32, bridge: Option<u32>) -> io::Result<()> {
        self.ask(|netlink| netlink.set_bridge(port, bridge.unwrap_or(0)))
    }

    /// Tell a bridge behind which of its ports a link-layer address is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_forwarding(&self, port: u32, mac: [u8; 6]) -> io::Result<()> {
        self.ask(|netlink| netlink.add_forwarding(port, mac))
    }

    /// Take a device away, a veth's peer with it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_device(&self, index: u32) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_device(index))
    }

    /// Bring a device up, with an MTU if one is asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_up(&self, index: u32, mtu_bytes: Option<u32>) -> io::Result<()> {
        self.ask(|netlink| netlink.set_up(index, mtu_bytes))
    }

    /// Have a device take frames that are to others, or not.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_promiscuous(&self, index: u32, on: bool) -> io::Result<()> {
        self.ask(|netlink| netlink.set_promiscuous(index, on))
    }

    /// Give a device an address; whether it had it not.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<bool> {
        self.ask(|netlink| unless_there(netlink.give_address(index, address, prefix_len)))
    }

    /// Take an address from a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.ask(|netlink| netlink.take_address(index, address, prefix_len))
    }

    /// A neighbour that is known for good, in place of what was known of it; whether
    /// nothing was.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_neighbour(&self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<bool> {
        self.ask(|netlink| {
            let new = unless_there(netlink.new_neighbour(index, address, mac))?;
            if !new {
                netlink.add_neighbour(index, address, mac)?;
            }
            Ok(new)
        })
    }

    /// Forget a neighbour.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_neighbour(&self, index: u32, address: IpAddr) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_neighbour(index, address))
    }

    /// A route to what is behind a device, with no gateway; whether there was none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_device_route(
        &self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<bool> {
        self.ask(|netlink| unless_there(netlink.add_device_route(index, destination, prefix_len)))
    }

    /// Take such a route away.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_device_route(
        &self,
        index: u32,
        destination: IpAddr,
        prefix_len: u8,
    ) -> io::Result<()> {
        self.ask(|netlink| netlink.remove_device_route(index, destination, prefix_len))
    }

    /// How many queues a device has in use; one each way where the driver does not say.
    ///
    /// # Errors
    /// There is no such device.
    pub fn queues(&self, device: &str) -> io::Result<Queues> {
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            // struct ethtool_channels: the command, the most of each kind, then how many
            // there are: to receive by, to send by, others, combined.
            let mut data = [0_u8; 36];
            data[..4].copy_from_slice(&ETHTOOL_GCHANNELS.to_ne_bytes());
            match ethtool(socket.as_raw_fd(), device, &mut data) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return Ok(Queues {
                        receive: 1,
                        send: 1,
                    });
                }
                other => other?,
            }
            let number = |i: usize| {
                let bytes = data[4 * i..4 * i + 4].try_into();
                u32::from_ne_bytes(bytes.unwrap_or_default())
            };
            Ok(Queues {
                receive: number(5) + number(8),
                send: number(6) + number(8),
            })
        })
    }

    /// A setting of this namespace below /proc/sys.
    ///
    /// # Errors
    /// There is none.
    pub fn sysctl(&self, key: &str) -> io::Result<String> {
        self.inside(|| settings::get_sysctl(key))
    }

    /// Change one, and read it back.
    ///
    /// # Errors
    /// The kernel does not take it, in words about settings.
    pub fn set_sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        self.inside(|| settings::set_sysctl(key, value))
    }

    /// Whether a device does some work by itself.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn offload(&self, device: &str, which: Offload) -> io::Result<bool> {
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            offload::get(socket.as_raw_fd(), device, which)
        })
    }

    /// Turn that on or off, and read it back.
    ///
    /// # Errors
    /// The driver does not let it be changed.
    pub fn set_offload(&self, device: &str, which: Offload, on: bool) -> io::Result<()> {
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            offload::set(socket.as_raw_fd(), device, which, on)?;
            if offload::get(socket.as_raw_fd(), device, which)? == on {
                Ok(())
            } else {
                Err(io::Error::other(format!(
                    "{which} of {device} reads back as it was: the driver does not let it be \
                     changed"
                )))
            }
        })
    }
}
