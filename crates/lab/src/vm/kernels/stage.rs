//! A temporary directory beside the entries, where an entry is made before it gets its name.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::KernelStoreError;
use super::error::write_failed;

const PREFIX: &str = ".adding-";
const LOCK: &str = ".lock";

/// The folder; it is removed on drop, or by the next add if the owner was killed. A lock within is held for as long as
/// the owner lives.
pub(crate) struct Stage {
    folder: TempDir,
    _alive: File,
}

impl Stage {
    pub(crate) fn new(store: &Path) -> Result<Self, KernelStoreError> {
        let _lock = lock(store)?;
        sweep(store);
        let failed = write_failed(store);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(store).map_err(&failed)?;
        let alive = File::create(folder.path().join(LOCK)).map_err(&failed)?;
        alive.lock().map_err(&failed)?;
        Ok(Self { folder, _alive: alive })
    }

    /// Where the entry is put together; made by whoever fills it.
    pub(crate) fn entry(&self) -> PathBuf {
        self.folder.path().join("entry")
    }

    /// A folder for downloads.
    pub(crate) fn fetch(&self) -> Result<PathBuf, KernelStoreError> {
        let folder = self.folder.path().join("fetch");
        fs::create_dir(&folder).map_err(write_failed(&folder))?;
        Ok(folder)
    }

    /// Removes it, and reports if that fails.
    pub(super) fn discard(self) -> Result<(), KernelStoreError> {
        let path = self.folder.path().to_owned();
        self.folder.close().map_err(write_failed(&path))
    }
}

/// Takes the store's own lock, for as long as the file is held; makes the store's folder.
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
