//! Whether interfaces that this machine's connections depend on may be changed.

use clap::Args;

use super::heading;

/// The option that allows it, for commands that set an interface by `--nic`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct GuardArgs {
    /// Allow changes to an interface of the default route or of your SSH session
    #[arg(long, requires = "nic", help_heading = heading::SETTINGS)]
    pub(crate) even_default_route: bool,
}
