//! `--below`, `--thread` and `--process`: a part of a recording.

use clap::Args;

/// Which part of a recording.
#[derive(Debug, Args)]
pub(crate) struct BelowArgs {
    /// Show only FUNCTION and what it calls, as one tree of its calls from everywhere, with shares
    /// of the tree; "a;b" is b where a calls it, directly or not
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) below: Option<String>,
    /// Show only the samples of threads called NAME, or of the thread with that number (--threads lists
    /// them)
    #[arg(long, value_name = "NAME", conflicts_with = "process")]
    pub(crate) thread: Option<String>,
    /// Show only the samples of processes called NAME, all their threads, or of the process with that
    /// number
    #[arg(long, value_name = "NAME")]
    pub(crate) process: Option<String>,
}

impl BelowArgs {
    /// What a recording is called, with the threads that were asked for.
    pub(crate) fn told(&self, file: String) -> String {
        match (&self.thread, &self.process) {
            (Some(name), _) => format!("{file}, thread {name}"),
            (None, Some(name)) => format!("{file}, process {name}"),
            (None, None) => file,
        }
    }
}
