//! What can be wrong with a recording.

use std::path::PathBuf;

use crate::VERSION;

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
    /// It is cut short or damaged.
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
}

/// Sort SQLite's errors of one file into ours.
pub(crate) fn reading(path: &std::path::Path) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::NotOurs(path.into()),
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::Missing(path.into()),
        _ => StoreError::Damaged {
            path: path.into(),
            why: error.to_string(),
        },
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
