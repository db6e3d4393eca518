//! A block's figures that are measured independently of the instrument, with and without it.

use netplumb_instruments::rates::cpu::Stat;
use netplumb_model::quantity::Figure;
use netplumb_model::timing::{BUSY, DELIVERED, LATENCY_P50, LATENCY_P99};
use netplumb_workload::timed::TimedBlock;

/// Figures of a block that are measured with and without the instrument.
pub fn figures(sent: &TimedBlock, busy: Option<f64>) -> Vec<Figure> {
    let rate = sent.ledger.delivered as f64 * 1e9 / sent.duration_ns as f64;
    let latency = |share| sent.latency_ns(share).map(f64::from);
    let all = [
        (&DELIVERED, (sent.duration_ns > 0).then_some(rate)),
        (&BUSY, busy),
        (&LATENCY_P50, latency(0.5)),
        (&LATENCY_P99, latency(0.99)),
    ];
    all.into_iter().filter_map(|(quantity, value)| Some(Figure::new(quantity, value?))).collect()
}

/// A reading of CPU use.
#[derive(Debug, Clone)]
pub struct Cpus(Stat);

impl Cpus {
    /// Read it; none without /proc/stat.
    pub fn read() -> Option<Cpus> {
        Stat::read().ok().map(Cpus)
    }

    /// Average number of busy CPUs since; none if CPUs came or went, or if the time was too short
    /// to measure idle time in ticks.
    pub fn busy_since(&self) -> Option<f64> {
        const LEAST_S: f64 = 0.1;
        let now = Stat::read().ok()?;
        let long_enough = self.0.seconds_to(&now) >= LEAST_S;
        (long_enough && self.0.has_cpus_of(&now))
            .then(|| self.0.busy_to(&now).iter().map(|cpu| cpu.busy).sum())
    }
}
