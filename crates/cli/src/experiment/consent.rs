//! Actions of an experiment file on this machine: they are listed, and done if the user agrees.
//!
//! A file may be someone else's. Its work in guests and in namespaces of its own needs no agreement; a command that
//! runs here, or a setting that others see, does: `--yes-change`, or a yes on a terminal.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use netplumb_model::experiment::{Experiment, Lab};
use netplumb_report::printable;
use netplumb_sys::sysctl;

use crate::exit::{Usage, WrongKey};
use crate::files;

/// The most files below a directory that are looked at.
const FILES_MAX: usize = 100_000;

/// Actions of an experiment file in `folder` on this machine, one line each.
pub(crate) fn outside(experiment: &Experiment, folder: &Path) -> Vec<String> {
    let mut lines = experiment.outside();
    let copied = experiment.workload.with.iter().map(|with| from_of(with));
    let own = |path: &Path| {
        files::below(folder, &path.to_string_lossy()).is_ok_and(|found| found.is_some())
    };
    let private = copied.filter(|path| !own(path)).filter_map(|path| private(&path));
    lines.extend(private.map(|path| {
        let path = path.display();
        format!("copy {path}, which other users may not read, into a guest")
    }));
    lines
}

/// The file that `FILE` or `FILE:PATH` of `with` copies.
pub(super) fn from_of(with: &str) -> PathBuf {
    match with.rsplit_once(':') {
        // File names may contain colons.
        Some((from, to)) if to.starts_with('/') && !Path::new(with).exists() => from.into(),
        _ => with.into(),
    }
}

/// A file that is this one or below it, and that not everyone may read.
fn private(path: &Path) -> Option<PathBuf> {
    let mut all = vec![path.to_owned()];
    let mut seen = 0;
    while let Some(path) = all.pop() {
        // One that isn't there is an error later on.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        seen += 1;
        if metadata.mode() & 0o004 == 0 || seen > FILES_MAX {
            return Some(path);
        }
        // Links below a directory are copied as links.
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if metadata.is_dir() && (seen == 1 || !is_link) {
            all.extend(
                fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()),
            );
        }
    }
    None
}

/// Ask for the listed changes: on a terminal a question; otherwise the error has the flag to add.
///
/// # Errors
/// It was not agreed to.
pub(crate) fn ask(lines: &[String], names: &str) -> anyhow::Result<()> {
    let listed: String =
        (lines.iter()).map(|line| format!("  {}\n", printable(line, 400))).collect();
    let what = format!("this experiment would, on this machine and with your rights:\n{listed}");
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        eprint!("plumb: {what}Do you trust it? [y/N] ");
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            return Ok(());
        }
        return Err(Usage("nothing was run".into()).into());
    }
    let option = format!("--yes-change {names}");
    Err(Usage(format!(
        "{what}Nothing was run. Read the file; if you trust it, add {}",
        option.trim_end()
    ))
    .into())
}

/// Check that settings of namespaces are not this machine's: these would not be restored.
///
/// # Errors
/// One is.
pub(super) fn check_namespaces(experiment: &Experiment) -> anyhow::Result<()> {
    if experiment.lab != Lab::Netns {
        return Ok(());
    }
    let arms = experiment.arms();
    for (name, _) in arms.iter().flat_map(|arm| arm.table("sysctl")) {
        // Without rights for a namespace, nothing can be set either.
        if sysctl::is_of_machine(name).unwrap_or(false) {
            let why = format!(
                "sysctl `{name}` is this machine's own, not one of each network namespace; set it in a guest (lab \
                 vm), or for runs of a command in lab host, where it is restored"
            );
            return Err(WrongKey::usage("sysctl", why).into());
        }
    }
    Ok(())
}
