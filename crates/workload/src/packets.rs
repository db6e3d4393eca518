//! One packet at a time, with markers around the system calls that send and receive.
//!
//! The sender waits for each packet to arrive before the next: per-packet cost without queueing.
//! The receiver's system call is made when the packet has arrived, so that receiving does not
//! include waiting. With instruments that measure time, the receiver sleeps and is woken by the
//! packet, like other programs.

mod flows;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use netplumb_model::class::{Family, Proto};
use netplumb_model::message::RunPlan;
use netplumb_model::recording::Ledger;
use socket2::{SockAddr, Socket};

use crate::drops;
use crate::ends::{Ends, RX_PORT, Sockets, TX_PORT, disconnect};
use crate::mark::{self, mark};
use flows::NewFlows;

/// Sleep between polls on links that deliver by interrupt, and their number before a packet counts
/// as lost.
pub(crate) const NAP: Duration = Duration::from_micros(200);
pub(crate) const NAPS: u32 = 1_000;
/// The same where BPF programs may drop packets.
const NAPS_OF_PROGRAMS: u32 = 10;
/// The same for TCP.
const TCP_NAPS: u32 = 25 * NAPS;
/// The cause of packets in a qdisc at the end of a block.
const IN_FLIGHT: &str = "in a queueing discipline at the end of the block";
/// Packets are sent in runs that begin just after a timer tick and end well before the next one, in
/// every boot: at a multiple of this on the monotonic clock (a multiple of the tick at 1000, 250
/// and 100 Hz; shorter than TCP's shortest timer, 40 ms), plus `PHASE_NS`.
const ALIGN_NS: i64 = 20_000_000;
const PHASE_NS: i64 = 500_000;
/// Maximum duration of a run: a tick at 250 Hz is 4 ms.
pub(crate) const RUN_NS: i64 = 2_000_000;

/// Which counters are read in addition to protocols' and devices'.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtraCounters {
    /// Counters of qdiscs and sockets.
    pub(crate) queues: bool,
}

/// Sends and receives for one plan.
#[derive(Debug)]
pub struct Traffic<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) ends: &'a Ends,
    pub(crate) sockets: Sockets,
    pub(crate) message: Vec<u8>,
    buffer: Vec<u8>,
    sequence: u16,
    /// Whether the receiver sleeps until the packet arrives, or polls.
    pub(crate) woken: bool,
    /// The flows, if each packet has its own.
    pub(crate) flows: Option<NewFlows>,
    /// Where the last datagram came from, if each comes from elsewhere and is answered.
    pub(crate) source: Option<SockAddr>,
}

