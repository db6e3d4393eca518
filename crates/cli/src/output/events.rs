//! Prints recordings of counts.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::together::CrossQuantity;
use netplumb_report::{events, openmetrics};

use super::print::{columns, print};
use crate::args::formats::Format;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::files::Out;

/// Print a recording of counts.
///
/// # Errors
/// It has nothing of the requested kind.
pub(super) fn show(
    recording: &Recording,
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
    args: &ShowArgs,
) -> anyhow::Result<ExitCode> {
    args.check_without_functions(
        "counts of events, which have no functions; of those by layer or by stack add --clock callers",
    )?;
    match args.formats.chosen() {
        Some((Format::Markdown, out)) => {
            let text = events::markdown(recording, experiment, &together.exact);
            Out::from_path(out)?.write(text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some((Format::OpenMetrics, out)) => {
            let text = openmetrics::render(recording, &[], &[]);
            Out::from_path(out)?.write(text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(_) => {
            let why = "counts of events are no profile; use --markdown, --openmetrics, --csv or \
                       --json, or --clock callers where they were counted by layer or by stack";
            return Err(Usage(why.into()).into());
        }
        None => {}
    }
    print(&match (args.json, args.csv) {
        (true, _) => events::json(recording, experiment),
        (_, true) => events::csv(recording),
        _ => events::terminal(recording, experiment, &together.exact, columns()),
    })
}
