//! Counts of events, without samples (perf_event_open(2)).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use super::{PERF_EVENT_IOC_ENABLE, PERF_FLAG_FD_CLOEXEC};

// include/uapi/linux/perf_event.h.
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
const PERF_FLAG_PID_CGROUP: libc::c_ulong = 4;

/// Whose events are counted.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// All of a CPU.
    Cpu(u32),
    /// A thread's, 0 for the calling one; on one CPU, or without it on all.
    Thread(u32, Option<u32>),
    /// The tasks' of a cgroup, by its directory, on a CPU.
    Cgroup(BorrowedFd<'a>, u32),
}

/// A count, with its times (PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How many, since the event was opened.
    pub value: u64,
    /// How long it was to be counted.
    pub enabled_ns: u64,
    /// How long it was.
    pub running_ns: u64,
}

impl Count {
    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Count) -> Count {
        Count {
            value: self.value.saturating_sub(earlier.value),
            enabled_ns: self.enabled_ns.saturating_sub(earlier.enabled_ns),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
        }
    }
}

/// An event that is counted.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Open it, not counting yet. A thread's event is counted in the threads and processes that it starts, too; with
    /// `from_exec` in nothing else, and from the moment that they execute a program.
    ///
    /// # Errors
    /// The kernel lacks the event, or it is not permitted.
    pub fn open(
        attr: &mut sys::perf_event_attr,
        target: Target<'_>,
        from_exec: bool,
    ) -> io::Result<Counter> {
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        attr.read_format =
            u64::from(sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr.set_disabled(1);
        attr.set_inherit(u64::from(matches!(target, Target::Thread(..))));
        attr.set_enable_on_exec(u64::from(from_exec));
        let (of, cpu, flags) = match target {
            Target::Cpu(cpu) => (-1, cpu as i32, 0),
            Target::Thread(thread, cpu) => (thread as i32, cpu.map_or(-1, |cpu| cpu as i32), 0),
            Target::Cgroup(directory, cpu) => {
                (directory.as_raw_fd(), cpu as i32, PERF_FLAG_PID_CGROUP)
            }
        };
        // SAFETY: the attributes are alive, and their size is set. What they point to the kernel
        // copies, and refuses where there is nothing.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const *attr,
                of,
                cpu,
                -1,
                PERF_FLAG_FD_CLOEXEC | flags,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
            Ok(fd) if fd >= 0 => Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd) }.into())),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its descriptor, to hand it over.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Begin to count.
    ///
    /// # Errors
    /// It is gone.
    pub fn enable(&self) -> io::Result<()> {
        self.request(PERF_EVENT_IOC_ENABLE)
    }

    /// Stop counting.
    ///
    /// # Errors
    /// It is gone.
    pub fn disable(&self) -> io::Result<()> {
        self.request(PERF_EVENT_IOC_DISABLE)
    }

    fn request(&self, request: libc::c_ulong) -> io::Result<()> {
        // SAFETY: both requests take an integer, here that only this event is meant.
        match unsafe { libc::ioctl(self.0.as_fd().as_raw_fd(), request as _, 0) } {
            result if result < 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// The count so far, ended tasks included.
    ///
    /// # Errors
    /// The event is in an error state: too many pinned events.
    pub fn read(&self) -> io::Result<Count> {
        let mut words = [[0_u8; 8]; 3];
        (&self.0).read_exact(words.as_flattened_mut())?;
        let [value, enabled_ns, running_ns] = words.map(u64::from_ne_bytes);
        Ok(Count { value, enabled_ns, running_ns })
    }
}

/// Begin to count all events that the calling thread has opened, in one system call.
///
/// # Errors
/// The kernel counts none.
pub fn enable_own() -> io::Result<()> {
    control_own(libc::PR_TASK_PERF_EVENTS_ENABLE)
}

/// Stop counting them.
///
/// # Errors
/// The kernel counts none.
pub fn disable_own() -> io::Result<()> {
    control_own(libc::PR_TASK_PERF_EVENTS_DISABLE)
}

fn control_own(option: libc::c_int) -> io::Result<()> {
    // SAFETY: takes numbers alone.
    match unsafe { libc::prctl(option, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn faults() -> sys::perf_event_attr {
        sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_PAGE_FAULTS),
            ..Default::default()
        }
    }

    /// Check that a program is counted from its exec, that what this thread does is not counted, and that
    /// the same program has the same count.
    #[test]
    fn as_root_from_exec() {
        let mut counts = Vec::new();
        for _ in 0..3 {
            // One for each: what is started inherits it, and may take it along as it ends.
            let Ok(counter) = Counter::open(&mut faults(), Target::Thread(0, None), true) else {
                netplumb_testkit::skip("events of the kernel can't be counted");
                return;
            };
            let touched: Vec<u8> = vec![1; 1 << 20];
            assert_eq!(touched.len(), 1 << 20);
            assert!(Command::new("true").status().unwrap().success());
            counts.push(counter.read().unwrap());
        }
        assert!(counts.iter().all(|c| c.value > 10), "{counts:?}");
        assert!(counts.iter().all(|c| c.running_ns == c.enabled_ns));
        let of = |n: usize| counts[n].value as f64;
        assert!((of(1) / of(2) - 1.0).abs() < 0.2, "{counts:?}");
    }

    /// Check that the calling thread's events are counted between enabling and disabling, and not
    /// otherwise.
    #[test]
    fn as_root_own() {
        let Ok(counter) = Counter::open(&mut faults(), Target::Thread(0, None), false) else {
            netplumb_testkit::skip("events of the kernel can't be counted");
            return;
        };
        let touch = || {
            let bytes = vec![1_u8; 64 << 12];
            std::hint::black_box(&bytes);
        };
        touch();
        assert_eq!(counter.read().unwrap().value, 0);
        enable_own().unwrap();
        touch();
        disable_own().unwrap();
        let counted = counter.read().unwrap();
        touch();
        assert_eq!(counter.read().unwrap().value, counted.value);
        assert!(counted.enabled_ns > 0);
    }
}
