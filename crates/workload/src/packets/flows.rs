//! New flows: each packet is the first of its own, of a port or an identifier that no other has; of TCP, a connection that
//! is made, used once and closed. Connection tracking, NAT and caches of routes see it for the first time.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use netplumb_model::class::Proto;
use netplumb_model::experiment::MAX_NEW_FLOWS;
use netplumb_sys::netns::inside;
use socket2::SockAddr;

use crate::ends::{RX_PORT, stream, udp};
use crate::mark::{self, mark};

use super::{NAP, Traffic, wait_readable};

/// The first port of flows, which have `MAX_NEW_FLOWS`, one after the other.
const FIRST_PORT: u16 = 41_000;
/// Polls of a link that delivers by interrupt, for the last segments of a connection.
const LAST_NAPS: u32 = 5;

/// What is needed for the next flow.
#[derive(Debug, Default)]
pub(crate) struct NewFlows {
    /// Takes connections, of TCP.
    listener: Option<OwnedFd>,
    /// Flows so far.
    number: u16,
    /// Where datagrams are sent: their sockets are not connected, since that would look up their routes.
    pub(crate) to: Option<SockAddr>,
}

impl NewFlows {
    /// For a protocol, whose receiver is this: for TCP, a listener.
    pub(crate) fn new(proto: Proto, receiver: &OwnedFd, to: SocketAddr) -> io::Result<NewFlows> {
        Ok(NewFlows {
            listener: (proto == Proto::Tcp).then(|| receiver.try_clone()).transpose()?,
            number: 0,
            to: (proto == Proto::Udp).then(|| to.into()),
        })
    }

    /// The number of the current flow.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn next_port(&mut self) -> u16 {
        self.number = (self.number + 1) % MAX_NEW_FLOWS;
        FIRST_PORT + self.number
    }
}

impl Traffic<'_> {
    /// Open the next flow, if each packet has its own.
    pub(crate) fn begin_flow(&mut self) -> io::Result<()> {
        let Some(flows) = &mut self.flows else {
            return Ok(());
        };
        let from = SocketAddr::new(self.ends.tx_address, flows.next_port());
        let namespace = self.ends.tx_namespace.as_fd();
        match self.plan.proto {
            Proto::Udp => self.sockets.tx = inside(namespace, || udp(from))?.into(),
            Proto::Tcp => {
                self.sockets.tx = inside(namespace, || stream(from))?.into();
                self.connect()?;
            }
            // Its identifier is in the message.
            Proto::Raw | Proto::Command | Proto::Work => {}
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        let Some(listener) = self.flows.as_ref().and_then(|flows| flows.listener.as_ref()) else {
            return Ok(());
        };
        let to = SockAddr::from(SocketAddr::new(self.ends.to_address, RX_PORT));
        let fd = self.sockets.tx.as_raw_fd();
        mark::<{ mark::CONNECT }>();
        mark::<{ mark::TX_BEGIN }>();
        // SAFETY: the pointer and the length are the address's.
        let connected = unsafe { libc::connect(fd, to.as_ptr().cast(), to.len()) };
        mark::<{ mark::TX_END }>();
        if connected != 0 {
            return Err(io::Error::last_os_error());
        }
        if !wait_readable(listener.as_raw_fd(), self.patience())? {
            let why = "the receiver has not got the connection";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        mark::<{ mark::ACCEPT }>();
        mark::<{ mark::RX_BEGIN }>();
        // SAFETY: the peer's address is not asked for.
        let accepted = unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            )
        };
        mark::<{ mark::RX_END }>();
        mark::<{ mark::PACKETS }>();
        if accepted < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        self.sockets.rx = unsafe { OwnedFd::from_raw_fd(accepted) };
        Ok(())
    }

    /// End the flow of a packet, if it has its own.
    pub(crate) fn end_flow(&mut self) -> io::Result<()> {
        let Some(listener) = self.flows.as_ref().and_then(|flows| flows.listener.as_ref()) else {
            return Ok(());
        };
        let [client, server] = [&mut self.sockets.tx, &mut self.sockets.rx]
            .map(|socket| Ok::<_, io::Error>(std::mem::replace(socket, listener.try_clone()?)));
        let (client, server) = (client?, server?);
        mark::<{ mark::CLOSE }>();
        mark::<{ mark::TX_BEGIN }>();
        // SAFETY: the descriptor was just given up by its owner.
        unsafe { libc::close(client.into_raw_fd()) };
        mark::<{ mark::TX_END }>();
        // The end of the connection can be read.
        wait_readable(server.as_raw_fd(), self.patience())?;
        mark::<{ mark::RX_BEGIN }>();
        // SAFETY: as above.
        unsafe { libc::close(server.into_raw_fd()) };
        mark::<{ mark::RX_END }>();
        if self.plan.link.has_nics() {
            std::thread::sleep(NAP * LAST_NAPS);
        }
        mark::<{ mark::PACKETS }>();
        Ok(())
    }

    /// Answer a datagram, and receive the answer; returns whether it arrived.
    pub(crate) fn reply(&mut self) -> io::Result<bool> {
        let source = self.source.take();
        // The socket of a single flow is connected.
        let (to, to_len) = (source.as_ref())
            .map_or((std::ptr::null(), 0), |source| (source.as_ptr().cast(), source.len()));
        let (fd, bytes) = (self.sockets.rx.as_raw_fd(), &self.message[..]);
        mark::<{ mark::REPLY }>();
        mark::<{ mark::TX_BEGIN }>();
        // SAFETY: the pointers and lengths are the message's and the address's.
        let sent = unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), 0, to, to_len) };
        mark::<{ mark::TX_END }>();
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let arrived = wait_readable(self.sockets.tx.as_raw_fd(), self.patience())?;
        if arrived {
            let fd = self.sockets.tx.as_raw_fd();
            self.receive_by(fd)?;
        }
        mark::<{ mark::PACKETS }>();
        Ok(arrived)
    }
}
