//! `--below`: a part of the call graph.

use clap::Args;

/// Which part of the call graph.
#[derive(Debug, Args)]
pub(crate) struct BelowArgs {
    /// Show only FUNCTION and what it calls, as one tree of its calls from everywhere, with shares
    /// of the tree; "a;b" is b where a calls it, directly or not
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) below: Option<String>,
}
