//! Limits of this process.

/// As many may root have.
const ROOTS: u64 = 1 << 16;

/// Allow as many open descriptors as this process may have: the usual 1,024 are few where each event, or each
/// probe of a function, takes some.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: all calls take a limit that is alive, and only raise what this process may have.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return;
        }
        // Root may raise the hard limit: in a guest, init has 4,096.
        let most = libc::rlimit {
            rlim_cur: limit.rlim_max.max(ROOTS),
            rlim_max: limit.rlim_max.max(ROOTS),
        };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &most) != 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
