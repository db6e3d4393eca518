//! Prints recordings of benches.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::rates::document;

use super::print::{columns, print};
use crate::args::show::RatesFormat;

/// Print the recording of a bench.
///
/// # Errors
/// Its experiment can't be parsed, or it can't be printed.
pub(crate) fn show(recording: &Recording, format: RatesFormat) -> anyhow::Result<ExitCode> {
    let experiment = Experiment::of_recording(recording)?;
    let all = matches!(format, RatesFormat::Text { all: true });
    let document = document(recording, experiment.as_ref(), all);
    print(&match format {
        RatesFormat::Csv => document.csv(),
        RatesFormat::Json => document.json(),
        RatesFormat::Text { .. } => document.terminal(columns()),
    })
}
