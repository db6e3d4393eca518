//! Errors of settings.

use std::io;

/// An error of a setting.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// The interface is gone, or another one has its index.
    #[error("the interface {name} is gone")]
    Gone {
        /// Its name.
        name: String,
    },
    /// It reads back with another value.
    #[error(
        "{what} was set to {asked} but reads back as {found}: not supported by the kernel or the driver"
    )]
    ReadsBack {
        /// The setting.
        what: String,
        /// The value that was set.
        asked: String,
        /// The value that was read.
        found: String,
    },
    /// The change was not announced, so it is not made.
    #[error(
        "refused to change {0}, which was not announced; nothing was changed (this is a bug in plumb)"
    )]
    NotAnnounced(String),
    /// Another run uses the interface.
    #[error(
        "{name} is in use by another run of plumb (process {pid}): wait for it to finish, or use another interface"
    )]
    InUse {
        /// The interface.
        name: String,
        /// The process.
        pid: u32,
    },
    /// It was changed by others meanwhile, so it is left unchanged.
    #[error(
        "{what} is now {now}, neither what it was ({before}) nor what it was set to: left unchanged"
    )]
    Changed {
        /// The setting.
        what: String,
        /// Its original value.
        before: String,
        /// The value that was read.
        now: String,
    },
    /// A system call failed.
    #[error("can't {doing}: {source}")]
    System {
        /// The operation.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl KnobError {
    /// For an error of the system: `doing` completes "can't ...".
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> KnobError {
        let doing = doing.into();
        move |source| KnobError::System { doing, source }
    }
}
