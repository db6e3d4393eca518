//! A run in guests: its arms and instruments.

use std::collections::BTreeSet;
use std::time::Duration;

use netplumb_instruments::exact::Sampling;
use netplumb_model::experiment::Trace;
use netplumb_model::timing::{INSTRUCTIONS, SAMPLED, TimingSpec};

use crate::plan::{MAX_ARMS, Plan};

/// A run in guests.
#[derive(Debug, Clone)]
pub struct GuestRun {
    /// The arms and their blocks.
    pub plan: Plan,
    /// Whether all instructions are counted.
    pub exact: bool,
    /// Whether and how samples are drawn of them, from the same guests.
    pub sampling: Option<Sampling>,
    /// Which calls are traced, in the guests where instructions are counted.
    pub trace: Option<Trace>,
    /// Instruments that measure time, each in guests of its own.
    pub timed: Vec<TimingSpec>,
    /// Maximum number of packets per second; not with counted instructions.
    pub rate_pps: Option<u32>,
    /// Whether packets are sent without waiting for each other; not with counted instructions.
    pub stream: bool,
    /// Duration of a timed block; if absent, it ends after a number of packets.
    pub block_ns: Option<u64>,
    /// Whether to repeat every block of the first timed instrument without it.
    pub measure_cost: bool,
    /// Duration of a long run, in which each arm has a guest that repeats the plan's blocks, in
    /// rounds; only with instruments that count.
    pub long: Option<Duration>,
}

impl GuestRun {
    /// Default number of random seeds per arm: three where kernels are compared, as each has its data elsewhere. A
    /// single seed can't tell a change of layout from a change of the code.
    pub fn default_seeds(&self) -> u32 {
        const SEEDS: usize = 3;
        let arms = &self.plan.arms;
        let kernels: BTreeSet<Option<&str>> = arms.iter().map(|arm| arm.level("kernel")).collect();
        let counts_alone = self.exact
            && self.timed.is_empty()
            && self.sampling.is_none()
            && self.trace.is_none()
            && self.long.is_none()
            && self.plan.scan.is_none();
        let is_free = !arms.iter().any(|arm| arm.knobs.contains_key("seed"));
        let has_room = arms.len().saturating_mul(SEEDS) <= MAX_ARMS;
        match counts_alone && is_free && has_room && kernels.len() > 1 {
            true => SEEDS as u32,
            false => 1,
        }
    }

    /// A run that only counts instructions.
    pub fn exact(plan: Plan) -> GuestRun {
        GuestRun {
            plan,
            exact: true,
            sampling: None,
            trace: None,
            timed: Vec::new(),
            rate_pps: None,
            stream: false,
            block_ns: None,
            measure_cost: false,
            long: None,
        }
    }

    /// The run's instruments that the plugin's stream feeds.
    pub(super) fn counted(&self) -> Vec<&str> {
        let exact = self.exact.then_some(INSTRUCTIONS.instrument);
        let samples = self.sampling.as_ref().map(|_| SAMPLED.instrument);
        exact.into_iter().chain(samples).collect()
    }

    /// Names of instruments, by their numbers in turns; several that share a turn have the first
    /// one's.
    pub(super) fn names(&self) -> Vec<&str> {
        let timed = self.timed.iter().map(|spec| spec.instrument.as_str());
        self.counted().into_iter().take(1).chain(timed).collect()
    }

    /// Whether this instrument's blocks are paired with blocks without: one instrument's in each
    /// arm.
    pub(super) fn is_beside_bare(&self, by: usize) -> bool {
        let first = usize::from(!self.counted().is_empty());
        self.measure_cost && by == first && self.spec(by).is_some()
    }

    /// The settings of an instrument, by number; none if the plugin serves it.
    pub(super) fn spec(&self, by: usize) -> Option<&TimingSpec> {
        let at = by.checked_sub(usize::from(!self.counted().is_empty()))?;
        self.timed.get(at)
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::experiment::Experiment;

    use super::*;

    fn run(rest: &str) -> GuestRun {
        let text = format!("name = \"x\"\n{rest}");
        GuestRun::exact(Plan::from_experiment(&Experiment::parse(&text).unwrap()))
    }

    /// Check that arms have three random seeds where kernels are compared by their counts alone, and otherwise one.
    #[test]
    fn seeds_by_default() {
        const TWO: &str = "[vary]\nkernel = [\"debian:6.1.0-54\", \"debian:6.1.0-56\"]\n";
        assert_eq!(run(TWO).default_seeds(), 3);
        assert_eq!(run("[vary]\nproto = [\"udp\", \"tcp\"]\n").default_seeds(), 1);
        assert_eq!(run("[knobs]\nkernel = \"debian\"\n").default_seeds(), 1);
        assert_eq!(run(&format!("{TWO}seed = [1, 7]\n")).default_seeds(), 1);
        let mut timed = run(TWO);
        timed.exact = false;
        assert_eq!(timed.default_seeds(), 1);
        let mut long = run(TWO);
        long.long = Some(Duration::from_secs(1));
        assert_eq!(long.default_seeds(), 1);
        let mut many = run(TWO);
        let arms = many.plan.arms.clone();
        many.plan.arms = arms.into_iter().cycle().take(MAX_ARMS / 3 + 1).collect();
        assert_eq!(many.default_seeds(), 1);
        many.plan.arms.pop();
        assert_eq!(many.default_seeds(), 3);
    }
}
