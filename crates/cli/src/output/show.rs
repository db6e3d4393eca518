//! Prints a recording, by its shape.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::sampled::{self, Beside};
use netplumb_report::shape::{Shape, shape};
use netplumb_report::shares;

use super::print::{columns, print};
use super::{costs, formats, part, rates, times};
use crate::args::show::ShowArgs;

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
    let beside = sampled::beside(recording, directions, &args.arm);
    let chosen = part::of(recording, clock)?;
    let recording = &*chosen;
    if shape(recording) == Shape::Rates {
        args.check_for_bench()?;
        return rates::show(recording, args.bench_format());
    }
    args.check_for_others()?;
    let parts = recording.parts();
    let [first, _, ..] = parts[..] else {
        let code = part_of(recording, &beside, args, directions)?;
        if !(args.for_programs() || args.formats.wanted()) {
            shares_of(recording)?;
        }
        return Ok(code);
    };
    if args.for_programs() || args.formats.wanted() {
        return match recording.instruments()[..] {
            // Its first quantity; the others by --clock.
            [_] => part_of(&recording.part(first), &beside, args, directions),
            _ => Err(part::several(&parts)),
        };
    }
    for (number, part) in parts.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!("{rule}Instrument {}\n\n", printable(part, 80)))?;
        part_of(&recording.part(part), &beside, args, directions)?;
    }
    if let Some(text) = sampled::render(&beside, columns()) {
        print(&format!("\n{text}"))?;
    }
    shares_of(recording)?;
    Ok(ExitCode::SUCCESS)
}

/// Print the shares that an experiment asks for.
fn shares_of(recording: &Recording) -> anyhow::Result<()> {
    // What can't be read was reported before.
    let experiment = Experiment::of_recording(recording).ok().flatten();
    let shares = experiment.and_then(|e| shares::render(recording, &e, columns()));
    if let Some(text) = shares {
        print(&format!("\n{text}"))?;
    }
    Ok(())
}

/// Print the part of one instrument, with what was sampled of guests.
fn part_of(
    recording: &Recording,
    beside: &[Beside<'_>],
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    match shape(recording) {
        Shape::Times => times::show(recording, args, directions),
        _ => costs::show(
            recording,
            sampled::of_part(recording, beside),
            args,
            directions,
        ),
    }
}
