//! Frames made by the program and in user space, compared with a library's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netplumb_model::bench::{FrameKind, FrameSize, Frames, IMIX, Offered};
use netplumb_model::class::Family;
use netplumb_sys::netns::Namespace;

use super::error::GeneratorError;
use super::layout::Mode;
use super::live::Live;
use super::maker::Maker;
use super::plan::{Exit, GeneratorPlan, TTL};
use super::{Generator, headers, system};
use netplumb_model::bench::{STAMP_BYTES, Stamp};

const XDP_REDIRECT: u32 = 4;

/// Whether this user lacks the privileges to load programs.
fn cannot() -> bool {
    let cannot = !nix::unistd::geteuid().is_root();
    if cannot {
        netplumb_testkit::skip("BPF programs need root");
    }
    cannot
}

fn plan(kind: FrameKind, family: Family, size: FrameSize) -> GeneratorPlan {
    let (source, destination) = match family {
        // The last address but two of a /16, whose lower half overflows.
        Family::V4 => ("10.77.255.254", "10.99.0.2"),
        Family::V6 => ("fd77::ffff:fffd", "fd99::2"),
    };
    GeneratorPlan {
        exit: Exit {
            namespace: Namespace::current().unwrap().try_clone().unwrap(),
            device: 1,
            mac: [2, 0, 0, 0, 0, 1],
            to_mac: [2, 0, 0, 0, 0, 2],
            source: source.parse::<IpAddr>().unwrap(),
            destination: destination.parse::<IpAddr>().unwrap(),
            source_port: 4000,
            destination_port: 9,
        },
        frames: Frames { kind, family, size, flows: 1 },
        flow_ports: 0,
        ttl: TTL,
        offered: Offered::Most,
        cpus: vec![0],
        batch: 64,
        stamped: false,
        method: None,
    }
}

/// Every kind, with and without stamps, with one flow, and with several on two ports per address or
/// all on one.
fn plans() -> Vec<GeneratorPlan> {
    let mut plans = Vec::new();
    for kind in [FrameKind::Udp, FrameKind::TcpSyn, FrameKind::Icmp] {
        for family in [Family::V4, Family::V6] {
            for stamped in [false, true] {
                for (flows, ports) in [(1, 0), (5, 2), (5, 0)] {
                    let least = {
                        let mut plan = plan(kind, family, FrameSize::Imix);
                        plan.stamped = stamped;
                        plan.size_bytes_least()
                    };
                    let sizes = [least, 571].map(FrameSize::Bytes);
                    for size in sizes.into_iter().chain([FrameSize::Imix]) {
                        let mut plan = plan(kind, family, size);
                        plan.stamped = stamped;
                        plan.frames.flows = flows;
                        plan.flow_ports = ports;
                        plan.check().unwrap();
                        plans.push(plan);
                    }
                }
            }
        }
    }
    plans
}

