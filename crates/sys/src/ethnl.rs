//! The netlink of ethtool (Documentation/networking/ethtool-netlink.rst): coalescing, rings and channels,
//! whose errors have the driver's reason.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NlaBuffer, NlasIterator,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use netplumb_model::experiment::{Channel, Coalescing, Ring};

/// A `struct nlmsghdr`, and a `struct genlmsghdr` after it.
const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
/// Types of messages of the kernel (include/uapi/linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
/// Of an error: `struct nlmsgerr` has the number and the request's header.
const ERROR_BYTES: usize = 4 + HEADER_BYTES;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// NLA_F_NESTED: the attribute holds others.
const NESTED: u16 = 0x8000;

/// include/uapi/linux/genetlink.h.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// include/uapi/linux/ethtool_netlink.h.
const RINGS_GET: u8 = 15;
const CHANNELS_GET: u8 = 17;
const COALESCE_GET: u8 = 19;
/// The first attribute of every message of ethtool: it names the device.
const HEADER: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;

/// What is read by one command, and set by the next one.
trait Attribute: Copy + Ord + 'static {
    /// The command that reads it.
    const GET: u8;
    /// All of them.
    const ALL: &'static [Self];
    /// The number of its attribute in a message.
    fn id(self) -> u16;
    /// The attribute with its maximum; none without one.
    fn most_id(self) -> Option<u16> {
        None
    }
    /// Whether it is a number of 8 bits, and not of 32.
    fn is_byte(self) -> bool {
        false
    }
}

impl Attribute for Coalescing {
    const GET: u8 = COALESCE_GET;
    const ALL: &'static [Coalescing] = Coalescing::ALL;

    fn id(self) -> u16 {
        match self {
            Coalescing::RxUsecs => 2,
            Coalescing::RxFrames => 3,
            Coalescing::TxUsecs => 6,
            Coalescing::TxFrames => 7,
            Coalescing::AdaptiveRx => 11,
            Coalescing::AdaptiveTx => 12,
        }
    }

    fn is_byte(self) -> bool {
        self.is_switch()
    }
}

impl Attribute for Ring {
    const GET: u8 = RINGS_GET;
    const ALL: &'static [Ring] = Ring::ALL;

    fn id(self) -> u16 {
        match self {
            Ring::Rx => 6,
            Ring::Tx => 9,
        }
    }

    fn most_id(self) -> Option<u16> {
        Some(match self {
            Ring::Rx => 2,
            Ring::Tx => 5,
        })
    }
}

impl Attribute for Channel {
    const GET: u8 = CHANNELS_GET;
    const ALL: &'static [Channel] = Channel::ALL;

    fn id(self) -> u16 {
        match self {
            Channel::Rx => 6,
            Channel::Tx => 7,
            Channel::Combined => 9,
        }
    }

    fn most_id(self) -> Option<u16> {
        Some(match self {
            Channel::Rx => 2,
            Channel::Tx => 3,
            Channel::Combined => 5,
        })
    }
}

