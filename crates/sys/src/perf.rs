//! Perf events (perf_event_open(2)).

pub mod changes;
pub mod count;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

// include/uapi/linux/perf_event.h.
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Open an event: of a CPU, or without one of this process.
///
/// # Errors
/// The kernel lacks the event, or it is not permitted.
pub fn open(attr: &mut sys::perf_event_attr, cpu: Option<i32>) -> io::Result<OwnedFd> {
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    let (pid, cpu) = cpu.map_or((0, -1), |cpu| (-1, cpu));
    // SAFETY: the attributes are alive, and their size is set. What they point to the kernel
    // copies, and refuses where there is nothing.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            pid,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Attach a program to an event, and enable the event.
///
/// # Errors
/// The event does not support the program.
pub fn attach(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    for (request, value) in
        [(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)]
    {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request as _, value) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
