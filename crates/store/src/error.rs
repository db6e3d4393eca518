//! Errors of recordings.

use std::path::{Path, PathBuf};

use crate::VERSION;
use crate::target::TargetError;

/// Why a recording can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not exist.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// It can't be opened.
    #[error("can't read {}: {why}", .path.display())]
    Unreadable {
        /// The path as the caller gave it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It is not a recording.
    #[error("{}: not a Netplumb recording", .0.display())]
    NotOurs(PathBuf),
    /// Its schema has another version.
    #[error(
        "{}: unsupported schema version {found} (this plumb reads {VERSION}); {}",
        .path.display(), other_plumb(*.found)
    )]
    OtherVersion {
        /// The path as the caller gave it.
        path: PathBuf,
        /// SQLite's `user_version`.
        found: i32,
    },
    /// It is truncated, damaged or inconsistent.
    #[error("{}: the recording is truncated or damaged ({why})", .path.display())]
    Damaged {
        /// The path as the caller gave it.
        path: PathBuf,
        /// The message of SQLite, or the inconsistency.
        why: String,
    },
    /// The disk is full.
    #[error(
        "{}: disk full; {}. Free space, or use another file with -o",
        .path.display(), saved_before(*.saved)
    )]
    Full {
        /// The recording that is being written.
        path: PathBuf,
        /// Whether earlier contents of this run are in it.
        saved: bool,
    },
    /// It can't be written.
    #[error("can't write {}: {why}", .path.display())]
    Write {
        /// The recording that was to be written.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The target is not a regular file.
    #[error(
        "{}: is {what}; expected a file for the recording (-o)",
        .path.display()
    )]
    NoFile {
        /// The path as the caller gave it.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The target is a file that is not a recording.
    #[error(
        "{}: exists and is not a Netplumb recording; use another file with -o", .0.display()
    )]
    Foreign(PathBuf),
    /// Another run is writing it.
    #[error(
        "{}: locked by another run{}; wait for it, or use another file with -o",
        .path.display(), by(*.pid)
    )]
    Busy {
        /// The name that the other run has locked.
        path: PathBuf,
        /// The process of the other run, if known.
        pid: Option<u32>,
    },
}

fn other_plumb(found: i32) -> &'static str {
    match found > VERSION {
        true => "use a newer plumb",
        false => "measure again: earlier schemas were never released",
    }
}

fn saved_before(saved: bool) -> &'static str {
    match saved {
        true => "what was recorded before is saved",
        false => "nothing of this run is saved",
    }
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StoreError {
    /// Whether the arguments are invalid.
    pub fn is_usage(&self) -> bool {
        matches!(self, StoreError::NoFile { .. } | StoreError::Foreign(_))
    }

    /// An error of writing a file.
    pub(crate) fn of_io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + '_ {
        move |error| match error.kind() {
            std::io::ErrorKind::StorageFull => StoreError::Full { path: path.into(), saved: false },
            _ => StoreError::Write { path: path.into(), why: error.to_string() },
        }
    }

    /// An error about a target.
    pub(crate) fn of_target(error: TargetError) -> StoreError {
        match error {
            TargetError::Unfit { path, what } => StoreError::NoFile { path, what },
            TargetError::Io { path, source } => StoreError::of_io(&path)(source),
        }
    }
}

/// An inconsistency in a file.
pub(crate) fn damaged(path: &std::path::Path, why: impl Into<String>) -> StoreError {
    StoreError::Damaged { path: path.into(), why: why.into() }
}

/// Convert the SQLite errors of a file.
pub(crate) fn reading(path: &std::path::Path) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::NotOurs(path.into()),
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::Missing(path.into()),
        // The progress handler of `open` interrupts.
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            damaged(path, "too complex for its size")
        }
        _ => damaged(path, error.to_string()),
    }
}

/// The same, when writing; `saved` if earlier contents of this run are in the file.
pub(crate) fn writing(
    path: &std::path::Path,
    saved: bool,
) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { path: path.into(), saved },
        _ => StoreError::Write { path: path.into(), why: error.to_string() },
    }
}
