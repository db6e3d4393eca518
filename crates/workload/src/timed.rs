//! Blocks for instruments that measure time: of a number of packets or a duration, paced, one
//! packet at a time or as a stream.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::class::Proto;
use netplumb_model::recording::Ledger;

use crate::packets::{ExtraCounters, Traffic, now_ns, readable};

/// Maximum number of latencies to keep.
const MAX_LATENCIES: usize = 1 << 20;
/// How long a receiver of a stream waits for more after the sender has ended.
const LINGER: Duration = Duration::from_millis(20);
/// The same for TCP, which retransmits.
const TCP_LINGER: Duration = Duration::from_secs(5);
/// How long to wait for packets in qdiscs at the end of a block.
const LATE_MOST: Duration = Duration::from_secs(1);

/// The result of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimedBlock {
    /// What became of the block's packets.
    pub ledger: Ledger,
    /// From sending the first packet to the arrival of the last one.
    pub duration_ns: u64,
    /// Latencies from before sending a packet to after receiving it, ascending; only for packets
    /// sent one at a time.
    pub latencies_ns: Vec<u32>,
}

impl TimedBlock {
    /// A quantile of latencies; none without packets.
    pub fn latency_ns(&self, share: f64) -> Option<u32> {
        let last = self.latencies_ns.len().checked_sub(1)?;
        let at = (share * last as f64).round() as usize;
        self.latencies_ns.get(at.min(last)).copied()
    }
}

impl Traffic<'_> {
    /// Run a block, without regard to timer ticks. Ends early if `stop` is set.
    ///
    /// # Errors
    /// A packet could not be sent, or a counter not read. Lost packets are not an error: the ledger
    /// names them.
    pub fn timed_block(&mut self, stop: &AtomicBool) -> io::Result<TimedBlock> {
        const ASKED: ExtraCounters = ExtraCounters { queues: true };
        self.woken = true;
        self.forget_late()?;
        let before = self.drops(ASKED)?;
        let mut end = End::new(self.plan.packets, self.plan.block_ns, stop);
        let mut pace = self.plan.rate_pps.map(Pace::new);
        let began = Instant::now();
        let (offered, delivered, mut latencies_ns) = if self.plan.stream {
            let (offered, delivered) = self.stream(&mut end, &mut pace)?;
            (offered, delivered, Vec::new())
        } else {
            self.one_by_one(&mut end, &mut pace)?
        };
        let duration_ns = began.elapsed().as_nanos() as u64;
        let delivered = delivered + self.late(offered.saturating_sub(delivered))?;
        latencies_ns.sort_unstable();
        Ok(TimedBlock {
            ledger: self.ledger((ASKED, &before), offered, delivered)?,
            duration_ns,
            latencies_ns,
        })
    }

    /// Receive late packets as long as qdiscs are not empty: delayed packets are not lost. Returns
    /// the number of missing packets that arrived.
    fn late(&mut self, missing: u64) -> io::Result<u64> {
        if missing == 0 || self.plan.proto == Proto::Tcp {
            return Ok(0);
        }
        let (fd, begun) = (self.sockets.rx.as_raw_fd(), Instant::now());
        let mut arrived = 0;
        while arrived < missing {
            if readable(fd, LINGER.as_millis() as i32)? {
                self.receive()?;
                arrived += 1;
            } else if self.waiting() == 0 || begun.elapsed() > LATE_MOST {
                break;
            }
        }
        Ok(arrived)
    }

    /// Discard late packets of a previous block.
    fn forget_late(&mut self) -> io::Result<()> {
        while self.plan.proto != Proto::Tcp && readable(self.sockets.rx.as_raw_fd(), 0)? {
            self.receive()?;
        }
        Ok(())
    }

    fn one_by_one(
        &mut self,
        end: &mut End<'_>,
        pace: &mut Option<Pace>,
    ) -> io::Result<(u64, u64, Vec<u32>)> {
        let (mut offered, mut delivered) = (0, 0);
        let mut latencies_ns = Vec::new();
        while !end.is_there(offered) {
            if let Some(pace) = pace {
                pace.wait();
            }
            let sent_ns = now_ns();
            let arrived = self.one()?;
            let took_ns = now_ns() - sent_ns;
            offered += 1;
            delivered += u64::from(arrived);
            if arrived && latencies_ns.len() < MAX_LATENCIES {
                latencies_ns.push(u32::try_from(took_ns).unwrap_or(u32::MAX));
            }
        }
        Ok((offered, delivered, latencies_ns))
    }

    /// Receive in another thread, while this one sends.
    fn stream(&mut self, end: &mut End<'_>, pace: &mut Option<Pace>) -> io::Result<(u64, u64)> {
        let proto = self.plan.proto;
        let message_bytes = self.message.len() as u64;
        let receiving = self.sockets.rx.try_clone()?;
        set_patience(receiving.as_fd(), Some(LINGER))?;
        let sent_all = AtomicBool::new(false);
        let sent = AtomicU64::new(0);
        let result: io::Result<(u64, u64)> = thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let all_of = |received: u64| {
                    let wanted = sent.load(Ordering::Relaxed);
                    received >= if proto == Proto::Tcp { wanted * message_bytes } else { wanted }
                };
                let mut received = 0;
                let mut quiet = Duration::ZERO;
                let patience = match proto {
                    Proto::Tcp => TCP_LINGER,
                    _ => LINGER,
                };
                let mut buffer = vec![0_u8; (message_bytes as usize + 256).max(64 << 10)];
                loop {
                    let done = sent_all.load(Ordering::Acquire);
                    let got = receive(receiving.as_raw_fd(), &mut buffer)?;
                    quiet = match got {
                        Some(_) => Duration::ZERO,
                        None => quiet + LINGER,
                    };
                    match got {
                        Some(0) if proto == Proto::Tcp => return Ok(received),
                        Some(n) if proto == Proto::Tcp => received += n as u64,
                        Some(_) => received += 1,
                        // Nothing has arrived for a while.
                        None if done && quiet >= patience => return Ok(received),
                        None => {}
                    }
                    if sent_all.load(Ordering::Acquire) && all_of(received) {
                        return io::Result::Ok(received);
                    }
                }
            });
            let mut offered = 0;
            let mut failed = Ok(());
            while !end.is_there(offered) {
                if let Some(pace) = pace {
                    pace.wait();
                }
                self.next();
                failed = self.send();
                if failed.is_err() {
                    break;
                }
                offered += 1;
                sent.store(offered, Ordering::Relaxed);
            }
            sent_all.store(true, Ordering::Release);
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            failed?;
            Ok((offered, received?))
        });
        set_patience(self.sockets.rx.as_fd(), None)?;
        let (offered, received) = result?;
        Ok(match proto {
            Proto::Tcp => (offered, received / message_bytes.max(1)),
            _ => (offered, received),
        })
    }
}

