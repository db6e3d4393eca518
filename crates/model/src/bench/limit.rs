//! The rate of the generator alone, which limits the rate of every path.

use serde::{Deserialize, Serialize};

/// Share of the generator's own rate from which on a path counts as generator-bound.
pub const GENERATOR_BOUND: f64 = 0.95;
/// A rate that exceeds the limit by more than this factor shows that the limit is wrong: the
/// generator was slowed down while it was measured.
const BEYOND: f64 = 1.1;

/// Maximum rate of the generator alone, in packets per second, with the cheapest path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// Not measured: a rate was given, or the kernel can't generate frames.
    #[default]
    NotAsked,
    /// Measured without a plausible result.
    Unknown,
    /// In packets per second.
    Pps(f64),
}

impl Limit {
    /// A limit from a measurement; a rate of 0 is not plausible.
    pub fn at_pps(pps: f64) -> Limit {
        match pps.is_finite() && pps > 0.0 {
            true => Limit::Pps(pps),
            false => Limit::Unknown,
        }
    }

    /// The rate, if it is known.
    pub fn pps(self) -> Option<f64> {
        match self {
            Limit::Pps(pps) => Some(pps),
            Limit::NotAsked | Limit::Unknown => None,
        }
    }

    /// The limit, in view of a rate that was reached: unknown if the rate is far above it.
    #[must_use]
    pub fn beside(self, reached_pps: f64) -> Limit {
        match self {
            Limit::Pps(pps) if reached_pps > BEYOND * pps => Limit::Unknown,
            limit => limit,
        }
    }

    /// Whether a rate is limited by the generator; none if the limit is unknown.
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

    /// Check that a limit of 0, and one that a rate far exceeds, bound nothing.
    #[test]
    fn what_bounds() {
        assert_eq!(Limit::Pps(100.0).bounds(96.0), Some(true));
        assert_eq!(Limit::Pps(100.0).bounds(94.0), Some(false));
        assert_eq!(Limit::Pps(100.0).bounds(105.0), Some(true));
        assert_eq!(Limit::Pps(100.0).bounds(120.0), None);
        assert_eq!(Limit::NotAsked.bounds(1.0), Some(false));
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Limit::at_pps(nothing), Limit::Unknown);
        }
        assert_eq!(Limit::at_pps(0.0).bounds(5.0), None);
        assert_eq!(Limit::at_pps(7.0).pps(), Some(7.0));
    }
}