/// A socket, in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct EthtoolNetlink {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl EthtoolNetlink {
    /// Open one.
    ///
    /// # Errors
    /// No file descriptors are left, or the kernel lacks ethtool's netlink (Linux 5.6,
    /// CONFIG_ETHTOOL_NETLINK).
    pub fn open() -> io::Result<EthtoolNetlink> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors have a text, and not the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        let mut netlink = EthtoolNetlink { socket, family: GENL_ID_CTRL, sequence: 0 };
        let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, b"ethtool\0".to_vec());
        let found = netlink.ask(CTRL_CMD_GETFAMILY, &[name]);
        let found = found.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel lacks ethtool's netlink (CONFIG_ETHTOOL_NETLINK)",
            ),
            _ => error,
        })?;
        netlink.family = (found.get(&CTRL_ATTR_FAMILY_ID))
            .and_then(|id| Some(u16::from_ne_bytes(id.get(..2)?.try_into().ok()?)))
            .ok_or_else(|| io::Error::other("the kernel did not tell the id of ethtool"))?;
        Ok(netlink)
    }

    /// The coalescing settings that a device's driver has.
    ///
    /// # Errors
    /// The device does not exist, or its driver has none.
    pub fn coalescing(&mut self, device: &str) -> io::Result<BTreeMap<Coalescing, u32>> {
        self.read(device)
    }

    /// Set coalescing; all other settings stay.
    ///
    /// # Errors
    /// The driver refuses it: with its reason, if it gave one.
    pub fn set_coalescing(
        &mut self,
        device: &str,
        to: &BTreeMap<Coalescing, u32>,
    ) -> io::Result<()> {
        self.set(device, to)
    }

    /// How many packets the rings of a device hold.
    ///
    /// # Errors
    /// As [`EthtoolNetlink::coalescing`].
    pub fn rings(&mut self, device: &str) -> io::Result<BTreeMap<Ring, u32>> {
        self.read(device)
    }

    /// Set them; others stay.
    ///
    /// # Errors
    /// As [`EthtoolNetlink::set_coalescing`].
    pub fn set_rings(&mut self, device: &str, to: &BTreeMap<Ring, u32>) -> io::Result<()> {
        self.set(device, to)
    }

    /// The most packets that its rings can hold.
    ///
    /// # Errors
    /// As [`EthtoolNetlink::coalescing`].
    pub fn largest_rings(&mut self, device: &str) -> io::Result<BTreeMap<Ring, u32>> {
        self.read_by(device, Ring::most_id)
    }

    /// How many queues of a device are in use.
    ///
    /// # Errors
    /// As [`EthtoolNetlink::coalescing`].
    pub fn channels(&mut self, device: &str) -> io::Result<BTreeMap<Channel, u32>> {
        self.read(device)
    }

    /// Set them; others stay.
    ///
    /// # Errors
    /// As [`EthtoolNetlink::set_coalescing`].
    pub fn set_channels(&mut self, device: &str, to: &BTreeMap<Channel, u32>) -> io::Result<()> {
        self.set(device, to)
    }

    fn read<A: Attribute>(&mut self, device: &str) -> io::Result<BTreeMap<A, u32>> {
        self.read_by(device, |attribute: A| Some(attribute.id()))
    }

    fn read_by<A: Attribute>(
        &mut self,
        device: &str,
        id: impl Fn(A) -> Option<u16>,
    ) -> io::Result<BTreeMap<A, u32>> {
        let found = self.ask(A::GET, &[of_device(device)])?;
        let value = |attribute: &A| {
            let bytes = found.get(&id(*attribute)?)?;
            let number = match attribute.is_byte() {
                true => u32::from(*bytes.first()?),
                false => u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?),
            };
            Some((*attribute, number))
        };
        Ok(A::ALL.iter().filter_map(value).collect())
    }

    fn set<A: Attribute>(&mut self, device: &str, to: &BTreeMap<A, u32>) -> io::Result<()> {
        let mut attributes = vec![of_device(device)];
        attributes.extend(to.iter().map(|(attribute, value)| match attribute.is_byte() {
            true => DefaultNla::new(attribute.id(), vec![u8::from(*value != 0)]),
            false => number(attribute.id(), *value),
        }));
        self.ask(A::GET + 1, &attributes).map(drop)
    }

    /// Send a request, and receive the attributes of the reply, if there is one, and the
    /// acknowledgement.
    fn ask(
        &mut self,
        command: u8,
        attributes: &[DefaultNla],
    ) -> io::Result<BTreeMap<u16, Vec<u8>>> {
        const VERSION: u8 = 1;
        self.sequence += 1;
        let length: usize = attributes.iter().map(Emitable::buffer_len).sum();
        let mut bytes = vec![0; HEADER_BYTES + GENERIC_BYTES + length];
        let mut header = NetlinkHeader::default();
        header.length = bytes.len() as u32;
        header.message_type = self.family;
        header.flags = NLM_F_REQUEST | NLM_F_ACK;
        header.sequence_number = self.sequence;
        header.emit(&mut bytes);
        bytes[HEADER_BYTES..][..2].copy_from_slice(&[command, VERSION]);
        attributes.emit(&mut bytes[HEADER_BYTES + GENERIC_BYTES..]);
        self.socket.send(&bytes, 0)?;

        let mut reply = BTreeMap::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while let Some((kind, message, after)) = first_of(rest) {
                rest = after;
                match kind {
                    NLMSG_ERROR => return outcome(message).map(|()| reply),
                    _ => reply.extend(attributes_of(message.get(GENERIC_BYTES..))),
                }
            }
        }
    }
}

