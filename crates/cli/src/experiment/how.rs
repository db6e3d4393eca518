//! How an experiment is run and shown, apart from what it is.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::text::counted;

use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::{RatesFormat, ShowArgs};
use crate::exit::{Failure, told};
use crate::output::{page, show};
use crate::recorder::Outcome;

/// What is shown of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown<'a> {
    /// What `plumb report` shows, of these directions.
    Report(&'a ShowArgs, &'a [Direction]),
    /// Rates.
    Rates(RatesFormat),
}

/// How it is run, apart from what.
#[derive(Debug)]
pub(crate) struct How<'a> {
    /// The experiment's file, as it was read; empty of a command line.
    pub(crate) text: &'a str,
    pub(crate) shown: Shown<'a>,
    pub(crate) page: &'a PageArgs,
    pub(crate) options: RunOptions,
    /// Whether figures are shown as they come.
    pub(crate) watch: bool,
    /// Whether our standard input is a command's.
    pub(crate) stdin: bool,
    /// Interfaces of this machine that may be changed.
    pub(crate) yes_change: &'a [String],
    /// Even if the default route is over one of them.
    pub(crate) even_default_route: bool,
}

impl How<'_> {
    /// Whether what is shown is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        match self.shown {
            Shown::Report(show, _) => show.for_programs(),
            Shown::Rates(format) => !matches!(format, RatesFormat::Text { .. }),
        }
    }

    /// Whether it is shown in a form that one instrument's figures have alone.
    pub(super) fn is_one_output(&self) -> bool {
        let written = match self.shown {
            Shown::Report(show, _) => show.formats.wanted(),
            Shown::Rates(_) => false,
        };
        written || self.for_programs() || self.page.wanted()
    }

    /// What can be said to be wrong before anything is measured.
    ///
    /// # Errors
    /// What can't be shown, or written where it is to go.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        page::check(self.page)?;
        match self.shown {
            Shown::Report(args, _) => show::check(args),
            Shown::Rates(_) => Ok(()),
        }
    }
}

/// Show what was measured, and then tell what went wrong, if anything did.
///
/// # Errors
/// Nothing can be shown of it.
pub(super) fn finish(outcome: Outcome, how: &How<'_>) -> anyhow::Result<ExitCode> {
    let Shown::Report(show_args, directions) = how.shown else {
        return Err(anyhow::Error::msg("rates are shown by their own"));
    };
    let shown = if outcome.recording.blocks.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        show::show(&outcome.recording, show_args, directions).and_then(|code| {
            page::write(how.page, &outcome.recording, directions, &show_args.arm)?;
            Ok(code)
        })
    };
    match outcome.error {
        Some(error) => {
            eprintln!("plumb: {}", told(&error));
            if !outcome.recording.blocks.is_empty() {
                eprintln!(
                    "plumb: measured before that, and shown above: {}",
                    counted(outcome.recording.blocks.len(), "block")
                );
            }
            Ok(ExitCode::from(Failure::of(&error).code()))
        }
        None => shown,
    }
}
