//! Locks a name while its file is written.
//!
//! The file may not exist until the end, and an existing one is replaced; so the directory is
//! locked, at an offset derived from the name. That needs no lock file, and the kernel releases it
//! with the process. The offset also encodes the process: locks of open file descriptions don't
//! have an owner to query (fcntl(2)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Holds the lock of a name until it is dropped.
#[derive(Debug)]
pub(crate) struct NameLock {
    _folder: File,
}

/// Why a name can't be locked.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it.
    Held(Option<u32>),
    /// The directory can't be opened.
    Io(io::Error),
}

/// PIDs are at most 2^22: `PID_MAX_LIMIT`, include/linux/threads.h.
const PID_BITS: u32 = 22;
/// The remaining bits of an offset, without sign.
const NAME_BITS: u32 = 63 - PID_BITS;
/// Timeout for the directory's lock. Its owner needs some microseconds; other programs may have
/// locked the directory for their own purposes.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(2);

impl NameLock {
    /// Lock the name of a file, which is not a link.
    pub(crate) fn take(path: &Path) -> Result<NameLock, LockError> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let folder = File::open(folder).map_err(LockError::Io)?;
        let begin = range_of(path);
        // Serialise, so that one of two concurrent runs succeeds. Without this both may be refused,
        // but never both succeed.
        let turn = take_turn(&folder);
        let own = begin + i64::from(std::process::id());
        // A directory is opened for reading, so only a read lock can be set.
        let set = lock(&folder, libc::F_OFD_SETLK, libc::F_RDLCK, own, 1);
        let other = match set {
            Ok(_) => lock(&folder, libc::F_OFD_GETLK, libc::F_WRLCK, begin, 1 << PID_BITS),
            // A file system without locks: other runs are not detected.
            Err(_) => Ok(None),
        };
        if turn {
            let _ = folder.unlock();
        }
        match other {
            Ok(Some(at)) => Err(LockError::Held(u32::try_from(at - begin).ok())),
            Ok(None) | Err(_) => Ok(NameLock { _folder: folder }),
        }
    }
}

fn take_turn(folder: &File) -> bool {
    let begun = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return true,
            Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                thread::sleep(NAP);
            }
            Err(_) => return false,
        }
    }
}

/// The first offset of a name, followed by one for each PID: FNV-1a, which is stable across
/// versions.
fn range_of(path: &Path) -> i64 {
    let name = path.file_name().unwrap_or_default();
    let hash = name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let name = (hash >> (u64::BITS - NAME_BITS)).min((1 << NAME_BITS) - 2);
    (name << PID_BITS) as i64
}

/// Query or set a lock; returns the offset of a conflicting one.
fn lock(
    folder: &File,
    command: i32,
    kind: i32,
    start: i64,
    length: i64,
) -> io::Result<Option<i64>> {
    let mut range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the command takes a structure of this kind, which
    // outlives the call.
    let result = unsafe { libc::fcntl(folder.as_raw_fd(), command, &raw mut range) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_free = i32::from(range.l_type) == libc::F_UNLCK || command == libc::F_OFD_SETLK;
    Ok((!is_free).then_some(range.l_start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name is locked by one process at a time, that other names are not affected, and
    /// that the owner is reported.
    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let held = NameLock::take(&path("a")).unwrap();
        let other = NameLock::take(&path("b")).unwrap();
        let me = std::process::id();
        for _ in 0..2 {
            let refused = NameLock::take(&path("a")).unwrap_err();
            assert!(matches!(refused, LockError::Held(Some(pid)) if pid == me));
        }
        drop(held);
        NameLock::take(&path("a")).unwrap();
        drop(other);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Check that one of many concurrent attempts succeeds, and that another program's lock on the
    /// directory does not matter.
    #[test]
    fn many_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let barrier = std::sync::Barrier::new(8);
        let got: Vec<bool> = thread::scope(|scope| {
            let begin = || {
                barrier.wait();
                let taken = NameLock::take(&path);
                barrier.wait();
                taken.is_ok()
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(got.iter().filter(|got| **got).count(), 1, "{got:?}");
        let others = File::open(folder.path()).unwrap();
        others.lock().unwrap();
        NameLock::take(&path).unwrap();
    }
}
