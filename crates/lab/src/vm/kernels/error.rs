//! Errors of the store of kernels.

use std::io;
use std::path::{Path, PathBuf};

use netplumb_kernel::deb::DebError;
use netplumb_kernel::image::ImageError;
use netplumb_kernel::modules::ModuleError;
use netplumb_model::arch::Arch;

use crate::sums::owner_hint;

/// The kind of an error, for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The arguments are invalid.
    Usage,
    /// It is not supported on this machine.
    CannotHere,
    /// It failed.
    Failed,
    /// It was interrupted.
    Interrupted,
}

/// An error of the store of kernels.
#[derive(Debug, thiserror::Error)]
pub enum KernelStoreError {
    /// Cancelled by a signal or another thread.
    #[error("interrupted: nothing was added")]
    Interrupted,
    /// A file could not be read.
    #[error("cannot read {}: {source}{}", path.display(), owner_hint(path, source))]
    Read {
        /// The file that was to be read.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}{}{}", path.display(), space_hint(source), owner_hint(path, source))]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The package has no usable kernel.
    #[error("{text}{}", deb_hint(.0), text = .0)]
    Deb(#[from] DebError),
    /// The image is invalid.
    #[error("{}: {source}", path.display())]
    Image {
        /// The file of the image.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
    /// The modules could not be read.
    #[error(transparent)]
    Modules(#[from] ModuleError),
    /// The modules belong to another kernel.
    #[error(
        "the modules are for kernel {modules_release}, but the image is {release}: give the module \
         directory of that release"
    )]
    OtherModules {
        /// The image's release.
        release: String,
        /// The modules' release.
        modules_release: String,
    },
    /// The module directory has no modules.
    #[error("{} contains no kernel modules; expected a directory like /lib/modules/RELEASE", path.display())]
    NoModules {
        /// The directory without modules.
        path: PathBuf,
    },
    /// The directory is not a kernel build directory, or not built.
    #[error("{} contains neither arch/x86/boot/bzImage, arch/arm64/boot/Image nor vmlinux: run `make` in it first, or \
             give the directory of O=", path.display())]
    NotBuilt {
        /// The directory that was given.
        path: PathBuf,
    },
    /// The source is not a known one.
    #[error(
        "invalid source {text:?}, and no such file; expected debian, debian:VERSION, debian:arm64, \
         running, or the path of a .deb, a vmlinuz or a kernel build directory"
    )]
    NoSuchSource {
        /// The given source.
        text: String,
    },
    /// A module directory was given for a source that has modules.
    #[error("a module directory is only for a vmlinuz: {text} has modules of its own")]
    ModulesNotWanted {
        /// The source that was given.
        text: String,
    },
    /// The version is invalid.
    #[error(
        "invalid kernel package version {version:?}; expected like debian:6.1.0-54, debian:arm64 or debian:6.12:arm64"
    )]
    BadVersion {
        /// The given version.
        version: String,
    },
    /// The label is not a valid name.
    #[error(
        "invalid label {label:?}; expected a name like before or v6.1-3-gabc: letters, digits and .-_+~/, at most 80, \
         and none that names a kernel anyway (debian, running, a hash)"
    )]
    BadLabel {
        /// The given label.
        label: String,
    },
    /// It is for an architecture that guests can't have.
    #[error("unknown architecture {word:?} in {text:?}; expected one of {}", Arch::WORDS.join(", "))]
    UnknownArch {
        /// The part that should be an architecture.
        word: String,
        /// The given source.
        text: String,
    },
    /// Its pages are larger than a guest's.
    #[error(
        "{text:?} is a kernel with pages of {kib} KiB, and guests need pages of 4 KiB: use {instead:?}"
    )]
    LargePages {
        /// The given source.
        text: String,
        /// The size of its pages.
        kib: &'static str,
        /// The same with pages of 4 KiB.
        instead: String,
    },
    /// No kernel of the architecture has pages of that size.
    #[error(
        "{text:?}: no kernel of {} has pages of {kib} KiB, which only some of arm64 have: use {instead:?}",
        arch.debian()
    )]
    NoLargePages {
        /// The given source.
        text: String,
        /// The architecture that was given.
        arch: Arch,
        /// The size of its pages.
        kib: &'static str,
        /// The same with pages of 4 KiB.
        instead: String,
    },
    /// The name of a kernel contradicts the requested architecture.
    #[error("kernel {name:?} is of {}, and {} was asked for: leave out one of them, or name another", .found.as_str(), .asked.as_str())]
    OtherArch {
        /// The kernel's name, as given.
        name: String,
        /// The architecture that is in it.
        found: Arch,
        /// The requested architecture.
        asked: Arch,
    },
    /// apt is not installed.
    #[error(
        "{program} is not installed, so it can't download Debian's packages: {}",
        elsewhere(Arch::OWN)
    )]
    NoApt {
        /// The missing program.
        program: &'static str,
        /// Why it could not be started.
        source: io::Error,
    },
    /// The archive has no such package, or not in a version that will do.
    #[error(transparent)]
    Missing(Box<MissingPackage>),
    /// apt could not download it.
    #[error("apt-get could not download {package}: {output}; {}", download_hint(output))]
    Fetch {
        /// The name of the package.
        package: String,
        /// The end of its output.
        output: String,
    },
    /// apt could not fetch the lists of an architecture.
    #[error(
        "apt-get could not fetch the package lists of {}: {output}; {}",
        arch.debian(),
        download_hint(output)
    )]
    NoLists {
        /// The architecture of the lists.
        arch: Arch,
        /// The end of its output.
        output: String,
    },
    /// Nothing is known of its debug information.
    #[error(
        "no debug information is known for kernel {release}, which was added from {added_from}; it is for \
         kernels of Debian's packages and of kernel build directories"
    )]
    NoDebug {
        /// The kernel's release.
        release: String,
        /// Where it is from.
        added_from: String,
    },
    /// The debug information is of another build.
    #[error(
        "the debug information that was found for kernel {release} is of another build: add the kernel \
         again, and then its debug information"
    )]
    OtherDebug {
        /// The kernel's release.
        release: String,
    },
    /// The running kernel's image was not found.
    #[error(
        "this machine has no image of the kernel that it runs, {release} (looked for {}): add \
         `debian`, or the package or image of the running kernel",
        paths_text(looked)
    )]
    NoRunningImage {
        /// The running kernel's release.
        release: String,
        /// Where it was searched.
        looked: Vec<PathBuf>,
    },
    /// The running kernel's image is not readable.
    #[error("{} is readable by root only: run `sudo chmod a+r {0}` and try again", path.display())]
    RunningImageUnreadable {
        /// The file of the image.
        path: PathBuf,
    },
    /// The image with the running kernel's name is of another one.
    #[error("{} is kernel {release}, but {running} is running: it was replaced since the boot; \
             reboot, or add that file by its path", image.display())]
    NotTheRunning {
        /// The file of the image.
        image: PathBuf,
        /// The image's release.
        release: String,
        /// The running release.
        running: String,
    },
    /// The name matches several kernels.
    #[error("{name:?} is ambiguous; name one kernel by its hash:\n{}", kernels.join("\n"))]
    Ambiguous {
        /// The given name.
        name: String,
        /// The kernels that match, a line each.
        kernels: Vec<String>,
    },
    /// The name matches no kernel.
    #[error("no such kernel {name:?}{}", unknown_text(remedy, kernels))]
    Unknown {
        /// The given name.
        name: String,
        /// How to add it.
        remedy: String,
        /// All kernels, a line each.
        kernels: Vec<String>,
    },
    /// The archive has another build of a kernel that was damaged.
    #[error(
        "kernel {hash} was damaged ({reason}) and has been removed; the archive has another build of debian:{version} \
         now, {by}, which was added: run this again with that one, or with --kernel {by} if you named it by hash or label"
    )]
    Replaced {
        /// The hash of the one that was removed, cut.
        hash: String,
        /// What was wrong with it.
        reason: String,
        /// The request to the archive.
        version: String,
        /// The hash of the one that was added, cut.
        by: String,
    },
    /// An entry has a format that this program does not know.
    #[error(
        "the kernel in {} was added by a newer version of this program: use that, or another --cache",
        folder.display()
    )]
    NewerEntry {
        /// The entry's directory.
        folder: PathBuf,
    },
    /// A file of an entry is damaged.
    #[error(
        "the kernel in {} is damaged ({reason}): {}",
        folder.display(),
        match source_of {
            Some(source) => format!("`plumb kernel add {source}` replaces it"),
            None => "`plumb doctor --clean` removes it, then add it again (`plumb kernel add`)".to_owned(),
        }
    )]
    DamagedEntry {
        /// The entry's directory.
        folder: PathBuf,
        /// Where it was added from, if that is known.
        source_of: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
}

