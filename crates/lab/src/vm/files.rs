//! Files that a guest's knobs need, in addition to init and modules.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use cpio::newc::Builder;
use netplumb_model::arch::Arch;
use netplumb_model::experiment::FileSystem;
use netplumb_model::recording::env;

use crate::bundle::{Bundle, BundleError, Host, Kind, companions};
use crate::netns::{NFT, NO_TC, TC};
use crate::packages;
use crate::vm::disk::maker_path;
use crate::vm::kernels::{KernelStoreError, Progress};

const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const FILE: u32 = 0o100_000;

/// A program that guests run: this machine's or, in guests of another architecture, the one from Debian's package for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Loads rules of nftables.
    Nft,
    /// Sets qdiscs.
    Tc,
    /// A web server.
    Nginx,
    /// Makes a file system.
    Mkfs(FileSystem),
}

/// Where the web server is in a guest.
pub const NGINX: &str = "/usr/sbin/nginx";

/// A program can't be copied into a guest.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// This machine has no such program.
    #[error("{0}")]
    Missing(String),
    /// The package for guests of another architecture can't be fetched.
    #[error(
        "guests of {arch} run {program} of Debian's package {package}, which is not in the cache yet: {source}; \
         or leave out what needs it, or use --arch {own}", own = Arch::OWN
    )]
    Fetch {
        /// The program's name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        /// The guest's architecture.
        arch: Arch,
        /// What is wrong.
        source: Box<KernelStoreError>,
    },
    /// It can't be copied.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A system call failed.
    #[error("can't pack a program for the guest: {0}")]
    Io(#[from] io::Error),
}

impl Program {
    /// Its name, and its path in the guest.
    fn place(self) -> Option<(&'static str, PathBuf)> {
        Some(match self {
            Program::Nft => ("nft", NFT.into()),
            Program::Tc => ("tc", TC.into()),
            Program::Nginx => ("nginx", NGINX.into()),
            Program::Mkfs(file_system) => {
                let (name, _) = file_system.maker()?;
                (name, maker_path(name))
            }
        })
    }

    /// The Debian package with it.
    fn package(self) -> &'static str {
        match self {
            Program::Nft => "nftables",
            Program::Tc => "iproute2",
            Program::Nginx => "nginx",
            Program::Mkfs(file_system) => file_system.maker().unwrap_or_default().1,
        }
    }

    /// The key of the fact in a recording with the hash of its files.
    pub fn key(self) -> &'static str {
        match self {
            Program::Nft => env::NFT_FILES,
            Program::Tc => env::TC_FILES,
            Program::Nginx => env::NGINX_FILES,
            Program::Mkfs(_) => env::MKFS_FILES,
        }
    }

    /// The message where this machine lacks it.
    pub fn missing(self) -> String {
        match self {
            Program::Nft => "rules of nftables are loaded by this machine's `nft`, which is not \
                             installed: apt-get install nftables"
                .into(),
            Program::Tc => NO_TC.into(),
            Program::Nginx => "the web server is this machine's `nginx`, which is not installed: \
                               apt-get install nginx-core"
                .into(),
            Program::Mkfs(file_system) => {
                let (program, package) = file_system.maker().unwrap_or_default();
                format!(
                    "{program} of this machine makes the guest's file system, and is not installed: \
                     apt-get install {package}"
                )
            }
        }
    }

    /// An archive with it and its libraries, to append to the one of `initramfs::build`: the kernel unpacks both.
    ///
    /// # Errors
    /// This machine lacks it, or it can't be read; for another architecture, it was not fetched.
    pub fn archive(self, arch: Arch, cache: &Path) -> Result<Vec<u8>, FilesError> {
        match self.place() {
            Some((name, _)) => filled(name, &self.bundle(arch, cache)?),
            None => Ok(Vec::new()),
        }
    }

    /// It and its libraries.
    ///
    /// # Errors
    /// As for [`Program::archive`].
    pub fn bundle(self, arch: Arch, cache: &Path) -> Result<Bundle, FilesError> {
        let host = match arch == Arch::OWN {
            true => Host::here()?,
            false => Host::at(&packages::root(cache, arch, self.package())),
        };
        self.bundle_of(host, arch)
    }

    /// Fetch it for guests of another architecture than this machine's, unless that was done before.
    ///
    /// # Errors
    /// Debian's archive does not have it for that architecture, or can't be reached.
    pub fn fetch(
        self,
        arch: Arch,
        cache: &Path,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), FilesError> {
        let Some((program, _)) = self.place().filter(|_| arch != Arch::OWN) else {
            return Ok(());
        };
        let package = self.package();
        packages::fetch(cache, arch, package, cancel, progress).map_err(|source| {
            FilesError::Fetch { program, package, arch, source: Box::new(source) }
        })
    }

    fn bundle_of(self, host: Host, arch: Arch) -> Result<Bundle, FilesError> {
        let mut bundle = Bundle::new(host).for_arch(arch);
        let Some((name, path)) = self.place() else {
            return Ok(bundle);
        };
        // The same name in any directory of $PATH, where these are links to one another.
        let found = match bundle.find_as(name, &path) {
            Err(BundleError::NotFound(_)) => return Err(FilesError::Missing(self.missing())),
            other => other?,
        };
        bundle.add_executable(&found)?;
        if found != path {
            bundle.add_with(&found, Some(&path))?;
        }
        if self == Program::Tc {
            // Distribution tables of netem.
            companions::add(&mut bundle, &found)?;
        }
        Ok(bundle)
    }
}

