//! A loop of one instruction, from a pause until a set time of the guest's clock.
//!
//! Whether QEMU's clock jumps to the next timer during the pause or not ([`super::rest`]), the timer's interrupt
//! then finds the CPU in user mode, before the agent has asked the kernel for anything, and the kernel does the
//! same for it at the same time. The loop is left by a signal: it has one instruction, so nothing that
//! follows depends on which of a loop's instructions the signal has interrupted.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Until the timer expires, and once more: longer than an agent takes from arming it to the pause.
const STEP_NS: libc::c_long = 200_000;
const SIGNAL: libc::c_int = libc::SIGALRM;
/// The timer expires for the first time before or after the loop is reached, as the clock jumps, and for the
/// second one in it.
const EXPIRIES: usize = 2;

static EXPIRED: AtomicUsize = AtomicUsize::new(0);
/// The addresses of the loop, and of what follows.
static LOOP: AtomicUsize = AtomicUsize::new(0);
static AFTER: AtomicUsize = AtomicUsize::new(0);

/// A timer that is armed, to end the loop.
#[derive(Debug)]
pub(super) struct Spin {
    timer: libc::timer_t,
    before: libc::sigaction,
}

impl Spin {
    /// Arm the timer. The process has one at a time.
    ///
    /// # Errors
    /// The kernel has no timers.
    pub(super) fn arm() -> io::Result<Self> {
        EXPIRED.store(0, Ordering::Relaxed);
        // SAFETY: these are plain numbers and pointers, for which zero is a value; the kernel reads and fills in our
        // own. The handler is one of SA_SIGINFO.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                on_expiry;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            let mut before: libc::sigaction = std::mem::zeroed();
            check(libc::sigaction(SIGNAL, &action, &mut before))?;
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = ptr::null_mut();
            check(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer))?;
            let spin = Self { timer, before };
            let step = libc::timespec { tv_sec: 0, tv_nsec: STEP_NS };
            let times = libc::itimerspec { it_interval: step, it_value: step };
            check(libc::timer_settime(timer, 0, &times, ptr::null_mut()))?;
            Ok(spin)
        }
    }

    /// Loop until the timer's second expiry.
    pub(super) fn run(self) {
        // SAFETY: the two addresses are written to statics. The handler leaves the loop for what follows it, with
        // all registers as they were.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "lea {at}, [rip + 3f]", "mov [{after}], {at}",
                "lea {at}, [rip + 2f]", "mov [{of_loop}], {at}",
                "2:", "jmp 2b", "3:",
                at = out(reg) _, after = in(reg) AFTER.as_ptr(), of_loop = in(reg) LOOP.as_ptr(),
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "adr {at}, 3f", "str {at}, [{after}]",
                "adr {at}, 2f", "str {at}, [{of_loop}]",
                "2:", "b 2b", "3:",
                at = out(reg) _, after = in(reg) AFTER.as_ptr(), of_loop = in(reg) LOOP.as_ptr(),
            );
        }
        LOOP.store(0, Ordering::Relaxed);
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and the action is the one that was there.
        unsafe {
            libc::timer_delete(self.timer);
            libc::sigaction(SIGNAL, &self.before, ptr::null_mut());
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_expiry(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let expired = EXPIRED.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: the kernel hands a handler of SA_SIGINFO the context that it interrupted, which is ours until it
    // returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let at = &mut context.uc_mcontext.pc;
    if expired >= EXPIRIES && *at as usize == LOOP.load(Ordering::Relaxed) {
        *at = AFTER.load(Ordering::Relaxed) as _;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Check that the loop ends at the second expiry, and can be repeated.
    #[test]
    fn a_loop_ends() {
        for _ in 0..3 {
            let begin = Instant::now();
            Spin::arm().unwrap().run();
            assert!(begin.elapsed() >= Duration::from_nanos(2 * STEP_NS as u64));
            assert!(EXPIRED.load(Ordering::Relaxed) >= EXPIRIES);
        }
    }
}
