//! Confines QEMU, whose guest may be hostile: without network, without files that it can write or processes that it can
//! start, without capabilities.
//!
//! QEMU filters its own system calls (`-sandbox`, seccomp). The rest is done between fork and exec, in namespaces: of
//! root, or of an unprivileged user where the kernel has these. Where it doesn't, the filter alone is left.

use std::ffi::{CStr, CString};
use std::io;

/// The variable that leaves QEMU unconfined if it is `0`: for a script in `$PLUMB_QEMU` that writes files, or a QEMU
/// without seccomp.
pub(super) const CONFINE_VARIABLE: &str = "PLUMB_CONFINE_QEMU";

/// QEMU's filter of system calls: no other programs, no rights that it did not have, no priorities.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
/// The one capability that root's QEMU keeps: saved states may belong to whoever called sudo.
const CAP_DAC_OVERRIDE: libc::c_int = 1;
/// The last capability of any kernel so far is 40; dropping one that there is not fails, and does nothing.
const CAPABILITIES: std::ops::RangeInclusive<libc::c_int> = 0..=63;

/// `struct mount_attr` (include/uapi/linux/mount.h).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    namespace_fd: u64,
}

/// What confines one QEMU, made before the fork: between fork and exec nothing may be allocated.
#[derive(Debug)]
pub(super) struct Confinement {
    user: Option<UserMaps>,
}

/// An unprivileged user's maps: the same IDs inside and outside.
#[derive(Debug)]
struct UserMaps {
    uid: CString,
    gid: CString,
}

impl Confinement {
    /// Of this process's user; none if it is not wanted.
    pub(super) fn wanted() -> Option<Confinement> {
        if std::env::var_os(CONFINE_VARIABLE).is_some_and(|value| value == "0") {
            return None;
        }
        // SAFETY: these take nothing, and always succeed.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let map = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
        let user = (uid != 0).then(|| UserMaps { uid: map(uid), gid: map(gid) });
        Some(Confinement { user })
    }

    /// QEMU's own part of it.
    pub(super) fn args() -> [String; 2] {
        ["-sandbox".into(), SANDBOX.into()]
    }

    /// Enter it, between fork and exec: system calls only. Where the kernel refuses namespaces, nothing is changed.
    ///
    /// # Errors
    /// It can't be entered whole.
    pub(super) fn enter(&self) -> io::Result<()> {
        let of_user = if self.user.is_some() { libc::CLONE_NEWUSER } else { 0 };
        let namespaces =
            libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        // SAFETY: unshare takes a number.
        if unsafe { libc::unshare(namespaces | of_user) } != 0 {
            return Ok(());
        }
        if let Some(maps) = &self.user {
            write(c"/proc/self/setgroups", c"deny")?;
            write(c"/proc/self/uid_map", &maps.uid)?;
            write(c"/proc/self/gid_map", &maps.gid)?;
        }
        read_only();
        for capability in CAPABILITIES.filter(|c| *c != CAP_DAC_OVERRIDE) {
            // SAFETY: prctl takes numbers.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        }
        // SAFETY: as above.
        match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Make all mounts of this namespace read-only; files that are open stay as they are. Before Linux 5.12 it does
/// nothing.
fn read_only() {
    const ATTRIBUTE_READ_ONLY: u64 = 1;
    let attributes = MountAttributes {
        set: ATTRIBUTE_READ_ONLY,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        namespace_fd: 0,
    };
    // SAFETY: the path and the attributes are valid for the call, and of the given size.
    unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
}

fn write(path: &CStr, text: &CStr) -> io::Result<()> {
    // SAFETY: the strings are valid, and the descriptor is this function's own.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = text.to_bytes();
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let error = io::Error::last_os_error();
        libc::close(fd);
        if written == bytes.len() as isize { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// What a shell prints that is confined.
    fn confined(script: &str) -> String {
        let confinement = Confinement::wanted().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        // SAFETY: only system calls.
        unsafe { command.pre_exec(move || confinement.enter()) };
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Check that a confined program has no interface but its own loopback, can't write, and has no capability but one.
    #[test]
    fn nothing_is_in_reach() {
        if confined("readlink /proc/self/ns/net") == {
            let own = std::fs::read_link("/proc/self/ns/net").unwrap();
            format!("{}\n", own.display())
        } {
            netplumb_testkit::tell(
                "this kernel refuses namespaces: only QEMU's filter confines it",
            );
            return;
        }
        let devices = confined("grep -c : /proc/net/dev; grep lo: /proc/net/dev | wc -l");
        assert_eq!(devices.lines().collect::<Vec<_>>(), ["1", "1"]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        let wrote =
            confined(&format!("{{ echo x >{}; }} 2>/dev/null && echo wrote", file.display()));
        assert_eq!((wrote.as_str(), file.exists()), ("", false));
        let status = confined("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status");
        let is_small = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            let bits = u64::from_str_radix(line.trim(), 16).unwrap();
            bits & !(1 << CAP_DAC_OVERRIDE) == 0
        };
        assert!(is_small("CapEff:") && is_small("CapBnd:"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
}
