//! What a recording says of the claims of its experiment, for `--fail-if-claim-fails`.

use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::claims::{self, Answer, Judged};
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use super::costs::shown_classes;
use crate::exit::WORSE;

/// What each part of a recording says of the claims that are shown with it.
fn judged(recording: &Recording) -> anyhow::Result<Vec<Judged>> {
    let Some(experiment) = Experiment::of_recording(recording)? else {
        return Ok(Vec::new());
    };
    let of_part = |experiment: &Experiment, part: &Recording| -> anyhow::Result<Vec<Judged>> {
        Ok(match shape(part) {
            Shape::Costs => claims::judge(experiment, &shown_classes(part, &[], &[])?),
            _ => claims::judge_blocks(experiment, part),
        })
    };
    let parts = recording.parts();
    if shape(recording) == Shape::Rates || parts.len() < 2 {
        return of_part(&experiment, recording);
    }
    let parts: Vec<_> = (parts.into_iter())
        .map(|name| (name, recording.part(name)))
        .collect();
    let mut all = Vec::new();
    for (asked, (_, part)) in claims::by_part(&experiment, &parts).iter().zip(&parts) {
        all.extend(of_part(asked, part)?);
    }
    Ok(all)
}

/// Name the claims that do not hold, and those of which the data don't say it.
///
/// # Errors
/// The recording has no claims that can be judged.
pub(crate) fn check(recording: &Recording) -> anyhow::Result<ExitCode> {
    let all = judged(recording)?;
    let mut code = ExitCode::SUCCESS;
    for claim in &all {
        let told = match claim.verdict {
            Answer::Holds | Answer::Answered => continue,
            Answer::DoesNotHold => {
                code = ExitCode::from(WORSE);
                "a claim does not hold"
            }
            Answer::NotShown => "no failure: a claim is not shown",
            Answer::NotMeasured => "no failure: there are no data for a claim",
        };
        eprintln!(
            "plumb: {told}: {} ({})",
            printable(&claim.says, 200),
            printable(&claim.because, 400)
        );
    }
    Ok(code)
}
