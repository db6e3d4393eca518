//! Exact arithmetic on costs per packet, and when a difference between two sides
//! counts as one.

use std::cmp::Ordering;

/// A sum over packets: instructions, or calls, and how many packets share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerPacket {
    /// Over all packets: instructions, or calls.
    pub sum: u64,
    /// Packets; not 0.
    pub packets: u64,
}

impl PerPacket {
    /// To compare without dividing.
    pub fn order(&self, other: &PerPacket) -> Ordering {
        let own = u128::from(self.sum) * u128::from(other.packets);
        own.cmp(&(u128::from(other.sum) * u128::from(self.packets)))
    }

    /// As a number, for showing.
    pub fn value(&self) -> f64 {
        self.sum as f64 / self.packets.max(1) as f64
    }
}

/// A change per packet, as an exact fraction: `after / packets_after - before /
/// packets_before`. Changes of one class share their denominator, so they can be
/// added up without rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    /// Over [`Delta::denominator`].
    pub numerator: i128,
    /// Packets before times packets after.
    pub denominator: u128,
}

impl Delta {
    /// From a sum before and one after.
    pub fn between(before: PerPacket, after: PerPacket) -> Delta {
        let product =
            |a: u64, b: u64| i128::try_from(u128::from(a) * u128::from(b)).unwrap_or(i128::MAX);
        Delta {
            numerator: product(after.sum, before.packets)
                .saturating_sub(product(before.sum, after.packets)),
            denominator: u128::from(before.packets) * u128::from(after.packets),
        }
    }

    /// As a number, for showing.
    pub fn value(&self) -> f64 {
        self.numerator as f64 / self.denominator.max(1) as f64
    }

    /// Without its sign.
    pub fn size(&self) -> u128 {
        self.numerator.unsigned_abs()
    }

    /// Whether it is smaller than one in `parts`.
    pub fn below(&self, parts: u128) -> bool {
        self.size().saturating_mul(parts) < self.denominator
    }

    /// With another of the same class.
    pub fn plus(&self, other: &Delta) -> Delta {
        debug_assert_eq!(self.denominator, other.denominator);
        Delta {
            numerator: self.numerator.saturating_add(other.numerator),
            denominator: self.denominator,
        }
    }

    /// Without another of the same class.
    pub fn minus(&self, other: &Delta) -> Delta {
        self.plus(&Delta { numerator: other.numerator.saturating_neg(), ..*other })
    }

    /// No change, in a class with these packets.
    pub fn none(&self) -> Delta {
        Delta { numerator: 0, denominator: self.denominator }
    }
}

/// One quantity over the blocks of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// The least of the blocks that count.
    pub low: PerPacket,
    /// The most of them.
    pub high: PerPacket,
    /// Outlier blocks: at most one in four, where all others agree to the instruction.
    /// Whatever happened in them happened once.
    pub odd: Vec<usize>,
    /// Every block's.
    pub blocks: Vec<PerPacket>,
}

impl Spread {
    /// From some blocks; none without any.
    pub fn from_blocks(blocks: Vec<PerPacket>) -> Option<Spread> {
        let equal = |a: &PerPacket, b: &PerPacket| a.order(b) == Ordering::Equal;
        let allowed = blocks.len() / 4;
        for usual in &blocks {
            let odd: Vec<usize> =
                (0..blocks.len()).filter(|n| !equal(&blocks[*n], usual)).collect();
            if odd.len() <= allowed {
                return Some(Spread { low: *usual, high: *usual, odd, blocks });
            }
        }
        let low = *blocks.iter().min_by(|a, b| a.order(b))?;
        let high = *blocks.iter().max_by(|a, b| a.order(b))?;
        Some(Spread { low, high, odd: Vec::new(), blocks })
    }

    /// The blocks that count, added up.
    pub fn sum(&self) -> PerPacket {
        let blocks = self.blocks.iter().enumerate();
        let counting = blocks.filter(|(n, _)| !self.odd.contains(n));
        let none = PerPacket { sum: 0, packets: 0 };
        counting.fold(none, |all, (_, block)| PerPacket {
            sum: all.sum.saturating_add(block.sum),
            packets: all.packets.saturating_add(block.packets),
        })
    }

    /// Whether the blocks that count agree to the instruction.
    pub fn exact(&self) -> bool {
        self.low.order(&self.high) == Ordering::Equal
    }

    /// Whether another side's blocks are apart from these: their ranges do not overlap,
    /// and no odd block of one has a count of the other.
    pub fn apart(&self, other: &Spread) -> bool {
        let disjoint = self.high.order(&other.low) == Ordering::Less
            || other.high.order(&self.low) == Ordering::Less;
        let seen = |side: &Spread, exact: &Spread| {
            exact.exact()
                && side.odd.iter().any(|n| side.blocks[*n].order(&exact.low) == Ordering::Equal)
        };
        disjoint && !seen(self, other) && !seen(other, self)
    }

    /// The smallest change that these two would have shown for certain: with less,
    /// their ranges would still overlap.
    pub fn blind(&self, other: &Spread) -> f64 {
        let up = self.high.value() - other.low.value();
        let down = other.high.value() - self.low.value();
        up.max(down).max(0.0)
    }
}
