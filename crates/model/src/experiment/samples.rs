//! How samples are drawn in guests, and taken of this machine's work.

use serde::{Deserialize, Serialize};

use crate::timing::{SampleEvent, UserStacks};

/// The mistake in a key.
type Wrong = (&'static str, String);

/// Instructions between samples, by default: some 8,000 samples in the blocks of `plumb path`.
const PERIOD: u64 = 1_000;
/// With a longer period, a block has no samples.
const MAX_PERIOD: u64 = 1_000_000_000_000;
/// Every seed costs a little time and memory.
const MAX_SEEDS: usize = 1_000;
/// The default samples of a CPU in a second: not a divisor of other periodic work.
const FREQUENCY: u32 = 997;
/// At a higher one, samples take more time than they stand for.
const MAX_FREQUENCY: u32 = 20_000;
/// A recording has seeds as floating-point numbers, which are exact up to here.
const MAX_SEED: u64 = (1 << 53) - 1;

/// How samples are drawn in guests, and taken of this machine's work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Samples {
    /// Average number of instructions from one sample to the next.
    pub period: Option<u64>,
    /// Random seeds; the same run is sampled with each. Its costs are the mean over all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// Of work: samples of a CPU in a second.
    pub frequency: Option<u32>,
    /// Of work: whether to measure time off the CPU, too.
    #[serde(skip_serializing_if = "is_false")]
    pub off_cpu: bool,
    /// Of work: how the stacks of user code are found.
    pub user_stacks: Option<UserStacks>,
    /// Of work: what makes samples.
    pub event: Option<SampleEvent>,
}

fn is_false(on: &bool) -> bool {
    !on
}

impl Samples {
    /// Whether it is empty.
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

    /// Samples of a CPU in a second.
    pub fn frequency(&self) -> u32 {
        self.frequency.unwrap_or(FREQUENCY)
    }

    /// A key that is set and only for work.
    pub(super) fn of_work(&self) -> Option<&'static str> {
        let keys = [
            ("frequency", self.frequency.is_some()),
            ("off_cpu", self.off_cpu),
            ("user_stacks", self.user_stacks.is_some()),
            ("event", self.event.is_some()),
        ];
        keys.iter().find(|(_, set)| *set).map(|(key, _)| *key)
    }

    /// A key that is set and only for guests.
    pub(super) fn of_guests(&self) -> Option<&'static str> {
        let keys = [("period", self.period.is_some()), ("seeds", !self.seeds.is_empty())];
        keys.iter().find(|(_, set)| *set).map(|(key, _)| *key)
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let frequency = self.frequency.unwrap_or(FREQUENCY);
        if !(1..=MAX_FREQUENCY).contains(&frequency) {
            return Err((
                "frequency",
                format!(
                    "invalid frequency `{frequency}`; expected 1 to {MAX_FREQUENCY} samples a \
                     second"
                ),
            ));
        }
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
                format!("too many seeds ({}); expected at most {MAX_SEEDS}", seeds.len()),
            ));
        }
        if let Some(seed) = seeds.iter().find(|seed| **seed > MAX_SEED) {
            return Err(("seeds", format!("invalid seed `{seed}`; expected 0 to {MAX_SEED}")));
        }
        // Of each instruction, every seed draws as many samples as fit into it.
        if seeds.len() as u64 > self.period() {
            return Err((
                "seeds",
                format!(
                    "{} seeds with a period of {} are more than a sample of each instruction, which \
                     would need memory without bound; use fewer seeds, or a period of {} or more",
                    seeds.len(),
                    self.period(),
                    seeds.len()
                ),
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
            ..Samples::default()
        };
        assert_eq!(of(None, &[]).seeds(), [1]);
        assert_eq!(of(Some(77), &[]).period(), 77);
        assert!(of(Some(1), &[3]).check().is_ok());
        assert!(of(Some(3), &[3, 2, 1]).check().is_ok());
        let wrong = of(Some(2), &[3, 2, 1]).check().unwrap_err();
        assert!(wrong.1.contains("a period of 3 or more"), "{}", wrong.1);
        for wrong in [Some(0), Some(MAX_PERIOD + 1)] {
            assert_eq!(of(wrong, &[]).check().unwrap_err().0, "period");
        }
        assert!(of(None, &[1, 2, 1]).check().unwrap_err().1.contains("twice"));
        assert!(of(None, &[MAX_SEED]).check().is_ok());
        let wrong = of(None, &[1, MAX_SEED + 1]).check().unwrap_err();
        assert!(wrong.1.contains("invalid seed `9007199254740992`"));
        let many: Vec<u64> = (0..2_000).collect();
        assert!(of(None, &many).check().unwrap_err().1.contains("too many"));
    }
}
