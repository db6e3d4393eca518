//! `plumb import`: a recording of another program's file.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use netplumb_import::{ImportError, Options, damage, foreign, perf_data, perf_data_of};
use netplumb_model::loss::Loss;
use netplumb_model::recording::{Recording, env};
use netplumb_model::samples::Samples;
use netplumb_model::text::thousands;
use netplumb_report::printable;
use netplumb_store::{Output, Writer};

use crate::exit::Usage;

/// The most that is read of a pipe.
const MAX_STDIN_BYTES: u64 = 16 << 30;

/// Arguments of `plumb import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// perf.data file, or - for standard input
    ///
    /// A file of `perf record`, compressed (-z) or not, or from a pipe (-o -), or a directory of
    /// `perf record --threads`.
    #[arg(default_value = "perf.data")]
    file: PathBuf,
    /// Recording to write [default: the file's name with .plumb]
    ///
    /// An existing recording is renamed to NAME.plumb.old, or NAME.plumb.old.1 and so on.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of blocks of equal time, for confidence intervals and comparisons
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: u32,
    /// Kernel symbols: a copy of /proc/kallsyms of the sampled machine
    ///
    /// [default: perf's cache, or this machine's symbols if the kernel is the same]
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// Root directory of the sampled machine's files [default: /]
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
}

/// Read, and write the recording.
///
/// # Errors
/// The file is not a perf.data file, or has no samples; the recording can't be written.
pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    if let Some(root) = args.symfs.as_ref().filter(|root| !root.is_dir()) {
        return Err(Usage(format!("--symfs {}: no such directory", root.display())).into());
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => default_output(&args.file),
    };
    // An earlier recording must not be lost for a file that can't be imported.
    let output = Output::claim(&path)?;
    let options = Options {
        blocks: args.blocks,
        kallsyms: args.kallsyms.clone(),
        symfs: args.symfs.clone(),
        cache: std::env::home_dir().map(|home| home.join(".debug")),
    };
    let imported = match is_stdin(&args.file) {
        true => perf_data_of(standard_input, Path::new("standard input"), &options),
        false => perf_data(&args.file, &options),
    };
    let mut recording = imported.map_err(|error| match error {
        error @ ImportError::Kallsyms { .. } => Usage(error.to_string()).into(),
        error => anyhow::Error::from(error),
    })?;
    let own = [
        (env::PLUMB, env!("CARGO_PKG_VERSION").to_string()),
        (env::ARGV, std::env::args().collect::<Vec<_>>().join(" ")),
    ];
    for (key, value) in own {
        recording.environment.insert(key.into(), value);
    }
    let writer = Writer::begin(output, &recording).map_err(|(error, _)| error)?;
    eprintln!("{}", summary(&recording, &path));
    if let Some(why) = foreign(&recording) {
        eprintln!("plumb: {}: {}", args.file.display(), printable(&why, 500));
    }
    for loss in damage(&recording) {
        eprintln!("plumb: {}: {}", args.file.display(), said(loss));
    }
    if let Some(kept) = writer.kept() {
        eprintln!("renamed the existing recording to {}", kept.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What is missing, and what that means.
fn said(loss: &Loss) -> String {
    let (cause, meaning) = (printable(&loss.cause, 80), printable(&loss.meaning, 200));
    match loss.count {
        1 => format!("{cause}: {meaning}"),
        count => format!("{} {cause}: {meaning}", thousands(count)),
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Standard input as a file: itself, or what comes through a pipe, in a temporary file that nobody else
/// can open, for tables of contents are at the end.
fn standard_input() -> io::Result<File> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        let why = "it is a terminal; expected a file or a pipe, as from `perf record -o -`";
        return Err(io::Error::other(why));
    }
    let of_own = File::from(stdin.as_fd().try_clone_to_owned()?);
    if of_own.metadata()?.is_file() {
        return Ok(of_own);
    }
    let mut file = tempfile::tempfile()?;
    let copied = io::copy(&mut (&mut stdin).take(MAX_STDIN_BYTES + 1), &mut file)?;
    if copied > MAX_STDIN_BYTES {
        let why = "more than 16 GB; import it from a file";
        return Err(io::Error::other(why));
    }
    file.rewind()?;
    Ok(file)
}

/// In the working directory, whatever the file's.
fn default_output(file: &Path) -> PathBuf {
    if is_stdin(file) {
        return PathBuf::from("perf.plumb");
    }
    let name = file.file_name().map_or("perf".as_ref(), Path::new);
    name.with_extension("plumb")
}

fn summary(recording: &Recording, path: &Path) -> String {
    let samples: usize = recording.samples.iter().map(Samples::len).sum();
    format!(
        "imported {} samples of {} functions in {}",
        thousands(samples as u64),
        thousands(recording.functions.len() as u64),
        path.display()
    )
}
