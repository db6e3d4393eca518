//! `--below`: a part of the call graph.

use clap::Args;

/// Which part of the call graph.
#[derive(Debug, Args)]
pub(crate) struct BelowArgs {
    /// Show only FUNCTION and what it calls: its calls from everywhere as one tree, with shares of
    /// that and calls; "a;b" is b where a called it
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) below: Option<String>,
}
