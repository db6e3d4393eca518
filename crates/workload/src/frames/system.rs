//! Threads on their CPUs and in their namespaces, and what a device is like.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;

use super::error::{GeneratorError, doing};

/// What a thread is called back with from a system call. Nobody minds it: by itself it
/// is ignored.
pub(super) const CALL_BACK: Signal = Signal::SIGURG;

/// Bytes of the link header.
const LINK_BYTES: u32 = 14;

/// CPUs that are there and online.
pub(super) fn cpus_online() -> io::Result<BTreeSet<u32>> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(&list).ok_or_else(|| io::Error::other("the kernel's list of CPUs can't be read"))
}

/// Room for every CPU by its number: there may be gaps between these.
pub(super) fn cpus_room() -> u32 {
    let possible = libbpf_rs::num_possible_cpus().ok();
    let possible = possible.and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    let online = cpus_online().ok().and_then(|cpus| cpus.last().copied());
    possible.max(online.map_or(0, |last| last + 1))
}

fn parse_cpus(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// Bind this thread to a CPU.
pub(super) fn pin(cpu: u32) -> Result<(), GeneratorError> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|e| match e {
            nix::Error::EINVAL => GeneratorError::Input(format!(
                "CPU {cpu} is not there, not online, or not among those that this process may use"
            )),
            e => doing(format!("bind a thread to CPU {cpu}"))(e.into()),
        })
}

/// Move this thread into a network namespace, for good.
pub(super) fn enter(namespace: BorrowedFd<'_>) -> Result<(), GeneratorError> {
    netns::enter(namespace).map_err(doing("enter the generator's network namespace"))
}

/// Make [`CALL_BACK`] end a system call of the thread that gets it, and do nothing else.
/// A handler that somebody has set does so as well.
pub(super) fn answer_calls() -> Result<(), GeneratorError> {
    extern "C" fn nothing(_: libc::c_int) {}
    static SET: std::sync::Once = std::sync::Once::new();
    let mut result = Ok(());
    SET.call_once(|| {
        let action = SigAction::new(
            SigHandler::Handler(nothing),
            SaFlags::empty(),
            SigSet::empty(),
        );
        // SAFETY: the handler does nothing, which is safe in any state; the one that
        // there was is put back if it was somebody's.
        result = unsafe {
            sigaction(CALL_BACK, &action).and_then(|old| match old.handler() {
                SigHandler::SigDfl | SigHandler::SigIgn => Ok(()),
                _ => sigaction(CALL_BACK, &old).map(drop),
            })
        };
    });
    result.map_err(|e| doing("handle a signal")(e.into()))
}

/// Let this thread be called back, whatever the one that made it blocks.
pub(super) fn hear_calls() -> Result<(), GeneratorError> {
    let mut set = SigSet::empty();
    set.add(CALL_BACK);
    set.thread_unblock()
        .map_err(|e| doing("unblock a signal")(e.into()))
}

/// Check that a device is there, up, and takes frames so long.
pub(super) fn check_device(
    namespace: BorrowedFd<'_>,
    device: u32,
    size_bytes: u32,
) -> Result<(), GeneratorError> {
    let devices = netns::inside(namespace, || Netlink::open()?.devices());
    let devices = devices.map_err(doing("look at the generator's device"))?;
    let Some(state) = devices.into_iter().find(|state| state.index == device) else {
        return Err(GeneratorError::Input(format!(
            "the generator's network namespace has no device with index {device}"
        )));
    };
    let (name, mtu) = (state.name, state.mtu_bytes);
    if !state.up {
        return Err(GeneratorError::Input(format!(
            "{name} is down: `ip link set {name} up` in its network namespace"
        )));
    }
    let longest = mtu + LINK_BYTES;
    if size_bytes > longest {
        return Err(GeneratorError::Input(format!(
            "frames of {size_bytes} bytes are too long for {name}, whose MTU is {mtu}: send \
             frames of at most {longest} bytes, or raise its MTU"
        )));
    }
    Ok(())
}

/// CLOCK_MONOTONIC, as the programs read it.
pub(super) fn now_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .ok()
        .and_then(|t| u64::try_from(std::time::Duration::from(t).as_nanos()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the kernel's way to list CPUs.
    #[test]
    fn lists_of_cpus() {
        let cpus = |list| parse_cpus(list).map(|c| c.into_iter().collect::<Vec<_>>());
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("0,2-4,7\n"), Some(vec![0, 2, 3, 4, 7]));
        assert_eq!(cpus("\n"), None);
    }
}
