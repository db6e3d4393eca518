//! Prints recordings of benches.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::{claims, conclusions, figures, printable, rates, terminal};

use super::print::{columns, print};
use crate::args::show::RatesFormat;

/// Print the recording of a bench.
///
/// # Errors
/// Its experiment can't be parsed, or it can't be printed.
pub(crate) fn show(recording: &Recording, format: RatesFormat) -> anyhow::Result<ExitCode> {
    let text = match format {
        RatesFormat::Csv => rates::csv::render(recording),
        RatesFormat::Json => rates::json::render(recording),
        RatesFormat::Text { all } => {
            let mut text = match recording.experiment_toml.as_str() {
                "" => String::new(),
                text => judged(&Experiment::parse(text)?, recording),
            };
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
    for claim in &all {
        let (verdict, says) = (claim.verdict.as_str(), printable(&claim.says, 300));
        let because = printable(&claim.because, 1_000);
        let line = format!("  {verdict}: {says}: {because}");
        text.push_str(&terminal::continued(&line, 4, columns()));
        text.push('\n');
    }
    if experiment.conclusion.is_some() {
        text.push_str(&conclusions::render(experiment, &all, None, columns()));
    }
    text.push('\n');
    text
}
