//! The overhead of measuring. A measurement, not a check: run it with `--ignored`.

use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Family, Proto};
use netplumb_workload::ends::Sockets;

use crate::common::*;

const BLOCK: Duration = Duration::from_millis(400);
const BLOCKS: usize = 15;

/// CPU time of this thread.
fn thread_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Packets per second that are sent and read in one block, and the sender's CPU time
/// for each: it has the receiving softirq in it, and does not depend on who else is
/// about.
fn flood(sockets: &Sockets) -> [f64; 3] {
    let (stop, sent, read) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let mut cpu_ns = 0.0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
            // SAFETY: the option outlives the call.
            unsafe {
                libc::setsockopt(
                    sockets.rx.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_RCVTIMEO,
                    (&raw const wait).cast(),
                    size_of_val(&wait) as u32,
                );
            }
            while !stop.load(Ordering::Relaxed) {
                let mut buffer = [0_u8; 64];
                let fd = sockets.rx.as_raw_fd();
                // SAFETY: the buffer outlives the call, and the length is its own.
                let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
                if got > 0 {
                    read.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let before_ns = thread_ns();
        while begun.elapsed() < BLOCK {
            for _ in 0..64 {
                send(sockets, &[7; 18]);
            }
            sent.fetch_add(64, Ordering::Relaxed);
        }
        cpu_ns = thread_ns() - before_ns;
        stop.store(true, Ordering::Relaxed);
    });
    let rate = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64 / BLOCK.as_secs_f64();
    [rate(&sent), rate(&read), cpu_ns / sent.load(Ordering::Relaxed) as f64]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Packets per second over a veth, one CPU sending and one receiving, with nothing
/// attached, attached with no window open, measuring, and measuring with pauses: block
/// by block in turn.
#[test]
#[ignore = "a measurement"]
fn as_root_packets_per_second_lost() {
    if cannot() {
        return;
    }
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut rates: Vec<Vec<[f64; 3]>> = vec![Vec::new(); 4];
    for _ in 0..BLOCKS {
        rates[0].push(flood(&sockets));
        let mut live = stages(&spec(&topology, Proto::Udp));
        rates[1].push(flood(&sockets));
        live.open().unwrap();
        rates[2].push(flood(&sockets));
        let window = live.close().unwrap();
        assert!(seen(&window, "udp tx sent") > 0);
        drop(live);
        let mut spec = spec(&topology, Proto::Udp);
        spec.selection.max_overhead = Some(0.05);
        let mut live = stages(&spec);
        live.open().unwrap();
        rates[3].push(flood(&sockets));
        let window = live.close().unwrap();
        assert!(seen(&window, "udp tx sent") > 0);
    }
    let mut out = std::io::stderr();
    for (name, rates) in ["off", "attached", "measuring", "with pauses"].iter().zip(&rates) {
        let of = |i: usize| median(rates.iter().map(|r| r[i]).collect());
        let (sent, read, ns) = (of(0), of(1), of(2));
        writeln!(out, "{name:11} sent {sent:9.0}/s read {read:9.0}/s sender {ns:7.0} ns").unwrap();
    }
}
