//! Arms of benches: the wall time of a packet (1 / rate) in each block, so that less is faster.

use netplumb_model::bench::BlockRates;
use netplumb_model::class::{Class, Direction};
use netplumb_stats::judge::{Pair, judge};

use super::arms::{ArmPair, Pairs};
use super::row::{DiffRow, Judged};
use super::{ClassDiff, Sides};
use crate::rates::{self, ArmRates};

/// Pairs of arms that both have rates.
pub(super) fn classes(sides: Sides<'_>, paired: &Pairs) -> Vec<ClassDiff> {
    // Arms of one run took turns.
    let apart = !std::ptr::eq(sides.before, sides.after);
    let (before, after) = (rates::arms(sides.before), rates::arms(sides.after));
    let found: Vec<(ArmPair, &ArmRates<'_>, &ArmRates<'_>)> = (paired.pairs.iter())
        // Arms with counted instructions have no rates.
        .filter_map(|p| Some((*p, before.get(p.before)?, after.get(p.after)?)))
        .collect();
    let ns = |arm: &ArmRates<'_>| -> Vec<f64> {
        let blocks = arm.valid.iter().map(BlockRates::handled_pps);
        blocks.map(|pps| 1e9 / pps.max(1e-9)).collect()
    };
    let pairs: Vec<Pair> = (found.iter())
        .map(|(_, was, is)| Pair {
            before: ns(was),
            after: ns(is),
            shared: [0.0; 2],
            apart,
            counting: None,
        })
        .collect();
    let class = |((arms, was, is), judged): (&(ArmPair, &ArmRates<'_>, &ArmRates<'_>), _)| {
        let name = match [&was.arm.name, &is.arm.name] {
            [a, b] if a == b => a.clone(),
            [a, b] => format!("{a} to {b}"),
        };
        let pps = |arm: &ArmRates<'_>| arm.handled_pps().map_or(0.0, |m| m.value);
        let of = |arm: &ArmRates<'_>| Class { proto: arm.arm.proto, direction: Direction::Forward };
        ClassDiff {
            way: Some(DiffRow::new(&name, "", Judged::Statistically(judged))),
            apart,
            rates: Some([pps(was), pps(is)]),
            ..ClassDiff::empty(sides, *arms, [of(was), of(is)], name, ("packet", "ns".into()))
        }
    };
    found.iter().zip(judge(&pairs)).map(class).collect()
}
