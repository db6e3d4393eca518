//! The HTML page.

use std::path::PathBuf;

use clap::Args;

use super::heading;

/// Where to write the page.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(crate) struct PageArgs {
    /// Write the report as a self-contained HTML file
    #[arg(long, value_name = "OUT")]
    pub(crate) html: Option<PathBuf>,
    /// Open the HTML report in a browser; without --html, a temporary file
    #[arg(long)]
    pub(crate) open: bool,
}

impl PageArgs {
    /// Whether a page is wanted.
    pub(crate) fn wanted(&self) -> bool {
        self.html.is_some() || self.open
    }
}
