//! One side of a comparison: an arm's class, by block, context, node and function.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Context, Direction};
use netplumb_model::hosts::PAYLOAD;
use netplumb_model::quantity::Calls;
use netplumb_model::recording::{Cost, FunctionId, NodeId, Recording};

use super::exact::{PerPacket, Spread};
use crate::per::{self, offered};

/// Calls and instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Times entered.
    pub calls: u64,
    /// Instructions of its own.
    pub self_insns: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: Sum) {
        self.calls = self.calls.saturating_add(other.calls);
        self.self_insns = self.self_insns.saturating_add(other.self_insns);
    }
}

/// What sums of two arms are shared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The ledgers' unit: packets, or runs.
    Ledger,
    /// KiB of payload.
    Kib,
    /// Forwarded packets, if forwarding is compared.
    Forwarded,
    /// Sent packets, if forwarding is compared and the sides forwarded different numbers of these.
    Sent,
}

impl By {
    /// For two arms. Two hosts may send the same payload in other frames, because of other MTUs for
    /// example: then a frame is not the same piece of work on both sides, and a KiB is.
    pub(super) fn for_arms(before: (&Recording, usize), after: (&Recording, usize)) -> By {
        let sums = [before, after].map(|(recording, arm)| {
            let payload = kib_of_blocks(recording)?;
            let of_arm = |block: &u32| recording.blocks[*block as usize].arm as usize == arm;
            let kib: u64 = payload.iter().filter(|(b, _)| of_arm(b)).map(|(_, n)| n).sum();
            let blocks: Vec<u32> = payload.into_keys().filter(of_arm).collect();
            (kib > 0).then(|| (kib, offered(recording, &blocks)))
        });
        match sums {
            [Some((kib, frames)), Some((other_kib, other_frames))]
                if u128::from(frames) * u128::from(other_kib)
                    != u128::from(other_frames) * u128::from(kib) =>
            {
                By::Kib
            }
            _ => By::Ledger,
        }
    }
}

/// The KiB of payload that two hosts sent in each block; none if any is not whole, or not known.
fn kib_of_blocks(recording: &Recording) -> Option<BTreeMap<u32, u64>> {
    const KIB: u64 = 1 << 10;
    let mut kib = BTreeMap::new();
    for scalar in recording.scalars_of(&PAYLOAD) {
        let bytes = scalar.value as u64;
        if !bytes.is_multiple_of(KIB) {
            return None;
        }
        kib.insert(scalar.block()?, bytes / KIB);
    }
    (!kib.is_empty()).then_some(kib)
}

/// An arm and direction. Sums are over the blocks that count.
#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    pub(super) recording: &'a Recording,
    /// Packets of the blocks that count.
    pub(super) packets: u64,
    /// Total instructions of all blocks, which decides the blocks that count.
    pub(super) total: Spread,
    /// By context and node.
    pub(super) nodes: BTreeMap<Context, BTreeMap<NodeId, Sum>>,
    /// Self instructions by function, one for each block that counts.
    functions: BTreeMap<FunctionId, Vec<u64>>,
    /// Self instructions by context, one for each block that counts.
    contexts: BTreeMap<Context, Vec<u64>>,
    block_packets: Vec<u64>,
    /// Packets that the workload sent in every block, in the order of [`Side::total`]: the same in each class.
    sent: Vec<u64>,
}

/// A recording's costs by arm and direction: searching all of them for each of
/// hundreds of arms would be slow.
pub(super) struct Index<'a> {
    recording: &'a Recording,
    costs: BTreeMap<(usize, Direction), Vec<&'a Cost>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        let mut costs: BTreeMap<(usize, Direction), Vec<&Cost>> = BTreeMap::new();
        for cost in &recording.costs {
            let arm = recording.blocks[cost.block as usize].arm as usize;
            costs.entry((arm, cost.direction)).or_default().push(cost);
        }
        Index { recording, costs }
    }
}

impl<'a> Index<'a> {
    fn costs(&self, arm: usize, direction: Direction) -> &[&'a Cost] {
        self.costs.get(&(arm, direction)).map_or(&[], Vec::as_slice)
    }

    /// The packets that an arm forwarded, by block, and how many it sent; none if that is not known for
    /// each block.
    fn forwarded(&self, arm: usize) -> Option<(BTreeMap<u32, u64>, u64)> {
        let blocks = (0..).zip(&self.recording.blocks);
        let mut blocks = blocks.filter(|(_, b)| b.arm as usize == arm && b.ledger.offered > 0);
        let costs = self.costs(arm, Direction::Forward).iter().copied();
        let packets = per::forwarded(self.recording, costs);
        let is_known = blocks.clone().all(|(n, _)| packets.contains_key(&n));
        let offered = blocks.try_fold(0_u64, |sum, (_, b)| sum.checked_add(b.ledger.offered))?;
        (is_known && offered > 0).then_some((packets, offered))
    }
}

