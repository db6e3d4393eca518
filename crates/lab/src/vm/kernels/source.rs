//! Where a kernel can come from, as people write it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::KernelStoreError;

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelSource {
    /// Debian's package of that version, or its current one.
    Debian(Option<String>),
    /// This machine's own.
    Running,
    /// A package's file.
    Deb(PathBuf),
    /// An image and its folder of modules.
    Image {
        /// The image.
        image: PathBuf,
        /// The modules; without them only what is built in can be used.
        modules: Option<PathBuf>,
    },
    /// A folder in which a kernel was built.
    BuildTree(PathBuf),
}

impl KernelSource {
    /// Tells from what was written, and from what is on disk, which kind of source it is.
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
            _ => Err(KernelStoreError::ModulesNotWanted {
                text: text.to_owned(),
            }),
        }
    }

    fn of_path(text: &str, modules: Option<&Path>) -> Result<Self, KernelStoreError> {
        let path = PathBuf::from(text);
        let Ok(metadata) = fs::metadata(&path) else {
            return Err(KernelStoreError::NoSuchSource {
                text: text.to_owned(),
            });
        };
        if metadata.is_dir() {
            return Ok(Self::BuildTree(path));
        }
        // What never ends, or never begins, is no file to be read whole.
        if !metadata.is_file() {
            return Err(KernelStoreError::NoSuchSource {
                text: text.to_owned(),
            });
        }
        // By its name, so that a damaged package is told of as a package, or by its content.
        let named_deb = path.extension().is_some_and(|ending| ending == "deb");
        let mut magic = [0; 8];
        let is_archive = fs::File::open(&path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok_and(|()| &magic == b"!<arch>\n");
        if named_deb || is_archive {
            Ok(Self::Deb(path))
        } else {
            Ok(Self::Image {
                image: path,
                modules: modules.map(Path::to_owned),
            })
        }
    }
}
