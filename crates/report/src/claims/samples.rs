//! The values of a quantity in each block of an arm, for claims and figures about anything that
//! varies from block to block.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::bench::BlockRates;
use netplumb_model::chain;
use netplumb_model::hosts;
use netplumb_model::quantity::{Calls, Kind, Repeats, Subject};
use netplumb_model::recording::{Arm, Block, Recording};
use netplumb_model::span::StageKind;
use netplumb_model::symbol::base_name;
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_stats::judge::Pair;

use super::subject::What;
use crate::analysis;
use crate::counting::{Counts, counting};
use crate::diff::arms::ArmPair;
use crate::diff::{Sides, facts};
use crate::events::columns::with_unit;
use crate::events::counted::EventCount;
use crate::events::rows;
use crate::number::printable;
use crate::number::rate;
use crate::rates::{RATES, explain};
use crate::seeds;
use crate::shape::{Shape, shape};
use crate::times::{self, TimedClass, ns};

/// Instructions of a packet.
pub(crate) const INSNS: &str = INSTRUCTIONS.name;
/// Packets handled, a bench's first quantity.
pub(crate) const HANDLED: &str = "handled";
/// CPUs that were busy, without CPUs that only send, and without other programs' use.
pub(crate) const CPU_USE: &str = "CPU use";

/// The blocks of a recording.
pub(crate) struct Samples<'r> {
    recording: &'r Recording,
    /// Of a bench, by block; none where a block does not count.
    rates: Vec<Option<BlockRates>>,
    times: Vec<TimedClass<'r>>,
    /// Counts of events.
    events: Vec<EventCount<'r>>,
}

/// Whether figures of a recording vary from block to block.
pub(crate) fn varies(recording: &Recording) -> bool {
    let repeats = recording.costs.first().and_then(|cost| {
        let quantity = recording.quantities.get(cost.quantity as usize)?;
        Some(quantity.repeats)
    });
    matches!(shape(recording), Shape::Rates | Shape::Times | Shape::Counts)
        || repeats.is_some_and(|repeats| repeats == Repeats::Statistically)
}

/// What the packets of a class cost, by block.
struct Costs {
    own: Vec<f64>,
    /// What each block's is divided by.
    of: Vec<f64>,
    /// Of samples, what one counts for; not known of none.
    sample: Option<Option<f64>>,
}

impl Costs {
    /// What each packet costs.
    fn each(&self) -> Vec<f64> {
        let blocks = self.own.iter().zip(&self.of);
        blocks.map(|(own, of)| own / of).collect()
    }
}

