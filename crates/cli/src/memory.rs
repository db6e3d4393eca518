//! With limited memory (`ulimit -v`, setrlimit(2)) a run ends with an error message, not by a
//! signal.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::exit::CannotHere;

/// The system allocator, and an exit if it fails. `std` would abort, and dump core.
pub(crate) struct OrExit;

/// The exit code of a failure.
const FAILED: i32 = 1;

// SAFETY: every call is passed to the system allocator with its arguments; what it returns is
// returned, and never null.
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
        const TOLD: &str =
            "plumb: out of memory: raise the limit (`ulimit -v`), or stop other programs\n";
        // SAFETY: bytes that outlive the calls, which allocate nothing and take no lock.
        unsafe {
            libc::write(libc::STDERR_FILENO, TOLD.as_ptr().cast(), TOLD.len());
            libc::_exit(FAILED)
        }
    }
    at
}

/// The address space that a run needs at its start: stacks of threads, and an arena for each.
const MEASURING_BYTES: u64 = 512 << 20;

/// Check the limit: below it plumb and QEMU can't start threads.
///
/// # Errors
/// The limit is lower.
pub(crate) fn check() -> Result<(), CannotHere> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if asked != 0 || limit.rlim_cur >= MEASURING_BYTES {
        return Ok(());
    }
    Err(CannotHere(format!(
        "the limit on address space (`ulimit -v`) is {} MiB; measuring needs {} MiB, and a guest \
         2 GiB: raise it, as with `ulimit -v unlimited`",
        limit.rlim_cur >> 20,
        MEASURING_BYTES >> 20,
    )))
}
