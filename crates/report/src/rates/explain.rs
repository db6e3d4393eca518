//! Why a rate is what it is: the cost of a packet along each path, by layer, and the
//! functions that make the difference; in counted instructions, and in sampled
//! nanoseconds.

mod page;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::bench::{BlockRates, Other};
use netplumb_model::class::Direction;
use netplumb_model::quantity::Calls;
use netplumb_model::recording::{Arm, Block, FunctionId, NodeId, Recording};
use serde::Serialize;

use super::{ArmRates, RATES};
use crate::analysis::{NO_LAYER, class, classes};

#[cfg(test)]
pub(super) use page::{part, with_tables};
use table::heading;
pub(super) use table::{sections, sentences};

/// Deviations of a normal distribution that 95 % are within.
const NORMAL_95: f64 = 1.96;

/// Work for no packet, in recordings that don't name it.
const UNNAMED: &str = "not named";

/// The unit of what a packet costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Kernel instructions, counted in a guest.
    #[default]
    Instructions,
    /// CPU time, from samples.
    Nanoseconds,
}

/// Instruments that measure the cost of a packet, beside those that measure rates, with the unit:
/// samples first.
fn beside_rates(recording: &Recording) -> Vec<(&str, Unit)> {
    let is_sampled = |by: &str| {
        let mut quantities = recording.quantities.iter();
        quantities.any(|q| q.instrument == by && q.calls == Calls::Samples)
    };
    let all = recording.instruments().into_iter().filter(|by| *by != RATES);
    let (sampled, counted): (Vec<_>, Vec<_>) = all.partition(|by| is_sampled(by));
    let sampled = sampled.into_iter().map(|by| (by, Unit::Nanoseconds));
    let counted = counted.into_iter().map(|by| (by, Unit::Instructions));
    sampled.chain(counted).collect()
}

/// Whether another instrument measured an arm, or failed to.
pub(crate) fn is_of_others(recording: &Recording, arm: &Arm) -> bool {
    let all = 0..recording.arms.len();
    let mut is = all.filter(|at| std::ptr::eq(&recording.arms[*at], arm));
    let others = beside_rates(recording);
    is.any(|at| others.iter().any(|(by, _)| is_by(recording, at, by)))
}

/// Whether an instrument measured an arm, or failed to.
fn is_by(recording: &Recording, arm: usize, instrument: &str) -> bool {
    let of = |b: &Block| b.arm as usize == arm && b.instrument == instrument;
    recording.failed(arm, instrument).is_some() || recording.blocks.iter().any(of)
}

/// What a packet costs along one path.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explained {
    /// The arm's name.
    pub path: String,
    /// The unit of the figures below.
    pub unit: Unit,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// Packets that were counted, all blocks together.
    pub packets: u64,
    /// How many of these were dropped as intended or came through.
    pub handled: u64,
    /// The path's own work per packet.
    pub own: f64,
    /// Own work in each block.
    pub own_of_blocks: Vec<f64>,
    /// The work of making a packet and passing it to the device.
    pub generator: f64,
    /// Work for no packet: timers, other tasks; in instructions, waiting too.
    pub other: f64,
    /// The receiver's user code.
    pub user: f64,
    /// The sum of these: in nanoseconds, the CPU time of a packet.
    pub total: f64,
    /// `other` by what ran, the most first; only in nanoseconds.
    pub others: Vec<OtherPart>,
    /// The CPU time in relation to wall time; only in nanoseconds.
    pub wall: Option<Wall>,
    /// CPU time of a packet where its rate was measured; none if no rate was, or several.
    #[serde(skip)]
    pub ns: Option<f64>,
    /// CPU time of the generator alone.
    #[serde(skip)]
    pub generator_ns: Option<f64>,
    /// The path's own work by layer.
    pub layers: BTreeMap<String, f64>,
    /// The same by function.
    pub functions: Vec<Function>,
}

/// A function of a path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Function {
    #[serde(skip)]
    id: FunctionId,
    /// The function's symbol.
    pub name: String,
    /// The layer of the network stack.
    pub layer: String,
    /// Calls per packet; in nanoseconds, samples per packet.
    pub calls: f64,
    /// Its own work per packet.
    pub own: f64,
    /// Half the width of the 95 % interval of `own`, from the number of samples; 0 if it was
    /// counted.
    pub uncertainty: f64,
}

/// A part of the work for no packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherPart {
    /// What ran: "task cc1", "softirq timer".
    pub name: String,
    /// For each packet.
    pub own: f64,
}

/// Time in the sampled blocks, in nanoseconds per packet: all CPUs together have `cpus`
/// times the wall time, which is the sampled running time and the idle rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wall {
    /// Wall time per packet: 1 / rate of these blocks.
    pub ns: f64,
    /// CPUs that were sampled.
    pub cpus: usize,
    /// The rest: no sample found anything running. It includes time taken by a hypervisor.
    pub idle: f64,
    /// Busy time of the CPUs by another measure: 1 - (idle + iowait) / wall.
    pub busy: f64,
}

