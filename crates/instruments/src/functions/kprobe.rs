//! Programs on kprobes and kretprobes: what every kernel with kprobes has.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::{fs, io};

use libbpf_sys as sys;
use netplumb_sys::perf;

use super::object::Program;

/// Where sysfs describes how to ask perf for a kprobe.
const PMU: &str = "/sys/bus/event_source/devices/kprobe";
/// Where in `struct pt_regs` the arguments are that `functions.bpf.c` reads, by crates/sys/bpf/arch.h.
#[cfg(target_arch = "x86_64")]
const ARGUMENTS: [i16; 6] = [112, 104, 96, 88, 72, 64];
/// The same: x0 and on.
#[cfg(target_arch = "aarch64")]
const ARGUMENTS: [i16; 6] = [0, 8, 16, 24, 32, 40];

/// Where in `struct pt_regs` an argument is, by its number.
pub(super) fn register(argument: u8) -> Option<i16> {
    ARGUMENTS.get(usize::from(argument)).copied()
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
    let mut attr = sys::perf_event_attr {
        type_: kind,
        config: u64::from(on_return) << bit,
        ..Default::default()
    };
    attr.__bindgen_anon_3.kprobe_func = name.as_ptr() as u64;
    // All tasks; and opened on CPU 0, a kprobe is on all CPUs.
    let event = perf::open(&mut attr, Some(0))?;
    perf::attach(event.as_fd(), program.0.as_fd())?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that arguments beyond the registers are not looked for in them.
    #[test]
    fn six_arguments_are_in_registers() {
        assert_eq!(register(0), Some(ARGUMENTS[0]));
        assert_eq!(register(5), Some(ARGUMENTS[5]));
        assert_eq!(register(6), None);
    }
}
