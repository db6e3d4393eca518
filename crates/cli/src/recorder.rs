//! Runs a plan, and writes its recording.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use netplumb_engine::run::Save;
use netplumb_engine::{EngineError, GuestRun, Options};
use netplumb_kernel::layers::LayerRules;
use netplumb_model::events;
use netplumb_model::experiment::{Difference, Experiment, Kind};
use netplumb_model::recording::{Recording, env};
use netplumb_report::printable;
use netplumb_store::{Output, Writer};

use crate::args::run::RunOptions;
use crate::exit::Usage;
use crate::files;
use crate::progress::Teller;
use crate::signals;

/// Layer rules are some hundred lines.
const MAX_LAYERS_BYTES: u64 = 1 << 20;

/// The result of a run: the recording, and the error that ended it early, if one did.
pub(crate) struct Outcome {
    pub(crate) recording: Recording,
    pub(crate) error: Option<anyhow::Error>,
}

impl Outcome {
    /// Print how to continue, if it was ended early.
    pub(crate) fn print_how_to_resume(&self, name: &str, options: &RunOptions) {
        if self.error.is_some() && !self.recording.blocks.is_empty() && !options.quiet {
            eprintln!(
                "what was measured is in {}: repeat the command with --resume to continue",
                path_of(name, options).display()
            );
        }
    }
}

/// An experiment, and the text of its file, empty for a command line.
pub(crate) type ExperimentText<'a> = (&'a Experiment, &'a str);

/// One guest, or two hosts, for each CPU, as far as memory goes: a guest takes up to 300 MB.
fn default_jobs(experiment: &Experiment) -> usize {
    const MOST_GUESTS: usize = 8;
    let most = match experiment.has_hosts() {
        true => MOST_GUESTS / 2,
        false => MOST_GUESTS,
    };
    std::thread::available_parallelism().map_or(1, |n| n.get().min(most))
}

/// The recording to resume, if it exists.
fn taken_up(
    path: &Path,
    (experiment, text): ExperimentText<'_>,
    options: &RunOptions,
) -> anyhow::Result<Option<Recording>> {
    if !path.exists() {
        return Ok(None);
    }
    let mut recording = netplumb_store::read(path)?;
    let was = Experiment::asked_for(&recording).map_err(|_| {
        Usage(format!(
            "{}: recorded by another version of plumb: run it without --resume",
            path.display()
        ))
    })?;
    let difference = was.and_then(|was| was.first_difference(experiment));
    if let Some(Difference { key, was, is }) = difference {
        let value = |value: Option<String>| value.map_or("not set".into(), |v| printable(&v, 80));
        return Err(Usage(format!(
            "{}: {key} was {} when it was recorded, and is {} now: resume it with the same \
             settings, or run it without --resume",
            path.display(),
            value(was),
            value(is)
        ))
        .into());
    }
    // Its claims may be others now.
    recording.experiment_toml = text.to_string();
    let clock = if options.quick { "yes" } else { "no" };
    if recording.environment.get(env::QUICK).is_some_and(|q| q != clock) {
        return Err(Usage(format!(
            "{}: recorded {} --quick: resume it in the same way",
            path.display(),
            if options.quick { "without" } else { "with" }
        ))
        .into());
    }
    Ok(Some(recording))
}

/// Run in guests.
///
/// # Errors
/// Only those before the start: later ones are in the outcome, with the results.
pub(crate) fn record(
    run: &GuestRun,
    asked: ExperimentText<'_>,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    let plan = run.plan.clone();
    let seeds = options.seeds.unwrap_or_else(|| run.default_seeds());
    let options = &RunOptions { seeds: Some(seeds), ..options.clone() };
    let plan = plan.with_seeds(seeds);
    let run = &GuestRun { plan: plan.map_err(crate::exit::Usage)?, ..run.clone() };
    let plan = &run.plan;
    let measure = |engine: &Options, recording: &mut Recording, save: Save<'_>, teller: &Teller| {
        netplumb_engine::run_in_guests(run, engine, recording, save, &|event| teller.tell(event))
    };
    let outcome = record_by(measure, asked, options, cache)?;
    if plan.arms.len() > 1 || run.long.is_some() {
        outcome.print_how_to_resume(&asked.0.name, options);
    }
    Ok(outcome)
}

/// The file of a recording.
fn path_of(name: &str, options: &RunOptions) -> PathBuf {
    options.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.plumb")))
}

/// Whether windows of work have any figure.
fn has_measured(recording: &Recording) -> bool {
    let counted = [&events::COUNT, &events::TIME];
    !recording.costs.is_empty()
        || !recording.spans.is_empty()
        || (counted.into_iter()).any(|of| recording.scalars_of(of).next().is_some())
}

