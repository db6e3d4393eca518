//! Some of the arms of a recording.

use super::{Block, Recording};
use crate::quantity::Subject;

impl Recording {
    /// Keep only these arms, in this order: of a recording whose blocks have figures alone.
    pub fn keep_arms(&mut self, kept: &[usize]) {
        let arm = |was: u32| kept.iter().position(|arm| *arm == was as usize);
        let mut numbers = Vec::new();
        let mut blocks = Vec::new();
        for block in self.blocks.drain(..) {
            let arm = arm(block.arm).map(|arm| arm as u32);
            numbers.push(arm.map(|_| blocks.len() as u32));
            blocks.extend(arm.map(|arm| Block { arm, ..block }));
        }
        self.blocks = blocks;
        self.scalars.retain_mut(|scalar| {
            let of = match scalar.of {
                Subject::Run => Some(Subject::Run),
                Subject::Arm(was) => arm(was).map(|arm| Subject::Arm(arm as u32)),
                Subject::Block(was) => {
                    numbers.get(was as usize).copied().flatten().map(Subject::Block)
                }
            };
            scalar.of = of.unwrap_or(scalar.of);
            of.is_some()
        });
        let notes = std::mem::take(&mut self.notes).into_iter();
        let notes = notes.filter_map(|(was, notes)| Some((arm(was)? as u32, notes)));
        self.notes = notes.collect();
        let arms = kept.iter().filter_map(|arm| self.arms.get(*arm).cloned());
        self.arms = arms.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Knobs, Lab};
    use crate::hosts::THROUGHPUT;
    use crate::quantity::FigureKey;
    use crate::recording::Ledger;

    /// Check that kept arms have their blocks, figures and notes, under new numbers.
    #[test]
    fn kept_arms() {
        let mut recording = Recording::default();
        for arm in 0..3 {
            let named = Knobs::default().arm(arm.to_string(), Lab::Netns);
            recording.arms.push(named);
            let facts = &mut recording.notes_of(arm).facts;
            facts.insert("arm".into(), arm.to_string());
        }
        for (block, arm) in [2, 1, 0, 1, 2].into_iter().enumerate() {
            recording.blocks.push(Block {
                arm,
                instrument: String::new(),
                index: 0,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 1,
            });
            let of = Subject::Block(block as u32);
            recording.add(of, &THROUGHPUT, FigureKey::ONLY, f64::from(arm));
        }
        recording.add(Subject::Run, &THROUGHPUT, FigureKey::ONLY, 7.0);
        recording.keep_arms(&[2, 0]);
        let names: Vec<&str> = recording.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["2", "0"]);
        let arms: Vec<u32> = recording.blocks.iter().map(|block| block.arm).collect();
        assert_eq!(arms, [0, 1, 0]);
        let figures: Vec<(Subject, f64)> =
            recording.scalars.iter().map(|s| (s.of, s.value)).collect();
        let of = |block| Subject::Block(block);
        assert_eq!(figures, [(of(0), 2.0), (of(1), 0.0), (of(2), 2.0), (Subject::Run, 7.0)]);
        assert_eq!(recording.notes[&1].facts["arm"], "0");
        assert_eq!(recording.notes.len(), 2);
    }
}
