//! The CPU that both hosts of an arm run on.
//!
//! Hosts wait for each other at every exchange, some microseconds of their time apart. On one CPU that is a switch from
//! one to the other; on two, one is woken up by the other each time, which takes longer than what it then has to do:
//! `experiments/moderation.toml` took 53 s, and 25 s on one of the same two CPUs. So arms run in parallel, and the hosts
//! of an arm don't.

use std::sync::{Condvar, Mutex, PoisonError};

use netplumb_sys::cpus;

/// The CPUs that have hosts.
#[derive(Debug)]
pub(super) struct Cpus {
    now: Mutex<Now>,
    changed: Condvar,
    /// How many pairs may run.
    pairs: usize,
}

#[derive(Debug, Default)]
struct Now {
    /// The CPU of each pair that runs; none where it is not known.
    taken: Vec<Option<u32>>,
    /// How many have run, or do.
    begun: usize,
}

/// A CPU that is taken, as long as this lives.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    of: &'a Cpus,
    /// Its number; none where that is not known.
    pub(super) cpu: Option<u32>,
}

impl Cpus {
    /// `pairs` is the number of pairs that run at a time.
    pub(super) fn for_pairs(pairs: usize) -> Cpus {
        Cpus { now: Mutex::default(), changed: Condvar::new(), pairs: pairs.max(1) }
    }

    /// Wait until the pair of this number may run, after all before it have begun, and take a CPU: among the CPUs with
    /// the fewest pairs the current one, to which the kernel has just moved this thread, as others may be busy with
    /// something else.
    pub(super) fn take(&self, number: usize) -> Seat<'_> {
        let waits = |now: &mut Now| now.begun != number || now.taken.len() >= self.pairs;
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = (self.changed).wait_while(now, waits).unwrap_or_else(PoisonError::into_inner);
        let here = cpus::current();
        let pairs = |cpu: u32| now.taken.iter().filter(|of| **of == Some(cpu)).count();
        let cpu = (cpus::allowed().unwrap_or_default().into_iter())
            .min_by_key(|cpu| (pairs(*cpu), Some(*cpu) != here));
        now.taken.push(cpu);
        now.begun += 1;
        self.changed.notify_all();
        Seat { of: self, cpu }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut now = self.of.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = now.taken.iter().position(|cpu| *cpu == self.cpu) {
            now.taken.swap_remove(at);
        }
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pairs are on different CPUs as long as there are some, that they begin in their order, and that one
    /// waits until another has ended.
    #[test]
    fn one_for_each_pair() {
        let allowed = cpus::allowed().unwrap();
        let pairs = allowed.len();
        let all = Cpus::for_pairs(pairs);
        let mut seats: Vec<Seat<'_>> = (0..pairs).map(|n| all.take(n)).collect();
        let mut taken: Vec<u32> = seats.iter().filter_map(|seat| seat.cpu).collect();
        taken.sort_unstable();
        assert!(taken.iter().eq(&allowed), "{taken:?}");
        let free = seats[0].cpu;
        std::thread::scope(|scope| {
            let all = &all;
            let [last, next] = [1, 0].map(|after| scope.spawn(move || all.take(pairs + after).cpu));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!next.is_finished() && !last.is_finished());
            drop(seats.remove(0));
            assert_eq!(next.join().unwrap(), free);
            assert_eq!(last.join().unwrap(), free);
        });
        drop(seats);
        assert!(all.now.lock().unwrap().taken.is_empty());
    }
}
