//! One side of a comparison: an arm's class, by block, context, node and function.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Context, Direction};
use netplumb_model::quantity::Calls;
use netplumb_model::recording::{Cost, FunctionId, NodeId, Recording};

use super::exact::{PerPacket, Spread};
use crate::per::offered;

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

/// An arm and direction. Sums are over the blocks that count.
#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    pub(super) recording: &'a Recording,
    /// Packets of the blocks that count.
    pub(super) packets: u64,
    /// Total instructions of all blocks, which says which count.
    pub(super) total: Spread,
    /// By context and node.
    pub(super) nodes: BTreeMap<Context, BTreeMap<NodeId, Sum>>,
    /// Self instructions by function, one for each block that counts.
    functions: BTreeMap<FunctionId, Vec<u64>>,
    /// Self instructions by context, one for each block that counts.
    contexts: BTreeMap<Context, Vec<u64>>,
    block_packets: Vec<u64>,
}

/// A recording's costs by arm and direction: to look through all for each of
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

impl<'a> Side<'a> {
    /// None where nothing of it was measured, or no packet was sent. Of samples without packets, a
    /// hundredth of all of a block, or of what is below the function, takes the place of a packet: figures
    /// are percentages.
    pub(super) fn new(index: &Index<'a>, arm: usize, direction: Direction) -> Option<Self> {
        let recording = index.recording;
        let costs = index.costs.get(&(arm, direction))?;
        let of_arm = |b: &u32| recording.blocks[*b as usize].arm as usize == arm;
        let mut blocks: Vec<u32> = (0..recording.blocks.len() as u32).filter(of_arm).collect();
        let by_share = costs.first().is_some_and(|cost| {
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
            // Shares are of what is below the function.
            Some(_) => below.get(b).copied().unwrap_or_default() / 100,
            None => {
                let total = recording.blocks[*b as usize].total();
                total.kernel.saturating_add(total.user) / 100
            }
        };
        let offered = |b: &u32| match by_share {
            true => hundredth(b),
            false => recording.blocks[*b as usize].ledger.offered,
        };
        blocks.retain(|b| offered(b) > 0);
        let mut totals: BTreeMap<u32, u64> = blocks.iter().map(|b| (*b, 0)).collect();
        for cost in costs {
            if let Some(total) = totals.get_mut(&cost.block) {
                *total = total.saturating_add(cost.own);
            }
        }
        // Below a function nothing is known to be there; otherwise nothing was measured.
        if totals.values().all(|t| *t == 0) && recording.root().is_none() {
            return None;
        }
        let total = Spread::of(
            totals
                .iter()
                .map(|(block, sum)| PerPacket {
                    sum: *sum,
                    packets: offered(block),
                })
                .collect(),
        )?;
        let counting: Vec<u32> = blocks
            .iter()
            .enumerate()
            .filter(|(n, _)| !total.odd.contains(n))
            .map(|(_, b)| *b)
            .collect();
        let mut side = Side {
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
            let sum = Sum {
                calls: cost.calls,
                self_insns: cost.own,
            };
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

    /// Whether no block of it, counting or not, cost anything.
    pub(super) fn is_nothing(&self) -> bool {
        self.total.blocks.iter().all(|block| block.sum == 0)
    }

    /// What it cost in all, in the blocks that count.
    pub(super) fn sum(&self) -> u64 {
        self.nodes
            .values()
            .flat_map(BTreeMap::values)
            .fold(0, |all, sum| all.saturating_add(sum.self_insns))
    }

    /// A sum shared by this side's packets.
    pub(super) fn each(&self, sum: u64) -> PerPacket {
        PerPacket {
            sum,
            packets: self.packets,
        }
    }

    /// A function's self instructions by block, all its implementations'; of none, zeros.
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
        Spread::of(
            self.block_packets
                .iter()
                .enumerate()
                .map(|(n, packets)| PerPacket {
                    sum: sums.map_or(0, |s| s[n]),
                    packets: *packets,
                })
                .collect(),
        )
    }

    /// Functions on the way to any cost.
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
