//! Packet rates: frames, data paths, and results.
//!
//! A packet is a frame that the generator passed to its device. It is `sent` if the device
//! accepted it, and `handled` when the data path drops it on purpose (`drop`) or when it arrives
//! at the far end (`forward`).

mod arm;
mod fault;
mod limit;
mod other;
pub mod quantities;
mod rate;
mod record;
mod stamp;

pub use arm::{AGAIN, BenchArm, Planted};
pub use fault::Fault;
pub use limit::{GENERATOR_BOUND, Limit};
pub use other::Other;
pub use rate::{Offered, rate_of, rate_word};
pub use record::{BlockRates, LATENCY, RING_FULL, Since};
pub use stamp::{STAMP_BYTES, STAMP_MAGIC, Stamp};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::class::{Family, words};
use crate::span::Times;

words! {
    /// What a data path does with packets.
    Bench, "bench",
    /// Receive and drop every packet.
    Drop = "drop",
    /// Forward every packet.
    Forward = "forward",
}

words! {
    /// The program or kernel path that handles the packets.
    DataPath, "data path",
    /// An XDP program in the driver.
    Xdp = "xdp",
    /// A generic XDP program, on an skb.
    XdpSkb = "xdp-skb",
    /// A BPF program at tc ingress.
    Tc = "tc",
    /// An nftables rule before connection tracking.
    NftRaw = "nft-raw",
    /// An nftables rule after connection tracking.
    NftConntrack = "nft-conntrack",
    /// An iptables rule in table `raw`.
    IptablesRaw = "iptables-raw",
    /// A UDP socket whose reader discards the data.
    Socket = "socket",
    /// A user-space program with AF_XDP.
    AfXdp = "af-xdp",
    /// dpdk-testpmd.
    Dpdk = "dpdk",
    /// An XDP program that transmits on the same NIC.
    XdpTx = "xdp-tx",
    /// An XDP program that redirects to another NIC.
    XdpRedirect = "xdp-redirect",
    /// The kernel's bridge.
    Bridge = "bridge",
    /// The kernel's routing.
    Route = "route",
    /// Routing with an nftables flow table.
    NftFlowtable = "nft-flowtable",
}

impl DataPath {
    /// All that support a bench, usually the fastest first.
    pub fn for_bench(bench: Bench) -> &'static [DataPath] {
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

    /// Whether it polls all the time, and keeps a CPU busy without packets.
    pub fn busy_polls(self) -> bool {
        self == DataPath::Dpdk
    }

    /// Whether it handles frames in the driver, before there is an skb.
    pub fn is_native_xdp(self) -> bool {
        use DataPath::{AfXdp, Xdp, XdpRedirect, XdpTx};
        matches!(self, Xdp | XdpTx | XdpRedirect | AfXdp)
    }
}

words! {
    /// The payload protocol of frames.
    FrameKind, "kind of frame",
    /// UDP datagrams.
    Udp = "udp",
    /// TCP segments with SYN.
    TcpSyn = "tcp-syn",
    /// ICMP echo requests.
    Icmp = "icmp",
}

/// Minimum frame length, in bytes without FCS.
pub const FRAME_BYTES_LEAST: u32 = 60;
/// Maximum frame length.
pub const FRAME_BYTES_MOST: u32 = 1514;
/// The classic Internet mix, by the names of RFC 6985: bytes of a frame, without FCS, and their number among twelve.
pub const IMIX: [(u32, u32); 3] = [(60, 7), (566, 4), (1514, 1)];

/// The length of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FrameSize {
    /// The same for all, in bytes with the link header and without FCS.
    Bytes(u32),
    /// The mix of [`IMIX`].
    Imix,
}

impl FrameSize {
    /// Mean bytes of a frame.
    pub fn mean_bytes(self) -> f64 {
        match self {
            FrameSize::Bytes(bytes) => f64::from(bytes),
            FrameSize::Imix => {
                let (bytes, frames) =
                    IMIX.iter().fold((0, 0), |(b, f), (bytes, n)| (b + bytes * n, f + n));
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
                "invalid frame size `{}`; expected {FRAME_BYTES_LEAST} to {FRAME_BYTES_MOST} bytes \
                 without FCS, or imix",
                text.chars().take(40).collect::<String>()
            )),
        }
    }
}

