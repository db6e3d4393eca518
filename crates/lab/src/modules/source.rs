//! The source and headers of a kernel, as far as they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use netplumb_kernel::deb::{self, Dependency, SparseTar};
use netplumb_model::arch::Arch;

use super::error::{ModuleBuildError, read_failed, write_failed};
use super::needs;
use super::place::Place;
use crate::packages;
use crate::sums;
use crate::vm::kernels::apt::{self, Apt};
use crate::vm::kernels::offer::Offer;
use crate::vm::kernels::stage::Stage;
use crate::vm::kernels::{KernelEntry, KernelStoreError, Progress};

/// Where packages of headers have theirs.
const HEADERS: &str = "usr/src";
/// The package of kbuild's programs, before its version.
const KBUILD: &str = "linux-kbuild-";
/// The package of the source, before its version.
const SOURCE: &str = "linux-source-";
/// Packages whose version is not the kernel's.
const OTHERS: &str = "packages";
/// The kernel's source, as packaged.
const ARCHIVE: &str = "source.tar.xz";
/// Where each file is in it.
const LIST: &str = "source.list";
/// Files that were unpacked to be read.
const TEXTS: &str = "texts";
/// Headers may include others, which may include others.
const ROUNDS_MAX: usize = 4;

/// Where a kernel's source is.
#[derive(Debug)]
pub(super) struct Source {
    /// The tree that builds modules: the folder to run make in.
    pub(super) headers: PathBuf,
    /// Where `/usr/src` of the packages is; none for a build directory.
    pub(super) root: Option<PathBuf>,
    /// For temporary files.
    pub(super) store: PathBuf,
    /// The packages among its own whose version is not the kernel's: `linux-kbuild-6.1 6.1.192-3`.
    pub(super) others: Vec<String>,
    kept: KeptSource,
}

#[derive(Debug)]
enum KeptSource {
    /// In an archive, with what of it was unpacked, a tree for each folder of modules.
    Archive { archive: PathBuf, trees: PathBuf },
    /// In a directory.
    Tree(PathBuf),
}

impl Source {
    /// Fetch the packages that are missing.
    pub(super) fn prepare(
        store: &Path,
        kernel: &KernelEntry,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Source, ModuleBuildError> {
        if let Some(tree) = kernel.build_directory() {
            let source = tree.join("source");
            let has_source = source.join("Makefile").is_file();
            return Ok(Source {
                root: None,
                store: store.to_owned(),
                others: Vec::new(),
                kept: KeptSource::Tree(if has_source { source } else { tree.clone() }),
                headers: tree,
            });
        }
        let Some(version) = kernel.package_version() else {
            return Err(ModuleBuildError::NoSource {
                release: kernel.release.clone(),
                added_from: kernel.source().to_owned(),
            });
        };
        let folder = store.join(&kernel.hash);
        if !is_whole(&folder, progress)? {
            fetch(store, &folder, kernel, version, cancel, progress)?;
        }
        let root = folder.join("headers");
        let headers = root.join(HEADERS).join(format!("linux-headers-{}", kernel.release));
        Ok(Source {
            headers,
            root: Some(root),
            store: store.to_owned(),
            // None in those from before there was the file.
            others: fs::read_to_string(folder.join(OTHERS))
                .unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect(),
            kept: KeptSource::Archive {
                archive: folder.join(ARCHIVE),
                trees: folder.join("trees"),
            },
        })
    }

    /// The version of Linux that it is based on, if packages name it.
    pub(super) fn upstream<'a>(&'a self, kernel: &'a KernelEntry) -> Option<&'a str> {
        let mut others = self.others.iter().filter_map(|other| other.split_once(' '));
        let other = others.find(|(package, _)| package.starts_with(SOURCE));
        let version = other.map_or(kernel.package_version(), |(_, version)| Some(version));
        version.map(upstream)
    }

    /// Where it is, if it is there already.
    pub(super) fn kept(store: &Path, kernel: &KernelEntry) -> Option<Source> {
        let is_there =
            kernel.build_directory().is_some() || store.join(&kernel.hash).join(ARCHIVE).is_file();
        let never = AtomicBool::new(false);
        let source = is_there.then(|| Source::prepare(store, kernel, &never, &mut |_| {}));
        source?.ok()
    }

    /// The text of some of its files, by their paths in it; only existing files of at most `most_bytes`. The unpacked
    /// files are kept.
    pub(super) fn texts(
        &self,
        files: &BTreeSet<PathBuf>,
        most_bytes: u64,
        cancel: &AtomicBool,
    ) -> Result<BTreeMap<PathBuf, String>, ModuleBuildError> {
        let top = match &self.kept {
            KeptSource::Tree(tree) => tree.clone(),
            KeptSource::Archive { archive, .. } => {
                let texts = archive.with_file_name(TEXTS);
                self.unpack_texts(archive, &texts, files, cancel)?;
                texts
            }
        };
        let inside = |path: &Path| path.components().all(|c| matches!(c, Component::Normal(_)));
        let read = |path: &PathBuf| {
            let mut text = String::new();
            let file = File::open(top.join(path)).ok()?;
            let mut file = file.take(most_bytes.saturating_add(1));
            file.read_to_string(&mut text).ok()?;
            (text.len() as u64 <= most_bytes).then(|| (path.clone(), text))
        };
        Ok(files.iter().filter(|path| inside(path)).filter_map(read).collect())
    }

    /// Unpack files that are not there yet: each takes a part of a second.
    fn unpack_texts(
        &self,
        archive: &Path,
        texts: &Path,
        files: &BTreeSet<PathBuf>,
        cancel: &AtomicBool,
    ) -> Result<(), ModuleBuildError> {
        let is_missing = |path: &Path| files.contains(path) && !texts.join(path).exists();
        let cancelled = || cancel.load(Ordering::Relaxed);
        let tar = SparseTar::open(archive, &archive.with_file_name(LIST), &cancelled)?;
        let missing: Vec<&Path> = tar.names().filter(|path| is_missing(path)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let stage = Stage::new(&self.store)?;
        let unpacked = stage.entry();
        tar.unpack(&unpacked, &is_missing, &cancelled)?;
        for path in missing {
            let target = texts.join(path);
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder).map_err(write_failed(folder))?;
            }
            fs::rename(unpacked.join(path), &target).map_err(write_failed(&target))?;
        }
        Ok(())
    }

