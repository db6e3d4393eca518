//! Errors of guests.

use std::io;

use netplumb_model::message::{NotLoaded, PROTOCOL_VERSION, RefusedKind};

use super::machine::{LARGE_MEMORY_MIB, MEMORY_MIB};
use super::trial::QemuMissing;

/// An error of a guest, or of QEMU.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// QEMU was not found.
    #[error(
        "{0}: `sudo apt-get install {package}`, or name one in $PLUMB_QEMU \
         (`plumb doctor` lists what else is needed)", package = .0.package()
    )]
    QemuMissing(QemuMissing),
    /// QEMU could not be run, or exited by itself.
    #[error(
        "QEMU failed ({status}){}{}{}",
        killed_hint(status),
        indent("its output", stderr),
        indent("last console lines", console)
    )]
    QemuFailed {
        /// QEMU's exit status or signal, in words.
        status: String,
        /// QEMU's last lines on standard error.
        stderr: Vec<String>,
        /// The guest's last console lines.
        console: Vec<String>,
    },
    /// The guest reset or powered off: the kernel failed before it had a console, or without the
    /// message of a panic.
    #[error(
        "the guest stopped early; its kernel may not run in {MEMORY_MIB} MiB, or not with these options of --cmdline{}",
        indent("last console lines", console)
    )]
    Stopped {
        /// Its last output.
        console: Vec<String>,
    },
    /// The guest's kernel panicked.
    #[error(
        "the guest's kernel panicked: {message}{}{}",
        memory_hint(message),
        indent("last console lines", console)
    )]
    KernelPanic {
        /// The kernel's message.
        message: String,
        /// The last console lines.
        console: Vec<String>,
    },
    /// The agent, which is the guest's init, ended: its kernel lacks something.
    #[error(
        "the guest's agent can't run on this kernel: {why}{}",
        indent("last console lines", console)
    )]
    AgentFailed {
        /// Its reason, and what the kernel needs.
        why: String,
        /// The last console lines.
        console: Vec<String>,
    },
    /// The guest's kernel could not unpack the files for the guest.
    #[error(
        "the guest's kernel could not unpack the files for it ({reason}): they may not fit in its \
         {MEMORY_MIB} MiB. Use fewer modules and programs in one arm, or a release build of plumb, \
         which is in every guest"
    )]
    Initramfs {
        /// The kernel's message about it.
        reason: String,
    },
    /// The guest did not respond in time.
    #[error(
        "the guest did not {what} within {seconds} s{}\n\
         if the machine is slow, allow more with --timeout",
        indent("last console lines", console)
    )]
    Timeout {
        /// What it was to do, as a verb.
        what: &'static str,
        /// How long it had.
        seconds: u64,
        /// Its last output.
        console: Vec<String>,
    },
    /// The guest did not respond in time, as its QEMU was stopped from outside.
    #[error(
        "the guest did not {what} within {seconds} s, as its QEMU is stopped (SIGSTOP, or a debugger)\n\
         run it again, and leave QEMU running or allow more with --timeout"
    )]
    QemuStopped {
        /// What it was to do, as a verb.
        what: String,
        /// How long it had.
        seconds: u64,
    },
    /// QEMU did not respond in time.
    #[error(
        "QEMU did not {what} within {seconds} s: try another one, named in $PLUMB_QEMU, or allow \
         more with --timeout if the machine is slow"
    )]
    NoAnswer {
        /// What it was to do, as a verb.
        what: String,
        /// How long it had.
        seconds: u64,
    },
    /// A request to the guest failed.
    #[error("in the guest: {message}{}", indent("last console lines", console))]
    CommandFailed {
        /// The agent's message.
        message: String,
        /// Whose matter it is.
        kind: RefusedKind,
        /// The guest's last console lines.
        console: Vec<String>,
    },
    /// A module of the guest's kernel does not load.
    #[error(
        "the guest's kernel does not load its module {}: {}{}",
        .0.module,
        .0.why,
        indent("the kernel's messages", &.0.kernel)
    )]
    NotLoaded(Box<NotLoaded>),
    /// The guest's agent uses another protocol version.
    #[error("the guest's agent uses protocol {0}, this program {PROTOCOL_VERSION}")]
    Protocol(u32),
    /// An error on QEMU's control channel.
    #[error("{0}")]
    Control(String),
    /// Interrupted by a signal.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("can't {what}: {source}")]
    Host {
        /// The operation that failed.
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

/// A hint, if a panic was caused by lack of memory.
fn memory_hint(panic: &str) -> String {
    if panic.to_lowercase().contains("memory") {
        format!(
            "\n  the guest has {MEMORY_MIB} MiB ({LARGE_MEMORY_MIB} for a command with many files), less what --cmdline takes of it; \
             try fewer or smaller files (--with, or a smaller command), smaller packets, fewer functions \
             (--max-functions), or a smaller kernel"
        )
    } else {
        String::new()
    }
}

/// A hint, if QEMU did not end by itself.
fn killed_hint(status: &str) -> &'static str {
    match status.contains("SIGKILL") {
        true => {
            ": it was killed from outside. If nobody did, this machine ran out of memory: `dmesg` says so, and fewer guests at \
             a time need less"
        }
        false => "",
    }
}

impl VmError {
    /// Whether nothing was heard of the guest in time.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, VmError::Timeout { .. } | VmError::QemuStopped { .. })
    }

    /// The guest's last console lines, if there are any.
    pub fn console(&self) -> &[String] {
        match self {
            VmError::QemuFailed { console, .. }
            | VmError::Stopped { console }
            | VmError::KernelPanic { console, .. }
            | VmError::AgentFailed { console, .. }
            | VmError::Timeout { console, .. }
            | VmError::CommandFailed { console, .. } => console,
            _ => &[],
        }
    }
}

/// Adds the failed operation to an error of a system call.
pub(super) trait Doing<T> {
    /// Add the operation.
    fn doing(self, what: &'static str) -> Result<T, VmError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T, VmError> {
        self.map_err(|source| VmError::Host { what, source })
    }
}
