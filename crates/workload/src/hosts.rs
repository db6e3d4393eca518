//! Loads between two hosts: a stream of bytes over TCP, requests and answers over TCP, or ICMP
//! echoes.
//!
//! Each block has connections of its own, over fixed ports: the sender's differ from block to
//! block, since a closed connection keeps its pair of ports for a while. Over the first of them
//! both hosts also signal each other to begin and to end.

pub(crate) mod transfer;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::class::Family;
use netplumb_model::hosts::HostLoad;
use netplumb_sys::netns::inside;
use socket2::Socket;

use crate::ends::{Ends, RX_PORT, TX_PORT, set_option, stream};
use crate::packets::{ICMP_HEADER_BYTES, ICMP_ID, icmp_echo, next_echo};
use crate::web;
use transfer::{PATIENCE, explained, read_all, read_from_all, write_all, write_to_all};

/// The sender waits this long after the receiver has signalled that it is ready: the receiver has returned from that by
/// then, however slow its CPU is, and both are idle when a block begins.
pub(crate) const QUIET: Duration = Duration::from_millis(5);

/// Signals from one host to the other outside of its block.
pub(crate) const READY: u8 = b'r';
pub(crate) const OVER: u8 = b'o';

/// The beginning and the end of a block, as close as possible to its packets.
pub trait Edges {
    /// Slow work before the beginning of the block.
    ///
    /// # Errors
    /// The block can't be measured.
    fn prepare(&mut self) -> io::Result<()>;

    /// The block begins.
    fn begin(&mut self);

    /// It is over.
    fn end(&mut self);

    /// Work after the end of the block.
    ///
    /// # Errors
    /// The block can't be measured.
    fn finish(&mut self) -> io::Result<()>;
}

/// A host that receives.
#[derive(Debug)]
pub struct Receiver(TcpListener);

/// The connections to the other host.
#[derive(Debug)]
pub struct Connections {
    all: Vec<TcpStream>,
    /// The socket of echoes, if they are sent.
    icmp: Option<(OwnedFd, Family)>,
}

/// Results of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes of payload that were sent, or received: of the requests.
    pub bytes: u64,
    /// The time of each turn.
    pub turns_ns: Vec<u64>,
    /// Bytes that were asked for and did not come as they should, by cause.
    pub failed: Vec<(String, u64)>,
}

impl Receiver {
    /// Listen, with a receive buffer of this size for each connection.
    ///
    /// # Errors
    /// The socket call that failed.
    pub fn open(
        namespace: BorrowedFd<'_>,
        address: IpAddr,
        buffer_bytes: Option<u32>,
    ) -> io::Result<Receiver> {
        inside(namespace, || {
            let socket = stream(SocketAddr::new(address, RX_PORT))?;
            if let Some(bytes) = buffer_bytes {
                size(&socket, libc::SO_RCVBUFFORCE, bytes)?;
            }
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.listen(HostLoad::MAX_CONNECTIONS as i32)?;
            // SAFETY: the descriptor was just given up by its owner.
            Ok(Receiver(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }))
        })
    }

    /// Wait for the next block's connections.
    ///
    /// # Errors
    /// None comes.
    pub fn accept(&self, load: HostLoad) -> io::Result<Connections> {
        let accept = |_| self.0.accept().map_err(explained);
        let all = (0..load.connections()).map(accept);
        let mut all = all.collect::<io::Result<Vec<_>>>()?;
        // In the sender's order, which must be known for signals over the first one: a lost
        // acknowledgement makes another one come first.
        all.sort_by_key(|(_, from)| from.port());
        Connections::new(all.into_iter().map(|(stream, _)| stream).collect())
    }
}

