//! How samples are drawn in guests.

use serde::{Deserialize, Serialize};

/// What is wrong with a key.
type Wrong = (&'static str, String);

/// Instructions between samples, by default: some 8,000 samples in the blocks of `plumb path`.
const PERIOD: u64 = 1_000;
/// Longer, and a block has none.
const MAX_PERIOD: u64 = 1_000_000_000_000;
/// Every seed costs a little time and memory.
const MAX_SEEDS: usize = 1_000;
/// A recording has seeds as floating-point numbers, which are exact up to here.
const MAX_SEED: u64 = (1 << 53) - 1;

/// How samples are drawn in guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Samples {
    /// Average number of instructions from one sample to the next.
    pub period: Option<u64>,
    /// Random seeds; the same run is sampled with each. Its costs are the mean over all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
}

impl Samples {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Samples::default()
    }

    /// Average number of instructions from one sample to the next.
    pub fn period(&self) -> u64 {
        self.period.unwrap_or(PERIOD)
    }

    /// Random seeds.
    pub fn seeds(&self) -> Vec<u64> {
        match self.seeds[..] {
            [] => vec![1],
            _ => self.seeds.clone(),
        }
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        if let Some(period) = self.period.filter(|n| !(1..=MAX_PERIOD).contains(n)) {
            return Err((
                "period",
                format!("invalid period `{period}`; expected 1 to {MAX_PERIOD} instructions"),
            ));
        }
        let seeds = &self.seeds;
        if seeds.len() > MAX_SEEDS {
            return Err((
                "seeds",
                format!(
                    "too many seeds ({}); expected at most {MAX_SEEDS}",
                    seeds.len()
                ),
            ));
        }
        if let Some(seed) = seeds.iter().find(|seed| **seed > MAX_SEED) {
            return Err((
                "seeds",
                format!("invalid seed `{seed}`; expected 0 to {MAX_SEED}"),
            ));
        }
        match (1..seeds.len()).find(|n| seeds[..*n].contains(&seeds[*n])) {
            Some(n) => Err(("seeds", format!("seed {} is given twice", seeds[n]))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that there are defaults, and that periods and seeds that make no sense are refused.
    #[test]
    fn periods_and_seeds() {
        let of = |period: Option<u64>, seeds: &[u64]| Samples {
            period,
            seeds: seeds.to_vec(),
        };
        assert_eq!(of(None, &[]).seeds(), [1]);
        assert_eq!(of(Some(77), &[]).period(), 77);
        assert!(of(Some(1), &[3, 2, 1]).check().is_ok());
        for wrong in [Some(0), Some(MAX_PERIOD + 1)] {
            assert_eq!(of(wrong, &[]).check().unwrap_err().0, "period");
        }
        assert!(
            of(None, &[1, 2, 1])
                .check()
                .unwrap_err()
                .1
                .contains("twice")
        );
        assert!(of(None, &[MAX_SEED]).check().is_ok());
        let wrong = of(None, &[1, MAX_SEED + 1]).check().unwrap_err();
        assert!(wrong.1.contains("invalid seed `9007199254740992`"));
        let many: Vec<u64> = (0..2_000).collect();
        assert!(of(None, &many).check().unwrap_err().1.contains("too many"));
    }
}