impl<'a> Traffic<'a> {
    /// Open the sockets and establish connections.
    ///
    /// # Errors
    /// A socket call failed.
    pub fn open(plan: &'a RunPlan, ends: &'a Ends) -> io::Result<Self> {
        let size = plan.size_bytes as usize;
        let header = if plan.proto == Proto::Raw { ICMP_HEADER_BYTES } else { 0 };
        let mut message = vec![0; header + size];
        for (i, byte) in message[header..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        let mut traffic = Traffic {
            plan,
            ends,
            sockets: match plan.new_flows {
                true => ends.open_receiver(plan.proto)?,
                false => ends.open(plan.proto)?,
            },
            message,
            buffer: vec![0; size + 256],
            sequence: 0,
            woken: false,
            flows: None,
            source: None,
        };
        if plan.new_flows {
            let to = SocketAddr::new(ends.to_address, RX_PORT);
            traffic.flows = Some(NewFlows::new(plan.proto, &traffic.sockets.rx, to)?);
            return Ok(traffic);
        }
        if traffic.has_rules() && plan.proto == Proto::Udp && plan.from_device.is_none() {
            traffic.meet()?;
        }
        Ok(traffic)
    }

    /// Whether there are rules of the user's, which may change packets.
    fn has_rules(&self) -> bool {
        let rules = self.plan.nft.as_ref();
        self.plan.topology.spec.has_rules() || rules.is_some_and(|rules| !rules.is_generated())
    }

    fn has_programs(&self) -> bool {
        !self.plan.programs.is_empty()
    }

    /// Connect the receiver to the source that rules give the sender's datagrams; to the sender, if none arrives.
    fn meet(&mut self) -> io::Result<()> {
        let receiver = Socket::from(self.sockets.rx.try_clone()?);
        let own: SocketAddr = (self.ends.tx_address, TX_PORT).into();
        let sender = receiver.peer_addr().unwrap_or_else(|_| own.into());
        disconnect(&receiver)?;
        // It may be refused; then the warm-up is, too, and reports it.
        let arrives = self.send().is_ok() && wait_readable(receiver.as_raw_fd(), self.patience())?;
        let source = match arrives {
            true => receiver.recv_from(&mut [])?.1,
            false => sender,
        };
        receiver.connect(&source)
    }

    /// Explain an error, if rules may be the cause.
    fn explained(&self, error: io::Error) -> io::Error {
        match self.has_rules() {
            true => {
                let to = SocketAddr::new(self.ends.to_address, RX_PORT);
                let why = format!(
                    "{error}; the nft rules may reject, drop or redirect the packets, which are sent to {to} ({})",
                    self.plan.proto
                );
                io::Error::new(error.kind(), why)
            }
            false => error,
        }
    }

    /// Send the warm-up, uncounted.
    ///
    /// # Errors
    /// A packet could not be sent, or none arrived at all.
    pub fn warm_up(&mut self) -> io::Result<()> {
        let mut arrived = 0;
        for _ in 0..self.plan.warmup_packets {
            let one = self.one();
            arrived += u64::from(one.map_err(|error| self.explained(error))?);
        }
        // A program may be there to drop them.
        if arrived == 0 && self.plan.warmup_packets > 0 && !self.has_programs() {
            return Err(self.explained(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("none of {} warm-up packets arrived", self.plan.warmup_packets),
            )));
        }
        Ok(())
    }

