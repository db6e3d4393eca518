//! Targets of output files, and the only way to write them.
//!
//! Only regular files are replaced, or new names used. Links are followed. Pipes and character
//! devices are written to; anything else is refused.
//!
//! A file gets its name when it is complete. Before that it has none, if the file system supports
//! it, so that a killed program leaves nothing behind.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl};
use tempfile::{Builder, NamedTempFile, TempPath};

use crate::APPLICATION_ID;

/// What a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// No file yet.
    New(PathBuf),
    /// A regular file, with links resolved.
    File(PathBuf),
    /// A pipe or a character device.
    Stream(PathBuf),
    /// The standard output.
    Stdout,
}

/// Why a name can't be written to.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It can't be replaced by a file.
    #[error("can't write {}: it is {what}", .path.display())]
    Unfit {
        /// The given path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A system call failed.
    #[error("can't write {}: {source}", .path.display())]
    Io {
        /// The given path.
        path: PathBuf,
        /// The failed system call's error.
        source: io::Error,
    },
}

/// The kind of a file's contents, which decides whether it may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Nothing.
    Empty,
    /// A recording, complete or not.
    Recording,
    /// Another program's database.
    Database,
    /// Anything else.
    Other,
}

/// The kernel's limit on symbolic links in a path.
const LINKS_MAX: usize = 40;

/// The magic of SQLite databases.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The offset of `application_id`, big-endian.
const APPLICATION_ID_AT: usize = 68;

impl Target {
    /// What a name refers to.
    ///
    /// # Errors
    /// See [`TargetError`]; a missing file is not an error.
    pub fn from_path(out: &Path) -> Result<Target, TargetError> {
        let failed = |source| TargetError::Io { path: out.into(), source };
        let unfit = |what| Err(TargetError::Unfit { path: out.into(), what });
        if out == "-" {
            return Ok(Target::Stdout);
        }
        // Ask the kernel first, which restricts following links of other users.
        let kind = match fs::metadata(out) {
            Ok(metadata) => Some(metadata.file_type()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        if kind.is_some_and(|kind| kind.is_dir()) || out.as_os_str().as_bytes().ends_with(b"/") {
            return unfit("a directory");
        }
        let path = follow(out).map_err(failed)?;
        // A file descriptor of a process, which may have no name.
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

    /// Check that it can be written; leaves nothing behind.
    ///
    /// # Errors
    /// The directory is missing or not writable.
    pub fn try_out(&self) -> io::Result<()> {
        match self {
            Target::New(path) | Target::File(path) => Unnamed::beside(path).map(drop),
            Target::Stream(_) | Target::Stdout => Ok(()),
        }
    }

    /// Write a file, completely or not at all. Standard output is printed by the caller.
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

    /// The kind of an existing regular file.
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

/// Timeout for a reader of a pipe.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(20);

/// Open a pipe or a device, with a timeout for the reader of a pipe.
fn stream(path: &Path) -> io::Result<File> {
    let begun = Instant::now();
    loop {
        let open = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        match open {
            Ok(file) => {
                // Writes block from here on.
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

/// Resolve links, also of a missing file.
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

/// The kind of a file's contents.
pub(crate) fn contents(path: &Path) -> io::Result<Contents> {
    const LENGTH: usize = APPLICATION_ID_AT + 4;
    let mut begin = Vec::with_capacity(LENGTH);
    File::open(path)?.take(LENGTH as u64).read_to_end(&mut begin)?;
    Ok(match begin.as_slice() {
        [] => Contents::Empty,
        begin if !begin.starts_with(SQLITE) => Contents::Other,
        begin if begin.get(APPLICATION_ID_AT..) == Some(&APPLICATION_ID.to_be_bytes()) => {
            Contents::Recording
        }
        _ => Contents::Database,
    })
}

/// A name with a suffix.
pub(crate) fn with_suffix(path: &Path, suffix: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A file that gets its name when it is complete.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    folder: PathBuf,
    /// A temporary name, if the file system does not support unnamed files.
    name: Option<TempPath>,
}

impl Unnamed {
    /// Create one in the directory of another file.
    pub(crate) fn beside(path: &Path) -> io::Result<Unnamed> {
        let folder = folder_of(path).to_path_buf();
        // Default permissions, restricted by the umask.
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let new = match rustix::fs::open(&folder, flags, mode) {
            Ok(file) => Unnamed { file: file.into(), folder, name: None },
            // Not supported by the kernel or the file system: open(2).
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let (file, name) = named_builder()
                    .permissions(Permissions::from_mode(0o666))
                    .tempfile_in(&folder)
                    .map_err(plain)?
                    .into_parts();
                Unnamed { file, folder, name: Some(name) }
            }
            Err(e) => return Err(e.into()),
        };
        new.give_to_caller()?;
        Ok(new)
    }

    /// Under sudo, make it the caller's if the directory is: root's would be in the way there.
    fn give_to_caller(&self) -> io::Result<()> {
        let id = |key: &str| std::env::var(key).ok().and_then(|id| id.parse::<u32>().ok());
        let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) else {
            return Ok(());
        };
        match rustix::process::geteuid().is_root() && fs::metadata(&self.folder)?.uid() == uid {
            true => fchown(&self.file, Some(uid), Some(gid)),
            false => Ok(()),
        }
    }

    /// The same with contents, synced to disk.
    pub(crate) fn holding(path: &Path, bytes: &[u8]) -> io::Result<Unnamed> {
        let mut new = Unnamed::beside(path)?;
        new.file.write_all(bytes)?;
        new.file.sync_all()?;
        Ok(new)
    }

    /// Give it a new name.
    pub(crate) fn link(self, path: &Path) -> io::Result<()> {
        match self.name {
            None => link(&self.file, path),
            Some(name) => name.persist_noclobber(path).map_err(|e| e.error),
        }
    }

    /// Replace a file by it, keeping that file's permissions.
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

/// linkat(2): an unnamed file is linked by its descriptor.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, fd, CWD, path, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(io::Error::from)
}

/// An error without the name of a temporary file.
fn plain(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(std::error::Error::source);
    let code = cause.and_then(|c| c.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
    code.map_or(error, io::Error::from_raw_os_error)
}
