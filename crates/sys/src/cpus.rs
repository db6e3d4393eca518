//! CPUs: which there are, and threads kept on one.

use std::collections::BTreeSet;
use std::io;

/// The most that a list of CPUs may hold: no kernel has as many.
const MOST: u32 = 1 << 16;

/// Those that are online.
///
/// # Errors
/// /sys is not mounted, or says what can't be read.
pub fn online() -> io::Result<BTreeSet<u32>> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse(&list).ok_or_else(|| io::Error::other("the kernel's list of CPUs can't be read"))
}

/// A list as the kernel writes it: `0-2,5`.
pub fn parse(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok().filter(|last| *last < MOST)?;
        cpus.extend(first.parse::<u32>().ok()?..=last);
    }
    Some(cpus)
}

/// Keep a thread on a CPU: one by its number, or this one (0).
///
/// # Errors
/// The CPU is not there, not online, or not among those that the process may use; or
/// there is no such thread.
pub fn pin(thread: i32, cpu: u32) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid one, with no CPU in it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: the kernel reads the set, whose size is told.
    match unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the kernel's way to list CPUs.
    #[test]
    fn lists() {
        let cpus = |list| parse(list).map(|c| c.into_iter().collect::<Vec<_>>());
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("0,2-4,7\n"), Some(vec![0, 2, 3, 4, 7]));
        for wrong in ["\n", "0-", "0-4294967295", "x"] {
            assert_eq!(cpus(wrong), None, "{wrong}");
        }
    }

    /// Check that a thread is put on a CPU, and that one which can't be there is refused.
    #[test]
    fn a_thread_is_kept() {
        let ran = std::thread::spawn(|| {
            let first = *online().unwrap().first().unwrap();
            pin(0, first).unwrap();
            // SAFETY: takes nothing.
            assert_eq!(unsafe { libc::sched_getcpu() }, first as i32);
            assert_eq!(
                pin(0, 1 << 20).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            assert!(pin(0, 1023).is_err());
        });
        ran.join().unwrap();
    }
}