    /// Run a block, in its window.
    ///
    /// # Errors
    /// A packet could not be sent, or a counter not read. Lost packets are not an error: they are
    /// in the ledger.
    pub fn block(&mut self) -> io::Result<Ledger> {
        // Default qdiscs drop none of these packets: they are not queried, since that would change
        // the state of the kernel.
        let asked = ExtraCounters { queues: self.plan.qdisc.is_some() || self.has_programs() };
        let before = self.drops(asked)?;
        let aligned = self.plan.aligned;
        let mut run_began_ns = if aligned { align() } else { 0 };
        let mut delivered = 0;
        let mut failed = None;
        mark::<{ mark::WINDOW_BEGIN }>();
        for _ in 0..self.plan.packets {
            // The clock is read in user mode, by the vDSO.
            if aligned && now_ns() - run_began_ns > RUN_NS {
                run_began_ns = align();
            }
            match self.one() {
                Ok(arrived) => delivered += u64::from(arrived),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        mark::<{ mark::WINDOW_END }>();
        if let Some(error) = failed {
            return Err(self.explained(error));
        }
        self.ledger((asked, &before), u64::from(self.plan.packets), delivered)
    }

    /// The ledger of packets sent since `before`, with the number delivered.
    pub(crate) fn ledger(
        &self,
        (asked, before): (ExtraCounters, &drops::Drops),
        offered: u64,
        delivered: u64,
    ) -> io::Result<Ledger> {
        // Only missing packets need a cause; counters may also have counted other packets.
        let mut missing = offered.saturating_sub(delivered);
        let mut dropped = drops::Drops::new();
        if missing > 0 {
            let moved = drops::since(before, &self.drops(asked)?);
            let mut causes = drops::causes(&moved);
            if asked.queues {
                causes.insert(IN_FLIGHT.into(), self.waiting());
            }
            for (cause, n) in causes {
                let n = n.min(missing);
                if n > 0 {
                    missing -= n;
                    dropped.insert(cause, n);
                }
            }
        }
        Ok(Ledger { offered, delivered, dropped })
    }

    pub(crate) fn drops(&self, asked: ExtraCounters) -> io::Result<drops::Drops> {
        let mut all = drops::Drops::new();
        for (end, namespace) in self.ends.all() {
            let mut found = drops::read(namespace.as_fd())?;
            if asked.queues {
                found.extend(drops::of_qdiscs(namespace.as_fd())?.0);
            }
            if self.has_programs() {
                found.extend(drops::of_programs(namespace.as_fd())?);
            }
            for (cause, n) in found {
                all.insert(format!("{end}: {cause}"), n);
            }
        }
        if self.plan.from_device.is_some() {
            let found = drops::of_devices(self.ends.rx_namespace.as_fd())?;
            let named = found.into_iter().map(|(c, n)| (format!("receiver: {c}"), n));
            all.extend(named);
        }
        if asked.queues {
            let dropped = self.sockets.dropped()?;
            all.insert(format!("receiver: {}", drops::SOCKET), dropped);
        }
        Ok(all)
    }

    /// Packets in qdiscs.
    pub(crate) fn waiting(&self) -> u64 {
        let all = self.ends.all();
        let waiting = all.map(|(_, namespace)| drops::of_qdiscs(namespace.as_fd()));
        waiting.flatten().map(|(_, waiting)| waiting).sum()
    }

    /// Send one message and receive it, in a flow of its own if each has one, and its answer if it gets one; returns
    /// whether all arrived.
    pub(crate) fn one(&mut self) -> io::Result<bool> {
        self.begin_flow()?;
        let mut arrived = self.message()?;
        if arrived && self.plan.replies {
            arrived = self.reply()?;
        }
        self.end_flow()?;
        Ok(arrived)
    }

    fn message(&mut self) -> io::Result<bool> {
        self.next();
        self.send()?;
        let mut left = match self.plan.proto {
            Proto::Tcp => self.message.len(),
            Proto::Raw | Proto::Udp | Proto::Command | Proto::Work => 1,
        };
        while left > 0 {
            if !wait_readable(self.sockets.rx.as_raw_fd(), self.patience())? {
                return Ok(false);
            }
            let got = self.receive()?;
            left = match self.plan.proto {
                Proto::Tcp if got == 0 => return Ok(false),
                Proto::Tcp => left.saturating_sub(got),
                Proto::Raw | Proto::Udp | Proto::Command | Proto::Work => 0,
            };
        }
        Ok(true)
    }

    /// How long to wait for a packet before it counts as lost. TCP retransmits after 200 ms at the
    /// earliest (net/ipv4/tcp.h, TCP_RTO_MIN).
    pub(crate) fn patience(&self) -> Patience {
        let naps = match self.plan.proto {
            // One that waited for each packet which a program drops would wait for hours.
            Proto::Udp | Proto::Raw if self.has_programs() => NAPS_OF_PROGRAMS,
            Proto::Tcp => TCP_NAPS,
            Proto::Raw | Proto::Udp | Proto::Command | Proto::Work => NAPS,
        };
        match self.woken {
            true => Patience { looks: 1, timeout_ms: (NAP * naps).as_millis() as i32 },
            false => Patience { looks: naps, timeout_ms: 0 },
        }
    }

    /// Prepare the next message.
    pub(crate) fn next(&mut self) {
        if self.plan.proto == Proto::Raw {
            self.sequence = self.sequence.wrapping_add(1);
            let v6 = self.plan.family == Family::V6;
            let flow = self.flows.as_ref().map_or(0, NewFlows::number);
            icmp_echo(&mut self.message, (ICMP_ID.wrapping_add(flow), self.sequence), v6);
        }
    }

    pub(crate) fn send(&self) -> io::Result<()> {
        let fd = self.sockets.tx.as_raw_fd();
        let to = self.flows.as_ref().and_then(|flows| flows.to.as_ref());
        let (to, to_len) = to.map_or((std::ptr::null(), 0), |to| (to.as_ptr().cast(), to.len()));
        let mut rest = &self.message[..];
        loop {
            mark::<{ mark::TX_BEGIN }>();
            // SAFETY: the pointers and lengths come from the slice and the address; without one, this is send().
            let n = unsafe { libc::sendto(fd, rest.as_ptr().cast(), rest.len(), 0, to, to_len) };
            mark::<{ mark::TX_END }>();
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            rest = rest.get(n as usize..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        self.receive_by(self.sockets.rx.as_raw_fd())
    }

    /// Receive by a socket.
    pub(crate) fn receive_by(&mut self, fd: RawFd) -> io::Result<usize> {
        let (at, len) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        if self.plan.replies && self.flows.is_some() {
            mark::<{ mark::RX_BEGIN }>();
            // SAFETY: the pointer and the length come from the buffer, and the address is the call's to fill.
            let got = unsafe {
                SockAddr::try_init(|source, source_len| {
                    let n = libc::recvfrom(fd, at, len, 0, source.cast(), source_len);
                    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
                })
            };
            mark::<{ mark::RX_END }>();
            let (n, source) = got?;
            self.source = Some(source);
            return Ok(n);
        }
        mark::<{ mark::RX_BEGIN }>();
        // SAFETY: the pointer and the length come from the buffer.
        let n = unsafe { libc::recv(fd, at, len, 0) };
        mark::<{ mark::RX_END }>();
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }
}

/// How to wait for a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Number of polls.
    looks: u32,
    /// Timeout of each.
    timeout_ms: i32,
}

/// Wait until something can be read, by polling or sleeping; returns whether it can.
pub(crate) fn wait_readable(fd: RawFd, patience: Patience) -> io::Result<bool> {
    for look in 0..patience.looks {
        if look > 0 && patience.timeout_ms == 0 {
            std::thread::sleep(NAP);
        }
        if readable(fd, patience.timeout_ms)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether something can be read within a timeout.
pub(crate) fn readable(fd: RawFd, timeout_ms: i32) -> io::Result<bool> {
    loop {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, as the count is.
        match unsafe { libc::poll(&mut poll, 1, timeout_ms) } {
            0 => return Ok(false),
            n if n < 0 => {
                let error = io::Error::last_os_error();
                // Signals are handled elsewhere.
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(true),
        }
    }
}

pub(crate) fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills in the timespec that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Sleep until the next run may begin; returns that time.
pub(crate) fn align() -> i64 {
    let until_ns = (now_ns() / ALIGN_NS + 2) * ALIGN_NS + PHASE_NS;
    let until =
        libc::timespec { tv_sec: until_ns / 1_000_000_000, tv_nsec: until_ns % 1_000_000_000 };
    // SAFETY: the timespec outlives the call; no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &until,
            std::ptr::null_mut(),
        )
    };
    until_ns
}

pub(crate) const ICMP_HEADER_BYTES: usize = 8;
const ICMP_ECHO: u8 = 8;
const ICMPV6_ECHO_REQUEST: u8 = 128;
/// Identifier of our echo requests.
pub(crate) const ICMP_ID: u16 = 0x504c;

/// Write the header of an echo request (RFC 792; RFC 4443, 4.1).
pub(crate) fn icmp_echo(message: &mut [u8], (id, sequence): (u16, u16), v6: bool) {
    message[0] = if v6 { ICMPV6_ECHO_REQUEST } else { ICMP_ECHO };
    message[1..4].fill(0);
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if !v6 {
        // Over IPv6 the kernel fills it in (RFC 3542, 3.1).
        let sum = internet_checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Give an echo request another sequence number. Its checksum is updated from the old one (RFC 1624, eqn. 3): summing a
/// large message takes as long as sending it.
pub(crate) fn next_echo(message: &mut [u8], sequence: u16, v6: bool) {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let (sum, was) = (word(2), word(6));
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if !v6 {
        let sum = u32::from(!sum) + u32::from(!was) + u32::from(sequence);
        // Twice: the carry may carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a message with its checksum in place sums to zero, odd
    /// lengths included.
    #[test]
    fn checksum_verifies() {
        for size in [8, 18, 19, 1480] {
            let mut message: Vec<u8> = (0..size).map(|i| i as u8).collect();
            icmp_echo(&mut message, (ICMP_ID, 77), false);
            assert_eq!(internet_checksum(&message), 0, "{size} bytes");
        }
    }

    /// Check that a message with another number is the same as one that is made anew, with any number and length.
    #[test]
    fn checksum_of_the_next() {
        for size in [8, 19, 64] {
            let mut message: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
            let mut anew = message.clone();
            for v6 in [true, false] {
                icmp_echo(&mut message, (ICMP_ID, 0), v6);
                for sequence in (0..=u16::MAX).rev() {
                    next_echo(&mut message, sequence, v6);
                    icmp_echo(&mut anew, (ICMP_ID, sequence), v6);
                    assert_eq!(message, anew, "{size} bytes, number {sequence}");
                }
            }
        }
    }
}