/// Size in pages to which a program and its libraries are padded, or to a multiple of it, as
/// `initramfs` does with our own: the next version of a library may be a page larger.
const PROGRAM_PAGES: usize = (8 << 20) / PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
/// Size to which headers and names are padded, likewise.
const HEADERS_BYTES: usize = 64 << 10;

/// An archive that takes the same memory, packed and unpacked, whatever the sizes of its files.
fn filled(name: &str, bundle: &Bundle) -> Result<Vec<u8>, FilesError> {
    let pages = bundle.entries().values().map(|entry| match &entry.kind {
        Kind::File { size_bytes, .. } => (*size_bytes as usize).div_ceil(PAGE_BYTES),
        Kind::Folder | Kind::Link(_) => 0,
    });
    let pages: usize = pages.sum();
    let whole = pages.next_multiple_of(PROGRAM_PAGES);
    let mut archive = archive(bundle, Some((name, (whole - pages) * PAGE_BYTES)))?;
    let bytes = whole * PAGE_BYTES;
    let headers = archive.len().saturating_sub(bytes).max(1);
    // The kernel skips zeros between archives (init/initramfs.c).
    archive.resize(bytes + headers.next_multiple_of(HEADERS_BYTES), 0);
    Ok(archive)
}

/// An archive of a bundle, and of a file with this number of zeros, named after a program.
fn archive(bundle: &Bundle, zeros: Option<(&str, usize)>) -> Result<Vec<u8>, FilesError> {
    let mut archive = Vec::with_capacity(bundle.size_bytes() as usize + (64 << 10));
    if let Some((name, bytes)) = zeros {
        let builder = Builder::new(&format!(".fill-{name}")).ino(1).mode(FILE | 0o600).nlink(1);
        let mut writer = builder.write(&mut archive, bytes as u32);
        io::copy(&mut io::repeat(0).take(bytes as u64), &mut writer)?;
        writer.finish()?;
    }
    for (inode, (path, entry)) in (2..).zip(bundle.entries()) {
        let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy();
        if name.is_empty() {
            continue;
        }
        let (kind, bytes) = match &entry.kind {
            Kind::Folder => (FOLDER, Vec::new()),
            Kind::Link(to) => (LINK, to.to_string_lossy().into_owned().into_bytes()),
            Kind::File { .. } => (FILE, entry.read()?),
        };
        let builder = Builder::new(&name).ino(inode).mode(kind | entry.mode).nlink(1);
        let mut writer = builder.write(&mut archive, bytes.len() as u32);
        writer.write_all(&bytes)?;
        writer.finish()?;
    }
    cpio::newc::trailer(&mut archive)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a machine without a program gets the name of its package.
    #[test]
    fn what_is_missing() {
        let empty = tempfile::tempdir().unwrap();
        for (program, package) in [
            (Program::Nft, "nftables"),
            (Program::Tc, "iproute2"),
            (Program::Nginx, "nginx-core"),
            (Program::Mkfs(FileSystem::Ext4), "e2fsprogs"),
        ] {
            let error = program.bundle_of(Host::at(empty.path()), Arch::OWN).unwrap_err();
            let FilesError::Missing(why) = error else {
                panic!("{error}");
            };
            assert!(why.contains(&format!("apt-get install {package}")), "{why}");
        }
    }

    /// Check that links and files are unpacked as such, below the root, in order.
    #[test]
    fn an_archive_reads_back() {
        let mut bundle = Bundle::new(Host::here().unwrap());
        // A program that every machine has.
        bundle.add_program("sh").unwrap();
        let archive = archive(&bundle, None).unwrap();
        let mut rest = &archive[..];
        let mut names = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_string());
            rest = reader.finish().unwrap();
        }
        assert!(names.iter().all(|n| !n.starts_with('/')), "{names:?}");
        assert!(names.iter().any(|n| n.contains("ld-")), "{names:?}");
    }

    /// Check that a guest's free memory does not depend on the sizes of a program's files.
    #[test]
    fn the_sizes_of_files_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let of = |bytes: usize| {
            let path = folder.path().join("file");
            std::fs::write(&path, vec![7; bytes]).unwrap();
            let mut bundle = Bundle::new(Host::here().unwrap());
            bundle.add_with(&path, Some(Path::new("/srv/file"))).unwrap();
            filled("it", &bundle).unwrap()
        };
        let archives = [1, 4096, 4097, 5_000_000, 8 << 20].map(of);
        for archive in &archives {
            assert_eq!(archive.len(), archives[0].len());
        }
        let pages = |archive: &[u8]| {
            let mut rest = archive;
            let mut pages = 0;
            loop {
                let reader = cpio::newc::Reader::new(rest).unwrap();
                if reader.entry().is_trailer() {
                    return pages;
                }
                pages += reader.entry().file_size().div_ceil(PAGE_BYTES as u32);
                rest = reader.finish().unwrap();
            }
        };
        for archive in &archives {
            assert_eq!(pages(archive) as usize, PROGRAM_PAGES);
        }
    }
}
