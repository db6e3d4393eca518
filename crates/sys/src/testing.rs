//! For tests that need root, which are skipped otherwise.

/// Run code that needs root; none, with the test skipped, without root.
pub(crate) fn as_root<T>(f: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        netplumb_testkit::skip("not root: no network namespaces");
        return None;
    }
    Some(f())
}
