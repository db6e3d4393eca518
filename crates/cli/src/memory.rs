//! Where memory is limited (`ulimit -v`, setrlimit(2)) a run ends with an error in words, not
//! by a signal.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::exit::CannotHere;

/// The system's, and an exit where it has no more. `std` would abort, and leave a core.
pub(crate) struct OrExit;

/// An exit code: it tried, and could not.
const FAILED: i32 = 1;

// SAFETY: every call is the system allocator's, with the arguments that we were given; what
// it returns is returned, and null never.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.realloc(at, layout, size) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

fn there(at: *mut u8) -> *mut u8 {
    if at.is_null() {
        const TOLD: &str = "plumb: out of memory: allow more (`ulimit -v`), or end what uses it\n";
        // SAFETY: bytes that outlive the calls, which allocate nothing and take no lock.
        unsafe {
            libc::write(libc::STDERR_FILENO, TOLD.as_ptr().cast(), TOLD.len());
            libc::_exit(FAILED)
        }
    }
    at
}

/// What a run takes of addresses before it has begun: threads' stacks, and an arena for each.
const MEASURING_BYTES: u64 = 512 << 20;

/// Whether a run can begin. Below that threads can't be started, in ours and in QEMU.
///
/// # Errors
/// The limit is lower.
pub(crate) fn check() -> Result<(), CannotHere> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if asked != 0 || limit.rlim_cur >= MEASURING_BYTES {
        return Ok(());
    }
    Err(CannotHere(format!(
        "`ulimit -v` allows {} MiB of addresses, and to measure takes {}, a guest 2 GiB: allow \
         more, with `ulimit -v unlimited` say",
        limit.rlim_cur >> 20,
        MEASURING_BYTES >> 20,
    )))
}
