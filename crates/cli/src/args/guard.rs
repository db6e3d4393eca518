//! Whether interfaces that this machine's connections depend on may be changed.

use clap::Args;

/// The option that allows it, for commands that set an interface by `--nic`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct GuardArgs {
    /// Allow changes even if the default route or your SSH session uses the interface
    #[arg(long, requires = "nic")]
    pub(crate) even_default_route: bool,
}
