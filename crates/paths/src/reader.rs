//! Shared by user-space readers: CPU, counters, clock.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use netplumb_model::span::{BUCKETS, SUB_BITS, Times};

use crate::error::PathError;
use crate::layout::{self, CpuTimes};

/// Latencies, as in [`CpuTimes`].
#[derive(Debug)]
struct Latency {
    count: AtomicU64,
    total_ns: AtomicU64,
    min_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Latency {
        let [count, total_ns, min_ns, max_ns] = [const { AtomicU64::new(0) }; 4];
        Latency { count, total_ns, min_ns, max_ns, buckets: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

impl Latency {
    fn read(&self) -> CpuTimes {
        let now = |number: &AtomicU64| number.load(Ordering::Relaxed);
        CpuTimes {
            count: now(&self.count),
            total_ns: now(&self.total_ns),
            min_ns: now(&self.min_ns),
            max_ns: now(&self.max_ns),
            buckets: self.buckets.each_ref().map(now),
        }
    }
}

/// Counters of a reader, which only it writes.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Polls, and polls that found packets.
    pub(crate) looks: AtomicU64,
    pub(crate) found: AtomicU64,
    /// Packets that it could not forward.
    pub(crate) lost: AtomicU64,
    pub(crate) unstamped: AtomicU64,
    times: Latency,
}

impl Read {
    pub(crate) fn new() -> Read {
        Read {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            found: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            unstamped: AtomicU64::new(0),
            times: Latency::default(),
        }
    }

    /// Add a latency.
    pub(crate) fn time(&self, ns: u64) {
        let Latency { count, total_ns, min_ns, max_ns, buckets } = &self.times;
        let relaxed = Ordering::Relaxed;
        if count.load(relaxed) == 0 || ns < min_ns.load(relaxed) {
            min_ns.store(ns, relaxed);
        }
        max_ns.fetch_max(ns, relaxed);
        bump(total_ns, ns);
        bump(count, 1);
        if let Some(bucket) = buckets.get(bucket(ns)) {
            bump(bucket, 1);
        }
    }
}

impl Read {
    /// Add this reader's times to `times`.
    pub(crate) fn add_times(&self, times: &mut Times) {
        layout::add_times(times, &self.times.read());
    }

    /// One counter of all readers.
    pub(crate) fn sum(reads: &[&Read], of: fn(&Read) -> &AtomicU64) -> u64 {
        let counters = reads.iter().map(|read| of(read));
        counters.map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

/// Only one thread writes, so no atomic instruction is needed.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// The bucket of a time: see [`netplumb_model::span::Buckets`].
pub(crate) fn bucket(ns: u64) -> usize {
    if ns < 1 << SUB_BITS {
        return ns as usize; // below 16
    }
    let octave = ns.ilog2();
    let within = (ns >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    // An octave is at most 63, and the offset in it below 16.
    let bucket = ((octave - SUB_BITS + 1) << SUB_BITS) as usize + within as usize;
    bucket.min(BUCKETS - 1)
}

/// Why a reader can't be on its CPU.
pub(crate) fn cpu_error(cpu: u32, error: io::Error) -> PathError {
    match error.raw_os_error() {
        Some(libc::EINVAL) => PathError::Asked(format!(
            "no such CPU {cpu}, or this process may not use it; CPUs are numbered from 0, and `nproc` prints how many this process may use"
        )),
        _ => PathError::System { doing: format!("bind to CPU {cpu}"), source: error.into() },
    }
}

/// The current time, by the clock of timestamps.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a structure of our own; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the bounds of buckets: one for each value below 16, then 16 per octave, the last one
    /// for all longer times.
    #[test]
    fn buckets() {
        for ns in 0..16 {
            assert_eq!(bucket(ns), ns as usize);
        }
        for b in 16..BUCKETS {
            let (octave, within) = (b / 16 + 3, (b % 16) as u64);
            let first = (16 + within) << (octave - 4);
            assert_eq!(bucket(first), b);
            assert_eq!(bucket(first - 1), b - 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
