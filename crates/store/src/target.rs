//! What is at a name that a file is to be written to, and the one way to put a file there.
//!
//! Only a regular file is ever replaced, or a name taken that is free. A link stays one, and
//! what it leads to is meant. Into pipes and character devices is written; nothing else has
//! bytes of ours to expect.
//!
//! A file gets its name when it is whole. Until then it has none where the file system can do
//! that, so that a program that is killed leaves nothing.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl};
use tempfile::{Builder, NamedTempFile, TempPath};

use crate::APPLICATION_ID;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Nothing as yet.
    New(PathBuf),
    /// A regular file, by the name that links lead to.
    File(PathBuf),
    /// A pipe or a character device.
    Stream(PathBuf),
    /// The standard output.
    Stdout,
}

/// Why a name can't be written to.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// What it stands for takes no file.
    #[error("can't write {}: it is {what}", .path.display())]
    Unfit {
        /// As it was given.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The system would not.
    #[error("can't write {}: {source}", .path.display())]
    Io {
        /// As it was given.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What is in a file, as far as it tells whether it may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Nothing.
    Empty,
    /// A recording, whole or not.
    Recording,
    /// Another program's database.
    Database,
    /// Anything else.
    Other,
}

/// As many links may follow each other, as the kernel has it.
const LINKS_MAX: usize = 40;

/// How a database begins.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// Where `application_id` is in it, big-endian.
const APPLICATION_ID_AT: usize = 68;

impl Target {
    /// What a name stands for.
    ///
    /// # Errors
    /// See [`TargetError`]; a file that is not there is none.
    pub fn of(out: &Path) -> Result<Target, TargetError> {
        let failed = |source| TargetError::Io {
            path: out.into(),
            source,
        };
        let unfit = |what| {
            Err(TargetError::Unfit {
                path: out.into(),
                what,
            })
        };
        if out == "-" {
            return Ok(Target::Stdout);
        }
        // Asked of the kernel first, which has rules of its own for links of others.
        let kind = match fs::metadata(out) {
            Ok(metadata) => Some(metadata.file_type()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        if kind.is_some_and(|kind| kind.is_dir()) || out.as_os_str().as_bytes().ends_with(b"/") {
            return unfit("a directory");
        }
        let path = follow(out).map_err(failed)?;
        // A descriptor of a process. What it is of has a name perhaps, and is open under none.
        if path.starts_with("/proc") {
            return Ok(match is_stdout(&path) {
                true => Target::Stdout,
                false => Target::Stream(out.into()),
            });
        }
        match kind {
            None => Ok(Target::New(path)),
            Some(kind) if kind.is_file() => Ok(Target::File(path)),
            Some(kind) if kind.is_fifo() || kind.is_char_device() => Ok(Target::Stream(out.into())),
            Some(kind) => unfit(named(kind)),
        }
    }

    /// Whether it could be written: leaves nothing behind.
    ///
    /// # Errors
    /// There is no folder, or it can't be written to.
    pub fn try_out(&self) -> io::Result<()> {
        match self {
            Target::New(path) | Target::File(path) => Unnamed::beside(path).map(drop),
            Target::Stream(_) | Target::Stdout => Ok(()),
        }
    }

    /// Write a file, all of it or nothing. Bytes for the standard output are the caller's
    /// to print.
    ///
    /// # Errors
    /// The disk is full, or as for [`Target::try_out`].
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::New(path) => Unnamed::holding(path, bytes)?.link(path),
            Target::File(path) => Unnamed::holding(path, bytes)?.replace(path),
            Target::Stream(path) => stream(path)?.write_all(bytes),
            Target::Stdout => Ok(()),
        }
    }

    /// What is there, where that is a regular file.
    ///
    /// # Errors
    /// It can't be read.
    pub fn contents(&self) -> io::Result<Contents> {
        match self {
            Target::File(path) => contents(path),
            _ => Ok(Contents::Empty),
        }
    }
}

/// How long a pipe may be without a reader.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(20);

/// Open a pipe or a device. A pipe that nobody reads is not waited for without end.
fn stream(path: &Path) -> io::Result<File> {
    let begun = Instant::now();
    loop {
        let open = File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        match open {
            Ok(file) => {
                // From here on a reader sets the pace.
                let flags = fcntl_getfl(&file)?;
                fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
                return Ok(file);
            }
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
                if begun.elapsed() > PATIENCE {
                    let why = format!("no reader of the pipe for {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                sleep(NAP);
            }
            Err(e) => return Err(e),
        }
    }
}

fn named(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_char_device() {
        "a device"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "not a regular file"
    }
}

/// The name that links lead to, whether there is anything or not.
fn follow(out: &Path) -> io::Result<PathBuf> {
    let mut path = out.to_path_buf();
    for _ in 0..LINKS_MAX {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = folder_of(&path).canonicalize()?;
        let here = folder.join(name);
        if here.starts_with("/proc") {
            return Ok(here);
        }
        match fs::symlink_metadata(&here) {
            Ok(metadata) if metadata.is_symlink() => path = folder.join(fs::read_link(&here)?),
            Ok(_) => return Ok(here),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(here),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new(&format!("/proc/{}/fd/1", std::process::id()))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// What is in a file.
pub(crate) fn contents(path: &Path) -> io::Result<Contents> {
    const LENGTH: usize = APPLICATION_ID_AT + 4;
    let mut begin = Vec::with_capacity(LENGTH);
    File::open(path)?
        .take(LENGTH as u64)
        .read_to_end(&mut begin)?;
    Ok(match begin.as_slice() {
        [] => Contents::Empty,
        begin if !begin.starts_with(SQLITE) => Contents::Other,
        begin if begin.get(APPLICATION_ID_AT..) == Some(&APPLICATION_ID.to_be_bytes()) => {
            Contents::Recording
        }
        _ => Contents::Database,
    })
}

/// A name with something after it.
pub(crate) fn with_suffix(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A file that gets its name when it is whole.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    folder: PathBuf,
    /// One that nobody looks for, where the file system has no files without any.
    name: Option<TempPath>,
}

impl Unnamed {
    /// One in the folder of another.
    pub(crate) fn beside(path: &Path) -> io::Result<Unnamed> {
        let folder = folder_of(path).to_path_buf();
        // As any file: less what the umask takes.
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(&folder, flags, mode) {
            Ok(file) => Ok(Unnamed {
                file: file.into(),
                folder,
                name: None,
            }),
            // The kernel or the file system has none: open(2).
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let (file, name) = named_builder()
                    .permissions(Permissions::from_mode(0o666))
                    .tempfile_in(&folder)
                    .map_err(plain)?
                    .into_parts();
                Ok(Unnamed {
                    file,
                    folder,
                    name: Some(name),
                })
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The same with these bytes in it, on the disk.
    pub(crate) fn holding(path: &Path, bytes: &[u8]) -> io::Result<Unnamed> {
        let mut new = Unnamed::beside(path)?;
        new.file.write_all(bytes)?;
        new.file.sync_all()?;
        Ok(new)
    }

    /// Give it a name that is free.
    pub(crate) fn link(self, path: &Path) -> io::Result<()> {
        match self.name {
            None => link(&self.file, path),
            Some(name) => name.persist_noclobber(path).map_err(|e| e.error),
        }
    }

    /// Let it take the place of a file, with that one's permissions.
    pub(crate) fn replace(self, path: &Path) -> io::Result<()> {
        let before = fs::metadata(path)?.permissions();
        self.file.set_permissions(before)?;
        let name = match self.name {
            Some(name) => name,
            None => {
                let linked = named_builder().make_in(&self.folder, |name| link(&self.file, name));
                let named: NamedTempFile<()> = linked.map_err(plain)?;
                named.into_temp_path()
            }
        };
        name.persist(path).map_err(|e| e.error)
    }
}

fn named_builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".plumb-");
    builder
}

/// linkat(2): what has no name is named by its descriptor.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, fd, CWD, path, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(io::Error::from)
}

/// An error without a name in it of a file that nobody asked for.
fn plain(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(std::error::Error::source);
    let code = cause
        .and_then(|c| c.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    code.map_or(error, io::Error::from_raw_os_error)
}
