//! How fast packets go: what is sent, along which path, and what came of it.
//!
//! A packet is a frame that the generator gave to its device. It is `sent` once the
//! device took it, and ends where a path drops it on purpose (`drop`) or where it comes
//! out at the far end (`forward`).

mod arm;
mod fault;
mod limit;
mod other;
pub mod quantities;
mod record;
mod stamp;

pub use arm::{AGAIN, BenchArm, Planted, rate_of, rate_word};
pub use fault::Fault;
pub use limit::{GENERATOR_BOUND, Limit};
pub use other::Other;
pub use record::{LATENCY, Measured, RING_FULL, Since};
pub use stamp::{STAMP_BYTES, STAMP_MAGIC, Stamp};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::class::{Family, words};
use crate::span::Times;

words! {
    /// What is asked of a path.
    Bench, "bench",
    /// To take every packet and drop it.
    Drop = "drop",
    /// To send every packet on.
    Forward = "forward",
}

words! {
    /// What handles the packets.
    DataPath, "path",
    /// An XDP program in the driver.
    Xdp = "xdp",
    /// An XDP program in the generic hook, on an skb.
    XdpSkb = "xdp-skb",
    /// A BPF program at tc ingress.
    Tc = "tc",
    /// A rule of nftables before connection tracking.
    NftRaw = "nft-raw",
    /// A rule of nftables after connection tracking.
    NftConntrack = "nft-conntrack",
    /// A rule of iptables in the table `raw`.
    IptablesRaw = "iptables-raw",
    /// A UDP socket whose reader throws away what it reads.
    Socket = "socket",
    /// A user program on AF_XDP.
    AfXdp = "af-xdp",
    /// dpdk-testpmd.
    Dpdk = "dpdk",
    /// An XDP program that sends back by the same NIC.
    XdpTx = "xdp-tx",
    /// An XDP program that redirects to another NIC.
    XdpRedirect = "xdp-redirect",
    /// The kernel's bridge.
    Bridge = "bridge",
    /// The kernel's routing.
    Route = "route",
    /// Routing, by a flow table of nftables.
    NftFlowtable = "nft-flowtable",
}

impl DataPath {
    /// Those that can do it, the fastest first as a rule.
    pub fn of(bench: Bench) -> &'static [DataPath] {
        match bench {
            Bench::Drop => &[
                DataPath::Xdp,
                DataPath::XdpSkb,
                DataPath::Tc,
                DataPath::NftRaw,
                DataPath::IptablesRaw,
                DataPath::NftConntrack,
                DataPath::Socket,
                DataPath::AfXdp,
                DataPath::Dpdk,
            ],
            Bench::Forward => &[
                DataPath::XdpTx,
                DataPath::XdpRedirect,
                DataPath::NftFlowtable,
                DataPath::Route,
                DataPath::Bridge,
                DataPath::AfXdp,
                DataPath::Dpdk,
            ],
        }
    }

    /// Whether it looks for packets all the time, and so keeps a CPU busy without any.
    pub fn busy_polls(self) -> bool {
        self == DataPath::Dpdk
    }

    /// Whether a device handles frames for it before there is an skb.
    pub fn is_native_xdp(self) -> bool {
        use DataPath::{AfXdp, Xdp, XdpRedirect, XdpTx};
        matches!(self, Xdp | XdpTx | XdpRedirect | AfXdp)
    }
}

words! {
    /// What kind of packets the frames carry.
    FrameKind, "kind of frame",
    /// UDP datagrams.
    Udp = "udp",
    /// TCP segments with SYN.
    TcpSyn = "tcp-syn",
    /// ICMP echo requests.
    Icmp = "icmp",
}

/// The shortest frame, in bytes without the checksum at its end.
pub const FRAME_BYTES_LEAST: u32 = 60;
/// The longest one.
pub const FRAME_BYTES_MOST: u32 = 1514;
/// The classic Internet mix, as it is used since RFC 6985 gave mixes names: bytes of a
/// frame, without the checksum at its end, and how many there are in twelve.
pub const IMIX: [(u32, u32); 3] = [(60, 7), (566, 4), (1514, 1)];

/// How long frames are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FrameSize {
    /// All as long, in bytes from the link header on, without the checksum at the end.
    Bytes(u32),
    /// The mix of [`IMIX`].
    Imix,
}

impl FrameSize {
    /// Bytes of a frame on the average.
    pub fn mean_bytes(self) -> f64 {
        match self {
            FrameSize::Bytes(bytes) => f64::from(bytes),
            FrameSize::Imix => {
                let (bytes, frames) = IMIX
                    .iter()
                    .fold((0, 0), |(b, f), (bytes, n)| (b + bytes * n, f + n));
                f64::from(bytes) / f64::from(frames)
            }
        }
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameSize::Bytes(bytes) => write!(f, "{bytes}"),
            FrameSize::Imix => f.write_str("imix"),
        }
    }
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<FrameSize, String> {
        if text == "imix" {
            return Ok(FrameSize::Imix);
        }
        match text.parse() {
            Ok(bytes) if (FRAME_BYTES_LEAST..=FRAME_BYTES_MOST).contains(&bytes) => {
                Ok(FrameSize::Bytes(bytes))
            }
            _ => Err(format!(
                "`{}` is no size of a frame: it takes {FRAME_BYTES_LEAST} to {FRAME_BYTES_MOST} \
                 bytes (without the checksum at the end), or `imix`",
                text.chars().take(40).collect::<String>()
            )),
        }
    }
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// What they carry.
    pub kind: FrameKind,
    /// Over which IP.
    pub family: Family,
    /// How long they are.
    pub size: FrameSize,
    /// How many flows they belong to, all together: addresses and ports of the source.
    pub flows: u32,
}

