//! The ioctl of ethtool (include/uapi/linux/ethtool.h): driver, driver counters, offloads, features
//! and channels.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use netplumb_model::experiment::Offload;

use crate::netns::Namespace;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
/// Maximum number of words of features; currently there are two (NETDEV_FEATURE_COUNT).
const WORDS: usize = 8;
/// The set of strings of counters: ETH_SS_STATS.
const STATS: u32 = 1;
/// The features' set of strings: ETH_SS_FEATURES.
const FEATURES: u32 = 4;
/// ETH_GSTRING_LEN.
const NAME_BYTES: usize = 32;
/// Maximum number of counters.
const MOST: usize = 1 << 16;
/// Additional room: the kernel returns the driver's current number of names and values, which is
/// higher if queues were added meanwhile.
const MORE: usize = 1 << 12;

/// Features of a device, 32 to a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// Changeable features.
    pub changeable: Vec<u32>,
    /// Wanted features, which are active unless others prevent it.
    pub wanted: Vec<u32>,
    /// Active features.
    pub active: Vec<u32>,
}

/// Whether a feature is on, by the number of its name.
pub fn is_in(words: &[u32], number: usize) -> bool {
    let word = words.get(number / 32);
    word.is_some_and(|word| word & 1 << (number % 32) != 0)
}

/// Channels of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Receive only.
    pub receive: u32,
    /// Send only.
    pub send: u32,
    /// Other.
    pub other: u32,
    /// Combined.
    pub combined: u32,
}

/// Active queues of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Receive queues.
    pub receive: u32,
    /// Send queues.
    pub send: u32,
}

/// A socket for the ioctl, in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ethtool {
    // Any socket of the namespace can be used.
    socket: Socket,
}

