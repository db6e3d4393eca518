//! Threads on their CPUs and in their namespaces, and checks of devices.

use std::os::fd::BorrowedFd;

use netplumb_sys::cpus;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::error::{GeneratorError, doing};

/// The signal that interrupts a thread's system call. By default it is ignored.
pub(super) const CALL_BACK: Signal = Signal::SIGURG;

/// Bytes of the link header.
const LINK_BYTES: u32 = 14;

/// Number of entries for all CPUs by number, which may have gaps.
pub(super) fn cpus_room() -> u32 {
    let possible = libbpf_rs::num_possible_cpus().ok();
    let possible = possible.and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    let online = cpus::online().ok().and_then(|cpus| cpus.last().copied());
    possible.max(online.map_or(0, |last| last + 1))
}

/// Bind this thread to a CPU.
pub(super) fn pin(cpu: u32) -> Result<(), GeneratorError> {
    cpus::pin(0, cpu).map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => GeneratorError::Input(format!(
            "no such CPU {cpu}, or it is offline, or this process may not use it"
        )),
        _ => doing(format!("bind a thread to CPU {cpu}"))(e),
    })
}

/// Move this thread into a network namespace, for good.
pub(super) fn enter(namespace: BorrowedFd<'_>) -> Result<(), GeneratorError> {
    netns::enter(namespace).map_err(doing("enter the generator's network namespace"))
}

/// Make [`CALL_BACK`] interrupt system calls, without other effects. An existing handler does so,
/// too.
pub(super) fn answer_calls() -> Result<(), GeneratorError> {
    extern "C" fn nothing(_: libc::c_int) {}
    static SET: std::sync::Once = std::sync::Once::new();
    let mut result = Ok(());
    SET.call_once(|| {
        let action =
            SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing, which is safe in any state; an existing one is restored
        // if it was somebody's.
        result = unsafe {
            sigaction(CALL_BACK, &action).and_then(|old| match old.handler() {
                SigHandler::SigDfl | SigHandler::SigIgn => Ok(()),
                _ => sigaction(CALL_BACK, &old).map(drop),
            })
        };
    });
    result.map_err(|e| doing("handle a signal")(e.into()))
}

/// Unblock the signal in this thread.
pub(super) fn hear_calls() -> Result<(), GeneratorError> {
    let mut set = SigSet::empty();
    set.add(CALL_BACK);
    set.thread_unblock().map_err(|e| doing("unblock a signal")(e.into()))
}

/// Check that a device exists, is up, and accepts frames of this length.
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
