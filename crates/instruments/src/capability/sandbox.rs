//! A network namespace that lives as long as a thread, with a veth pair in it.
//!
//! Only the calling thread moves into the namespace (`netns::enter_new`). No name is given to it,
//! so the kernel takes it away, pair and all, when the thread ends, or the process dies.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use netplumb_sys::links::index_of;
use netplumb_sys::netlink::Netlink;

use super::mounts::owned;

/// How long a new link may take to come up. It needs some milliseconds.
const LINK_LIMIT: Duration = Duration::from_secs(1);
/// Addresses of the two ends: locally administered.
const MACS: [[u8; 6]; 2] = [[0x02, 0x4e, 0x50, 0xc, 0, 0], [0x02, 0x4e, 0x50, 0xc, 0, 1]];

/// A pair of joined interfaces, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) left: u32,
    pub(crate) right: u32,
}

/// Make a veth pair in this thread's namespace, and bring both ends up.
pub(crate) fn make_pair() -> io::Result<Pair> {
    let mut netlink = Netlink::open()?;
    netlink.add_veth(("plumb0", MACS[0]), ("plumb1", MACS[1]), None, None, None)?;
    let pair = Pair { left: index_of(c"plumb0")?, right: index_of(c"plumb1")? };
    for index in [pair.left, pair.right] {
        netlink.set_up(index, None)?;
    }
    for index in [pair.left, pair.right] {
        wait_until_running(&mut netlink, index)?;
        // The flag comes a moment before the queue does, and both under one lock, which every
        // request takes: when this one is answered, the queue is there.
        netlink.set_up(index, None)?;
    }
    Ok(pair)
}

/// An interface that was just brought up drops what is sent, without an error, until the kernel
/// has noticed that its link is there.
fn wait_until_running(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let devices = netlink.devices()?;
        if devices.iter().any(|d| d.index == index && d.flagged_running) {
            return Ok(());
        }
        if start.elapsed() > LINK_LIMIT {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A socket that sends frames as they are.
#[derive(Debug)]
pub(crate) struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Open one. Closing it waits for every processor (some 15 ms), so keep it.
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: takes three integers. Protocol 0: this socket only sends.
        owned(libc::c_long::from(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
        }))
        .map(Self)
    }

    /// Send a frame out of an interface.
    pub(crate) fn send(&self, index: u32, frame: &[u8]) -> io::Result<()> {
        // SAFETY: a structure of plain integers, for which zero is a value.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = index as i32;
        to.sll_halen = 6;
        // SAFETY: the frame and the address outlive the call, and their sizes are given.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_sys::netns;

    /// Check that root gets a pair in a namespace that vanishes with its thread.
    #[test]
    fn root_gets_a_pair_that_vanishes() {
        if !netplumb_testkit::has_root() {
            return;
        }
        std::thread::spawn(|| {
            netns::enter_new().unwrap();
            let pair = make_pair().unwrap();
            assert_ne!(pair.left, pair.right);
            assert!(index_of(c"plumb0").is_ok());
        })
        .join()
        .unwrap();
        assert!(index_of(c"plumb0").is_err());
    }
}
