//! The target of a recording: locked before anything is measured, with existing recordings kept.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::StoreError;
use crate::error::writing;
use crate::lock::{LockError, NameLock};
use crate::target::{self, Contents, Target, Unnamed, with_suffix};

/// The name of a recording to be written, locked against other runs.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// Whether what is written has all of an existing recording.
    continues: bool,
    _lock: NameLock,
}

/// The magic of SQLite journals (<https://sqlite.org/fileformat2.html>, 3).
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

impl Output {
    /// Lock a name. No file is created or changed yet.
    ///
    /// # Errors
    /// Another run uses it, the existing file is not a recording, or the directory is not writable.
    pub fn claim(out: &Path) -> Result<Output, StoreError> {
        let path = place(out)?;
        let lock = NameLock::take(&path).map_err(|error| match error {
            LockError::Held(pid) => StoreError::Busy { path: out.into(), pid },
            LockError::Io(error) => StoreError::of_io(out)(error),
        })?;
        // Another run may have created one meanwhile.
        place(out)?;
        match path.exists()
            && target::contents(&path).map_err(StoreError::of_io(out))? == Contents::Recording
        {
            true => roll_back(&path)?,
            false => drop(stale_journal(&path)?),
        }
        Unnamed::beside(&path).map_err(StoreError::of_io(out))?;
        Ok(Output { path, continues: false, _lock: lock })
    }

    /// The same, for a recording that continues the existing one, which it replaces.
    pub fn continued(self) -> Output {
        Output { continues: true, ..self }
    }

    /// Its path, with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Write a recording. An existing one is renamed, unless this one continues it; returns its new
    /// name.
    ///
    /// At any time one of them has the name.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Option<PathBuf>, StoreError> {
        let path = &self.path;
        let failed = StoreError::of_io(path);
        let new = Unnamed::holding(path, bytes).map_err(&failed)?;
        // Checked again: it may have changed during the run.
        let is_there = !matches!(Target::from_path(path), Ok(Target::New(_)));
        place(path)?;
        if !is_there || target::contents(path).map_err(&failed)? == Contents::Empty {
            if let Some(journal) = stale_journal(path)? {
                set_aside(&journal).map_err(&failed)?;
            }
            let put = match is_there {
                true => new.replace(path),
                false => new.link(path),
            };
            return put.map(|()| None).map_err(failed);
        }
        roll_back(path)?;
        if self.continues {
            return new.replace(path).map(|()| None).map_err(failed);
        }
        let kept = room_for_old(path).map_err(&failed)?;
        new.link(&kept).map_err(&failed)?;
        if renameat_with(CWD, &kept, CWD, path, RenameFlags::EXCHANGE).is_err() {
            // Not every file system can exchange names.
            let one_by_one = || {
                fs::remove_file(&kept)?;
                rename_to_free(path, &kept)?;
                Unnamed::holding(path, bytes)?.link(path)
            };
            one_by_one().map_err(failed)?;
        }
        Ok(Some(kept))
    }
}

/// The file's name, if it can be used for a recording.
fn place(out: &Path) -> Result<PathBuf, StoreError> {
    let target = Target::from_path(out).map_err(StoreError::of_target)?;
    let what = match &target {
        Target::New(path) => return Ok(path.clone()),
        Target::File(path) => {
            return match target.contents().map_err(StoreError::of_io(out))? {
                Contents::Empty | Contents::Recording => Ok(path.clone()),
                Contents::Database | Contents::Other => Err(StoreError::Foreign(out.into())),
            };
        }
        Target::Stream(_) => "a pipe or a device",
        Target::Stdout => "the standard output",
    };
    Err(StoreError::NoFile { path: out.into(), what })
}

fn journal_of(path: &Path) -> PathBuf {
    with_suffix(path, "-journal")
}

/// The journal of a missing file, which SQLite would apply to a new file of that name.
fn stale_journal(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let journal = journal_of(path);
    let mut begin = Vec::new();
    let read = File::open(&journal).and_then(|file| file.take(8).read_to_end(&mut begin));
    match read {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StoreError::of_io(&journal)(e)),
        Ok(_) if begin.is_empty() || begin == JOURNAL || begin[0] == 0 => Ok(Some(journal)),
        Ok(_) => Err(StoreError::Foreign(journal)),
    }
}

/// Rename a journal, which is needed to repair its file if that was moved.
fn set_aside(journal: &Path) -> io::Result<()> {
    let mut to = with_suffix(journal, ".old");
    for n in 1_u32.. {
        match rename_to_free(journal, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                to = with_suffix(journal, format!(".old.{n}"));
            }
            done => return done,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Roll back an incomplete transaction of a killed writer: the journal belongs to the name, and the
/// file will be renamed.
fn roll_back(path: &Path) -> Result<(), StoreError> {
    let journal = journal_of(path);
    if !journal.exists() {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let wrong = writing(path, false);
    let file = Connection::open_with_flags(path, flags).map_err(&wrong)?;
    file.pragma_query_value(None, "user_version", |_| Ok(())).map_err(&wrong)?;
    drop(file);
    let mut first = [0];
    let is_hot = File::open(&journal).is_ok_and(|mut j| j.read_exact(&mut first).is_ok());
    match is_hot && first[0] != 0 {
        false => Ok(()),
        true => Err(StoreError::Write {
            path: path.into(),
            why: format!("{} can't be rolled back; move both away", journal.display()),
        }),
    }
}

/// A free name for the file at `path`: NAME.old. A recording of that name is renamed to the next
/// free one of NAME.old.1, NAME.old.2 and so on.
fn room_for_old(path: &Path) -> io::Result<PathBuf> {
    let old = with_suffix(path, ".old");
    let is_file = match fs::symlink_metadata(&old) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(old),
        other => other?.is_file(),
    };
    let is_ours = is_file && target::contents(&old)? == Contents::Recording;
    for n in 1_u32.. {
        let older = with_suffix(&old, format!(".{n}"));
        match (is_ours, fs::symlink_metadata(&older)) {
            (_, Ok(_)) => {}
            // Other files keep their names.
            (false, Err(_)) => return Ok(older),
            (true, Err(_)) => match rename_to_free(&old, &older) {
                Ok(()) => return Ok(old),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            },
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Rename, replacing nothing.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system supports that.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !to.exists() => {
            fs::rename(from, to)
        }
        Err(e) => Err(e.into()),
    }
}