impl<'r> Samples<'r> {
    /// The samples of a recording.
    pub(crate) fn from_recording(recording: &'r Recording) -> Samples<'r> {
        let rates = match shape(recording) == Shape::Rates {
            true => (BlockRates::all_of(recording).into_iter())
                .map(|measured| measured.invalid().is_none().then_some(measured))
                .collect(),
            false => Vec::new(),
        };
        let times = match shape(recording) == Shape::Times {
            true => times::classes(recording),
            false => Vec::new(),
        };
        let events = match shape(recording) == Shape::Counts {
            true => rows::counts(recording),
            false => Vec::new(),
        };
        Samples { recording, rates, times, events }
    }

    /// The level of a knob of an arm.
    pub(crate) fn level(&self, arm: usize, knob: &str) -> Option<String> {
        self.recording.level(arm, knob)
    }

    /// The arms that were measured as requested: without repeats under other seeds,
    /// without probes, and without arms that only explain others.
    pub(crate) fn arms(&self) -> impl Iterator<Item = (usize, &'r Arm)> {
        let arms = self.recording.arms.iter().enumerate();
        arms.filter(|(_, arm)| {
            let bare = arm.knobs.get("probes").is_some_and(|on| on == "off");
            !bare && arm.repeats().is_none() && !self.only_explains(arm)
        })
    }

    /// Whether an arm of a bench has no rates, and only explains others.
    fn only_explains(&self, arm: &Arm) -> bool {
        let recording = self.recording;
        let of_arm = |at: u32| std::ptr::eq(&recording.arms[at as usize], arm);
        let mut blocks = recording.blocks.iter();
        let has_rates = blocks.any(|b| b.instrument == RATES && of_arm(b.arm));
        shape(recording) == Shape::Rates && !has_rates && explain::is_of_others(recording, arm)
    }

    /// The arm that an experiment asks for.
    pub(crate) fn find(&self, wanted: &Arm) -> Option<usize> {
        // The user's interfaces belong to the machine, and are in no experiment's arm.
        let same = |arm: &Arm| {
            let mut knobs = arm.knobs.clone();
            knobs.remove("nics");
            knobs == wanted.knobs
                && (shape(self.recording) == Shape::Rates
                    || seeds::is_called(self.recording, arm, &wanted.name))
        };
        self.arms().find(|(_, arm)| same(arm)).map(|(n, _)| n)
    }

    /// The printable name of an arm.
    pub(crate) fn name(&self, arm: usize) -> String {
        printable(seeds::name(&self.recording.arms[arm]), 60)
    }

    /// The values of an arm's blocks.
    ///
    /// # Errors
    /// Why there are none, as a part of a sentence.
    pub(crate) fn values(&self, arm: usize, what: &What<'_>) -> Result<Vec<f64>, String> {
        let found = match (what.quantity, self.rates.is_empty()) {
            (None | Some(HANDLED), false) => self.rates_of(arm, BlockRates::handled_pps),
            (Some(CPU_USE), false) => self.rates_of(arm, BlockRates::path_busy_cpus),
            (Some(INSNS), false) => self.counted(arm),
            _ if !self.events.is_empty() => self.events(arm, what)?,
            (None, true) => self.costs(arm, what)?.each(),
            (Some(name), _) if self.is_of_costs(name) => self.costs(arm, what)?.each(),
            (Some(name), _) => self.scalars(arm, name)?,
        };
        match found.is_empty() {
            true => Err(format!("{} was not measured", self.name(arm))),
            false => Ok(found),
        }
    }

    /// The values of two arms' blocks, for the judge of comparisons: with the counting error of samples, if
    /// known, and whether the arms took turns.
    ///
    /// # Errors
    /// Why there are none, as a part of a sentence.
    pub(crate) fn pair(&self, arms: [usize; 2], what: &What<'_>) -> Result<Pair, String> {
        let is_of_costs = match what.quantity {
            _ if !self.events.is_empty() => false,
            None => self.rates.is_empty(),
            Some(name) => self.is_of_costs(name),
        };
        let counts = |n: usize| -> Option<Counts> {
            let costs = self.costs(arms[n], what).ok()?;
            Some(Counts { sample: costs.sample?, own: costs.own, of: costs.of })
        };
        let counts = || Some([counts(0)?, counts(1)?]);
        let sides = Sides::of_arms(self.recording);
        let pair = ArmPair { before: arms[0], after: arms[1] };
        Ok(Pair {
            before: self.values(arms[0], what)?,
            after: self.values(arms[1], what)?,
            shared: [0.0; 2],
            apart: facts::apart(sides, pair) && facts::drifts(sides),
            counting: match is_of_costs {
                true => counts().and_then(|counts| counting(counts, false)),
                false => None,
            },
        })
    }

    /// An event, of all layers or of one, in each block per packet, run or second.
    fn events(&self, arm: usize, what: &What<'_>) -> Result<Vec<f64>, String> {
        let mut known: Vec<&str> = Vec::new();
        for event in &self.events {
            if !known.contains(&event.name) {
                known.push(event.name);
            }
        }
        let there = || printable(&known.join(", "), 400);
        let name = what.quantity.ok_or_else(|| {
            format!("the claim names no event as its `quantity`: there are {}", there())
        })?;
        if what.function.is_some() || what.below.is_some() || what.stage.is_some() {
            return Err("counts of events are of no function and no stage".into());
        }
        if rows::meant(&known, name).is_none() {
            return Err(format!("{} was not counted: there are {}", printable(name, 60), there()));
        }
        match self.event(arm, what) {
            Some(event) => Ok(event.each()),
            None => Err(match what.layer {
                Some(layer) => format!("{} was not counted in layer {layer}", printable(name, 60)),
                None => format!("{} was not measured", self.name(arm)),
            }),
        }
    }

    /// The event that a quantity names in an arm, of all layers or of one.
    fn event(&self, arm: usize, what: &What<'_>) -> Option<&EventCount<'r>> {
        let of_arm = || self.events.iter().filter(|event| event.arm == arm);
        let names: Vec<&str> = of_arm().map(|event| event.name).collect();
        let name = rows::meant(&names, what.quantity?)?;
        of_arm().find(|event| {
            event.name == name
                && match what.layer {
                    None => !event.is_part(),
                    Some(layer) => event.layer == Some(layer),
                }
        })
    }

    /// Other programs' use of the CPUs of an arm's path, in CPUs: the mean of its blocks; none if that was
    /// not measured.
    pub(crate) fn others(&self, arm: usize) -> Option<f64> {
        let all = self.rates_of(arm, |m| m.path_others().unwrap_or(f64::NAN));
        let known: Vec<f64> = all.into_iter().filter(|n| !n.is_nan()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    fn rates_of(&self, arm: usize, of: fn(&BlockRates) -> f64) -> Vec<f64> {
        let blocks = self.recording.blocks.iter().zip(&self.rates);
        let of_arm =
            blocks.filter(|(block, _)| block.arm as usize == arm && block.instrument == RATES);
        of_arm.filter_map(|(_, m)| m.as_ref().map(of)).collect()
    }

    /// Kernel instructions of a packet along the path of an arm, where they were counted.
    fn counted(&self, arm: usize) -> Vec<f64> {
        let wanted = &self.recording.arms[arm].knobs;
        let path = |key: &str| ["bench", "path", "frames", "family", "size"].contains(&key);
        let is =
            |other: &Arm| (wanted.iter()).all(|(k, v)| !path(k) || other.knobs.get(k) == Some(v));
        let blocks = self.recording.blocks.iter();
        blocks
            .filter(|block| block.instrument == INSTRUCTIONS.instrument)
            .filter(|block| is(&self.recording.arms[block.arm as usize]))
            .filter(|block| block.ledger.offered > 0)
            .map(|block| block.kernel() as f64 / block.ledger.offered as f64)
            .collect()
    }

    /// Whether a quantity is of costs, or of times.
    fn is_of_costs(&self, name: &str) -> bool {
        let of = |quantity: u32| self.recording.quantities.get(quantity as usize);
        let costs = self.recording.costs.first().and_then(|cost| of(cost.quantity));
        costs.is_some_and(|quantity| quantity.name == name)
            || (!self.times.is_empty() && ["own time", "time"].contains(&name))
    }

    /// What the packets of a class cost, each, in each block.
    fn costs(&self, arm: usize, what: &What<'_>) -> Result<Costs, String> {
        let class = what.class.ok_or("the quantity is one of classes, and none is named")?;
        let missing = || format!("there is no {class} of {} in the recording", self.name(arm));
        if !self.times.is_empty() {
            let mut views = self.times.iter();
            let view = views.find(|view| view.arm == arm && view.class == class);
            if what.below.is_some() {
                return Err("times are of functions, not of what is below them".into());
            }
            let own = timed(view.ok_or_else(missing)?, what)?;
            return Ok(Costs { of: vec![1.0; own.len()], own, sample: None });
        }
        // In a bench, blocks of another instrument have costs of another quantity.
        let known = |name: &str| self.recording.quantities.iter().position(|q| q.name == name);
        let id = what.quantity.and_then(known).map(|id| id as u32);
        let is_of = |quantity: u32| id.is_none_or(|id| id == quantity);
        let has = |block: &Block| {
            block.totals.is_empty() || block.totals.iter().any(|t| is_of(t.quantity))
        };
        let mut sums: BTreeMap<u32, u64> = (0..)
            .zip(&self.recording.blocks)
            .filter(|(_, block)| block.arm as usize == arm && has(block))
            .filter(|(_, block)| self.rates.is_empty() || !block.totals.is_empty())
            .map(|(n, _)| (n, 0))
            .collect();
        let own = what.function.map(|name| chain::functions(self.recording, name));
        let is_part = |id: u32| {
            let function = &self.recording.functions[id as usize];
            match (&own, what.layer) {
                (Some(own), _) => own.contains(&id),
                (None, Some(layer)) => function.layer.as_deref() == Some(layer),
                (None, None) => true,
            }
        };
        let below = what.below.map(|chain| chain::below(self.recording, chain));
        let is_below = |node: u32| (below.as_ref()).is_none_or(|is_below| is_below[node as usize]);
        let is_class = self.recording.arms[arm].proto == class.proto;
        let costs = self.recording.costs.iter();
        let mut samples = 0;
        let mut is_there = false;
        for cost in costs.filter(|cost| is_class && is_of(cost.quantity)) {
            let node = &self.recording.nodes[cost.node as usize];
            if let Some(sum) = sums.get_mut(&cost.block)
                && cost.direction == class.direction
            {
                is_there |= cost.own > 0;
                if is_part(node.function) && is_below(cost.node) {
                    *sum += cost.own;
                    samples += cost.calls;
                }
            }
        }
        let own: Vec<f64> = sums.values().map(|sum| *sum as f64).collect();
        let packets = |block: &u32| {
            let offered = self.recording.blocks[*block as usize].ledger.offered;
            offered.max(1) as f64
        };
        let of: Vec<f64> = sums.keys().map(packets).collect();
        // An arm that does not call a function that others call costs 0 there.
        let known = what.below.is_some() && below.is_some_and(|below| below.contains(&true));
        if !is_there || (own.iter().all(|own| *own == 0.0) && !known) {
            return Err(missing());
        }
        let quantity = id.and_then(|id| self.recording.quantities.get(id as usize));
        let first = || Some(analysis::quantity(self.recording));
        let quantity = quantity.cloned().or_else(first);
        let sampled = quantity.is_some_and(|quantity| quantity.calls == Calls::Samples);
        let all: f64 = own.iter().sum();
        Ok(Costs { sample: sampled.then(|| (samples > 0).then(|| all / samples as f64)), own, of })
    }

    /// A quantity of blocks: counts per second where blocks have a length.
    fn scalars(&self, arm: usize, name: &str) -> Result<Vec<f64>, String> {
        let quantities = self.recording.quantities.iter();
        let called = |name: &str| quantities.clone().position(|quantity| quantity.name == name);
        // One of the figures of a quantity: `CPU use of sender`.
        let (known, label) = match (called(name), name.rsplit_once(" of ")) {
            (None, Some((name, label))) => (called(name), Some(label)),
            (known, _) => (known, None),
        };
        let Some(id) = known else {
            let mut names: Vec<&str> = quantities.map(|q| q.name.as_str()).collect();
            names.dedup();
            return Err(format!(
                "no quantity is called `{}`: there are {}",
                printable(name, 60),
                printable(&names.join(", "), 400)
            ));
        };
        let quantity = &self.recording.quantities[id];
        let its = (self.recording.scalars.iter()).filter(|s| s.quantity as usize == id);
        let labels: BTreeSet<&str> = its.filter_map(|s| s.item.label.as_deref()).collect();
        let adds_up = quantity.kind == Kind::Count;
        if label.map_or(!adds_up && labels.len() > 1, |label| !labels.contains(label)) {
            let labels: Vec<&str> = labels.into_iter().collect();
            return Err(format!(
                "`{}` is of several: name one, like `{} of {}`; there are {}",
                printable(&quantity.name, 60),
                printable(&quantity.name, 60),
                printable(labels.first().unwrap_or(&"..."), 60),
                printable(&labels.join(", "), 400)
            ));
        }
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for scalar in &self.recording.scalars {
            let Subject::Block(block) = scalar.of else {
                continue;
            };
            if label.is_some() && scalar.item.label.as_deref() != label {
                continue;
            }
            let of = self.recording.blocks.get(block as usize);
            let counts = self.rates.get(block as usize).is_none_or(Option::is_some);
            // Blocks of another instrument were slowed down by it.
            let counts =
                counts && (self.rates.is_empty() || of.is_some_and(|b| b.instrument == RATES));
            if scalar.quantity as usize == id && counts && of.is_some_and(|b| b.arm as usize == arm)
            {
                *sums.entry(block).or_default() += scalar.value;
            }
        }
        // Blocks of two hosts last as long as the transfer.
        let is_count = adds_up && !hosts::is_of_hosts(&quantity.instrument);
        let each = |(block, sum): (u32, f64)| {
            let ns = self.recording.blocks[block as usize].duration_ns;
            match is_count && ns > 0 {
                true => sum * 1e9 / ns as f64,
                false => sum,
            }
        };
        Ok(sums.into_iter().map(each).collect())
    }

    /// Whether each run of an arm has the same values, so that no test is needed: two are equal, or
    /// they are not.
    pub(crate) fn is_exact(&self, what: &What<'_>) -> bool {
        let base = |name: &'_ str| {
            let name = name.to_string();
            let quantities = self.recording.quantities.iter();
            quantities.clone().find(|q| q.name == name).or_else(|| {
                let (name, _) = name.rsplit_once(" of ")?;
                quantities.clone().find(|q| q.name == name)
            })
        };
        shape(self.recording) == Shape::Hosts
            && what
                .quantity
                .and_then(base)
                .is_some_and(|quantity| quantity.repeats == Repeats::Exactly)
    }

    /// An arm, and the same under other seeds, in their order.
    pub(crate) fn seeds(&self, arm: usize) -> Vec<usize> {
        let name = &self.recording.arms[arm].name;
        let arms = self.recording.arms.iter().enumerate();
        let repeats = arms.filter(|(_, other)| other.repeats() == Some(name));
        std::iter::once(arm).chain(repeats.map(|(n, _)| n)).collect()
    }

    /// A value in words.
    pub(crate) fn value_text(&self, value: f64, what: &What<'_>) -> String {
        let arms = 0..self.recording.arms.len();
        if let Some(event) = arms.filter_map(|arm| self.event(arm, what)).next() {
            let value = match event.is_time {
                true => with_unit(value),
                false => short(value),
            };
            return format!("{value} per {}", event.per_all.word());
        }
        match (what.quantity, self.rates.is_empty()) {
            (None | Some(HANDLED), false) => format!("{}/s", rate(value)),
            (Some(CPU_USE), _) => format!("{value:.2} CPUs"),
            (Some(INSNS), _) => format!("{value:.1}"),
            (quantity, _) => {
                let quantities = self.recording.quantities.iter();
                let called = |name: &str| quantities.clone().find(|q| q.name == name);
                let base = |name: &str| called(name.rsplit_once(" of ")?.0);
                let known = quantity.and_then(|name| called(name).or_else(|| base(name)));
                let unit = match known {
                    Some(known)
                        if known.kind == Kind::Count && !hosts::is_of_hosts(&known.instrument) =>
                    {
                        format!("{}/s", known.unit)
                    }
                    Some(known) => known.unit.clone(),
                    None if self.times.is_empty() => String::new(),
                    None => "ns".into(),
                };
                match (unit.as_str(), self.times.is_empty()) {
                    // Two hosts have no table of times beside the claim, so any time has its unit. In others only
                    // long ones do, as in the table.
                    ("ns", is_of_hosts) if is_of_hosts || value.abs() >= 10_000.0 => ns(value),
                    // As the table has it.
                    ("bit/s", _) if value.abs() >= 100_000.0 => {
                        format!("{:.1} Mbit/s", value / 1e6)
                    }
                    (unit, _) => format!("{} {unit}", short(value)).trim_end().to_string(),
                }
            }
        }
    }
}

/// A number to three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => rate(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Times of a class: a stage's mean over the packets of its way, or the own time of functions,
/// or the whole way.
fn timed(view: &TimedClass<'_>, what: &What<'_>) -> Result<Vec<f64>, String> {
    if let Some(name) = what.stage {
        let stage = view.stages.iter().find(|stage| stage.name == name);
        let stage = stage.ok_or_else(|| {
            let names: Vec<&str> = view.stages.iter().map(|s| s.name.as_str()).collect();
            let there = match names.is_empty() {
                true => "there are none".to_string(),
                false => format!("there are {}", printable(&names.join(", "), 400)),
            };
            format!("no stage is called `{}`: {there}", printable(name, 60))
        })?;
        return Ok(stage.by_block.iter().flatten().copied().collect());
    }
    let functions = view.functions.iter().filter(|function| {
        let of = &view.recording.functions[function.function as usize];
        match (what.function, what.layer) {
            (Some(name), _) => base_name(&of.name) == name,
            (None, Some(layer)) => of.layer.as_deref() == Some(layer),
            (None, None) => true,
        }
    });
    let mut sums = vec![0.0; view.blocks.len()];
    let mut seen = false;
    for function in functions {
        seen = true;
        for (sum, own) in sums.iter_mut().zip(&function.self_by_block) {
            *sum += own;
        }
    }
    if seen {
        let each = sums.iter().zip(&view.per_by_block);
        return Ok(each.map(|(sum, per)| per.each(*sum)).collect());
    }
    if view.stages.is_empty() || what.function.is_some() || what.layer.is_some() {
        return Err("no such function was timed".into());
    }
    // From the first to the last, where it is known for every packet.
    let total = view.stages.iter().find(|s| s.kind == StageKind::Total);
    if let Some(total) = total {
        return Ok(total.by_block.iter().flatten().copied().collect());
    }
    let blocks = view.stages.iter().map(|stage| stage.by_block.len()).max();
    let whole = |block: usize| -> Option<f64> {
        let of = |stage: &times::Stage| stage.by_block.get(block).copied().flatten();
        let times: Vec<f64> = view.stages.iter().filter_map(of).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    };
    Ok((0..blocks.unwrap_or(0)).filter_map(whole).collect())
}
