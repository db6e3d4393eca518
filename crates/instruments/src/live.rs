//! Instruments that measure time on the running kernel: their trait and errors.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netplumb_kernel::kallsyms::{KallsymsError, SymbolText};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::Figure;
use netplumb_model::timing::{Attached, Met, Window};
use netplumb_sys::bpf::BpfError;

use crate::image::FileLine;

/// An error of an instrument.
#[derive(Debug)]
pub enum LiveError {
    /// Not supported on this machine or by this user: the reason and a remedy.
    CannotRun {
        /// What is missing, in a sentence.
        reason: String,
        /// What to try instead, mostly a command.
        remedy: String,
    },
    /// Invalid arguments: an unknown function, an unsupported filter.
    Asked(String),
    /// It was cancelled.
    Interrupted,
    /// A system call failed.
    System {
        /// What was tried, to follow "can't".
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
            LiveError::Interrupted => f.write_str("interrupted"),
            LiveError::System { doing, source } => write!(f, "can't {doing}: {source}"),
        }
    }
}

impl LiveError {
    /// An error of the system in this operation.
    pub(crate) fn system<E>(doing: &str) -> impl FnOnce(E) -> LiveError + '_
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| LiveError::System { doing: doing.to_string(), source: Box::new(source) }
    }

    /// An error of loading an instrument's programs, or reading their maps.
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

/// The symbols of the running kernel.
///
/// # Errors
/// They can't be read, or their addresses are hidden from this user.
pub(crate) fn kernel_symbols() -> Result<SymbolText, LiveError> {
    let doing = "read the symbols of the kernel";
    let text = fs::read("/proc/kallsyms").map_err(LiveError::system(doing))?;
    SymbolText::new(text).map_err(|error| match error {
        KallsymsError::Hidden => LiveError::CannotRun {
            reason: "the kernel hides the addresses of symbols".into(),
            remedy: "run as root, with CAP_SYSLOG, or after `sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`".into(),
        },
        other => LiveError::system(doing)(other),
    })
}

/// An error if attaching was cancelled.
pub(crate) fn go_on(cancel: &AtomicBool) -> Result<(), LiveError> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(LiveError::Interrupted),
        false => Ok(()),
    }
}

/// Losses from cause, count and meaning; counts of 0 are left out.
pub(crate) fn losses<'a>(all: impl IntoIterator<Item = (&'a str, u64, &'a str)>) -> Vec<Loss> {
    all.into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(cause, count, meaning)| Loss { cause: cause.into(), count, meaning: meaning.into() })
        .collect()
}

/// Source lines of what was measured, in all windows.
#[derive(Debug, Default)]
pub struct SourceLines {
    /// Paths of source files, by number.
    pub files: Vec<String>,
    /// Functions, with where each is defined: file and line.
    pub functions: Vec<(Met, Option<FileLine>)>,
    /// What lines cost.
    pub costs: Vec<WindowLine>,
    /// Lines that are not known, where others are.
    pub losses: Vec<Loss>,
    /// What finding them took.
    pub figures: Vec<Figure>,
}

/// What a line of a function cost in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLine {
    /// Number of the window, from 0.
    pub window: u32,
    /// Index into [`SourceLines::functions`].
    pub function: u32,
    /// Index into [`SourceLines::files`], and number.
    pub line: FileLine,
    /// Its self cost, in the unit of the window's first costs.
    pub own: u64,
}

/// An attached instrument. Detached when dropped.
pub trait Live: fmt::Debug {
    /// What it measures, and at what cost.
    fn attached(&self) -> &Attached;

    /// Open a window: earlier events belong to none.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn open(&mut self) -> Result<(), LiveError>;

    /// Read what has been measured so far, if it can't wait until the window is closed; called
    /// often.
    ///
    /// # Errors
    /// It can't be read.
    fn poll(&mut self) -> Result<(), LiveError> {
        Ok(())
    }

    /// How often to call [`Live::poll`]; none if it has nothing to do, since calling it is work
    /// that would be measured.
    fn polled_every(&self) -> Option<Duration> {
        None
    }

    /// Close the window and open the next one, without a gap if the instrument supports that.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn turn(&mut self) -> Result<Window, LiveError> {
        let window = self.close()?;
        self.open()?;
        Ok(window)
    }

    /// Stop measuring: the window has ended, and is closed later.
    fn stop(&mut self) {}

    /// Close the window, and return its results.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn close(&mut self) -> Result<Window, LiveError>;

    /// Forget what is kept of windows that were closed, for the end of a run: it goes on forever.
    fn forget(&mut self) {}

    /// Functions of the windows so far that have another name and module at the end of a run, each with these.
    fn late_names(&mut self) -> Vec<(Met, Met)> {
        Vec::new()
    }

    /// Find the source lines of all windows, which may take seconds: when the last one is closed. It
    /// stops as soon as `go_on` returns false.
    fn lines(&mut self, _go_on: &dyn Fn() -> bool) -> SourceLines {
        SourceLines::default()
    }
}
