//! The kernels that guests can boot, in the user's cache directory.
//!
//! One directory for each kernel, named after the hash of its contents:
//!
//! ```text
//! kernels/HASH/vmlinux       the ELF file, unpacked, which boots quicker than the bzImage (x86-64)
//!              vmlinuz       the bzImage, only where the ELF file cannot be booted (no CONFIG_PVH)
//!              Image         the raw image, instead of both (arm64)
//!              config        the kernel's .config, where the source had one
//!              modules/      what is in /lib/modules/RELEASE, the modules compressed as they came
//!              debug/        debug information, where that was added
//!              kernel.toml   what the catalogue knows of it
//! ```
//!
//! An entry is made under a temporary name and renamed when it is complete. Concurrent adds are
//! independent until that rename; the second one finds the entry of the first and keeps it.
//! Leftovers of an interrupted add are removed by the next.

pub(crate) mod apt;
mod asked;
mod collect;
mod debug;
mod entry;
pub(crate) mod error;
mod label;
mod lists;
pub(crate) mod offer;
mod program;
mod search;
mod source;
pub(crate) mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use netplumb_model::arch::Arch;
use sha2::{Digest, Sha256};

pub use entry::{AddedFrom, KernelEntry};
pub use error::{ErrorKind, KernelStoreError};
pub use label::{check as check_label, describe};
pub use source::KernelSource;

use crate::sums;
use asked::DebianRequest;
use collect::{Collected, Package, go_on};
use error::{read_failed, write_failed};
use stage::Stage;

/// Progress of an add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A package is being downloaded.
    Fetching {
        /// The package's name.
        package: String,
        /// Bytes downloaded.
        done_bytes: u64,
        /// Total size, if the archive gives it.
        total_bytes: Option<u64>,
    },
    /// The source's files are being unpacked or copied.
    Unpacking,
    /// The contents are being hashed.
    Hashing,
    /// Something damaged was removed: a line that describes it.
    Removed(String),
}

/// The result of an add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Its entry in the store.
    pub entry: KernelEntry,
    /// Whether it existed already.
    pub was_there: bool,
}

/// The store of kernels.
#[derive(Debug, Clone)]
pub struct KernelStore {
    folder: PathBuf,
    /// Set to stop an add.
    cancel: Arc<AtomicBool>,
}

impl KernelStore {
    /// The store below a cache directory such as `~/.cache/netplumb`, which is created by the first
    /// add.
    pub fn new(cache: &Path) -> Self {
        Self { folder: cache.join("kernels"), cancel: Arc::default() }
    }

