//! The wire of two hosts between the NICs of one guest.

use crate::common::{Place, check_whole, has_guests, prints};
use netplumb_model::recording::Recording;

const PACKETS: u64 = 20;

/// The time of a packet of an arm, from one to the next.
fn each_ns(recording: &Recording, arm: u32) -> f64 {
    let blocks = recording.blocks.iter().filter(|block| block.arm == arm);
    let times: Vec<u64> = blocks.map(|block| block.duration_ns).collect();
    times.iter().sum::<u64>() as f64 / (times.len() as u64 * PACKETS) as f64
}

/// Check that a delay of the wire is what each packet takes longer, to 2%, and so is a rate.
#[test]
fn a_delay_that_was_planted() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let path = format!(
        "path --proto udp --size 18 --link virtio-net --clock stages --blocks 2 --packets {PACKETS}"
    );
    let words = format!("{path} --wire-delay 0,1ms --wire-rate 1G,1M -o a.plumb");
    let ran = place.run(&words);
    ran.code(0);
    prints(&ran, &["between the guest's NICs"]);
    let recording = place.recording("a.plumb");
    let of = |rate: &str, delay: &str| {
        let mut arms = recording.arms.iter();
        let is_it = |arm: &netplumb_model::recording::Arm| {
            arm.level("wire_rate") == Some(rate) && arm.level("wire_delay") == Some(delay)
        };
        each_ns(&recording, arms.position(is_it).unwrap() as u32)
    };
    let near = |longer: f64, expected: f64| {
        assert!((longer / expected - 1.0).abs() < 0.02, "{longer} {expected}");
    };
    let fast = of("1G", "0");
    near(of("1G", "1ms") - fast, 1e6);
    // A frame of at least 60 bytes, and 24 that a wire adds.
    let size: u64 = 8 * (60 + 24);
    near(of("1M", "0") - fast, size as f64 * 999.0);
    near(of("1M", "1ms") - fast, 1e6 + size as f64 * 999.0);
}

/// Check that counts with a wire are the same in each run and without loss, jitter and lost frames included, also over two
/// wires with a router between.
#[test]
fn the_same_every_time() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    for (number, words) in [
        "--proto udp --link e1000 --wire-rate 100M --wire-jitter 30us",
        "--proto tcp --link virtio-net --wire-loss 10%",
        "--proto udp --link e1000 --forward --wire-delay 10us",
    ]
    .into_iter()
    .enumerate()
    {
        let costs = ["a", "b"].map(|name| {
            let file = format!("{number}{name}.plumb");
            let ran = place.run(&format!("path {words} --blocks 2 --packets 10 -o {file}"));
            ran.code(0);
            prints(&ran, &["between the guest's NICs"]);
            let recording = place.recording(&file);
            check_whole(&recording);
            recording.costs
        });
        assert!(!costs[0].is_empty());
        assert_eq!(costs[0], costs[1], "{words}");
    }
}

/// Check that what has no such wire is refused in a line.
#[test]
fn what_cannot_be() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    for (words, says) in [
        ("--link veth --wire-rate 1G", "between two NICs of QEMU"),
        ("--link cdc-ncm --wire-delay 1us", "expected virtio-net"),
        ("--link e1000 --wire-loss 1%", "never sent again"),
        ("--link e1000 --wire-rate 1G --quick", "virtual time"),
        ("--link e1000 --wire-rate 1", "from 100k to 100G"),
    ] {
        let ran = place.run(&format!("path {words}"));
        ran.code(2);
        assert!(ran.stderr.contains(says), "{words}: {ran:?}");
    }
    assert_eq!(place.processes(), [""; 0]);
}
