//! For tests that need root, which are skipped otherwise.

/// Run code that needs root; none, with the test skipped, without root.
pub(crate) fn as_root<T>(f: impl FnOnce() -> T) -> Option<T> {
    if !netplumb_testkit::has_root() {
        return None;
    }
    Some(f())
}