impl Frames {
    /// Bytes of their headers, the link's among them.
    pub fn header_bytes(&self) -> u32 {
        let ip = match self.family {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        let l4 = match self.kind {
            FrameKind::Udp | FrameKind::Icmp => 8,
            FrameKind::TcpSyn => 20,
        };
        14 + ip + l4
    }

    /// The shortest frame that has room for its headers, and for a [`Stamp`] if it gets one.
    pub fn size_bytes_least(&self, stamped: bool) -> u32 {
        let stamp = if stamped { STAMP_BYTES } else { 0 };
        (self.header_bytes() + stamp).max(FRAME_BYTES_LEAST)
    }
}

/// Lookups of a path's program in a map for each packet, at most.
pub const LOOKUPS_MOST: u32 = 64;

/// Which rate is offered, by all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Offered {
    /// As many as the generator can make.
    Most,
    /// So many frames a second.
    Pps(f64),
}

/// What the generator did on one CPU since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generated {
    /// The CPU.
    pub cpu: u32,
    /// Frames that it gave to the device.
    pub frames: u64,
    /// Of these, those that the device took.
    pub sent: u64,
    /// Bytes of those it gave, without checksums.
    pub bytes: u64,
    /// Those that the device did not take, by the reason it gave.
    pub refused: BTreeMap<String, u64>,
    /// Runs in which no frame was due.
    pub idle: u64,
    /// Frames that were due and were never made, since it fell behind.
    #[serde(default)]
    pub behind: u64,
    /// Times that the device was handed some at once.
    pub batches: u64,
}

/// What became of packets at a path, or at the far end of it, since it was set up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Handled {
    /// What it was to do with them was done: packets by CPU.
    pub packets: BTreeMap<u32, u64>,
    /// The same of packets that the kernel counts, but not by CPU.
    #[serde(default)]
    pub cpu_unknown: u64,
    /// Their bytes, from the link header on, where they are known.
    pub bytes: u64,
    /// Packets that it saw and lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Packets that came by and were none of ours.
    pub foreign: u64,
    /// Times that it looked for packets, and times that there were any, where it does so
    /// by itself.
    pub polls: Option<(u64, u64)>,
    /// From when a packet was to be sent to when it was there, if frames are stamped.
    pub latency: Option<Times>,
}

impl Handled {
    /// All packets.
    pub fn total(&self) -> u64 {
        self.packets.values().sum::<u64>() + self.cpu_unknown
    }
}

/// How busy a CPU was in a window: shares of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// 1 - (idle + iowait) / wall.
    pub busy: f64,
    /// The same by another method, where there is one.
    pub second: Option<f64>,
    /// Taken by the machine below, if this is a guest.
    pub steal: f64,
    /// In softirqs, as far as the kernel charges for them.
    pub softirq: f64,
}

/// Shares that two methods may differ by before the figure is doubted.
pub const CPU_METHODS_APART: f64 = 0.02;

impl CpuUse {
    /// Whether the two methods disagree.
    pub fn is_doubtful(&self) -> bool {
        self.second
            .is_some_and(|second| (second - self.busy).abs() > CPU_METHODS_APART)
    }
}

/// A stretch of the way, from one count to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// What it is: "generator to tx0".
    pub name: String,
    /// Packets that came to it.
    pub entered: u64,
    /// Packets that left it for the next one.
    pub left: u64,
    /// Those that did not, by cause.
    pub dropped: BTreeMap<String, u64>,
}

impl Hop {
    /// Packets of which nobody knows where they went; negative where more left than came.
    pub fn missing(&self) -> i64 {
        let dropped: u64 = self.dropped.values().sum();
        self.entered as i64 - self.left as i64 - dropped as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check sizes of frames, from text and back.
    #[test]
    fn sizes() {
        for text in ["60", "1514", "imix"] {
            assert_eq!(text.parse::<FrameSize>().unwrap().to_string(), text);
        }
        for text in ["59", "1515", "", "-1", "IMIX", "64.5"] {
            let said = text.parse::<FrameSize>().unwrap_err();
            assert!(said.contains("60 to 1514"), "{said}");
        }
        let imix = FrameSize::Imix.mean_bytes();
        assert!((imix - (7.0 * 60.0 + 4.0 * 566.0 + 1514.0) / 12.0).abs() < 1e-9);
    }

    /// Check that what is missing on a hop is told apart from what was dropped.
    #[test]
    fn hops() {
        let hop = Hop {
            name: "x".into(),
            entered: 10,
            left: 6,
            dropped: BTreeMap::from([("full".into(), 3)]),
        };
        assert_eq!(hop.missing(), 1);
        assert_eq!(Hop { entered: 5, ..hop }.missing(), -4);
    }

    /// Check that every path belongs to a bench, and `all` is without repetition.
    #[test]
    fn paths_have_benches() {
        for path in DataPath::ALL {
            let benches = Bench::ALL.iter();
            assert!(benches.clone().any(|b| DataPath::of(*b).contains(path)));
        }
    }
}
