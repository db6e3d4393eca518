//! A command to measure, instead of packets.

use clap::Args;
use netplumb_model::experiment::Setup;
use netplumb_report::printable;

/// A command to measure instead of packets, and what it needs.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// File or directory to copy into the guest, to the same path or to GUESTPATH; may be given
    /// more than once
    #[arg(long, value_name = "FILE[:GUESTPATH]", requires = "command")]
    with: Vec<String>,
    /// File to make in the guest before COMMAND runs, like /disk/data:16M; may be given more than
    /// once
    #[arg(long, value_name = "GUESTPATH:SIZE", requires = "command")]
    make_file: Vec<String>,
    /// Command to run in the guest before COMMAND, not measured; may be given more than once
    #[arg(long, value_name = "COMMAND", requires = "command")]
    setup: Vec<String>,
    /// Drop the guest's caches of files before each run of COMMAND
    #[arg(long, requires = "command")]
    drop_caches: bool,
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
