//! The signals that end a run: by Ctrl-C, by `kill`, by a terminal that goes away.
//!
//! The first asks for an end, and what was changed is restored; a second ends at once. What
//! has to be cleaned up then is left to the next run, and QEMU ends with us in any case.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use libc::{SIGHUP, SIGINT, SIGTERM, c_int};
use signal_hook::flag;

/// What a shell adds to a signal's number for the exit code.
const OF_SIGNALS: c_int = 128;

/// The signal that came, 0 if none did.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Watch for them from now on: a flag that the first one sets.
///
/// # Errors
/// The system would not.
pub(crate) fn watch() -> io::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let came = CAME.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Who started us by `nohup` wants us to go on.
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // In this order: the second one finds the flag set.
        flag::register_conditional_shutdown(signal, OF_SIGNALS + signal, Arc::clone(&cancel))?;
        flag::register_usize(signal, Arc::clone(came), signal as usize)?;
        flag::register(signal, Arc::clone(&cancel))?;
    }
    Ok(cancel)
}

/// The exit code of what was interrupted: as a shell has it for a process that the signal
/// ended. A key is as good as Ctrl-C.
pub(crate) fn exit_code() -> u8 {
    let came = CAME.get().map_or(0, |came| came.load(Ordering::Relaxed));
    let signal = match came {
        0 => SIGINT,
        came => came as c_int,
    };
    (OF_SIGNALS + signal) as u8
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: a structure of plain integers and a pointer-sized one, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the structure outlives the call.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
