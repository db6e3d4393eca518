//! Frames, sent along data paths: the runner of `[workload] kind = "frames"`.

use std::path::Path;
use std::process::ExitCode;

use netplumb_engine::Progress;
use netplumb_engine::bench::{
    self, BenchEvent, BenchOptions, BenchPlan, BesidePlan, ExplainPlan, GuestLab,
};
use netplumb_engine::live::random_seed;
use netplumb_model::class::Link;
use netplumb_model::experiment::Experiment;
use netplumb_report::rates;

use super::how::{How, PrintWhat};
use crate::args::run::RunOptions;
use crate::args::show::RatesFormat;
use crate::exit::CannotHere;
use crate::output::{claims, page, rates as rates_output};
use crate::recorder::{ExperimentText, Outcome, record_by};
use crate::rights;

/// The tasks of guests.
#[derive(Debug, Clone)]
pub(super) struct Guests {
    /// Rates, in one guest.
    pub(super) rates: bool,
    /// Instructions per packet.
    pub(super) count: bool,
    /// Whether CPU time is sampled, in additional blocks; not in a guest.
    pub(super) beside: bool,
    /// The link in the guest.
    pub(super) link: Link,
    /// The kernel they boot.
    pub(super) kernel: String,
    /// Modules that they load, by name.
    pub(super) load: Vec<String>,
}

/// Batches of frames in a block whose instructions are counted, and such blocks.
const EXPLAIN: ExplainPlan = ExplainPlan { batches: 16, blocks: 3 };

/// Measure frames, and print rates.
///
/// # Errors
/// The measurement failed.
pub(super) fn run(
    plan: &BenchPlan,
    guests: &Guests,
    experiment: &Experiment,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let PrintWhat::Rates(format) = how.shown else {
        return Err(anyhow::Error::msg("frames have only rates"));
    };
    let outcome = record(plan, (experiment, how.text), guests, &how.options, cache)?;
    finish(outcome, format, how)
}

fn record(
    plan: &BenchPlan,
    asked: ExperimentText<'_>,
    guests: &Guests,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    if !guests.rates {
        rights::check_of_bench()?;
    }
    record_by(
        |engine, recording, save, teller| {
            let lab = GuestLab {
                kernel: &guests.kernel,
                load: &guests.load,
                link: guests.link,
                options: engine,
                tell: &|event| teller.tell(event),
            };
            // Report missing programs before anything is measured.
            if guests.rates || guests.count {
                lab.check()?;
            }
            let options = BenchOptions {
                cancel: &engine.cancel,
                seed: random_seed(),
                guest: guests.rates.then_some(&lab),
                beside: guests
                    .beside
                    .then_some(BesidePlan { blocks: EXPLAIN.blocks, layers: &engine.layers }),
            };
            bench::run_bench(plan, &options, recording, &mut *save, &mut |event| {
                teller.tell(match event {
                    BenchEvent::Note(note) => Progress::Note(note),
                    BenchEvent::Step(step) => Progress::Step(step),
                    BenchEvent::Block(_, done, all) => Progress::Blocks(done, all),
                });
            })?;
            match guests.count {
                true => bench::explain(&plan.arms, EXPLAIN, &lab, recording, save),
                false => Ok(()),
            }
        },
        asked,
        options,
        cache,
    )
}

fn finish(outcome: Outcome, format: RatesFormat, how: &How<'_>) -> anyhow::Result<ExitCode> {
    let recording = &outcome.recording;
    let all = rates::arms(recording);
    if !recording.blocks.is_empty() || all.iter().any(|a| a.failed.is_some()) {
        rates_output::show(recording, format)?;
        page::write(how.page, recording, None, &[], &[])?;
    }
    if let Some(error) = outcome.error {
        return Err(error);
    }
    if recording.blocks.is_empty() {
        return Err(CannotHere("none of the paths is supported on this machine".into()).into());
    }
    let bad = all.iter().filter(|a| a.failed.is_none() && a.valid.is_empty());
    Ok(match bad.count() {
        0 if how.fail_if_claim_fails => claims::check(recording)?,
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
