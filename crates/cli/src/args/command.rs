//! A command to measure, instead of packets.

use clap::Args;
use netplumb_model::experiment::Setup;
use netplumb_report::printable;

use super::heading;

/// A command to measure instead of packets, and what it needs.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::WORKLOAD)]
pub(crate) struct CommandArgs {
    /// Copy FILE, a file or directory, into the guest
    ///
    /// It is copied to the same path, or to GUESTPATH. May be repeated.
    #[arg(long, value_name = "FILE[:GUESTPATH]", requires = "command")]
    with: Vec<String>,
    /// Create a file in the guest before COMMAND runs, like /disk/data:16M; may be repeated
    #[arg(long, value_name = "GUESTPATH:SIZE", requires = "command")]
    make_file: Vec<String>,
    /// Run this command in the guest before the measured COMMAND; may be repeated
    #[arg(long, value_name = "COMMAND", requires = "command")]
    setup: Vec<String>,
    /// Drop the guest's file caches before each run of COMMAND
    #[arg(long, requires = "command")]
    drop_caches: bool,
    /// Run a server at the other end of the link
    ///
    /// It is started before the measured COMMAND, and killed when COMMAND exits.
    #[arg(long, value_name = "COMMAND", requires = "command")]
    peer: Option<String>,
    /// Pass standard input to COMMAND, up to 16 MiB [default: no input]
    #[arg(long, requires = "command")]
    stdin: bool,
    /// Command to measure
    ///
    /// With --clock exact: the program, its libraries, and the kernel on its behalf. With other
    /// instruments: the packets seen while it runs.
    #[arg(last = true, value_name = "COMMAND", help_heading = None)]
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

    /// What is done in the guest before the command.
    ///
    /// # Errors
    /// An invalid file or command.
    pub(crate) fn setup(&self) -> Result<Setup, String> {
        let mut setup = Setup { drop_caches: self.drop_caches, ..Setup::default() };
        for made in &self.make_file {
            let (path, size) = made.rsplit_once(':').ok_or_else(|| {
                let made = printable(made, 80);
                format!("invalid --make-file `{made}`; expected like /disk/data:16M")
            })?;
            let size = size.parse().map_err(|e| format!("--make-file: {e}"))?;
            setup.files.insert(path.into(), size);
        }
        for line in &self.setup {
            let words = shell_words::split(line)
                .map_err(|e| format!("invalid --setup `{}`: {e}", printable(line, 80)))?;
            setup.commands.push(words);
        }
        Ok(setup)
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
