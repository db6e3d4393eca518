//! CPUs: the online ones, and binding threads.

use std::collections::BTreeSet;
use std::io;

/// Maximum number of CPUs in a list; no kernel supports as many.
const MOST: u32 = 1 << 16;

/// The online CPUs.
///
/// # Errors
/// /sys is not mounted, or its list is invalid.
pub fn online() -> io::Result<BTreeSet<u32>> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse(&list).ok_or_else(|| io::Error::other("the kernel's list of CPUs can't be read"))
}

/// The CPUs that this process may run on.
///
/// # Errors
/// The query failed.
pub fn allowed() -> io::Result<BTreeSet<u32>> {
    // SAFETY: an all-zero set is a valid one, with no CPU in it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size are the set's.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the numbers are below the size of the set.
    let is_in = |cpu: &u32| unsafe { libc::CPU_ISSET(*cpu as usize, &set) };
    Ok((0..libc::CPU_SETSIZE as u32).filter(is_in).collect())
}

/// Parse a list in the kernel's format: `0-2,5`.
pub fn parse(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok().filter(|last| *last < MOST)?;
        cpus.extend(first.parse::<u32>().ok()?..=last);
    }
    Some(cpus)
}

/// The CPU that this thread runs on; it may be moved at once.
pub fn current() -> Option<u32> {
    // SAFETY: takes nothing.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Bind a thread to a CPU: by its TID, or the current one (0).
///
/// # Errors
/// The CPU is missing, offline, or not allowed for the process; or the thread does not exist.
pub fn pin(thread: i32, cpu: u32) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid one, with no CPU in it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: the kernel reads the set, whose size is passed.
    match unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Have a thread never preempt another when it wakes up (`SCHED_BATCH`): by its TID, or the
/// current one (0).
///
/// # Errors
/// The thread does not exist, or this process may not change it.
pub fn never_preempt(thread: i32) -> io::Result<()> {
    set_policy(thread, libc::SCHED_BATCH)
}

/// Set whether any thread that wakes up preempts the current one (`SCHED_IDLE`), or as usual.
///
/// # Errors
/// This process may not change it.
pub fn let_others_preempt(preempt: bool) -> io::Result<()> {
    set_policy(0, if preempt { libc::SCHED_IDLE } else { libc::SCHED_OTHER })
}

fn set_policy(thread: i32, policy: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which outlive the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread has another policy afterwards, and that an unknown one is an error.
    #[test]
    fn another_policy() {
        let policy = std::thread::spawn(|| {
            // SAFETY: takes a number alone.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            never_preempt(0).unwrap();
            let batch = policy();
            let others = [true, false].map(|preempt| {
                let_others_preempt(preempt).unwrap();
                policy()
            });
            (batch, others)
        });
        let expected = (libc::SCHED_BATCH, [libc::SCHED_IDLE, libc::SCHED_OTHER]);
        assert_eq!(policy.join().unwrap(), expected);
        let error = never_preempt(i32::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }

    /// Check the parsing of CPU lists.
    #[test]
    fn lists() {
        let cpus = |list| parse(list).map(|c| c.into_iter().collect::<Vec<_>>());
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("0,2-4,7\n"), Some(vec![0, 2, 3, 4, 7]));
        for wrong in ["\n", "0-", "0-4294967295", "x"] {
            assert_eq!(cpus(wrong), None, "{wrong}");
        }
    }

    /// Check that a thread is bound to a CPU, and the error for a missing CPU.
    #[test]
    fn a_thread_is_kept() {
        let ran = std::thread::spawn(|| {
            let first = *online().unwrap().first().unwrap();
            pin(0, first).unwrap();
            // SAFETY: takes nothing.
            assert_eq!(unsafe { libc::sched_getcpu() }, first as i32);
            assert_eq!(pin(0, 1 << 20).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(pin(0, 1023).is_err());
        });
        ran.join().unwrap();
    }
}
