//! The compiler that a kernel of another architecture was built with.
//!
//! Debian's kernels are built on machines of their own architecture, by its gcc; the compilers for other architectures
//! are packages of their own, which fixes of gcc may not reach: in Debian 12 (12.2.0-14) they lack what
//! 12.2.0-14+deb12u1 changed in the frames of AArch64 (CVE-2023-4039), so that functions with a stack protector differ.
//! So the compiler proper (`cc1`) is taken out of the kernel's own package, or the nearest that the archive has, and
//! run by QEMU's user mode; the rest of gcc, and the assembler, are this machine's.
//!
//! ```text
//! sources/compilers/gcc-12_12.2.0-14+deb12u1_arm64/cc1    runs the program below by QEMU
//!                                                  root/  the packages of it and of its libraries
//!                                                  version
//! ```

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use netplumb_kernel::deb::{Dependency, distance};
use netplumb_model::arch::Arch;

use super::error::{ModuleBuildError, write_failed};
use super::program::is_installed;
use super::source::{is_whole, keep};
use crate::packages;
use crate::vm::kernels::stage::Stage;
use crate::vm::kernels::{KernelStoreError, Progress, apt};

const FOLDER: &str = "compilers";
/// The version of the package that a compiler is out of.
const VERSION: &str = "version";

/// The version of the package in how a compiler of Debian's names itself: 12.2.0-14 of
/// `gcc-12 (Debian 12.2.0-14) 12.2.0`.
pub(super) fn debian_version(compiler: &str) -> Option<&str> {
    let (_, rest) = compiler.split_once("(Debian ")?;
    let (version, _) = rest.split_once(')')?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".+~-".contains(&byte);
    version.bytes().all(good).then_some(version)
}

/// The QEMU program that runs an architecture's programs, if it is installed.
fn emulator(arch: Arch) -> Option<String> {
    let names = ["", "-static"].map(|end| format!("qemu-{}{end}", arch.uname()));
    names.into_iter().find(|name| is_installed(name))
}

/// The remedy for using a kernel's own compiler.
pub(super) fn remedy(arch: Arch) -> Option<&'static str> {
    let remedy = "run `sudo apt-get install qemu-user` for the kernel's own compiler to be used";
    emulator(arch).is_none().then_some(remedy)
}

/// A gcc of Debian's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DebianGcc<'a> {
    /// `12` of `gcc-12`.
    release: &'a str,
    /// The version of its package.
    pub(super) version: &'a str,
}

impl<'a> DebianGcc<'a> {
    /// Parses a compiler's version string; none unless it is Debian's gcc.
    pub(super) fn parse(compiler: &'a str) -> Option<Self> {
        let name = compiler.split_whitespace().next()?;
        let cross =
            Arch::ALL.iter().find_map(|arch| name.strip_prefix(arch.gnu())?.strip_prefix('-'));
        let release = cross.unwrap_or(name).strip_prefix("gcc-")?;
        let is_number = !release.is_empty() && release.bytes().all(|byte| byte.is_ascii_digit());
        let version = debian_version(compiler).filter(|_| is_number)?;
        Some(DebianGcc { release, version })
    }

    /// The name of its directory.
    pub(super) fn folder(self, arch: Arch) -> String {
        let DebianGcc { release, version } = self;
        format!("gcc-{release}_{version}_{}", arch.debian())
    }

