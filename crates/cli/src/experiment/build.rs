//! Runs the builds of an experiment on this machine before anything is measured.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use netplumb_model::experiment::Build;
use netplumb_report::printable;

/// Lines of a failed command's output to show.
const LINES: usize = 20;

/// Run the commands one after another in a directory. Their output is shown only if one fails.
///
/// # Errors
/// A command can't be run, or fails.
pub(crate) fn run(build: &Build, folder: &Path) -> anyhow::Result<()> {
    let folder = std::path::absolute(folder).context("can't find the experiment's directory")?;
    for words in &build.commands {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        let shown = printable(&words.join(" "), 200);
        let path = match program.contains('/') {
            true => folder.join(program),
            false => program.into(),
        };
        let done = Command::new(path)
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("[build]: can't run `{shown}`"))?;
        if !done.status.success() {
            let text = [done.stdout, done.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(LINES)..] {
                eprintln!("{}", printable(line, 400));
            }
            bail!("[build]: `{shown}` failed ({})", done.status);
        }
    }
    Ok(())
}
