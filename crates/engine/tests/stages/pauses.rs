//! Packets followed in stretches, so that following takes no more than a share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::experiment::Offload;
use netplumb_model::timing::TimingSpec;
use netplumb_workload::ends::Sockets;

use crate::common::*;

fn sparing(topology: &Topology, proto: Proto, share: f64) -> TimingSpec {
    let mut spec = spec(topology, proto);
    spec.selection.max_overhead = Some(share);
    spec
}

/// Send as fast as possible for this long, while another thread reads; returns the number sent.
fn flood(sockets: &Sockets, time: Duration) -> u64 {
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if receive(sockets, libc::MSG_DONTWAIT) <= 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            while receive(sockets, libc::MSG_DONTWAIT) > 0 {}
        });
        let begun = Instant::now();
        while begun.elapsed() < time {
            assert!(send(sockets, &[7; 18]) > 0);
            sent.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    sent.load(Ordering::Relaxed)
}

/// Check that some packets of a busy sender are followed and most are not, and that those followed
/// are followed to their end, through every place: whichever CPU they are received on, and whatever
/// is under way when nothing is attached.
#[test]
fn as_root_what_is_followed_is_followed_to_its_end() {
    if cannot() {
        return;
    }
    let _alone = alone();
    for gro in [false, true] {
        let mut plan = veth(Family::V4, false);
        plan.offload = BTreeMap::from([(Offload::Gro, gro)]);
        let topology = Topology::build(&plan, &[]).unwrap();
        let sockets = sockets(&topology, Proto::Udp);
        let mut live = stages(&sparing(&topology, Proto::Udp, 0.05));
        live.open().unwrap();
        let sent = flood(&sockets, Duration::from_millis(1500));
        let window = live.close().unwrap();
        let text = format!("gro {gro}, {sent} sent\n{}", show(&window));
        let followed = seen(&window, "udp tx queue");
        assert!(followed > 1000 && followed < sent / 2, "{text}");
        assert!(
            window.paused_ns > window.duration_ns / 2 && window.paused_ns < window.duration_ns,
            "{} of {} ns\n{text}",
            window.paused_ns,
            window.duration_ns
        );
        // A receive softirq runs in whatever task it meets, and there are kernels that
        // run no program in some (docs/limits.md).
        let all = |seen: u64| seen.abs_diff(followed) <= followed / 200;
        for place in ["tx xmit", "tx sent", "rx arrived", "rx receive"] {
            assert!(all(seen(&window, &format!("udp {place}"))), "{place} {text}");
        }
        let ended = ["rx user", "rx dropped"].map(|place| seen(&window, &format!("udp {place}")));
        assert!(all(ended.iter().sum()), "{text}");
        assert_eq!(window.drops.values().sum::<u64>(), seen(&window, "udp rx dropped"), "{text}");
        assert!(all(of(&window, Direction::Tx, "total").times.count), "{text}");
        for direction in [Direction::Tx, Direction::Rx] {
            adds_up(&window, direction);
        }
    }
}

/// Check that a short run has no pause: the time that it may take is saved up for that.
#[test]
fn as_root_a_short_run_is_followed_whole() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut live = stages(&sparing(&topology, Proto::Udp, 0.05));
    live.open().unwrap();
    for _ in 0..PACKETS {
        one(&sockets, &[7; 10]);
    }
    let window = live.close().unwrap();
    let text = show(&window);
    for place in ["tx queue", "tx sent", "rx arrived", "rx user"] {
        assert_eq!(seen(&window, &format!("udp {place}")), PACKETS, "{text}");
    }
    assert_eq!(window.losses, [], "{text}");
}

/// Check that windows one after another each have packets, though the permitted overhead was spent
/// in the one before, and that a window that is dropped leaves nothing at work.
#[test]
fn as_root_one_window_after_another() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let mut live = stages(&sparing(&topology, Proto::Udp, 0.05));
    for n in 0..4 {
        live.open().unwrap();
        flood(&sockets, Duration::from_millis(500));
        let window = live.close().unwrap();
        assert!(seen(&window, "udp tx sent") > 100, "{n}\n{}", show(&window));
    }
    // Whatever is at work ends with it: this would wait for ever.
    live.open().unwrap();
    drop(live);
}
