//! Echoes of another machine: how long they take, while something else goes on.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::ends::raw_to;
use crate::packets::{ICMP_HEADER_BYTES, ICMP_ID, icmp_echo};

/// Bytes of an echo request, as `ping` sends them.
const ECHO_BYTES: usize = ICMP_HEADER_BYTES + 56;
/// The longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The socket that echoes are sent by, in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Echoes {
    socket: Socket,
    v6: bool,
    sequence: u16,
}

impl Echoes {
    /// Open a socket for echoes of a machine.
    ///
    /// # Errors
    /// It needs CAP_NET_RAW, or there is no route.
    pub fn connect(peer: IpAddr) -> io::Result<Echoes> {
        let socket = raw_to(peer)?;
        socket.connect(&SocketAddr::new(peer, 0).into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Echoes { socket, v6: peer.is_ipv6(), sequence: 0 })
    }

    /// The time of one echo; none if no answer came.
    ///
    /// # Errors
    /// It can't be sent.
    pub fn one(&mut self) -> io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = [0_u8; ECHO_BYTES];
        icmp_echo(&mut message, (ICMP_ID, self.sequence), self.v6);
        let begun = Instant::now();
        self.socket.send(&message)?;
        let wanted = self.sequence.to_be_bytes();
        let mut room = [MaybeUninit::<u8>::uninit(); 2048];
        while begun.elapsed() < PATIENCE {
            let length = match self.socket.recv(&mut room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            let took = begun.elapsed();
            // SAFETY: the kernel has written that many bytes.
            let bytes: Vec<u8> = room[..length.min(room.len())]
                .iter()
                .map(|byte| unsafe { byte.assume_init() })
                .collect();
            // Over IPv4 the IP header comes first, with its length in words in the first byte.
            let at = match self.v6 {
                true => 0,
                false => usize::from(bytes.first().copied().unwrap_or(0) & 0x0f) * 4,
            };
            let own =
                bytes.get(at + 4..at + 8) == Some(&[message[4], message[5], wanted[0], wanted[1]]);
            if own {
                return Ok(Some(took));
            }
        }
        Ok(None)
    }

    /// Send an echo at each interval until `end` is set; returns their round-trip times.
    ///
    /// # Errors
    /// As [`Echoes::one`].
    pub fn until(&mut self, every: Duration, end: &AtomicBool) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        while !end.load(Ordering::Relaxed) {
            if let Some(took) = self.one()? {
                all.push(took.as_nanos() as u64);
            }
            sleep(every);
        }
        Ok(all)
    }
}
