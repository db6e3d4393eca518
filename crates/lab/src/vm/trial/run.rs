//! Runs a child process that must not outlive this one, with a timeout.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::vm::deadline::Deadline;

/// How a child ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It exited.
    Exited {
        /// The exit code; none after a signal.
        code: Option<i32>,
        /// The exit code or the signal, in words.
        status: String,
        /// Its standard output and standard error.
        output: String,
    },
    /// It was killed at the timeout, or since it was cancelled.
    Killed {
        /// As above.
        output: String,
    },
}

/// Whether an exit status in words is a signal's (`ExitStatus` as it is displayed).
pub(super) fn is_signal(status: &str) -> bool {
    status.starts_with("signal")
}

impl Ended {
    /// The output of the child.
    pub(super) fn output(&self) -> String {
        match self {
            Self::Exited { output, .. } | Self::Killed { output } => output.clone(),
        }
    }
}

/// A file in memory.
pub(super) fn memory_file(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(content)?;
    Ok(file.into())
}

/// The path of an inherited file in a child.
pub(super) fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Run a command until it exits, or until the timeout. `shared` are the descriptors that the child
/// inherits. It is killed with the calling thread, and waited for in every case.
pub(super) fn run(command: Command, shared: &[&OwnedFd], limit: Duration) -> io::Result<Ended> {
    run_until(command, shared, limit, &AtomicBool::new(false))
}

/// The same, or until it is cancelled.
pub(super) fn run_until(
    mut command: Command,
    shared: &[&OwnedFd],
    limit: Duration,
    cancel: &AtomicBool,
) -> io::Result<Ended> {
    // Output goes to a file in memory: a pipe would have to be read, and a grandchild can keep it
    // open.
    let mut output = File::from(memory_file(c"plumb-output", b"")?);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let keep: Vec<RawFd> = shared.iter().map(|fd| fd.as_raw_fd()).collect();
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl, getppid and fcntl are called, which are async-signal-safe, and nothing
    // is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the request.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for fd in &keep {
                if libc::fcntl(*fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let deadline = Deadline::new(child.id(), limit);
    let goes_on = || !deadline.is_over() && !cancel.load(Ordering::Relaxed);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if goes_on() => std::thread::sleep(Duration::from_millis(2)),
            // Timed out or cancelled, or it can't be waited for: kill it in both cases.
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let mut bytes = Vec::new();
    output.rewind()?;
    output.take(64 * 1024).read_to_end(&mut bytes)?;
    let output = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match status {
        None => Ended::Killed { output },
        Some(status) => {
            let words = match (status.code(), status.signal()) {
                (Some(code), _) => format!("status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "no status".to_owned(),
            };
            Ended::Exited { code: status.code(), status: words, output }
        }
    })
}
