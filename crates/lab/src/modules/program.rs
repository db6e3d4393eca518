//! The programs that builds run.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::error::ModuleBuildError;
use crate::child::{self, Finished};

/// Run a program, whatever it returns.
pub(super) fn run(
    program: &str,
    command: Command,
    cancel: &AtomicBool,
) -> Result<Finished, ModuleBuildError> {
    match child::run(command, cancel) {
        Ok(Some(finished)) => Ok(finished),
        Ok(None) => Err(ModuleBuildError::Interrupted),
        Err(error) => Err(ModuleBuildError::Program {
            program: program.to_owned(),
            output: error.to_string(),
        }),
    }
}

/// Check that a program succeeded that has to.
pub(super) fn well(program: &str, finished: &Finished) -> Result<(), ModuleBuildError> {
    if finished.status.success() {
        return Ok(());
    }
    let mut lines = finished.output.lines().rev();
    let last = lines.find(|line| !line.trim().is_empty());
    Err(ModuleBuildError::Program {
        program: program.to_owned(),
        output: last.unwrap_or("it printed nothing").to_owned(),
    })
}
