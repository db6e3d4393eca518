//! Why a program or file can't be taken along, and what to try.

use std::io;
use std::path::PathBuf;

use super::MAX_FILES;

/// Why a program can't be taken to a guest.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No folder has it.
    #[error(
        "no such program `{0}` in $PATH: install it, or give its path (./{0} if it is in this \
         directory)"
    )]
    NotFound(String),
    /// The path leads nowhere.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It may not be executed.
    #[error("{} is not executable: try chmod +x, or name the program that reads it", .0.display())]
    NotExecutable(PathBuf),
    /// It is not a program.
    #[error(
        "{} is not a program: neither ELF nor a script that begins with `#!` and its interpreter",
        .0.display()
    )]
    NotAProgram(PathBuf),
    /// For other machines.
    #[error("{} is for {machine}: guests are x86-64; use an x86-64 build",
        .path.display())]
    WrongArchitecture {
        /// The file.
        path: PathBuf,
        /// What it is for.
        machine: String,
    },
    /// It makes no sense.
    #[error("{} can't be read as a program: {why}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A library is not there.
    #[error(
        "`{library}`, which {} needs, is not on this machine: install it, or copy it with --with FILE:/usr/lib/x86_64-linux-gnu/{library}",
        .needed_by.display()
    )]
    MissingLibrary {
        /// Its name.
        library: String,
        /// Who asks for it.
        needed_by: PathBuf,
    },
    /// The program that is to run it is not there.
    #[error("`{interpreter}`, which runs {}, is not on this machine: install it",
        .needed_by.display())]
    MissingInterpreter {
        /// Its name.
        interpreter: String,
        /// The program or script.
        needed_by: PathBuf,
    },
    /// A script is run by a script, which is run by a script...
    #[error("{}: too many nested interpreters", .0.display())]
    ScriptsWithoutEnd(PathBuf),
    /// A device, a socket, a pipe.
    #[error("{} is neither a file nor a directory", .0.display())]
    NotAFile(PathBuf),
    /// The guest has its own.
    #[error("{}: the guest has a {} of its own; name another place by FILE:GUESTPATH",
        .path.display(), .own)]
    Reserved {
        /// What was asked for.
        path: PathBuf,
        /// Where the guest's is.
        own: &'static str,
    },
    /// Two things want to be in one place.
    #[error("two different files would be {} in the guest", .0.display())]
    Clash(PathBuf),
    /// More than fits.
    #[error(
        "the files to copy into the guest are {} MiB, more than the limit of {}; the largest are {}",
        .size_bytes.div_ceil(1 << 20), in_mib(*.limit_bytes), .largest
    )]
    TooLarge {
        /// All together.
        size_bytes: u64,
        /// What there is room for.
        limit_bytes: u64,
        /// The largest, in words.
        largest: String,
    },
    /// More than makes sense.
    #[error("more than {MAX_FILES} files to copy into the guest: use a smaller directory")]
    TooMany,
}

fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
