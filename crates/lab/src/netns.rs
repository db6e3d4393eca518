//! Network namespaces joined by a link: the topology that packets run through.
//!
//! In a guest namespaces have no names and no files: they live as long as the
//! descriptors that hold them. On the machine itself they have names, so that others
//! can look into them, and a journal of these: see [`names`].

mod changes;
mod ethtool;
mod facts;
pub mod names;
mod netlink;
mod nft;
mod offload;
mod qdisc;
mod routes;
pub mod settings;
pub mod threads;
mod topology;
mod wire;

pub use changes::{DeviceState, Queues};
pub use ethtool::{Channels, Features};
pub use names::Names;
pub use nft::NFT;
pub use qdisc::{NO_TC, TC};
pub use routes::OurRoute;
pub use topology::{Nic, Topology, TopologyError, TopologyPlan};

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A network namespace, held open.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// A new, empty namespace.
    ///
    /// # Errors
    /// `unshare` failed: it needs CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Namespace> {
        let home = Namespace::current()?;
        // SAFETY: unshare takes a flag and touches no memory of ours.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let new = Namespace::current();
        home.enter()?;
        new
    }

    /// The namespace that this thread is in.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace {
            fd: std::fs::File::open("/proc/thread-self/ns/net")?.into(),
        })
    }

    /// A namespace by its name, as `ip netns` knows it, by a process in it, or by a path.
    ///
    /// # Errors
    /// There is none, or what is there is no namespace.
    pub fn find(name: &str) -> io::Result<Namespace> {
        let path = if name.contains('/') {
            name.to_string()
        } else if name.bytes().all(|b| b.is_ascii_digit()) {
            format!("/proc/{name}/ns/net")
        } else {
            format!("/run/netns/{name}")
        };
        let found = Namespace {
            fd: std::fs::File::open(path)?.into(),
        };
        // Only a namespace can be entered.
        found.inside(|| Ok(()))?;
        Ok(found)
    }

    /// The number that the kernel knows it by, in this boot.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn inode(&self) -> io::Result<u32> {
        use std::os::unix::fs::MetadataExt;
        let inode = std::fs::File::from(self.try_clone()?).metadata()?.ino();
        u32::try_from(inode).map_err(io::Error::other)
    }

    /// A second hold on the same namespace.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Its devices: their indexes by their names.
    ///
    /// # Errors
    /// It can't be entered, or its devices not be listed.
    pub fn devices(&self) -> io::Result<BTreeMap<String, u32>> {
        let devices = self.inside(|| netlink::Netlink::open()?.devices())?;
        Ok(devices.into_iter().map(|d| (d.name, d.index)).collect())
    }

    /// The index and the address of one of its devices.
    ///
    /// # Errors
    /// It can't be entered, or has no such device.
    pub fn device(&self, name: &str) -> io::Result<(u32, [u8; 6])> {
        let devices = self.inside(|| netlink::Netlink::open()?.devices())?;
        let device = devices.into_iter().find(|d| d.name == name);
        let found = device.and_then(|d| Some((d.index, d.mac.try_into().ok()?)));
        found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no device {name}, or it has no Ethernet address"),
            )
        })
    }

    /// Run `f` in this namespace and come back.
    ///
    /// # Errors
    /// `setns` failed, or `f` did.
    pub fn inside<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let home = Namespace::current()?;
        self.enter()?;
        let result = f();
        home.enter()?;
        result
    }

    fn enter(&self) -> io::Result<()> {
        // SAFETY: setns takes a descriptor that we own, and a flag.
        if unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }
}
