//! `--html` and `--open`: the report as a page, for `report`, `path` and `run`.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use netplumb_model::bench::BenchFile;
use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::html;
use netplumb_report::rates::{self, is_bench};
use netplumb_report::times::{self, is_timed};
use tempfile::{Builder, NamedTempFile};

use super::report::shown_classes;
use crate::exit::Usage;

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
            Target::of(out)?.try_out()?;
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
        if is_bench(recording) {
            let file = match recording.experiment_toml.as_str() {
                "" => None,
                text => Some(BenchFile::parse(text)?),
            };
            let page = rates::page::of_recording(recording, file.as_ref());
            return self.put(&html::render(&page));
        }
        let experiment = match recording.experiment_toml.as_str() {
            "" => None,
            text => Some(Experiment::parse(text)?),
        };
        if is_timed(recording) {
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
                Target::of(out)?.write(page)?;
                out.clone()
            }
            None => temporary(page)?,
        };
        eprintln!("the page is {}", path.display());
        if self.open { open(&path) } else { Ok(()) }
    }
}

/// Where a file is to go.
enum Target {
    /// It replaces what is of its name, when it is whole.
    File(PathBuf),
    /// A pipe or a device, into which it is written.
    Stream(PathBuf),
}

/// How a recording begins: it is one command's input, and easily given as its
/// output too.
const SQLITE: &[u8] = b"SQLite format 3\0";

impl Target {
    fn of(out: &Path) -> anyhow::Result<Target> {
        let unwritable = || format!("can't write the page to {}", out.display());
        let kind = match fs::metadata(out) {
            Ok(metadata) => metadata.file_type(),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !out.is_symlink() => {
                return Ok(Target::File(out.to_path_buf()));
            }
            Err(e) => return Err(e).with_context(unwritable),
        };
        if kind.is_dir() {
            return Err(Usage(format!(
                "{} is a folder: give the page a name in it",
                out.display()
            ))
            .into());
        }
        if kind.is_fifo() || kind.is_char_device() {
            return Ok(Target::Stream(out.to_path_buf()));
        }
        let mut begin = Vec::new();
        let read = File::open(out).map(|f| f.take(SQLITE.len() as u64).read_to_end(&mut begin));
        if read.is_ok() && begin == SQLITE {
            return Err(Usage(format!(
                "{} is a recording, which a page would replace: give the page another name",
                out.display()
            ))
            .into());
        }
        // A link stays one, and what it leads to is replaced.
        Ok(Target::File(
            fs::canonicalize(out).with_context(unwritable)?,
        ))
    }

    /// Whether it could be written: leaves nothing behind.
    fn try_out(&self) -> anyhow::Result<()> {
        match self {
            Target::File(path) => beside(path).map(drop),
            Target::Stream(_) => Ok(()),
        }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        match self {
            Target::File(path) => {
                let unwritable = || format!("can't write the page to {}", path.display());
                let mut file = beside(path)?;
                file.write_all(text.as_bytes()).with_context(unwritable)?;
                file.persist(path).with_context(unwritable)?;
            }
            Target::Stream(path) => File::options()
                .write(true)
                .open(path)
                .and_then(|mut stream| stream.write_all(text.as_bytes()))
                .with_context(|| format!("can't write the page to {}", path.display()))?,
        }
        Ok(())
    }
}

/// A file beside another that will take its place; gone if it does not.
fn beside(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Builder::new()
        .prefix(".plumb-")
        .suffix(".html")
        // Less what the user's umask takes away.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(|| format!("can't write the page to {}", path.display()))
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
