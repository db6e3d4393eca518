//! What can go wrong when a path is set up.

use netplumb_sys::bpf::{BpfError, Refusal};
use netplumb_sys::errno;

/// Why a path does not stand, or can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// This machine, or this device, can't do it. Nothing was changed.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// What is missing.
        reason: String,
        /// What a person can do about it.
        remedy: String,
    },
    /// The verifier did not take a program.
    #[error("{0}")]
    Refused(Refusal),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Asked(String),
    /// A setting is not as it was to be.
    #[error(transparent)]
    Knob(netplumb_knobs::KnobError),
    /// The system said no.
    #[error("can't {doing}: {source}")]
    System {
        /// What was being done: "read the rules".
        doing: String,
        /// The system's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl PathError {
    /// That it can't be done here.
    pub(crate) fn cannot(reason: impl Into<String>, remedy: impl Into<String>) -> PathError {
        PathError::CannotRun {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

/// Says what was being done when the system said no.
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
            if errno::of(&*source) == Some(libc::EPERM)
                || bpf.is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::PermissionDenied)
                || loading.is_some_and(|e| matches!(e, BpfError::NotPermitted(_)))
            {
                return PathError::cannot(
                    format!("can't {}: not permitted", what()),
                    "run it as root (CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF)",
                );
            }
            PathError::System {
                doing: what(),
                source,
            }
        })
    }
}
