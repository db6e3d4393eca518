//! AF_XDP sockets, and the memory of frames.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::ring::{Mapping, Ring};

/// Size of a frame buffer: sufficient for an MTU of 1500 and XDP's headroom of 256 bytes.
pub(super) const FRAME_BYTES: usize = 2048;
/// Frames in a socket's memory, and entries of each ring: each ring has room for all frames.
pub(super) const FRAMES: u32 = 4096;
const ENTRIES: u32 = FRAMES;

fn set<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is to a value of this size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            (value as *const T).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// For structures of plain numbers, where all zeros is a valid value.
fn get<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    // SAFETY: see above; all that are asked for are such structures of libc.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers are to a value and to its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            (&raw mut value).cast(),
            &mut bytes,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Check that the kernel supports AF_XDP.
pub(crate) fn supported() -> io::Result<()> {
    open().map(drop)
}

fn open() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers, and gives a descriptor of our own.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A socket bound to a queue of a device, with its rings.
#[derive(Debug)]
pub(super) struct Socket {
    // Dropped in this order: rings before the socket, the memory last.
    pub(super) receive: Option<Ring<libc::xdp_desc>>,
    pub(super) transmit: Option<Ring<libc::xdp_desc>>,
    pub(super) fill: Ring<u64>,
    pub(super) completion: Ring<u64>,
    fd: OwnedFd,
    /// Only if it receives.
    memory: Option<Mapping>,
}

/// A queue of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    pub(super) device: u32,
    pub(super) queue: u32,
}

impl Socket {
    /// A receiving socket, with memory of its own; zero-copy if the driver supports it, unless
    /// `copy`.
    pub(super) fn receiving(at: Queue, copy: bool) -> io::Result<Socket> {
        let memory = Mapping::new(None, FRAME_BYTES * FRAMES as usize)?;
        let fd = open()?;
        let region = libc::xdp_umem_reg {
            addr: memory.first().as_ptr() as u64,
            len: (FRAME_BYTES * FRAMES as usize) as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd.as_fd(), libc::XDP_UMEM_REG, &region)?;
        set(fd.as_fd(), libc::XDP_RX_RING, &ENTRIES)?;
        let socket = Socket::with_rings(fd, Some(memory))?;
        let mode = if copy { libc::XDP_COPY } else { libc::XDP_ZEROCOPY };
        socket.bind(at, mode | libc::XDP_USE_NEED_WAKEUP, 0)?;
        Ok(socket)
    }

    /// A socket that sends what another one has received.
    pub(super) fn sending(at: Queue, receiver: &Socket) -> io::Result<Socket> {
        let fd = open()?;
        set(fd.as_fd(), libc::XDP_TX_RING, &ENTRIES)?;
        let socket = Socket::with_rings(fd, None)?;
        let shared = receiver.fd.as_raw_fd() as u32; // open, and so not negative
        socket.bind(at, libc::XDP_SHARED_UMEM, shared)?;
        Ok(socket)
    }

    fn with_rings(fd: OwnedFd, memory: Option<Mapping>) -> io::Result<Socket> {
        set(fd.as_fd(), libc::XDP_UMEM_FILL_RING, &ENTRIES)?;
        set(fd.as_fd(), libc::XDP_UMEM_COMPLETION_RING, &ENTRIES)?;
        let at: libc::xdp_mmap_offsets = get(fd.as_fd(), libc::XDP_MMAP_OFFSETS)?;
        let socket = fd.as_fd();
        let descriptors = |page, at| Ring::map(socket, page, at, ENTRIES);
        let addresses = |page: u64, at| Ring::map(socket, page as i64, at, ENTRIES);
        let (receive, transmit) = match memory {
            Some(_) => (Some(descriptors(libc::XDP_PGOFF_RX_RING, at.rx)?), None),
            None => (None, Some(descriptors(libc::XDP_PGOFF_TX_RING, at.tx)?)),
        };
        Ok(Socket {
            receive,
            transmit,
            fill: addresses(libc::XDP_UMEM_PGOFF_FILL_RING, at.fr)?,
            completion: addresses(libc::XDP_UMEM_PGOFF_COMPLETION_RING, at.cr)?,
            fd,
            memory,
        })
    }

    fn bind(&self, at: Queue, flags: u16, shared: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: at.device,
            sxdp_queue_id: at.queue,
            sxdp_shared_umem_fd: shared,
        };
        // SAFETY: the address has the given length.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The bytes of a received frame that was not returned yet.
    pub(super) fn bytes(&self, at: u64, bytes: usize) -> Option<&[u8]> {
        self.memory.as_ref()?.get(at, bytes)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its drops: frames without a free buffer, and frames without room in the ring (`__xsk_rcv`,
    /// net/xdp/xsk.c).
    pub(super) fn lost(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
        let statistics: libc::xdp_statistics = get(fd, libc::XDP_STATISTICS)?;
        Ok((statistics.rx_dropped, statistics.rx_ring_full))
    }

    /// Whether it is in zero-copy mode.
    pub(super) fn is_without_copies(&self) -> io::Result<bool> {
        let options: libc::xdp_options = get(self.fd(), libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Make the kernel send what is in the ring. In copy mode it sends a few at a time and returns
    /// EAGAIN; EBUSY and ENOBUFS mean that the device has no room.
    pub(super) fn kick(&self) -> io::Result<()> {
        // SAFETY: no data and no address is allowed, and means this.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => Ok(()),
            _ => Err(error),
        }
    }
}