impl Wall {
    /// Time of all CPUs.
    pub fn all(&self) -> f64 {
        self.cpus as f64 * self.ns
    }

    fn from_blocks(blocks: &[&BlockRates], packets: u64, total: f64) -> Option<Wall> {
        let cpus = blocks.iter().map(|m| m.cpus.len()).min()?;
        if cpus == 0 || packets == 0 {
            return None;
        }
        let each = |of: fn(&BlockRates) -> f64| {
            let sum: f64 = blocks.iter().map(|m| of(m)).sum();
            sum / packets as f64
        };
        let ns = each(|m| m.window_ns as f64);
        Some(Wall {
            ns,
            cpus,
            idle: cpus as f64 * ns - total,
            busy: each(|m| m.window_ns as f64 * m.busy_cpus()),
        })
    }
}

/// How one path differs from the cheapest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The more expensive path.
    pub path: String,
    /// The cheapest one.
    pub than: String,
    /// The unit of all figures.
    pub unit: Unit,
    /// The additional cost per packet.
    pub more: f64,
    /// Functions that make the difference, the largest part first.
    pub functions: Vec<FunctionDifference>,
}

/// A function's part of a difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionDifference {
    /// The function's symbol.
    pub name: String,
    /// Its additional cost per packet.
    pub more: f64,
    /// Half the width of the 95 % interval of `more`.
    pub uncertainty: f64,
}

/// All paths whose cost per packet is known, in their order.
pub fn explained(recording: &Recording) -> Vec<Explained> {
    let rates = super::arms(recording);
    beside_rates(recording)
        .into_iter()
        .flat_map(|(by, unit)| explained_by(recording, &rates, by, unit))
        .collect()
}

/// All paths that one instrument explains.
fn explained_by(whole: &Recording, rates: &[ArmRates<'_>], by: &str, unit: Unit) -> Vec<Explained> {
    let numbers = (0..whole.arms.len()).filter(|at| is_by(whole, *at, by));
    let numbers: Vec<usize> = numbers.collect();
    if numbers.is_empty() {
        return Vec::new();
    }
    let recording: &Recording = &whole.part(by);
    let views = classes(recording);
    let measured = BlockRates::all_of(recording);
    numbers
        .into_iter()
        .map(|number| {
            let arm = &recording.arms[number];
            let name = arm.name.as_str();
            let blocks = recording.blocks.iter().filter(|b| b.arm as usize == number);
            let sum = |of: fn(&Block) -> u64| -> u64 { blocks.clone().map(of).sum() };
            let packets = sum(|b| b.ledger.offered);
            let each = |insns: u64| insns as f64 / packets.max(1) as f64;
            let timed = timed(rates, arm, (unit == Unit::Nanoseconds).then_some(name));
            let mut out = Explained {
                path: name.into(),
                unit,
                ns: timed.and_then(ArmRates::cpu_ns_per_packet),
                generator_ns: timed.and_then(ArmRates::generator_ns),
                failed: recording.failed(number, by).map(String::from),
                packets,
                handled: sum(|b| b.ledger.delivered),
                user: each(sum(Block::user)),
                other: each(class(recording, number, Direction::Other).total),
                ..Explained::default()
            };
            let mut by_block: Vec<u64> = vec![0; blocks.clone().count()];
            let mut functions: BTreeMap<FunctionId, (u64, u64)> = BTreeMap::new();
            for view in views.iter().filter(|v| v.arm == number) {
                if view.class.direction == Direction::Tx {
                    out.generator += each(view.total);
                    continue;
                }
                out.own += each(view.total);
                for (sum, insns) in by_block.iter_mut().zip(&view.by_block) {
                    *sum += insns;
                }
                for (layer, insns) in &view.layers {
                    *out.layers.entry(layer.clone()).or_default() += each(*insns);
                }
                for f in &view.functions {
                    let sum = functions.entry(f.function).or_default();
                    sum.0 += f.calls;
                    sum.1 += f.self_insns;
                }
            }
            let of_block = by_block.iter().zip(blocks.clone());
            out.own_of_blocks =
                of_block.map(|(insns, b)| *insns as f64 / b.ledger.offered.max(1) as f64).collect();
            out.functions = functions
                .into_iter()
                .filter(|(_, (_, insns))| *insns > 0)
                .map(|(id, (calls, insns))| {
                    let function = &recording.functions[id as usize];
                    Function {
                        id,
                        name: short(&function.name).into(),
                        layer: function.layer.clone().unwrap_or_else(|| NO_LAYER.into()),
                        calls: each(calls),
                        own: each(insns),
                        // Poisson counting error: the standard deviation is the square
                        // root of the number.
                        uncertainty: match unit {
                            Unit::Nanoseconds => {
                                NORMAL_95 * each(insns) / (calls.max(1) as f64).sqrt()
                            }
                            Unit::Instructions => 0.0,
                        },
                    }
                })
                .collect();
            out.functions.sort_by(|a, b| b.own.total_cmp(&a.own).then(a.name.cmp(&b.name)));
            out.total = out.own + out.user + out.generator + out.other;
            if unit == Unit::Nanoseconds {
                let of = |block: u32| recording.blocks[block as usize].arm as usize == number;
                let all = (0..recording.blocks.len() as u32).filter(|block| of(*block));
                let blocks: Vec<&BlockRates> = all.map(|block| &measured[block as usize]).collect();
                out.wall = Wall::from_blocks(&blocks, packets, out.total);
                out.others = others(recording, of, packets);
            }
            out
        })
        .collect()
}

/// Work for no packet in some blocks, by what ran.
fn others(recording: &Recording, of: impl Fn(u32) -> bool, packets: u64) -> Vec<OtherPart> {
    let outermost = |mut node: NodeId| {
        while let Some(parent) = recording.nodes[node as usize].parent {
            node = parent;
        }
        let function = &recording.functions[recording.nodes[node as usize].function as usize];
        Other::category(&function.name).unwrap_or(UNNAMED)
    };
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let costs = recording.costs.iter();
    for cost in costs.filter(|c| c.direction == Direction::Other && of(c.block)) {
        *found.entry(outermost(cost.node)).or_default() += cost.own;
    }
    let mut parts: Vec<OtherPart> = (found.into_iter())
        .map(|(name, ns)| OtherPart { name: name.into(), own: ns as f64 / packets.max(1) as f64 })
        .collect();
    parts.sort_by(|a, b| b.own.total_cmp(&a.own).then(a.name.cmp(&b.name)));
    parts
}

/// The rates of the path that an arm was counted for: by this name or, without one,
/// by the `path` knob. None unless exactly one arm with rates matches.
fn timed<'a, 'r>(
    rates: &'a [ArmRates<'r>],
    counted: &Arm,
    name: Option<&str>,
) -> Option<&'a ArmRates<'r>> {
    let path = |arm: &Arm| arm.knobs.get("path").cloned();
    let is_it = |r: &&ArmRates<'_>| match name {
        Some(name) => r.arm.name == name,
        None => path(r.arm) == path(counted),
    };
    let mut same = (rates.iter()).filter(|r| !r.valid.is_empty()).filter(is_it);
    same.next().filter(|_| same.next().is_none())
}

