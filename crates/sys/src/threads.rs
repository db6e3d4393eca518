//! Runs tasks on several threads, as many as the system allows.

use std::collections::VecDeque;
use std::panic;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

/// A task for [`each`].
pub type Task<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Run every task on a separate thread, and return the results in the order of the tasks. If the
/// system does not allow more threads (`ulimit -v`, `ulimit -u`, pids.max), the existing ones run
/// the remaining tasks, at worst the calling thread.
///
/// A panic of a task is passed to the caller, after the others have ended.
pub fn each<T: Send>(tasks: Vec<Task<'_, T>>) -> Vec<T> {
    let count = tasks.len();
    let left: Mutex<VecDeque<_>> = Mutex::new(tasks.into_iter().enumerate().collect());
    let work = || {
        let mut done = Vec::new();
        loop {
            // Nothing panics while the lock is held.
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((at, task)) = next else { break };
            done.push((at, task()));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> =
            (1..count).map_while(|_| Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(payload) => panic::resume_unwind(payload),
            }
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Check that results are in the order of the tasks, and that tasks run in parallel: each waits
    /// for all others.
    #[test]
    fn in_order_and_side_by_side() {
        let barrier = Barrier::new(5);
        let tasks = (0..5)
            .map(|i| {
                let barrier = &barrier;
                Box::new(move || {
                    barrier.wait();
                    i
                }) as Task<'_, i32>
            })
            .collect();
        assert_eq!(each(tasks), [0, 1, 2, 3, 4]);
        assert_eq!(each(Vec::<Task<'_, i32>>::new()), [0; 0]);
    }

    /// Check that every task runs if no thread can be started: without address space for another
    /// stack.
    #[test]
    fn without_a_thread_to_spare() {
        const INNER: &str = "PLUMB_TEST_WITHOUT_THREADS";
        if std::env::var_os(INNER).is_none() {
            // In a separate process: the limit can't be raised again.
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "threads::tests::without_a_thread_to_spare"])
                .args(["--nocapture", "--test-threads=1"])
                .env(INNER, "1")
                .status()
                .unwrap();
            assert!(status.success());
            return;
        }
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the structure outlives the call. Less than is mapped already: what is there
        // stays, and nothing is added.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let refused = Builder::new().spawn(|| ()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let me = thread::current().id();
        let tasks = (0..3)
            .map(|i| Box::new(move || (i, thread::current().id() == me)) as Task<'_, (i32, bool)>)
            .collect();
        assert_eq!(each(tasks), [(0, true), (1, true), (2, true)]);
    }

    /// Check that a panic is passed to the caller.
    #[test]
    fn a_panic() {
        let ran = panic::catch_unwind(|| {
            each(vec![Box::new(|| 1) as Task<'_, i32>, Box::new(|| panic!("planted"))])
        });
        assert!(ran.is_err());
    }
}
