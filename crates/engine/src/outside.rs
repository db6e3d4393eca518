//! Figures of a block that are measured independently of the instrument, with and without it.

use netplumb_instruments::calls;
use netplumb_instruments::rates::cpu::Stat;
use netplumb_lab::netns::names;
use netplumb_model::experiment::Load;
use netplumb_model::quantity::Figure;
use netplumb_model::recording::Arm;
use netplumb_model::timing::{BUSY, DELIVERED, LATENCY_P50, LATENCY_P99};
use netplumb_workload::timed::TimedBlock;

/// The knob of an arm without the instrument, and its level.
pub const PROBES_OFF: (&str, &str) = ("probes", "off");

/// How packets are sent.
pub(crate) fn load(stream: bool) -> Load {
    match stream {
        true => Load::Stream,
        false => Load::OneAtATime,
    }
}

/// Figures of a block that are measured with and without the instrument.
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

/// The same arms without the instrument. They come after the others, since they only have figures
/// of the workload.
pub(crate) fn without_probes(arms: &[Arm]) -> Vec<Arm> {
    let bare = |arm: &Arm| {
        let mut bare = arm.clone();
        bare.name = format!("{} {}={}", arm.name, PROBES_OFF.0, PROBES_OFF.1);
        bare.knobs.insert(PROBES_OFF.0.into(), PROBES_OFF.1.into());
        bare
    };
    arms.iter().map(bare).collect()
}

/// Delete the namespaces that killed runs left on this machine, and restore the settings that they changed.
pub fn clean_up(note: &mut dyn FnMut(String)) {
    match names::sweep() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => note(format!(
            "cleaned up after a killed run: {}",
            removed.join(", ")
        )),
        Err(error) => note(format!("can't clean up after a killed run: {error}")),
    }
    recover(note);
}

/// Restore settings that a killed run changed on this machine.
pub(crate) fn recover(note: &mut dyn FnMut(String)) {
    for what in calls::recover() {
        note(format!("restored settings left by a killed run: {what}"));
    }
    match netplumb_knobs::recover() {
        Ok(recovered) => {
            for what in recovered.put_back {
                note(format!("restored settings left by a killed run: {what}"));
            }
            for what in recovered.left {
                note(format!("not restored after a killed run: {what}"));
            }
        }
        Err(error) => note(format!(
            "can't restore settings left by a killed run: {error}"
        )),
    }
}

/// A reading of CPU use.
#[derive(Debug, Clone)]
pub(crate) struct Cpus(Stat);

impl Cpus {
    /// Read it; none without /proc/stat.
    pub(crate) fn read() -> Option<Cpus> {
        Stat::read().ok().map(Cpus)
    }

    /// Average number of busy CPUs since; none if CPUs came or went, or if the time was too short
    /// to measure idle time in ticks.
    pub(crate) fn busy_since(&self) -> Option<f64> {
        const LEAST_S: f64 = 0.1;
        let now = Stat::read().ok()?;
        let long_enough = self.0.seconds_to(&now) >= LEAST_S;
        (long_enough && self.0.has_cpus_of(&now))
            .then(|| self.0.busy_to(&now).iter().map(|cpu| cpu.busy).sum())
    }
}
