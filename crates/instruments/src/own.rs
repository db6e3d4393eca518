//! The overhead of measuring: CPU time of this process, and statistics of programs in the kernel.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::Object;
use netplumb_sys::bpf::raw;

/// Loaded programs.
#[derive(Debug)]
pub(crate) struct Programs(Vec<OwnedFd>);

/// Statistics of programs since they were loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Run time, while the kernel counted it (kernel.bpf_stats_enabled).
    pub(crate) run_ns: u64,
    /// Number of runs, while it counted.
    pub(crate) runs: u64,
    /// Runs skipped because the program was already running on the same CPU.
    pub(crate) misses: u64,
}

impl Programs {
    /// The loaded programs of an object.
    pub(crate) fn from_object(object: &Object) -> Programs {
        let loaded = object.progs().filter(|p| p.autoload());
        let fds = loaded.filter_map(|p| p.as_fd().try_clone_to_owned().ok());
        Programs(fds.collect())
    }

    /// Their total statistics so far.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for program in &self.0 {
            if let Ok(info) = raw::info(program.as_fd()) {
                totals.run_ns += info.run_time_ns;
                totals.runs += info.run_cnt;
                totals.misses += info.recursion_misses;
            }
        }
        totals
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The clock of `bpf_ktime_get_ns`.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of this process.
pub(crate) fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of this thread.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}
