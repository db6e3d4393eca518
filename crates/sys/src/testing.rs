//! For tests: what needs root says so where it is skipped.

/// Run what needs root; none, and the test is skipped, where this is not root.
pub(crate) fn as_root<T>(f: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        netplumb_testkit::skip("not root: no network namespaces");
        return None;
    }
    Some(f())
}
