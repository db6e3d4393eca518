//! Bytes over connections: over one, or over several whenever each is ready.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Maximum time without a byte, by the guest's clock: a slow wire is not an error as long as frames
/// cross it, which the wire checks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn write_all(stream: &mut TcpStream, bytes: u64, buffer: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let now = left.min(buffer.len() as u64) as usize;
        stream.write_all(&buffer[..now]).map_err(explained)?;
        left -= now as u64;
    }
    Ok(())
}

pub(super) fn read_all(stream: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let mut done = 0;
    while done < bytes {
        match stream.read(buffer).map_err(explained)? {
            0 => break,
            bytes => done += bytes as u64,
        }
    }
    Ok(done)
}

/// The share of each of several connections, in bytes.
fn shares(bytes: u64, connections: usize) -> Vec<u64> {
    let connections = connections as u64;
    let share = |n| bytes / connections + u64::from(n < bytes % connections);
    (0..connections).map(share).collect()
}

/// Write each connection's share, in turns, to connections that have room.
pub(super) fn write_to_all(streams: &mut [TcpStream], bytes: u64, buffer: &[u8]) -> io::Result<()> {
    let mut left = shares(bytes, streams.len());
    by_turns(streams, libc::POLLOUT, &mut |number, stream| {
        let now = left[number].min(buffer.len() as u64) as usize;
        left[number] -= match now {
            0 => 0,
            _ => stream.write(&buffer[..now])? as u64,
        };
        Ok(left[number] > 0)
    })
}

/// Read each connection's share, in turns, from connections that have data; returns the number of
/// bytes.
pub(super) fn read_from_all(
    streams: &mut [TcpStream],
    bytes: u64,
    buffer: &mut [u8],
) -> io::Result<u64> {
    let mut left = shares(bytes, streams.len());
    let mut done = 0;
    by_turns(streams, libc::POLLIN, &mut |number, stream| {
        if left[number] == 0 {
            return Ok(false);
        }
        let read = stream.read(buffer)? as u64;
        if read == 0 || read > left[number] {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += read;
        left[number] -= read;
        Ok(left[number] > 0)
    })?;
    Ok(done)
}

/// Have each of some connections do a step whenever it can, until none has anything left to do.
pub(crate) fn by_turns(
    streams: &mut [TcpStream],
    events: libc::c_short,
    step: &mut dyn FnMut(usize, &mut TcpStream) -> io::Result<bool>,
) -> io::Result<()> {
    let mut polls: Vec<libc::pollfd> = (streams.iter())
        .map(|stream| libc::pollfd { fd: stream.as_raw_fd(), events, revents: 0 })
        .collect();
    for stream in streams.iter() {
        stream.set_nonblocking(true)?;
    }
    // A connection that is done has a descriptor below 0, which poll() passes over.
    while polls.iter().any(|poll| poll.fd >= 0) {
        let count = polls.len() as libc::nfds_t;
        // SAFETY: the pointer and the number describe `polls`.
        match unsafe { libc::poll(polls.as_mut_ptr(), count, PATIENCE.as_millis() as i32) } {
            0 => return Err(explained(io::ErrorKind::TimedOut.into())),
            n if n < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
        for (number, poll) in polls.iter_mut().enumerate() {
            if poll.fd < 0 || poll.revents == 0 {
                continue;
            }
            match step(number, &mut streams[number]) {
                Ok(true) => {}
                Ok(false) => poll.fd = -1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    for stream in streams.iter() {
        stream.set_nonblocking(false)?;
    }
    Ok(())
}

/// An error with the reason that is likely between two hosts.
pub(crate) fn explained(error: io::Error) -> io::Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that connections share all bytes, and none has more than one byte more than another.
    #[test]
    fn bytes_are_shared() {
        assert_eq!(shares(10, 3), [4, 3, 3]);
        assert_eq!(shares(2, 3), [1, 1, 0]);
    }
}
