//! Running a child that must not outlive us, with a limit on its time.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    Exited {
        /// The exit code; nothing if a signal ended it.
        code: Option<i32>,
        /// The exit code or the signal, in words.
        status: String,
        /// What it wrote to standard output and standard error.
        output: String,
    },
    /// By us, at the limit.
    Killed {
        /// As above.
        output: String,
    },
}

impl Ended {
    /// What the child wrote.
    pub(super) fn output(&self) -> String {
        match self {
            Self::Exited { output, .. } | Self::Killed { output } => output.clone(),
        }
    }
}

/// A file that is nowhere but in memory.
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

/// The name by which a child that is given the file finds it.
pub(super) fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Run a command to its end, or to the limit. `shared` are the descriptors that the child keeps.
/// It dies with the calling thread, and is waited for whatever happens.
pub(super) fn run(mut command: Command, shared: &[&OwnedFd], limit: Duration) -> io::Result<Ended> {
    // Output goes to a file in memory: a pipe would have to be read, and can be left open by a
    // grandchild.
    let mut output = File::from(memory_file(c"plumb-output", b"")?);
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let keep: Vec<RawFd> = shared.iter().map(|fd| fd.as_raw_fd()).collect();
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl, getppid and fcntl are called, all of which are
    // async-signal-safe, and nothing is allocated.
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
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            // Too late, or it can't be waited for: either way it has to go.
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
            Ended::Exited {
                code: status.code(),
                status: words,
                output,
            }
        }
    })
}
