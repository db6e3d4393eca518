//! The part of one instrument in a recording of several, and of one quantity of several.

use std::borrow::Cow;

use super::{Block, Recording, env};
use crate::events;
use crate::quantity::{Declared, Quantity, QuantityId, Scalar, Subject};
use crate::spans;
use crate::timing::INSTRUCTIONS;
use crate::trace::Trace;

impl Recording {
    /// The parts that there are, each a recording of its own: one for each instrument, of the
    /// first quantity that its costs are of, followed by one for each further quantity, by that
    /// one's name.
    pub fn parts(&self) -> Vec<&str> {
        let further = self.further();
        let mut parts = Vec::new();
        for instrument in self.instruments() {
            parts.push(instrument);
            let of = further.iter().filter(|(_, q)| q.instrument == instrument);
            parts.extend(of.map(|(_, quantity)| quantity.name.as_str()));
        }
        parts
    }

    /// The quantities of a part's costs.
    pub fn quantity_of_part(&self, part: &str) -> Option<&Quantity> {
        let further = self.further();
        if let Some((_, quantity)) = further.iter().find(|(_, quantity)| quantity.name == part) {
            return Some(quantity);
        }
        let mut blocks = self.blocks.iter().filter(|block| block.instrument == part);
        let total = blocks.find_map(|block| block.totals.first())?;
        self.quantities.get(total.quantity as usize)
    }

    /// The name of a part, by that or by the quantity of its costs: the first quantity of an instrument has the
    /// instrument's name.
    pub fn part_named(&self, name: &str) -> Option<&str> {
        let parts = self.parts();
        let of = |part: &&&str| self.quantity_of_part(part).is_some_and(|q| q.name == name);
        let named = parts.iter().find(|part| **part == name);
        // perf's names for the events of a file, in the order of the parts.
        let events = self.environment.get(env::SAMPLED_EVENT);
        let mut events = events.into_iter().flat_map(|all| all.split(", "));
        let mut called = || events.position(|event| event == name);
        let named = named.or_else(|| parts.iter().find(of)).copied();
        named.or_else(|| parts.get(called()?).copied())
    }

    /// The quantities of a block's costs beside its first one, which is the quantity of its times between events, or of
    /// its counts of events, if it has such.
    fn further(&self) -> Vec<(QuantityId, &Quantity)> {
        let mut further: Vec<(QuantityId, &Quantity)> = Vec::new();
        let has_times = !self.spans.is_empty();
        let has_counts = self.has_counts();
        let first = |block: &Block| match block.instrument.as_str() {
            spans::INSTRUMENT => usize::from(!has_times),
            events::INSTRUMENT => usize::from(!has_counts),
            _ => 1,
        };
        for total in (self.blocks.iter()).flat_map(|b| b.totals.iter().skip(first(b))) {
            let known = further.iter().any(|(id, _)| *id == total.quantity);
            if let Some(quantity) = self.quantities.get(total.quantity as usize)
                && !known
            {
                further.push((total.quantity, quantity));
            }
        }
        further
    }

    /// Whether events were counted.
    pub fn has_counts(&self) -> bool {
        let is = |of: &&Declared| self.scalars_of(of).next().is_some();
        events::COUNTED.iter().any(is)
    }

