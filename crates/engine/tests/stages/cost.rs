//! What measuring costs. A measurement, not a check: run it with `--ignored`.

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

/// Packets per second that are sent, and read, in one block.
fn flood(sockets: &Sockets) -> (f64, f64) {
    let (stop, sent, read) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = libc::timeval {
                tv_sec: 0,
                tv_usec: 50_000,
            };
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
                if receive(sockets, 0) > 0 {
                    read.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        while begun.elapsed() < BLOCK {
            for _ in 0..64 {
                send(sockets, &[7; 18]);
            }
            sent.fetch_add(64, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let rate = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64 / BLOCK.as_secs_f64();
    (rate(&sent), rate(&read))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Packets per second over a veth, one CPU sending and one receiving, with nothing
/// attached, attached with no window open, and measuring: block by block in turn.
#[test]
#[ignore = "a measurement"]
fn as_root_packets_per_second_lost() {
    if cannot() {
        return;
    }
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut rates: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 3];
    for _ in 0..BLOCKS {
        rates[0].push(flood(&sockets));
        let mut live = stages(&spec(&topology, Proto::Udp));
        rates[1].push(flood(&sockets));
        live.open().unwrap();
        rates[2].push(flood(&sockets));
        let window = live.close().unwrap();
        assert!(seen(&window, "udp tx sent") > 0);
    }
    let mut out = std::io::stderr();
    for (name, rates) in ["off", "attached", "measuring"].iter().zip(&rates) {
        let sent = median(rates.iter().map(|r| r.0).collect());
        let read = median(rates.iter().map(|r| r.1).collect());
        writeln!(out, "{name:10} sent {sent:9.0}/s read {read:9.0}/s").unwrap();
    }
}
