//! A class under several random seeds: what a seed decides is no change.

use netplumb_model::recording::{Arm, Recording};

use super::arms::{ArmPair, Pairs};
use super::exact::Delta;
use super::sentence::signed;
use super::{Change, Sides, Verdict};

/// The changes of a class under each seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds {
    /// One for each seed; at least two.
    changes: Vec<Change>,
}

impl Seeds {
    /// None of a single seed.
    pub(super) fn from_changes(changes: Vec<Change>) -> Option<Seeds> {
        (changes.len() > 1).then_some(Seeds { changes })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.changes.len()
    }

    /// The changes per packet, the least first.
    pub fn deltas(&self) -> Vec<Delta> {
        let mut all: Vec<Delta> = self.changes.iter().map(Change::delta).collect();
        all.sort_by(|a, b| a.value().total_cmp(&b.value()));
        all
    }

    /// The least change, the median, and the largest.
    pub fn range(&self) -> [Delta; 3] {
        let all = self.deltas();
        [0, (all.len() - 1) / 2, all.len() - 1].map(|n| all[n])
    }

    /// Whether the sides' ranges over seeds have nothing in common.
    fn apart(&self) -> bool {
        let side = |of: fn(&Change) -> f64| {
            let all = || self.changes.iter().map(of);
            let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
            (least, most)
        };
        let (before, after) = (side(|c| c.before.value()), side(|c| c.after.value()));
        before.1 < after.0 || after.1 < before.0
    }

    /// The verdict over all seeds, given the one under one seed, and how much of the change is certain. Between
    /// kernels all seeds of one side have to be beyond all of the other, since data placed elsewhere changes the
    /// figures under each seed; `code` is the change in functions whose own code differs, which needs no such proof.
    pub(super) fn judge(
        &self,
        verdict: Verdict,
        same_kernel: bool,
        code: Option<f64>,
    ) -> (Verdict, f64) {
        let [least, _, most] = self.range().map(|delta| delta.value());
        let up = verdict == Verdict::Worse;
        let certain = if up { least } else { -most };
        match verdict.differs() {
            false => (verdict, 0.0),
            true if certain <= 0.0 => (Verdict::Seeds, 0.0),
            true if same_kernel || self.apart() => (verdict, certain),
            true => match code.map(|code| if up { code } else { -code }) {
                Some(code) if code > 0.0 => (verdict, code.min(certain)),
                _ => (Verdict::Seeds, 0.0),
            },
        }
    }

    /// "3 seeds: median +3, +2 to +5".
    pub(super) fn seeds_text(&self) -> String {
        let [least, median, most] = self.range().map(|delta| signed(&delta));
        match least == most {
            true => format!("{median} with each of {} seeds", self.count()),
            false => format!("median {median}, {least} to {most} over {} seeds", self.count()),
        }
    }
}

/// The pair, then the same with each other seed of either side; for a seed that a side lacks, its first is
/// compared.
pub(crate) fn pairs(sides: Sides<'_>, pair: ArmPair) -> Vec<ArmPair> {
    let before = repeats(sides.before, pair.before);
    let after = repeats(sides.after, pair.after);
    let mut all = vec![pair];
    let find = |arms: &[(String, usize)], seed: &str, first: usize| {
        let found = arms.iter().find(|(of, _)| of == seed);
        found.map_or(first, |(_, arm)| *arm)
    };
    let mut seeds: Vec<&String> = before.iter().chain(&after).map(|(seed, _)| seed).collect();
    seeds.sort();
    seeds.dedup();
    all.extend(seeds.into_iter().map(|seed| ArmPair {
        before: find(&before, seed, pair.before),
        after: find(&after, seed, pair.after),
    }));
    all
}

/// The arms that repeat one with other seeds, by seed.
fn repeats(recording: &Recording, arm: usize) -> Vec<(String, usize)> {
    let Some(Arm { name, .. }) = recording.arms.get(arm) else {
        return Vec::new();
    };
    let measured = |n: usize| recording.blocks.iter().any(|b| b.arm as usize == n);
    let arms = recording.arms.iter().enumerate();
    let of = arms.filter(|(n, other)| other.repeats() == Some(name.as_str()) && measured(*n));
    of.filter_map(|(n, other)| Some((other.knobs.get("seed")?.clone(), n))).collect()
}

/// The pairs to compare. A pair that repeats another with other seeds is judged with that one.
pub(crate) fn once(sides: Sides<'_>, paired: &Pairs) -> Pairs {
    let repeats = |one: &ArmPair| {
        let arms = [&sides.before.arms[one.before], &sides.after.arms[one.after]];
        arms.iter().any(|arm| arm.repeats().is_some())
    };
    let is_seed_of = |one: &ArmPair| {
        let others = paired.pairs.iter().filter(|other| *other != one);
        others.into_iter().any(|other| {
            sides.before.arms[other.before].repeats().is_none()
                && pairs(sides, *other).contains(one)
        })
    };
    let left = |recording: &Recording, left: &[usize]| -> Vec<usize> {
        let named = |name: &str| recording.arms.iter().any(|arm| arm.name == name);
        let is_seed = |n: &usize| recording.arms[*n].repeats().is_some_and(named);
        left.iter().copied().filter(|n| !is_seed(n)).collect()
    };
    Pairs {
        pairs: paired.pairs.iter().copied().filter(|p| !repeats(p) || !is_seed_of(p)).collect(),
        left_before: left(sides.before, &paired.left_before),
        left_after: left(sides.after, &paired.left_after),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exact::PerPacket;
    use super::*;

    fn seeds(changes: &[(u64, u64)]) -> Seeds {
        let each = |sum| PerPacket { sum, packets: 1 };
        let change =
            |(before, after): &(u64, u64)| Change { before: each(*before), after: each(*after) };
        Seeds::from_changes(changes.iter().map(change).collect()).unwrap()
    }

    /// Check that a change under one seed only is not a difference, that a change under each seed is one, and how
    /// much of it is certain.
    #[test]
    fn what_a_seed_decides() {
        let luck = seeds(&[(5_704, 5_784), (5_771, 5_740), (5_720, 5_722)]);
        let judged = |of: &Seeds, same| of.judge(Verdict::Worse, same, None);
        assert_eq!(judged(&luck, false), (Verdict::Seeds, 0.0));
        assert_eq!(judged(&luck, true), (Verdict::Seeds, 0.0));
        assert_eq!(luck.seeds_text(), "median +2, -31 to +80 over 3 seeds");
        // More with each seed, but within one side's range over seeds.
        let small = seeds(&[(5_704, 5_710), (5_771, 5_774), (5_720, 5_725)]);
        assert_eq!(judged(&small, false), (Verdict::Seeds, 0.0));
        assert_eq!(judged(&small, true), (Verdict::Worse, 3.0));
        assert_eq!(small.judge(Verdict::Worse, false, Some(3.0)), (Verdict::Worse, 3.0));
        let large = seeds(&[(5_704, 5_800), (5_771, 5_900), (5_720, 5_810)]);
        assert_eq!(judged(&large, false), (Verdict::Worse, 90.0));
        let less = seeds(&[(10, 7), (11, 6)]);
        assert_eq!(less.judge(Verdict::Better, false, None), (Verdict::Better, 3.0));
        assert_eq!(seeds(&[(5, 8), (6, 9)]).seeds_text(), "+3 with each of 2 seeds");
    }
}
