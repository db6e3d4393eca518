//! Debian's packages for another architecture than this machine's, unpacked in the cache and not
//! installed: programs that its guests run, with their libraries.
//!
//! ```text
//! sources/programs/nftables_arm64/    usr/sbin/nft, usr/lib/aarch64-linux-gnu/libnftables.so.1, ...
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use netplumb_kernel::deb;
use netplumb_model::arch::Arch;

use crate::sums;
use crate::vm::kernels::apt::{self, Apt};
use crate::vm::kernels::error::write_failed;
use crate::vm::kernels::offer::Offer;
use crate::vm::kernels::stage::Stage;
use crate::vm::kernels::{KernelEntry, KernelStoreError, Progress};

const FOLDER: &str = "sources/programs";
/// Directories that are links to those below `/usr`, as where Debian is installed.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// The root below which a package and its libraries are, if they were fetched.
pub fn root(cache: &Path, arch: Arch, package: &str) -> PathBuf {
    cache.join(FOLDER).join(format!("{package}_{}", arch.debian()))
}

/// Fetch a package and its libraries, unless they are there.
///
/// # Errors
/// The archive does not have them, apt can't fetch them, or they can't be unpacked.
pub fn fetch(
    cache: &Path,
    arch: Arch,
    package: &str,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), KernelStoreError> {
    let kept = root(cache, arch, package);
    let mut tell = |line| progress(Progress::Removed(line));
    if sums::is_whole(&kept, &mut tell).map_err(write_failed(&kept))? {
        return Ok(());
    }
    let stage = Stage::new(&cache.join(FOLDER))?;
    let (entry, fetched) = (stage.entry(), stage.fetch()?);
    let offers = apt::ask(cache, cancel, progress, |archive| {
        let apt = archive.apt(arch)?;
        let offers = apt.with_libraries(apt.current(package)?)?;
        archive.download(&apt, package, &offers, &fetched)?;
        Ok(offers)
    })?;
    unpack(&offers, &fetched, &entry, cancel)?;
    merge(&entry).map_err(write_failed(&entry))?;
    sums::seal(&entry).map_err(write_failed(&entry))?;
    match sums::rename(&entry, &kept) {
        // Another run was quicker.
        Err(_) if kept.is_dir() => Ok(()),
        done => done.map_err(write_failed(&kept)),
    }
}

/// Remove the programs and package lists of architectures without a kernel; returns how many bytes were freed.
///
/// # Errors
/// They can't be removed.
pub fn forget_without(cache: &Path, kernels: &[KernelEntry]) -> Result<u64, KernelStoreError> {
    let mut bytes = 0;
    for arch in Arch::ALL {
        if kernels.iter().any(|kernel| kernel.arch == *arch) {
            continue;
        }
        let ending = format!("_{}", arch.debian());
        let programs = fs::read_dir(cache.join(FOLDER));
        let programs = programs.into_iter().flatten().flatten();
        let its = programs.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(&ending)
        });
        for folder in its.chain([Apt::folder(*arch, cache)]) {
            bytes += removed(&folder).map_err(write_failed(&folder))?;
        }
    }
    Ok(bytes)
}

/// Remove a directory, if it is there; returns its size.
pub(crate) fn removed(folder: &Path) -> io::Result<u64> {
    if !folder.is_dir() {
        return Ok(0);
    }
    let bytes = size_bytes(folder);
    fs::remove_dir_all(folder)?;
    Ok(bytes)
}

/// The disk usage of all files below a directory: holes take no space.
pub fn size_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Unpack packages that were fetched below one root: all but documentation.
pub(crate) fn unpack(
    offers: &[Offer],
    fetched: &Path,
    into: &Path,
    cancel: &AtomicBool,
) -> Result<(), KernelStoreError> {
    let cancelled = || cancel.load(Ordering::Relaxed);
    let wanted = |name: &Path| !name.starts_with("usr/share");
    for offer in offers {
        deb::files(&fetched.join(offer.file()), into, &wanted, &cancelled)?;
    }
    Ok(())
}

/// Move what packages have in `/lib` and the like to `/usr`, and link them. Since Debian 13 packages have it in `/usr`
/// only, and the loader's name in a program is still in `/lib`.
fn merge(root: &Path) -> io::Result<()> {
    for name in MERGED {
        let (from, to) = (root.join(name), root.join("usr").join(name));
        if from.is_symlink() {
            continue;
        }
        if from.is_dir() {
            move_into(&from, &to)?;
        }
        if to.is_dir() {
            symlink(Path::new("usr").join(name), &from)?;
        }
    }
    Ok(())
}

/// Move a directory's contents to one that may exist already.
fn move_into(from: &Path, to: &Path) -> io::Result<()> {
    if !to.exists() {
        if let Some(above) = to.parent() {
            fs::create_dir_all(above)?;
        }
        return fs::rename(from, to);
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() && target.is_dir() {
            true => move_into(&entry.path(), &target)?,
            false => fs::rename(entry.path(), target)?,
        }
    }
    fs::remove_dir(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that libraries of both places are in one, and are found by either path.
    #[test]
    fn places_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (path, text) in
            [("lib/gnu/a", "a"), ("usr/lib/gnu/b", "b"), ("sbin/c", "c"), ("usr/lib64/d", "d")]
        {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("gnu/a", root.join("lib/link")).unwrap();
        merge(root).unwrap();
        for (path, text) in [
            ("lib/gnu/a", "a"),
            ("usr/lib/gnu/a", "a"),
            ("lib/gnu/b", "b"),
            ("lib/link", "a"),
            ("usr/sbin/c", "c"),
            ("lib64/d", "d"),
        ] {
            assert_eq!(fs::read_to_string(root.join(path)).unwrap(), text, "{path}");
        }
        // Once more changes nothing.
        merge(root).unwrap();
        assert!(root.join("lib").is_symlink() && !root.join("bin").exists());
    }
}
