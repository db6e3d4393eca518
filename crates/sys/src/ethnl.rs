//! The netlink of ethtool (Documentation/networking/ethtool-netlink.rst): coalescing, rings and channels,
//! whose errors have the driver's reason.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{DefaultNla, Emitable};
use netplumb_model::experiment::{Channel, Coalescing, Ring};

use crate::genl::{GenericNetlink, NESTED};

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
pub struct EthtoolNetlink(GenericNetlink);

impl EthtoolNetlink {
    /// Open one.
    ///
    /// # Errors
    /// No file descriptors are left, or the kernel lacks ethtool's netlink (Linux 5.6,
    /// CONFIG_ETHTOOL_NETLINK).
    pub fn open() -> io::Result<EthtoolNetlink> {
        let opened = GenericNetlink::open("ethtool");
        opened.map(EthtoolNetlink).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel lacks ethtool's netlink (CONFIG_ETHTOOL_NETLINK)",
            ),
            _ => error,
        })
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
        let found = self.0.ask(A::GET, 0, [of_device(device)].as_slice())?;
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
        self.0.ask(A::GET + 1, 0, attributes.as_slice()).map(drop)
    }
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
