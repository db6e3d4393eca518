//! The signals that end a run: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! The first one ends the run in order, and restores settings; a second one ends it at once, and
//! leaves the cleanup to the next run. QEMU ends with plumb in any case.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use libc::{SIGHUP, SIGINT, SIGTERM, c_int};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::progress;

/// The exit code of a signal, as in shells, is this plus its number.
const OF_SIGNALS: c_int = 128;

/// The signal that was received, or 0.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// How long a run may take to end after a signal without a word.
const PATIENCE: Duration = Duration::from_millis(500);

/// Print what is waited for, if the process has not ended soon after the first signal: from a thread that sleeps until
/// then, since one that polls would be measured.
fn announce() -> io::Result<()> {
    let (mut read, write) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if !is_ignored(signal) {
            pipe::register(signal, write.try_clone()?)?;
        }
    }
    thread::Builder::new()
        .name("plumb-signals".into())
        .spawn(move || {
            if read.read_exact(&mut [0]).is_ok() {
                thread::sleep(PATIENCE);
                progress::print_interrupted();
            }
        })
        .map(drop)
}

/// Install handlers; returns a flag that the first signal sets.
///
/// # Errors
/// They can't be installed.
pub(crate) fn watch() -> io::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let came = CAME.get_or_init(|| {
        // Without it, a run that takes long to end does so in silence.
        let _ = announce();
        Arc::default()
    });
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Ignored by `nohup`: the run must continue.
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // In this order: the second signal finds the flag set.
        flag::register_conditional_shutdown(signal, OF_SIGNALS + signal, Arc::clone(&cancel))?;
        flag::register_usize(signal, Arc::clone(came), signal as usize)?;
        flag::register(signal, Arc::clone(&cancel))?;
    }
    Ok(cancel)
}

/// The exit code of an interrupted run, as in shells for a process killed by the signal. The
/// key that ends the live view counts as Ctrl-C.
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