/// A package that the archive lacks.
#[derive(Debug, thiserror::Error)]
#[error("{}", missing_text(self))]
pub struct MissingPackage {
    /// The package, and which versions of it will do.
    pub wanted: String,
    /// The architecture, if it is not this machine's.
    pub arch: Option<Arch>,
    /// The alternatives there: versions of the package, or other packages.
    pub there: Vec<String>,
    /// The remedy, depending on what the archive has.
    pub remedy: Option<String>,
    /// If this machine's package lists are all that could be asked: why newer ones can't be fetched.
    pub no_newer_lists: Option<String>,
}

/// The remedy where apt has no kernels of Debian.
pub(super) fn elsewhere(arch: Arch) -> String {
    let arch = arch.debian();
    format!(
        "download a linux-image package from https://deb.debian.org/debian/pool/main/l/linux-signed-{arch}/ and \
         add it (`plumb kernel add FILE.deb`), or add the running kernel (`plumb kernel add running`)"
    )
}

/// Maximum number of versions that an error lists.
const THERE_MAX: usize = 12;

fn missing_text(missing: &MissingPackage) -> String {
    let MissingPackage { wanted, arch, there, remedy, no_newer_lists } = missing;
    let arch = arch.map_or(String::new(), |arch| format!(" for {}", arch.debian()));
    let there = match &there[..THERE_MAX.min(there.len())] {
        [] => String::new(),
        there => format!(": it has {}", there.join(", ")),
    };
    let remedy = match (no_newer_lists, remedy) {
        (Some(why), _) => {
            format!("; newer package lists can't be fetched: {why}; {}", download_hint(why))
        }
        (None, Some(remedy)) => format!("; {remedy}"),
        (None, None) => String::new(),
    };
    format!("the archive of this machine's apt has no {wanted}{arch}{there}{remedy}")
}

