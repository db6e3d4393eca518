//! `plumb report`: a recording, printed again.

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
    /// The recording
    file: PathBuf,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Of several instruments in a recording, only this one
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// Read and show; or, if there is to be a page, only that.
///
/// # Errors
/// The file is no whole recording, or something in it was asked for that is not.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    show::check(&args.show)?;
    let recording = netplumb_store::read(&args.file)?;
    let recording = match &args.clock {
        Some(clock) => part::chosen(&recording, clock)?,
        None => Cow::Borrowed(&recording),
    };
    if recording.blocks.is_empty() {
        eprintln!(
            "plumb: {}: the recording has no block: nothing was measured",
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
