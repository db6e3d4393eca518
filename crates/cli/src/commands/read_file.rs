//! `plumb read-file`: read a file, as a workload for experiments and for this machine.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::{Args, Parser};
use netplumb_model::experiment::Bytes;
use netplumb_model::reads::{Access, CHUNK_BYTES, FileReads, HELD};
use netplumb_report::printable;
use netplumb_workload::reads::{Reader, said};

use crate::exit::{Usage, WrongKey};

/// The name of the command.
const NAME: &str = "read-file";

/// Arguments of `plumb read-file`.
#[derive(Debug, Args)]
pub(crate) struct ReadFileArgs {
    /// File or block device to read
    #[arg(value_name = "FILE")]
    file: String,
    /// Map the file and access each page, instead of calling read(2)
    #[arg(long)]
    mmap: bool,
    /// Read past the page cache (O_DIRECT)
    #[arg(long, conflicts_with = "mmap")]
    direct: bool,
    /// Read only N pages or chunks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Read in a pseudo-random order, the same in each run
    #[arg(long)]
    random: bool,
    /// Bytes per read(2), like 4K [default: 128K]
    #[arg(long, value_name = "BYTES", conflicts_with = "mmap")]
    chunk: Option<Bytes>,
    /// Reads in flight, by io_submit(2) [default: 1, by read(2)]
    #[arg(long, value_name = "N", requires = "direct", value_parser = clap::value_parser!(u32).range(1..=256))]
    in_flight: Option<u32>,
    /// Drop the file's pages from the page cache first
    #[arg(long)]
    cold: bool,
    /// Run COMMAND after opening the file, before reading it
    ///
    /// In guests, settings like --read-ahead 'A then B' change at that moment.
    #[arg(long, value_name = "COMMAND")]
    after_open: Option<String>,
    /// Close and reopen the file before reading it
    #[arg(long)]
    reopen: bool,
}

impl ReadFileArgs {
    /// What is to be read.
    ///
    /// # Errors
    /// It can't be read so.
    fn reads(&self) -> Result<FileReads, String> {
        /// The smallest blocks of disks.
        const SECTOR_BYTES: u32 = 512;
        let chunk_bytes = self.chunk.map_or(CHUNK_BYTES, |bytes| bytes.0.max(1));
        if self.direct && !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(format!(
                "--chunk {chunk_bytes}: with --direct expected a multiple of {SECTOR_BYTES} bytes, or of the disk's blocks, \
                 if these are larger"
            ));
        }
        Ok(FileReads {
            path: self.file.clone(),
            access: match (self.mmap, self.direct) {
                (true, _) => Access::Mmap,
                (false, true) => Access::Direct,
                (false, false) => Access::Read,
            },
            count: self.count,
            random: self.random,
            chunk_bytes,
            cold: self.cold,
            reopen: self.reopen,
            in_flight: self.in_flight.unwrap_or(1),
        })
    }
}

/// Whether a command is this program's own: by the name `plumb`, whatever is found by that, or by a path of this very
/// file.
pub(crate) fn is_own(words: &[String]) -> bool {
    let is_this = |program: &str| {
        let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        let own = file(Path::new("/proc/self/exe"));
        program.contains('/') && own.is_some() && file(Path::new(program)) == own
    };
    matches!(words, [program, name, ..] if name == NAME && (program == "plumb" || is_this(program)))
}

/// What a command of a guest reads, if it is `plumb read-file`.
///
/// # Errors
/// Its arguments are wrong.
pub(crate) fn in_guest(words: &[String]) -> anyhow::Result<Option<FileReads>> {
    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Own {
        #[command(flatten)]
        args: ReadFileArgs,
    }
    if !is_own(words) {
        return Ok(None);
    }
    let arguments = &words[2..];
    let wrong = |why: String| {
        let line = printable(&words.join(" "), 200);
        WrongKey::usage("command", format!("`{line}`: {why}"))
    };
    let own = Own::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        let lines = text.lines().take_while(|line| !line.starts_with("Usage"));
        let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
        wrong(lines.join(" ").trim_start_matches("error: ").into())
    })?;
    if own.args.after_open.is_some() {
        let why = "--after-open is for this machine; in a guest a knob changes settings then, like \
                   read_ahead_kb = \"2048 then 128\"";
        return Err(wrong(why.into()).into());
    }
    if !own.args.file.starts_with('/') {
        return Err(wrong("expected a path in the guest, like /disk/data".into()).into());
    }
    own.args.reads().map(Some).map_err(|why| wrong(why).into())
}

