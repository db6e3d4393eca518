//! How an experiment is run and its result printed.

use std::path::Path;
use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::recording::{ArmNotes, Recording};
use netplumb_model::text::counted;
use netplumb_report::printable;

use super::unseen::never_called;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::{RatesFormat, ShowArgs};
use crate::exit::{CannotHere, Failure, message};
use crate::output::{claims, page, part, show};
use crate::recorder::Outcome;

/// What to print.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PrintWhat<'a> {
    /// As by `plumb report`, for these directions.
    Report(&'a ShowArgs, &'a [Direction]),
    /// Rates.
    Rates(RatesFormat),
}

/// Options of running an experiment that are not part of it.
#[derive(Debug)]
pub(crate) struct How<'a> {
    /// The text of the experiment file; empty for a command line.
    pub(crate) text: &'a str,
    /// The directory of the experiment file; empty for the current one.
    pub(crate) folder: &'a Path,
    pub(crate) shown: PrintWhat<'a>,
    pub(crate) page: &'a PageArgs,
    /// The instrument to show, of several.
    pub(crate) clock: Option<&'a str>,
    pub(crate) options: RunOptions,
    /// Whether to show the live view.
    pub(crate) watch: bool,
    /// Whether a command gets plumb's standard input.
    pub(crate) stdin: bool,
    /// Interfaces and disks of this machine that may be changed.
    pub(crate) yes_change: &'a [String],
    /// Other actions of an experiment file on this machine, if the user has not agreed to them yet.
    pub(crate) outside: &'a [String],
    /// Whether that includes interfaces of the default route.
    pub(crate) even_default_route: bool,
    /// Whether a claim that does not hold is a failure.
    pub(crate) fail_if_claim_fails: bool,
}

impl<'a> How<'a> {
    /// As a command line that only has what to print, where, and how to run.
    pub(crate) fn new(shown: PrintWhat<'a>, page: &'a PageArgs, options: RunOptions) -> How<'a> {
        How {
            text: "",
            folder: Path::new(""),
            shown,
            page,
            clock: None,
            options,
            watch: false,
            stdin: false,
            yes_change: &[],
            outside: &[],
            even_default_route: false,
            fail_if_claim_fails: false,
        }
    }

    /// Whether the output is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        match self.shown {
            PrintWhat::Report(show, _) => show.for_programs(),
            PrintWhat::Rates(format) => !matches!(format, RatesFormat::Text { .. }),
        }
    }

    /// Whether the output format shows a single instrument.
    pub(super) fn is_one_output(&self) -> bool {
        let written = match self.shown {
            PrintWhat::Report(show, _) => show.formats.wanted(),
            PrintWhat::Rates(_) => false,
        };
        written || self.for_programs() || self.page.wanted()
    }

    /// The path of a program: relative to the experiment's directory, if it is there.
    pub(super) fn program(&self, name: &str) -> String {
        let path = self.folder.join(name);
        match name.contains('/') && path.exists() {
            true => path.display().to_string(),
            false => name.into(),
        }
    }

    /// Check what can be checked before anything is measured.
    ///
    /// # Errors
    /// The output can't be written.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        page::check(self.page)?;
        match self.shown {
            PrintWhat::Report(args, _) => show::check(args),
            PrintWhat::Rates(_) => Ok(()),
        }
    }
}

/// Why arms can't be measured here, a line for each.
fn unavailable(recording: &Recording) -> Vec<String> {
    let of_arm = |(number, notes): (&u32, &ArmNotes)| {
        let arm = recording.arms.get(*number as usize);
        let name = arm.map_or_else(String::new, |arm| printable(&arm.name, 80));
        let line = |why: &String| format!("unavailable: arm {name}: {}", printable(why, 400));
        notes.failed.values().map(line).collect::<Vec<_>>()
    };
    recording.notes.iter().flat_map(of_arm).collect()
}

/// Print the results, and then the error, if there was one.
///
/// # Errors
/// It can't be printed, or no arm can be measured here.
pub(super) fn finish(outcome: Outcome, how: &How<'_>) -> anyhow::Result<ExitCode> {
    let PrintWhat::Report(show_args, directions) = how.shown else {
        return Err(anyhow::Error::msg("rates are printed by the runner of frames"));
    };
    let shown = if outcome.recording.blocks.is_empty() {
        match unavailable(&outcome.recording) {
            why if why.is_empty() => Ok(ExitCode::SUCCESS),
            why => Err(CannotHere(why.join("\n")).into()),
        }
    } else {
        show::show(&outcome.recording, how.clock, show_args, directions).and_then(|code| {
            page::write(how.page, &outcome.recording, how.clock, directions, &show_args.arm)?;
            Ok(code)
        })
    };
    match outcome.error {
        Some(error) => {
            eprintln!("plumb: {}", message(&error));
            let before = shown.ok().and_then(|_| of_shown(&outcome.recording, how.clock));
            if let Some(blocks) = before {
                eprintln!("plumb: measured before the error, and shown above: {blocks}");
            }
            Ok(ExitCode::from(Failure::from_error(&error).code()))
        }
        None => {
            let code = shown?;
            match never_called(&outcome.recording)? {
                Some(why) => Err(anyhow::Error::msg(why)),
                None if how.fail_if_claim_fails && code == ExitCode::SUCCESS => {
                    claims::check(&outcome.recording)
                }
                None => Ok(code),
            }
        }
    }
}

/// The number of blocks of the instrument that is shown, or of all; none if there is nothing to show.
fn of_shown(recording: &Recording, clock: Option<&str>) -> Option<String> {
    let part = part::of_clock(recording, clock).ok()?;
    let blocks = part.blocks.len();
    (blocks > 0).then(|| counted(blocks, "block"))
}

#[cfg(test)]
mod tests {
    use netplumb_model::recording::{Block, Ledger};

    use super::*;

    /// Check that blocks of an instrument that is not shown are not reported as shown.
    #[test]
    fn blocks_that_are_shown() {
        let mut recording = Recording::default();
        assert_eq!(of_shown(&recording, None), None);
        let block = |instrument: &str| Block {
            arm: 0,
            instrument: instrument.into(),
            index: 0,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 0,
        };
        recording.blocks = vec![block("exact")];
        assert_eq!(of_shown(&recording, Some("events")), None);
        let one = Some("1 block");
        assert_eq!(of_shown(&recording, None).as_deref(), one);
        assert_eq!(of_shown(&recording, Some("exact")).as_deref(), one);
        recording.blocks = ["exact", "exact", "events"].map(block).into();
        assert_eq!(of_shown(&recording, Some("events")).as_deref(), one);
        assert_eq!(of_shown(&recording, None).as_deref(), Some("3 blocks"));
    }
}
