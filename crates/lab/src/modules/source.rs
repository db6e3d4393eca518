//! The source and headers of a kernel, as far as they are needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use netplumb_kernel::deb;

use super::error::{ModuleBuildError, read_failed, write_failed};
use super::place::Place;
use crate::vm::kernels::stage::Stage;
use crate::vm::kernels::{KernelEntry, Progress, apt};

/// Where packages of headers have theirs.
const HEADERS: &str = "usr/src";
/// The kernel's source, as the package has it.
const ARCHIVE: &str = "source.tar.xz";
/// Headers may include others, which may include others.
const ROUNDS_MAX: usize = 4;

/// Where a kernel's source is.
#[derive(Debug)]
pub(super) struct Source {
    /// What makes modules: the folder to run make in.
    pub(super) headers: PathBuf,
    /// Where `/usr/src` of the packages is; none for a build directory.
    pub(super) root: Option<PathBuf>,
    /// For what is made for a while.
    pub(super) store: PathBuf,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    /// In an archive, with the folders that were unpacked.
    Archive { archive: PathBuf, folders: PathBuf },
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
        if let Some(tree) = build_directory(kernel) {
            let source = tree.join("source");
            let has_source = source.join("Makefile").is_file();
            return Ok(Source {
                root: None,
                store: store.to_owned(),
                kept: Kept::Tree(if has_source { source } else { tree.clone() }),
                headers: tree,
            });
        }
        let version = kernel
            .sources
            .iter()
            .find_map(|from| from.package_version.as_deref());
        let Some(version) = version else {
            return Err(ModuleBuildError::NoSource {
                release: kernel.release.clone(),
                added_from: kernel.source().to_owned(),
            });
        };
        let folder = store.join(&kernel.hash);
        if !folder.is_dir() {
            fetch(store, &folder, &kernel.release, version, cancel, progress)?;
        }
        let root = folder.join("headers");
        let headers = root
            .join(HEADERS)
            .join(format!("linux-headers-{}", kernel.release));
        Ok(Source {
            headers,
            root: Some(root),
            store: store.to_owned(),
            kept: Kept::Archive {
                archive: folder.join(ARCHIVE),
                folders: folder.join("folders"),
            },
        })
    }

    /// Copy the headers that a module's folder includes from elsewhere in the source.
    pub(super) fn copy_headers(
        &self,
        place: &Place,
        from: &Path,
        into: &Path,
    ) -> Result<(), ModuleBuildError> {
        for _ in 0..ROUNDS_MAX {
            let missing = missing_headers(into, &place.folder)?;
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

    /// The module's folder in the source, with what it includes by a path from there: the
    /// folder returned holds it under its path.
    pub(super) fn folder(
        &mut self,
        place: &Place,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, ModuleBuildError> {
        let (archive, folders) = match &self.kept {
            Kept::Tree(tree) => {
                return match tree.join(&place.folder).is_dir() {
                    true => Ok(tree.clone()),
                    false => Err(no_folder(tree, place)),
                };
            }
            Kept::Archive { archive, folders } => (archive, folders),
        };
        let kept = folders.join(place.folder.to_string_lossy().replace('/', "-"));
        if kept.is_dir() {
            return Ok(kept);
        }
        progress(Progress::Unpacking);
        let stage = Stage::new(&self.store)?;
        let into = stage.entry();
        let mut missing = BTreeSet::new();
        for round in 0..ROUNDS_MAX {
            let wanted = |name: &Path| {
                let inner = without_first(name);
                match round {
                    0 => inner.starts_with(&place.folder),
                    _ => missing.contains(inner) && !into.join(name).exists(),
                }
            };
            deb::tar_files(archive, &into, &wanted, &|| cancel.load(Ordering::Relaxed))?;
            let before = missing;
            missing = missing_headers(&only_folder(&into)?, &place.folder)?;
            // Some are not in the source, since they are made while it is built.
            if missing == before {
                break;
            }
        }
        let top = only_folder(&into)?;
        if !top.join(&place.folder).is_dir() {
            return Err(no_folder(archive, place));
        }
        fs::create_dir_all(folders).map_err(write_failed(folders))?;
        keep(&top, &kept)?;
        Ok(kept)
    }
}

/// Give a folder its name, unless another run was quicker.
fn keep(from: &Path, kept: &Path) -> Result<(), ModuleBuildError> {
    match fs::rename(from, kept) {
        Err(_) if kept.is_dir() => Ok(()),
        done => done.map_err(write_failed(kept)),
    }
}

fn no_folder(path: &Path, place: &Place) -> ModuleBuildError {
    ModuleBuildError::NoFolder {
        path: path.to_owned(),
        folder: place.folder.display().to_string(),
    }
}

/// The directory that a kernel was built in, if it is from one that is still there.
fn build_directory(kernel: &KernelEntry) -> Option<PathBuf> {
    let mut paths = kernel
        .sources
        .iter()
        .map(|from| PathBuf::from(&from.source));
    paths.find(|path| path.is_absolute() && path.join("Makefile").is_file())
}

/// A path without its first part: `linux-source-6.1/net/core/dev.c`.
fn without_first(name: &Path) -> &Path {
    let mut parts = name.components();
    parts.next();
    parts.as_path()
}

/// What an archive of source has at its top.
fn only_folder(into: &Path) -> Result<PathBuf, ModuleBuildError> {
    let mut entries = fs::read_dir(into).map_err(read_failed(into))?;
    match entries.next() {
        Some(entry) => Ok(entry.map_err(read_failed(into))?.path()),
        None => Ok(into.to_owned()),
    }
}

/// Headers that files below a folder of the source include by a path that leads out of their
/// own folder, and that are not there.
fn missing_headers(top: &Path, folder: &Path) -> Result<BTreeSet<PathBuf>, ModuleBuildError> {
    let mut missing = BTreeSet::new();
    let mut folders = vec![top.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.map_err(read_failed(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_c = path
                .extension()
                .is_some_and(|ending| ending == "c" || ending == "h");
            if !is_c {
                continue;
            }
            let text = fs::read(&path).map_err(read_failed(&path))?;
            for included in String::from_utf8_lossy(&text).lines().filter_map(included) {
                let Some(wanted) = resolve(&folder, Path::new(included), top) else {
                    continue;
                };
                if !top.join(&wanted).exists() {
                    missing.insert(wanted);
                }
            }
        }
    }
    Ok(missing)
}

/// The path in `#include "../x.h"`, if it leads out of the folder.
fn included(line: &str) -> Option<&str> {
    let rest = line
        .trim_start()
        .strip_prefix('#')?
        .trim_start()
        .strip_prefix("include")?;
    let (path, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    path.contains("../").then_some(path)
}

/// Where a path leads from a folder, seen from the top; none if it leads out of that.
fn resolve(folder: &Path, path: &Path, top: &Path) -> Option<PathBuf> {
    let mut at = folder.strip_prefix(top).ok()?.to_owned();
    for part in path.components() {
        match part {
            Component::Normal(part) => at.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !at.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(at)
}

/// Fetch and unpack the packages of a kernel's headers and its source.
fn fetch(
    store: &Path,
    folder: &Path,
    release: &str,
    version: &str,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), ModuleBuildError> {
    let stage = Stage::new(store)?;
    let fetched = stage.fetch()?;
    let headers = format!("linux-headers-{release}");
    let mut packages = vec![headers.clone()];
    packages.extend(
        apt::depends(&headers, version)?
            .into_iter()
            .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-")),
    );
    packages.push(source_package(version));
    // All of them, before the first is fetched.
    let mut offers = Vec::new();
    for package in packages {
        let offer =
            apt::offer_of(&package, version)?.ok_or_else(|| ModuleBuildError::NoVersion {
                package: package.clone(),
                version: version.to_owned(),
            })?;
        offers.push((package, offer));
    }
    let mut debs = Vec::new();
    for (package, offer) in &offers {
        debs.push(apt::download(package, offer, &fetched, cancel, progress)?);
    }
    progress(Progress::Unpacking);
    let cancelled = || cancel.load(Ordering::Relaxed);
    let entry = stage.entry();
    let (source, headers) = match debs.split_last() {
        Some(split) => split,
        None => return Ok(()),
    };
    for deb in headers {
        let wanted = |name: &Path| !name.starts_with("usr/share");
        deb::files(deb, &entry.join("headers"), &wanted, &cancelled)?;
    }
    let unpacked = fetched.join("source");
    let is_archive = |name: &Path| {
        let name = name.to_string_lossy();
        name.starts_with("usr/src/linux-source-") && name.ends_with(".tar.xz")
    };
    deb::files(source, &unpacked, &is_archive, &cancelled)?;
    let archives = only_folder(&unpacked.join(HEADERS))?;
    let archive = entry.join(ARCHIVE);
    fs::rename(&archives, &archive).map_err(write_failed(&archive))?;
    keep(&entry, folder)
}

/// The package with the source of that version: `linux-source-6.1` of 6.1.190-1.
fn source_package(version: &str) -> String {
    let upstream = version.split(['-', '~', '+']).next().unwrap_or(version);
    let series: Vec<&str> = upstream.split('.').take(2).collect();
    format!("linux-source-{}", series.join("."))
}

/// Remove what is kept of a kernel; returns its size.
pub(super) fn forget(folder: &Path) -> Result<u64, ModuleBuildError> {
    if !folder.is_dir() {
        return Ok(0);
    }
    let bytes = size(folder);
    fs::remove_dir_all(folder).map_err(write_failed(folder))?;
    Ok(bytes)
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
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

    /// Check which includes lead out of a folder, and to where.
    #[test]
    fn includes() {
        assert_eq!(included("#include \"../core.h\""), Some("../core.h"));
        assert_eq!(
            included(" # include \"a/../b.h\" /* c */"),
            Some("a/../b.h")
        );
        for line in ["#include <../x.h>", "#include \"x.h\"", "int x;"] {
            assert_eq!(included(line), None, "{line}");
        }
        let top = Path::new("/t");
        let to = |path: &str| resolve(Path::new("/t/a/b"), Path::new(path), top);
        assert_eq!(to("../c.h"), Some(PathBuf::from("a/c.h")));
        assert_eq!(to("../../../etc/passwd"), None);
        assert_eq!(to("/etc/passwd"), None);
    }

    /// Check that a header which is included from elsewhere is missed until it is there.
    #[test]
    fn missing() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(
            top.join("a/b/c/x.c"),
            "#include \"../../core.h\"\n#include \"../y.h\"\n",
        )
        .unwrap();
        let wanted = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let missing = || missing_headers(top, Path::new("a/b")).unwrap();
        assert_eq!(missing(), wanted(&["a/b/y.h", "a/core.h"]));
        fs::write(top.join("a/core.h"), "").unwrap();
        fs::write(top.join("a/b/y.h"), "").unwrap();
        assert!(missing().is_empty());
    }
}
