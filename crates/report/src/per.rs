//! The unit that sums are divided by: packets, runs or seconds.

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::{Cost, Node, Recording};
use netplumb_model::symbol::base_name;

/// What a class's sums are shared by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Per {
    /// Packets that the workload offered or, for other programs' traffic, followed packets; for forwarding,
    /// forwarded packets.
    Packet(u64),
    /// TCP connections, each for one packet.
    Connection(u64),
    /// Runs of a command.
    Run(u64),
    /// Seconds in which windows were open, where packets were not counted.
    Second(f64),
}

impl Per {
    /// For some blocks of a protocol, which had `packets`.
    pub(crate) fn from_recording(
        recording: &Recording,
        proto: Proto,
        blocks: &[u32],
        packets: u64,
    ) -> Per {
        match proto {
            Proto::Command => Per::Run(blocks.len() as u64),
            _ if packets > 0 => Per::Packet(packets),
            _ => {
                let blocks = blocks.iter().map(|b| &recording.blocks[*b as usize]);
                Per::Second(blocks.map(|b| b.duration_ns as f64 / 1e9).sum())
            }
        }
    }

    /// A sum per packet, run or second.
    pub fn each(self, sum: f64) -> f64 {
        match self {
            Per::Packet(n) | Per::Connection(n) | Per::Run(n) => sum / n.max(1) as f64,
            Per::Second(s) if s > 0.0 => sum / s,
            Per::Second(_) => sum,
        }
    }

    /// The unit's name.
    pub fn word(self) -> &'static str {
        match self {
            Per::Packet(_) => "packet",
            Per::Connection(_) => "connection",
            Per::Run(_) => "run",
            Per::Second(_) => "second",
        }
    }

    /// The number of packets, runs or seconds.
    pub fn count(self) -> f64 {
        match self {
            Per::Packet(n) | Per::Connection(n) | Per::Run(n) => n as f64,
            Per::Second(s) => s,
        }
    }
}

/// Receives one packet (net/core/dev.c): a forwarding host runs it once for each forwarded packet, however
/// many of them a packet of the workload makes. TCP has acknowledgements, too.
const HANDLES_ONE: &str = "__netif_receive_skb_core";

/// The packets forwarded in each block, from its exact costs in that direction; without blocks where that
/// is not known.
pub(crate) fn forwarded<'c>(
    recording: &Recording,
    costs: impl IntoIterator<Item = &'c Cost>,
) -> BTreeMap<u32, u64> {
    let mut packets: BTreeMap<u32, u64> = BTreeMap::new();
    let handles =
        |node: &Node| base_name(&recording.functions[node.function as usize].name) == HANDLES_ONE;
    for cost in costs.into_iter().filter(|cost| cost.calls > 0) {
        let node = &recording.nodes[cost.node as usize];
        if !handles(node) {
            continue;
        }
        // A bridge hands what is for its own host to it once more, below the first time.
        let mut above = node.parent;
        let mut is_within = false;
        while let Some(id) = above.filter(|_| !is_within) {
            let node = &recording.nodes[id as usize];
            is_within = handles(node);
            above = node.parent;
        }
        if !is_within {
            *packets.entry(cost.block).or_default() += cost.calls;
        }
    }
    packets
}

/// Packets that a workload offered in some blocks.
pub(crate) fn offered(recording: &Recording, blocks: &[u32]) -> u64 {
    let blocks = blocks.iter().map(|b| &recording.blocks[*b as usize]);
    blocks.fold(0, |sum, b| b.ledger.offered.saturating_add(sum))
}
