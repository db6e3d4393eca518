//! The formats of other tools: which was asked for, where it goes, and writing it.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};
use netplumb_report::analysis::ClassView;
use netplumb_report::terminal::View;
use netplumb_report::times::{self, TimedClass, is_timed};
use netplumb_report::{callgrind, folded, markdown, pprof, printable, speedscope, svg};

use crate::exit::Usage;

/// Instead of tables, something for another program. OUT is a file; without it, or
/// as `-`, the standard output.
#[derive(Debug, Default, Args)]
#[group(
    id = "format",
    multiple = false,
    conflicts_with_all = ["csv", "json", "tree", "focus"]
)]
pub(crate) struct OutputArgs {
    /// Folded stacks, for flamegraph.pl, inferno or speedscope
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    folded: Option<PathBuf>,
    /// A callgrind profile, for KCachegrind and callgrind_annotate
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    callgrind: Option<PathBuf>,
    /// A pprof profile, for `go tool pprof`
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    pprof: Option<PathBuf>,
    /// JSON for speedscope.app
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    speedscope: Option<PathBuf>,
    /// Figures for a paper, as SVG
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    svg: Option<PathBuf>,
    /// Markdown, for a patch's cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    markdown: Option<PathBuf>,
    /// Of times: histograms as OpenMetrics text
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    openmetrics: Option<PathBuf>,
    /// Of packets told one by one: a trace, for ui.perfetto.dev and chrome://tracing
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    perfetto: Option<PathBuf>,
}

/// One of the formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Folded,
    Callgrind,
    Pprof,
    Speedscope,
    Svg,
    Markdown,
    OpenMetrics,
    Perfetto,
}

impl OutputArgs {
    /// What was asked for, if anything was.
    fn chosen(&self) -> Option<(Format, &Path)> {
        [
            (Format::Folded, &self.folded),
            (Format::Callgrind, &self.callgrind),
            (Format::Pprof, &self.pprof),
            (Format::Speedscope, &self.speedscope),
            (Format::Svg, &self.svg),
            (Format::Markdown, &self.markdown),
            (Format::OpenMetrics, &self.openmetrics),
            (Format::Perfetto, &self.perfetto),
        ]
        .into_iter()
        .find_map(|(format, out)| Some((format, out.as_deref()?)))
    }

    /// Whether one is asked for.
    pub(super) fn wanted(&self) -> bool {
        self.chosen().is_some()
    }

    /// What can be said to be wrong before anything is measured.
    ///
    /// # Errors
    /// A binary format on a terminal, or a file that can't be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some((format, out)) = self.chosen() else {
            return Ok(());
        };
        if is_stdout(out) {
            if format == Format::Pprof && io::stdout().is_terminal() {
                return Err(Usage(
                    "a pprof profile is binary, and this is a terminal: give it a file, as in \
                     `--pprof out.pb.gz`, or a pipe"
                        .into(),
                )
                .into());
            }
            return Ok(());
        }
        if is_recording(out) {
            return Err(Usage(format!(
                "{} is a recording, and would be overwritten; to print it, name it before the option",
                out.display()
            ))
            .into());
        }
        if !is_special(out) {
            temporary(out)?;
        }
        Ok(())
    }

    /// Write what was asked for; false if nothing was.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn write(
        &self,
        recording: &Recording,
        views: &[ClassView<'_>],
        experiment: Option<&Experiment>,
        view: &View,
        times: &[TimedClass<'_>],
    ) -> anyhow::Result<bool> {
        let Some((format, out)) = self.chosen() else {
            return Ok(false);
        };
        can_be(format, recording, views)?;
        let layer = view.layer.as_deref();
        let bytes = match format {
            Format::Folded => folded::render(views).into_bytes(),
            Format::Callgrind => callgrind::render(recording, views).into_bytes(),
            Format::Pprof => pprof::render(recording, views),
            Format::Speedscope => {
                let name = recording.environment.get(env::NAME);
                let title = match experiment.map(|e| e.title.as_str()) {
                    Some(title) if !title.is_empty() => title,
                    _ => name.map_or("plumb", |n| n),
                };
                speedscope::render(views, title, env!("CARGO_PKG_VERSION")).into_bytes()
            }
            Format::Svg => svg::render(recording, views, experiment, layer).into_bytes(),
            Format::Markdown if is_timed(recording) => {
                times::markdown::render(recording, times, view).into_bytes()
            }
            Format::Markdown => markdown::render(recording, views, experiment, view).into_bytes(),
            Format::OpenMetrics => times::openmetrics::render(recording, times).into_bytes(),
            Format::Perfetto => times::trace::render(recording).into_bytes(),
        };
        put(out, &bytes)?;
        Ok(true)
    }
}