impl Connections {
    /// Connect to a receiver for a block, with a send buffer of this size.
    ///
    /// # Errors
    /// The socket call that failed.
    pub fn open(
        ends: &Ends,
        block: u32,
        load: HostLoad,
        buffer_bytes: Option<u32>,
    ) -> io::Result<Connections> {
        use std::os::fd::AsFd;
        let to = SocketAddr::new(ends.rx_address, RX_PORT);
        let connect = |number: u32| {
            let port = u32::from(TX_PORT) + 1 + (block * load.connections() + number) % 20_000;
            let socket = stream(SocketAddr::new(ends.tx_address, port as u16))?;
            if let Some(bytes) = buffer_bytes {
                size(&socket, libc::SO_SNDBUFFORCE, bytes)?;
            }
            socket.connect_timeout(&to.into(), PATIENCE).map_err(explained)?;
            // SAFETY: the descriptor was just given up by its owner.
            Ok(unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) })
        };
        let all = inside(ends.tx_namespace.as_fd(), || {
            let all = (0..load.connections()).map(connect);
            all.collect::<io::Result<Vec<_>>>()
        })?;
        let mut connections = Connections::new(all)?;
        if let HostLoad::Echo { .. } = load {
            let socket = inside(ends.tx_namespace.as_fd(), || ends.raw())?;
            let family = match ends.tx_address {
                IpAddr::V4(_) => Family::V4,
                IpAddr::V6(_) => Family::V6,
            };
            socket2::SockRef::from(&socket).set_read_timeout(Some(PATIENCE))?;
            connections.icmp = Some((socket, family));
        }
        Ok(connections)
    }

    fn new(all: Vec<TcpStream>) -> io::Result<Connections> {
        for stream in &all {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        Ok(Connections { all, icmp: None })
    }

    /// Send a block, and wait until the receiver has all of it and closes the connections.
    ///
    /// # Errors
    /// The connection ended early, or nothing moves.
    pub fn send(&mut self, load: HostLoad, edges: &mut dyn Edges) -> io::Result<Done> {
        edges.prepare()?;
        self.hear(READY)?;
        thread::sleep(QUIET);
        let mut done = Done::default();
        match load {
            HostLoad::Stream { bytes, write_bytes, .. } => {
                let buffer = vec![0x5a; write_bytes as usize];
                edges.begin();
                match &mut self.all[..] {
                    [one] => write_all(one, bytes, &buffer)?,
                    several => write_to_all(several, bytes, &buffer)?,
                }
                self.hear(OVER)?;
                edges.end();
                done.bytes = bytes;
            }
            HostLoad::Request { turns, size_bytes } => {
                let mut buffer = vec![0x5a; size_bytes as usize];
                done.turns_ns = Vec::with_capacity(turns as usize);
                edges.begin();
                for _ in 0..turns {
                    let began = Instant::now();
                    self.all[0].write_all(&buffer).map_err(explained)?;
                    self.all[0].read_exact(&mut buffer).map_err(explained)?;
                    done.turns_ns.push(began.elapsed().as_nanos() as u64);
                }
                edges.end();
                done.bytes = u64::from(turns) * u64::from(size_bytes);
            }
            HostLoad::Echo { turns, size_bytes } => {
                let mut message = vec![0x5a; ICMP_HEADER_BYTES + size_bytes as usize];
                // An answer over IPv4 comes with its IP header, of 20 bytes or more.
                let mut answer = vec![0; message.len() + 64];
                let Some((socket, family)) = &self.icmp else {
                    return Err(io::Error::other("no socket for echoes"));
                };
                let v6 = *family == Family::V6;
                icmp_echo(&mut message, (ICMP_ID, 0), v6);
                done.turns_ns = Vec::with_capacity(turns as usize);
                edges.begin();
                for turn in 0..turns {
                    next_echo(&mut message, turn as u16, v6);
                    let began = Instant::now();
                    transfer(socket, Transfer::Send(&message))?;
                    transfer(socket, Transfer::Receive(&mut answer))?;
                    done.turns_ns.push(began.elapsed().as_nanos() as u64);
                }
                edges.end();
                self.say(OVER)?;
                done.bytes = u64::from(turns) * u64::from(size_bytes);
            }
            HostLoad::Web(load) => done = web::serve(self, load, edges)?,
        }
        edges.finish()?;
        self.close()?;
        Ok(done)
    }

    /// Receive a block, and answer requests.
    ///
    /// # Errors
    /// As [`Connections::send`].
    pub fn receive(&mut self, load: HostLoad, edges: &mut dyn Edges) -> io::Result<Done> {
        const READ_BYTES: usize = 64 << 10;
        edges.prepare()?;
        let mut done = Done::default();
        match load {
            HostLoad::Stream { bytes, .. } => {
                let mut buffer = vec![0; READ_BYTES];
                self.say(READY)?;
                edges.begin();
                done.bytes = match &mut self.all[..] {
                    [one] => read_all(one, bytes, &mut buffer)?,
                    several => read_from_all(several, bytes, &mut buffer)?,
                };
                edges.end();
                self.say(OVER)?;
            }
            HostLoad::Request { turns, size_bytes } => {
                let mut buffer = vec![0; size_bytes as usize];
                self.say(READY)?;
                edges.begin();
                for _ in 0..turns {
                    self.all[0].read_exact(&mut buffer).map_err(explained)?;
                    self.all[0].write_all(&buffer).map_err(explained)?;
                }
                edges.end();
                done.bytes = u64::from(turns) * u64::from(size_bytes);
            }
            HostLoad::Echo { turns, size_bytes } => {
                // The kernel answers.
                self.say(READY)?;
                edges.begin();
                self.hear(OVER)?;
                edges.end();
                done.bytes = u64::from(turns) * u64::from(size_bytes);
            }
            // It has connections of its own.
            HostLoad::Web(_) => return Err(io::Error::other("a client of a web server is one")),
        }
        edges.finish()?;
        self.ended()?;
        Ok(done)
    }

    /// Close all connections, and wait for the receiver to close them, too.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        for stream in &self.all {
            stream.shutdown(Shutdown::Write)?;
        }
        self.ended()
    }

    /// Wait for the other host to close all connections.
    pub(crate) fn ended(&mut self) -> io::Result<()> {
        self.all.iter_mut().try_for_each(ended)
    }

    pub(crate) fn say(&mut self, what: u8) -> io::Result<()> {
        self.all[0].write_all(&[what]).map_err(explained)
    }

    pub(crate) fn hear(&mut self, what: u8) -> io::Result<()> {
        let mut heard = [0];
        self.all[0].read_exact(&mut heard).map_err(explained)?;
        match heard[0] == what {
            true => Ok(()),
            false => Err(io::Error::other("the hosts are not in step")),
        }
    }

    /// Segments that were sent again so far.
    ///
    /// # Errors
    /// The query failed.
    pub fn retransmitted(&self) -> io::Result<u64> {
        let of = |stream| info(stream, TOTAL_RETRANS);
        self.all.iter().map(of).sum()
    }

    /// Segments with data that were sent so far, each time, or that were received.
    ///
    /// # Errors
    /// The query failed.
    pub fn segments(&self, sends: bool) -> io::Result<u64> {
        self.all.iter().map(|stream| segments_of(stream, sends)).sum()
    }

    /// The size of the first one's buffer now: to send, or to receive.
    ///
    /// # Errors
    /// The query failed.
    pub fn buffer_bytes(&self, sends: bool) -> io::Result<u64> {
        let socket = socket2::SockRef::from(&self.all[0]);
        let bytes = match sends {
            true => socket.send_buffer_size()?,
            false => socket.recv_buffer_size()?,
        };
        Ok(bytes as u64)
    }
}

