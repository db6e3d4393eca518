//! The journal of a run: changes to restore, on disk before they are made.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netplumb_sys::netns::Namespace;

use crate::disk::BlockDisk;
use crate::error::KnobError;
use crate::file::{self, BEGINS, Done, ENDS, Entry, FORMAT, Header, LOCK, Place};
use crate::nic::Nic;
use crate::setting::{Planned, Setting};

/// Length of a run's random name.
const WORD_LENGTH: usize = 6;

/// What a run uses of this machine, which no other run may change meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used<'a> {
    /// Interfaces of a namespace.
    pub nics: &'a [Nic],
    /// Disks.
    pub disks: &'a [BlockDisk],
}

/// The changes of a run on interfaces and disks of this machine. Locked as long as the run is alive, and
/// removed when everything is restored.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    word: String,
    announced: BTreeSet<Planned>,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    next: u32,
    open: BTreeSet<u32>,
    failures: Vec<String>,
}

impl Journal {
    /// Begin a journal for a run that uses these interfaces of a namespace and these disks, and makes
    /// only the announced changes.
    ///
    /// # Errors
    /// Another run uses one of them, or it can't be written.
    pub fn begin(
        namespace: &Namespace,
        used: Used<'_>,
        announced: impl IntoIterator<Item = Planned>,
    ) -> Result<Journal, KnobError> {
        Journal::begin_in(Path::new(file::FOLDER), namespace, used, announced)
    }

    /// The same in another directory.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_in(
        folder: &Path,
        namespace: &Namespace,
        used: Used<'_>,
        announced: impl IntoIterator<Item = Planned>,
    ) -> Result<Journal, KnobError> {
        let doing = || KnobError::system(format!("begin a journal in {}", folder.display()));
        let _turn = take_turn(folder).map_err(doing())?;
        let place = Place::in_namespace(namespace).map_err(doing())?;
        if let Some((name, pid)) = in_use(folder, place, used).map_err(doing())? {
            return Err(KnobError::InUse { name, pid });
        }
        let word = random_word().map_err(doing())?;
        let path = folder.join(format!("{BEGINS}{word}{ENDS}"));
        let begun = || -> io::Result<File> {
            let mut file =
                OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
            file::lock(&file, true)?;
            file.write_all(&file::line(&Header {
                format: FORMAT,
                pid: std::process::id(),
                boot: file::boot()?,
                place,
                nics: used.nics.to_vec(),
                disks: used.disks.to_vec(),
            })?)?;
            file.sync_all()?;
            File::open(folder)?.sync_all()?;
            Ok(file)
        };
        let file = begun().map_err(doing())?;
        Ok(Journal {
            path,
            word,
            announced: announced.into_iter().collect(),
            written: Mutex::new(Written {
                file,
                next: 0,
                open: BTreeSet::new(),
                failures: Vec::new(),
            }),
        })
    }

    /// A name unique to this run, for objects that it creates.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Changes that could not be restored, and stay in the journal for the next start.
    pub fn failures(&self) -> Vec<String> {
        self.written().failures.clone()
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write a change before it is made; returns its number.
    pub(crate) fn note(
        &self,
        setting: &Setting,
        before: &str,
        after: Option<&str>,
    ) -> Result<u32, KnobError> {
        if let Some(after) = after {
            let planned = setting.planned(after);
            if !self.announced.contains(&planned) {
                let on = planned.on.map(|on| format!("{on}: ")).unwrap_or_default();
                return Err(KnobError::NotAnnounced(format!("{on}{}", planned.what)));
            }
        }
        let mut written = self.written();
        let n = written.next;
        let entry = Entry {
            n,
            setting: setting.clone(),
            before: before.into(),
            after: after.map(String::from),
        };
        let doing = KnobError::system(format!("write the journal {}", self.path.display()));
        let line = file::line(&entry);
        let write = || {
            let bytes = written.file.metadata()?.len();
            let done = written.file.write_all(&line?);
            if done.is_err() {
                // Remove an incomplete line.
                written.file.set_len(bytes)?;
            }
            done?;
            written.file.sync_data()
        };
        write().map_err(doing)?;
        written.next += 1;
        written.open.insert(n);
        Ok(n)
    }

    /// Write that it was restored.
    pub(crate) fn done(&self, n: u32) {
        let mut written = self.written();
        written.open.remove(&n);
        // Restoring twice does no harm.
        if let Ok(line) = file::line(&Done { done: n }) {
            let _ = written.file.write_all(&line);
        }
    }

    /// Note that it could not be restored.
    pub(crate) fn failed(&self, why: String) {
        self.written().failures.push(why);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.written().open.is_empty() {
            // If this fails, the next start finds nothing to restore, and removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Take the lock for creating a journal or reading all of them, until it is dropped.
pub(crate) fn take_turn(folder: &Path) -> io::Result<File> {
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true).mode(0o755);
    folders.create(folder)?;
    let turn = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join(LOCK))?;
    file::lock(&turn, true)?;
    Ok(turn)
}

/// All journals in a directory.
pub(crate) fn journals(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(BEGINS) && name.ends_with(ENDS)
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

/// Whether the run of a journal is alive.
pub(crate) fn is_live(path: &Path) -> io::Result<bool> {
    Ok(!file::lock(&File::open(path)?, false)?)
}

/// One of these interfaces or disks that another run uses, and its process.
fn in_use(folder: &Path, place: Place, used: Used<'_>) -> io::Result<Option<(String, u32)>> {
    for path in journals(folder)? {
        // A journal that ends meanwhile does not matter.
        if !is_live(&path).unwrap_or(false) {
            continue;
        }
        let Some(header) = file::read(&path).ok().and_then(|c| c.header) else {
            continue;
        };
        let same = |a: &Nic, b: &Nic| a.index == b.index && a.mac == b.mac;
        let both = (used.nics.iter())
            .filter(|_| header.place == place)
            .find(|nic| header.nics.iter().any(|other| same(nic, other)))
            .map(|nic| &nic.name);
        // Disks are of the machine, whatever the namespace.
        let disk = used.disks.iter().find(|disk| header.disks.contains(disk));
        if let Some(name) = both.or(disk.map(|disk| &disk.name)) {
            return Ok(Some((name.clone(), header.pid)));
        }
    }
    Ok(None)
}

fn random_word() -> io::Result<String> {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijkmnpqrstuvwx";
    let mut bytes = [0_u8; WORD_LENGTH];
    // SAFETY: the pointer and the length describe the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != WORD_LENGTH as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.iter().map(|b| char::from(DIGITS[usize::from(b % 32)])).collect())
}
