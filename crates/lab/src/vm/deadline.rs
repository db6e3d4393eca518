//! Limits on the time that a program has. On a busy machine it may wait for a CPU for most of that, and
//! neither it nor a guest in it is to blame: such time does not count.

use std::fs;
use std::time::{Duration, Instant};

/// Until when a process has time.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    pid: u32,
    started: Instant,
    limit: Duration,
    /// How long it had waited for a CPU before.
    waited: Duration,
}

impl Deadline {
    /// For a process that has this much time from now on.
    pub(super) fn new(pid: u32, limit: Duration) -> Deadline {
        Deadline { pid, started: Instant::now(), limit, waited: waited(pid) }
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        let passed = self.started.elapsed();
        passed > self.limit && {
            let waited = waited(self.pid).saturating_sub(self.waited);
            passed.saturating_sub(waited) > self.limit
        }
    }
}

/// The longest wait for a CPU among a process's threads: the second number in a thread's `schedstat`
/// (Documentation/scheduler/sched-stats.rst), which kernels without CONFIG_SCHED_INFO lack. The sum over threads could
/// exceed the time that passed.
fn waited(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let of_threads = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    });
    Duration::from_nanos(of_threads.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use netplumb_sys::cpus;

    use super::*;

    /// A program that computes on one CPU until it is killed.
    struct Busy(Child);

    impl Busy {
        fn begin(cpu: u32) -> Busy {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            let busy = Busy(child.unwrap());
            cpus::pin(busy.0.id() as i32, cpu).unwrap();
            busy
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Check that time spent waiting for a shared CPU does not count, and that sleep does.
    #[test]
    fn waiting_for_a_cpu() {
        if fs::read_to_string("/proc/self/schedstat").is_err() {
            return netplumb_testkit::skip("this kernel has no schedstat");
        }
        let cpu = *cpus::allowed().unwrap().first().unwrap();
        let others: Vec<Busy> = (0..4).map(|_| Busy::begin(cpu)).collect();
        let one = Busy::begin(cpu);
        let limit = Duration::from_millis(400);
        let busy = Deadline::new(one.0.id(), limit);
        let mut asleep = Command::new("sleep").arg("100").spawn().unwrap();
        let sleeper = Deadline::new(asleep.id(), limit);
        std::thread::sleep(2 * limit);
        assert!(sleeper.is_over());
        // It had a fifth of the CPU.
        assert!(!busy.is_over());
        drop(others);
        std::thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        while !busy.is_over() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        asleep.kill().unwrap();
        asleep.wait().unwrap();
    }
}
