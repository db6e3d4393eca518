//! What can be wrong with a package.

use std::io;
use std::path::PathBuf;

use crate::compression::UnpackError;

/// Why a package gave no kernel.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The package could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The package.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// A file from it could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// It is some other kind of file.
    #[error("{} is not a Debian package ({reason})", path.display())]
    NotADeb {
        /// The file.
        path: PathBuf,
        /// How that shows.
        reason: String,
    },
    /// It ends before its own headers say.
    #[error("{} is truncated: it has {have_bytes} bytes, and its headers need {need_bytes}; \
             download it again", path.display())]
    Truncated {
        /// The package.
        path: PathBuf,
        /// What is there.
        have_bytes: u64,
        /// What should be.
        need_bytes: u64,
    },
    /// Its contents do not unpack.
    #[error("{} is damaged: {source}; download it again", path.display())]
    Damaged {
        /// The package.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Its contents are compressed in a way that we do not unpack.
    #[error("{}: {source}", path.display())]
    Unpack {
        /// The package.
        path: PathBuf,
        /// What went wrong.
        source: UnpackError,
    },
    /// It is a good package with no kernel in it.
    #[error(
        "package {package} has no kernel image; use the one that contains boot/vmlinuz-RELEASE, \
         often a dependency of this one"
    )]
    NoKernel {
        /// The package's name.
        package: String,
    },
    /// It holds more than one kernel.
    #[error("package {package} contains more than one kernel, {} and {}; unpack it, and add one \
             image with its modules", releases[0], releases[1])]
    SeveralKernels {
        /// The package's name.
        package: String,
        /// Two of the releases.
        releases: [String; 2],
    },
    /// It names a file outside of itself.
    #[error("{} contains a path outside of the package, {name:?}: do not trust it", path.display())]
    Escapes {
        /// The package.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// It unpacks to more than is sane.
    #[error("{} contains more than {limit}, more than any kernel package", path.display())]
    TooLarge {
        /// The package.
        path: PathBuf,
        /// The bound that it passed.
        limit: String,
    },
}