    /// Copy the module's folder, with what it includes from elsewhere in the source.
    pub(super) fn copy(
        &self,
        place: &Place,
        from: &Path,
        into: &Path,
    ) -> Result<(), ModuleBuildError> {
        if let KeptSource::Archive { .. } = self.kept {
            // The archive has no more.
            return copy(from, into);
        }
        copy(&from.join(&place.folder), &into.join(&place.folder))?;
        for _ in 0..ROUNDS_MAX {
            let missing = needs::missing_headers(into, &place.folder)?;
            let there = missing.iter().filter(|name| from.join(name).is_file());
            let mut copied = 0;
            for name in there {
                let target = into.join(name);
                if let Some(folder) = target.parent() {
                    fs::create_dir_all(folder).map_err(write_failed(folder))?;
                }
                fs::copy(from.join(name), &target).map_err(write_failed(&target))?;
                copied += 1;
            }
            if copied == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The kept part of the source, to read: of an archive the files unpacked for the module. The folder returned holds
    /// the module's folder under its path.
    pub(super) fn folder(
        &mut self,
        place: &Place,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, ModuleBuildError> {
        let (archive, trees) = match &self.kept {
            KeptSource::Tree(tree) => {
                return match tree.join(&place.folder).is_dir() {
                    true => Ok(tree.clone()),
                    false => Err(no_folder(tree, place)),
                };
            }
            KeptSource::Archive { archive, trees } => (archive, trees),
        };
        let kept = trees.join(place.folder.to_string_lossy().replace('/', "-"));
        if is_whole(&kept, progress)? {
            return Ok(kept);
        }
        progress(Progress::Unpacking);
        let cancelled = || cancel.load(Ordering::Relaxed);
        let tar = SparseTar::open(archive, &archive.with_file_name(LIST), &cancelled)?;
        let names: BTreeSet<&Path> = tar.names().collect();
        let stage = Stage::new(&self.store)?;
        let top = stage.entry();
        fs::create_dir_all(&top).map_err(write_failed(&top))?;
        let own = |name: &Path| name.parent() == Some(place.folder.as_path());
        tar.unpack(&top, &own, &cancelled)?;
        let folder = top.join(&place.folder);
        if !folder.is_dir() {
            return Err(no_folder(archive, place));
        }
        // Folders of others are below some, such as drivers/net.
        let makefile = needs::makefile(&folder);
        let below: BTreeSet<&str> = names
            .iter()
            .filter_map(|name| {
                let mut parts = name.strip_prefix(&place.folder).ok()?.components();
                let (folder, _) = (parts.next()?, parts.next()?);
                folder.as_os_str().to_str()
            })
            .collect();
        let below = below.into_iter();
        let mentioned: Vec<PathBuf> = below
            .filter(|name| needs::mentions(&makefile, name))
            .map(|name| place.folder.join(name))
            .collect();
        let mut searched = needs::searched(&makefile, &place.folder);
        searched.retain(|folder| *folder != place.folder);
        let more = |name: &Path| {
            let is_header = name.extension().is_some_and(|ending| ending == "h");
            let is_in = |folder: &PathBuf| name.starts_with(folder);
            !own(name) && (mentioned.iter().any(is_in) || is_header && searched.iter().any(is_in))
        };
        tar.unpack(&top, &more, &cancelled)?;
        for _ in 0..ROUNDS_MAX {
            let mut missing = needs::missing_headers(&top, &place.folder)?;
            // Some are not in the source, since they are made while it is built.
            missing.retain(|name| names.contains(name.as_path()));
            if missing.is_empty() {
                break;
            }
            tar.unpack(&top, &|name| missing.contains(name), &cancelled)?;
        }
        fs::create_dir_all(trees).map_err(write_failed(trees))?;
        keep(&top, &kept)?;
        Ok(kept)
    }
}

/// Copy a folder, without what a build has left in it.
fn copy(from: &Path, into: &Path) -> Result<(), ModuleBuildError> {
    fs::create_dir_all(into).map_err(write_failed(into))?;
    for entry in fs::read_dir(from).map_err(read_failed(from))? {
        let entry = entry.map_err(read_failed(from))?;
        let (path, target) = (entry.path(), into.join(entry.file_name()));
        let kind = entry.file_type().map_err(read_failed(&path))?;
        if !is_source(&path) {
            continue;
        }
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_file() {
            fs::copy(&path, &target).map_err(write_failed(&target))?;
        }
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let made = path.extension().is_some_and(|ending| {
        ["o", "ko", "mod", "a", "order", "symvers"].iter().any(|made| *made == ending)
    });
    !hidden && !made
}

/// Whether a folder that was kept is there, and whole: a damaged one is removed.
pub(super) fn is_whole(
    kept: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool, ModuleBuildError> {
    let mut tell = |line| progress(Progress::Removed(line));
    sums::is_whole(kept, &mut tell).map_err(read_failed(kept))
}

/// Seal a folder and give it its name, unless another run was quicker.
pub(super) fn keep(from: &Path, kept: &Path) -> Result<(), ModuleBuildError> {
    sums::seal(from).map_err(write_failed(kept))?;
    match sums::rename(from, kept) {
        Err(_) if kept.is_dir() => Ok(()),
        done => done.map_err(write_failed(kept)),
    }
}

fn no_folder(path: &Path, place: &Place) -> ModuleBuildError {
    ModuleBuildError::NoFolder { path: path.to_owned(), folder: place.folder.display().to_string() }
}

/// The top folder of a source archive.
fn only_folder(into: &Path) -> Result<PathBuf, ModuleBuildError> {
    let mut entries = fs::read_dir(into).map_err(read_failed(into))?;
    match entries.next() {
        Some(entry) => Ok(entry.map_err(read_failed(into))?.path()),
        None => Ok(into.to_owned()),
    }
}

/// Fetch and unpack the packages of a kernel's headers and its source.
fn fetch(
    store: &Path,
    folder: &Path,
    kernel: &KernelEntry,
    version: &str,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), ModuleBuildError> {
    let stage = Stage::new(store)?;
    let fetched = stage.fetch()?;
    let cache = store.parent().unwrap_or(store);
    let image = format!("linux-image-{}", kernel.release);
    let found = apt::ask(cache, cancel, progress, |archive| {
        let (apt, here) = (archive.apt(kernel.arch)?, archive.apt(Arch::OWN)?);
        let found = Packages::find(&apt, &here, &kernel.release, version);
        let found = match archive.is_fresh() {
            // The nearest package by old lists may not be the nearest now.
            false => found.and_then(|found| found.exactly(&apt, version))?,
            true => {
                found.map_err(|error| error.with_remedy(|| other_kernel(&apt, &here, &image)))?
            }
        };
        for (apt, offers) in [(&apt, &found.of_kernel), (&here, &found.of_here)] {
            for offer in offers {
                archive.download(apt, &offer.package, slice::from_ref(offer), &fetched)?;
            }
        }
        Ok(found)
    })?;
    progress(Progress::Unpacking);
    let cancelled = || cancel.load(Ordering::Relaxed);
    let entry = stage.entry();
    let Packages { of_kernel, of_here } = &found;
    let mut others = String::new();
    for offer in of_kernel.iter().chain(of_here) {
        if offer.version != version {
            others += &format!("{} {}\n", offer.package, offer.version);
        }
        let deb = fetched.join(offer.file());
        if offer.package.starts_with(SOURCE) {
            let unpacked = fetched.join("source");
            let is_archive = |name: &Path| {
                let name = name.to_string_lossy();
                name.starts_with("usr/src/linux-source-") && name.ends_with(".tar.xz")
            };
            deb::files(&deb, &unpacked, &is_archive, &cancelled)?;
            let archives = only_folder(&unpacked.join(HEADERS))?;
            let archive = entry.join(ARCHIVE);
            fs::create_dir_all(&entry).map_err(write_failed(&entry))?;
            fs::rename(&archives, &archive).map_err(write_failed(&archive))?;
        } else {
            let wanted = |name: &Path| !name.starts_with("usr/share");
            deb::files(&deb, &entry.join("headers"), &wanted, &cancelled)?;
        }
    }
    let path = entry.join(OTHERS);
    fs::write(&path, others).map_err(write_failed(&path))?;
    keep(&entry, folder)
}

/// The packages that modules of a kernel are built from.
struct Packages {
    /// For the kernel's architecture: headers and source.
    of_kernel: Vec<Offer>,
    /// kbuild's programs, which run here.
    of_here: Vec<Offer>,
}

impl Packages {
    /// Those whose versions are the nearest to the kernel's that their dependencies on each other allow.
    fn find(apt: &Apt, here: &Apt, release: &str, version: &str) -> Result<Self, KernelStoreError> {
        let headers = Dependency::on(&format!("linux-headers-{release}"));
        let headers = apt.nearest(&headers, version)?;
        let mut found = Packages { of_kernel: Vec::new(), of_here: Vec::new() };
        for needed in headers.depends.iter().flatten() {
            if needed.package.starts_with(KBUILD) {
                found.of_here.push(here.nearest(needed, version)?);
            } else if needed.package.starts_with("linux-headers-") {
                found.of_kernel.push(apt.nearest(needed, version)?);
            }
        }
        let source = Dependency::on(&source_package(version));
        found.of_kernel.extend([headers, apt.nearest(&source, version)?]);
        Ok(found)
    }

    /// The same, if headers and source are of the kernel's version.
    fn exactly(self, apt: &Apt, version: &str) -> Result<Self, KernelStoreError> {
        for offer in &self.of_kernel {
            apt.nearest(&Dependency::on(&offer.package).exactly(version), version)?;
        }
        Ok(self)
    }
}

/// The remedy for a missing package: another kernel, with all packages in the archive.
fn other_kernel(apt: &Apt, here: &Apt, image: &str) -> Option<String> {
    let (other, _) = apt.image_with(image, |offer| {
        let release = offer.package.trim_start_matches("linux-image-");
        Packages::find(apt, here, release, &offer.version).map(|_| ())
    })?;
    let source = other.source();
    Some(format!(
        "`plumb kernel add {source}`, whose modules can be built, and `--kernel {source}`"
    ))
}

/// The version of Linux that a package is made from: 6.1.190 of 6.1.190-1.
fn upstream(version: &str) -> &str {
    version.split(['-', '~', '+']).next().unwrap_or(version)
}

/// The package with the source of that version: `linux-source-6.1` of 6.1.190-1.
fn source_package(version: &str) -> String {
    let upstream = upstream(version);
    let series: Vec<&str> = upstream.split('.').take(2).collect();
    format!("{SOURCE}{}", series.join("."))
}

/// Remove the kept files of a kernel; returns their size.
pub(super) fn forget(folder: &Path) -> Result<u64, ModuleBuildError> {
    packages::removed(folder).map_err(write_failed(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a version's source is found under the name of its series.
    #[test]
    fn source_packages() {
        assert_eq!(source_package("6.1.192-2"), "linux-source-6.1");
        assert_eq!(source_package("6.12.117-1~deb12u1"), "linux-source-6.12");
    }
}
