//! `plumb report`: the report of a recording.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use netplumb_model::class::Direction;

use crate::args::page::PageArgs;
use crate::args::show::ShowArgs;
use crate::output::{page, part, show};

/// Arguments of `plumb report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Recording to read
    file: PathBuf,
    /// Show only these directions: tx, rx, forward, echo, ack, drop; comma-separated list
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Show only what this instrument measured
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// Read and print; if a page is requested, only write that.
///
/// # Errors
/// The file is not a recording, or lacks a requested arm, instrument or direction.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    show::check(&args.show)?;
    let recording = netplumb_store::read(&args.file)?;
    let recording = match &args.clock {
        Some(clock) => part::chosen(&recording, clock)?,
        None => Cow::Borrowed(&recording),
    };
    if recording.blocks.is_empty() {
        eprintln!(
            "plumb: {}: the recording is empty: nothing was measured",
            args.file.display()
        );
        return Ok(ExitCode::FAILURE);
    }
    if args.page.wanted() {
        page::write(&args.page, &recording, &args.direction, &args.show.arm)?;
        return Ok(ExitCode::SUCCESS);
    }
    show::show(&recording, &args.show, &args.direction)
}
