//! Errors of the frame generator.

use std::io;

/// An error of the frame generator.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// Invalid arguments: what is wrong, and what is expected.
    #[error("{0}")]
    Input(String),
    /// Not supported on this machine or by this user: the reason and a remedy.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// What is missing, in a sentence.
        reason: String,
        /// What to install, change or use instead.
        remedy: String,
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

/// Adds the operation to an error, and what to do about missing privileges.
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
