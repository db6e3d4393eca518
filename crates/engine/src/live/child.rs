//! A command whose packets are observed.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use netplumb_model::message::Exit;
use netplumb_model::reads::HELD;
use netplumb_sys::netns;

/// Makes a command wait once it has opened its file, until settings are changed.
#[derive(Debug)]
pub(super) struct Held {
    own: UnixStream,
}

impl Held {
    /// With the end that is the command's.
    pub(super) fn new() -> io::Result<(Held, OwnedFd)> {
        let (own, other) = UnixStream::pair()?;
        Ok((Held { own }, other.into()))
    }

    /// Whether it has opened its file; false if it ended without. Waits for some time; none if
    /// neither has happened yet.
    pub(super) fn is_open(&mut self, most: Duration) -> io::Result<Option<bool>> {
        self.own.set_read_timeout(Some(most))?;
        match self.own.read(&mut [0]) {
            Ok(bytes) => Ok(Some(bytes > 0)),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            // It ended with something to be read.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(Some(false)),
            Err(e) => Err(e),
        }
    }

    /// Let it continue.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        match self.own.write_all(&[1]) {
            // It has ended.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// Where the output of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Where plumb's goes.
    Own,
    /// To the standard error.
    Stderr,
    /// Nowhere.
    Nowhere,
}

impl From<bool> for Output {
    fn from(to_stderr: bool) -> Output {
        match to_stderr {
            true => Output::Stderr,
            false => Output::Own,
        }
    }
}

/// A command with its child processes. Killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// It becomes readable as it exits; none before Linux 5.3.
    descriptor: Option<OwnedFd>,
    exit: Option<Exit>,
}

impl Running {
    /// Start it, in a namespace if one is given. With `held` it waits once it has opened its file.
    pub(super) fn start(
        words: &[String],
        namespace: Option<OwnedFd>,
        variables: &[(&str, String)],
        output: Output,
        held: Option<OwnedFd>,
    ) -> io::Result<Running> {
        let (program, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(rest).process_group(0);
        for (name, value) in variables {
            command.env(name, value);
        }
        if let Some(held) = &held {
            command.env(HELD, held.as_raw_fd().to_string());
        }
        if io::stdin().is_terminal() {
            // Its process group is in the background, and can't read from the terminal.
            command.stdin(Stdio::null());
        }
        match output {
            Output::Own => {}
            Output::Stderr => {
                let stderr = File::options().append(true).open("/proc/self/fd/2");
                command.stdout(stderr.map_or_else(|_| Stdio::null(), Stdio::from));
            }
            Output::Nowhere => drop(command.stdout(Stdio::null())),
        }
        // SAFETY: between fork and exec only calls that are safe there: they take a
        // descriptor, flags and numbers, and allocate nothing.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // It is closed on exec otherwise.
                if let Some(held) = &held
                    && libc::fcntl(held.as_raw_fd(), libc::F_SETFD, 0) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                match &namespace {
                    Some(namespace) => netns::enter(namespace.as_fd()),
                    None => Ok(()),
                }
            });
        }
        let child = command.spawn()?;
        // SAFETY: takes numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) };
        let descriptor = match i32::try_from(fd) {
            // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
            Ok(fd) if fd >= 0 => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => None,
        };
        Ok(Running { child, descriptor, exit: None })
    }

    /// How it exited, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            self.exit =
                self.child.try_wait()?.map(|status| match (status.code(), status.signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::Signal(signal.unwrap_or(0)),
                });
        }
        Ok(self.exit)
    }

    /// Wait until it has exited, for some time at most, without waking up meanwhile: that would be
    /// counted as a switch of tasks on a CPU that it needs. How it exited, if it has.
    pub(super) fn wait(&mut self, most: Duration) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            match &self.descriptor {
                Some(descriptor) => {
                    let mut poll = libc::pollfd {
                        fd: descriptor.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    let ms = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
                    // SAFETY: one descriptor, in a structure that is alive. That a signal ends it is
                    // as good as the end of the time.
                    unsafe { libc::poll(&mut poll, 1, ms) };
                }
                None => std::thread::sleep(most.min(Duration::from_millis(5))),
            }
        }
        self.ended()
    }

    /// Interrupt it with its process group, and wait for its end, for some time at most: how it exited.
    pub(super) fn interrupt(&mut self, most: Duration) -> io::Result<Option<Exit>> {
        // SAFETY: takes numbers; see `stop`.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGINT) };
        let until = Instant::now() + most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let ended = self.wait(left)?;
            if ended.is_some() || left.is_zero() {
                return Ok(ended);
            }
        }
    }

    /// Kill it with its process group.
    fn stop(&mut self) {
        // SAFETY: takes numbers; the group belongs to a child that is only waited for afterwards,
        // or to what the child left behind.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        if self.exit.is_none() {
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
