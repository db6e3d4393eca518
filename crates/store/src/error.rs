//! What can be wrong with a recording.

use std::path::{Path, PathBuf};

use crate::VERSION;
use crate::target::TargetError;

/// Why a recording can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// It can't be opened.
    #[error("{}: can't read it: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It is some other file.
    #[error("{}: not a Netplumb recording", .0.display())]
    NotOurs(PathBuf),
    /// It was written by a later version.
    #[error(
        "{}: its schema is version {found}, this program knows up to {VERSION}: \
         use a newer plumb to read it", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i32,
    },
    /// It is cut short or damaged, or contradicts itself.
    #[error("{}: the recording is truncated or damaged ({why})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says, or what does not fit.
        why: String,
    },
    /// The disk is full.
    #[error(
        "{}: the disk is full; what was recorded before that is kept. Make room, or write \
         elsewhere with -o", .0.display()
    )]
    Full(PathBuf),
    /// It can't be written.
    #[error("{}: can't write it: {why}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// What is there can't hold a recording.
    #[error(
        "{}: it is {what}, and a recording is a database, which takes a file: name one with -o",
        .path.display()
    )]
    NoFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Some other file has the name.
    #[error(
        "{}: it is not a Netplumb recording, and is left as it is: name another file with -o, \
         or move it away", .0.display()
    )]
    Foreign(PathBuf),
    /// Another run writes it.
    #[error(
        "{}: another run is writing it{}: wait for its end, or name another file with -o",
        .path.display(), by(*.pid)
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// The other run, where that can be told.
        pid: Option<u32>,
    },
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StoreError {
    /// Whether it is what was asked for that is wrong, and not this machine or a file.
    pub fn is_usage(&self) -> bool {
        matches!(self, StoreError::NoFile { .. } | StoreError::Foreign(_))
    }

    /// Why a place can't be written to.
    pub(crate) fn of_io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
        move |error| match error.kind() {
            std::io::ErrorKind::StorageFull => StoreError::Full(path.into()),
            _ => StoreError::Write {
                path: path.into(),
                why: error.to_string(),
            },
        }
    }

    /// Why a recording can't go to a target.
    pub(crate) fn of_target(error: TargetError) -> StoreError {
        match error {
            TargetError::Unfit { path, what } => StoreError::NoFile { path, what },
            TargetError::Io { path, source } => StoreError::of_io(&path)(source),
        }
    }
}

/// What does not fit in a file.
pub(crate) fn damaged(path: &std::path::Path, why: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        path: path.into(),
        why: why.into(),
    }
}

/// Sort SQLite's errors of one file into ours.
pub(crate) fn reading(path: &std::path::Path) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::NotOurs(path.into()),
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::Missing(path.into()),
        // The handler of `open` is what interrupts.
        Some(rusqlite::ErrorCode::OperationInterrupted) => damaged(
            path,
            "it takes far more steps to read than a file of its size should",
        ),
        _ => damaged(path, error.to_string()),
    }
}

/// The same, when writing.
pub(crate) fn writing(path: &std::path::Path) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full(path.into()),
        _ => StoreError::Write {
            path: path.into(),
            why: error.to_string(),
        },
    }
}
