//! Counters that only grow while packets are followed, as differences.

use std::collections::BTreeMap;

use super::assemble;
use super::layout::Cpu;
use super::maps::Maps;

/// Counts since the maps were cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StageCounts {
    /// Packets by place.
    pub(super) ledger: BTreeMap<String, u64>,
    /// By `enum stages_loss`.
    pub(super) losses: Vec<u64>,
    /// By protocol and the number of their reason.
    pub(super) drops: BTreeMap<(u32, u32), u64>,
}

impl StageCounts {
    /// As it is now.
    pub(super) fn read(maps: &Maps) -> Result<StageCounts, libbpf_rs::Error> {
        let cpus: Vec<Cpu> = maps.cpus()?;
        Ok(StageCounts {
            ledger: assemble::ledger(&cpus),
            losses: assemble::losses(&cpus),
            drops: maps.drops()?,
        })
    }

    /// The difference to `before`.
    pub(super) fn since(&self, before: &StageCounts) -> StageCounts {
        let losses = self.losses.iter().enumerate();
        StageCounts {
            ledger: grown(&self.ledger, &before.ledger),
            losses: losses
                .map(|(i, n)| n.saturating_sub(before.losses.get(i).copied().unwrap_or(0)))
                .collect(),
            drops: grown(&self.drops, &before.drops),
        }
    }
}

fn grown<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let more = |(key, n): (&K, &u64)| {
        let more = n.saturating_sub(before.get(key).copied().unwrap_or(0));
        (more > 0).then(|| (key.clone(), more))
    };
    now.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only increases are returned.
    #[test]
    fn what_grew() {
        let of = |sent, full, torn| StageCounts {
            ledger: BTreeMap::from([("udp tx sent".to_string(), sent), ("x".into(), 1)]),
            losses: vec![0, torn],
            drops: BTreeMap::from([((1, 2), full)]),
        };
        let grown = of(7, 3, 2).since(&of(5, 3, 1));
        assert_eq!(grown.ledger, [("udp tx sent".to_string(), 2)].into());
        assert_eq!(grown.losses, [0, 1]);
        assert_eq!(grown.drops, [].into());
        assert_eq!(of(7, 3, 2).since(&StageCounts::default()), of(7, 3, 2));
    }
}
