//! apt's lists of an architecture that are not this machine's own: a configuration, lists and caches beside
//! these, with this machine's sources, keys and proxies.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netplumb_model::arch::Arch;

use super::error::write_failed;
use super::program::wait;
use super::{KernelStoreError, Progress};
use crate::child::command;
use crate::sums;

/// Lists that are older are fetched again.
pub(super) const REFRESH_AFTER: Duration = Duration::from_secs(6 * 3600);

/// Those that lack a package, if they are older than this.
pub(super) const REFRESH_AGAIN_AFTER: Duration = Duration::from_secs(60);

const CONFIG: &str = "apt.conf";
const STAMP: &str = "fetched";
const LOCK: &str = ".lock";

/// apt's package lists of one architecture.
#[derive(Debug)]
pub(super) struct Lists {
    arch: Arch,
    folder: PathBuf,
}

impl Lists {
    /// Those below a cache directory, which may not exist yet.
    pub(super) fn below(cache: &Path, arch: Arch) -> Self {
        let folder = Self::folder(cache, arch);
        // apt runs in other directories.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Self { arch, folder }
    }

    /// Where they are below a cache directory.
    pub(super) fn folder(cache: &Path, arch: Arch) -> PathBuf {
        cache.join("apt").join(arch.debian())
    }

    /// apt's configuration, for its option `-c`.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    /// Fetch them if they are missing, or older than `age`. If that fails, older ones will do.
    pub(super) fn refresh(
        &self,
        age: Duration,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), KernelStoreError> {
        self.make_folders()?;
        let lock = self.folder.join(LOCK);
        let file = File::create(&lock).map_err(write_failed(&lock))?;
        file.lock().map_err(write_failed(&lock))?;
        let mut fetched = self.fetched();
        let kept = self.folder.join("state/lists");
        let mut tell = |line| progress(Progress::Removed(line));
        if !sums::is_whole(&kept, &mut tell).map_err(write_failed(&kept))? {
            self.make_folders()?;
            fetched = None;
        }
        if fetched.is_some_and(|since| since < age) {
            return Ok(());
        }
        self.write_config()?;
        // Until they are sealed again, the lists may be from an unfinished update.
        sums::unseal(&kept).map_err(write_failed(&kept))?;
        let mut update = command("apt-get");
        update.arg("-c").arg(self.config()).args(["-q", "update"]);
        let failure = wait(update, &self.folder.join("update.log"), cancel, &mut || {
            progress(Progress::Fetching {
                package: format!("package lists of {}", self.arch.debian()),
                done_bytes: 0,
                total_bytes: None,
            });
        })?;
        // apt calls it a success if it could fetch nothing.
        let failure = failure.or_else(|| self.why_none());
        match failure {
            Some(output) if fetched.is_none() => {
                Err(KernelStoreError::NoLists { arch: self.arch, output })
            }
            Some(_) => sums::seal(&kept).map_err(write_failed(&kept)),
            None => {
                sums::seal(&kept).map_err(write_failed(&kept))?;
                let stamp = self.folder.join(STAMP);
                fs::write(&stamp, "").map_err(write_failed(&stamp))
            }
        }
    }

    /// Why they could not be fetched, if they are missing.
    fn why_none(&self) -> Option<String> {
        let lists = fs::read_dir(self.folder.join("state/lists"));
        let mut lists = lists.into_iter().flatten().flatten();
        if lists.any(|list| list.file_name().to_string_lossy().contains("_Packages")) {
            return None;
        }
        let log = fs::read_to_string(self.folder.join("update.log")).unwrap_or_default();
        let failed = log.lines().find_map(|line| line.strip_prefix("W: "));
        Some(failed.unwrap_or("it fetched none").to_owned())
    }

    /// How long ago they were fetched.
    fn fetched(&self) -> Option<Duration> {
        let stamp = fs::metadata(self.folder.join(STAMP)).ok()?;
        // In the future, by a clock that was wrong: treated as new.
        Some(stamp.modified().ok()?.elapsed().unwrap_or_default())
    }

    fn make_folders(&self) -> Result<(), KernelStoreError> {
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            let folder = self.folder.join(folder);
            fs::create_dir_all(&folder).map_err(write_failed(&folder))?;
        }
        Ok(())
    }

    fn write_config(&self) -> Result<(), KernelStoreError> {
        let path = self.config();
        let mut file =
            tempfile::NamedTempFile::new_in(&self.folder).map_err(write_failed(&path))?;
        let text = config(&self.folder, self.arch);
        file.write_all(text.as_bytes()).map_err(write_failed(&path))?;
        file.persist(&path).map_err(|error| write_failed(&path)(error.error))?;
        Ok(())
    }
}

/// apt's configuration. It comes after the machine's configuration and clears its hooks, which are about the machine's
/// lists and may need privileges. Only lists of packages are fetched, and they are kept compressed: 54 MB with apt's
/// cache, else 89.
fn config(folder: &Path, arch: Arch) -> String {
    let (folder, arch) = (folder.display(), arch.debian());
    format!(
        r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
Dir::State "{folder}/state";
Dir::State::status "/dev/null";
Dir::State::lists "lists";
Dir::Cache "{folder}/cache";
Dir::Cache::archives "archives";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
Dir::Log "{folder}";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that everything that apt writes is below the directory, and that the machine's dpkg is not
    /// asked.
    #[test]
    fn apt_writes_here_only() {
        let text = config(Path::new("/cache/apt/arm64"), Arch::Arm64);
        for line in [
            r#"APT::Architecture "arm64";"#,
            r#"Dir::State "/cache/apt/arm64/state";"#,
            r#"Dir::State::status "/dev/null";"#,
            r#"Dir::Cache "/cache/apt/arm64/cache";"#,
            "#clear APT::Update::Post-Invoke;",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}");
        }
    }

    /// Check that apt's warning is the reason where it fetched no list of packages, and none where it did.
    #[test]
    fn no_lists() {
        let cache = tempfile::tempdir().unwrap();
        let lists = Lists::below(cache.path(), Arch::Arm64);
        lists.make_folders().unwrap();
        let log = "Err:1 http://x bookworm InRelease\nW: Failed to fetch http://x  Could not connect to x:80\n\
                   W: Some index files failed to download.\n";
        fs::write(lists.folder.join("update.log"), log).unwrap();
        let why = lists.why_none().unwrap();
        assert_eq!(why, "Failed to fetch http://x  Could not connect to x:80");
        let list = "state/lists/x_dists_bookworm_main_binary-arm64_Packages.gz";
        fs::write(lists.folder.join(list), "").unwrap();
        assert_eq!(lists.why_none(), None);
    }

    /// Check that lists which were just fetched are not fetched again, and those that are old are.
    #[test]
    fn age() {
        let cache = tempfile::tempdir().unwrap();
        let lists = Lists::below(cache.path(), Arch::Arm64);
        assert_eq!(lists.fetched(), None);
        lists.make_folders().unwrap();
        fs::write(lists.folder.join(STAMP), "").unwrap();
        let mut calls = 0;
        let never = AtomicBool::new(false);
        lists.refresh(REFRESH_AFTER, &never, &mut |_| calls += 1).unwrap();
        assert_eq!(calls, 0);
        let stamp = File::options().write(true).open(lists.folder.join(STAMP));
        let then = std::time::SystemTime::now() - 2 * REFRESH_AFTER;
        stamp.unwrap().set_modified(then).unwrap();
        assert!(lists.fetched().unwrap() > REFRESH_AFTER);
    }
}
