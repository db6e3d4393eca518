//! Errors of packages.

use std::io;
use std::path::PathBuf;

use crate::compression::UnpackError;

/// An error of a package.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The package could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The package's file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file from it could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{} is not a Debian package ({reason})", path.display())]
    NotADeb {
        /// The file that was given.
        path: PathBuf,
        /// Why it was rejected.
        reason: String,
    },
    /// It is shorter than the sizes in its headers.
    #[error("{} is truncated: it has {have_bytes} bytes, and its headers need {need_bytes}; \
             download it again", path.display())]
    Truncated {
        /// The package's file.
        path: PathBuf,
        /// The actual size.
        have_bytes: u64,
        /// The expected size.
        need_bytes: u64,
    },
    /// Its contents can't be unpacked.
    #[error("{} is damaged: {source}; download it again", path.display())]
    Damaged {
        /// The package's file.
        path: PathBuf,
        /// The reader's reason.
        source: io::Error,
    },
    /// Its compression is not supported.
    #[error("{}: {source}", path.display())]
    Unpack {
        /// The package's file.
        path: PathBuf,
        /// Which compression, and why not.
        source: UnpackError,
    },
    /// It is a valid package without a kernel.
    #[error(
        "package {package} has no boot/vmlinuz-RELEASE; use the one that has it, often a dependency of this one; or, \
         if it has an image of another name, as boot/kernel8.img of a Raspberry Pi, unpack it (dpkg -x) and add that: \
         plumb kernel add boot/kernel8.img --modules lib/modules/RELEASE"
    )]
    NoKernel {
        /// The package's name.
        package: String,
    },
    /// It contains more than one kernel.
    #[error("package {package} contains more than one kernel, {} and {}; unpack it, and add one \
             image with its modules", releases[0], releases[1])]
    SeveralKernels {
        /// The package's name.
        package: String,
        /// Two of the releases.
        releases: [String; 2],
    },
    /// It contains a path outside of the package.
    #[error("{} contains a path outside of the package, {name:?}: do not trust it", path.display())]
    Escapes {
        /// The package's file.
        path: PathBuf,
        /// The path in the package.
        name: String,
    },
    /// It exceeds a limit when unpacked.
    #[error("{} contains more than {limit}, more than any kernel package", path.display())]
    TooLarge {
        /// The package's file.
        path: PathBuf,
        /// The limit, in words.
        limit: String,
    },
}
