//! `plumb run`: run an experiment file, and check its claims.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_kernel::layers::LAYERS;
use netplumb_model::experiment::{Experiment, ExperimentError, Kind, MAX_RULESET_BYTES, Nft, Time};
use netplumb_report::printable;

use crate::args::heading;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::{Usage, WrongKey};
use crate::experiment::modules::Names;
use crate::experiment::{self, How, PrintWhat};
use crate::files;

/// Arguments of `plumb run`.
#[derive(Debug, Args)]
#[command(
    override_usage = "plumb run [OPTIONS] <EXPERIMENT>",
    next_help_heading = heading::EXECUTION
)]
pub(crate) struct RunArgs {
    /// Experiment file (TOML)
    #[arg(required_unless_present = "yes_change", help_heading = None)]
    experiment: Option<PathBuf>,
    /// Total measuring time, like 10m or 12h
    ///
    /// It replaces the experiment's duration or number of blocks.
    #[arg(long, value_name = "TIME", help_heading = heading::MEASUREMENT)]
    duration: Option<Time>,
    /// Allow commands, sysctls, and changes to these interfaces and disks
    ///
    /// Run the file's commands on this machine, set its sysctls, and change these interfaces and
    /// disks. Without the option, only print the commands and changes.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', num_args = 0..=1)]
    yes_change: Option<Vec<String>>,
    /// Allow changes to an interface of the default route or of your SSH session
    #[arg(long)]
    even_default_route: bool,
    /// Exit with code 4 if a claim does not hold
    ///
    /// A claim without data is reported, and does not fail.
    #[arg(long)]
    fail_if_claim_fails: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// An experiment file is a page or two.
const MAX_EXPERIMENT_BYTES: u64 = 1 << 20;

/// Run and show.
///
/// # Errors
/// The experiment failed.
pub(crate) fn run(args: RunArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let (path, names) = file_and_names(args.experiment, args.yes_change)?;
    let (path, names) = (path.as_path(), names.as_deref());
    let text = files::read_text(path, MAX_EXPERIMENT_BYTES, "an experiment file")?;
    let shown = |error: ExperimentError| {
        let error = match files::is_private(path) {
            true => ExperimentError {
                what: files::PRIVATE.into(),
                source_line: None,
                hint: None,
                ..error
            },
            false => error,
        };
        anyhow::Error::new(error).context(path.display().to_string())
    };
    let mut experiment = Experiment::parse(&text)
        .and_then(|e| e.check_layers(&text, LAYERS).map(|()| e))
        .map_err(shown)?;
    experiment.check_instruments(&text, &registry::ALL.map(Instrument::name)).map_err(shown)?;
    // Errors of the file that only this machine shows.
    let with_line = |error: anyhow::Error| match error.downcast::<WrongKey>() {
        Ok(wrong) => {
            let what = wrong.what.clone();
            match ExperimentError::about_key(&text, wrong.key, what) {
                Some(_) if files::is_private(path) => anyhow::Error::new(wrong),
                Some(error) => anyhow::Error::new(wrong).context(error.to_string()),
                None => anyhow::Error::new(wrong),
            }
            .context(path.display().to_string())
        }
        Err(error) => error,
    };
    read_files(&mut experiment, path).map_err(with_line)?;
    let below = Names::InFile(folder_of(path));
    experiment::topologies::read(&mut experiment, below).map_err(with_line)?;
    experiment::topologies::find_objects(&mut experiment, below).map_err(with_line)?;
    let mut outside = match names {
        None => experiment::consent::outside(&experiment, folder_of(path)),
        Some(_) => Vec::new(),
    };
    // Settings of interfaces and disks are asked for once they are known, with all the rest.
    let is_later = experiment.build.is_empty() && experiment.names_objects();
    if !outside.is_empty() && !is_later {
        experiment::consent::ask(&outside, "")?;
        outside.clear();
    }
    experiment::build::run(&experiment.build, folder_of(path))?;
    experiment::modules::prepare(&mut experiment, Names::InFile(folder_of(path)), cache)
        .map_err(with_line)?;
    if args.fail_if_claim_fails && experiment.claims.is_empty() {
        let why = format!("--fail-if-claim-fails: {} has no [[claim]]", path.display());
        return Err(Usage(why).into());
    }
    if experiment.workload.kind == Kind::Frames {
        args.options.check_for_bench()?;
    }
    // The command line takes precedence.
    if let Some(duration) = args.duration {
        experiment.workload.duration = Some(duration);
        experiment.blocks.count = None;
    }
    experiment.blocks.seeds = args.options.seeds.or(experiment.blocks.seeds);
    let how = How {
        text: &text,
        folder: folder_of(path),
        yes_change: names.unwrap_or_default(),
        outside: &outside,
        even_default_route: args.even_default_route,
        fail_if_claim_fails: args.fail_if_claim_fails,
        ..How::new(
            match experiment.workload.kind {
                Kind::Frames => {
                    args.show.check_for_bench()?;
                    PrintWhat::Rates(args.show.bench_format())
                }
                _ => PrintWhat::Report(&args.show, &[]),
            },
            &args.page,
            args.options,
        )
    };
    experiment::run(&experiment, how, cache).map_err(with_line)
}

/// The experiment file, and what `--yes-change` names. A word after the option is a name, unless there is no
/// other word for the file.
fn file_and_names(
    file: Option<PathBuf>,
    names: Option<Vec<String>>,
) -> anyhow::Result<(PathBuf, Option<Vec<String>>)> {
    match (file, names) {
        (Some(file), names) => Ok((file, names)),
        (None, Some(names)) if !names.is_empty() => Ok((names.join(",").into(), Some(Vec::new()))),
        (None, _) => {
            Err(Usage("missing experiment file; expected like plumb run FILE".into()).into())
        }
    }
}

/// The experiment's directory.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Read the files of knobs; their paths are relative to the experiment's directory.
fn read_files(experiment: &mut Experiment, path: &Path) -> anyhow::Result<()> {
    let folder = folder_of(path);
    for nft in experiment.rulesets_mut() {
        let Nft::File(name) = nft else { continue };
        let wrong = || {
            let why = format!(
                "invalid nft file `{}`; expected a file below the experiment's directory",
                printable(name, 200)
            );
            WrongKey::usage("nft", why)
        };
        let file = files::below(folder, name)
            .with_context(|| {
                format!("{}: can't read the nftables rules", folder.join(&*name).display())
            })?
            .ok_or_else(wrong)?;
        let rules = files::read_text(&file, MAX_RULESET_BYTES, "a file of nftables rules")?;
        *nft = Nft::Text { rules, file: Some(name.clone()) };
    }
    if let Some(recorded) = &mut experiment.functions.recorded {
        *recorded = folder.join(&*recorded).display().to_string();
    }
    Ok(())
}