impl By {
    /// The same for a direction of two arms. Forwarding is shared by forwarded packets, if both sides forwarded equally
    /// many for each sent one: otherwise such a packet is not the same piece of work.
    pub(super) fn of_direction(
        self,
        direction: Direction,
        before: (&Index<'_>, usize),
        after: (&Index<'_>, usize),
    ) -> By {
        if self != By::Ledger || direction != Direction::Forward {
            return self;
        }
        let both = [before, after].map(|(index, arm)| {
            let (packets, offered) = index.forwarded(arm)?;
            Some((packets.values().sum::<u64>(), offered))
        });
        match both {
            [Some((packets, offered)), Some((other, other_offered))]
                if u128::from(packets) * u128::from(other_offered)
                    == u128::from(other) * u128::from(offered) =>
            {
                By::Forwarded
            }
            [None, None] => By::Ledger,
            _ => By::Sent,
        }
    }
}

impl<'a> Side<'a> {
    /// None where no packet was sent. Costs that were not measured are 0. For samples without packets, a
    /// hundredth of a block's total, or of the part below the function, takes the place of a packet: figures
    /// are percentages.
    pub(super) fn new(index: &Index<'a>, arm: usize, direction: Direction, by: By) -> Option<Self> {
        let recording = index.recording;
        let shared = match by {
            By::Ledger | By::Sent => None,
            By::Kib => kib_of_blocks(recording),
            By::Forwarded => index.forwarded(arm).map(|(packets, _)| packets),
        };
        let costs = index.costs(arm, direction);
        let of_arm = |b: &u32| recording.blocks[*b as usize].arm as usize == arm;
        let mut blocks: Vec<u32> = (0..recording.blocks.len() as u32).filter(of_arm).collect();
        let by_share = recording.costs.first().is_some_and(|cost| {
            let quantity = recording.quantities.get(cost.quantity as usize);
            let sampled = quantity.is_some_and(|q| q.calls == Calls::Samples);
            sampled && offered(recording, &blocks) == 0
        });
        let mut below: BTreeMap<u32, u64> = BTreeMap::new();
        if by_share && recording.root().is_some() {
            for cost in costs {
                let sum = below.entry(cost.block).or_default();
                *sum = sum.saturating_add(cost.own);
            }
        }
        let hundredth = |b: &u32| match recording.root() {
            // Shares are of the part below the function.
            Some(_) => below.get(b).copied().unwrap_or_default() / 100,
            None => {
                let total = recording.blocks[*b as usize].total();
                total.kernel.saturating_add(total.user) / 100
            }
        };
        let offered = |b: &u32| match &shared {
            _ if by_share => hundredth(b),
            Some(shared) => shared.get(b).copied().unwrap_or_default(),
            None => recording.blocks[*b as usize].ledger.offered,
        };
        blocks.retain(|b| offered(b) > 0);
        let mut totals: BTreeMap<u32, u64> = blocks.iter().map(|b| (*b, 0)).collect();
        for cost in costs {
            if let Some(total) = totals.get_mut(&cost.block) {
                *total = total.saturating_add(cost.own);
            }
        }
        let total = Spread::from_blocks(
            totals
                .iter()
                .map(|(block, sum)| PerPacket { sum: *sum, packets: offered(block) })
                .collect(),
        )?;
        let counting: Vec<u32> = blocks
            .iter()
            .enumerate()
            .filter(|(n, _)| !total.odd.contains(n))
            .map(|(_, b)| *b)
            .collect();
        let sent = blocks.iter().map(|b| match by {
            By::Forwarded => recording.blocks[*b as usize].ledger.offered,
            By::Ledger | By::Sent | By::Kib => offered(b),
        });
        let sent: Vec<u64> = sent.collect();
        let mut side = Side {
            sent,
            recording,
            packets: counting.iter().map(offered).fold(0, u64::saturating_add),
            total,
            nodes: BTreeMap::new(),
            functions: BTreeMap::new(),
            contexts: BTreeMap::new(),
            block_packets: counting.iter().map(offered).collect(),
        };
        let at: BTreeMap<u32, usize> = counting.iter().enumerate().map(|(n, b)| (*b, n)).collect();
        for cost in costs {
            let Some(&n) = at.get(&cost.block) else {
                continue;
            };
            let sum = Sum { calls: cost.calls, self_insns: cost.own };
            let nodes = side.nodes.entry(cost.context).or_default();
            nodes.entry(cost.node).or_default().add(sum);
            let function = recording.nodes[cost.node as usize].function;
            let none = || vec![0; at.len()];
            let by_block = side.functions.entry(function).or_insert_with(none);
            by_block[n] = by_block[n].saturating_add(cost.own);
            let by_block = side.contexts.entry(cost.context).or_insert_with(none);
            by_block[n] = by_block[n].saturating_add(cost.own);
        }
        Some(side)
    }

    /// All classes of an arm together, per sent packet; none where classes have other blocks.
    pub(super) fn all(classes: &[&Side<'_>]) -> Option<Spread> {
        let first = classes.first()?;
        if classes.iter().any(|side| side.sent != first.sent) {
            return None;
        }
        let blocks = first.sent.iter().enumerate().map(|(n, packets)| {
            let sums = classes.iter().map(|side| side.total.blocks[n].sum);
            PerPacket { sum: sums.fold(0, u64::saturating_add), packets: *packets }
        });
        Spread::from_blocks(blocks.collect())
    }

    /// Its cost per packet, or per other unit that it is shared by.
    pub(super) fn whole(&self) -> PerPacket {
        self.each(self.sum())
    }

    /// Whether no block of it, counting or not, cost anything.
    pub(super) fn is_nothing(&self) -> bool {
        self.total.blocks.iter().all(|block| block.sum == 0)
    }

    /// Its total cost, in the blocks that count.
    pub(super) fn sum(&self) -> u64 {
        self.nodes
            .values()
            .flat_map(BTreeMap::values)
            .fold(0, |all, sum| all.saturating_add(sum.self_insns))
    }

    /// A sum shared by this side's packets.
    pub(super) fn each(&self, sum: u64) -> PerPacket {
        PerPacket { sum, packets: self.packets }
    }

    /// A function's self instructions by block, over all its implementations; zeros without any.
    pub(super) fn of_function(&self, functions: &[FunctionId]) -> Option<Spread> {
        let mut sums = vec![0_u64; self.block_packets.len()];
        for by_block in functions.iter().filter_map(|f| self.functions.get(f)) {
            for (sum, one) in sums.iter_mut().zip(by_block) {
                *sum = sum.saturating_add(*one);
            }
        }
        self.spread(Some(&sums))
    }

    /// A context's by block.
    pub(super) fn of_context(&self, context: Context) -> Option<Spread> {
        self.spread(self.contexts.get(&context))
    }

    fn spread(&self, sums: Option<&Vec<u64>>) -> Option<Spread> {
        Spread::from_blocks(
            self.block_packets
                .iter()
                .enumerate()
                .map(|(n, packets)| PerPacket { sum: sums.map_or(0, |s| s[n]), packets: *packets })
                .collect(),
        )
    }

    /// Functions with any cost in their subtree.
    pub(super) fn entered(&self) -> BTreeSet<FunctionId> {
        let mut seen = BTreeSet::new();
        let mut functions = BTreeSet::new();
        for node in self.nodes.values().flat_map(BTreeMap::keys) {
            let mut next = Some(*node);
            while let Some(id) = next {
                if !seen.insert(id) {
                    break;
                }
                let node = self.recording.nodes[id as usize];
                functions.insert(node.function);
                next = node.parent;
            }
        }
        functions
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::quantity::{FigureKey, Subject};
    use netplumb_model::recording::{Block, Ledger};

    use super::*;

    /// A recording of two hosts with a block for each arm: frames and bytes.
    fn hosts(blocks: &[(u64, u64)]) -> Recording {
        let mut recording = Recording::default();
        for (arm, (frames, bytes)) in (0..).zip(blocks) {
            recording.blocks.push(Block {
                arm,
                instrument: "exact".into(),
                index: 0,
                ledger: Ledger { offered: *frames, delivered: *frames, ..Ledger::default() },
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 0,
            });
            recording.add(Subject::Block(arm), &PAYLOAD, FigureKey::ONLY, *bytes as f64);
        }
        recording
    }

    /// Check that the same payload in other frames is compared per KiB, in the same frames per packet, and
    /// per packet too if it is not a whole number of KiB.
    #[test]
    fn per_kib() {
        let recording = hosts(&[(700, 1 << 20), (120, 1 << 20), (700, 1 << 20)]);
        let by = |one, other| By::for_arms((&recording, one), (&recording, other));
        assert_eq!(by(0, 1), By::Kib);
        assert_eq!(by(0, 2), By::Ledger);
        let odd = hosts(&[(7, 9_000), (8, 9_000)]);
        assert_eq!(By::for_arms((&odd, 0), (&odd, 1)), By::Ledger);
    }
}
