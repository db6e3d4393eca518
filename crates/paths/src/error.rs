//! Errors of data paths.

use netplumb_sys::bpf::{BpfError, Refusal};
use netplumb_sys::errno;

/// An error of a data path.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Not supported by this machine or device. Nothing was changed.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// The missing program, right or feature, as a sentence.
        reason: String,
        /// What to install, change or use instead.
        remedy: String,
    },
    /// The verifier rejected a program.
    #[error("{0}")]
    Refused(Refusal),
    /// The arguments are invalid.
    #[error("{0}")]
    Asked(String),
    /// A setting could not be applied.
    #[error(transparent)]
    Knob(netplumb_knobs::KnobError),
    /// A system call or a program failed.
    #[error("can't {doing}: {source}")]
    System {
        /// The operation: "read the rules".
        doing: String,
        /// The system's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PathError {
    /// An error about something that is not supported.
    pub(crate) fn cannot(reason: impl Into<String>, remedy: impl Into<String>) -> PathError {
        PathError::CannotRun { reason: reason.into(), remedy: remedy.into() }
    }
}

/// Adds the operation to an error.
pub(crate) trait Doing<T> {
    /// `what` completes "can't ...".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PathError>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, PathError> {
        self.map_err(|source| {
            let source = source.into();
            let bpf = source.downcast_ref::<libbpf_rs::Error>();
            let loading = source.downcast_ref::<BpfError>();
            if errno::errno_in(&*source) == Some(libc::EPERM)
                || bpf.is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::PermissionDenied)
                || loading.is_some_and(|e| matches!(e, BpfError::NotPermitted(_)))
            {
                return PathError::cannot(
                    format!("can't {}: not permitted", what()),
                    "run it as root (CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF)",
                );
            }
            PathError::System { doing: what(), source }
        })
    }
}
