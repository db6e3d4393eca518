//! Files out of Debian packages: a kernel's image, configuration and modules, or requested files of a package.
//!
//! A package is untrusted. It is read as a stream with bounds on what comes out; plain files
//! are written under names that this module chose or checked, in a folder that it made, and of
//! links those that stay within that folder. Devices and owners are never restored.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use archive::{Deb, Entry, for_each_entry};

mod archive;
mod depends;
mod error;
mod files;
mod sparse;

pub use archive::DebControl;
pub use depends::{Dependency, compare, dependencies, distance};
pub use error::DebError;
pub use files::{Unpacked, files};
pub use sparse::SparseTar;

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedKernel {
    /// The package's name and version.
    pub control: DebControl,
    /// The release, from the image's name.
    pub release: String,
    /// The image, as unpacked from the package.
    pub vmlinuz: PathBuf,
    /// The configuration, if the package has one.
    pub config: Option<PathBuf>,
    /// The module directory, if the package has any.
    pub modules: Option<PathBuf>,
}

/// Read the package's name and version.
pub fn control(path: &Path) -> Result<DebControl, DebError> {
    Deb::open(path)?.control()
}

/// Unpack the kernel in the package to `vmlinuz`, `config` and `modules/` below `into`, which is
/// created and must not contain those yet.
pub fn unpack(
    path: &Path,
    into: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<UnpackedKernel, DebError> {
    let mut deb = Deb::open(path)?;
    let control = deb.control()?;
    fs::create_dir_all(into).map_err(|source| DebError::Write { path: into.to_owned(), source })?;
    let mut unpacker = Unpacker {
        path,
        into,
        package: &control.package,
        written_bytes: 0,
        release: None,
        image: false,
        config: false,
        modules: false,
    };
    for_each_entry(path, deb.member("data.tar")?, |name, entry| {
        if cancelled() {
            return Err(DebError::Cancelled);
        }
        match entry {
            Entry::File { data, .. } => unpacker.entry(name, data),
            Entry::Link(_) => Ok(()),
        }
    })?;
    let Unpacker { release, image, config, modules, .. } = unpacker;
    match release {
        Some(release) if image => Ok(UnpackedKernel {
            release,
            vmlinuz: into.join("vmlinuz"),
            config: config.then(|| into.join("config")),
            modules: modules.then(|| into.join("modules")),
            control,
        }),
        _ => Err(DebError::NoKernel { package: control.package }),
    }
}

/// The kind of a path in a package.
#[derive(Debug, PartialEq, Eq)]
enum PackagePath<'a> {
    Image(&'a str),
    Config(&'a str),
    Module(&'a str, &'a Path),
}

impl<'a> PackagePath<'a> {
    fn from_path(name: &'a Path) -> Option<Self> {
        let name = name.strip_prefix("usr").unwrap_or(name);
        if let Ok(boot) = name.strip_prefix("boot") {
            let file = boot.to_str()?;
            return match file.split_once('-')? {
                ("vmlinuz" | "vmlinux" | "bzImage", release) => Some(Self::Image(release)),
                ("config", release) => Some(Self::Config(release)),
                _ => None,
            };
        }
        let inner = name.strip_prefix("lib/modules").ok()?;
        let mut parts = inner.components();
        let release = parts.next()?.as_os_str().to_str()?;
        let rest = parts.as_path();
        match rest.to_str()? {
            "vmlinuz" => Some(Self::Image(release)),
            "config" => Some(Self::Config(release)),
            _ => Some(Self::Module(release, rest)),
        }
    }

    fn release(&self) -> &'a str {
        match self {
            Self::Image(release) | Self::Config(release) | Self::Module(release, _) => release,
        }
    }
}

/// Writes the files of a package.
struct Unpacker<'a> {
    path: &'a Path,
    into: &'a Path,
    package: &'a str,
    written_bytes: u64,
    release: Option<String>,
    image: bool,
    config: bool,
    modules: bool,
}

impl Unpacker<'_> {
    fn entry(&mut self, name: &Path, entry: &mut dyn Read) -> Result<(), DebError> {
        let Some(part) = PackagePath::from_path(name) else {
            return Ok(());
        };
        let release = part.release();
        match &self.release {
            None => self.release = Some(release.to_owned()),
            Some(first) if first == release => {}
            Some(first) => {
                return Err(DebError::SeveralKernels {
                    package: self.package.to_owned(),
                    releases: [first.clone(), release.to_owned()],
                });
            }
        }
        let (done, target) = match part {
            PackagePath::Image(_) => (&mut self.image, self.into.join("vmlinuz")),
            PackagePath::Config(_) => (&mut self.config, self.into.join("config")),
            PackagePath::Module(_, rest) => {
                (&mut self.modules, self.into.join("modules").join(rest))
            }
        };
        *done = true;
        self.written_bytes += files::write(self.path, entry, &target, self.written_bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
