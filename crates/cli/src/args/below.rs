//! `--below`, `--thread` and `--process`: a part of a recording.

use clap::Args;

use super::heading;

/// Which part of a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::REPORT)]
pub(crate) struct BelowArgs {
    /// Show only FUNCTION and its callees
    ///
    /// The calls from all callers form one tree, and shares are shares of the tree. "a;b" selects b
    /// where a calls it, directly or indirectly.
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) below: Option<String>,
    /// Show only the samples of threads named NAME, or of thread number NAME
    ///
    /// --threads lists the threads.
    #[arg(long, value_name = "NAME", conflicts_with = "process")]
    pub(crate) thread: Option<String>,
    /// Show only the samples of processes named NAME, or of process number NAME
    ///
    /// All threads of the processes are included.
    #[arg(long, value_name = "NAME")]
    pub(crate) process: Option<String>,
}

impl BelowArgs {
    /// What a recording is called, with the threads that were asked for.
    pub(crate) fn name_with_threads(&self, file: String) -> String {
        match (&self.thread, &self.process) {
            (Some(name), _) => format!("{file}, thread {name}"),
            (None, Some(name)) => format!("{file}, process {name}"),
            (None, None) => file,
        }
    }
}
