//! What sums are shared by.

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::{Cost, Recording};
use netplumb_model::symbol::base_name;

/// What a class's sums are shared by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Per {
    /// Packets that the workload offered or, of other programs' traffic, that were followed; of forwarding,
    /// those that were forwarded.
    Packet(u64),
    /// Runs of a command.
    Run(u64),
    /// Where nobody counted packets: seconds in which windows were open.
    Second(f64),
}

impl Per {
    /// Of some blocks of a protocol, in which so many packets were.
    pub(crate) fn of(recording: &Recording, proto: Proto, blocks: &[u32], packets: u64) -> Per {
        match proto {
            Proto::Command => Per::Run(blocks.len() as u64),
            _ if packets > 0 => Per::Packet(packets),
            _ => {
                let blocks = blocks.iter().map(|b| &recording.blocks[*b as usize]);
                Per::Second(blocks.map(|b| b.duration_ns as f64 / 1e9).sum())
            }
        }
    }

    /// A sum's share of one.
    pub fn each(self, sum: f64) -> f64 {
        match self {
            Per::Packet(n) | Per::Run(n) => sum / n.max(1) as f64,
            Per::Second(s) if s > 0.0 => sum / s,
            Per::Second(_) => sum,
        }
    }

    /// What one is called.
    pub fn word(self) -> &'static str {
        match self {
            Per::Packet(_) => "packet",
            Per::Run(_) => "run",
            Per::Second(_) => "second",
        }
    }

    /// How many there are.
    pub fn count(self) -> f64 {
        match self {
            Per::Packet(n) | Per::Run(n) => n as f64,
            Per::Second(s) => s,
        }
    }
}

/// Receives one packet (net/core/dev.c): what forwards runs once for each that it forwards, however many
/// of them a packet of the workload makes. TCP has acknowledgements, too.
const HANDLES_ONE: &str = "__netif_receive_skb_core";

/// The packets that were forwarded in a block, of its costs of that direction that repeat exactly. None if
/// that can't be told.
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
