//! Why a program or file can't be copied into a guest, and what to try.

use std::io;
use std::path::PathBuf;

use netplumb_model::arch::Arch;

/// Why a program or file can't be copied into a guest.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No directory of $PATH has it.
    #[error(
        "no such program `{0}` in $PATH: install it, or give its path (./{0} if it is in this \
         directory)"
    )]
    NotFound(String),
    /// The path can't be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The path on the host.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is not executable.
    #[error("{} is not executable: try chmod +x, or name the program that reads it", .0.display())]
    NotExecutable(PathBuf),
    /// It is not a program.
    #[error(
        "{} is not a program: neither ELF nor a script that begins with `#!` and its interpreter",
        .0.display()
    )]
    NotAProgram(PathBuf),
    /// It is for another architecture.
    #[error("{} is for {machine}: this guest is {arch}; use a build for it, or another --arch",
        .path.display())]
    WrongArchitecture {
        /// The program or library.
        path: PathBuf,
        /// The architecture that the file is for, in words.
        machine: String,
        /// The guest's architecture.
        arch: Arch,
    },
    /// It is damaged.
    #[error("{} can't be read as a program: {why}", .path.display())]
    Damaged {
        /// The file that should be a program.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A library is missing.
    #[error(
        "`{library}`, which {} needs, is not on this machine{}: install it, or copy it with --with FILE:/usr/lib/{}/{library}",
        .needed_by.display(), built_for(*.arch), .arch.gnu()
    )]
    MissingLibrary {
        /// The library's name, such as `libc.so.6`.
        library: String,
        /// The file that needs it.
        needed_by: PathBuf,
        /// The architecture of the guest.
        arch: Arch,
    },
    /// The dynamic loader of its architecture is missing.
    #[error("`{loader}`, which loads {}, is not on this machine: {}; a program that is linked statically needs none",
        .needed_by.display(), loader_remedy(*.arch))]
    MissingLoader {
        /// The loader's path, as the program has it.
        loader: String,
        /// The program that it would load.
        needed_by: PathBuf,
        /// The architecture of the guest.
        arch: Arch,
    },
    /// Its interpreter is missing.
    #[error("`{interpreter}`, which runs {}, is not on this machine: install it",
        .needed_by.display())]
    MissingInterpreter {
        /// The interpreter's name or path.
        interpreter: String,
        /// The program or script.
        needed_by: PathBuf,
    },
    /// Too many nested interpreters.
    #[error("{}: too many nested interpreters", .0.display())]
    ScriptsWithoutEnd(PathBuf),
    /// A directory where a program is expected.
    #[error("{} is a directory: name a program in it; --with copies a directory into the guest", .0.display())]
    Directory(PathBuf),
    /// A device, a socket, a pipe.
    #[error("{} is neither a file nor a directory", .0.display())]
    NotAFile(PathBuf),
    /// The guest has its own file there.
    #[error("{}: the guest has a {} of its own; name another place by FILE:GUESTPATH",
        .path.display(), .own)]
    Reserved {
        /// The requested path.
        path: PathBuf,
        /// The path of the guest's own.
        own: &'static str,
    },
    /// Two files have the same path.
    #[error("two different files would be {} in the guest", .0.display())]
    Clash(PathBuf),
    /// The files are too large.
    #[error(
        "the files to copy into the guest are {} MiB, more than the limit of {}; the largest are {}",
        .size_bytes.div_ceil(1 << 20), in_mib(*.limit_bytes), .largest
    )]
    TooLarge {
        /// Total size.
        size_bytes: u64,
        /// The limit, in bytes.
        limit_bytes: u64,
        /// The largest, in words.
        largest: String,
    },
    /// Too many files.
    #[error("more than {limit} files to copy into the guest: use a smaller directory")]
    TooMany {
        /// The maximum number of files.
        limit: usize,
    },
}

fn built_for(arch: Arch) -> String {
    match arch == Arch::OWN {
        true => String::new(),
        false => format!(", built for {arch}"),
    }
}

/// Where to get the dynamic loader.
fn loader_remedy(arch: Arch) -> String {
    match arch == Arch::OWN {
        true => "install it".into(),
        false => format!("install Debian's libc6-{}-cross, which has glibc's", arch.debian()),
    }
}

fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
