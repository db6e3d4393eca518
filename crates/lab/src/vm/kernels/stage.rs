//! A temporary directory beside the entries, where an entry is made before it gets its name.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::KernelStoreError;
use super::error::write_failed;

const PREFIX: &str = ".adding-";
const LOCK: &str = ".lock";

/// The directory; removed when dropped, or else by the next add. A lock in it, held as long as the
/// owner lives, shows whether it is in use.
pub(super) struct Stage {
    folder: TempDir,
    _alive: File,
}

impl Stage {
    pub(super) fn new(store: &Path) -> Result<Self, KernelStoreError> {
        let _lock = lock(store)?;
        sweep(store);
        let failed = write_failed(store);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(store)
            .map_err(&failed)?;
        let alive = File::create(folder.path().join(LOCK)).map_err(&failed)?;
        alive.lock().map_err(&failed)?;
        Ok(Self {
            folder,
            _alive: alive,
        })
    }

    /// The path of the entry; created by the code that fills it.
    pub(super) fn entry(&self) -> PathBuf {
        self.folder.path().join("entry")
    }

    /// A directory for downloads.
    pub(super) fn fetch(&self) -> Result<PathBuf, KernelStoreError> {
        let folder = self.folder.path().join("fetch");
        fs::create_dir(&folder).map_err(write_failed(&folder))?;
        Ok(folder)
    }

    /// Remove it; an error if that fails.
    pub(super) fn discard(self) -> Result<(), KernelStoreError> {
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(write_failed(&path))
    }
}

/// Take the store's lock, as long as the file is open; creates the store's directory.
pub(super) fn lock(store: &Path) -> Result<File, KernelStoreError> {
    fs::create_dir_all(store).map_err(write_failed(store))?;
    let path = store.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(write_failed(&path))?;
    file.lock().map_err(write_failed(&path))?;
    Ok(file)
}

/// Remove directories whose owners are gone. Called with the store's lock held, so that none is
/// seen between its creation and its locking. Errors do no harm.
fn sweep(store: &Path) {
    let Ok(entries) = fs::read_dir(store) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let alive = File::open(entry.path().join(LOCK)).is_ok_and(|file| file.try_lock().is_err());
        if !alive {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
