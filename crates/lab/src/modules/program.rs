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

/// Run a program that has to succeed.
pub(super) fn run_well(
    program: &str,
    command: Command,
    cancel: &AtomicBool,
) -> Result<Finished, ModuleBuildError> {
    let finished = run(program, command, cancel)?;
    if finished.status.success() {
        return Ok(finished);
    }
    Err(ModuleBuildError::Program {
        program: program.to_owned(),
        output: finished
            .output
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("it printed nothing")
            .to_owned(),
    })
}
