//! Debug information of a kernel: from Debian's package `linux-image-RELEASE-dbg`, or the directory
//! that it was built in.
//!
//! ```text
//! kernels/HASH/debug/vmlinux       the ELF file with DWARF
//!                    modules/      the modules' own, NAME.ko with underscores
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use netplumb_kernel::deb::{self, Dependency};
use netplumb_kernel::image::BootForm;
use object::Object;
use object::read::elf::ElfFile64;

use super::asked::PREFIX;
use super::error::{read_failed, write_failed};
use super::{KernelEntry, KernelStore, KernelStoreError, Progress, apt, collect, go_on, stage};
use crate::sums;

const FOLDER: &str = "debug";
/// Where the package has its files.
const IMAGES: &str = "usr/lib/debug/boot";
const MODULES: &str = "usr/lib/debug/lib/modules";
/// The modules that are kept, by their folders below `kernel/`: what labs load, and the network stack. All drivers
/// would take gigabytes.
const KEPT: [&str; 15] = [
    "arch/arm64",
    "arch/x86",
    "block",
    "crypto",
    "drivers/block",
    "drivers/net/ethernet/intel/e1000",
    "drivers/net/ethernet/intel/e1000e",
    "drivers/net/mdio",
    "drivers/net/phy",
    "drivers/net/usb",
    "drivers/usb",
    "drivers/virtio",
    "fs/ext4",
    "lib",
    "net",
];
/// The files of these folders, without folders below.
const KEPT_FILES: [&str; 4] = ["drivers/net", "fs", "fs/jbd2", "fs/xfs"];

impl KernelEntry {
    fn debug_folder(&self) -> PathBuf {
        self.folder.join(FOLDER)
    }

    /// Its ELF file with debug information, if that was added.
    pub fn debug_vmlinux(&self) -> Option<PathBuf> {
        let path = self.debug_folder().join("vmlinux");
        path.is_file().then_some(path)
    }

    /// The file with the debug information of one of its modules, if that was added.
    pub fn debug_module(&self, name: &str) -> Option<PathBuf> {
        let path = self.debug_folder().join("modules").join(file_of(name)?);
        path.is_file().then_some(path)
    }

    /// The size of its debug information, if that was added.
    pub fn debug_bytes(&self) -> Option<u64> {
        self.debug_vmlinux()?;
        let mut files = Vec::new();
        collect::files_under(&self.debug_folder(), &mut files).ok()?;
        let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
        Some(sizes.map(|of| of.len()).sum())
    }
}

/// The name of a module's file; the kernel spells a module's name with underscores.
fn file_of(module: &str) -> Option<String> {
    let name = module.trim_end_matches(".ko").replace('-', "_");
    let plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
    plain.then(|| name + ".ko")
}

