//! Prints a recording, by its shape.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use super::print::print;
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

/// Print a recording.
///
/// # Errors
/// It lacks a requested arm, class or function.
pub(crate) fn show(
    recording: &Recording,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    if shape(recording) == Shape::Rates {
        args.check_for_bench()?;
        return rates::show(recording, args.bench_format());
    }
    args.check_for_others()?;
    let instruments = recording.instruments();
    let [_, _, ..] = instruments[..] else {
        return part_of(recording, args, directions);
    };
    if args.for_programs() || args.formats.wanted() {
        return Err(part::several(&instruments));
    }
    for (number, instrument) in instruments.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!(
            "{rule}Instrument {}\n\n",
            printable(instrument, 80)
        ))?;
        part_of(&recording.part(instrument), args, directions)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Print the part of one instrument.
fn part_of(
    recording: &Recording,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    match shape(recording) {
        Shape::Times => times::show(recording, args, directions),
        _ => costs::show(recording, args, directions),
    }
}