    /// A part by its name, as a recording: the blocks of an instrument and those without instrument,
    /// with everything that belongs to them. The recording itself if there is no other part.
    pub fn part(&self, name: &str) -> Cow<'_, Recording> {
        if matches!(self.parts()[..], [] | [_]) {
            return Cow::Borrowed(self);
        }
        let further = self.further();
        let named = further.iter().find(|(_, q)| q.name == name);
        let instrument = named.map_or(name, |(_, quantity)| &quantity.instrument);
        let is_of = |block: &Block| block.instrument.is_empty() || block.instrument == instrument;
        // The requested one of a block's quantities, or the first.
        let has = |quantity: QuantityId| match named {
            Some((id, _)) => quantity == *id,
            None => !further.iter().any(|(id, _)| *id == quantity),
        };
        // The table of counts also has who caused events, by layer.
        let is_of_counts = named.is_none() && instrument == events::INSTRUMENT;
        // Call graphs of events are without their counts.
        let counts: Vec<QuantityId> = (0..)
            .zip(&self.quantities)
            .filter(|(_, q)| named.is_some() && events::COUNTED.iter().any(|of| q.is(of)))
            .map(|(id, _)| id)
            .collect();
        let mut part = self.without_blocks();
        part.environment.insert(env::CLOCK.into(), instrument.into());
        let mut numbers = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            numbers.push(is_of(block).then_some(part.blocks.len() as u32));
            if is_of(block) {
                part.blocks.push(block.clone());
            }
        }
        let number = |block: u32| numbers.get(block as usize).copied().flatten();
        macro_rules! take {
            ($list:ident) => {
                for one in &self.$list {
                    if let Some(block) = number(one.block) {
                        part.$list.push(one.clone());
                        if let Some(last) = part.$list.last_mut() {
                            last.block = block;
                        }
                    }
                }
            };
        }
        take!(costs);
        part.costs.retain(|cost| is_of_counts || has(cost.quantity));
        for samples in self.samples.iter().filter(|s| has(s.quantity)) {
            if let Some(block) = number(samples.block) {
                let mut samples = samples.clone();
                samples.block = block;
                part.samples.push(samples);
            }
        }
        for trace in &self.traces {
            let block = match trace.block {
                Some(block) => match number(block) {
                    Some(number) => Some(number),
                    None => continue,
                },
                None => None,
            };
            part.traces.push(Trace { block, ..trace.clone() });
        }
        for block in &mut part.blocks {
            block.totals.retain(|total| has(total.quantity));
        }
        take!(hops);
        // Times and lines are of the first quantity.
        if named.is_none() {
            take!(spans);
            take!(groups);
            take!(slices);
            take!(line_costs);
        }
        if instrument == INSTRUCTIONS.instrument {
            part.code.clone_from(&self.code);
        }
        for notes in part.notes.values_mut() {
            notes.failed.retain(|by, _| by == instrument);
        }
        // Old recordings don't name the instrument.
        let is_of = |by: &str| by.is_empty() || by == instrument;
        part.losses.retain(|by, _| is_of(by));
        part.not_measured.retain(|by, _| is_of(by));
        part.over_budget.retain(|by, _| is_of(by));
        if part.calls().next().is_none() {
            part.attachments.clear();
            part.calibration.clear();
        }
        // The unit of its costs; times are in nanoseconds.
        let totals = part.blocks.iter().find_map(|block| block.totals.first());
        let quantity = totals.and_then(|t| self.quantities.get(t.quantity as usize));
        let unit = match quantity.map(|quantity| quantity.unit.as_str()) {
            None | Some("ns") => "nanoseconds",
            Some(unit) => unit,
        };
        part.environment.insert(env::UNIT.into(), unit.into());
        for scalar in (self.scalars.iter()).filter(|s| !counts.contains(&s.quantity)) {
            let of = match scalar.of {
                Subject::Block(block) => number(block).map(Subject::Block),
                of => Some(of),
            };
            part.scalars.extend(of.map(|of| Scalar { of, ..scalar.clone() }));
        }
        Cow::Owned(part)
    }

    /// The recording without blocks and everything that belongs to them.
    pub(super) fn without_blocks(&self) -> Recording {
        Recording {
            environment: self.environment.clone(),
            experiment_toml: self.experiment_toml.clone(),
            quantities: self.quantities.clone(),
            arms: self.arms.clone(),
            notes: self.notes.clone(),
            functions: self.functions.clone(),
            source_files: self.source_files.clone(),
            source_texts: self.source_texts.clone(),
            nodes: self.nodes.clone(),
            threads: self.threads.clone(),
            attachments: self.attachments.clone(),
            calibration: self.calibration.clone(),
            trace_texts: self.trace_texts.clone(),
            losses: self.losses.clone(),
            not_measured: self.not_measured.clone(),
            over_budget: self.over_budget.clone(),
            not_tried: self.not_tried.clone(),
            complete: self.complete,
            ..Recording::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Context, Direction};
    use crate::quantity::FigureKey;
    use crate::recording::{Cost, Ledger, LineCost, SourceLine, Total};
    use crate::span::{Span, SpanOf, Stage, StageKind, Times};
    use crate::timing::{DEFERRED, DELIVERED, FOLLOWED, INSTRUCTIONS, SAMPLED};

    /// Check that where the costs of a block are of two quantities, each is a part, and that
    /// their costs are not mixed.
    #[test]
    fn two_quantities() {
        let mut recording = Recording::default();
        let of = [recording.quantity(&SAMPLED), recording.quantity(&DEFERRED)];
        for (number, instrument) in (0..).zip(["exact", "samples"]) {
            let mut quantities = of.to_vec();
            if instrument == "exact" {
                quantities = vec![recording.quantity(&INSTRUCTIONS)];
            }
            let total = |quantity: &QuantityId| Total { quantity: *quantity, kernel: 5, user: 0 };
            recording.blocks.push(Block {
                arm: 0,
                instrument: instrument.into(),
                index: 0,
                ledger: Ledger::default(),
                totals: quantities.iter().map(total).collect(),
                entered: 0,
                returned: 0,
                duration_ns: 0,
            });
            recording.costs.extend(quantities.iter().map(|quantity| Cost {
                block: number,
                quantity: *quantity,
                direction: Direction::Tx,
                context: Context::Task,
                node: 0,
                calls: 1,
                own: 5,
            }));
        }
        assert_eq!(recording.instruments(), ["exact", "samples"]);
        assert_eq!(recording.parts(), ["exact", "samples", "deferred"]);
        for (name, quantity) in [("samples", of[0]), ("deferred", of[1])] {
            let part = recording.part(name);
            assert_eq!(part.parts(), ["samples"]);
            assert_eq!((part.costs.len(), part.costs[0].quantity), (1, quantity));
            assert_eq!(part.blocks[0].total().quantity, quantity);
        }
        assert_eq!(recording.part("exact").costs.len(), 1);
        let source = SourceLine { file: 0, line: 1 };
        recording.line_costs.push(LineCost { block: 1, function: 0, source, own: 5 });
        let lines = |name| recording.part(name).line_costs.len();
        assert_eq!(["exact", "samples", "deferred"].map(lines), [0, 1, 0]);
    }

    /// Check that call graphs beside times between events are separate parts, without the times.
    #[test]
    fn times_and_their_causes() {
        let mut recording = Recording::default();
        let of = [&spans::STACKS, &spans::SLOW].map(|of| recording.quantity(of));
        recording.blocks.push(Block {
            arm: 0,
            instrument: spans::INSTRUMENT.into(),
            index: 0,
            ledger: Ledger::default(),
            totals: of.map(|quantity| Total { quantity, kernel: 0, user: 0 }).to_vec(),
            entered: 0,
            returned: 0,
            duration_ns: 1,
        });
        recording.spans.push(Span {
            block: 0,
            direction: Direction::Run,
            of: SpanOf::Stage(Stage {
                order: 0,
                name: "a → b".into(),
                kind: StageKind::Either,
                passed_over: 0,
            }),
            times: Times::default(),
        });
        assert_eq!(recording.parts(), ["spans", "stacks", "slow"]);
        for (name, spans, totals) in [("spans", 1, 0), ("stacks", 0, 1), ("slow", 0, 1)] {
            let part = recording.part(name);
            assert_eq!(part.parts(), ["spans"]);
            assert_eq!((part.spans.len(), part.blocks[0].totals.len()), (spans, totals));
        }
    }

    /// Check that a part has the blocks of one instrument and those without, with everything that
    /// belongs to them under new indices, and that a recording of one instrument is its own part.
    #[test]
    fn parts() {
        let mut recording = Recording::default();
        recording.environment.insert(env::CLOCK.into(), "stages".into());
        for (index, instrument) in (0..).zip(["samples", "stages", "", "samples", "stages"]) {
            recording.blocks.push(Block {
                arm: 0,
                instrument: instrument.into(),
                index,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 1,
            });
            let value = f64::from(index);
            recording.add(Subject::Block(index), &DELIVERED, FigureKey::ONLY, value);
        }
        recording.add(Subject::Run, &FOLLOWED, FigureKey::ONLY, 7.0);
        let failed = &mut recording.notes_of(0).failed;
        failed.insert("functions".into(), "no BTF".into());
        assert_eq!(recording.instruments(), ["stages", "functions", "samples"]);
        let part = recording.part("samples");
        let indices: Vec<u32> = part.blocks.iter().map(|b| b.index).collect();
        assert_eq!(indices, [0, 2, 3]);
        assert_eq!(part.environment[env::CLOCK], "samples");
        let scalars: Vec<(Subject, f64)> = part.scalars.iter().map(|s| (s.of, s.value)).collect();
        let of_blocks = (0..).zip([0.0, 2.0, 3.0]).map(|(n, v)| (Subject::Block(n), v));
        let wanted: Vec<(Subject, f64)> = of_blocks.chain([(Subject::Run, 7.0)]).collect();
        assert_eq!(scalars, wanted);
        assert!(matches!(part.part("samples"), Cow::Borrowed(_)));
    }
}
