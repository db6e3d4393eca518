//! Where the page goes.

use std::path::PathBuf;

use clap::Args;

/// Where to put the page.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// A page with everything in it, which opens without a network: one HTML file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Open that page in a browser; without --html, from a temporary file
    #[arg(long)]
    pub(crate) open: bool,
}

impl PageArgs {
    /// Whether there is to be a page.
    pub(crate) fn wanted(&self) -> bool {
        self.html.is_some() || self.open
    }
}
