//! Programs on kprobes and kretprobes: what every kernel with kprobes has.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{fs, io};

use super::object::Program;

/// Where sysfs tells how to ask perf for a kprobe.
const PMU: &str = "/sys/bus/event_source/devices/kprobe";
/// `PERF_EVENT_IOC_SET_BPF`, `PERF_EVENT_IOC_ENABLE`: include/uapi/linux/perf_event.h.
const SET_BPF: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

/// Where in `struct pt_regs` an argument is, by its number, on x86-64:
/// arch/x86/include/asm/ptrace.h.
pub(super) fn register(argument: u8) -> Option<i16> {
    [112, 104, 96, 88, 72, 64]
        .get(usize::from(argument))
        .copied()
}

/// Attach to a function's entry, or to its return.
pub(super) fn attach(program: &Program, function: &str, on_return: bool) -> io::Result<OwnedFd> {
    let read = |name: &str| fs::read_to_string(format!("{PMU}/{name}"));
    let number = |text: &str| {
        let digits = text.trim().trim_start_matches("config:");
        digits.parse::<u32>().map_err(io::Error::other)
    };
    let kind = number(&read("type")?)?;
    let bit = number(&read("format/retprobe")?)?;
    let name = CString::new(function).map_err(io::Error::other)?;
    // `struct perf_event_attr` up to `config2`, PERF_ATTR_SIZE_VER1: its type and
    // size, `config`, and the name in `config1`.
    let mut attr = [0_u64; 9];
    attr[0] = u64::from(kind) | (size_of_val(&attr) as u64) << 32;
    attr[1] = u64::from(on_return) << bit;
    attr[7] = name.as_ptr() as u64;
    // SAFETY: the attributes and the name outlive the call. All tasks, and by CPU 0 a
    // kprobe is that of all CPUs.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1,
            0,
            -1,
            CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    for (what, argument) in [(SET_BPF, program.0.as_raw_fd()), (ENABLE, 0)] {
        // SAFETY: both requests take a number.
        if unsafe { libc::ioctl(event.as_raw_fd(), what as _, argument) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that arguments beyond the registers are not looked for in them.
    #[test]
    fn six_arguments_are_in_registers() {
        assert_eq!(register(0), Some(112));
        assert_eq!(register(5), Some(64));
        assert_eq!(register(6), None);
    }
}
