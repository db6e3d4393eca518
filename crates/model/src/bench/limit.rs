//! What the generator makes by itself, which no rate of a path can exceed.

use serde::{Deserialize, Serialize};

/// A rate so near to the generator's own is the generator's.
pub const GENERATOR_BOUND: f64 = 0.95;
/// A rate above the limit by more than this shows that the limit is wrong: the generator
/// was held back when it was measured.
const BEYOND: f64 = 1.1;

/// Packets a second that the generator makes by itself, for a path that costs as little
/// as one can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// It was not asked for: a rate was offered, or the kernel makes no frames by itself.
    #[default]
    NotAsked,
    /// It was asked for, and the measurement gave no plausible figure.
    Unknown,
    /// So many.
    Pps(f64),
}

impl Limit {
    /// A figure, if it can be one: a limit of 0 packets a second is no limit.
    pub fn of(pps: f64) -> Limit {
        match pps.is_finite() && pps > 0.0 {
            true => Limit::Pps(pps),
            false => Limit::Unknown,
        }
    }

    /// The figure, if there is one.
    pub fn pps(self) -> Option<f64> {
        match self {
            Limit::Pps(pps) => Some(pps),
            Limit::NotAsked | Limit::Unknown => None,
        }
    }

    /// What is left of it beside a rate that was reached: nothing where the rate is far
    /// above it.
    #[must_use]
    pub fn beside(self, reached_pps: f64) -> Limit {
        match self {
            Limit::Pps(pps) if reached_pps > BEYOND * pps => Limit::Unknown,
            limit => limit,
        }
    }

    /// Whether a rate may be the generator's own; none where that is not known.
    pub fn bounds(self, pps: f64) -> Option<bool> {
        match self.beside(pps) {
            Limit::NotAsked => Some(false),
            Limit::Unknown => None,
            Limit::Pps(limit) => Some(pps >= GENERATOR_BOUND * limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a limit of nothing, and one that a rate is far above, bound nothing.
    #[test]
    fn what_bounds() {
        assert_eq!(Limit::Pps(100.0).bounds(96.0), Some(true));
        assert_eq!(Limit::Pps(100.0).bounds(94.0), Some(false));
        assert_eq!(Limit::Pps(100.0).bounds(105.0), Some(true));
        assert_eq!(Limit::Pps(100.0).bounds(120.0), None);
        assert_eq!(Limit::NotAsked.bounds(1.0), Some(false));
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Limit::of(nothing), Limit::Unknown);
        }
        assert_eq!(Limit::of(0.0).bounds(5.0), None);
        assert_eq!(Limit::of(7.0).pps(), Some(7.0));
    }
}
