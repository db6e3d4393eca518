//! UDP sockets whose readers discard the data.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use netplumb_model::bench::{FrameKind, Handled, Stamp};
use netplumb_model::class::Family;
use netplumb_model::span::Times;
use netplumb_sys::cpus;
use netplumb_sys::proc::counters::Counters;
use netplumb_workload::drops;
use netplumb_workload::mark::{self, mark};

use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::reader::{Read, bump, cpu_error, monotonic_ns};
use crate::{Site, Standing, Way};

/// Datagrams per system call.
const BATCH: usize = 64;
/// Bytes copied of each datagram, which include the timestamp. The full length is returned
/// nevertheless.
const COPIED_BYTES: usize = 64;
/// Timeout without packets after which a reader checks whether to stop.
const PATIENCE: Duration = Duration::from_millis(50);
struct Reader {
    cpu: u32,
    read: Arc<Read>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Sockets with their readers.
pub(crate) struct Socket {
    readers: Vec<Reader>,
    stop: Arc<AtomicBool>,
    changes: Changes,
    before: Counters,
    v6: bool,
    stamped: bool,
    buffer_bytes: i32,
}

impl Socket {
    pub(crate) fn set_up(way: &Way, site: &Site) -> Result<Socket, PathError> {
        if site.kind != FrameKind::Udp {
            return Err(PathError::cannot(
                format!("the path `socket` does not receive {} frames", site.kind),
                "use udp frames with the path `socket`",
            ));
        }
        if way.cpus.is_empty() {
            return Err(PathError::Asked("no CPU given for the reader".into()));
        }
        let mut changes = Changes::at(site)?;
        changes.gro(&site.ingress)?;
        changes.address(&site.ingress, site.destination)?;
        changes.any_source(&site.ingress, site)?;
        let to = SocketAddr::new(site.destination, site.port);
        let bound: Result<Vec<UdpSocket>, _> =
            changes.namespace.inside(|| way.cpus.iter().map(|_| bind(to)).collect());
        let sockets = bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => PathError::cannot(
                format!("the port {} is taken", site.port),
                "another process has a socket there: end it, or use another port",
            ),
            _ => {
                PathError::System { doing: format!("open a socket at {to}"), source: error.into() }
            }
        })?;
        let buffer_bytes = sockets.first().map_or(0, buffer_bytes);
        let before = changes.counters()?;
        let mut socket = Socket {
            readers: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            changes,
            before,
            v6: site.destination.is_ipv6(),
            stamped: way.stamped,
            buffer_bytes,
        };
        for (cpu, bound) in way.cpus.iter().zip(sockets) {
            socket.start(*cpu, bound)?;
        }
        Ok(socket)
    }

    fn start(&mut self, cpu: u32, socket: UdpSocket) -> Result<(), PathError> {
        let read = Arc::new(Read::new());
        let (stop, counts, stamped) = (self.stop.clone(), read.clone(), self.stamped);
        let (ready, pinned) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("reader-{cpu}"))
            .spawn(move || {
                let done = cpus::pin(0, cpu);
                let failed = done.is_err();
                let _ = ready.send(done);
                if failed {
                    return Ok(());
                }
                reads(&socket, &counts, stamped, &stop)
            })
            .doing(|| "start a reader".into())?;
        let pinned = pinned.recv().unwrap_or(Ok(()));
        self.readers.push(Reader { cpu, read, thread: Some(thread) });
        pinned.map_err(|error| cpu_error(cpu, error))
    }
}

fn option(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer is to as many bytes as are named.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bind one of several sockets to a port, among which the kernel distributes flows.
fn bind(to: SocketAddr) -> io::Result<UdpSocket> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: takes numbers, and gives a descriptor of our own.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1_i32.to_ne_bytes())?;
    if to.is_ipv6() {
        // IPv6 requires an address, and there is only a route (inet6_bind, net/ipv6/af_inet6.c).
        option(&fd, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, &1_i32.to_ne_bytes())?;
    }
    let mut timeout = [0_u8; size_of::<libc::timeval>()];
    let micros = i64::from(PATIENCE.subsec_micros());
    timeout[8..16].copy_from_slice(&micros.to_ne_bytes());
    option(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    let (address, bytes) = raw(to);
    // SAFETY: the address has the given length.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    match result {
        0 => Ok(UdpSocket::from(fd)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket address in the kernel's format.
fn raw(to: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero address is a valid value of these structures.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let bytes = match to {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room for, and the alignment of, all others.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(address) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(address) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, bytes as libc::socklen_t)
}

fn buffer_bytes(socket: &UdpSocket) -> i32 {
    let mut value = 0_i32;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointers are to a number and to its size.
    unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw mut value).cast(),
            &mut bytes,
        )
    };
    value
}

