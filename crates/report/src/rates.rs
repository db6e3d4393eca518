//! Recordings of benches: packets per second by path, the fate of every packet, and the use
//! of CPUs.

mod bars;
mod blocks;
pub(crate) mod columns;
mod data;
mod details;
mod document;
pub mod explain;
mod flows;
mod latency;
mod results;
mod search;
mod swept;
mod trust;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use netplumb_model::bench::{BlockRates, CpuUse, GENERATOR_BOUND, Hop, quantities};
use netplumb_model::recording::{Arm, Block, Recording};
use netplumb_model::span::Times;
use netplumb_stats::welch::Mean;

pub use document::document;
pub use search::Goal;

use crate::number::printable;

/// The instrument that measures rates.
pub(crate) const RATES: &str = quantities::HANDLED.instrument;

/// Names of arms are cut to this.
const NAME_LETTERS: usize = 44;
/// Arms that one line names.
const NAMED: usize = 4;

/// An arm, as rows of several tables.
type ArmRow<'r> = Rc<ArmRates<'r>>;

/// The rates of an arm.
#[derive(Debug)]
pub struct ArmRates<'a> {
    /// The arm, as in the recording.
    pub arm: &'a Arm,
    /// Its blocks that count.
    pub valid: Vec<BlockRates>,
    /// Why others don't count: causes, each with the number of blocks.
    pub invalid: BTreeMap<String, usize>,
    /// Why it has no blocks at all, if the run noted that.
    pub failed: Option<&'a str>,
    /// The run's diagnosis of missing packets.
    pub diagnosis: Option<&'a str>,
    /// The results of a search, by its goals.
    pub goals: Vec<Goal<'a>>,
}

/// All arms of a recording that have rates, in their order.
pub fn arms(recording: &Recording) -> Vec<ArmRates<'_>> {
    let mut arms: Vec<ArmRates<'_>> = (0..)
        .zip(&recording.arms)
        .map(|(number, arm)| {
            let notes = recording.notes.get(&number);
            ArmRates {
                arm,
                valid: Vec::new(),
                invalid: BTreeMap::new(),
                failed: recording.failed(number as usize, RATES),
                diagnosis: notes.and_then(|n| n.diagnosis.as_deref()),
                goals: search::goals(recording, number),
            }
        })
        .collect();
    for (block, measured) in blocks_of(recording) {
        let Some(arm) = arms.get_mut(block.arm as usize) else {
            continue;
        };
        match measured.invalid() {
            Some(why) => *arm.invalid.entry(why).or_default() += 1,
            None => arm.valid.push(measured),
        }
    }
    // Arms measured only by other instruments come last.
    let by_others = |arm: &ArmRates<'_>| {
        let blocks = arm.valid.len() + arm.invalid.values().sum::<usize>();
        blocks == 0 && arm.failed.is_none() && explain::is_of_others(recording, arm.arm)
    };
    arms.retain(|arm| !by_others(arm));
    arms
}

/// The blocks that rates were measured in.
pub(crate) fn blocks_of(recording: &Recording) -> impl Iterator<Item = (&Block, BlockRates)> {
    let blocks = recording.blocks.iter().zip(BlockRates::all_of(recording));
    blocks.filter(|(block, _)| block.instrument == RATES)
}

