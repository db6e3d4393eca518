//! `plumb report`: the report of a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use netplumb_model::class::Direction;

use crate::args::below::BelowArgs;
use crate::args::heading;
use crate::args::page::PageArgs;
use crate::args::redact::KeepArgs;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::output::below::below;
use crate::output::{page, show};

/// Arguments of `plumb report`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::REPORT)]
pub(crate) struct ReportArgs {
    /// Recording to read
    #[arg(help_heading = None)]
    file: PathBuf,
    /// Show only these directions: tx, rx, forward, echo, ack, drop; comma-separated list
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Show only the results of this instrument
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    #[command(flatten)]
    below: BelowArgs,
    /// Leave out names of machines and users, addresses, paths and command lines, as `plumb redact` does
    #[arg(long)]
    redact: bool,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// Read and print; if a page is requested, only write that.
///
/// # Errors
/// The file is not a recording, or lacks a requested arm, instrument, direction or function.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    show::check(&args.show)?;
    if args.below.below.is_some() && args.show.lines.is_some() {
        return Err(Usage(
            "--below can't be used with --lines: lines are counted for a function as a whole, \
             wherever it was called from"
                .into(),
        )
        .into());
    }
    let mut recording = netplumb_store::read(&args.file)?;
    if args.redact {
        recording = recording.redacted(&args.keep.redaction());
    } else if args.keep.is_given() {
        return Err(Usage("--keep needs --redact".into()).into());
    }
    let recording = below(&args.below, &recording, &args.file.display().to_string())?;
    if recording.blocks.is_empty() {
        eprintln!("plumb: {}: the recording is empty: nothing was measured", args.file.display());
        return Ok(ExitCode::FAILURE);
    }
    if args.page.wanted() {
        page::write(
            &args.page,
            &recording,
            args.clock.as_deref(),
            &args.direction,
            &args.show.arm,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let clock = args.clock.as_deref();
    show::show(&recording, clock, &args.show, &args.direction)
}