/// Read it.
///
/// # Errors
/// It can't be read, or the command fails.
pub(crate) fn run(args: &ReadFileArgs) -> anyhow::Result<ExitCode> {
    let reads = args.reads().map_err(Usage)?;
    if Path::new(&args.file).is_dir() {
        return Err(Usage(format!(
            "{} is a directory; expected a file",
            printable(&args.file, 200)
        ))
        .into());
    }
    let shown = printable(&args.file, 200);
    let failed = || format!("can't read {shown}");
    let mut reader = Reader::open(&reads).with_context(failed)?;
    if let Some(line) = &args.after_open {
        after_open(line)?;
    }
    held()?;
    reader = reader.reopen().with_context(failed)?;
    reader.prepare().with_context(failed)?;
    let total = reader.run().with_context(failed)?;
    print!("{}", said(&total));
    Ok(ExitCode::SUCCESS)
}

/// Wait until settings are changed, if this is a run of an experiment that does that now.
fn held() -> anyhow::Result<()> {
    let Ok(number) = std::env::var(HELD) else {
        return Ok(());
    };
    let wrong = || Usage(format!("invalid {HELD}; expected the descriptor of a socket"));
    let number: RawFd = number.parse().map_err(|_| wrong())?;
    if number <= libc::STDERR_FILENO {
        return Err(wrong().into());
    }
    // SAFETY: whoever set the variable passed the descriptor on to this process, which uses it nowhere
    // else; of any other number, a read or write fails.
    let mut socket = unsafe { UnixStream::from_raw_fd(number) };
    let exchanged = socket.write_all(&[1]).and_then(|()| socket.read_exact(&mut [0]));
    exchanged.context("can't wait for settings to be changed")
}

fn after_open(line: &str) -> anyhow::Result<()> {
    let shown = printable(line, 200);
    let words = shell_words::split(line).ok();
    let words = words
        .filter(|words| !words.is_empty())
        .ok_or_else(|| Usage(format!("invalid --after-open `{shown}`; expected a command")))?;
    let status = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("--after-open: can't run `{shown}`"))?;
    if !status.success() {
        bail!("--after-open: `{shown}` failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    /// Check that only this program's own command is read in a guest, with its arguments, and that
    /// wrong ones are refused before anything boots.
    #[test]
    fn commands_of_guests() {
        let read = |line: &str| in_guest(&words(line));
        assert!(read("cat /disk/data").unwrap().is_none());
        assert!(read("plumb").unwrap().is_none());
        let found = read("plumb read-file /disk/data --mmap --reopen").unwrap();
        let found = found.unwrap();
        assert_eq!((found.access, found.reopen), (Access::Mmap, true));
        assert_eq!(found.path, "/disk/data");
        let own = std::env::current_exe().unwrap().display().to_string();
        let found = read(&format!("{own} read-file /disk/data")).unwrap();
        assert_eq!(found.unwrap().path, "/disk/data");
        assert!(read("/bin/sh read-file /disk/data").unwrap().is_none());
        assert!(read("/nowhere/plumb read-file x").unwrap().is_none());
        let found = read("plumb read-file /dev/plumb --chunk 1M").unwrap();
        assert_eq!(found.unwrap().chunk_bytes, 1 << 20);
        for (line, says) in [
            ("plumb read-file", "FILE"),
            ("plumb read-file data", "path in the guest"),
            ("plumb read-file /disk/data --map", "--map"),
            ("plumb read-file /disk/data --after-open sync", "then 128"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
