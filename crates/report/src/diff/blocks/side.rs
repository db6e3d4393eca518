//! One side of a comparison by blocks: a class of times, or one of costs that vary.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::{Class, Direction};
use netplumb_model::quantity::Repeats;
use netplumb_model::recording::{FunctionId, NodeId, Recording};
use netplumb_stats::counts::Counting;

use crate::analysis::{self, ClassView};
use crate::counting::{self, Counts};
use crate::per::Per;
use crate::times::analysis::{Stage, TimedClass, TimedFunction, classes};

/// The unit of comparison without counted packets: a share of all samples.
pub(super) const SAMPLE: &str = "sample";

/// An arm and direction.
#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    pub(super) recording: &'a Recording,
    pub(super) arm: usize,
    pub(super) class: Class,
    pub(super) label: String,
    pub(super) per: Per,
    pub(super) per_by_block: Vec<Per>,
    pub(super) parts: Vec<FunctionBlocks>,
    /// The cost that one sample stands for, where costs are samples; not known without samples.
    pub(super) sample: Option<Option<f64>>,
    /// The whole that shares are relative to in each block, in the unit of costs: all samples, also outside
    /// the class; below a function, the class's samples there.
    pub(super) all_by_block: Vec<f64>,
    /// All samples of each block, also below a function.
    pub(super) whole_by_block: Vec<f64>,
    pub(super) stages: Vec<Stage>,
    /// Whether functions that it does not list cost nothing, as all were watched.
    pub(super) sees_all: bool,
}

/// A function of a side.
#[derive(Debug, Clone)]
pub(super) struct FunctionBlocks {
    pub(super) function: FunctionId,
    /// Its own cost in each block.
    pub(super) own_by_block: Vec<f64>,
    /// Its inclusive cost in each block, and the number of samples, if it was sampled; none if it calls
    /// nothing.
    pub(super) inclusive: Option<(Vec<f64>, u64)>,
    /// Its calls in each block; none where they can't be counted.
    pub(super) calls_by_block: Vec<u64>,
    /// Half the width of the interval that all blocks share, of its own cost in all.
    pub(super) uncertainty: f64,
    pub(super) calls: u64,
    /// Whether it is too small to be ranked.
    pub(super) small: bool,
    /// Where each of its calls was timed.
    pub(super) timed: Option<TimedFunction>,
}

impl Side<'_> {
    /// Whether it is known to have no cost below a function.
    pub(super) fn is_nothing(&self) -> bool {
        let costs = |part: &FunctionBlocks| part.own_by_block.iter().any(|own| *own > 0.0);
        self.recording.root().is_some() && self.stages.is_empty() && !self.parts.iter().any(costs)
    }

    /// Whether it has costs at all, or times.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.stages.is_empty()
    }

    pub(super) fn layer(&self, part: &FunctionBlocks) -> &str {
        let layer = &self.recording.functions[part.function as usize].layer;
        layer.as_deref().unwrap_or(analysis::NO_LAYER)
    }

    /// A function's own cost per packet, run or call in each block, or its percentage of samples.
    pub(super) fn by_block(&self, part: Option<&FunctionBlocks>, per: &str) -> Vec<f64> {
        let Some(part) = part else {
            return match per {
                "call" => Vec::new(),
                _ => self.of_costs(&vec![0.0; self.per_by_block.len()], per),
            };
        };
        match per {
            "call" => (part.own_by_block.iter().zip(&part.calls_by_block))
                .filter(|(_, calls)| **calls > 0)
                .map(|(own, calls)| own / *calls as f64)
                .collect(),
            _ => self.of_costs(&part.own_by_block, per),
        }
    }

    /// Costs in each block per packet or run, or as a percentage of samples: NaN for a block without any.
    pub(super) fn of_costs(&self, costs: &[f64], per: &str) -> Vec<f64> {
        match per {
            SAMPLE => (costs.iter().zip(&self.all_by_block))
                .map(|(cost, all)| match *all > 0.0 {
                    true => 100.0 * cost / all,
                    false => f64::NAN,
                })
                .collect(),
            _ => (self.per_by_block.iter().zip(costs)).map(|(per, cost)| per.each(*cost)).collect(),
        }
    }
}

/// The counting error of a figure of both sides, if nothing differs. `own` is the cost in each block.
/// None where it is not a number of samples.
pub(super) fn counting(sides: [&Side<'_>; 2], own: [&[f64]; 2], per: &str) -> Option<Counting> {
    let counts = |n: usize| -> Option<Counts> {
        let side = sides[n];
        Some(Counts {
            own: own[n].to_vec(),
            of: match per {
                SAMPLE => side.all_by_block.clone(),
                _ => side.per_by_block.iter().map(|per| per.count()).collect(),
            },
            sample: side.sample?,
        })
    };
    counting::counting([counts(0)?, counts(1)?], per == SAMPLE)
}

/// All sides of a recording that had packets.
pub(super) fn sides(recording: &Recording) -> Vec<Side<'_>> {
    let timed = classes(recording).into_iter().map(of_times);
    let costs = analysis::measured(recording).into_iter();
    let costs = costs.filter(|c| c.quantity.repeats == Repeats::Statistically);
    let all = timed.chain(costs.map(of_costs));
    all.filter(|s| analysis::is_class(recording, s.class.direction)).collect()
}