impl KernelStoreError {
    /// Whether newer package lists may mend it.
    pub(super) fn may_be_outdated(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Fetch { output, .. } => !is_unreachable(output),
            _ => false,
        }
    }

    /// The same, where newer package lists can't be fetched, and why not.
    pub(super) fn by_old_lists(mut self, why: String) -> Self {
        if let Self::Missing(missing) = &mut self {
            missing.no_newer_lists = Some(why);
        }
        self
    }

    /// The same, with a remedy, if it is about a package that is missing.
    pub(crate) fn with_remedy(mut self, remedy: impl FnOnce() -> Option<String>) -> Self {
        if let Self::Missing(missing) = &mut self {
            missing.remedy = remedy();
        }
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchSource { .. }
            | Self::ModulesNotWanted { .. }
            | Self::BadVersion { .. }
            | Self::UnknownArch { .. }
            | Self::BadLabel { .. }
            | Self::OtherArch { .. }
            | Self::Ambiguous { .. }
            | Self::Unknown { .. } => ErrorKind::Usage,
            Self::NoApt { .. }
            | Self::LargePages { .. }
            | Self::NoLargePages { .. }
            | Self::NoRunningImage { .. }
            | Self::RunningImageUnreadable { .. }
            | Self::Image {
                source:
                    ImageError::OtherMachine { .. }
                    | ImageError::BigEndian
                    | ImageError::LargePages { .. }
                    | ImageError::TooOld { .. },
                ..
            } => ErrorKind::CannotHere,
            Self::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Failed,
        }
    }
}

