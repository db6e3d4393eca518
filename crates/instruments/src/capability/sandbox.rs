//! A network namespace that lives as long as a thread, with a veth pair in it.
//!
//! Only the calling thread moves into the namespace. No name is given to it, so the kernel takes
//! it away, pair and all, when the thread ends, or the process dies.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::mounts::owned;

const VETH_INFO_PEER: u16 = 1;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;

/// How long a new link may take to come up. It needs some milliseconds.
const LINK_LIMIT: Duration = Duration::from_secs(1);

/// A pair of joined interfaces, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) left: u32,
    pub(crate) right: u32,
}

/// Move this thread into a network namespace of its own.
pub(crate) fn enter() -> io::Result<()> {
    // SAFETY: takes one integer, and changes this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether a process without privileges could have a user namespace and a network namespace in
/// it. Tried in a child, since a process with threads can't change its user namespace.
pub(crate) fn user_namespaces_work() -> bool {
    // SAFETY: the child calls nothing but unshare and _exit, both of which are safe after fork.
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

/// Make a veth pair in this thread's namespace, and bring both ends up.
pub(crate) fn make_pair() -> io::Result<Pair> {
    let socket = netlink_socket()?;
    request(&socket, &add_veth("plumb0", "plumb1"))?;
    let pair = Pair {
        left: index_of(c"plumb0")?,
        right: index_of(c"plumb1")?,
    };
    for index in [pair.left, pair.right] {
        request(&socket, &set_up(index))?;
    }
    for (name, index) in [(c"plumb0", pair.left), (c"plumb1", pair.right)] {
        wait_until_running(&socket, name)?;
        // The flag comes a moment before the queue does, and both under one lock, which every
        // request takes: when this one is answered, the queue is there.
        request(&socket, &set_up(index))?;
    }
    Ok(pair)
}

/// An interface that was just brought up drops what is sent, without an error, until the kernel
/// has noticed that its link is there.
fn wait_until_running(socket: &OwnedFd, name: &CStr) -> io::Result<()> {
    let start = Instant::now();
    // SAFETY: a structure of plain integers and bytes, for which zero is a value.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    loop {
        // SAFETY: the request reads the name and fills in the flags of an ifreq, and ours
        // outlives the call.
        let flags = unsafe {
            if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut asked) < 0 {
                return Err(io::Error::last_os_error());
            }
            asked.ifr_ifru.ifru_flags
        };
        if i32::from(flags) & libc::IFF_RUNNING != 0 {
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
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

fn index_of(name: &CStr) -> io::Result<u32> {
    // SAFETY: the name is NUL-terminated.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

fn netlink_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes three integers.
    owned(libc::c_long::from(unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        )
    }))
}

/// Send a request, and wait for the kernel's answer to it.
fn request(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    // SAFETY: the message outlives the call, and its length is given.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0_u8; 4096];
    // SAFETY: the buffer outlives the call, and its length is given.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // A header of 16 bytes, then the errno with its sign turned.
    let errno = answer
        .get(16..20)
        .and_then(|b| b.try_into().ok())
        .map_or(-libc::EIO, i32::from_ne_bytes);
    if errno == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(-errno))
    }
}

/// `ip link add LEFT type veth peer name RIGHT`
fn add_veth(left: &str, right: &str) -> Vec<u8> {
    let mut peer = link_header(0, 0, 0);
    peer.extend(name_attribute(right));
    let data = attribute(IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let mut info = attribute(IFLA_INFO_KIND, b"veth");
    info.extend(data);
    let mut body = link_header(0, 0, 0);
    body.extend(name_attribute(left));
    body.extend(attribute(libc::IFLA_LINKINFO, &info));
    message(libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
}

/// `ip link set INDEX up`
fn set_up(index: u32) -> Vec<u8> {
    let up = libc::IFF_UP as u32;
    message(0, &link_header(index as i32, up, up))
}

/// struct nlmsghdr
fn message(flags: i32, body: &[u8]) -> Vec<u8> {
    let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut out = Vec::new();
    out.extend((16 + body.len() as u32).to_ne_bytes());
    out.extend(libc::RTM_NEWLINK.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(body);
    out
}

/// struct ifinfomsg
fn link_header(index: i32, flags: u32, change: u32) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(index.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(change.to_ne_bytes());
    out
}

fn name_attribute(name: &str) -> Vec<u8> {
    attribute(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
}

/// struct rtattr, padded to four bytes
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that attributes are padded, and that their length does not count the padding.
    #[test]
    fn attributes_are_padded() {
        assert_eq!(attribute(3, b"ab\0"), [7, 0, 3, 0, b'a', b'b', 0, 0]);
    }

    /// Check that a message says how long it is.
    #[test]
    fn messages_know_their_length() {
        let message = add_veth("a", "b");
        assert_eq!(
            u32::from_ne_bytes(message[..4].try_into().unwrap()) as usize,
            message.len()
        );
    }

    /// Check that root gets a pair in a namespace that vanishes with its thread.
    #[test]
    fn root_gets_a_pair_that_vanishes() {
        // SAFETY: takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            netplumb_testkit::skip("not root");
            return;
        }
        std::thread::spawn(|| {
            enter().unwrap();
            let pair = make_pair().unwrap();
            assert_ne!(pair.left, pair.right);
            assert!(index_of(c"plumb0").is_ok());
        })
        .join()
        .unwrap();
        assert!(index_of(c"plumb0").is_err());
    }
}