impl KernelStore {
    /// Add the debug information of a kernel; returns whether it was there already.
    ///
    /// # Errors
    /// The kernel is neither from a Debian package nor from a build directory that is still there, the archive does not
    /// have its version any more, or the information found is of another build.
    pub fn add_debug(
        &self,
        kernel: &KernelEntry,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, KernelStoreError> {
        let folder = kernel.debug_folder();
        let mut tell = |line| progress(Progress::Removed(line));
        if kernel.debug_vmlinux().is_some()
            && sums::is_whole(&folder, &mut tell).map_err(read_failed(&folder))?
        {
            return Ok(true);
        }
        let stage = stage::Stage::new(&self.folder)?;
        let entry = stage.entry();
        let modules = entry.join("modules");
        fs::create_dir_all(&modules).map_err(write_failed(&modules))?;
        match kernel.build_directory() {
            Some(tree) => {
                progress(Progress::Unpacking);
                self.copy_debug(&tree, &entry)?;
            }
            None => {
                let fetched = stage.fetch()?;
                let deb = self.fetch_debug(kernel, &fetched, progress)?;
                progress(Progress::Unpacking);
                self.unpack_debug(kernel, &deb, &fetched, &entry)?;
            }
        }
        let vmlinux = entry.join("vmlinux");
        if !is_of_build(kernel, &vmlinux)? {
            return Err(KernelStoreError::OtherDebug { release: kernel.release.clone() });
        }
        sums::seal(&entry).map_err(write_failed(&folder))?;
        let _lock = stage::lock(&self.folder)?;
        match sums::rename(&entry, &folder) {
            // Another run was quicker.
            Err(_) if kernel.debug_vmlinux().is_some() => Ok(true),
            done => done.map(|()| false).map_err(write_failed(&folder)),
        }
    }

    fn fetch_debug(
        &self,
        kernel: &KernelEntry,
        folder: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, KernelStoreError> {
        let Some(version) = kernel.package_version() else {
            return Err(KernelStoreError::NoDebug {
                release: kernel.release.clone(),
                added_from: kernel.source().to_owned(),
            });
        };
        let package = |image: &str| Dependency::on(&format!("{image}-dbg"));
        let image = format!("{PREFIX}{}", kernel.release);
        apt::ask(self.cache(), &self.cancel, progress, |archive| {
            let apt = archive.apt(kernel.arch)?;
            // A package of another version is from another build.
            let offer = apt.nearest(&package(&image).exactly(version), version);
            let remedy = || {
                let (other, offer) = apt.image_with(&image, |offer| {
                    let wanted = package(&offer.package).exactly(&offer.version);
                    apt.nearest(&wanted, &offer.version).map(|_| ())
                })?;
                // That package's kernel would be taken to be there.
                let first = match offer.package == image {
                    true => format!("`plumb kernel rm {}`, then ", kernel.short()),
                    false => String::new(),
                };
                Some(format!("{first}`plumb kernel add {} --debug`", other.source()))
            };
            let offer = offer.map_err(|error| match archive.is_fresh() {
                true => error.with_remedy(remedy),
                false => error,
            })?;
            archive.download(&apt, &offer.package, std::slice::from_ref(&offer), folder)?;
            Ok(folder.join(offer.file()))
        })
    }

    /// Unpack a package, and move the files to keep into place.
    fn unpack_debug(
        &self,
        kernel: &KernelEntry,
        deb: &Path,
        fetched: &Path,
        entry: &Path,
    ) -> Result<(), KernelStoreError> {
        let image = Path::new(IMAGES).join(format!("vmlinux-{}", kernel.release));
        let below = Path::new(MODULES).join(&kernel.release).join("kernel");
        let wanted = |name: &Path| {
            let module = name.strip_prefix(&below);
            name == image || module.is_ok_and(is_kept)
        };
        let unpacked = fetched.join("unpacked");
        let cancelled = || self.cancel.load(Ordering::Relaxed);
        let done = deb::files(deb, &unpacked, &wanted, &cancelled);
        go_on(&self.cancel)?;
        done?;
        let move_to = |from: &Path, to: &Path| fs::rename(from, to).map_err(write_failed(to));
        move_to(&unpacked.join(image), &entry.join("vmlinux"))?;
        let mut files = Vec::new();
        if unpacked.join(&below).is_dir() {
            collect::files_under(&unpacked.join(&below), &mut files)?;
        }
        for file in files {
            if let Some(name) = file.file_stem().and_then(|name| file_of(name.to_str()?)) {
                move_to(&file, &entry.join("modules").join(name))?;
            }
        }
        Ok(())
    }

    /// Copy what a build directory has.
    fn copy_debug(&self, tree: &Path, entry: &Path) -> Result<(), KernelStoreError> {
        let copy = |from: &Path, to: &Path| {
            fs::copy(from, to)
                .map(|_| ())
                .map_err(|_| KernelStoreError::NotBuilt { path: tree.to_owned() })
        };
        copy(&tree.join("vmlinux"), &entry.join("vmlinux"))?;
        for module in collect::built_modules(tree)? {
            go_on(&self.cancel)?;
            if let Some(name) = module.file_stem().and_then(|name| file_of(name.to_str()?)) {
                copy(&tree.join(&module), &entry.join("modules").join(name))?;
            }
        }
        Ok(())
    }
}

/// Whether the debug information of a module is kept, by its path below `kernel/`.
fn is_kept(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    KEPT.iter().any(|kept| folder.starts_with(kept))
        || KEPT_FILES.iter().any(|kept| folder == Path::new(kept))
}

/// Whether an ELF file has the build ID of a kernel.
fn is_of_build(kernel: &KernelEntry, debug: &Path) -> Result<bool, KernelStoreError> {
    let read = |path: &Path| fs::read(path).map_err(read_failed(path));
    let (own, found) = (read(&kernel.unpacked())?, build_id(&read(debug)?));
    Ok(match (kernel.boot(), found) {
        // It has no sections, but the note is somewhere; the vDSO's note is, too.
        (BootForm::Raw, Some(id)) => memchr::memmem::find(&own, &note(&id)).is_some(),
        (BootForm::Raw, None) => false,
        (_, found) => build_id(&own) == found,
    })
}

/// The build ID of an ELF file, which debug information of it has too.
fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    let elf = ElfFile64::<object::LittleEndian>::parse(bytes).ok()?;
    elf.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// The note with a build ID: the sizes of its name and of the ID, its type, its name.
fn note(id: &[u8]) -> Vec<u8> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let head = [4, id.len() as u32, NT_GNU_BUILD_ID].map(u32::to_le_bytes);
    [head.as_flattened(), b"GNU\0", id].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the modules of labs are kept, and not the drivers of all network cards.
    #[test]
    fn modules_that_are_kept() {
        for kept in [
            "net/ipv4/tcp_bbr.ko",
            "drivers/net/veth.ko",
            "drivers/net/usb/smsc95xx.ko",
            "drivers/net/ethernet/intel/e1000/e1000.ko",
            "drivers/usb/usbip/vhci-hcd.ko",
            "fs/xfs/xfs.ko",
        ] {
            assert!(is_kept(Path::new(kept)), "{kept}");
        }
        for left in [
            "drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko",
            "drivers/net/wireless/ath/ath.ko",
            "fs/btrfs/btrfs.ko",
            "network/x.ko",
        ] {
            assert!(!is_kept(Path::new(left)), "{left}");
        }
    }

    /// Check that modules are found by the kernel's spelling, and nothing outside of the folder.
    #[test]
    fn names_of_files() {
        assert_eq!(file_of("vhci-hcd").as_deref(), Some("vhci_hcd.ko"));
        assert_eq!(file_of("usbnet.ko").as_deref(), Some("usbnet.ko"));
        for wrong in ["", "..", "../vmlinux", ".ko"] {
            assert_eq!(file_of(wrong), None, "{wrong}");
        }
    }
}
