//! Packets are a ledger, whatever happens to them.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::experiment::Offload;
use netplumb_workload::ends::Sockets;

use crate::common::*;

/// Check that drops by a full socket buffer are named, and that the rest arrives: received = read +
/// dropped.
#[test]
fn as_root_a_full_socket_is_named() {
    if cannot() {
        return;
    }
    let _alone = alone();
    for family in [Family::V4, Family::V6] {
        let topology = Topology::build(&veth(family, false), &[]).unwrap();
        let sockets = sockets(&topology, Proto::Udp);
        let small = 4096_i32;
        // SAFETY: the option is an int that outlives the call.
        let result = unsafe {
            libc::setsockopt(
                sockets.rx.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const small).cast(),
                4,
            )
        };
        assert_eq!(result, 0);
        let mut live = stages(&spec(&topology, Proto::Udp));
        live.open().unwrap();
        for _ in 0..PACKETS {
            assert_eq!(send(&sockets, &[7; 100]), 100);
        }
        let mut read = 0;
        while receive(&sockets, libc::MSG_DONTWAIT) > 0 {
            read += 1;
        }
        let window = live.close().unwrap();
        let text = show(&window);
        assert!(read > 0 && read < PACKETS, "{read}");
        assert_eq!(seen(&window, "udp rx receive"), PACKETS, "{text}");
        assert_eq!(seen(&window, "udp rx user"), read, "{text}");
        assert_eq!(seen(&window, "udp rx dropped"), PACKETS - read, "{text}");
        let drops = BTreeMap::from([("udp SOCKET_RCVBUFF".to_string(), PACKETS - read)]);
        assert_eq!(window.drops, drops, "{text}");
        assert_eq!(of(&window, Direction::Rx, "total").times.count, read, "{text}");
        adds_up(&window, Direction::Rx);
    }
}

/// Check that a router's part is shown separately, and adds up.
#[test]
fn as_root_forwarding_is_a_way_of_its_own() {
    if cannot() {
        return;
    }
    let _alone = alone();
    for family in [Family::V4, Family::V6] {
        let topology = Topology::build(&veth(family, true), &[]).unwrap();
        for proto in [Proto::Udp, Proto::Tcp] {
            let sockets = sockets(&topology, proto);
            let mut live = stages(&spec(&topology, proto));
            live.open().unwrap();
            for _ in 0..PACKETS {
                one(&sockets, &[7; 10]);
            }
            let window = live.close().unwrap();
            let text = show(&window);
            for direction in [Direction::Tx, Direction::Forward, Direction::Rx] {
                adds_up(&window, direction);
                assert_eq!(of(&window, direction, "total").times.count, PACKETS, "{text}");
            }
            assert_eq!(seen(&window, &format!("{proto} forward sent")), PACKETS, "{text}");
            assert_eq!(seen(&window, &format!("{proto} rx receive")), 2 * PACKETS, "{text}");
            assert_eq!(window.losses, [], "{text}");
        }
    }
}

/// Check that windows one after another have every packet, each in one of them, with
/// all of its stages.
#[test]
fn as_root_nothing_is_lost_between_windows() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut live = stages(&spec(&topology, Proto::Udp));
    live.open().unwrap();
    let done = AtomicBool::new(false);
    let windows = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for _ in 0..20 * PACKETS {
                one(&sockets, &[7; 10]);
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut windows = Vec::new();
        while !done.load(Ordering::Relaxed) {
            windows.push(live.turn().unwrap());
        }
        sender.join().unwrap();
        windows.push(live.close().unwrap());
        windows
    });
    assert!(windows.len() > 3, "{}", windows.len());
    let text: String = windows.iter().map(show).collect();
    for place in ["tx queue", "tx sent", "rx arrived", "rx receive", "rx user"] {
        let seen: u64 = windows.iter().map(|w| seen(w, &format!("udp {place}"))).sum();
        assert_eq!(seen, 20 * PACKETS, "{place} {text}");
    }
    for direction in [Direction::Tx, Direction::Rx] {
        let mut packets = 0;
        for window in windows.iter().filter(|w| !way(w, direction).is_empty()) {
            adds_up(window, direction);
            packets += of(window, direction, "total").times.count;
        }
        assert_eq!(packets, 20 * PACKETS, "{direction} {text}");
    }
}