/// A class of costs that are all 0 in an arm; none if the arm was not measured.
pub(super) fn zero(recording: &Recording, arm: usize, direction: Direction) -> Option<Side<'_>> {
    let class = analysis::class(recording, arm, direction);
    (!class.blocks.is_empty()).then(|| of_costs(class))
}

fn of_times(class: TimedClass<'_>) -> Side<'_> {
    Side {
        recording: class.recording,
        arm: class.arm,
        class: class.class,
        label: class.label(),
        per: class.per,
        per_by_block: class.per_by_block.clone(),
        parts: (class.functions.iter())
            .map(|f| FunctionBlocks {
                function: f.function,
                own_by_block: f.self_by_block.clone(),
                inclusive: None,
                calls_by_block: f.calls_by_block.clone(),
                uncertainty: f.uncertainty_ns,
                calls: f.times.count,
                small: f.too_small(),
                timed: Some(f.clone()),
            })
            .collect(),
        sample: None,
        all_by_block: Vec::new(),
        whole_by_block: Vec::new(),
        stages: class.stages,
        sees_all: false,
    }
}

/// For each function of a sampled class: its inclusive cost in each block, where recursion counts once,
/// and the number of samples.
fn inclusive(class: &ClassView<'_>) -> HashMap<FunctionId, (Vec<f64>, u64)> {
    let recording = class.recording;
    let nodes = &recording.nodes;
    let outermost: Vec<NodeId> = (class.nodes.keys().copied())
        .filter(|id| {
            let function = nodes[*id as usize].function;
            !analysis::has_ancestor(recording, *id, function)
        })
        .collect();
    let mut all: HashMap<FunctionId, (Vec<f64>, u64)> = HashMap::new();
    let none = || (vec![0.0; class.blocks.len()], 0);
    for id in &outermost {
        let (_, samples) = all.entry(nodes[*id as usize].function).or_insert_with(none);
        *samples += class.nodes[id].samples_below;
    }
    let quantity = recording.costs.first().map(|cost| cost.quantity);
    let places: HashMap<u32, usize> = class.blocks.iter().copied().zip(0..).collect();
    let mut by_block: Vec<BTreeMap<NodeId, u64>> = vec![BTreeMap::new(); class.blocks.len()];
    for cost in &recording.costs {
        let is_of = cost.direction == class.class.direction && Some(cost.quantity) == quantity;
        if let Some(place) = places.get(&cost.block).filter(|_| is_of) {
            *by_block[*place].entry(cost.node).or_default() += cost.own;
        }
    }
    for (place, mut sums) in by_block.into_iter().enumerate() {
        // A parent's number is below its children's.
        while let Some((id, sum)) = sums.pop_last() {
            let node = nodes[id as usize];
            if let Some(parent) = node.parent {
                *sums.entry(parent).or_default() += sum;
            }
            if outermost.binary_search(&id).is_ok()
                && let Some((by_block, _)) = all.get_mut(&node.function)
            {
                by_block[place] += sum as f64;
            }
        }
    }
    all
}

fn of_costs(class: ClassView<'_>) -> Side<'_> {
    let mut inclusive = match class.is_sampled() {
        true => inclusive(&class),
        false => HashMap::new(),
    };
    let blocks = class.blocks.len() as u64;
    let samples: u64 = class.functions.iter().map(|f| f.calls).sum();
    let whole = |(block, own): (&u32, &u64)| {
        let block = &class.recording.blocks[*block as usize];
        let id = class.recording.costs.first().map(|c| c.quantity);
        let total = block.totals.iter().find(|t| Some(t.quantity) == id);
        // Never less than its part.
        total.map_or(*own, |t| t.kernel.saturating_add(t.user).max(*own)) as f64
    };
    let whole_by_block: Vec<f64> = (class.blocks.iter().zip(&class.by_block)).map(whole).collect();
    Side {
        sample: class
            .is_sampled()
            .then(|| (samples > 0).then(|| class.total as f64 / samples as f64)),
        all_by_block: match class.recording.root() {
            Some(_) => class.by_block.iter().map(|own| *own as f64).collect(),
            None => whole_by_block.clone(),
        },
        whole_by_block,
        recording: class.recording,
        arm: class.arm,
        class: class.class,
        label: crate::summary::label(&class),
        per: class.per,
        per_by_block: class.per_by_block(),
        parts: (class.functions.iter())
            .filter_map(|f| {
                let inclusive = inclusive.remove(&f.function);
                let inclusive = inclusive.filter(|(_, samples)| *samples > f.calls);
                let own = match class.spread.get(&f.function) {
                    Some(own) => own.iter().map(|own| *own as f64).collect(),
                    // It only calls others.
                    None if inclusive.is_some() => vec![0.0; class.blocks.len()],
                    None => return None,
                };
                Some(FunctionBlocks {
                    function: f.function,
                    own_by_block: own,
                    inclusive,
                    calls_by_block: Vec::new(),
                    uncertainty: 0.0,
                    calls: f.calls,
                    // Less than one sample in each block shows no change.
                    small: f.calls < blocks,
                    timed: None,
                })
            })
            .collect(),
        stages: Vec::new(),
        sees_all: true,
    }
}