/// Whether there is anything to be written in a format.
fn can_be(format: Format, recording: &Recording, views: &[ClassView<'_>]) -> anyhow::Result<()> {
    let timed = is_timed(recording);
    let why = match format {
        Format::OpenMetrics if !timed => {
            "the recording has instructions and no times, so there is no histogram; `--csv` and `--json` have \
             its figures"
        }
        Format::Perfetto if recording.steps.is_empty() => {
            "the recording has no packet that was told one by one: `plumb path --one-packet` records some"
        }
        Format::Folded | Format::Callgrind | Format::Pprof | Format::Speedscope | Format::Svg
            if timed && views.is_empty() =>
        {
            "the recording has no times of functions, and stages are no calls; `--openmetrics`, `--markdown`, \
             `--csv` and `--json` have them"
        }
        _ => return Ok(()),
    };
    Err(Usage(why.into()).into())
}

/// Write to a file, all or nothing, or to the standard output.
fn put(out: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if is_stdout(out) {
        let mut stdout = io::stdout();
        return match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            // A reader that has seen enough (`| head`) is no error.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(e).context("can't write to the standard output")
            }
            _ => Ok(()),
        };
    }
    let told = || format!("can't write {}", shown(out));
    // What is no file, like /dev/null or a named pipe, is not to be replaced by one.
    if is_special(out) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(out)
            .and_then(|mut file| file.write_all(bytes))
            .with_context(told);
    }
    let mut file = temporary(out)?;
    file.write_all(bytes).with_context(told)?;
    file.persist(target(out))
        .map_err(|e| e.error)
        .with_context(told)?;
    Ok(())
}

fn is_stdout(out: &Path) -> bool {
    out.as_os_str() == "-"
}

fn is_special(out: &Path) -> bool {
    std::fs::metadata(out).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

/// Where a link leads: it stays one.
fn target(out: &Path) -> PathBuf {
    out.canonicalize().unwrap_or_else(|_| out.to_path_buf())
}

/// A file beside the one that is to be, which becomes it when it is whole.
fn temporary(out: &Path) -> anyhow::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let target = target(out);
    if target.is_dir() {
        anyhow::bail!("can't write {}: it is a folder", shown(out));
    }
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".plumb-")
        // As any file: less what the umask takes.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(|e| {
            // The error below has no name in it, of a file that nobody asked for.
            let cause = e.get_ref().and_then(std::error::Error::source);
            let code = cause
                .and_then(|c| c.downcast_ref::<io::Error>())
                .and_then(io::Error::raw_os_error);
            code.map_or(e, io::Error::from_raw_os_error)
        })
        .with_context(|| format!("can't write {}", shown(out)))
}

/// Whether a recording is there: the file name of one, where OUT may stand, is
/// easily taken for it.
fn is_recording(out: &Path) -> bool {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    let mut start = [0; MAGIC.len()];
    out.is_file()
        && std::fs::File::open(out)
            .and_then(|mut file| file.read_exact(&mut start))
            .is_ok()
        && start == *MAGIC
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string(), 400)
}
