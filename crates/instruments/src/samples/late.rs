//! Which samples came late.
//!
//! Perf's clock is a timer of each CPU that is due at a fixed period. A late sample was held up:
//! by code that had interrupts off, or by whoever runs this machine's CPUs, if it is a guest. The
//! time of such code is in the sample of what ran when interrupts were on again, so how many came
//! late is the share of time that the clock does not see as it was.

use std::collections::BTreeMap;

use super::layout::Time;

/// The handling of a timer's interrupt varies by less.
const LATE_NS: u64 = 10_000;
/// Fewer samples of a CPU don't show when they are due.
const FEWEST: usize = 20;

/// Samples, and how many of them came late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Late {
    /// Samples for which that is known.
    pub(super) timed: u64,
    /// How many came late.
    pub(super) late: u64,
}

/// How many came late of some samples that are due every `period_ns`.
pub(super) fn late(times: &[Time], period_ns: u64) -> Late {
    let mut by_cpu: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for time in times {
        let phase = time.time_ns % period_ns.max(1);
        by_cpu.entry(time.cpu).or_default().push(phase);
    }
    let mut all = Late::default();
    for phases in by_cpu.values_mut().filter(|phases| phases.len() >= FEWEST) {
        let due = due(phases, period_ns);
        let after = |phase: &u64| (phase + period_ns - due) % period_ns;
        all.timed += phases.len() as u64;
        // What is due just after has come a little early: the earliest few are not the rule.
        let is_late = |phase: &&u64| (LATE_NS..period_ns / 2).contains(&after(phase));
        let much = |phase: &&u64| (period_ns / 2..period_ns - LATE_NS).contains(&after(phase));
        all.late += phases.iter().filter(is_late).count() as u64;
        all.late += phases.iter().filter(much).count() as u64;
    }
    all
}

/// When samples are due: where most come within a short time.
fn due(phases: &mut [u64], period_ns: u64) -> u64 {
    phases.sort_unstable();
    let count = phases.len();
    let mut best = (0, 0);
    let mut end = 0;
    for begin in 0..count {
        end = end.max(begin);
        // Around the end of the period.
        let at = |n: usize| phases[n % count] + if n < count { 0 } else { period_ns };
        while end + 1 < begin + count && at(end + 1) - phases[begin] < LATE_NS {
            end += 1;
        }
        best = best.max((end - begin + 1, usize::MAX - begin));
    }
    phases[usize::MAX - best.1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(phases: impl IntoIterator<Item = u64>) -> Vec<Time> {
        let time = |(n, phase): (u64, u64)| Time {
            time_ns: (n + 5) * 1_000_000 + phase,
            cpu: 3,
            ..Time::default()
        };
        (0..).zip(phases).map(time).collect()
    }

    /// Check that samples around when they are due are not late, also where that is at the end of
    /// the period, and that those well after it are.
    #[test]
    fn around_the_clock() {
        for due in [500_000, 999_000, 2_000] {
            let phases = (0..100).map(|n| match n % 10 {
                9 => due + 40_000 + n * 1_000,
                _ => due + n * 31 % 4_000,
            });
            let found = late(&times(phases), 1_000_000);
            assert_eq!(found, Late { timed: 100, late: 10 }, "due at {due}");
        }
        assert_eq!(late(&times([1, 2, 3]), 1_000_000), Late::default());
    }
}
