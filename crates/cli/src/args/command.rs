//! A command to measure, instead of packets.

use clap::Args;

/// A command to measure instead of packets, and what it needs.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// File or directory to copy into the guest, to the same path or to GUESTPATH; may be given
    /// more than once
    #[arg(long, value_name = "FILE[:GUESTPATH]", requires = "command")]
    with: Vec<String>,
    /// Server to run at the other end of the link: started before COMMAND, killed when it exits
    #[arg(long, value_name = "COMMAND", requires = "command")]
    peer: Option<String>,
    /// Pass standard input to COMMAND, up to 16 MiB [default: no input]
    #[arg(long, requires = "command")]
    stdin: bool,
    /// Command to measure. With `exact`: the program, its libraries, and the kernel on its
    /// behalf; with other instruments: the packets seen while it runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl CommandArgs {
    /// Whether no command was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.command.is_empty()
    }

    /// Its arguments, the first of which is its name.
    pub(crate) fn words(&self) -> &[String] {
        &self.command
    }

    /// Files to copy into the guest.
    pub(crate) fn with_files(&self) -> &[String] {
        &self.with
    }

    /// The server at the other end.
    pub(crate) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Whether it gets plumb's standard input.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.stdin
    }
}