impl Ethtool {
    /// Open one.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn open() -> io::Result<Ethtool> {
        Ok(Ethtool { socket: Socket::new(NETLINK_ROUTE)? })
    }

    /// Send a command to a device; `data` begins with the command, and has room for the reply.
    fn ask(&self, device: &str, data: &mut [u64]) -> io::Result<()> {
        if device.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: an all-zero ifreq is a valid one, to be filled in.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: the request points to `data`, which is as long as its command's structure
        // and outlives the call. Of names and counters the kernel writes one for each
        // (ethtool_get_strings and ethtool_get_stats in net/ethtool/ioctl.c), and there is
        // room for MORE than the number that it gave.
        let done =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
        match done {
            // For features, a positive number shows what was not done; they are read back.
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The driver of a device, if it reports one.
    pub fn driver(&self, device: &str) -> Option<String> {
        // struct ethtool_drvinfo: the command, then 32 bytes of the driver's name; 196
        // bytes in all.
        let mut data = room(196);
        put(&mut data, 0, ETHTOOL_GDRVINFO);
        self.ask(device, &mut data).ok()?;
        let name = &bytes(&data)[4..36];
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// struct ethtool_value: the command and a number.
    fn value(&self, device: &str, command: u32, number: u32) -> io::Result<u32> {
        let mut data = room(8);
        put(&mut data, 0, command);
        put(&mut data, 1, number);
        self.ask(device, &mut data)?;
        Ok(word(&data, 1))
    }

    /// Whether an offload is on.
    ///
    /// # Errors
    /// The driver does not report it.
    pub fn offload(&self, device: &str, which: Offload) -> io::Result<bool> {
        Ok(self.value(device, command(which), 0)? != 0)
    }

    /// Turn an offload on or off, without reading it back.
    ///
    /// # Errors
    /// The driver does not support the change.
    pub fn set_offload(&self, device: &str, which: Offload, on: bool) -> io::Result<()> {
        self.value(device, command(which) + 1, u32::from(on))?;
        match which {
            Offload::Tso => self.set_segmentation(device, on),
            _ => Ok(()),
        }
    }

    /// Turn on or off what `ethtool -K tso` does besides: all features of that name (off_flag_def of its
    /// common.c: `tx-tcp*-segmentation`). The ioctl has only NETIF_F_ALL_TSO, without AccECN's.
    fn set_segmentation(&self, device: &str, on: bool) -> io::Result<()> {
        let features = self.features(device)?;
        for (number, name) in self.feature_names(device)?.iter().enumerate() {
            let differs = is_in(&features.wanted, number) != on;
            if segments_tcp(name) && differs && is_in(&features.changeable, number) {
                self.set_feature(device, number, on)?;
            }
        }
        Ok(())
    }

    /// All features of a device.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn features(&self, device: &str) -> io::Result<Features> {
        // struct ethtool_gfeatures: the command, the number of words, and for each:
        // changeable, wanted, active, and never changed features.
        let mut data = room(8 + 16 * WORDS);
        put(&mut data, 0, ETHTOOL_GFEATURES);
        put(&mut data, 1, WORDS as u32);
        self.ask(device, &mut data)?;
        let words = (word(&data, 1) as usize).min(WORDS);
        let column = |n| (0..words).map(|w| word(&data, 2 + 4 * w + n)).collect();
        Ok(Features { changeable: column(0), wanted: column(1), active: column(2) })
    }

    /// Set the wanted features, where they can be changed.
    ///
    /// # Errors
    /// The device does not exist, or it has another number of words.
    pub fn want_features(&self, device: &str, wanted: &[u32]) -> io::Result<()> {
        let now = self.features(device)?;
        if wanted.len() != now.changeable.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // struct ethtool_sfeatures: for each word, the valid bits and the requested ones.
        let mut data = room(8 + 8 * wanted.len());
        put(&mut data, 0, ETHTOOL_SFEATURES);
        put(&mut data, 1, wanted.len() as u32);
        for (w, (bits, changeable)) in wanted.iter().zip(&now.changeable).enumerate() {
            put(&mut data, 2 + 2 * w, *changeable);
            put(&mut data, 3 + 2 * w, *bits);
        }
        self.ask(device, &mut data)
    }

    /// struct ethtool_channels: the command, the maximum of each kind, then the
    /// numbers: RX, TX, other, combined.
    fn ask_channels(&self, device: &str) -> io::Result<Vec<u64>> {
        let mut data = room(36);
        put(&mut data, 0, ETHTOOL_GCHANNELS);
        self.ask(device, &mut data)?;
        Ok(data)
    }

    /// The channels of a device.
    ///
    /// # Errors
    /// The device does not exist, or it does not report it.
    pub fn channels(&self, device: &str) -> io::Result<Channels> {
        let data = self.ask_channels(device)?;
        Ok(Channels {
            receive: word(&data, 5),
            send: word(&data, 6),
            other: word(&data, 7),
            combined: word(&data, 8),
        })
    }

    /// Set the channels.
    ///
    /// # Errors
    /// The driver does not support the change, or the number.
    pub fn set_channels(&self, device: &str, to: Channels) -> io::Result<()> {
        let mut data = self.ask_channels(device)?;
        put(&mut data, 0, ETHTOOL_SCHANNELS);
        for (at, value) in [(5, to.receive), (6, to.send), (7, to.other), (8, to.combined)] {
            put(&mut data, at, value);
        }
        self.ask(device, &mut data)
    }

    /// The driver's counters of a device, by name; none if it has none. Only ethtool reports them.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn statistics(&self, device: &str) -> io::Result<BTreeMap<String, u64>> {
        let names = self.names(device, STATS)?;
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let count = names.len();
        let most = count + MORE;
        // struct ethtool_stats: command, length, then the counters.
        let mut values = room(8 + most * 8);
        put(&mut values, 0, ETHTOOL_GSTATS);
        put(&mut values, 1, count as u32);
        self.ask(device, &mut values)?;
        let names = names.into_iter();
        Ok(names.zip(values[1..].iter().copied()).collect())
    }

    /// The names of features, as `ethtool -k` has them; a name's place is its number.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn feature_names(&self, device: &str) -> io::Result<Vec<String>> {
        self.names(device, FEATURES)
    }

    /// Turn a feature on or off by the number of its name, without reading it back.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn set_feature(&self, device: &str, number: usize, on: bool) -> io::Result<()> {
        let words = self.features(device)?.changeable.len();
        // struct ethtool_sfeatures: for each word, the valid bits and the requested ones.
        let mut data = room(8 + 8 * words);
        put(&mut data, 0, ETHTOOL_SFEATURES);
        put(&mut data, 1, words as u32);
        let (word, bit) = (number / 32, 1 << (number % 32));
        put(&mut data, 2 + 2 * word, bit);
        put(&mut data, 3 + 2 * word, if on { bit } else { 0 });
        self.ask(device, &mut data)
    }

    /// The names of a set of strings.
    fn names(&self, device: &str, set: u32) -> io::Result<Vec<String>> {
        let Some(count) = self.count(device, set)? else {
            return Ok(Vec::new());
        };
        // struct ethtool_gstrings: command, set, length, then the names.
        let mut names = room(12 + (count + MORE) * NAME_BYTES);
        for (at, number) in [ETHTOOL_GSTRINGS, set, count as u32].into_iter().enumerate() {
            put(&mut names, at, number);
        }
        self.ask(device, &mut names)?;
        let names = bytes(&names);
        let named = names[12..].chunks_exact(NAME_BYTES).map(name);
        Ok(named.take(count).collect())
    }

    /// The number of names in a set of strings.
    fn count(&self, device: &str, set: u32) -> io::Result<Option<usize>> {
        // struct ethtool_sset_info: command, reserved, a mask of 64 bits, then lengths.
        let mut data = room(20);
        put(&mut data, 0, ETHTOOL_GSSET_INFO);
        data[1] = 1 << set;
        match self.ask(device, &mut data) {
            Ok(()) if data[1] & 1 << set != 0 => {
                let count = word(&data, 4) as usize;
                Ok(Some(count).filter(|n| (1..=MOST).contains(n)))
            }
            Ok(()) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a feature is one of TSO, by its name.
fn segments_tcp(name: &str) -> bool {
    name.starts_with("tx-tcp") && name.ends_with("-segmentation")
}

/// The command that reads an offload; the one that sets it is one higher.
fn command(offload: Offload) -> u32 {
    match offload {
        Offload::RxChecksum => 0x14,
        Offload::TxChecksum => 0x16,
        Offload::Sg => 0x18,
        Offload::Tso => 0x1e,
        Offload::Gso => 0x23,
        Offload::Gro => 0x2b,
    }
}

/// A buffer for this number of bytes, aligned for counters.
fn room(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

fn halves(word: u64) -> [[u8; 4]; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [[a, b, c, d], [e, f, g, h]]
}

/// A 32-bit number at an index.
fn word(data: &[u64], at: usize) -> u32 {
    let both = data.get(at / 2).copied().unwrap_or_default();
    u32::from_ne_bytes(halves(both)[at % 2])
}

fn put(data: &mut [u64], at: usize, value: u32) {
    if let Some(both) = data.get_mut(at / 2) {
        let mut parts = halves(*both);
        parts[at % 2] = value.to_ne_bytes();
        let [[a, b, c, d], [e, f, g, h]] = parts;
        *both = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    }
}

fn bytes(data: &[u64]) -> Vec<u8> {
    data.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A name of fixed length, or up to the first 0.
fn name(bytes: &[u8]) -> String {
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).trim().to_string()
}

impl Namespace {
    fn ethtool<T>(&self, f: impl FnOnce(&Ethtool) -> io::Result<T>) -> io::Result<T> {
        self.inside(|| f(&Ethtool::open()?))
    }

    /// All features of a device.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn features(&self, device: &str) -> io::Result<Features> {
        self.ethtool(|ethtool| ethtool.features(device))
    }

    /// Set the wanted features, where they can be changed.
    ///
    /// # Errors
    /// The device does not exist, or it has another number of words.
    pub fn want_features(&self, device: &str, wanted: &[u32]) -> io::Result<()> {
        self.ethtool(|ethtool| ethtool.want_features(device, wanted))
    }

    /// The channels of a device.
    ///
    /// # Errors
    /// The device does not exist, or it does not report it.
    pub fn channels(&self, device: &str) -> io::Result<Channels> {
        self.ethtool(|ethtool| ethtool.channels(device))
    }

    /// Set the channels.
    ///
    /// # Errors
    /// The driver does not support the change, or the number.
    pub fn set_channels(&self, device: &str, to: Channels) -> io::Result<()> {
        self.ethtool(|ethtool| ethtool.set_channels(device, to))
    }

    /// The number of active queues of a device; one per direction if the driver does not report it.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn queues(&self, device: &str) -> io::Result<Queues> {
        match self.channels(device) {
            Ok(channels) => Ok(Queues {
                receive: channels.receive + channels.combined,
                send: channels.send + channels.combined,
            }),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(Queues { receive: 1, send: 1 })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an offload is on.
    ///
    /// # Errors
    /// The driver does not report it.
    pub fn offload(&self, device: &str, which: Offload) -> io::Result<bool> {
        self.ethtool(|ethtool| ethtool.offload(device, which))
    }

    /// Turn an offload on or off, and read it back.
    ///
    /// # Errors
    /// The driver does not support the change.
    pub fn set_offload(&self, device: &str, which: Offload, on: bool) -> io::Result<()> {
        self.ethtool(|ethtool| {
            ethtool.set_offload(device, which, on)?;
            if ethtool.offload(device, which)? == on {
                Ok(())
            } else {
                Err(io::Error::other(format!(
                    "{which} of {device} reads back unchanged: not supported by the driver"
                )))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::as_root;

    /// Check the layout of numbers and names.
    #[test]
    fn layout() {
        let mut data = room(20);
        assert_eq!(data.len(), 3);
        for (at, number) in [1, 2, 3].into_iter().enumerate() {
            put(&mut data, at, number);
        }
        let flat = bytes(&data);
        let at = |n: usize| u32::from_ne_bytes(flat[n..n + 4].try_into().unwrap());
        assert_eq!([at(0), at(4), at(8), at(12)], [1, 2, 3, 0]);
        assert_eq!([0, 1, 2, 3].map(|n| word(&data, n)), [1, 2, 3, 0]);
        assert_eq!(word(&data, 99), 0);
        assert_eq!(name(b"  rx_drops\0\0junk"), "rx_drops");
        assert_eq!(name(&[b'a'; 32]), "a".repeat(32));
    }

    /// Check which features are TSO's, by their names.
    #[test]
    fn names_of_tso() {
        for (name, is_tso) in [
            ("tx-tcp-segmentation", true),
            ("tx-tcp6-segmentation", true),
            ("tx-tcp-mangleid-segmentation", true),
            ("tx-tcp-accecn-segmentation", true),
            ("tx-udp-segmentation", false),
            ("tx-sctp-segmentation", false),
        ] {
            assert_eq!(segments_tcp(name), is_tso, "{name}");
        }
    }

    /// Check what a veth reports, that an offload is changed, and that a wrong number of feature
    /// words is refused.
    #[test]
    fn as_root_a_veth() {
        let ran = as_root(|| {
            let namespace = Namespace::new().unwrap();
            let [left, right] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
            namespace.add_veth(("a0", left), ("a1", right), &namespace, Some(2)).unwrap();
            namespace.inside(|| {
                let ethtool = Ethtool::open()?;
                assert_eq!(ethtool.driver("a0").as_deref(), Some("veth"));
                assert!(ethtool.statistics("a0")?.contains_key("peer_ifindex"));
                assert_eq!(ethtool.statistics("lo")?, BTreeMap::new());
                assert!(ethtool.statistics("a9").is_err());
                Ok(())
            })?;
            let queues = namespace.queues("a0")?;
            assert_eq!((queues.receive, queues.send), (2, 2));
            assert_eq!(namespace.queues("lo")?.receive, 1);
            for on in [true, false] {
                namespace.set_offload("a0", Offload::Gro, on)?;
                assert_eq!(namespace.offload("a0", Offload::Gro)?, on);
            }
            // As `ethtool -K a0 tso off` does it, on kernels with AccECN too.
            for on in [false, true] {
                namespace.set_offload("a0", Offload::Tso, on)?;
                namespace.inside(|| {
                    let ethtool = Ethtool::open()?;
                    let features = ethtool.features("a0")?;
                    let names = ethtool.feature_names("a0")?;
                    let of_tso = names.iter().enumerate().filter(|(number, name)| {
                        segments_tcp(name) && is_in(&features.changeable, *number)
                    });
                    let all: Vec<(usize, &String)> = of_tso.collect();
                    assert!(all.len() >= 3, "{all:?}");
                    for (number, name) in all {
                        assert_eq!(is_in(&features.active, number), on, "{name}");
                    }
                    Ok(())
                })?;
            }
            let features = namespace.features("a0")?;
            namespace.inside(|| {
                let ethtool = Ethtool::open()?;
                let names = ethtool.feature_names("a0")?;
                let gro = names.iter().position(|name| name == "rx-gro").unwrap();
                for on in [true, false] {
                    ethtool.set_feature("a0", gro, on)?;
                    assert_eq!(is_in(&ethtool.features("a0")?.active, gro), on);
                }
                Ok(())
            })?;
            namespace.want_features("a0", &features.wanted)?;
            assert_eq!(namespace.features("a0")?, features);
            assert!(namespace.want_features("a0", &[]).is_err());
            io::Result::Ok(())
        });
        ran.transpose().unwrap();
    }
}
