//! A browser to open a page in.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Programs that may open a page, in the order in which they are tried; `%s` is the placeholder for
/// the page.
pub(super) fn browsers() -> Vec<Vec<String>> {
    let named = std::env::var("BROWSER").unwrap_or_default();
    named
        .split(':')
        .chain(["xdg-open"])
        .map(|command| command.split_whitespace().map(str::to_string).collect())
        .filter(|words: &Vec<String>| words.first().is_some_and(|program| is_there(program)))
        .collect()
}

fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A browser that has not failed after this time has opened the page.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn open(path: &Path) -> anyhow::Result<()> {
    let path = fs::canonicalize(path)?;
    for words in browsers() {
        if opens(&words, &path) {
            return Ok(());
        }
    }
    anyhow::bail!(
        "no browser could open it: set $BROWSER, or copy {} to a machine with a browser",
        path.display()
    )
}

fn opens(words: &[String], path: &Path) -> bool {
    let Some((program, rest)) = words.split_first() else {
        return false;
    };
    let mut command = Command::new(program);
    let mut named = false;
    for word in rest {
        if word == "%s" {
            named = true;
            command.arg(path);
        } else {
            command.arg(word);
        }
    }
    if !named {
        command.arg(path);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C in this terminal must not end it.
    command.process_group(0);
    let Ok(mut child) = command.spawn() else {
        return false;
    };
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
    true
}
