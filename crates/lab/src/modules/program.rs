//! The programs that builds run.

use std::env;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::error::ModuleBuildError;
use crate::child::{self, Finished};

/// Check that a program is installed.
///
/// # Errors
/// It is not: the package with it.
pub(super) fn need(program: &str, package: &str) -> Result<(), ModuleBuildError> {
    match is_installed(program) {
        true => Ok(()),
        false => Err(ModuleBuildError::NoProgram {
            program: program.to_owned(),
            package: package.to_owned(),
        }),
    }
}

/// Whether a directory of `PATH` has a program.
pub(super) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

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