/// Receive once; none after the socket's timeout.
fn receive(fd: i32, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the pointer and the length come from the buffer.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if n >= 0 {
        return Ok(Some(n as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Set a socket's receive timeout; none to wait forever.
fn set_patience(socket: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<()> {
    socket2::SockRef::from(&socket).set_read_timeout(patience)
}

/// The end of a block.
struct End<'a> {
    packets: Option<u64>,
    at_ns: Option<i64>,
    stop: &'a AtomicBool,
}

impl<'a> End<'a> {
    fn new(packets: u32, block_ns: Option<u64>, stop: &'a AtomicBool) -> End<'a> {
        let at_ns = block_ns.map(|ns| now_ns().saturating_add(ns as i64));
        End { packets: at_ns.is_none().then_some(u64::from(packets)), at_ns, stop }
    }

    fn is_there(&mut self, sent: u64) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.packets.is_some_and(|packets| sent >= packets)
            // A clock is read for each packet: by the vDSO, in some 30 ns.
            || self.at_ns.is_some_and(|at| now_ns() >= at)
    }
}

/// Paces packets at a mean rate, not in step with the timer tick: each gap is between half and one
/// and a half of the mean.
#[derive(Debug)]
struct Pace {
    gap_ns: f64,
    next_ns: f64,
    random: u64,
}

impl Pace {
    fn new(rate_pps: u32) -> Pace {
        // A gap is timed to the nanosecond, where Linux would add 50 us of slack.
        // SAFETY: sets a number of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Pace {
            gap_ns: 1e9 / f64::from(rate_pps.max(1)),
            next_ns: now_ns() as f64,
            random: now_ns() as u64 | 1,
        }
    }

    /// The time of the next packet. A late sender sends immediately, and catches up on a few
    /// packets only, to avoid bursts.
    fn next(&mut self, now_ns: f64) -> f64 {
        const BURST: f64 = 8.0;
        // Marsaglia's xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        let due = self.next_ns.max(now_ns - BURST * self.gap_ns);
        self.next_ns = due + self.gap_ns * (0.5 + share);
        due
    }

    fn wait(&mut self) {
        let due_ns = self.next(now_ns() as f64) as i64;
        if due_ns <= now_ns() {
            return;
        }
        let until =
            libc::timespec { tv_sec: due_ns / 1_000_000_000, tv_nsec: due_ns % 1_000_000_000 };
        // SAFETY: the timespec outlives the call; no remainder is asked for. A signal
        // only ends the sleep early.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &until,
                std::ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use netplumb_model::class::{Family, Link};
    use netplumb_model::message::RunPlan;

    use super::*;
    use netplumb_model::topology::ArmTopology;
    use netplumb_sys::netns::{self, Namespace};

    use crate::ends::Ends;

    /// Check that gaps vary with the given mean, and that a delayed sender does not send a burst.
    #[test]
    fn gaps() {
        let mut pace = Pace { gap_ns: 1_000.0, next_ns: 0.0, random: 7 };
        let mut due = Vec::new();
        for _ in 0..10_000 {
            due.push(pace.next(0.0));
        }
        let gaps: Vec<f64> = due.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.iter().all(|g| (500.0..=1_500.0).contains(g)));
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1_000.0).abs() < 10.0, "{mean}");
        let late_ns = 1e9;
        let caught_up = (0..100).filter(|_| pace.next(late_ns) <= late_ns).count();
        assert!(caught_up < 20, "{caught_up}");
    }

    fn plan(proto: Proto) -> RunPlan {
        RunPlan {
            proto,
            host: None,
            family: Family::V4,
            link: Link::Lo,
            topology: ArmTopology::direct(),
            queues: None,
            size_bytes: 100,
            mtu_bytes: None,
            packets: 50,
            block_ns: None,
            rate_pps: None,
            stream: false,
            new_flows: false,
            replies: false,
            warmup_packets: 0,
            blocks: 1,
            aligned: false,
            sysctl: Default::default(),
            offload: Default::default(),
            nics: Default::default(),
            nft: None,
            qdisc: None,
            programs: Vec::new(),
            from_device: None,
        }
    }

    /// Both ends on the loopback device of a new namespace of this thread.
    fn alone() -> Option<Ends> {
        let alone = netns::enter_new().and_then(|()| Namespace::current()?.try_clone());
        let Ok(tx) = alone else {
            netplumb_testkit::skip("no network namespace: not root");
            return None;
        };
        let up = std::process::Command::new("/sbin/ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        Some(Ends {
            rx_namespace: tx.try_clone().unwrap(),
            tx_namespace: tx,
            between: Vec::new(),
            tx_address: Ipv4Addr::LOCALHOST.into(),
            rx_address: Ipv4Addr::LOCALHOST.into(),
            to_address: Ipv4Addr::LOCALHOST.into(),
        })
    }

    /// Check blocks by packets and by time, one packet at a time and as a stream, over the loopback
    /// device of a new namespace: the ledgers balance. Needs root.
    #[test]
    fn blocks() {
        // A separate thread enters the namespace, and ends with the test.
        let ran = thread::spawn(move || {
            let Some(ends) = alone() else { return };
            let stop = AtomicBool::new(false);
            for proto in [Proto::Udp, Proto::Tcp, Proto::Raw] {
                let packets = plan(proto);
                let one = Traffic::open(&packets, &ends).unwrap().timed_block(&stop).unwrap();
                assert_eq!((one.ledger.offered, one.ledger.delivered), (50, 50), "{proto}");
                assert_eq!(one.latencies_ns.len(), 50);
                assert!(one.latency_ns(0.5) <= one.latency_ns(0.99));
                let stream = RunPlan {
                    stream: true,
                    rate_pps: Some(5_000),
                    block_ns: Some(50_000_000),
                    ..plan(proto)
                };
                let mut traffic = Traffic::open(&stream, &ends).unwrap();
                let block = traffic.timed_block(&stop).unwrap();
                assert!(block.ledger.offered > 10, "{proto} {block:?}");
                assert!(block.ledger.closes(), "{proto} {block:?}");
                // Again, with the same sockets.
                assert!(traffic.timed_block(&stop).unwrap().ledger.closes());
                stop.store(true, Ordering::Relaxed);
                assert_eq!(traffic.timed_block(&stop).unwrap().ledger.offered, 0);
                stop.store(false, Ordering::Relaxed);
            }
        });
        ran.join().unwrap();
    }

    /// Check that drops by a full socket buffer are counted once, and that a block receives nothing
    /// of a previous one. Needs root.
    #[test]
    fn a_full_socket() {
        let ran = thread::spawn(|| {
            let Some(ends) = alone() else { return };
            let packets = plan(Proto::Udp);
            let mut traffic = Traffic::open(&packets, &ends).unwrap();
            let rx = traffic.sockets.rx.try_clone().unwrap();
            socket2::SockRef::from(&rx).set_recv_buffer_size(1).unwrap();
            let asked = ExtraCounters { queues: true };
            let before = traffic.drops(asked).unwrap();
            for _ in 0..50 {
                traffic.send().unwrap();
            }
            let mut delivered = 0;
            while readable(rx.as_raw_fd(), 0).unwrap() {
                traffic.receive().unwrap();
                delivered += 1;
            }
            assert!((1..50).contains(&delivered), "{delivered}");
            let ledger = traffic.ledger((asked, &before), 50, delivered).unwrap();
            assert!(ledger.closes(), "{ledger:?}");
            let causes: Vec<&String> = ledger.dropped.keys().collect();
            assert_eq!(causes, ["receiver: UdpRcvbufErrors"]);
            // Two packets that were not received don't belong to the next block.
            traffic.send().unwrap();
            let stop = AtomicBool::new(false);
            let block = traffic.timed_block(&stop).unwrap();
            assert_eq!((block.ledger.offered, block.ledger.delivered), (50, 50));
        });
        ran.join().unwrap();
    }
}
