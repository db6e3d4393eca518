//! The part of one instrument in a recording of several.

use std::borrow::Cow;

use super::{Block, Recording, env};
use crate::quantity::{Of, Scalar};

impl Recording {
    /// The part of one instrument, as a recording: its blocks and those without instrument, with
    /// everything that belongs to them. The recording itself if there is no other instrument.
    pub fn part(&self, instrument: &str) -> Cow<'_, Recording> {
        let is_of = |block: &Block| block.instrument.is_empty() || block.instrument == instrument;
        if matches!(self.instruments()[..], [] | [_]) {
            return Cow::Borrowed(self);
        }
        let mut part = self.without_blocks();
        part.environment
            .insert(env::CLOCK.into(), instrument.into());
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
        take!(spans);
        take!(hops);
        take!(line_costs);
        for notes in part.notes.values_mut() {
            notes.failed.retain(|by, _| by == instrument);
        }
        // Old recordings don't name the instrument.
        let is_of = |by: &str| by.is_empty() || by == instrument;
        part.losses.retain(|by, _| is_of(by));
        part.unwatched.retain(|by, _| is_of(by));
        part.shed.retain(|by, _| is_of(by));
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
        for scalar in &self.scalars {
            let of = match scalar.of {
                Of::Block(block) => number(block).map(Of::Block),
                of => Some(of),
            };
            part.scalars.extend(of.map(|of| Scalar {
                of,
                ..scalar.clone()
            }));
        }
        Cow::Owned(part)
    }

    /// The recording without blocks and everything that belongs to them.
    fn without_blocks(&self) -> Recording {
        Recording {
            environment: self.environment.clone(),
            experiment_toml: self.experiment_toml.clone(),
            quantities: self.quantities.clone(),
            arms: self.arms.clone(),
            notes: self.notes.clone(),
            functions: self.functions.clone(),
            source_files: self.source_files.clone(),
            nodes: self.nodes.clone(),
            attachments: self.attachments.clone(),
            calibration: self.calibration.clone(),
            steps: self.steps.clone(),
            losses: self.losses.clone(),
            unwatched: self.unwatched.clone(),
            shed: self.shed.clone(),
            untried: self.untried.clone(),
            complete: self.complete,
            ..Recording::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Item;
    use crate::recording::Ledger;
    use crate::timing::{DELIVERED, FOLLOWED};

    /// Check that a part has the blocks of one instrument and those without, with everything that
    /// belongs to them under new indices, and that a recording of one instrument is its own part.
    #[test]
    fn parts() {
        let mut recording = Recording::default();
        recording
            .environment
            .insert(env::CLOCK.into(), "stages".into());
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
            recording.add(Of::Block(index), &DELIVERED, Item::ONLY, value);
        }
        recording.add(Of::Run, &FOLLOWED, Item::ONLY, 7.0);
        let failed = &mut recording.notes_of(0).failed;
        failed.insert("functions".into(), "no BTF".into());
        assert_eq!(recording.instruments(), ["stages", "functions", "samples"]);
        let part = recording.part("samples");
        let indices: Vec<u32> = part.blocks.iter().map(|b| b.index).collect();
        assert_eq!(indices, [0, 2, 3]);
        assert_eq!(part.environment[env::CLOCK], "samples");
        let scalars: Vec<(Of, f64)> = part.scalars.iter().map(|s| (s.of, s.value)).collect();
        let of_blocks = (0..).zip([0.0, 2.0, 3.0]).map(|(n, v)| (Of::Block(n), v));
        let wanted: Vec<(Of, f64)> = of_blocks.chain([(Of::Run, 7.0)]).collect();
        assert_eq!(scalars, wanted);
        assert!(matches!(part.part("samples"), Cow::Borrowed(_)));
    }
}