/// The first message: its type and what is behind its header, and the messages after it.
fn first_of(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let message = bytes.get(HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, message, after))
}

/// The result in an acknowledgement.
fn outcome(message: &[u8]) -> io::Result<()> {
    let code = message.get(..4).and_then(|code| code.try_into().ok());
    let code = code.map_or(-libc::EIO, i32::from_ne_bytes);
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-code);
    let said = attributes_of(message.get(ERROR_BYTES..)).remove(&NLMSGERR_ATTR_MSG);
    let said = said.map(|text| String::from_utf8_lossy(&text).trim_matches('\0').to_string());
    Err(match said.filter(|said| !said.is_empty()) {
        Some(said) => io::Error::new(error.kind(), format!("{said} ({error})")),
        None => error,
    })
}

fn attributes_of(bytes: Option<&[u8]>) -> BTreeMap<u16, Vec<u8>> {
    let all = NlasIterator::new(bytes.unwrap_or_default());
    all.filter_map(|one: Result<NlaBuffer<&[u8]>, _>| {
        let one = one.ok()?;
        Some((one.kind(), one.value().to_vec()))
    })
    .collect()
}

/// The attribute that names the device.
fn of_device(name: &str) -> DefaultNla {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    let name = DefaultNla::new(HEADER_DEV_NAME, text);
    let mut within = vec![0; name.buffer_len()];
    name.emit(&mut within);
    DefaultNla::new(HEADER | NESTED, within)
}

fn number(id: u16, value: u32) -> DefaultNla {
    DefaultNla::new(id, value.to_ne_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use crate::testing::as_root;

    /// Check that a refusal has the driver's reason if it gave one, and the system's otherwise.
    #[test]
    fn refusals() {
        let mut message = (-libc::EINVAL).to_ne_bytes().to_vec();
        message.resize(ERROR_BYTES, 0);
        let plain = outcome(&message).unwrap_err();
        assert_eq!(plain.raw_os_error(), Some(libc::EINVAL));
        let said = DefaultNla::new(NLMSGERR_ATTR_MSG, b"too much\0".to_vec());
        let mut attribute = vec![0; said.buffer_len()];
        said.emit(&mut attribute);
        message.extend(attribute);
        let error = outcome(&message).unwrap_err();
        assert_eq!(error.to_string(), "too much (Invalid argument (os error 22))");
        assert!(outcome(&[0; ERROR_BYTES]).is_ok());
        assert!(outcome(&[]).is_err());
    }

    /// Check the errors for a driver without coalescing and rings, and for a missing device.
    #[test]
    fn as_root_a_veth() {
        as_root(|| {
            let namespace = Namespace::new().unwrap();
            let [left, right] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
            namespace.add_veth(("a0", left), ("a1", right), &namespace, None).unwrap();
            namespace
                .inside(|| {
                    let mut netlink = EthtoolNetlink::open()?;
                    let why = netlink.coalescing("a0").unwrap_err();
                    assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP), "{why}");
                    let to = [(Coalescing::RxUsecs, 1)].into();
                    assert!(netlink.set_coalescing("a0", &to).is_err());
                    let none = netlink.coalescing("a9").unwrap_err();
                    assert!(none.to_string().contains("No such device"), "{none}");
                    let one = netlink.rings("a0");
                    assert!(one.is_err() || one.unwrap().is_empty());
                    let channels = netlink.channels("a0")?;
                    assert_eq!(channels, [(Channel::Rx, 1), (Channel::Tx, 1)].into());
                    let too_many = [(Channel::Rx, 9)].into();
                    let why = netlink.set_channels("a0", &too_many).unwrap_err();
                    assert!(why.to_string().contains("maximum"), "{why}");
                    Ok(())
                })
                .unwrap();
        });
    }
}
