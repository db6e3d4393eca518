//! Files that people name: written where that harms nothing, and read with a bound.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use netplumb_report::printable;
use netplumb_store::target::{Contents, Target, TargetError};

use crate::exit::Usage;

/// Where a file goes that is no recording.
#[derive(Debug)]
pub(crate) struct Out {
    target: Target,
    /// As it was given.
    path: PathBuf,
}

impl Out {
    /// What a name stands for.
    ///
    /// # Errors
    /// It takes no file, or it is a recording: that is one command's input, and easily given
    /// as its output too.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Out> {
        let target = Target::of(path).map_err(|error| match error {
            TargetError::Unfit { path, what } => Usage(format!(
                "can't write {}: it is {what}; it takes a file or a pipe",
                shown(&path)
            ))
            .into(),
            TargetError::Io { path, source } => cannot_write(&path, source),
        })?;
        let contents = target.contents().map_err(|e| cannot_write(path, e))?;
        if matches!(contents, Contents::Recording | Contents::Database) {
            return Err(Usage(format!(
                "{} is a recording, and would be overwritten; give another name, and name the \
                 recording to be read before the option",
                shown(path)
            ))
            .into());
        }
        Ok(Out {
            target,
            path: path.into(),
        })
    }

    /// Whether it is the standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.target == Target::Stdout
    }

    /// Whether it has a name when it is written.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.target, Target::New(_) | Target::File(_))
    }

    /// Whether it could be written: leaves nothing behind.
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
            // A reader that has seen enough (`| head`) is no error.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(e).context("can't write to the standard output")
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

/// How long a pipe may be silent before it counts as one that nobody writes to.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file's bytes, if they are not more than `most`. A pipe is read too.
///
/// # Errors
/// It can't be read, is too long, or no file.
pub(crate) fn read(path: &Path, most: u64, what: &str) -> anyhow::Result<Vec<u8>> {
    let told = || format!("{}: can't read it", shown(path));
    // To open a pipe would be to wait for who writes to it.
    let mut file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .with_context(told)?;
    let kind = file.metadata().with_context(told)?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        let is = if kind.is_dir() {
            "a folder"
        } else {
            "a device"
        };
        return Err(Usage(format!(
            "{}: it is {is}, and no file of {what}",
            shown(path)
        ))
        .into());
    }
    let mut bytes = Vec::new();
    if kind.is_file() {
        file.take(most + 1).read_to_end(&mut bytes)
    } else {
        from_pipe(&mut file, most, &mut bytes)
    }
    .with_context(told)?;
    if bytes.len() as u64 > most {
        return Err(Usage(format!(
            "{}: more than {} are too many for {what}",
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
/// As [`read`]; it is no UTF-8.
pub(crate) fn read_text(path: &Path, most: u64, what: &str) -> anyhow::Result<String> {
    String::from_utf8(read(path, most, what)?)
        .map_err(|_| anyhow!("{}: can't read it: it is not UTF-8", shown(path)))
}

/// Whether nothing of a file may be shown in a message: as root one reads what others may not.
pub(crate) fn is_private(path: &Path) -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    root && fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o004 == 0)
}

/// Said in place of what is wrong with such a file.
pub(crate) const PRIVATE: &str =
    "something is wrong with it, and as others may not read this file, nothing of it is shown";

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
    let mut ask = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // SAFETY: one structure, as is said, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut ask, 1, left.as_millis() as i32) };
        match ready {
            0 => {
                let why = format!("nothing came out of this pipe in {} s", PATIENCE.as_secs());
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
