//! Reading kernel file systems, mounted or not.
//!
//! A container or a small guest often has neither securityfs nor tracefs mounted. Both can be
//! opened without mounting them anywhere: `fsmount` gives a mount that only a descriptor holds
//! and is gone when that is closed, so nothing is left behind.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A kernel file system that can be read through [`Tree::path`].
#[derive(Debug)]
pub(crate) enum Tree {
    /// It was mounted already.
    Mounted(PathBuf),
    /// It is mounted nowhere; the descriptor holds it.
    Detached(OwnedFd),
}

impl Tree {
    /// Find the file system where it is mounted, or open it detached.
    pub(crate) fn open(kind: &CStr) -> io::Result<Self> {
        let name = kind.to_string_lossy();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        match mounted_at(&mounts, &name) {
            Some(path) => Ok(Self::Mounted(path)),
            None => open_detached(kind).map(Self::Detached),
        }
    }

    /// A path that leads into the tree for as long as the tree lives.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Mounted(path) => path.clone(),
            Self::Detached(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()).into(),
        }
    }
}

/// The kernel's lockdown mode, if it can be read.
pub(crate) fn lockdown() -> Option<String> {
    let tree = Tree::open(c"securityfs").ok()?;
    match fs::read_to_string(tree.path().join("lockdown")) {
        Ok(text) => parse_lockdown(&text),
        // The file exists exactly if the kernel has the lockdown module.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some("none".into()),
        Err(_) => None,
    }
}

/// The mode in brackets: `none [integrity] confidentiality`.
fn parse_lockdown(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn mounted_at(mounts: &str, kind: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, fs) = (words.next()?, words.next()?);
        (fs == kind && !place.contains('\\')).then(|| place.into())
    })
}

fn open_detached(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is a NUL-terminated string that outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: FSCONFIG_CMD_CREATE takes no key, no value and a zero.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fsmount takes three integers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// Take ownership of the descriptor that a system call returned, or of its errno.
pub(super) fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the mode in force is the one in brackets.
    #[test]
    fn lockdown_mode_is_in_brackets() {
        let mode = parse_lockdown("none [integrity] confidentiality\n");
        assert_eq!(mode.as_deref(), Some("integrity"));
        assert_eq!(parse_lockdown("garbage"), None);
    }

    /// Check that a file system is found by its type, not by its device name.
    #[test]
    fn mounts_are_found_by_type() {
        let mounts = "tracefs /x proc rw 0 0\nnone /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mounted_at(mounts, "tracefs"), Some("/sys/kernel/tracing".into()));
        assert_eq!(mounted_at(mounts, "securityfs"), None);
    }
}
