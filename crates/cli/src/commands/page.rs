//! `--html` and `--open`: the report as a page, for `report`, `path` and `run`.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::html;
use netplumb_report::shape::{Shape, shape};
use netplumb_report::{rates, times};
use tempfile::Builder;

use super::report::shown_classes;
use crate::exit::Usage;
use crate::files::Out;

/// Where to put the page.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// A page with everything in it, which opens without a network: one HTML file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Open that page in a browser; without --html, from a temporary file
    #[arg(long)]
    pub(crate) open: bool,
}

impl PageArgs {
    /// Whether there is to be a page.
    pub(crate) fn wanted(&self) -> bool {
        self.html.is_some() || self.open
    }

    /// What can be said to be wrong before anything is measured.
    ///
    /// # Errors
    /// A file that can't be written, or no browser.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(out) = &self.html {
            self.target(out)?.try_out()?;
        }
        if self.open && browsers().is_empty() {
            return Err(Usage(
                "there is no browser here to --open the page with: name one in $BROWSER, or write \
                 the page with --html OUT and open it elsewhere"
                    .into(),
            )
            .into());
        }
        Ok(())
    }

    /// Where the page goes, which has to be a file if it is to be opened.
    fn target(&self, out: &Path) -> anyhow::Result<Out> {
        let target = Out::of(out)?;
        if self.open && !target.is_file() {
            return Err(Usage(format!(
                "--open: {} keeps nothing that a browser could open: name a file",
                out.display()
            ))
            .into());
        }
        Ok(target)
    }

    /// Make the page of a recording, and say where it is.
    ///
    /// # Errors
    /// It can't be written or opened, or nothing of what was asked for is in the
    /// recording.
    pub(crate) fn write(
        &self,
        recording: &Recording,
        directions: &[Direction],
        arms: &[String],
    ) -> anyhow::Result<()> {
        if !self.wanted() {
            return Ok(());
        }
        let experiment = match recording.experiment_toml.as_str() {
            "" => None,
            text => Some(Experiment::parse(text)?),
        };
        if shape(recording) == Shape::Rates {
            let page = rates::page::of_recording(recording, experiment.as_ref());
            return self.put(&html::render(&page));
        }
        if let [_, _, ..] = recording.instruments()[..] {
            return Err(super::report::several(&recording.instruments()));
        }
        if shape(recording) == Shape::Times {
            let views = super::times::asked(recording, directions, arms)?;
            let page = times::page::page(recording, &views, experiment.as_ref());
            return self.put(&html::render(&page));
        }
        let views = shown_classes(recording, directions, arms)?;
        let page = html::report_page(recording, &views, experiment.as_ref());
        self.put(&html::render(&page))
    }

    /// Write a page, say where it is, and open it if that was asked for.
    ///
    /// # Errors
    /// It can't be written or opened.
    pub(crate) fn put(&self, page: &str) -> anyhow::Result<()> {
        let path = match &self.html {
            Some(out) => {
                let target = self.target(out)?;
                target.write(page.as_bytes())?;
                if target.is_stdout() {
                    eprintln!("the page is on the standard output");
                    return Ok(());
                }
                out.clone()
            }
            None => temporary(page)?,
        };
        eprintln!("the page is {}", path.display());
        if self.open { open(&path) } else { Ok(()) }
    }
}

/// The page in a file that only its owner can read, and that stays.
fn temporary(page: &str) -> anyhow::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute() && folder.is_dir());
    let folder = runtime.unwrap_or_else(std::env::temp_dir);
    let mut file = Builder::new()
        .prefix("plumb-")
        .suffix(".html")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(&folder)
        .with_context(|| format!("can't write the page to {}", folder.display()))?;
    file.write_all(page.as_bytes())
        .with_context(|| format!("can't write the page to {}", folder.display()))?;
    let (_, path) = file.keep().context("can't keep the page")?;
    Ok(path)
}

/// Programs that may open a page, the first to be tried first: words, of which
/// `%s` is the page.
fn browsers() -> Vec<Vec<String>> {
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

/// A browser that has not failed by then has the page.
const PATIENCE: Duration = Duration::from_secs(2);

fn open(path: &Path) -> anyhow::Result<()> {
    let path = fs::canonicalize(path)?;
    for words in browsers() {
        if opens(&words, &path) {
            return Ok(());
        }
    }
    anyhow::bail!(
        "no browser here would open it: name one in $BROWSER, or copy {} to where there is one",
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
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Ctrl-C in this terminal is not for it.
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
