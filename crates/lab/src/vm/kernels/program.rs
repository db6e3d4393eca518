//! apt's programs, while they run.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::KernelStoreError;
use super::collect::go_on;
use super::error::{read_failed, write_failed};

/// Run apt, and call `tell` while it runs; returns the reason if it failed.
pub(super) fn wait(
    mut command: Command,
    log: &Path,
    cancel: &AtomicBool,
    tell: &mut dyn FnMut(),
) -> Result<Option<String>, KernelStoreError> {
    let output = File::create(log).map_err(write_failed(log))?;
    let errors = output.try_clone().map_err(write_failed(log))?;
    let mut child = command
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|source| KernelStoreError::NoApt { program: "apt-get", source })?;
    let status = loop {
        if let Err(interrupted) = go_on(cancel) {
            // It may have exited: a terminal also sends it the signal.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted);
        }
        tell();
        match child.try_wait().map_err(read_failed(log))? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    if status.success() {
        return Ok(None);
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    Ok(Some(match last_error(&text) {
        "" => status.to_string(),
        line => line.to_owned(),
    }))
}

/// The line with the error.
fn last_error(text: &str) -> &str {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| line.starts_with("E:")).or_else(|| lines().next_back()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the line with the error is found in what apt prints.
    #[test]
    fn errors_of_apt() {
        assert_eq!(last_error("W: unsandboxed\nE: 404 not found\n"), "E: 404 not found");
    }
}
