//! Queries of a DPDK process by its telemetry socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a reply, as it announces at the start.
const ANSWER_BYTES: usize = 16 << 10;
/// Timeout of a reply, which takes a millisecond.
const PATIENCE_SECONDS: i64 = 2;

/// Counters of a port: `struct rte_eth_stats`, lib/ethdev/rte_ethdev.h.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Port {
    pub(super) ipackets: u64,
    pub(super) opackets: u64,
    pub(super) ibytes: u64,
    pub(super) obytes: u64,
    pub(super) imissed: u64,
    pub(super) ierrors: u64,
    pub(super) oerrors: u64,
    pub(super) rx_nombuf: u64,
}

/// A connection to a process.
#[derive(Debug)]
pub(super) struct Telemetry {
    socket: OwnedFd,
    /// The DPDK version.
    pub(super) version: String,
}

impl Telemetry {
    /// Connect to a process whose files are in this directory.
    pub(super) fn connect(folder: &Path) -> io::Result<Telemetry> {
        // SAFETY: takes numbers, and gives a descriptor of our own.
        let fd =
            unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let patience = libc::timeval { tv_sec: PATIENCE_SECONDS, tv_usec: 0 };
        // SAFETY: the pointer is to a value of this size.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        let path = folder.join("dpdk_telemetry.v2");
        let path = path.as_os_str().as_encoded_bytes();
        // SAFETY: an all-zero address is a valid value.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        if path.len() >= address.sun_path.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the address has the given length.
        let result = unsafe {
            libc::connect(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_un>() as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut telemetry = Telemetry { socket, version: String::new() };
        // It sends a greeting first.
        let greeting = telemetry.receive()?;
        let version = greeting["version"].as_str().unwrap_or("of no version");
        telemetry.version = version.to_string();
        Ok(telemetry)
    }

    /// Send a query: `/ethdev/stats,0`.
    fn ask(&self, what: &str) -> io::Result<Value> {
        // SAFETY: the pointer is to as many bytes as are named.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                what.as_ptr().cast(),
                what.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = self.receive()?;
        let key = what.split(',').next().unwrap_or(what);
        Ok(answer[key].take())
    }

    fn receive(&self) -> io::Result<Value> {
        let mut answer = vec![0_u8; ANSWER_BYTES];
        // SAFETY: the pointer is to as many bytes as are named.
        let bytes = unsafe {
            libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
        };
        match usize::try_from(bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => Ok(serde_json::from_slice(&answer[..bytes])?),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// The counters of a port.
    pub(super) fn port(&self, number: u32) -> io::Result<Port> {
        let answer = self.ask(&format!("/ethdev/stats,{number}"))?;
        Ok(serde_json::from_value(answer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the parsing of a reply of DPDK 22.11.
    #[test]
    fn counters_of_a_port() {
        let answer = r#"{"ipackets":3,"opackets":4,"ibytes":250,"obytes":251,"imissed":5,
            "ierrors":6,"oerrors":7,"rx_nombuf":8,"q_ipackets":[3,0],"q_errors":[0,0]}"#;
        let port: Port = serde_json::from_str(answer).unwrap();
        assert_eq!((port.ipackets, port.opackets, port.imissed), (3, 4, 5));
        assert_eq!((port.oerrors, port.rx_nombuf, port.obytes), (7, 8, 251));
        assert!(serde_json::from_str::<Port>("null").is_err());
    }
}