/// Run `measure`, and write its recording.
///
/// # Errors
/// As [`record`].
pub(crate) fn record_by(
    measure: impl FnOnce(&Options, &mut Recording, Save<'_>, &Teller) -> Result<(), EngineError>,
    asked: ExperimentText<'_>,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    let (experiment, text) = asked;
    let name = experiment.name.as_str();
    let mut layers = LayerRules::built_in();
    if let Some(path) = &options.layers {
        let text = files::read_text(path, MAX_LAYERS_BYTES, "a file of layer rules")?;
        let rules = LayerRules::parse(&text).map_err(|error| match files::is_private(path) {
            true => Usage(format!("{}: {}", path.display(), files::PRIVATE)).into(),
            false => anyhow::Error::from(error).context(path.display().to_string()),
        })?;
        layers.override_with(rules);
    }
    let path = path_of(name, options);
    let mut output = Some(match options.resume {
        true => Output::claim(&path)?.continued(),
        false => Output::claim(&path)?,
    });
    let cancel = signals::watch().context("can't watch for signals")?;
    if options.resume && !options.quiet && !path.exists() {
        eprintln!("plumb: no recording {} to resume: starting a new one", path.display());
    }
    let mut recording = match options.resume {
        true => taken_up(&path, asked, options)?,
        false => None,
    }
    .unwrap_or_else(|| Recording { experiment_toml: text.to_string(), ..Recording::default() });
    let measured = experiment.measured().to_toml();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for (key, value) in [
        (env::PLUMB, env!("CARGO_PKG_VERSION").to_string()),
        (env::ARGV, std::env::args().collect::<Vec<_>>().join(" ")),
        (env::STARTED, started.as_secs().to_string()),
        (env::NAME, name.to_string()),
        (env::ASKED, measured.context("can't write the experiment")?),
    ] {
        recording.environment.insert(key.into(), value);
    }
    if let Some(seeds) = options.seeds.filter(|n| *n > 1) {
        let seeds = seeds.to_string();
        recording.environment.insert(env::SEEDS.into(), seeds);
    }
    let mut writer: Option<Writer> = None;
    let engine_options = Options {
        cache: cache.to_path_buf(),
        cache_bytes: options.cache_size,
        agent: None,
        quick: options.quick,
        cold: options.cold,
        jobs: options.jobs.map_or_else(|| default_jobs(experiment), usize::from),
        timeout: Duration::from_secs(options.timeout),
        layers,
        cancel,
    };
    let teller = Teller::new(options.quiet);
    // A full disk must not lose later results: saving is tried again with every block.
    let mut unsaved = None;
    let quiet = options.quiet;
    let result = measure(
        &engine_options,
        &mut recording,
        &mut |recording| {
            // Created with the first block: a guest that does not boot leaves no file, and does
            // not replace an earlier recording.
            if recording.blocks.is_empty() || (writer.is_none() && output.is_none()) {
                return Ok(());
            }
            // Nor do windows in which there was nothing yet: all of them may be.
            let is_work = experiment.workload.kind == Kind::Work;
            if is_work && writer.is_none() && !has_measured(recording) {
                return Ok(());
            }
            let saved = match (&mut writer, output.take()) {
                (Some(writer), _) => writer.save(recording),
                (none, Some(claimed)) => match Writer::begin(claimed, recording) {
                    Ok(new) => {
                        *none = Some(new);
                        Ok(())
                    }
                    Err((error, claimed)) => {
                        output = Some(*claimed);
                        Err(error)
                    }
                },
                (None, None) => Ok(()),
            };
            if let (Err(error), None, false) = (&saved, &unsaved, quiet) {
                eprintln!("plumb: {error}; measuring goes on, and saving is tried again");
            }
            unsaved = saved.err();
            Ok(())
        },
        &teller,
    );
    teller.done();
    if let Err(error @ EngineError::OtherPlan(_)) = result {
        return Err(error.into());
    }
    let error = match (result, unsaved) {
        (Err(error), _) => Some(error.into()),
        (Ok(()), Some(error)) => Some(error.into()),
        (Ok(()), None) => None,
    };
    if !options.quiet {
        if error.is_none() && writer.is_some() {
            eprintln!("recorded in {}", path.display());
        }
        if let Some(kept) = writer.as_ref().and_then(Writer::kept) {
            eprintln!("renamed the existing recording to {}", kept.display());
        }
    }
    Ok(Outcome { recording, error })
}
