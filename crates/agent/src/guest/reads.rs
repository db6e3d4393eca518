//! `plumb read-file` in a guest: a task of the agent's own, which opens its window just before it
//! reads, so that nothing of a program's start is measured.

use std::io;
use std::os::fd::AsFd;
use std::ptr;

use netplumb_lab::vm::disk::Standing;
use netplumb_model::message::Output;
use netplumb_model::reads::FileReads;
use netplumb_sys::netns;
use netplumb_workload::ends::Ends;
use netplumb_workload::mark::{self, mark};
use netplumb_workload::reads::{Reader, Total, said};

use super::disk::Faults;

/// Results of the task, in memory that it shares with the agent.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct TaskResult {
    pub(super) bytes: u64,
    pub(super) accesses: u64,
    pub(super) took_ns: u64,
    pub(super) major: u64,
    pub(super) minor: u64,
    /// The error number of a read that failed.
    pub(super) errno: u64,
}

impl TaskResult {
    /// The text that a program would have written at its end.
    pub(super) fn said(&self) -> String {
        match self.errno {
            0 => said(&Total { bytes: self.bytes, accesses: self.accesses }),
            errno => format!("{}\n", io::Error::from_raw_os_error(errno as i32)),
        }
    }

    /// Where it would have.
    pub(super) fn output(&self) -> Output {
        match self.errno {
            0 => Output::Stdout,
            _ => Output::Stderr,
        }
    }

    pub(super) fn faults(&self) -> Faults {
        Faults { major: self.major, minor: self.minor }
    }
}

/// Memory that a task shares with the agent.
#[derive(Debug)]
pub(super) struct Shared(*mut TaskResult);

impl Shared {
    fn new() -> io::Result<Shared> {
        // SAFETY: a new mapping without a file, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<TaskResult>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Shared(at.cast())),
        }
    }

    /// The task's results; to be called once it has ended.
    pub(super) fn left(&self) -> TaskResult {
        // SAFETY: the mapping is ours, of this type, zeroed at first, and nobody writes any more.
        unsafe { ptr::read_volatile(self.0) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.0.cast(), size_of::<TaskResult>()) };
    }
}

/// A file that is ready to be read.
pub(super) struct Opened {
    reader: Reader,
    shared: Shared,
}

impl Opened {
    /// Open the file, and change the disk's settings if that is to be done while it is open.
    ///
    /// # Errors
    /// What failed, in a sentence.
    pub(super) fn open(reads: &FileReads, disk: Option<&Standing>) -> Result<Opened, String> {
        let message = |e: io::Error| format!("read {}: {e}", reads.path);
        let reader = Reader::open(reads).map_err(message)?;
        if let Some(disk) = disk {
            disk.after_open()?;
        }
        let mut reader = reader.reopen().map_err(message)?;
        reader.prepare().map_err(message)?;
        let shared = Shared::new().map_err(message)?;
        Ok(Opened { reader, shared })
    }

    /// Start the task that reads it. Returns its PID, and the memory for its results.
    ///
    /// # Errors
    /// It can't be started, in a sentence.
    pub(super) fn start(mut self, ends: &Ends) -> Result<(libc::pid_t, Shared), String> {
        // SAFETY: the child makes system calls and accesses memory that was there before; it
        // allocates nothing, and ends by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(format!("start a task: {}", io::Error::last_os_error())),
            0 => {
                let code = task(&mut self.reader, self.shared.0, ends);
                // SAFETY: this process is a copy, whose destructors are the agent's.
                unsafe { libc::_exit(code) }
            }
            pid => Ok((pid, self.shared)),
        }
    }
}

/// In the child.
fn task(reader: &mut Reader, shared: *mut TaskResult, ends: &Ends) -> libc::c_int {
    if netns::enter(ends.tx_namespace.as_fd()).is_err() {
        return 1;
    }
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    let ready = reader.touch();
    let (faults, began_ns) = (usage(), now_ns());
    mark::<{ mark::RUN_BEGIN }>();
    let outcome = ready.and_then(|()| reader.run());
    mark::<{ mark::WINDOW_END }>();
    let took_ns = now_ns().saturating_sub(began_ns);
    let after = usage();
    let (total, errno) = match outcome {
        Ok(total) => (total, 0),
        Err(error) => (Default::default(), error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let left = TaskResult {
        bytes: total.bytes,
        accesses: total.accesses,
        took_ns,
        major: after.major - faults.major,
        minor: after.minor - faults.minor,
        errno: errno as u64,
    };
    // SAFETY: the mapping is shared with the agent, which reads it after this process has ended.
    unsafe { ptr::write_volatile(shared, left) };
    i32::from(errno != 0)
}

fn usage() -> Faults {
    // SAFETY: an all-zero rusage is a valid value to be filled in, and it is ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        Faults::from_rusage(&usage)
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours, to be filled in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