/// Where `struct tcp_info` has it (include/uapi/linux/tcp.h), in bytes; Linux 4.6 and later.
const TOTAL_RETRANS: usize = 100;
const DATA_SEGS_IN: usize = 152;
const DATA_SEGS_OUT: usize = 156;

/// Segments with data of a connection: all that it sent, each time, or that it received.
pub(crate) fn segments_of(stream: &TcpStream, sends: bool) -> io::Result<u64> {
    info(stream, if sends { DATA_SEGS_OUT } else { DATA_SEGS_IN })
}

/// A counter of a connection, of 32 bits.
fn info(stream: &TcpStream, at: usize) -> io::Result<u64> {
    let mut info = [0_u8; DATA_SEGS_OUT + 4];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `info`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = [info[at], info[at + 1], info[at + 2], info[at + 3]];
    Ok(u64::from(u32::from_ne_bytes(bytes)))
}

/// Wait for the other end to close a connection.
fn ended(stream: &mut TcpStream) -> io::Result<()> {
    match stream.read(&mut [0]).map_err(explained)? {
        0 => Ok(()),
        _ => Err(io::Error::other("the other host sent more than was asked for")),
    }
}

enum Transfer<'a> {
    Send(&'a [u8]),
    Receive(&'a mut [u8]),
}

/// Send a message, or receive one.
fn transfer(socket: &OwnedFd, what: Transfer<'_>) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    let n = match what {
        // SAFETY: the pointer and the length come from the slice.
        Transfer::Send(bytes) => unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), 0) },
        Transfer::Receive(bytes) => {
            // SAFETY: as above.
            unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) }
        }
    };
    usize::try_from(n).map_err(|_| explained(io::Error::last_os_error()))
}

