//! The unit that sums are divided by: packets, runs or seconds.

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::{Cost, Recording};
use netplumb_model::symbol::base_name;

/// What a class's sums are shared by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Per {
    /// Packets that the workload offered or, for other programs' traffic, followed packets; for forwarding,
    /// forwarded packets.
    Packet(u64),
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
            Per::Packet(n) | Per::Run(n) => sum / n.max(1) as f64,
            Per::Second(s) if s > 0.0 => sum / s,
            Per::Second(_) => sum,
        }
    }

    /// The unit's name.
    pub fn word(self) -> &'static str {
        match self {
            Per::Packet(_) => "packet",
            Per::Run(_) => "run",
            Per::Second(_) => "second",
        }
    }

    /// The number of packets, runs or seconds.
    pub fn count(self) -> f64 {
        match self {
            Per::Packet(n) | Per::Run(n) => n as f64,
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
    for cost in costs {
        let function = recording.nodes[cost.node as usize].function;
        let name = &recording.functions[function as usize].name;
        if cost.calls > 0 && base_name(name) == HANDLES_ONE {
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
