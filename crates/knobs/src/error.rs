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
        "{what} was set to {asked} and reads back as {found}: the kernel or the driver does not let it be changed"
    )]
    ReadsBack {
        /// The setting.
        what: String,
        /// What it was set to.
        asked: String,
        /// What it is.
        found: String,
    },
    /// It is none of those that were announced, so it is not made.
    #[error(
        "{0} was to be changed, and had not been announced: nothing was done (this is a mistake of plumb's)"
    )]
    NotAnnounced(String),
    /// Another run is at the same interface.
    #[error(
        "another run of plumb (process {pid}) is using {name}: wait for its end, or take another interface"
    )]
    InUse {
        /// The interface.
        name: String,
        /// The process.
        pid: u32,
    },
    /// Somebody else has changed it meanwhile, so it stays as it is.
    #[error(
        "{what} is {now} by now, neither what it was ({before}) nor what it was set to: left so"
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