/// The frames that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Payload protocol.
    pub kind: FrameKind,
    /// Address family.
    pub family: Family,
    /// Length.
    pub size: FrameSize,
    /// Number of flows: source addresses and ports.
    pub flows: u32,
}

impl Frames {
    /// Bytes of their headers, with the link header.
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

    /// The minimum frame length for the headers, and a [`Stamp`] if there is one.
    pub fn size_bytes_least(&self, stamped: bool) -> u32 {
        let stamp = if stamped { STAMP_BYTES } else { 0 };
        (self.header_bytes() + stamp).max(FRAME_BYTES_LEAST)
    }
}

/// Maximum number of additional map lookups per packet.
pub const LOOKUPS_MOST: u32 = 64;

/// Counters of the generator on one CPU since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generated {
    /// The CPU.
    pub cpu: u32,
    /// Frames passed to the device.
    pub frames: u64,
    /// Frames that the device accepted.
    pub sent: u64,
    /// Bytes of frames passed to the device, without FCS.
    pub bytes: u64,
    /// Frames that the device refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Iterations in which no frame was due.
    pub idle: u64,
    /// Scheduled frames that were not sent because the generator was too slow.
    #[serde(default)]
    pub behind: u64,
    /// Batches passed to the device.
    pub batches: u64,
}

/// Counters of a data path, or of the far end, since it was set up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Handled {
    /// Packets handled as intended, by CPU.
    pub packets: BTreeMap<u32, u64>,
    /// The same, for packets that the kernel does not count by CPU.
    #[serde(default)]
    pub cpu_unknown: u64,
    /// Their bytes with link headers, if known.
    pub bytes: u64,
    /// Packets received and lost, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Received packets that are not from the generator.
    pub foreign: u64,
    /// Number of polls, and of polls with packets, if it polls by itself.
    pub polls: Option<(u64, u64)>,
    /// Latency from the scheduled send time to reception, if frames are stamped.
    pub latency: Option<Times>,
}

impl Handled {
    /// All packets.
    pub fn total(&self) -> u64 {
        self.packets.values().sum::<u64>() + self.cpu_unknown
    }
}

/// CPU use in a window, as fractions of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// 1 - (idle + iowait) / wall.
    pub busy: f64,
    /// The same by a second method, if available.
    pub second: Option<f64>,
    /// The part of `busy` that tasks of other programs had: neither plumb's own and what it started, nor the kernel's.
    /// By the second method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Steal time, in a guest.
    pub steal: f64,
    /// Softirq time, as accounted by the kernel.
    pub softirq: f64,
}

/// Maximum difference between the two methods; beyond it, the figure is in doubt.
pub const CPU_METHODS_APART: f64 = 0.02;

impl CpuUse {
    /// Whether the two methods disagree.
    pub fn is_doubtful(&self) -> bool {
        self.second.is_some_and(|second| (second - self.busy).abs() > CPU_METHODS_APART)
    }
}

/// A hop: the part of the path between two counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// Its name: "generator to tx0".
    pub name: String,
    /// Packets that entered it.
    pub entered: u64,
    /// Packets that left it for the next hop.
    pub left: u64,
    /// Dropped packets, by cause.
    pub dropped: BTreeMap<String, u64>,
}

impl Hop {
    /// Packets that are unaccounted for; negative if more left than entered.
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

    /// Check that packets missing on a hop are distinguished from dropped ones.
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

    /// Check that every path belongs to a bench, and that `all` has no duplicates.
    #[test]
    fn paths_have_benches() {
        for path in DataPath::ALL {
            let benches = Bench::ALL.iter();
            assert!(benches.clone().any(|b| DataPath::for_bench(*b).contains(path)));
        }
    }
}
