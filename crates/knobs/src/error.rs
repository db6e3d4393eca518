//! What can go wrong with a setting.

use std::io;

/// Why a setting is not as it was to be.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// The interface is not there any more, or another one has its number.
    #[error("the interface {name} is gone")]
    Gone {
        /// As it was called.
        name: String,
    },
    /// The kernel took it as something else.
    #[error(
        "{what} was set to {asked} but reads back as {found}: not supported by the kernel or the driver"
    )]
    ReadsBack {
        /// The setting.
        what: String,
        /// What it was set to.
        asked: String,
        /// What it is.
        found: String,
    },
    /// It was not announced, so it is not made.
    #[error(
        "refused to change {0}, which was not announced; nothing was changed (this is a bug in plumb)"
    )]
    NotAnnounced(String),
    /// Another run is at the same interface.
    #[error(
        "{name} is in use by another run of plumb (process {pid}): wait for it to finish, or use another interface"
    )]
    InUse {
        /// The interface.
        name: String,
        /// The process.
        pid: u32,
    },
    /// Somebody else has changed it meanwhile, so it stays as it is.
    #[error(
        "{what} is now {now}, neither what it was ({before}) nor what it was set to: left unchanged"
    )]
    Changed {
        /// The setting.
        what: String,
        /// What it was.
        before: String,
        /// What it is.
        now: String,
    },
    /// The system said no.
    #[error("can't {doing}: {source}")]
    System {
        /// What was being done.
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
