//! Frames written to packet sockets, for devices that accept none by XDP.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netplumb_model::bench::Generated;
use netplumb_sys::errno;
use socket2::{Domain, Socket, Type};

use super::error::{GeneratorError, doing};
use super::maker::Maker;
use super::plan::GeneratorPlan;
use super::system;

/// Minimum sleep: waking up takes about as long.
const SLEEP_LEAST_NS: u64 = 100_000;
/// Maximum delay of a wake-up.
const SLEEP_LATE_NS: u64 = 60_000;
/// Maximum sleep, so that a stop takes effect.
const SLEEP_MOST_NS: u64 = 10_000_000;

/// Counters of the sender on each CPU.
pub(super) type Done = Arc<Mutex<Generated>>;

/// A sender on one CPU.
#[derive(Debug)]
pub(super) struct Sender {
    maker: Maker,
    device: u32,
    batch: usize,
    done: Done,
}

impl Sender {
    pub(super) fn new(
        plan: &GeneratorPlan,
        index: u32,
        cpu: u32,
    ) -> Result<Sender, GeneratorError> {
        Ok(Sender {
            maker: Maker::new(plan, index)?,
            device: plan.exit.device,
            batch: plan.batch as usize,
            done: Arc::new(Mutex::new(Generated { cpu, ..Generated::default() })),
        })
    }

    pub(super) fn done(&self) -> Done {
        Arc::clone(&self.done)
    }

    /// Open a socket for the device. This thread has to be in its namespace.
    pub(super) fn open(&self) -> Result<OwnedFd, GeneratorError> {
        bound(self.device).map_err(doing("open a packet socket"))
    }

    /// Send frames until `stop` is set.
    pub(super) fn run(mut self, socket: &OwnedFd, stop: &AtomicBool) -> Result<(), GeneratorError> {
        let room = self.maker.size_bytes_most();
        let mut frames = vec![vec![0_u8; room]; self.batch];
        let mut lengths = Vec::with_capacity(self.batch);
        while !stop.load(Ordering::Acquire) {
            lengths.clear();
            let mut wait_ns = 0;
            while lengths.len() < self.batch {
                let due_ns = self.maker.due(system::now_ns);
                let now_ns = match due_ns {
                    // The time is current, or the frame was due before.
                    Some(due_ns) => match due_ns.saturating_sub(self.maker.seen_ns()) {
                        0 => due_ns,
                        wait => {
                            wait_ns = wait;
                            break;
                        }
                    },
                    None if self.maker.is_stamped() => system::now_ns(),
                    None => 0,
                };
                let varying = self.maker.next(now_ns);
                let bytes = self.maker.write(&varying, &mut frames[lengths.len()]);
                lengths.push(bytes);
            }
            if !lengths.is_empty() {
                self.send(socket, &mut frames, &lengths)?;
            } else if wait_ns > 0 {
                lock(&self.done).idle += 1;
                if wait_ns > SLEEP_LEAST_NS {
                    let ns = (wait_ns - SLEEP_LATE_NS).min(SLEEP_MOST_NS);
                    std::thread::sleep(Duration::from_nanos(ns));
                } else {
                    std::hint::spin_loop();
                }
            }
            lock(&self.done).behind = self.maker.behind();
        }
        Ok(())
    }

    /// Send all of them. Frames that the device refuses are counted and discarded.
    fn send(
        &self,
        socket: &OwnedFd,
        frames: &mut [Vec<u8>],
        lengths: &[usize],
    ) -> Result<(), GeneratorError> {
        let mut parts: Vec<libc::iovec> = frames
            .iter_mut()
            .zip(lengths)
            .map(|(frame, bytes)| libc::iovec {
                iov_base: frame.as_mut_ptr().cast(),
                iov_len: *bytes,
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: a message header is numbers and pointers that may be null.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let (mut sent, mut calls) = (0, 0);
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        let mut result = Ok(());
        let mut at = 0;
        while at < messages.len() {
            let rest = &mut messages[at..];
            // SAFETY: there are as many headers, whose parts and frames outlive the call.
            let taken = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            calls += 1;
            if let Ok(taken) = usize::try_from(taken) {
                at += taken;
                sent += taken as u64;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The next one may succeed.
                Some(
                    e @ (libc::ENOBUFS
                    | libc::ENETDOWN
                    | libc::EMSGSIZE
                    | libc::EAGAIN
                    | libc::ENOMEM),
                ) => {
                    *refused.entry(errno::of_frames(e)).or_default() += 1;
                    at += 1;
                }
                _ => {
                    result = Err(doing("send on a packet socket")(error));
                    break;
                }
            }
        }
        let mut done = lock(&self.done);
        done.frames += at as u64;
        done.bytes += lengths[..at].iter().sum::<usize>() as u64;
        done.sent += sent;
        done.batches += calls;
        for (cause, frames) in refused {
            *done.refused.entry(cause).or_default() += frames;
        }
        result
    }
}

/// Counters are consistent after every batch, even after a panic.
pub(super) fn lock(done: &Mutex<Generated>) -> std::sync::MutexGuard<'_, Generated> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bound(device: u32) -> io::Result<OwnedFd> {
    // Protocol 0, so that it receives nothing (packet(7)).
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let on = 1_i32;
    // SAFETY: the option is a number, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: an address is numbers, which may be zero.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = i32::try_from(device).map_err(io::Error::other)?;
    // SAFETY: the address is of its kind, has the given length, and outlives the call.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket.into())
}