/// Check that frames made in user space equal the library's, including checksums.
#[test]
fn made_here() {
    for plan in plans() {
        let mut maker = Maker::new(&plan, 0).unwrap();
        let mut frame = vec![0xff; 2048];
        for i in 0..60_u64 {
            let varying = maker.next(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let bytes = maker.write(&varying, &mut frame);
            assert_eq!(frame[..bytes], headers::frame(&plan, &varying).unwrap());
        }
    }
}

/// Check that frames made by the program equal the library's, whatever the buffer had before, and
/// have the same order as in user space.
#[test]
fn as_root_made_in_the_kernel() {
    if cannot() {
        return;
    }
    // The thread stays on its CPU.
    let checked = std::thread::spawn(|| {
        system::pin(0).unwrap();
        for plan in plans() {
            let live = Live::load(&plan, Mode::Full).unwrap();
            let mut maker = Maker::new(&plan, 0).unwrap();
            for _ in 0..14 {
                let (verdict, frame) = live.make_one(0xa5).unwrap();
                assert_eq!(verdict, XDP_REDIRECT, "{plan:?}");
                let header = plan.frames.header_bytes() as usize;
                let stamp = Stamp::read(&frame[header..]);
                let due_ns = stamp.map_or(0, |stamp| stamp.due_ns);
                assert_eq!(due_ns > 0, plan.stamped);
                let varying = maker.next(due_ns);
                assert_eq!(frame, headers::frame(&plan, &varying).unwrap(), "{plan:?}");
            }
        }
    });
    checked.join().unwrap();
}

/// Check that the program's gaps equal user space's, to the nanosecond: so it keeps the rate that
/// is checked below.
#[test]
fn as_root_paced_in_the_kernel() {
    if cannot() {
        return;
    }
    let checked = std::thread::spawn(|| {
        system::pin(0).unwrap();
        let mut plan = plan(FrameKind::Udp, Family::V4, FrameSize::Bytes(60));
        plan.stamped = true;
        plan.offered = Offered::Pps(1_234.5);
        let live = Live::load(&plan, Mode::Full).unwrap();
        let mut maker = Maker::new(&plan, 0).unwrap();
        let mut drawn_before = maker.due(|| 1).unwrap();
        let (mut due_before, mut behind_before, mut compared) = (None, 0, 0);
        while compared < 100 {
            let (verdict, frame) = live.make_one(0).unwrap();
            if verdict != XDP_REDIRECT {
                continue;
            }
            let due_ns = Stamp::read(&frame[42..]).unwrap().due_ns;
            assert!(due_ns <= system::now_ns(), "sent before it was due");
            let behind = live.counts().unwrap()[0].behind;
            if let Some(before) = due_before.replace(due_ns) {
                maker.next(0);
                let drawn = maker.due(|| 1).unwrap();
                // After a long preemption the schedule begins anew.
                if behind == behind_before {
                    assert_eq!(due_ns - before, drawn - drawn_before);
                    compared += 1;
                }
                drawn_before = drawn;
            }
            behind_before = behind;
        }
    });
    checked.join().unwrap();
}

/// Check that flows have equal numbers of frames, and equal numbers of each size of the mix.
#[test]
fn flows_take_turns() {
    for (flows, ports) in [(1, 0), (5, 2), (12, 3), (24, 0), (1000, 7)] {
        let mut plan = plan(FrameKind::Udp, Family::V4, FrameSize::Imix);
        plan.frames.flows = flows;
        plan.flow_ports = ports;
        let mut maker = Maker::new(&plan, 0).unwrap();
        let mut seen: BTreeMap<(u32, u16), Vec<u32>> = BTreeMap::new();
        for _ in 0..flows * 12 {
            let frame = maker.next(0);
            let sizes = seen.entry((frame.address, frame.port)).or_default();
            sizes.push(frame.size_bytes);
        }
        assert_eq!(seen.len(), flows as usize);
        for sizes in seen.values() {
            for (bytes, share) in IMIX {
                let count = sizes.iter().filter(|s| **s == bytes).count();
                assert_eq!(count, share as usize, "{flows} flows: {sizes:?}");
            }
        }
    }
}

/// Check that CPUs divide the rate, and the flows without overlap.
#[test]
fn cpus_share() {
    for (flows, cpus) in [(1, 1), (10, 3), (7, 7), (10_000, 4)] {
        let mut plan = plan(FrameKind::Udp, Family::V6, FrameSize::Bytes(80));
        plan.frames.flows = flows;
        plan.flow_ports = 100;
        plan.cpus = (0..cpus).collect();
        let mut seen = BTreeSet::new();
        for index in 0..cpus {
            let mut maker = Maker::new(&plan, index).unwrap();
            let (_, share) = plan.share(index);
            for _ in 0..share {
                let frame = maker.next(0);
                assert!(seen.insert((frame.address, frame.port)), "{index}");
            }
        }
        assert_eq!(seen.len(), flows as usize);
    }
    let mut plan = plan(FrameKind::Udp, Family::V4, FrameSize::Bytes(60));
    plan.cpus = vec![0, 1, 2];
    plan.frames.flows = 2;
    let firsts: Vec<_> = (0..3).map(|i| plan.share(i)).collect();
    assert_eq!(firsts, [(0, 1), (1, 1), (0, 1)]);
    plan.offered = Offered::Pps(300.0);
    assert_eq!(plan.pps_each(), Some(100.0));
}

/// Check that gaps are between half and one and a half of the mean, that their mean is the given
/// one, and that frames overdue for too long are dropped.
#[test]
fn pace() {
    for pps in [1.0, 1000.0, 123_456.7, 3_000_000.0, 40_000_000.0] {
        let mut plan = plan(FrameKind::Udp, Family::V4, FrameSize::Bytes(60));
        plan.offered = Offered::Pps(pps);
        let mut maker = Maker::new(&plan, 0).unwrap();
        let start = 1_000_000_000;
        let mut now = start;
        let frames = 200_000;
        let mean = 1e9 / pps;
        let mut last = None;
        for _ in 0..frames {
            let due = maker.due(|| now).unwrap();
            now = now.max(due);
            maker.next(due);
            if let Some(last) = last.replace(due) {
                let gap = (due - last) as f64;
                assert!(gap > 0.5 * mean - 1.5 && gap < 1.5 * mean + 1.5, "{gap} of {mean}");
            }
        }
        let took = (last.unwrap() - start) as f64 / f64::from(frames);
        // One gap's deviation is 0.29 of the mean; the deviation of 200,000 together is 0.00065.
        assert!((took / mean - 1.0).abs() < 0.004, "{took} ns for {mean}");
        assert_eq!(maker.behind(), 0);
    }
    let mut plan = plan(FrameKind::Udp, Family::V4, FrameSize::Bytes(60));
    plan.offered = Offered::Pps(1e6);
    let mut maker = Maker::new(&plan, 0).unwrap();
    let first = maker.due(|| 1).unwrap();
    // A second later: only 10 ms are caught up.
    assert_eq!(maker.due(|| first + 1_000_000_000), Some(first + 1_000_000_000));
    let behind = maker.behind();
    assert!((999_900..=1_000_000).contains(&behind), "{behind}");
    maker.next(0);
    let owed = maker.due(|| first + 1_009_000_000).unwrap();
    assert!(owed < first + 1_000_002_000, "{owed}");
    assert_eq!(maker.behind(), behind);
}

/// Check the errors of invalid plans.
#[test]
fn wrong_input() {
    let good = || plan(FrameKind::Udp, Family::V4, FrameSize::Bytes(60));
    let said = |change: &dyn Fn(&mut GeneratorPlan)| {
        let mut plan = good();
        change(&mut plan);
        match Generator::start(plan) {
            Err(GeneratorError::Input(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    let has = |what: String, part: &str| assert!(what.contains(part), "{what}");
    for pps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        has(said(&|p| p.offered = Offered::Pps(pps)), "invalid rate");
    }
    has(said(&|p| p.offered = Offered::Pps(0.5)), "at least 1 frames per second on each CPU");
    has(said(&|p| p.frames.flows = 0), "number of flows 0");
    has(said(&|p| p.frames.size = FrameSize::Bytes(59)), "expected 60 to 1514 bytes");
    has(said(&|p| p.frames.size = FrameSize::Bytes(1515)), "not 1515");
    has(said(&|p| p.batch = 0), "1 to 256");
    has(said(&|p| p.batch = 257), "1 to 256");
    has(said(&|p| p.cpus = vec![]), "no CPU");
    has(said(&|p| p.cpus = vec![0, 0]), "duplicate CPU");
    has(said(&|p| p.cpus = vec![0, 4095]), "no such CPU 4095");
    has(said(&|p| p.frames.family = Family::V6), "addresses of that version");
    has(said(&|p| p.exit.device = 4_000_000), "no device with index");
    has(
        said(&|p| {
            p.exit.source_port = 65_000;
            p.flow_ports = 1000;
        }),
        "only 536 ports, and 1000 are needed",
    );
    has(
        said(&|p| {
            p.exit.source = "255.255.255.255".parse().unwrap();
            p.flow_ports = 1;
            p.frames.flows = 2;
        }),
        "a lower first address",
    );
    has(
        said(&|p| {
            p.exit.source = "10.99.0.1".parse().unwrap();
            p.flow_ports = 1;
            p.frames.flows = 2;
        }),
        "include the destination 10.99.0.2",
    );
    let v6 = |kind, size, stamped| {
        let mut plan = plan(kind, Family::V6, FrameSize::Bytes(size));
        plan.stamped = stamped;
        plan.check().err().map(|e| e.to_string())
    };
    assert!(v6(FrameKind::TcpSyn, 73, false).unwrap().contains("74 to 1514"));
    assert_eq!(v6(FrameKind::TcpSyn, 74, false), None);
    assert!(v6(FrameKind::Udp, 77, true).unwrap().contains("with stamps; expected 78"));
    assert_eq!(v6(FrameKind::Icmp, 78, true), None);
}

/// Check that a stamp is read as it was written, and that nothing else is taken for one.
#[test]
fn stamps() {
    let stamp = Stamp { sequence: 7, due_ns: u64::MAX - 5 };
    let bytes = stamp.bytes();
    assert_eq!(bytes.len(), STAMP_BYTES as usize);
    assert_eq!(&bytes[..4], b"PLMB");
    assert_eq!(Stamp::read(&bytes), Some(stamp));
    assert_eq!(Stamp::read(&bytes[..15]), None);
    assert_eq!(Stamp::read(&[0; 32]), None);
}