/// Read until asked to stop.
fn reads(socket: &UdpSocket, counts: &Read, stamped: bool, stop: &AtomicBool) -> io::Result<()> {
    let mut buffers = vec![[0_u8; COPIED_BYTES]; BATCH];
    let mut slices: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: COPIED_BYTES })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = slices
        .iter_mut()
        .map(|slice| {
            // SAFETY: an all-zero header is a valid one.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = slice;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    while !stop.load(Ordering::Relaxed) {
        mark::<{ mark::RX_BEGIN }>();
        // SAFETY: each header points to a slice, and each slice to a buffer, of ours;
        // all live longer than this loop and nobody else has them.
        let read = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_WAITFORONE | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        bump(&counts.looks, 1);
        if read < 0 {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                _ => return Err(error),
            }
        }
        let read = read as usize; // not negative
        let bytes: u64 = messages[..read].iter().map(|m| u64::from(m.msg_len)).sum();
        if stamped {
            let now = monotonic_ns();
            for slice in &slices[..read] {
                // SAFETY: the slice is of a buffer of ours of this size, which the call
                // above has written to and nobody writes to now.
                let buffer = unsafe { slice.iov_base.cast::<[u8; COPIED_BYTES]>().read() };
                match Stamp::read(&buffer).map(|stamp| stamp.due_ns) {
                    Some(due) if due <= now => counts.time(now - due),
                    _ => bump(&counts.unstamped, 1),
                }
            }
        }
        bump(&counts.bytes, bytes);
        bump(&counts.packets, read as u64);
    }
    Ok(())
}

impl Standing for Socket {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let mut handled = Handled::default();
        let mut times = Times::default();
        for reader in &mut self.readers {
            if reader.thread.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(thread) = reader.thread.take()
            {
                let ended = thread.join();
                ended
                    .unwrap_or_else(|_| Err(io::Error::other("it has crashed")))
                    .doing(|| format!("go on reading on CPU {}", reader.cpu))?;
            }
            let packets = reader.read.packets.load(Ordering::Relaxed);
            *handled.packets.entry(reader.cpu).or_default() += packets;
            handled.bytes += reader.read.bytes.load(Ordering::Relaxed);
            reader.read.add_times(&mut times);
        }
        let headers = if self.v6 { 14 + 40 + 8 } else { 14 + 20 + 8 };
        handled.bytes += headers * handled.total();
        let counted = self.changes.counters()?.since(&self.before);
        let (family, no_ports) = match self.v6 {
            true => (Family::V6, "Udp6NoPorts"),
            false => (Family::V4, "UdpNoPorts"),
        };
        let mut lost = drops::of_protocol("Udp", family, counted.all());
        // Frames to our port have a socket, so these were not ours.
        handled.foreign = lost.remove(no_ports).unwrap_or(0);
        handled.lost.extend(drops::losses(&lost));
        handled.latency = self.stamped.then_some(times);
        Ok(handled)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let mut fact = |key: &str, value: String| facts.insert(format!("path.{key}"), value);
        fact(
            "attached",
            format!(
                "{} UDP sockets (SO_REUSEPORT), one reader each (recvmmsg, {BATCH} at once)",
                self.readers.len()
            ),
        );
        fact("socket_buffer_bytes", self.buffer_bytes.to_string());
        let reads: Vec<&Read> = self.readers.iter().map(|r| &*r.read).collect();
        fact("calls", Read::sum(&reads, |r| &r.looks).to_string());
        if self.stamped {
            fact("unstamped", Read::sum(&reads, |r| &r.unstamped).to_string());
        }
        facts
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for reader in &mut self.readers {
            if let Some(thread) = reader.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
