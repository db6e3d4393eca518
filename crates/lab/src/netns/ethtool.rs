//! What ethtool's ioctl tells and sets of a device besides single offloads: all of its
//! features at once, and its queues (include/uapi/linux/ethtool.h).

use std::io;
use std::os::fd::AsRawFd;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::Namespace;
use super::facts::ethtool;

const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
/// Words of features that there is room for; there are two now (NETDEV_FEATURE_COUNT).
const WORDS: usize = 8;

/// Features of a device, 32 to a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// Those that can be changed.
    pub changeable: Vec<u32>,
    /// Of these, those that are wanted: in use unless others stand against it.
    pub wanted: Vec<u32>,
}

/// Queues of a device, as they are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// That receive alone.
    pub receive: u32,
    /// That send alone.
    pub send: u32,
    /// That do neither.
    pub other: u32,
    /// That do both.
    pub combined: u32,
}

fn word(data: &[u8], at: usize) -> u32 {
    let bytes = data.get(4 * at..4 * at + 4).and_then(|b| b.try_into().ok());
    u32::from_ne_bytes(bytes.unwrap_or_default())
}

fn put(data: &mut [u8], at: usize, value: u32) {
    if let Some(bytes) = data.get_mut(4 * at..4 * at + 4) {
        bytes.copy_from_slice(&value.to_ne_bytes());
    }
}

impl Namespace {
    fn ethtool<T>(
        &self,
        f: impl FnOnce(&dyn Fn(&mut [u8]) -> io::Result<()>) -> io::Result<T>,
        device: &str,
    ) -> io::Result<T> {
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            f(&|data: &mut [u8]| ethtool(socket.as_raw_fd(), device, data))
        })
    }

    /// All features of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn features(&self, device: &str) -> io::Result<Features> {
        self.ethtool(
            |ask| {
                // struct ethtool_gfeatures: the command, how many words there are, and of
                // each: what can be changed, what is wanted, what is in use, what never is.
                let mut data = [0_u8; 8 + 16 * WORDS];
                put(&mut data, 0, ETHTOOL_GFEATURES);
                put(&mut data, 1, WORDS as u32);
                ask(&mut data)?;
                let words = (word(&data, 1) as usize).min(WORDS);
                let column = |n| (0..words).map(|w| word(&data, 2 + 4 * w + n)).collect();
                Ok(Features {
                    changeable: column(0),
                    wanted: column(1),
                })
            },
            device,
        )
    }

    /// Say which features are wanted, of those that can be changed.
    ///
    /// # Errors
    /// There is no such device, or it has another number of words.
    pub fn want_features(&self, device: &str, wanted: &[u32]) -> io::Result<()> {
        let now = self.features(device)?;
        if wanted.len() != now.changeable.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.ethtool(
            |ask| {
                // struct ethtool_sfeatures: of each word, which bits count, and they.
                let mut data = vec![0_u8; 8 + 8 * wanted.len()];
                put(&mut data, 0, ETHTOOL_SFEATURES);
                put(&mut data, 1, wanted.len() as u32);
                for (w, (bits, changeable)) in wanted.iter().zip(&now.changeable).enumerate() {
                    put(&mut data, 2 + 2 * w, *changeable);
                    put(&mut data, 3 + 2 * w, *bits);
                }
                ask(&mut data)
            },
            device,
        )
    }

    /// How the queues of a device are shared out.
    ///
    /// # Errors
    /// There is no such device, or it does not tell.
    pub fn channels(&self, device: &str) -> io::Result<Channels> {
        self.ethtool(
            |ask| {
                let mut data = [0_u8; 36];
                put(&mut data, 0, ETHTOOL_GCHANNELS);
                ask(&mut data)?;
                Ok(Channels {
                    receive: word(&data, 5),
                    send: word(&data, 6),
                    other: word(&data, 7),
                    combined: word(&data, 8),
                })
            },
            device,
        )
    }

    /// Share them out otherwise.
    ///
    /// # Errors
    /// The driver does not let it be changed, or has fewer.
    pub fn set_channels(&self, device: &str, to: Channels) -> io::Result<()> {
        self.ethtool(
            |ask| {
                let mut data = [0_u8; 36];
                put(&mut data, 0, ETHTOOL_GCHANNELS);
                ask(&mut data)?;
                put(&mut data, 0, ETHTOOL_SCHANNELS);
                for (at, value) in [
                    (5, to.receive),
                    (6, to.send),
                    (7, to.other),
                    (8, to.combined),
                ] {
                    put(&mut data, at, value);
                }
                ask(&mut data)
            },
            device,
        )
    }
}
