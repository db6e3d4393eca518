//! Network namespaces: create, find, enter.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink::Netlink;

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl From<OwnedFd> for Namespace {
    /// From a descriptor.
    fn from(fd: OwnedFd) -> Namespace {
        Namespace { fd }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Move this thread to a namespace permanently. Makes one system call and allocates nothing, so a
/// new process may call it before it executes its program.
///
/// # Errors
/// It is not a namespace, or this process lacks CAP_SYS_ADMIN.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes a descriptor, which is open, and a flag.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Move this thread to a new, empty namespace permanently.
///
/// # Errors
/// `unshare` failed: it needs CAP_SYS_ADMIN.
pub fn enter_new() -> io::Result<()> {
    // SAFETY: unshare takes a flag and touches no memory of ours.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Run `f` in a namespace, and return to the current one.
///
/// # Errors
/// The namespace can't be entered or left, or `f` failed.
pub fn inside<T>(namespace: BorrowedFd<'_>, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let home = Namespace::current()?;
    enter(namespace)?;
    let result = f();
    enter(home.as_fd())?;
    result
}

/// Run `f` in a namespace, on a separate thread, which does not have to return.
///
/// # Errors
/// The thread can't be started, the namespace can't be entered, or `f` failed.
pub fn apart<T: Send>(
    namespace: BorrowedFd<'_>,
    name: &str,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let work = move || {
            enter(namespace)?;
            f()
        };
        let thread = thread::Builder::new().name(name.into());
        let ended = thread.spawn_scoped(scope, work)?.join();
        ended.map_err(|_| io::Error::other("a thread panicked"))?
    })
}

/// Whether an unprivileged process can create a user namespace with a network namespace in it.
/// Tried in a child, since a process with threads can't change its user namespace.
pub fn user_namespaces_work() -> bool {
    // SAFETY: the child calls nothing but unshare and _exit, both safe after fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            let failed = libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0;
            libc::_exit(i32::from(failed));
        }
    }
    if child < 0 {
        return false;
    }
    let mut status = 0;
    // SAFETY: our own child, and a status of the right type.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
    reaped == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

impl Namespace {
    /// A new, empty namespace.
    ///
    /// # Errors
    /// `unshare` failed: it needs CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Namespace> {
        let home = Namespace::current()?;
        enter_new()?;
        let new = Namespace::current();
        enter(home.as_fd())?;
        new
    }

    /// This thread's namespace.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace { fd: std::fs::File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Find a namespace by its name in `ip netns`, by a process in it, or by a path.
    ///
    /// # Errors
    /// It does not exist, or is not a namespace.
    pub fn find(name: &str) -> io::Result<Namespace> {
        let path = if name.contains('/') {
            name.to_string()
        } else if name.bytes().all(|b| b.is_ascii_digit()) {
            format!("/proc/{name}/ns/net")
        } else {
            format!("/run/netns/{name}")
        };
        let found = Namespace { fd: std::fs::File::open(path)?.into() };
        // Check that it is a namespace: it can be entered.
        found.inside(|| Ok(()))?;
        Ok(found)
    }

    /// Its inode, which is valid until the next reboot.
    ///
    /// # Errors
    /// The query failed.
    pub fn inode(&self) -> io::Result<u32> {
        use std::os::unix::fs::MetadataExt;
        let inode = std::fs::File::from(self.try_clone()?).metadata()?.ino();
        u32::try_from(inode).map_err(io::Error::other)
    }

    /// Its cookie, which is unique until the next reboot (Linux 5.14).
    ///
    /// # Errors
    /// The kernel is older.
    pub fn cookie(&self) -> io::Result<u64> {
        /// include/uapi/asm-generic/socket.h.
        const SO_NETNS_COOKIE: libc::c_int = 71;
        self.inside(|| {
            let socket = Socket::new(NETLINK_ROUTE)?;
            let mut cookie = 0_u64;
            let mut bytes = size_of::<u64>() as libc::socklen_t;
            // SAFETY: the pointers are to a number of ours and to its size.
            let done = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    SO_NETNS_COOKIE,
                    (&raw mut cookie).cast(),
                    &mut bytes,
                )
            };
            match done {
                0 => Ok(cookie),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }

    /// A duplicated descriptor.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Run `f` in this namespace, and return to the current one.
    ///
    /// # Errors
    /// `setns` failed, or `f` did.
    pub fn inside<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        inside(self.as_fd(), f)
    }

    /// Send rtnetlink requests in this namespace.
    ///
    /// # Errors
    /// It can't be entered, or an error of the kernel.
    pub fn ask<T>(&self, f: impl FnOnce(&mut Netlink) -> io::Result<T>) -> io::Result<T> {
        self.inside(|| f(&mut Netlink::open()?))
    }

    /// Run `f` with a /sys of this namespace: it shows the devices of the namespace that it was
    /// mounted in, so a separate thread mounts it again, invisible to others.
    ///
    /// # Errors
    /// The namespace can't be entered, nothing can be mounted, or `f` failed.
    pub fn with_sysfs<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        apart(self.as_fd(), "plumb-sysfs", || {
            unshare_mounts()?;
            match mount(c"sysfs", c"/sys", Some(c"sysfs"), 0) {
                // The existing mount is this namespace's (do_add_mount, fs/namespace.c).
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                other => other?,
            }
            f()
        })
    }
}

/// Mount a file system in memory at `at`, seen only by this thread and what it starts, and gone with
/// them.
///
/// # Errors
/// It needs CAP_SYS_ADMIN.
pub fn with_own_memory(at: &std::ffi::CStr) -> io::Result<()> {
    unshare_mounts()?;
    mount(c"tmpfs", at, Some(c"tmpfs"), 0)
}

fn unshare_mounts() -> io::Result<()> {
    // SAFETY: takes flags; of this thread alone, which ends soon.
    if unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
}

fn mount(
    what: &std::ffi::CStr,
    at: &std::ffi::CStr,
    kind: Option<&std::ffi::CStr>,
    flags: u64,
) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: all strings end and outlive the call; there is no data.
    let done = unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind, flags, std::ptr::null()) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::as_root;

    /// Check that only the given code runs in a namespace: this thread returns, and with a separate
    /// thread never leaves.
    #[test]
    fn as_root_in_and_out() {
        let Some(home) = as_root(|| Namespace::current().unwrap()) else {
            return;
        };
        let home = home.inode().unwrap();
        let new = Namespace::new().unwrap();
        let here = || Namespace::current()?.inode();
        assert_eq!(here().unwrap(), home);
        assert_eq!(new.inside(here).unwrap(), new.inode().unwrap());
        assert_eq!(apart(new.as_fd(), "test", here).unwrap(), new.inode().unwrap());
        assert_eq!(here().unwrap(), home);
        assert_ne!(new.inode().unwrap(), home);
        let devices = new.with_sysfs(|| Ok(std::fs::read_dir("/sys/class/net")?.count()));
        assert_eq!(devices.unwrap(), new.device_states().unwrap().len());
        let own = Namespace::current().unwrap();
        let devices = own.with_sysfs(|| Ok(std::fs::read_dir("/sys/class/net")?.count()));
        assert_eq!(devices.unwrap(), own.device_states().unwrap().len());
        let failed: io::Result<()> = new.inside(|| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        assert_eq!(here().unwrap(), home);
    }
}