pub(super) fn read_failed(path: &Path) -> impl Fn(io::Error) -> KernelStoreError {
    move |source| KernelStoreError::Read { path: path.to_owned(), source }
}

pub(crate) fn write_failed(path: &Path) -> impl Fn(io::Error) -> KernelStoreError {
    move |source| KernelStoreError::Write { path: path.to_owned(), source }
}

fn space_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; a kernel takes up to 500 MB: remove one with `plumb kernel rm`"
        }
        _ => "",
    }
}

fn deb_hint(error: &DebError) -> &'static str {
    match error {
        DebError::Write { source, .. } => space_hint(source),
        _ => "",
    }
}

/// apt's messages if it did not reach the archive (`apt-pkg/contrib/netdb`, `methods/connect.cc`, `methods/http.cc`).
const UNREACHABLE: [&str; 9] = [
    "resolving",
    "resolve",
    "could not connect",
    "cannot initiate the connection",
    "unable to connect",
    "connection failed",
    "connection timed out",
    "network is unreachable",
    "no route to host",
];

fn is_unreachable(output: &str) -> bool {
    let output = output.to_lowercase();
    UNREACHABLE.iter().any(|text| output.contains(text))
}

/// The remedy for such a failed download, by lists that were just fetched.
fn download_hint(output: &str) -> &'static str {
    match is_unreachable(output) {
        true => {
            "check this machine's network and apt's proxy (`apt-config dump Acquire`), and try again"
        }
        false => "the archive may be changing: try again later",
    }
}

fn unknown_text(remedy: &str, kernels: &[String]) -> String {
    match kernels {
        [] => format!(": no kernel was added yet; {remedy}"),
        kernels => format!(": {remedy}; there is:\n{}", kernels.join("\n")),
    }
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the advice after a failed download, and that a machine without a network is not asked for newer lists.
    #[test]
    fn downloads() {
        let error = |output: &str| KernelStoreError::Fetch {
            package: "linux-source-6.1".to_owned(),
            output: output.to_owned(),
        };
        for output in [
            "E: Failed to fetch http://x/y.deb  Temporary failure resolving 'deb.debian.org'",
            "E: Failed to fetch http://x/y.deb  Could not resolve 'deb.debian.org'",
            "E: Failed to fetch http://x/y.deb  Could not connect to x:80 (::1), connection timed out",
            "E: Failed to fetch http://x/y.deb  Cannot initiate the connection to x:80 (::1).",
        ] {
            let error = error(output);
            assert!(error.to_string().contains("network"), "{error}");
            assert!(!error.may_be_outdated());
        }
        let gone = error("E: Failed to fetch http://x/y.deb  404  Not Found [IP: 1.2.3.4 80]");
        assert!(gone.may_be_outdated() && gone.to_string().contains("later"), "{gone}");
    }

    /// Check that an error names what is missing, what exists, and what to do, or why that isn't known.
    #[test]
    fn missing_packages() {
        let missing = MissingPackage {
            wanted: "linux-kbuild-6.1 (>= 6.1.192-2)".to_owned(),
            arch: Some(Arch::Arm64),
            there: vec!["6.1.176-1".to_owned()],
            remedy: Some("`plumb kernel add debian:6.1.0-47:arm64`".to_owned()),
            no_newer_lists: None,
        };
        let error = KernelStoreError::Missing(Box::new(missing));
        assert_eq!(
            error.to_string(),
            "the archive of this machine's apt has no linux-kbuild-6.1 (>= 6.1.192-2) for arm64: it has \
             6.1.176-1; `plumb kernel add debian:6.1.0-47:arm64`"
        );
        let error = error.by_old_lists("Could not resolve 'x'".to_owned()).to_string();
        assert!(
            error.contains("it has 6.1.176-1; newer package lists can't be fetched: Could not")
        );
        assert!(error.contains("check this machine's network") && !error.contains("kernel add"));
    }
}
