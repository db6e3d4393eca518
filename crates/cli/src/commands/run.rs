//! `plumb run`: an experiment file, carried out and judged.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use netplumb_engine::Plan;
use netplumb_kernel::layers::LAYERS;
use netplumb_model::experiment::Experiment;

use super::page::PageArgs;
use super::path::finish;
use super::report::ShowArgs;
use crate::recorder::{RunOptions, record};

/// Arguments of `plumb run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The experiment, a TOML file
    experiment: PathBuf,
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
/// What kept it from measuring.
pub(crate) fn run(args: RunArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let path = &args.experiment;
    let size = std::fs::metadata(path)
        .with_context(|| format!("{}: can't read it", path.display()))?
        .len();
    if size > MAX_EXPERIMENT_BYTES {
        anyhow::bail!(
            "{}: {size} bytes are too many for an experiment file",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{}: can't read it", path.display()))?;
    let experiment = Experiment::parse(&text)
        .and_then(|e| e.check_layers(&text, LAYERS).map(|()| e))
        .inspect_err(|_| eprintln!("{}:", path.display()))?;
    let plan = Plan {
        arms: experiment.arms(),
        packets: experiment.workload.packets,
        warmup_packets: experiment.workload.warmup_packets,
        blocks: experiment.blocks.count,
    };
    args.show.check()?;
    args.page.check()?;
    let outcome = record(&plan, &experiment.name, &text, &args.options, cache)?;
    finish(outcome, &args.show, &args.page, &[])
}
