//! How a guest ends before its time, in words for people.

use std::io;

use netplumb_model::message::PROTOCOL_VERSION;

use super::machine::MEMORY_MIB;
use super::trial::QemuMissing;

/// How a guest ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// There is no QEMU.
    #[error(
        "{0}: `sudo apt-get install qemu-system-x86`, or name one in $PLUMB_QEMU \
         (`plumb doctor` lists what else is needed)"
    )]
    QemuMissing(QemuMissing),
    /// QEMU could not be run, or ended by itself.
    #[error(
        "QEMU failed ({status}){}{}",
        indent("its output", stderr),
        indent("last console lines", console)
    )]
    QemuFailed {
        /// How it ended.
        status: String,
        /// Its last words.
        stderr: Vec<String>,
        /// The guest's.
        console: Vec<String>,
    },
    /// The guest reset or switched itself off. A kernel that fails before it has a
    /// console, or without the words of a panic, does that.
    #[error(
        "the guest stopped early; its kernel may not run in {MEMORY_MIB} MiB, or not with these options of --cmdline{}",
        indent("last console lines", console)
    )]
    Stopped {
        /// Its last words.
        console: Vec<String>,
    },
    /// The guest's kernel panicked.
    #[error(
        "the guest's kernel panicked: {message}{}{}",
        memory_hint(message),
        indent("last console lines", console)
    )]
    KernelPanic {
        /// Its message.
        message: String,
        /// The lines before.
        console: Vec<String>,
    },
    /// Something took too long.
    #[error(
        "the guest did not {what} within {seconds} s{}\n\
         if the machine is slow, allow more with --timeout",
        indent("last console lines", console)
    )]
    Timeout {
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        seconds: u64,
        /// Its last words.
        console: Vec<String>,
    },
    /// QEMU itself took too long.
    #[error(
        "QEMU did not {what} within {seconds} s: try another one, named in $PLUMB_QEMU, or allow \
         more with --timeout if the machine is slow"
    )]
    NoAnswer {
        /// What it was to do.
        what: String,
        /// How long it had.
        seconds: u64,
    },
    /// The guest tried, and could not.
    #[error("in the guest: {message}{}", indent("last console lines", console))]
    CommandFailed {
        /// Why.
        message: String,
        /// The guest's last words.
        console: Vec<String>,
    },
    /// The guest's agent is of another version.
    #[error("the guest's agent uses protocol {0}, this program {PROTOCOL_VERSION}")]
    Protocol(u32),
    /// QEMU's control channel.
    #[error("{0}")]
    Control(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("can't {what}: {source}")]
    Host {
        /// What we were to do.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

fn indent(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("\n  {title}:\n    {}", lines.join("\n    "))
}

/// What to try where a panic is for want of memory.
fn memory_hint(panic: &str) -> String {
    if panic.to_lowercase().contains("memory") {
        format!(
            "\n  the guest has {MEMORY_MIB} MiB, less what --cmdline takes of it; \
             try smaller packets, or a smaller kernel"
        )
    } else {
        String::new()
    }
}

impl VmError {
    /// The guest's last console lines, where there are any.
    pub fn console(&self) -> &[String] {
        match self {
            VmError::QemuFailed { console, .. }
            | VmError::Stopped { console }
            | VmError::KernelPanic { console, .. }
            | VmError::Timeout { console, .. }
            | VmError::CommandFailed { console, .. } => console,
            _ => &[],
        }
    }
}

/// Says what was being done, where a system call failed.
pub(super) trait Doing<T> {
    /// Say it.
    fn doing(self, what: &'static str) -> Result<T, VmError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T, VmError> {
        self.map_err(|source| VmError::Host { what, source })
    }
}
