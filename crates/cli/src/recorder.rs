//! Running a plan into a recording, for `path` and `run` alike.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use netplumb_engine::run::Save;
use netplumb_engine::{EngineError, GuestRun, Options};
use netplumb_kernel::layers::LayerRules;
use netplumb_model::recording::{Recording, env};
use netplumb_store::{Output, Writer};

use crate::exit::Usage;
use crate::files;
use crate::progress::Teller;
use crate::signals;

/// Layer rules are some hundred lines.
const MAX_LAYERS_BYTES: u64 = 1 << 20;

/// How to run, whatever is run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Without an instruction clock: a quicker boot, and counts within some tenths of a percent
    #[arg(long)]
    pub(crate) quick: bool,
    /// The recording [default: NAME.plumb; one that is there is kept as NAME.plumb.old]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Seconds that a boot or an arm may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Guests at once; counts are the same [default: as many as there are CPUs, up to 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Go on with a recording that was cut short: what it has is not measured again
    #[arg(long)]
    pub(crate) resume: bool,
    /// Boot for every arm, from no saved state: slow, to check what saved states count
    #[arg(long)]
    pub(crate) cold: bool,
    /// Every arm under so many random seeds: seed-dependent results are shown as a range
    /// [default: the experiment's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) seeds: Option<u32>,
    /// A file of layer rules, asked before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) layers: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl RunOptions {
    /// What is asked for that a bench can't do, since it boots no guest and its blocks are
    /// of one run.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_bench(&self) -> anyhow::Result<()> {
        let flags = [
            ("--quick", self.quick),
            ("--jobs", self.jobs.is_some()),
            ("--resume", self.resume),
            ("--cold", self.cold),
            ("--seeds", self.seeds.is_some()),
            ("--layers", self.layers.is_some()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Usage(format!(
                "{flag} is for experiments that count instructions; this one is a bench"
            ))
            .into()),
        }
    }

    /// As where nothing is said.
    pub(crate) fn plain() -> RunOptions {
        RunOptions {
            quick: false,
            output: None,
            timeout: 120,
            jobs: None,
            resume: false,
            cold: false,
            seeds: None,
            layers: None,
            quiet: false,
        }
    }
}

/// What came of a run: the recording as far as it got, and the error that ended
/// it early, if one did.
pub(crate) struct Outcome {
    pub(crate) recording: Recording,
    pub(crate) error: Option<anyhow::Error>,
}

/// One guest for each CPU; each takes up to 300 MB.
fn default_jobs() -> usize {
    const MOST: usize = 8;
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST))
}

/// The recording to go on with, if there is one.
fn taken_up(
    path: &Path,
    experiment_toml: &str,
    options: &RunOptions,
) -> anyhow::Result<Option<Recording>> {
    if !path.exists() {
        return Ok(None);
    }
    let recording = netplumb_store::read(path)?;
    if recording.experiment_toml != experiment_toml {
        return Err(Usage(format!(
            "{}: it is of another experiment, or the experiment's file has changed since: \
             run it without --resume",
            path.display()
        ))
        .into());
    }
    let clock = if options.quick { "yes" } else { "no" };
    if recording
        .environment
        .get(env::QUICK)
        .is_some_and(|q| q != clock)
    {
        return Err(Usage(format!(
            "{}: it was measured {} --quick",
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
/// Only what keeps it from starting: later errors are in the outcome, beside what
/// was measured before.
pub(crate) fn record(
    run: &GuestRun,
    name: &str,
    experiment_toml: &str,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    let plan = run.plan.clone();
    let plan = plan.with_seeds(options.seeds.unwrap_or(1));
    let run = &GuestRun {
        plan: plan.map_err(crate::exit::Usage)?,
        ..run.clone()
    };
    let plan = &run.plan;
    let measure = |engine: &Options, recording: &mut Recording, save: Save<'_>, teller: &Teller| {
        netplumb_engine::run_in_guests(run, engine, recording, save, &|event| teller.tell(event))
    };
    let outcome = record_by(measure, name, experiment_toml, options, cache)?;
    let more = plan.arms.len() > 1 && !outcome.recording.blocks.is_empty();
    if outcome.error.is_some() && more && !options.quiet {
        eprintln!(
            "what was measured is in {}: the same command with --resume goes on from there",
            path_of(name, options).display()
        );
    }
    Ok(outcome)
}

/// Where a recording goes.
fn path_of(name: &str, options: &RunOptions) -> PathBuf {
    options
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}.plumb")))
}

/// Record what `measure` measures.
///
/// # Errors
/// As [`record`].
pub(crate) fn record_by(
    measure: impl FnOnce(&Options, &mut Recording, Save<'_>, &Teller) -> Result<(), EngineError>,
    name: &str,
    experiment_toml: &str,
    options: &RunOptions,
    cache: &Path,
) -> anyhow::Result<Outcome> {
    let mut layers = LayerRules::built_in();
    if let Some(path) = &options.layers {
        let text = files::read_text(path, MAX_LAYERS_BYTES, "layer rules")?;
        let rules = LayerRules::parse(&text).map_err(|error| match files::is_private(path) {
            true => Usage(format!("{}: {}", path.display(), files::PRIVATE)).into(),
            false => anyhow::Error::from(error),
        })?;
        layers.override_with(rules);
    }
    let path = path_of(name, options);
    let mut output = Some(Output::claim(&path)?);
    let cancel = signals::watch().context("can't watch for signals")?;
    let mut recording = match options.resume {
        true => taken_up(&path, experiment_toml, options)?,
        false => None,
    }
    .unwrap_or_else(|| Recording {
        experiment_toml: experiment_toml.to_string(),
        ..Recording::default()
    });
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    for (key, value) in [
        (env::PLUMB, env!("CARGO_PKG_VERSION").to_string()),
        (env::ARGV, std::env::args().collect::<Vec<_>>().join(" ")),
        (env::STARTED, started.as_secs().to_string()),
        (env::NAME, name.to_string()),
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
        init: "/proc/self/exe".into(),
        quick: options.quick,
        cold: options.cold,
        jobs: options.jobs.map_or_else(default_jobs, usize::from),
        timeout: Duration::from_secs(options.timeout),
        layers,
        cancel,
    };
    let teller = Teller::new(options.quiet);
    // A disk that fills up must not cost what is measured afterwards: the first
    // error is kept and told at the end, when the figures have been printed.
    let mut unsaved = None;
    let result = measure(
        &engine_options,
        &mut recording,
        &mut |recording| {
            // Made with the first block: a guest that does not come up leaves no
            // file, and an earlier recording where it is.
            if recording.blocks.is_empty() || unsaved.is_some() {
                return Ok(());
            }
            let saved = match (&mut writer, output.take()) {
                (Some(writer), _) => writer.save(recording),
                (none, Some(output)) => Writer::begin(output, recording).map(|new| {
                    *none = Some(new);
                }),
                (None, None) => Ok(()),
            };
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
        if error.is_none() {
            eprintln!("recorded in {}", path.display());
        }
        if let Some(kept) = writer.as_ref().and_then(Writer::kept) {
            eprintln!("the recording that was there is {} now", kept.display());
        }
    }
    Ok(Outcome { recording, error })
}
