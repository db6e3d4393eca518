//! A recording's verdicts on the claims of its experiment, for `--fail-if-claim-fails`.

use std::borrow::Cow;
use std::process::ExitCode;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::claims::{self, Answer, Judged};
use netplumb_report::conclusions::conclusion;
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use super::costs::shown_classes;
use crate::exit::WORSE;

/// A part of a recording, with its name.
type NamedPart<'a> = (&'a str, Cow<'a, Recording>);

/// Each part's verdicts on the claims that are shown with it.
fn judged(recording: &Recording) -> anyhow::Result<Vec<Judged>> {
    let Some(experiment) = Experiment::of_recording(recording)? else {
        return Ok(Vec::new());
    };
    let parts = recording.parts();
    if shape(recording) == Shape::Rates || parts.len() < 2 {
        return of_part(&experiment, recording);
    }
    let parts: Vec<_> = (parts.into_iter()).map(|name| (name, recording.part(name))).collect();
    of_parts(&claims::by_part(&experiment, &parts), &parts)
}

fn of_part(experiment: &Experiment, part: &Recording) -> anyhow::Result<Vec<Judged>> {
    Ok(match shape(part) {
        Shape::Costs => claims::judge(experiment, &shown_classes(part, &[], &[])?),
        _ => claims::judge_blocks(experiment, part),
    })
}

fn of_parts(by_part: &[Experiment], parts: &[NamedPart<'_>]) -> anyhow::Result<Vec<Judged>> {
    let mut all = Vec::new();
    for (asked, (_, part)) in by_part.iter().zip(parts) {
        all.extend(of_part(asked, part)?);
    }
    Ok(all)
}

/// The conclusion of an experiment that names claims of several parts; none where one of them has it.
///
/// # Errors
/// A part has no classes.
pub(super) fn concluded(
    experiment: &Experiment,
    by_part: &[Experiment],
    parts: &[NamedPart<'_>],
) -> anyhow::Result<Option<String>> {
    let has_one = |of: &Experiment| of.conclusion.as_ref().is_some_and(|text| !text.is_empty());
    let is_of_one = by_part.iter().any(has_one);
    if experiment.conclusion.is_none() || is_of_one {
        return Ok(None);
    }
    Ok(conclusion(experiment, &of_parts(by_part, parts)?))
}

/// Name the claims that do not hold, and the ones that the data can't decide.
///
/// # Errors
/// The recording has no claims that can be judged.
pub(crate) fn check(recording: &Recording) -> anyhow::Result<ExitCode> {
    let all = judged(recording)?;
    let mut code = ExitCode::SUCCESS;
    for claim in &all {
        let verdict = match claim.verdict {
            Answer::Holds | Answer::Answered => continue,
            Answer::DoesNotHold => {
                code = ExitCode::from(WORSE);
                "a claim does not hold"
            }
            Answer::NotShown => "no failure: a claim is not shown",
            Answer::NotMeasured => "no failure: there are no data for a claim",
        };
        eprintln!(
            "plumb: {verdict}: {} ({})",
            printable(&claim.says, 200),
            printable(&claim.because, 400)
        );
    }
    Ok(code)
}
