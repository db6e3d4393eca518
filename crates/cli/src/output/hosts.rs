//! Prints recordings of two hosts.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::{hosts, openmetrics};

use super::print::{columns, print};
use crate::args::formats::Format;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::files::Out;

/// Print a recording of two hosts.
///
/// # Errors
/// It has nothing of the requested kind.
pub(super) fn show(
    recording: &Recording,
    experiment: Option<&Experiment>,
    args: &ShowArgs,
) -> anyhow::Result<ExitCode> {
    args.check_without_functions("a recording of two hosts, which has no functions")?;
    match args.formats.chosen() {
        Some((Format::Markdown, out)) => {
            Out::from_path(out)?.write(hosts::markdown(recording, experiment).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some((Format::OpenMetrics, out)) => {
            let text = openmetrics::render(recording, &[], &[]);
            Out::from_path(out)?.write(text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(_) => {
            let why = "a recording of two hosts is a profile only with functions: measure with --exact, and use --clock exact";
            return Err(Usage(why.into()).into());
        }
        None => {}
    }
    print(&match (args.json, args.csv) {
        (true, _) => hosts::json(recording, experiment),
        (_, true) => hosts::csv(recording),
        _ => hosts::terminal(recording, experiment, columns()),
    })
}
