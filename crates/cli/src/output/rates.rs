//! Prints recordings of benches.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::{claims, conclusions, figures, rates};

use super::print::{columns, print};
use crate::args::show::RatesFormat;

/// Print the recording of a bench.
///
/// # Errors
/// Its experiment can't be parsed, or it can't be printed.
pub(crate) fn show(recording: &Recording, format: RatesFormat) -> anyhow::Result<ExitCode> {
    let experiment = Experiment::of_recording(recording)?;
    let text = match format {
        RatesFormat::Csv => rates::csv::render(recording),
        RatesFormat::Json => rates::json::render(recording, experiment.as_ref()),
        RatesFormat::Text { all } => {
            let mut text = experiment.map_or_else(String::new, |e| judged(&e, recording));
            text.push_str(&rates::terminal::render(recording, columns(), all));
            text
        }
    };
    print(&text)
}

/// The figures and claims of an experiment file.
fn judged(experiment: &Experiment, recording: &Recording) -> String {
    let mut text = figures::sweeps::render(experiment, recording, columns());
    let all = claims::judge_blocks(experiment, recording);
    text.push_str(&claims::render(&all, columns()));
    if experiment.conclusion.is_some() {
        text.push_str(&conclusions::render(experiment, &all, None, columns()));
    }
    text.push('\n');
    text
}
