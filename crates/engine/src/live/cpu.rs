//! How busy the machine's CPUs are, all together.

use netplumb_instruments::rates::cpu::Stat;

/// A reading of how busy they have been.
#[derive(Debug, Clone)]
pub(crate) struct Cpus(Stat);

impl Cpus {
    /// Read it; none where there is no /proc/stat.
    pub(crate) fn read() -> Option<Cpus> {
        Stat::read().ok().map(Cpus)
    }

    /// How many CPUs were busy since, on the average; none if CPUs came or went, or the
    /// time was too short for idleness to be told in ticks.
    pub(crate) fn busy_since(&self) -> Option<f64> {
        const LEAST_S: f64 = 0.1;
        let now = Stat::read().ok()?;
        let long_enough = self.0.seconds_to(&now) >= LEAST_S;
        (long_enough && self.0.has_cpus_of(&now))
            .then(|| self.0.busy_to(&now).iter().map(|cpu| cpu.busy).sum())
    }
}