    /// The same, with a flag that cancels adds, which then leave nothing behind.
    #[must_use]
    pub fn until(self, cancel: Arc<AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    /// All kernels, in the order that they were added; without those whose description is damaged.
    pub fn list(&self) -> Result<Vec<KernelEntry>, KernelStoreError> {
        Ok(self.all()?.0)
    }

    /// Those whose description can't be read, since it is damaged or from a newer version of this program: why.
    pub fn damaged(&self) -> Vec<KernelStoreError> {
        self.all().map_or_else(|_| Vec::new(), |(_, damaged)| damaged)
    }

    fn all(&self) -> Result<(Vec<KernelEntry>, Vec<KernelStoreError>), KernelStoreError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(read_failed(&self.folder)(error)),
        };
        let (mut kernels, mut damaged) = (Vec::new(), Vec::new());
        for entry in entries {
            let folder = entry.map_err(read_failed(&self.folder))?.path();
            if folder.file_name().and_then(|name| name.to_str()).is_some_and(is_hash) {
                match KernelEntry::load(&folder) {
                    Ok(kernel) => kernels.extend(kernel),
                    Err(
                        error @ (KernelStoreError::DamagedEntry { .. }
                        | KernelStoreError::NewerEntry { .. }),
                    ) => damaged.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        kernels.sort_by(|a, b| (a.added(), &a.hash).cmp(&(b.added(), &b.hash)));
        Ok((kernels, damaged))
    }

    /// Remove kernels whose description is damaged, and what killed runs left; `tell` gets a line for each.
    /// [`sums::clean`] checks all other files of the cache.
    ///
    /// # Errors
    /// They can't be read or removed.
    pub fn clean(&self, tell: &mut dyn FnMut(String)) -> Result<(), KernelStoreError> {
        if !self.folder.is_dir() {
            return Ok(());
        }
        for error in self.all()?.1 {
            if let KernelStoreError::DamagedEntry { folder, reason, .. } = error {
                sums::remove(&folder).map_err(write_failed(&folder))?;
                tell(format!("removed {}: {reason}", folder.display()));
            }
        }
        Stage::new(&self.folder).map(drop)
    }

    /// Whether a kernel that is there is whole: it is removed if it is damaged.
    fn is_whole(
        &self,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, KernelStoreError> {
        let mut tell = |line| progress(Progress::Removed(line));
        if let Err(KernelStoreError::DamagedEntry { reason, .. }) = KernelEntry::load(folder) {
            sums::remove(folder).map_err(write_failed(folder))?;
            tell(format!("removed {}: {reason}", folder.display()));
            return Ok(false);
        }
        sums::is_whole(folder, &mut tell).map_err(read_failed(folder))
    }

    /// Give a kernel a name for [`KernelStore::find`]; of several with the same name, the last added is found.
    ///
    /// # Errors
    /// It is not a name, or can't be written.
    pub fn label(
        &self,
        kernel: &KernelEntry,
        label: &str,
    ) -> Result<KernelEntry, KernelStoreError> {
        label::check(label)?;
        let _lock = stage::lock(&self.folder)?;
        let Some(mut entry) = KernelEntry::load(&kernel.folder)? else {
            return Ok(kernel.clone());
        };
        // Where it was added from last.
        if let Some(from) = entry.sources.iter_mut().max_by(|a, b| a.added.cmp(&b.added)) {
            from.label = Some(label.to_owned());
        }
        entry.save()?;
        Ok(entry)
    }

    /// Find a kernel by its release, its hash (from four digits up), its label, or the source that it was last added
    /// from (`debian`, `debian:6.1.0-54`, `debian:arm64`, `running`, a path). A release of several architectures means
    /// this machine's, or with `:arm64` behind it another's.
    pub fn find(&self, name: &str) -> Result<KernelEntry, KernelStoreError> {
        let mut kernels = self.list()?;
        let source = apt_source(name).unwrap_or_else(|| name.to_owned());
        let (release, arch) = match name.rsplit_once(':') {
            Some((release, arch)) => (release, Arch::named(arch)),
            None => (name, None),
        };
        let path = fs::canonicalize(name).ok().map(|path| path.display().to_string());
        let by_arch = |kernel: &KernelEntry| {
            arch.is_some_and(|arch| kernel.release == release && kernel.arch == arch)
        };
        let by_release = |kernel: &KernelEntry| kernel.release == name;
        let by_own_release =
            |kernel: &KernelEntry| kernel.release == name && kernel.arch == Arch::OWN;
        let by_hash = |kernel: &KernelEntry| name.len() >= 4 && kernel.hash.starts_with(name);
        let from = |kernel: &KernelEntry| {
            let sources = kernel.sources.iter();
            sources
                .filter(|from| {
                    let is_path = path.as_ref() == Some(&from.source);
                    from.source == source || is_path || from.label.as_deref() == Some(name)
                })
                .map(|from| from.added.clone())
                .max()
        };
        let several = kernels.iter().filter(|kernel| by_release(kernel));
        let archs: BTreeSet<Arch> = several.map(|kernel| kernel.arch).collect();
        let by_release: &dyn Fn(&KernelEntry) -> bool = match archs.len() > 1 {
            true => &by_own_release,
            false => &by_release,
        };
        for matches in [&by_arch, by_release, &by_hash] {
            let found = kernels.iter().filter(|kernel| matches(kernel)).count();
            if found == 1 {
                kernels.retain(|kernel| matches(kernel));
                return Ok(kernels.remove(0));
            }
            if found > 1 {
                kernels.retain(|kernel| matches(kernel));
                return Err(search::ambiguous(name.to_owned(), &kernels));
            }
        }
        let last = kernels.iter().filter(|kernel| from(kernel).is_some()).max_by_key(|k| from(k));
        match last {
            Some(kernel) => Ok(kernel.clone()),
            // It may be the one.
            None => Err(self
                .damaged()
                .pop()
                .unwrap_or_else(|| search::unknown(name.to_owned(), &kernels))),
        }
    }

    /// Find a kernel as [`KernelStore::find`] does, of this architecture if there is one: `debian` of
    /// arm64 is `debian:arm64`.
    pub fn find_for(
        &self,
        name: &str,
        arch: Option<Arch>,
    ) -> Result<KernelEntry, KernelStoreError> {
        let Some(arch) = arch else {
            return self.find(name);
        };
        let of_arch = |found: Result<KernelEntry, _>| found.ok().filter(|k| k.arch == arch);
        let full = format!("{name}:{}", arch.debian());
        if let Some(kernel) = of_arch(self.find(name)).or_else(|| of_arch(self.find(&full))) {
            return Ok(kernel);
        }
        if let Some(found) = asked::arch_in(name).filter(|found| *found != arch) {
            return Err(KernelStoreError::OtherArch { name: name.to_owned(), found, asked: arch });
        }
        let name = match asked::arch_in(name) {
            None if arch != Arch::OWN => full,
            _ => name.to_owned(),
        };
        let kernels = self.list()?;
        // It may be the one.
        let damaged = self.damaged().pop();
        Err(damaged.unwrap_or_else(|| search::unknown(name, &kernels)))
    }

    /// Find a kernel as [`KernelStore::find_for`] does, with quick checks: the lengths of all its files, and its lists
    /// of modules. A damaged kernel of the archive is removed and fetched again.
    ///
    /// # Errors
    /// The kernel does not exist, or see [`KernelStore::mend`].
    pub fn find_whole(
        &self,
        name: &str,
        arch: Option<Arch>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<KernelEntry, KernelStoreError> {
        let found = match self.find_for(name, arch) {
            Err(KernelStoreError::DamagedEntry { .. }) => {
                self.clean(&mut |line| progress(Progress::Removed(line)))?;
                match self.find_for(name, arch) {
                    Err(KernelStoreError::Unknown { name: full, .. }) => {
                        if let Ok(KernelSource::Debian(version)) = KernelSource::parse(&full, None)
                        {
                            self.add_debian(version.as_deref(), progress)?;
                        }
                        self.find_for(name, arch)
                    }
                    found => found,
                }
            }
            found => found,
        }?;
        let is_list = |path: &Path| path.parent() == Some(Path::new("modules"));
        self.mend(&found, &is_list, progress)?;
        Ok(found)
    }

    /// Check the files of a kernel as [`KernelEntry::check`] does. A damaged kernel of the archive is removed and
    /// fetched again.
    ///
    /// # Errors
    /// The kernel is damaged and was not added from the archive; the archive can't be reached; or it has another
    /// build of the kernel now, which is added.
    pub fn mend(
        &self,
        kernel: &KernelEntry,
        wanted: &dyn Fn(&Path) -> bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), KernelStoreError> {
        if kernel.check(wanted).is_ok() {
            return Ok(());
        }
        // Another thread may be at it.
        static MENDING: Mutex<()> = Mutex::new(());
        let _one = MENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(damaged) = kernel.check(wanted) else {
            return Ok(());
        };
        let KernelStoreError::DamagedEntry { reason, .. } = &damaged else {
            return Err(damaged);
        };
        let mut versions = kernel.sources.iter().filter_map(|from| {
            match KernelSource::parse(&from.source, None) {
                Ok(KernelSource::Debian(version)) => version,
                _ => None,
            }
        });
        let Some(version) = versions.next() else {
            return Err(damaged);
        };
        sums::remove(&kernel.folder).map_err(write_failed(&kernel.folder))?;
        progress(Progress::Removed(format!(
            "removed {}, which was damaged ({reason}); fetching it again from debian:{version}",
            kernel.folder.display()
        )));
        let mut added = self.add_debian(Some(&version), progress)?.entry;
        let _lock = stage::lock(&self.folder)?;
        if added.hash != kernel.hash {
            // The names of the archive's are its own now.
            for from in &kernel.sources {
                let is_known = added.sources.iter().any(|have| have.source == from.source);
                if from.source.starts_with("debian") && !is_known {
                    added.sources.push(AddedFrom {
                        source: from.source.clone(),
                        label: None,
                        ..added.sources[0].clone()
                    });
                }
            }
            added.save()?;
            return Err(KernelStoreError::Replaced {
                hash: kernel.short().to_owned(),
                reason: reason.clone(),
                version,
                by: added.short().to_owned(),
            });
        }
        // Its other sources and labels.
        added.sources.clone_from(&kernel.sources);
        added.save()
    }

    /// Add a kernel; an existing one is not downloaded or copied again.
    pub fn add(
        &self,
        source: &KernelSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        match source {
            KernelSource::Debian(version) => self.add_debian(version.as_deref(), progress),
            KernelSource::Running => self.add_running(progress),
            KernelSource::Deb(path) => self.add_deb(path, progress),
            KernelSource::Image { image, modules } => {
                self.add_image(image, modules.as_deref(), progress)
            }
            KernelSource::BuildTree(folder) => self.add_build_tree(folder, progress),
        }
    }

    /// Adds the kernel of a Debian package: of a version (`6.1.0-54`), or the current one of the metapackage
    /// (`linux-image-amd64`), or of a flavour or series (`rt`, `6.12-rt`); with `:arm64` behind it, or as `arm64`
    /// alone, a kernel of another architecture than this machine's.
    pub fn add_debian(
        &self,
        version: Option<&str>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        let asked = version.map_or_else(|| Ok(DebianRequest::current()), DebianRequest::parse)?;
        // An existing version needs no apt; the name of a metapackage does.
        let kernels = self.list()?.into_iter();
        let mut of_package = kernels.filter(|kernel| kernel.is_of_package(&asked.package()));
        if let Some(entry) = of_package.next()
            && self.is_whole(&entry.folder, progress)?
        {
            return Ok(Added { entry, was_there: true });
        }
        let stage = Stage::new(&self.folder)?;
        let folder = stage.fetch()?;
        let (offer, there) = apt::ask(self.cache(), &self.cancel, progress, |archive| {
            let apt = archive.apt(asked.arch)?;
            let offer = apt.image(&asked)?;
            let mut kernels = self.list()?.into_iter();
            let there = kernels.find_map(|kernel| {
                let package = kernel.archive_package(&offer.package, &offer.version)?;
                // A damaged one is replaced below.
                let is_whole = kernel.check(&|_| true).is_ok();
                is_whole.then_some((kernel, package))
            });
            if there.is_none() {
                archive.download(&apt, &offer.package, std::slice::from_ref(&offer), &folder)?;
            }
            Ok((offer, there))
        })?;
        let of_archive = DebianRequest::of_package(&offer.package, asked.arch);
        let mut sources = vec![of_archive.source()];
        if of_archive != asked {
            sources.push(asked.source());
        }
        if let Some((entry, package)) = there {
            return self.note_sources(&entry, &sources, &package);
        }
        let deb = folder.join(offer.file());
        progress(Progress::Unpacking);
        let collected =
            collect::from_deb(&deb, hex(&file_hash(&deb)?), &stage.entry(), &self.cancel)?;
        fs::remove_file(&deb).map_err(write_failed(&deb))?;
        self.commit(stage, &collected, &sources, progress)
    }

    /// Adds the kernel in a `.deb` file.
    pub fn add_deb(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        let sources = [source_of_path(path)?];
        let sha256 = hex(&file_hash(path)?);
        for entry in self.list()? {
            if let Some(package) = entry.package_of_hash(&sha256)
                && self.is_whole(&entry.folder, progress)?
            {
                return self.note_sources(&entry, &sources, &package);
            }
        }
        let stage = Stage::new(&self.folder)?;
        progress(Progress::Unpacking);
        let collected = collect::from_deb(path, sha256, &stage.entry(), &self.cancel)?;
        self.commit(stage, &collected, &sources, progress)
    }

    /// Adds an image (`vmlinuz`, `bzImage`, arm64 `Image` or ELF `vmlinux`) and its module directory: the release's
    /// own, or one that contains `lib/modules/RELEASE`.
    pub fn add_image(
        &self,
        image: &Path,
        modules: Option<&Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        let source = source_of_path(image)?;
        let stage = Stage::new(&self.folder)?;
        progress(Progress::Unpacking);
        let collected = collect::from_image(image, modules, &stage.entry(), &self.cancel)?;
        self.commit(stage, &collected, &[source], progress)
    }

    /// Adds the kernel in a build directory.
    pub fn add_build_tree(
        &self,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        let source = source_of_path(folder)?;
        let stage = Stage::new(&self.folder)?;
        progress(Progress::Unpacking);
        let collected = collect::from_build_tree(folder, &stage.entry(), &self.cancel)?;
        self.commit(stage, &collected, &[source], progress)
    }

    /// Adds the running kernel, if its image can be read.
    pub fn add_running(
        &self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        let found = collect::find_running(Path::new("/"))?;
        let stage = Stage::new(&self.folder)?;
        progress(Progress::Unpacking);
        let collected = collect::from_image(
            &found.image,
            found.modules.as_deref(),
            &stage.entry(),
            &self.cancel,
        )?;
        if collected.release != found.release {
            return Err(KernelStoreError::NotTheRunning {
                image: found.image,
                release: collected.release,
                running: found.release,
            });
        }
        self.commit(stage, &collected, &["running".to_owned()], progress)
    }

    /// Remove a kernel, named as for [`Self::find`].
    pub fn remove(&self, name: &str) -> Result<KernelEntry, KernelStoreError> {
        let entry = self.find(name)?;
        let stage = Stage::new(&self.folder)?;
        // Renamed first, so that it is removed completely or not at all.
        fs::rename(&entry.folder, stage.entry()).map_err(write_failed(&entry.folder))?;
        stage.discard()?;
        Ok(entry)
    }

    /// The cache directory.
    fn cache(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// Rename the staged entry.
    fn commit(
        &self,
        stage: Stage,
        collected: &Collected,
        sources: &[String],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, KernelStoreError> {
        collect::check_modules(&stage.entry(), &collected.release)?;
        progress(Progress::Hashing);
        let hash = content_hash(&stage.entry(), &self.cancel)?;
        let mut entry = KernelEntry::describe(&stage.entry(), hash, collected)?;
        let package = collected.package.as_ref();
        let _lock = stage::lock(&self.folder)?;
        let folder = self.folder.join(&entry.hash);
        if self.is_whole(&folder, progress)?
            && let Some(there) = KernelEntry::load(&folder)?
        {
            return note(there, sources, package);
        }
        sums::seal(&stage.entry()).map_err(write_failed(&folder))?;
        entry.note(sources, package);
        entry.save()?;
        sums::rename(&stage.entry(), &folder).map_err(write_failed(&folder))?;
        entry.folder = folder;
        Ok(Added { entry, was_there: false })
    }

    fn note_sources(
        &self,
        entry: &KernelEntry,
        sources: &[String],
        package: &Package,
    ) -> Result<Added, KernelStoreError> {
        let _lock = stage::lock(&self.folder)?;
        let entry = KernelEntry::load(&entry.folder)?.ok_or_else(|| {
            // Removed since it was listed.
            search::unknown(entry.hash.clone(), &[])
        })?;
        note(entry, sources, Some(package))
    }
}

/// Record that an existing kernel was added from these sources.
fn note(
    mut entry: KernelEntry,
    sources: &[String],
    package: Option<&Package>,
) -> Result<Added, KernelStoreError> {
    entry.note(sources, package);
    entry.save()?;
    Ok(Added { entry, was_there: true })
}

/// A source of Debian in the spelling that is kept.
fn apt_source(name: &str) -> Option<String> {
    let asked = DebianRequest::parse(name.strip_prefix("debian:")?).ok()?;
    Some(asked.source())
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn source_of_path(path: &Path) -> Result<String, KernelStoreError> {
    Ok(fs::canonicalize(path).map_err(read_failed(path))?.display().to_string())
}

/// The hash of the names and contents of all files in a directory, in order of name.
fn content_hash(folder: &Path, cancel: &AtomicBool) -> Result<String, KernelStoreError> {
    let mut files = Vec::new();
    collect::files_under(folder, &mut files)?;
    files.sort();
    let mut all = Sha256::new();
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        // An image kept for lack of a PVH entry has the same contents as the ELF file.
        if name == Path::new("vmlinuz") {
            continue;
        }
        go_on(cancel)?;
        let one = file_hash(&path)?;
        let name = name.as_os_str().as_encoded_bytes();
        all.update((name.len() as u64).to_le_bytes());
        all.update(name);
        all.update(one);
    }
    Ok(hex(&all.finalize()))
}

fn file_hash(path: &Path) -> Result<[u8; 32], KernelStoreError> {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path).map_err(read_failed(path))?;
    io::copy(&mut file, &mut Writer(&mut hash)).map_err(read_failed(path))?;
    Ok(hash.finalize().into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hash as a writer.
struct Writer<'a>(&'a mut Sha256);

impl io::Write for Writer<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.update(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
