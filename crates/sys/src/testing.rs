//! For tests: what needs root says so where it is skipped.

use std::io::Write;

/// Run what needs root; none, and a word on it, where this is not root.
pub(crate) fn as_root<T>(f: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: not root: no network namespaces"
        );
        return None;
    }
    Some(f())
}