/// Run this thread on one CPU.
fn pin(cpu: usize) {
    // SAFETY: a set of zeros is empty; the calls write to it and read from it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Send, on one CPU, a stream that a thread reads on another one.
fn stream(sockets: &Sockets, reader_cpu: usize, sends: u64, payload: &[u8], bytes: u64) -> u64 {
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            pin(reader_cpu);
            let mut got = 0;
            let mut packets = 0;
            while got < bytes {
                got += u64::try_from(receive(sockets, 0)).unwrap();
                packets += 1;
            }
            packets
        });
        let writer = scope.spawn(|| {
            pin(0);
            for _ in 0..sends {
                assert_eq!(send(sockets, payload), payload.len() as isize);
            }
        });
        writer.join().unwrap();
        reader.join().unwrap()
    })
}

/// Whether these are all, except those whose softirq interrupted a task in which this machine's kernel runs no
/// program (docs/limits.md): one in a thousand was measured, and a busy machine has more such tasks.
fn nearly_all(seen: u64, all: u64) -> bool {
    seen <= all && seen >= all - all / 50
}

/// Check that packets add up with sender and receiver on one CPU and on two, with
/// GRO off and on: of UDP by packets, of TCP by segments and by bytes, however they
/// are cut and merged.
#[test]
fn as_root_the_ledger_closes_on_two_cpus_and_with_gro() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for gro in [false, true] {
        let mut plan = veth(Family::V4, false);
        plan.offload = BTreeMap::from([(Offload::Gro, gro)]);
        let topology = Topology::build(&plan, &[]).unwrap();
        for reader_cpu in 0..cpus.min(2) {
            let what = format!("gro {gro}, reader on CPU {reader_cpu}");
            let pair = sockets(&topology, Proto::Udp);
            let mut live = stages(&spec(&topology, Proto::Udp));
            live.open().unwrap();
            let read = stream(&pair, reader_cpu, 2000, &[7; 100], 200_000);
            let window = live.close().unwrap();
            let text = format!("{what}\n{}", show(&window));
            assert_eq!(read, 2000, "{text}");
            for place in ["tx queue", "tx sent", "rx arrived", "rx receive", "rx user"] {
                let seen = seen(&window, &format!("udp {place}"));
                assert!(nearly_all(seen, 2000), "{seen} {place} {text}");
            }
            adds_up(&window, Direction::Tx);
            adds_up(&window, Direction::Rx);
            drop(live);

            let pair = sockets(&topology, Proto::Tcp);
            let mut live = stages(&spec(&topology, Proto::Tcp));
            live.open().unwrap();
            stream(&pair, reader_cpu, 200, &[7; 50_000], 10_000_000);
            let window = live.close().unwrap();
            let text = format!("{what}\n{}", show(&window));
            assert_eq!(seen(&window, "tcp rx user bytes"), 10_000_000, "{text}");
            // A segment that is sent twice is received twice; TCP drops it, not always with a
            // count.
            let sent = seen(&window, "tcp tx bytes");
            let received = seen(&window, "tcp rx bytes");
            assert!(nearly_all(received, sent), "{received} of {sent} {text}");
            assert!(sent >= 10_000_000, "{text}");
            let queued = seen(&window, "tcp tx queue");
            for place in ["tx sent", "rx arrived", "rx receive"] {
                let seen = seen(&window, &format!("tcp {place}"));
                assert!(nearly_all(seen, queued), "{seen} {place} {text}");
            }
            adds_up(&window, Direction::Tx);
            adds_up(&window, Direction::Rx);
        }
    }
}
