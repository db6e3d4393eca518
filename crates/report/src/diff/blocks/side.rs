//! One side of a comparison by blocks: a class of times, or one of costs that vary.

use netplumb_model::class::Class;
use netplumb_model::quantity::Repeats;
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_stats::counts::Counting;

use crate::analysis::{self, ClassView};
use crate::per::Per;
use crate::times::analysis::{Stage, TimedClass, TimedFunction, classes};

/// What is compared where nobody counted packets: which part of all samples.
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
    pub(super) parts: Vec<Part>,
    /// What one sample counts for, where costs are samples.
    pub(super) sample: Option<f64>,
    /// All samples of each block, in their unit: of what is no part of the class too.
    pub(super) all_by_block: Vec<f64>,
    pub(super) stages: Vec<Stage>,
    /// Whether what is not among its functions cost nothing, watched or not.
    pub(super) sees_all: bool,
}

/// A function of it.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) function: FunctionId,
    /// Its own cost in each block.
    pub(super) own_by_block: Vec<f64>,
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
    pub(super) fn layer(&self, part: &Part) -> &str {
        let layer = &self.recording.functions[part.function as usize].layer;
        layer.as_deref().unwrap_or(analysis::NO_LAYER)
    }

    /// A function's own cost per packet, run or call in each block, or its percentage of samples.
    pub(super) fn by_block(&self, part: Option<&Part>, per: &str) -> Vec<f64> {
        let Some(part) = part else {
            return match per {
                "call" => Vec::new(),
                _ => vec![0.0; self.per_by_block.len()],
            };
        };
        match per {
            SAMPLE => (part.own_by_block.iter().zip(&self.all_by_block))
                .map(|(own, all)| 100.0 * own / all.max(1.0))
                .collect(),
            "call" => (part.own_by_block.iter().zip(&part.calls_by_block))
                .filter(|(_, calls)| **calls > 0)
                .map(|(own, calls)| own / *calls as f64)
                .collect(),
            _ => (self.per_by_block.iter().zip(&part.own_by_block))
                .map(|(per, own)| per.each(*own))
                .collect(),
        }
    }
}

/// By how much a figure of both sides varies from counting samples alone, if nothing differs. `own` is
/// the cost in each block. None where it is no number of samples.
pub(super) fn counting(sides: [&Side<'_>; 2], own: [&[f64]; 2], per: &str) -> Option<Counting> {
    let weights = [sides[0].sample?, sides[1].sample?];
    // What each block's cost is divided by.
    let of = sides.map(|side| match per {
        SAMPLE => side.all_by_block.clone(),
        _ => side.per_by_block.iter().map(|per| per.count()).collect(),
    });
    let sum = |all: &[f64]| -> f64 { all.iter().sum() };
    let whole: f64 = of.iter().map(|of| sum(of)).sum();
    let rate = own.iter().map(|own| sum(own)).sum::<f64>() / whole;
    let samples: f64 = (own.iter().zip(weights))
        .map(|(own, weight)| sum(own) / weight)
        .sum();
    let blocks = own.iter().map(|own| own.len()).sum::<usize>().max(1);
    let variance = |side: usize| -> Vec<f64> {
        let of = of[side].iter().map(|of| of.max(f64::MIN_POSITIVE));
        of.map(|of| match per {
            // A share of so many samples (binomial), in percent.
            SAMPLE => 1e4 * rate * (1.0 - rate).max(0.0) * weights[side] / of,
            // A number of samples (Poisson), each of a weight.
            _ => rate * weights[side] / of,
        })
        .collect()
    };
    Some(Counting {
        variance: [variance(0), variance(1)],
        samples: samples / blocks as f64,
    })
}

/// All of a recording that packets had.
pub(super) fn sides(recording: &Recording) -> Vec<Side<'_>> {
    let timed = classes(recording).into_iter().map(of_times);
    let costs = analysis::classes(recording).into_iter();
    let costs = costs.filter(|c| c.quantity.repeats == Repeats::Statistically);
    let all = timed.chain(costs.map(of_costs));
    all.filter(|s| analysis::is_class(recording, s.class.direction))
        .collect()
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
            .map(|f| Part {
                function: f.function,
                own_by_block: f.self_by_block.clone(),
                calls_by_block: f.calls_by_block.clone(),
                uncertainty: f.uncertainty_ns,
                calls: f.times.count,
                small: f.too_small(),
                timed: Some(f.clone()),
            })
            .collect(),
        sample: None,
        all_by_block: Vec::new(),
        stages: class.stages,
        sees_all: false,
    }
}

fn of_costs(class: ClassView<'_>) -> Side<'_> {
    let blocks = class.blocks.len() as u64;
    let samples: u64 = class.functions.iter().map(|f| f.calls).sum();
    let is_counted = class.is_sampled() && samples > 0;
    let whole = |(block, own): (&u32, &u64)| {
        let block = &class.recording.blocks[*block as usize];
        let id = class.recording.costs.first().map(|c| c.quantity);
        let total = block.totals.iter().find(|t| Some(t.quantity) == id);
        // Never less than its part.
        total.map_or(*own, |t| t.kernel.saturating_add(t.user).max(*own)) as f64
    };
    Side {
        sample: is_counted.then(|| class.total as f64 / samples as f64),
        all_by_block: class
            .blocks
            .iter()
            .zip(&class.by_block)
            .map(whole)
            .collect(),
        recording: class.recording,
        arm: class.arm,
        class: class.class,
        label: crate::summary::label(&class),
        per: class.per,
        per_by_block: class.per_by_block(),
        parts: (class.functions.iter())
            .filter_map(|f| {
                let own = class.spread.get(&f.function)?;
                Some(Part {
                    function: f.function,
                    own_by_block: own.iter().map(|own| *own as f64).collect(),
                    calls_by_block: Vec::new(),
                    uncertainty: 0.0,
                    calls: f.calls,
                    // Less than one sample in each block tells nothing of a change.
                    small: f.calls < blocks,
                    timed: None,
                })
            })
            .collect(),
        stages: Vec::new(),
        sees_all: true,
    }
}
