//! Prints a recording, by its shape.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::hosts as wire;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};
use netplumb_report::times::nothing;
use netplumb_report::together::CrossQuantity;
use netplumb_report::{claims, conclusions, events, hosts, rates, sampled, shares};

use super::costs::NO_THREADS;
use super::document::{self, NoProfile};
use super::print::{columns, print};
use super::{claims as of_claims, costs, formats, part, times};
use crate::args::show::{BENCH_SUBJECT, ShowArgs};
use crate::exit::Usage;

const HOSTS: NoProfile = NoProfile {
    subject: "a recording of two hosts, which has no functions",
    why: "a recording of two hosts is a profile only with functions: measure with --exact, and use --clock exact",
    has_metrics: true,
};
const BENCH: NoProfile = NoProfile {
    subject: BENCH_SUBJECT,
    why: "a bench measures rates and is no profile; use --markdown, --csv or --json",
    has_metrics: false,
};
const COUNTS: NoProfile = NoProfile {
    subject: "counts of events, which have no functions; of those by layer or by stack add --clock callers",
    why: "counts of events are no profile; use --markdown, --openmetrics, --csv or --json, or --clock callers where \
          they were counted by layer or by stack",
    has_metrics: true,
};

/// Check what can be checked before anything is measured.
///
/// # Errors
/// An unknown layer, or an output that can't be written.
pub(crate) fn check(args: &ShowArgs) -> anyhow::Result<()> {
    formats::check(&args.formats)?;
    args.check()
}

/// Print a recording, or the part of it of one instrument or quantity.
///
/// # Errors
/// It lacks a requested arm, class, function or part.
pub(crate) fn show(
    recording: &Recording,
    clock: Option<&str>,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    let experiment = Experiment::of_recording(recording)?;
    let experiment = experiment.map(|e| claims::asked(&e, directions, &args.arm));
    let asked = experiment.as_ref();
    let together =
        CrossQuantity::from_recording(recording, experiment.as_ref(), directions, &args.arm);
    let chosen = part::of_clock(recording, clock)?;
    let recording = &*chosen;
    if shape(recording) == Shape::Rates {
        let document = rates::document(recording, asked, args.all);
        return document::show(recording, &document, args, &BENCH);
    }
    args.check_for_others()?;
    let parts = recording.parts();
    let [first, _, ..] = parts[..] else {
        let code = part_of(recording, asked, &together, args, directions)?;
        if !(args.for_programs() || args.formats.wanted()) {
            print_shares(&together)?;
        }
        return Ok(code);
    };
    if args.for_programs() || args.formats.wanted() {
        return match recording.instruments()[..] {
            // Its first quantity; the others by --clock.
            [_] => part_of(&recording.part(first), asked, &together, args, directions),
            // What two hosts are measured for; functions in addition with --clock.
            [wire::INSTRUMENT, _] => {
                let part = recording.part(wire::INSTRUMENT);
                part_of(&part, asked, &together, args, directions)
            }
            _ => Err(part::several(&parts)),
        };
    }
    let parts: Vec<_> = (parts.into_iter()).map(|name| (name, recording.part(name))).collect();
    let by_part = asked.map(|experiment| claims::by_part(experiment, &parts));
    for (number, (name, part)) in parts.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!("{rule}Instrument {}\n\n", printable(name, 80)))?;
        let asked = by_part.as_ref().map(|all| &all[number]);
        part_of(part, asked, &together, args, directions)?;
    }
    for section in sampled::sections(&together.sampled) {
        print(&format!("\n{}", section.terminal(columns())))?;
    }
    if let (Some(experiment), Some(by_part)) = (asked, &by_part)
        && let Some(text) = of_claims::concluded(experiment, by_part, &parts)?
    {
        print(&conclusions::in_short(&text, columns()))?;
    }
    print_shares(&together)?;
    Ok(ExitCode::SUCCESS)
}

/// Print the shares that an experiment asks for.
fn print_shares(together: &CrossQuantity<'_>) -> anyhow::Result<()> {
    for section in shares::sections(&together.shares) {
        print(&format!("\n{}", section.terminal(columns())))?;
    }
    Ok(())
}

/// Print the part of one instrument, with what all quantities show together.
fn part_of(
    recording: &Recording,
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    if args.threads && (shape(recording) != Shape::Costs || args.formats.wanted()) {
        return Err(Usage(match args.formats.wanted() {
            true => "--threads is a table: it can't be used with formats of profiles".into(),
            false => NO_THREADS.into(),
        })
        .into());
    }
    let is_text = !(args.for_programs() || args.formats.wanted());
    if let Some(text) = nothing(recording).filter(|_| is_text) {
        print(&format!("{text}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    match shape(recording) {
        Shape::Times => times::show(recording, experiment, args, directions),
        Shape::Hosts => {
            document::show(recording, &hosts::document(recording, experiment), args, &HOSTS)
        }
        Shape::Counts => {
            let document = events::document(recording, experiment, &together.exact);
            document::show(recording, &document, args, &COUNTS)
        }
        _ => costs::show(recording, experiment, together, args, directions),
    }
}