/// The name of a BPF program in its source: the kernel prefixes a hash of its code.
fn short(name: &str) -> &str {
    let hashed = name.strip_prefix("bpf_prog_").and_then(|rest| {
        let (hash, own) = rest.split_once('_')?;
        let is_hash = hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        (is_hash && !own.is_empty()).then_some(own)
    });
    hashed.unwrap_or(name)
}

/// How each path differs from the cheapest one, in each unit.
pub fn differences(paths: &[Explained]) -> Vec<Difference> {
    [Unit::Instructions, Unit::Nanoseconds]
        .into_iter()
        .flat_map(|unit| {
            let measured = paths.iter().filter(|p| p.packets > 0 && p.unit == unit);
            differences_of(&measured.collect::<Vec<_>>())
        })
        .collect()
}

fn differences_of(paths: &[&Explained]) -> Vec<Difference> {
    let Some(least) = paths.iter().min_by(|a, b| a.own.total_cmp(&b.own)) else {
        return Vec::new();
    };
    let of = |path: &Explained| -> BTreeMap<FunctionId, Function> {
        let functions = path.functions.iter();
        functions.map(|f| (f.id, f.clone())).collect()
    };
    let before = of(least);
    paths
        .iter()
        .filter(|path| path.path != least.path)
        .map(|path| {
            let after = of(path);
            let ids: BTreeSet<FunctionId> = before.keys().chain(after.keys()).copied().collect();
            let mut functions: Vec<FunctionDifference> = ids
                .into_iter()
                .filter_map(|id| {
                    let (one, other) = (before.get(&id), after.get(&id));
                    let own = |f: Option<&Function>| f.map_or(0.0, |f| f.own);
                    let doubt = |f: Option<&Function>| f.map_or(0.0, |f| f.uncertainty);
                    let more = own(other) - own(one);
                    (more != 0.0).then_some(FunctionDifference {
                        name: one.or(other)?.name.clone(),
                        more,
                        uncertainty: doubt(one).hypot(doubt(other)),
                    })
                })
                .collect();
            functions.sort_by(|a, b| {
                let larger = b.more.abs().total_cmp(&a.more.abs());
                larger.then(a.name.cmp(&b.name))
            });
            Difference {
                path: path.path.clone(),
                than: least.path.clone(),
                unit: path.unit,
                more: path.own - least.own,
                functions,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