    /// Fetch it for an architecture, unless it is there, or the nearest version in the archive; none without an
    /// emulator to run it, or if the archive has none that is nearer than this machine's, which is of the version
    /// `here`.
    pub(super) fn fetch(
        self,
        store: &Path,
        arch: Arch,
        here: Option<&str>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Fetched>, ModuleBuildError> {
        let DebianGcc { release, version } = self;
        let Some(emulator) = emulator(arch) else {
            return Ok(None);
        };
        let folder = store.join(FOLDER).join(self.folder(arch));
        if is_whole(&folder, progress)? {
            let kept = fs::read_to_string(folder.join(VERSION));
            let version = kept.unwrap_or_else(|_| version.to_owned());
            return Ok(Some(Fetched { folder, version }));
        }
        let stage = Stage::new(store)?;
        let (entry, fetched) = (stage.entry(), stage.fetch()?);
        let cache = store.parent().unwrap_or(store);
        let package = Dependency::on(&format!("cpp-{release}"));
        let found = apt::ask(cache, cancel, progress, |archive| {
            let apt = archive.apt(arch)?;
            let wanted = match archive.is_fresh() {
                true => package.clone(),
                false => package.clone().exactly(version),
            };
            let offer = apt.nearest(&wanted, version)?;
            if here.is_some_and(|here| distance(here, version) <= distance(&offer.version, version))
            {
                return Ok(None);
            }
            let offers = apt.with_libraries(offer)?;
            archive.download(&apt, &package.package, &offers, &fetched)?;
            Ok(Some(offers))
        });
        let offers = match found {
            Ok(Some(offers)) => offers,
            Ok(None) | Err(KernelStoreError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let root = entry.join("root");
        packages::unpack(&offers, &fetched, &root, cancel)?;
        let program = format!("usr/lib/gcc/{}/{release}/cc1", arch.gnu());
        if !root.join(&program).is_file() {
            return Ok(None);
        }
        let version = offers.first().map_or(version, |offer| &offer.version).to_owned();
        let wrapper = entry.join("cc1");
        let text = format!(
            "#!/bin/sh\nroot=${{0%/*}}/root\nexec {emulator} -L \"$root\" \"$root/{program}\" \"$@\"\n"
        );
        for (path, text) in [(&wrapper, &text), (&entry.join(VERSION), &version)] {
            fs::write(path, text).map_err(write_failed(path))?;
        }
        let mode = Permissions::from_mode(0o755);
        fs::set_permissions(&wrapper, mode).map_err(write_failed(&wrapper))?;
        let above = store.join(FOLDER);
        fs::create_dir_all(&above).map_err(write_failed(&above))?;
        keep(&entry, &folder)?;
        Ok(Some(Fetched { folder, version }))
    }
}

/// A compiler that was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The folder for gcc's option `-B`.
    pub(super) folder: PathBuf,
    /// The version of its package.
    pub(super) version: String,
}

/// Remove all compilers but those in these directories; returns their size.
pub(super) fn forget(store: &Path, wanted: &BTreeSet<String>) -> Result<u64, ModuleBuildError> {
    let mut bytes = 0;
    let compilers = fs::read_dir(store.join(FOLDER));
    for entry in compilers.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !wanted.contains(&name) {
            let folder = entry.path();
            bytes += packages::removed(&folder).map_err(write_failed(&folder))?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which part of a compiler's name is the version of a package of Debian's.
    #[test]
    fn versions() {
        for (text, version) in [
            ("gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", Some("12.2.0-14+deb12u1")),
            ("aarch64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0", Some("12.2.0-14")),
            ("gcc-12 (Debian ../../x) 12.2.0", None),
            ("aarch64-linux-gnu-gcc (Ubuntu 13.2.0-4) 13.2.0", None),
            ("", None),
        ] {
            assert_eq!(debian_version(text), version, "{text}");
        }
    }

    /// Check which compilers are in Debian's archive: no other distribution's, and no path.
    #[test]
    fn wanted() {
        let (release, version) = ("12", "12.2.0-14+deb12u1");
        for name in ["gcc-12", "aarch64-linux-gnu-gcc-12"] {
            let text = format!("{name} (Debian 12.2.0-14+deb12u1) 12.2.0");
            assert_eq!(DebianGcc::parse(&text), Some(DebianGcc { release, version }));
        }
        for other in [
            "sparc64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0",
            "gcc-13 (Ubuntu 13.2.0-4) 13.2.0",
            "gcc-../x (Debian 12.2.0-14) 12.2.0",
            "gcc- (Debian 12.2.0-14) 12.2.0",
            "Debian clang version 16.0.6 (15~deb12u1)",
            "",
        ] {
            assert_eq!(DebianGcc::parse(other), None, "{other}");
        }
    }
}
