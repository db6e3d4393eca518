//! What two hosts send to each other over TCP: a stream of bytes, or requests and answers.
//!
//! Each block has a connection of its own, over fixed ports: the sender's differ from block to
//! block, since a closed connection keeps its pair of ports for a while.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use netplumb_model::hosts::HostLoad;
use netplumb_sys::netns::inside;
use socket2::Socket;

use crate::ends::{RX_PORT, TX_PORT, set_option, stream};

/// Maximum time without a byte, by the guest's clock: TCP itself would try for minutes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host that receives.
#[derive(Debug)]
pub struct Receiver(TcpListener);

/// A connection to the other host.
#[derive(Debug)]
pub struct Connection(TcpStream);

/// What a block did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Bytes of payload that were sent, or received: of the requests.
    pub bytes: u64,
    /// The time of each turn.
    pub turns_ns: Vec<u64>,
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
            socket.listen(1)?;
            // SAFETY: the descriptor was just given up by its owner.
            Ok(Receiver(unsafe {
                TcpListener::from_raw_fd(socket.into_raw_fd())
            }))
        })
    }

    /// Wait for the next connection.
    ///
    /// # Errors
    /// None comes.
    pub fn accept(&self) -> io::Result<Connection> {
        let (stream, _) = self.0.accept().map_err(told)?;
        Connection::new(stream)
    }
}

impl Connection {
    /// Connect to a receiver for a block, with a send buffer of this size.
    ///
    /// # Errors
    /// The socket call that failed.
    pub fn open(
        namespace: BorrowedFd<'_>,
        from: IpAddr,
        to: IpAddr,
        block: u32,
        buffer_bytes: Option<u32>,
    ) -> io::Result<Connection> {
        inside(namespace, || {
            let port = u32::from(TX_PORT) + block % 10_000;
            let socket = stream(SocketAddr::new(from, port as u16))?;
            if let Some(bytes) = buffer_bytes {
                size(&socket, libc::SO_SNDBUFFORCE, bytes)?;
            }
            let to = SocketAddr::new(to, RX_PORT);
            socket.connect_timeout(&to.into(), PATIENCE).map_err(told)?;
            // SAFETY: the descriptor was just given up by its owner.
            Connection::new(unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) })
        })
    }

    fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection(stream))
    }

    /// Send a block, and wait until the receiver has all of it and closes the connection.
    ///
    /// # Errors
    /// The connection ended early, or nothing moves.
    pub fn send(&mut self, load: HostLoad) -> io::Result<Done> {
        let mut done = Done::default();
        match load {
            HostLoad::Stream { bytes, write_bytes } => {
                let buffer = vec![0x5a; write_bytes as usize];
                while done.bytes < bytes {
                    let now = (bytes - done.bytes).min(buffer.len() as u64) as usize;
                    self.0.write_all(&buffer[..now]).map_err(told)?;
                    done.bytes += now as u64;
                }
            }
            HostLoad::Request { turns, size_bytes } => {
                let mut buffer = vec![0x5a; size_bytes as usize];
                done.turns_ns = Vec::with_capacity(turns as usize);
                for _ in 0..turns {
                    let began = Instant::now();
                    self.0.write_all(&buffer).map_err(told)?;
                    self.0.read_exact(&mut buffer).map_err(told)?;
                    done.turns_ns.push(began.elapsed().as_nanos() as u64);
                    done.bytes += u64::from(size_bytes);
                }
            }
        }
        self.0.shutdown(Shutdown::Write)?;
        match self.0.read(&mut [0]).map_err(told)? {
            0 => Ok(done),
            _ => Err(io::Error::other(
                "the receiver sent more than was asked for",
            )),
        }
    }

    /// Receive a block, to the end of the connection, and answer requests.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn receive(&mut self, load: HostLoad) -> io::Result<Done> {
        const READ_BYTES: usize = 64 << 10;
        let mut done = Done::default();
        match load {
            HostLoad::Stream { .. } => {
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    match self.0.read(&mut buffer).map_err(told)? {
                        0 => return Ok(done),
                        bytes => done.bytes += bytes as u64,
                    }
                }
            }
            HostLoad::Request { turns, size_bytes } => {
                let mut buffer = vec![0; size_bytes as usize];
                for _ in 0..turns {
                    self.0.read_exact(&mut buffer).map_err(told)?;
                    self.0.write_all(&buffer).map_err(told)?;
                    done.bytes += u64::from(size_bytes);
                }
                match self.0.read(&mut [0]).map_err(told)? {
                    0 => Ok(done),
                    _ => Err(io::Error::other("more requests than were asked for")),
                }
            }
        }
    }

    /// Segments that were sent again so far.
    ///
    /// # Errors
    /// The query failed.
    pub fn retransmitted(&self) -> io::Result<u64> {
        // SAFETY: a structure of integers, for which zero is a value.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the pointer and the length are those of `info`.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &mut length,
            )
        };
        match result {
            0 => Ok(u64::from(info.tcpi_total_retrans)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The size of its buffer now: to send, or to receive.
    ///
    /// # Errors
    /// The query failed.
    pub fn buffer_bytes(&self, sends: bool) -> io::Result<u64> {
        let socket = socket2::SockRef::from(&self.0);
        let bytes = match sends {
            true => socket.send_buffer_size()?,
            false => socket.recv_buffer_size()?,
        };
        Ok(bytes as u64)
    }
}

/// An error with the reason that is likely between two hosts.
fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "nothing came for {} s of the guest's time: is the wire too slow, or does it lose too much?",
                PATIENCE.as_secs()
            ),
        ),
        _ => error,
    }
}

/// A size beyond the limits of sysctls too, as root may; the kernel doubles it.
fn size(socket: &Socket, option: i32, bytes: u32) -> io::Result<()> {
    let bytes = (bytes as i32).to_ne_bytes();
    set_option(socket, libc::SOL_SOCKET, option, &bytes)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    /// Check that what is sent arrives, over loopback: streams with a rest, and turns with a time
    /// each.
    #[test]
    fn bytes_and_turns() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let receiver = Receiver(listener);
        for load in [
            HostLoad::Stream {
                bytes: 100_001,
                write_bytes: 1_000,
            },
            HostLoad::Request {
                turns: 5,
                size_bytes: 3_000,
            },
        ] {
            let sender = thread::spawn(move || {
                let mut connection = Connection::new(TcpStream::connect(to).unwrap()).unwrap();
                connection.send(load).unwrap()
            });
            let received = receiver.accept().unwrap().receive(load).unwrap();
            let sent = sender.join().unwrap();
            assert_eq!(sent.bytes, received.bytes);
            match load {
                HostLoad::Stream { bytes, .. } => assert_eq!(sent.bytes, bytes),
                HostLoad::Request { turns, .. } => {
                    assert_eq!(sent.turns_ns.len(), turns as usize);
                }
            }
        }
    }
}
