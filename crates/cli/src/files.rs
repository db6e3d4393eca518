//! Files named by users: written only where that overwrites nothing valuable, and read up to a
//! limit.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use netplumb_report::printable;
use netplumb_store::target::{Contents, Target, TargetError};

use crate::exit::Usage;

/// The path of a file of an experiment, which has to be below its directory, with symbolic links
/// resolved; none of one that is not. An experiment by someone else, run as root, must not be able
/// to name any file.
///
/// # Errors
/// There is no such file.
pub(crate) fn below(folder: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(name).components().all(plain) {
        return Ok(None);
    }
    let real = folder.join(name).canonicalize()?;
    let is_below = real.starts_with(folder.canonicalize()?);
    Ok(is_below.then_some(real))
}

/// The target of an output that is not a recording.
#[derive(Debug)]
pub(crate) struct Out {
    target: Target,
    /// The given path.
    path: PathBuf,
}

impl Out {
    /// The target of a name.
    ///
    /// # Errors
    /// It can't be written to, or it is a recording, which is an input and easily given as an
    /// output by mistake.
    pub(crate) fn from_path(path: &Path) -> anyhow::Result<Out> {
        let target = Target::from_path(path).map_err(|error| match error {
            TargetError::Unfit { path, what } => Usage(format!(
                "can't write {}: it is {what}; expected a file or a pipe",
                shown(&path)
            ))
            .into(),
            TargetError::Io { path, source } => cannot_write(&path, source),
        })?;
        let contents = target.contents().map_err(|e| cannot_write(path, e))?;
        if matches!(contents, Contents::Recording | Contents::Database) {
            return Err(Usage(format!(
                "{} is a recording, and would be overwritten; give another name, and the recording \
                 to read before the option",
                shown(path)
            ))
            .into());
        }
        Ok(Out { target, path: path.into() })
    }

    /// The same, if nothing is overwritten, or that is asked for.
    ///
    /// # Errors
    /// There is a file with something in it.
    pub(crate) fn only_new(self, overwrite: bool) -> anyhow::Result<Out> {
        let contents = self.target.contents();
        let contents = contents.map_err(|e| cannot_write(&self.path, e))?;
        match contents {
            Contents::Empty => Ok(self),
            _ if overwrite => Ok(self),
            _ => Err(Usage(format!(
                "{} exists, and would be overwritten; give another name, or --overwrite",
                shown(&self.path)
            ))
            .into()),
        }
    }

    /// Whether it is the standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.target == Target::Stdout
    }

    /// Whether it is a file on disk.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.target, Target::New(_) | Target::File(_))
    }

    /// Check that it can be written, leaving nothing behind.
    ///
    /// # Errors
    /// It can't.
    pub(crate) fn try_out(&self) -> anyhow::Result<()> {
        let tried = self.target.try_out();
        tried.map_err(|e| cannot_write(&self.path, e))
    }

    /// Write it, all or nothing.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn write(&self, bytes: &[u8]) -> anyhow::Result<()> {
        if !self.is_stdout() {
            let written = self.target.write(bytes);
            return written.map_err(|e| cannot_write(&self.path, e));
        }
        let mut stdout = io::stdout();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            // A closed pipe (`| head`) is not an error.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(e).context("can't write to standard output")
            }
            _ => Ok(()),
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow!(error).context(format!("can't write {}", shown(path)))
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string(), 400)
}

/// How long to wait for data from a pipe.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of a file or pipe, at most `most`.
///
/// # Errors
/// It can't be read, is too large, or is neither a file nor a pipe.
pub(crate) fn read(path: &Path, most: u64, what: &str) -> anyhow::Result<Vec<u8>> {
    let what_failed = || format!("can't read {}", shown(path));
    // Opening a pipe would block until it is opened for writing.
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .with_context(what_failed)?;
    let kind = file.metadata().with_context(what_failed)?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        let is = if kind.is_dir() { "a directory" } else { "a device" };
        return Err(Usage(format!("{}: is {is}; expected {what}", shown(path))).into());
    }
    let mut bytes = Vec::new();
    if kind.is_file() {
        file.take(most + 1).read_to_end(&mut bytes)
    } else {
        from_pipe(&mut file, most, &mut bytes)
    }
    .with_context(what_failed)?;
    if bytes.len() as u64 > most {
        return Err(Usage(format!(
            "{}: larger than {}, the limit for {what}",
            shown(path),
            size(most)
        ))
        .into());
    }
    Ok(bytes)
}

/// A file's text, as [`read`].
///
/// # Errors
/// As [`read`]; it is not UTF-8.
pub(crate) fn read_text(path: &Path, most: u64, what: &str) -> anyhow::Result<String> {
    String::from_utf8(read(path, most, what)?)
        .map_err(|_| anyhow!("can't read {}: not valid UTF-8", shown(path)))
}

/// Whether messages must not quote a file: root reads files that others may not.
pub(crate) fn is_private(path: &Path) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    root && fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o004 == 0)
}

/// The message in place of an error in a file that others may not read.
pub(crate) const PRIVATE: &str =
    "invalid; details are not shown, since other users may not read this file";

fn from_pipe(pipe: &mut File, most: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 1 << 16];
    while bytes.len() as u64 <= most {
        wait_for(pipe)?;
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes.len())
}

/// Wait until a pipe has something, or its end.
fn wait_for(pipe: &File) -> io::Result<()> {
    let mut ask = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // SAFETY: one structure, as the count is, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut ask, 1, left.as_millis() as i32) };
        match ready {
            0 => {
                let why = format!("no data from this pipe for {} s", PATIENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            n if n > 0 => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mib => format!("{mib} MiB"),
    }
}
