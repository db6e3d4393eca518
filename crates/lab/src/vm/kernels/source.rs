//! Sources of kernels, and their syntax.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::KernelStoreError;

/// The source of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelSource {
    /// Debian's package of a version, or the current one.
    Debian(Option<String>),
    /// The running kernel.
    Running,
    /// A package file.
    Deb(PathBuf),
    /// An image and its module directory.
    Image {
        /// The image, in any form that can be booted.
        image: PathBuf,
        /// The modules; without them only built-in drivers can be used.
        modules: Option<PathBuf>,
    },
    /// A kernel build directory.
    BuildTree(PathBuf),
}

impl KernelSource {
    /// Parse a source, by its syntax and by existing files.
    pub fn parse(text: &str, modules: Option<&Path>) -> Result<Self, KernelStoreError> {
        let source = match text {
            "debian" => Self::Debian(None),
            "running" => Self::Running,
            _ => match text.strip_prefix("debian:") {
                Some(version) => Self::Debian(Some(version.to_owned())),
                None => Self::of_path(text, modules)?,
            },
        };
        match (&source, modules) {
            (Self::Image { .. }, _) | (_, None) => Ok(source),
            _ => Err(KernelStoreError::ModulesNotWanted { text: text.to_owned() }),
        }
    }

    fn of_path(text: &str, modules: Option<&Path>) -> Result<Self, KernelStoreError> {
        let path = PathBuf::from(text);
        let Ok(metadata) = fs::metadata(&path) else {
            return Err(KernelStoreError::NoSuchSource { text: text.to_owned() });
        };
        if metadata.is_dir() {
            return Ok(Self::BuildTree(path));
        }
        // Devices and pipes may never end.
        if !metadata.is_file() {
            return Err(KernelStoreError::NoSuchSource { text: text.to_owned() });
        }
        // By its name, so that errors treat a damaged package as a package, or by its contents.
        let named_deb = path.extension().is_some_and(|ending| ending == "deb");
        let mut magic = [0; 8];
        let is_archive = fs::File::open(&path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok_and(|()| &magic == b"!<arch>\n");
        if named_deb || is_archive {
            Ok(Self::Deb(path))
        } else {
            Ok(Self::Image { image: path, modules: modules.map(Path::to_owned) })
        }
    }
}
