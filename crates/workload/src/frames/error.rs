//! What keeps frames from being sent.

use std::io;

/// Why there is no generator, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// What was asked for can't be meant: what is wrong, and what would be right.
    #[error("{0}")]
    Input(String),
    /// Not on this machine, or not as this user: why, and what would help.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// What is missing, in a sentence.
        reason: String,
        /// What to try.
        remedy: String,
    },
    /// The system refused something on the way.
    #[error("can't {doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl GeneratorError {
    pub(super) fn rights(doing: &str) -> GeneratorError {
        GeneratorError::CannotRun {
            reason: format!("can't {doing}: not permitted"),
            remedy: "run it as root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW and \
                     CAP_SYS_ADMIN)"
                .into(),
        }
    }
}

/// Says what was being done; where it is rights that are missing, that too.
pub(super) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> GeneratorError {
    move |source| {
        let doing = what.into();
        if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
            GeneratorError::rights(&doing)
        } else {
            GeneratorError::System { doing, source }
        }
    }
}
