//! Errors of settings.

use std::io;

/// An error of a setting.
#[derive(Debug, thiserror::Error)]
pub enum KnobError {
    /// The interface or disk is gone, or another one is in its place.
    #[error("the {what} {name} is gone")]
    Gone {
        /// What it is: "interface".
        what: &'static str,
        /// The name of the interface or disk, as it was found.
        name: String,
    },
    /// It reads back with another value.
    #[error("{what} was set to {asked} but reads back as {found}: {}", why_other(asked, found))]
    ReadsBack {
        /// The setting and its object, by [`Setting::whose`](crate::Setting::whose).
        what: String,
        /// The value that was set.
        asked: String,
        /// The value that was read.
        found: String,
    },
    /// The kernel does not accept the value.
    #[error("{what} can't be set to {asked}: {why}")]
    NotAccepted {
        /// The setting and its object, by [`Setting::whose`](crate::Setting::whose).
        what: String,
        /// The value that the kernel did not accept.
        asked: String,
        /// Why, or what is accepted.
        why: String,
    },
    /// There is no such setting.
    #[error("{what}: there is none: {why}")]
    Missing {
        /// The setting and its object, by [`Setting::whose`](crate::Setting::whose).
        what: String,
        /// Why, and what to do about it.
        why: String,
    },
    /// The change was not announced, so it is not made.
    #[error(
        "refused to change {0}, which was not announced; nothing was changed (this is a bug in plumb)"
    )]
    NotAnnounced(String),
    /// Another run uses the interface or disk.
    #[error(
        "{name} is in use by another run of plumb (process {pid}): wait for it to finish, or use another one"
    )]
    InUse {
        /// The interface or disk.
        name: String,
        /// PID of the other run.
        pid: u32,
    },
    /// It was changed by others meanwhile, so it is left unchanged.
    #[error(
        "{what} is now {now}, neither what it was ({before}) nor what it was set to: left unchanged"
    )]
    Changed {
        /// The setting and its object, by [`Setting::whose`](crate::Setting::whose).
        what: String,
        /// Its original value.
        before: String,
        /// The value that was read.
        now: String,
    },
    /// A system call failed.
    #[error("can't {doing}: {source}")]
    System {
        /// What was attempted, as in "can't ...".
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Why a value reads back as another one.
fn why_other(asked: &str, found: &str) -> String {
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    match is_number(asked) && is_number(found) {
        true => format!("the kernel rounds or limits it; use {found}"),
        false => "not supported by the kernel or the driver".into(),
    }
}

impl KnobError {
    /// For an error of the system: `doing` completes "can't ...".
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> KnobError {
        let doing = doing.into();
        move |source| KnobError::System { doing, source }
    }
}
