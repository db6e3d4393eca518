//! What is measured of a block from outside of the instrument, with and without it.

use netplumb_instruments::rates::cpu::Stat;
use netplumb_model::experiment::Load;
use netplumb_model::quantity::Figure;
use netplumb_model::recording::Arm;
use netplumb_model::timing::{BUSY, DELIVERED, LATENCY_P50, LATENCY_P99};
use netplumb_workload::timed::TimedBlock;

/// The knob of an arm that is run without the instrument, and its value.
pub const PROBES_OFF: (&str, &str) = ("probes", "off");

/// How packets come.
pub(crate) fn load(stream: bool) -> Load {
    match stream {
        true => Load::Stream,
        false => Load::OneAtATime,
    }
}

/// What is measured of a block beside what the instrument saw, with and without it.
pub(crate) fn figures(sent: &TimedBlock, busy: Option<f64>) -> Vec<Figure> {
    let rate = sent.ledger.delivered as f64 * 1e9 / sent.duration_ns as f64;
    let latency = |share| sent.latency_ns(share).map(f64::from);
    let all = [
        (&DELIVERED, (sent.duration_ns > 0).then_some(rate)),
        (&BUSY, busy),
        (&LATENCY_P50, latency(0.5)),
        (&LATENCY_P99, latency(0.99)),
    ];
    all.into_iter()
        .filter_map(|(quantity, value)| Some(Figure::new(quantity, value?)))
        .collect()
}

/// The same arms without the instrument. They come after the others: they have no figures
/// but what the workload saw.
pub(crate) fn without_probes(arms: &[Arm]) -> Vec<Arm> {
    let bare = |arm: &Arm| {
        let mut bare = arm.clone();
        bare.name = format!("{} {}={}", arm.name, PROBES_OFF.0, PROBES_OFF.1);
        bare.knobs.insert(PROBES_OFF.0.into(), PROBES_OFF.1.into());
        bare
    };
    arms.iter().map(bare).collect()
}

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