/// A size beyond the limits of sysctls too, as root may; the kernel doubles it.
pub(crate) fn size(socket: &Socket, option: i32, bytes: u32) -> io::Result<()> {
    let bytes = (bytes as i32).to_ne_bytes();
    set_option(socket, libc::SOL_SOCKET, option, &bytes)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    /// Notes the order of its calls.
    #[derive(Default)]
    struct Noted(Vec<&'static str>);

    impl Edges for Noted {
        fn prepare(&mut self) -> io::Result<()> {
            self.0.push("prepare");
            Ok(())
        }

        fn begin(&mut self) {
            self.0.push("begin");
        }

        fn end(&mut self) {
            self.0.push("end");
        }

        fn finish(&mut self) -> io::Result<()> {
            self.0.push("finish");
            Ok(())
        }
    }

    const ORDER: [&str; 4] = ["prepare", "begin", "end", "finish"];

    /// Check that sent data arrives, over loopback: streams with a rest, over one connection and
    /// over several, and turns with a time each; and that each block has a beginning and an end.
    #[test]
    fn bytes_and_turns() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let receiver = Receiver(listener);
        let stream =
            |connections| HostLoad::Stream { bytes: 1_000_001, write_bytes: 1_000, connections };
        let request = HostLoad::Request { turns: 5, size_bytes: 3_000 };
        for load in [stream(1), stream(3), request] {
            let sender = thread::spawn(move || {
                let connect = |_| TcpStream::connect(to).unwrap();
                let all = (0..load.connections()).map(connect).collect();
                let mut edges = Noted::default();
                let sent = Connections::new(all).unwrap().send(load, &mut edges);
                (sent.unwrap(), edges.0)
            });
            let mut edges = Noted::default();
            let mut connections = receiver.accept(load).unwrap();
            let received = connections.receive(load, &mut edges).unwrap();
            assert!(connections.segments(false).unwrap() > 0);
            drop(connections);
            let (sent, order) = sender.join().unwrap();
            assert_eq!((&order[..], &edges.0[..]), (&ORDER[..], &ORDER[..]));
            assert_eq!(sent.bytes, received.bytes);
            match load {
                HostLoad::Stream { bytes, .. } => assert_eq!(sent.bytes, bytes),
                HostLoad::Request { turns, .. } | HostLoad::Echo { turns, .. } => {
                    assert_eq!(sent.turns_ns.len(), turns as usize);
                }
                HostLoad::Web(_) => {}
            }
        }
    }
}