impl ArmRates<'_> {
    /// The mean over the blocks that count.
    pub fn mean(&self, of: impl Fn(&BlockRates) -> f64) -> Option<Mean> {
        let values: Vec<f64> = self.valid.iter().map(of).collect();
        Mean::from_values(&values)
    }

    /// Handled packets per second.
    pub fn handled_pps(&self) -> Option<Mean> {
        self.mean(BlockRates::handled_pps)
    }

    /// The share of lost packets, if there is a block that counts.
    pub fn lost(&self) -> Option<f64> {
        self.mean(BlockRates::loss).map(|m| m.value)
    }

    /// The mean of a figure, if all blocks that count have it.
    fn mean_of_all(&self, of: impl Fn(&BlockRates) -> Option<f64>) -> Option<f64> {
        let each: Option<Vec<f64>> = self.valid.iter().map(of).collect();
        Mean::from_values(&each?).map(|m| m.value)
    }

    /// CPU time of a packet, in nanoseconds: the busy time of all CPUs per handled
    /// packet.
    pub fn cpu_ns_per_packet(&self) -> Option<f64> {
        self.mean_of_all(BlockRates::cpu_ns_per_packet)
    }

    /// Wall time of a packet, in nanoseconds: 1 / rate.
    pub fn wall_ns_per_packet(&self) -> Option<f64> {
        self.mean_of_all(BlockRates::wall_ns_per_packet)
    }

    /// The generator's own CPU time for a packet.
    pub fn generator_ns(&self) -> Option<f64> {
        self.mean_of_all(|m| {
            let cpus = m.generated.iter().filter(|g| g.frames > 0).count();
            m.limit_pps().map(|limit| 1e9 * cpus as f64 / limit)
        })
    }

    /// Whether the generator was the bottleneck, in half of the blocks or more; none where
    /// that is not known for half of them or more.
    pub fn generator_bound(&self) -> Option<bool> {
        let of = |what| {
            let blocks = self.valid.iter();
            let blocks = blocks.filter(|m| m.is_generator_bound() == what).count();
            blocks > 0 && blocks * 2 >= self.valid.len()
        };
        match (of(Some(true)), of(None)) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    }

    /// Whether the generator is known to be the bottleneck.
    pub fn is_generator_bound(&self) -> bool {
        self.generator_bound() == Some(true)
    }

    /// The share of lost packets, in the blocks that count.
    pub fn loss(&self) -> f64 {
        self.lost().unwrap_or(0.0)
    }

    /// The order of a list with failures first: arms without a block that counts, then arms
    /// with losses, the most first, then arms with some blocks that don't count, then the
    /// others.
    pub fn by_trouble(&self, other: &ArmRates<'_>) -> Ordering {
        let rank = |arm: &ArmRates<'_>| match (arm.valid.is_empty(), arm.invalid.is_empty()) {
            (true, _) => 0,
            (false, _) if arm.loss() > 0.0 => 1,
            (false, false) => 2,
            (false, true) => 3,
        };
        let loss = other.loss().total_cmp(&self.loss());
        rank(self).cmp(&rank(other)).then(loss)
    }

    /// Whether packets were lost, or blocks don't count.
    pub fn has_trouble(&self) -> bool {
        self.loss() > 0.0 || !self.invalid.is_empty()
    }

    /// The total use of CPUs that neither sent nor handled a packet.
    pub fn busy_elsewhere(&self) -> Option<f64> {
        self.mean_of_all(BlockRates::busy_elsewhere)
    }

    /// The mean use of each CPU, and whether its two measures disagree.
    pub fn cpus(&self) -> Vec<CpuUse> {
        let mut sums: BTreeMap<u32, (f64, Vec<CpuUse>)> = BTreeMap::new();
        for cpu in self.valid.iter().flat_map(|m| &m.cpus) {
            let entry = sums.entry(cpu.cpu).or_default();
            entry.0 += 1.0;
            entry.1.push(*cpu);
        }
        let mean =
            |n: f64, all: &[CpuUse], of: fn(&CpuUse) -> f64| all.iter().map(of).sum::<f64>() / n;
        // Only if all blocks have it.
        let known = |n: f64, all: &[CpuUse], of: fn(&CpuUse) -> Option<f64>| {
            let all: Option<Vec<f64>> = all.iter().map(of).collect();
            all.map(|all| all.iter().sum::<f64>() / n)
        };
        sums.into_iter()
            .map(|(cpu, (n, all))| CpuUse {
                cpu,
                busy: mean(n, &all, |c| c.busy),
                second: known(n, &all, |c| c.second),
                others: known(n, &all, |c| c.others),
                steal: mean(n, &all, |c| c.steal),
                softirq: mean(n, &all, |c| c.softirq),
            })
            .collect()
    }

    /// The path of all packets of all blocks that count.
    pub fn hops(&self) -> Vec<Hop> {
        let mut hops: Vec<Hop> = Vec::new();
        for measured in &self.valid {
            for (at, hop) in measured.hops.iter().enumerate() {
                if hops.len() <= at {
                    hops.push(Hop { name: hop.name.clone(), ..Hop::default() });
                }
                hops[at].entered += hop.entered;
                hops[at].left += hop.left;
                for (cause, n) in &hop.dropped {
                    *hops[at].dropped.entry(cause.clone()).or_default() += n;
                }
            }
        }
        hops
    }

    /// Packets of all blocks that count, by receive queue.
    pub fn queues(&self) -> BTreeMap<u32, u64> {
        let mut queues = BTreeMap::new();
        for (queue, n) in self.valid.iter().flat_map(|m| &m.queues) {
            *queues.entry(*queue).or_default() += n;
        }
        queues
    }

    /// Latencies of all blocks that count.
    pub fn latency(&self) -> Option<Times> {
        let mut all = Times::default();
        for times in self.valid.iter().filter_map(|m| m.handled.latency.as_ref()) {
            all.add(times);
        }
        (all.count > 0).then_some(all)
    }

    /// Whether frames were stamped, and nobody read the stamps.
    pub fn lacks_latency(&self) -> bool {
        let stamped = self.arm.knobs.get("stamps").is_some_and(|on| on == "on");
        stamped && !self.valid.is_empty() && self.latency().is_none()
    }

    /// Frames in a batch, on the average.
    pub fn batch(&self) -> Option<f64> {
        let sum = |of: fn(&netplumb_model::bench::Generated) -> u64| -> u64 {
            self.valid.iter().flat_map(|m| &m.generated).map(of).sum()
        };
        let (frames, batches) = (sum(|g| g.frames), sum(|g| g.batches));
        (batches > 0).then(|| frames as f64 / batches as f64)
    }

    /// The share of a path's polls that found packets.
    pub fn useful_polls(&self) -> Option<f64> {
        let polls = self.valid.iter().filter_map(|m| m.handled.polls);
        let (all, useful) = polls.fold((0, 0), |(a, u), (all, useful)| (a + all, u + useful));
        (all > 0).then(|| useful as f64 / all as f64)
    }
}

/// Arms by name: the first few, and how many more.
fn names(arms: &[&str]) -> String {
    let named = arms.iter().take(NAMED);
    let mut text = (named.map(|name| printable(name, NAME_LETTERS))).collect::<Vec<_>>().join(", ");
    if arms.len() > NAMED {
        text.push_str(&format!(" and {} more", arms.len() - NAMED));
    }
    text
}

/// The generator's bound, as a share in words.
pub(crate) fn bound_share() -> String {
    format!("{:.0} %", (1.0 - GENERATOR_BOUND) * 100.0)
}

#[cfg(test)]
pub(crate) mod tests;
