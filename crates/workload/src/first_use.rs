//! Triggers one-time work of the kernel, on first use of its network, before anything is measured.
//!
//! The first connection of a boot initialises secrets and tables of random numbers
//! (include/linux/once.h): the table for choosing TCP ports alone (`table_perturb` in
//! net/ipv4/inet_hashtables.c) is 256 KiB from Linux 6.1 on, which costs more than a short command.
//! Connections over the loopback device do not affect the links, their neighbours and routes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use netplumb_sys::netns::inside;
use socket2::SockRef;

use crate::ends::Ends;

/// Time for deferred work of the kernel, such as freeing sockets by RCU.
const SETTLES: Duration = Duration::from_millis(100);

impl Ends {
    /// Make connections over the loopback devices of both ends, by TCP and UDP, and close them.
    ///
    /// # Errors
    /// A socket call failed.
    pub fn warm(&self, connections: u32) -> io::Result<()> {
        for namespace in [&self.tx_namespace, &self.rx_namespace] {
            inside(namespace.as_fd(), || {
                for _ in 0..connections {
                    connection(Ipv4Addr::LOCALHOST.into())?;
                    match connection(Ipv6Addr::LOCALHOST.into()) {
                        // The kernel lacks IPv6, or a sysctl disables it.
                        Err(error) if lacks_family(&error) => {}
                        other => other?,
                    }
                }
                Ok(())
            })?;
        }
        if connections > 0 {
            thread::sleep(SETTLES);
        }
        Ok(())
    }
}

fn lacks_family(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::ENETUNREACH)
    )
}

fn connection(address: IpAddr) -> io::Result<()> {
    let mut byte = [1];
    let listener = TcpListener::bind((address, 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(&byte)?;
    server.read_exact(&mut byte)?;
    // Close by a reset, to avoid TIME_WAIT on both sides.
    for end in [&client, &server] {
        SockRef::from(end).set_linger(Some(Duration::ZERO))?;
    }
    let receiver = UdpSocket::bind((address, 0))?;
    let sender = UdpSocket::bind((address, 0))?;
    sender.send_to(&byte, receiver.local_addr()?)?;
    receiver.recv(&mut byte)?;
    Ok(())
}
