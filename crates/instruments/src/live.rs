//! Instruments that read a clock on the running kernel: what they have in common.

use std::fmt;

use netplumb_model::loss::Loss;
use netplumb_model::timing::{Attached, Window};
use netplumb_sys::bpf::BpfError;

/// Why an instrument can't measure, or no longer.
#[derive(Debug)]
pub enum LiveError {
    /// Not on this machine, or not as this user: why, and what would help.
    CannotRun {
        /// What is missing, in a sentence.
        reason: String,
        /// What to try.
        remedy: String,
    },
    /// Not what was asked for: no function by that name, no such filter here.
    Asked(String),
    /// The system refused something on the way.
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::CannotRun { reason, remedy } => write!(f, "{reason}: {remedy}"),
            LiveError::Asked(what) => f.write_str(what),
            LiveError::System { doing, source } => write!(f, "can't {doing}: {source}"),
        }
    }
}

impl LiveError {
    /// For what the system refused while `doing` something.
    pub(crate) fn system<E>(doing: &str) -> impl FnOnce(E) -> LiveError + '_
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| LiveError::System {
            doing: doing.to_string(),
            source: Box::new(source),
        }
    }

    /// For programs of an instrument that are not in the kernel, or whose maps can't be had.
    pub(crate) fn programs(of: &'static str) -> impl FnOnce(BpfError) -> LiveError {
        move |error| match error {
            BpfError::NoTypes(_) => LiveError::CannotRun {
                reason: error.to_string(),
                remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as in most distributions"
                    .into(),
            },
            BpfError::NotPermitted(_) => LiveError::CannotRun {
                reason: error.to_string(),
                remedy: "run as root, or with CAP_BPF and CAP_PERFMON (see `plumb doctor`)".into(),
            },
            other => LiveError::System {
                doing: format!("load the programs of `{of}`"),
                source: Box::new(other),
            },
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LiveError::System { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// Of losses that are known by cause, count and meaning, those that there were.
pub(crate) fn losses<'a>(all: impl IntoIterator<Item = (&'a str, u64, &'a str)>) -> Vec<Loss> {
    all.into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(cause, count, meaning)| Loss {
            cause: cause.into(),
            count,
            meaning: meaning.into(),
        })
        .collect()
}

/// An instrument that is attached. Dropped, it leaves nothing in the kernel.
pub trait Live: fmt::Debug {
    /// What it watches, and at what cost.
    fn attached(&self) -> &Attached;

    /// Open a window: what was seen before belongs to none.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn open(&mut self) -> Result<(), LiveError>;

    /// Close the window and open the next one. An instrument that can misses nothing
    /// between the two.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn turn(&mut self) -> Result<Window, LiveError> {
        let window = self.close()?;
        self.open()?;
        Ok(window)
    }

    /// Look at nothing any more: the window is over, and is closed when there is time. What
    /// has to go on until then does.
    fn stop(&mut self) {}

    /// Close the window, and return what was seen in it.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn close(&mut self) -> Result<Window, LiveError>;
}
