//! One side of a comparison by blocks: a class of times, or one of costs that vary.

use netplumb_model::class::{Class, Direction};
use netplumb_model::quantity::Repeats;
use netplumb_model::recording::{FunctionId, Recording};

use crate::analysis::{self, ClassView};
use crate::per::Per;
use crate::times::analysis::{Stage, TimedClass, TimedFunction, classes};

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

    /// A function's own cost per packet, run or call in each block.
    pub(super) fn by_block(&self, part: Option<&Part>, per: &str) -> Vec<f64> {
        let Some(part) = part else {
            return match per {
                "call" => Vec::new(),
                _ => vec![0.0; self.per_by_block.len()],
            };
        };
        match per {
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

/// All of a recording that packets had.
pub(super) fn sides(recording: &Recording) -> Vec<Side<'_>> {
    let timed = classes(recording).into_iter().map(of_times);
    let costs = analysis::classes(recording).into_iter();
    let costs = costs.filter(|c| c.quantity.repeats == Repeats::Statistically);
    let all = timed.chain(costs.map(of_costs));
    all.filter(|s| s.class.direction != Direction::Other)
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
        stages: class.stages,
        sees_all: false,
    }
}

fn of_costs(class: ClassView<'_>) -> Side<'_> {
    let blocks = class.blocks.len() as u64;
    Side {
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
