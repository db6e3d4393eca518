//! A command to be measured.

use clap::Args;

/// A command to be measured instead of packets, and what it needs.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// A file or folder that the command needs, where it is or elsewhere in the guest; again for more
    #[arg(long, value_name = "FILE[:GUESTPATH]", requires = "command")]
    with: Vec<String>,
    /// A command for the other end, started before: it is killed when the command has ended
    #[arg(long, value_name = "COMMAND", requires = "command")]
    peer: Option<String>,
    /// Our standard input is the command's, up to 16 MiB; without it has none
    #[arg(long, requires = "command")]
    stdin: bool,
    /// A command to be measured: itself, its libraries, and the kernel as it runs; under
    /// clocks of time the packets that there are while it runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl CommandArgs {
    /// Whether no command was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.command.is_empty()
    }

    /// Its words.
    pub(crate) fn words(&self) -> &[String] {
        &self.command
    }

    /// Files that are to go with it.
    pub(crate) fn with_files(&self) -> &[String] {
        &self.with
    }

    /// What runs at the other end.
    pub(crate) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Whether our standard input is to be its own.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.stdin
    }
}
