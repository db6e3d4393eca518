//! Errors of blocks.

use std::io;

/// Why a block of a bench could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Attaching or reading an instrument.
    #[error(transparent)]
    Live(#[from] netplumb_instruments::live::LiveError),
    /// The network namespaces and links.
    #[error(transparent)]
    Topology(#[from] netplumb_lab::netns::TopologyError),
    /// Generating the frames.
    #[error(transparent)]
    Generator(#[from] netplumb_workload::frames::GeneratorError),
    /// A data path.
    #[error(transparent)]
    Path(#[from] netplumb_paths::PathError),
    /// Choosing or preparing the interfaces.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// More CPUs were asked for than there are.
    #[error(
        "{asked} CPUs needed, but only {there} are online; reduce --cores, or leave out --apart"
    )]
    TooFewCpus {
        /// CPUs that are needed.
        asked: u32,
        /// CPUs that are online.
        there: usize,
    },
    /// It was stopped.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("can't {what}: {source}")]
    Host {
        /// The operation that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl BlockError {
    /// An error of the system in this operation.
    pub(crate) fn host(what: &'static str) -> impl FnOnce(io::Error) -> BlockError {
        move |source| BlockError::Host { what, source }
    }
}

/// Why a bench can't run on the given interfaces.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// Invalid arguments; nothing was changed.
    #[error("{0}")]
    Asked(String),
    /// The interface is not suitable; nothing was changed.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// Why.
        reason: String,
        /// What to do about it, as a sentence.
        remedy: String,
    },
    /// Not all settings were restored.
    #[error(
        "not all settings were restored: {}. `plumb doctor --clean` tries again, and lists what is left",
        .0.join("; ")
    )]
    NotPutBack(Vec<String>),
}
