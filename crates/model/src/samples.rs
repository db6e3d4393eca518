//! Single samples with their times; a block's costs are their sums.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::class::{Context, Direction};
use crate::quantity::QuantityId;
use crate::tree::{Cost, NodeId};

/// Index into [`Recording::threads`](crate::recording::Recording::threads).
pub type ThreadId = u32;

/// The most samples with times that a recording has: some 500 MB in memory. Of more, only the costs
/// are kept.
pub const MAX_SAMPLES: usize = 1 << 24;

/// A thread that samples were taken in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Its process; 0 is the idle task.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// Its name: the kernel's `comm`. A thread that changes its name is another entry.
    pub name: String,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in nanoseconds since the recording's first block began, on a monotonic clock.
    pub time_ns: u64,
    /// Its weight in the quantity's unit: the period before it.
    pub weight: u64,
    /// The function that ran, in its calling context.
    pub node: NodeId,
    /// The thread that ran.
    pub thread: ThreadId,
    /// The CPU.
    pub cpu: u32,
    /// The direction of the packet; [`Direction::Run`] if it isn't about packets.
    pub direction: Direction,
    /// Whether a task, a softirq or an interrupt handler ran.
    pub context: Context,
}

/// The samples of a quantity in a block, in the order of their times: a column for each of the
/// fields of [`Sample`], all of the same length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// Index into [`Recording::blocks`](crate::recording::Recording::blocks).
    pub block: u32,
    /// The quantity in whose unit samples are weighted.
    pub quantity: QuantityId,
    times_ns: Vec<u64>,
    weights: Vec<u64>,
    nodes: Vec<NodeId>,
    threads: Vec<ThreadId>,
    cpus: Vec<u32>,
    directions: Vec<Direction>,
    contexts: Vec<Context>,
}

impl Samples {
    /// The samples of a quantity in a block, in any order.
    pub fn new(
        block: u32,
        quantity: QuantityId,
        samples: impl IntoIterator<Item = Sample>,
    ) -> Samples {
        let mut samples: Vec<Sample> = samples.into_iter().collect();
        samples.sort_by_key(|sample| sample.time_ns);
        let column = |of: fn(&Sample) -> u32| samples.iter().map(of).collect();
        Samples {
            block,
            quantity,
            nodes: column(|s| s.node),
            threads: column(|s| s.thread),
            cpus: column(|s| s.cpu),
            times_ns: samples.iter().map(|s| s.time_ns).collect(),
            weights: samples.iter().map(|s| s.weight).collect(),
            directions: samples.iter().map(|s| s.direction).collect(),
            contexts: samples.iter().map(|s| s.context).collect(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.times_ns.len()
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// One of them, by its position.
    pub fn get(&self, at: usize) -> Option<Sample> {
        Some(Sample {
            time_ns: *self.times_ns.get(at)?,
            weight: *self.weights.get(at)?,
            node: *self.nodes.get(at)?,
            thread: *self.threads.get(at)?,
            cpu: *self.cpus.get(at)?,
            direction: *self.directions.get(at)?,
            context: *self.contexts.get(at)?,
        })
    }

    /// All of them, by time.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Their times, in nanoseconds since the recording's first block began; ascending.
    pub fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    /// The weights of the samples, in the quantity's unit.
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// The functions that ran, in their calling contexts.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// For each sample, the thread that ran.
    pub fn threads(&self) -> &[ThreadId] {
        &self.threads
    }

    /// The CPUs.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// The directions of packets.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// For each sample, whether a task, a softirq or an interrupt handler ran.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }

    /// The costs that they add up to, by direction, context and node.
    pub fn costs(&self) -> Vec<Cost> {
        let mut sums: HashMap<(Direction, Context, NodeId), (u64, u64)> = HashMap::new();
        for sample in self.iter() {
            let key = (sample.direction, sample.context, sample.node);
            let (calls, own) = sums.entry(key).or_default();
            *calls += 1;
            *own = own.saturating_add(sample.weight);
        }
        let cost = |((direction, context, node), (calls, own))| Cost {
            block: self.block,
            quantity: self.quantity,
            direction,
            context,
            node,
            calls,
            own,
        };
        let mut costs: Vec<Cost> = sums.into_iter().map(cost).collect();
        costs.sort_unstable_by_key(|cost| (cost.direction, cost.context, cost.node));
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;

    fn sample(time_ns: u64, node: NodeId) -> Sample {
        Sample {
            time_ns,
            weight: 50,
            node,
            thread: 0,
            cpu: 1,
            direction: Direction::Run,
            context: Context::Task,
        }
    }

    /// Check that samples are in the order of their times, and that costs are their sums.
    #[test]
    fn in_order_and_summed() {
        let given = [sample(9, 1), sample(3, 0), sample(5, 1)];
        let samples = Samples::new(2, 4, given);
        assert_eq!(samples.times_ns(), [3, 5, 9]);
        assert_eq!(samples.nodes(), [0, 1, 1]);
        let mut recording = Recording::default();
        assert!(recording.add_samples(samples));
        let costs = recording.costs.iter();
        let costs: Vec<_> = costs.map(|c| (c.block, c.quantity, c.node, c.calls, c.own)).collect();
        assert_eq!(costs, [(2, 4, 0, 1, 50), (2, 4, 1, 2, 100)]);
        assert_eq!(recording.samples.len(), 1);
    }
}
