//! Why a module could not be built.

use std::io;
use std::path::{Path, PathBuf};

use netplumb_kernel::deb::DebError;
use netplumb_kernel::modules::ModuleError;

use crate::sums::owner_hint;
use crate::vm::kernels::{ErrorKind, KernelStoreError};

/// Why a module could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ModuleBuildError {
    /// A signal, or another thread that set the flag, cancelled it.
    #[error("interrupted: nothing was built")]
    Interrupted,
    /// The catalogue, or apt.
    #[error(transparent)]
    Store(#[from] KernelStoreError),
    /// A package could not be unpacked.
    #[error(transparent)]
    Deb(#[from] DebError),
    /// The kernel's modules could not be read, or the module is not among them.
    #[error(transparent)]
    Modules(#[from] ModuleError),
    /// It is built into the kernel.
    #[error("{name} is built into the kernel {release}; only loadable modules can be built")]
    BuiltIn {
        /// The module's name.
        name: String,
        /// The kernel's release.
        release: String,
    },
    /// The module did not come with the kernel.
    #[error("the module {} did not come with the kernel, so its source is not known", path.display())]
    NotInTree {
        /// The module's file.
        path: PathBuf,
    },
    /// Where the kernel's source is, is not known.
    #[error(
        "unavailable: the source of the kernel {release}, which was added from {added_from}; add the kernel from Debian's package (`plumb kernel add debian:VERSION`) or from its build directory"
    )]
    NoSource {
        /// The kernel's release.
        release: String,
        /// Where it is from.
        added_from: String,
    },
    /// The source lacks the module's folder.
    #[error("the source in {} has no {folder}", path.display())]
    NoFolder {
        /// Where it was looked for.
        path: PathBuf,
        /// The module's folder, below the source.
        folder: String,
    },
    /// A program is not installed.
    #[error("{program} is not installed; run `sudo apt-get install {package}`")]
    NoProgram {
        /// The program's name.
        program: String,
        /// The package that has it.
        package: String,
    },
    /// bubblewrap can't make a sandbox.
    #[error(
        "unavailable: modules are built in a sandbox, which bubblewrap can't make here: {why}; as root it needs \
         CAP_SYS_ADMIN (in a container `docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined`), as another \
         user user namespaces (`sysctl user.max_user_namespaces`, \
         `sysctl kernel.apparmor_restrict_unprivileged_userns`)"
    )]
    NoSandbox {
        /// bubblewrap's message.
        why: String,
    },
    /// A build put a link where a file of its own was expected.
    #[error("the build left something else than a file at {}; nothing was read from there", path.display())]
    Link {
        /// Where the build left something else than a file.
        path: PathBuf,
    },
    /// make can't work in a folder of that name.
    #[error(
        "kernel modules can't be built below {}: make takes no spaces or colons in paths; choose another cache directory (--cache)",
        path.display()
    )]
    PathForMake {
        /// The folder with a space or a colon in its path.
        path: PathBuf,
    },
    /// A program failed in a way that has no better name.
    #[error("{program} failed: {output}")]
    Program {
        /// The name of the program that failed.
        program: String,
        /// What it printed.
        output: String,
    },
    /// The unmodified source, or the changed one, does not compile.
    #[error(
        "the {} source of {module} does not build:\n{output}{}",
        if *changed { "changed" } else { "unmodified" },
        // The distribution built it, so that something is missing here.
        if *changed {
            ""
        } else {
            "\nif a file is missing, the module needs more than its folder and what that includes: \
             build it in the kernel's whole source, and give the file (`plumb path --module ./FILE.ko`)"
        }
    )]
    Build {
        /// The name of the module.
        module: String,
        /// Whether it is the changed source.
        changed: bool,
        /// The compiler's output.
        output: String,
    },
    /// The change is not a readable file of a bearable size.
    #[error("can't read {}: {reason}", path.display())]
    Change {
        /// The file with the change.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file is not a patch, or names no file.
    #[error("{} is not a patch: it names no file (`+++ b/...`); expected the output of `git diff` or `diff -u`", path.display())]
    NotAPatch {
        /// The file without a patch in it.
        path: PathBuf,
    },
    /// A patch of an experiment changes other than C files.
    #[error(
        "{} changes more than C files (`{line}`), which a module that an experiment has built can't: build it with `plumb module build --patch`, and give the file to the experiment",
        path.display()
    )]
    NotC {
        /// The file of the patch.
        path: PathBuf,
        /// The line that shows it.
        line: String,
    },
    /// A patch of an experiment changes a file that the module is not compiled from.
    #[error(
        "a patch changes {file}, which {module} is not compiled from; a module that an experiment has built can have \
         changes of its own C files and of what they include only. Build it with `plumb module build --patch`, and \
         give the file to the experiment"
    )]
    NotOfModule {
        /// The file that is changed.
        file: String,
        /// The name of the module.
        module: String,
    },
    /// A patch changes files that are not built.
    #[error(
        "{} changes {file}, which is not part of the module {module}: only files in {folder} and headers in include are built with it",
        path.display()
    )]
    Elsewhere {
        /// The file of the patch.
        path: PathBuf,
        /// The file that it changes.
        file: String,
        /// The name of the module.
        module: String,
        /// The folder that it is in.
        folder: String,
    },
    /// A patch does not apply.
    #[error(
        "{} does not apply to the source of {release}: {output}; rebase it on {}, which is in {}",
        path.display(),
        match upstream {
            Some(version) => format!("Linux {version}"),
            None => "that source".to_owned(),
        },
        source_folder.display()
    )]
    DoesNotApply {
        /// The file of the patch.
        path: PathBuf,
        /// The kernel's release.
        release: String,
        /// The output of patch.
        output: String,
        /// The version of Linux that the kernel is based on, if its package names it.
        upstream: Option<String>,
        /// Where its source is kept, unmodified.
        source_folder: PathBuf,
    },
    /// spatch does not take a semantic patch, or failed with it.
    #[error("spatch can't apply {}: {output}", path.display())]
    Cocci {
        /// The semantic patch.
        path: PathBuf,
        /// Where and what, by spatch.
        output: String,
    },
    /// A semantic patch changed nothing.
    #[error("{} matches nothing in {files}", path.display())]
    MatchesNothing {
        /// The semantic patch.
        path: PathBuf,
        /// The module's files.
        files: String,
    },
    /// A module is not an ELF file for x86-64.
    #[error("{what} can't be read: {reason}")]
    Unreadable {
        /// The module or file, in words.
        what: String,
        /// Why.
        reason: String,
    },
    /// The output's name belongs to a file that is not a module.
    #[error("{} exists and is not a kernel module; choose another name with -o", path.display())]
    Occupied {
        /// The file that is in the way.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("can't read {}: {source}{}", path.display(), owner_hint(path, source))]
    Read {
        /// The file that was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("can't write {}: {source}{}", path.display(), owner_hint(path, source))]
    Write {
        /// The file that was to be written.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl ModuleBuildError {
    /// Whose doing it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(KernelStoreError::Missing(_)) => ErrorKind::CannotHere,
            Self::Store(error) => error.kind(),
            Self::Interrupted | Self::Deb(DebError::Cancelled) => ErrorKind::Interrupted,
            Self::Modules(ModuleError::Missing { .. })
            | Self::BuiltIn { .. }
            | Self::Change { .. }
            | Self::NotAPatch { .. }
            | Self::NotC { .. }
            | Self::NotOfModule { .. }
            | Self::Occupied { .. } => ErrorKind::Usage,
            Self::NotInTree { .. }
            | Self::NoSource { .. }
            | Self::NoProgram { .. }
            | Self::NoSandbox { .. } => ErrorKind::CannotHere,
            _ => ErrorKind::Failed,
        }
    }
}

pub(super) fn read_failed(path: &Path) -> impl Fn(io::Error) -> ModuleBuildError {
    move |source| ModuleBuildError::Read { path: path.to_owned(), source }
}

pub(super) fn write_failed(path: &Path) -> impl Fn(io::Error) -> ModuleBuildError {
    move |source| ModuleBuildError::Write { path: path.to_owned(), source }
}
