//! Each path handles all sent frames, to the packet, and leaves nothing behind. Needs root.

#![allow(clippy::unwrap_used)]

mod common;
mod live;

use std::collections::BTreeSet;

use netplumb_model::bench::{Bench, DataPath, FrameKind, Handled};
use netplumb_paths::{PathError, Sink, Way, frame_mac, needs, refusal, set_up};
use netplumb_testkit::has_root;

use common::{FRAMES, Wires, assert_same, settle};

/// Send our frames and a few others at a path that drops; returns its counters. Checks that nothing
/// is left.
fn dropped(way: &Way, wires: &Wires, before: &BTreeSet<String>) -> Handled {
    let site = wires.site();
    let mut path = set_up(way, &site).unwrap();
    let frame = wires.frame(frame_mac(way.path, &site));
    wires.send_same(&frame, FRAMES);
    let mut foreign = frame.clone();
    foreign.port += 1;
    wires.send_same(&foreign, 10);
    let handled = settle(|| path.handled().unwrap(), FRAMES);
    let facts = path.facts();
    assert!(facts.contains_key("path.attached"), "{facts:?}");
    // A socket's reader may be too slow on a busy machine: the kernel counts the drops then.
    let lost: u64 = handled.lost.values().sum();
    assert_eq!(handled.total() + lost, FRAMES, "{}: {handled:?}\n{}", way.path, wires.counters());
    assert!(lost == 0 || way.path == DataPath::Socket, "{handled:?}");
    drop(path);
    assert_same(before, wires, way.path.as_str());
    handled
}

/// Paths that drop and need nothing but the kernel, `nft` and `iptables`.
const DROPS: [DataPath; 8] = [
    DataPath::Xdp,
    DataPath::XdpSkb,
    DataPath::Tc,
    DataPath::NftRaw,
    DataPath::NftConntrack,
    DataPath::Socket,
    DataPath::AfXdp,
    DataPath::IptablesRaw,
];

/// Check that each path drops and counts all sent frames, over both versions of IP, that frames of
/// others are not counted as ours, and that all is as before afterwards.
#[test]
fn as_root_what_is_dropped() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let wires = Wires::new(v6);
        let before = wires.state();
        for path in DROPS {
            let handled = dropped(&Way::new(path, Bench::Drop), &wires, &before);
            // 14 of the link, IP and UDP, 18 of data.
            let bytes = if v6 { 14 + 40 + 26 } else { 60 };
            assert_eq!(handled.bytes, handled.total() * bytes, "{path}");
            let own = [DataPath::Xdp, DataPath::XdpSkb, DataPath::Tc, DataPath::AfXdp];
            if own.contains(&path) {
                assert!(handled.foreign >= 10, "{path}: {handled:?}");
            }
        }
    }
}

/// Check that SYNs and echo requests are counted, too, except by a socket, which reports that it
/// reads none.
#[test]
fn as_root_kinds_of_frames() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let mut wires = Wires::new(v6);
        let before = wires.state();
        for kind in [FrameKind::TcpSyn, FrameKind::Icmp] {
            wires.kind = kind;
            for path in [DataPath::Xdp, DataPath::Tc, DataPath::NftConntrack] {
                let way = Way::new(path, Bench::Drop);
                let site = wires.site();
                let mut standing = set_up(&way, &site).unwrap();
                wires.send_same(&wires.frame(site.ingress.mac), 100);
                let handled = settle(|| standing.handled().unwrap(), 100);
                assert_eq!(handled.total(), 100, "{path} {kind}: {handled:?}");
                drop(standing);
                assert_same(&before, &wires, path.as_str());
            }
            let way = Way::new(DataPath::Socket, Bench::Drop);
            let error = set_up(&way, &wires.site()).err().unwrap();
            assert!(error.to_string().contains("udp frames"), "{error}");
        }
    }
}

/// Check that each path forwards all sent frames to the far end, and that all is as before
/// afterwards.
#[test]
fn as_root_what_is_forwarded() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let wires = Wires::new(v6);
        let before = wires.state();
        for path in [
            DataPath::XdpTx,
            DataPath::XdpRedirect,
            DataPath::Bridge,
            DataPath::Route,
            DataPath::AfXdp,
        ] {
            let site = wires.site();
            let at = match Sink::is_at_generator(path) {
                true => wires.generator_site(),
                false => wires.sink_site(),
            };
            let mut sink = Sink::set_up(&at, false).unwrap();
            let mut standing = set_up(&Way::new(path, Bench::Forward), &site).unwrap();
            wires.send_same(&wires.frame(frame_mac(path, &site)), FRAMES);
            let came = settle(|| sink.handled().unwrap(), FRAMES);
            // Packets sent through a ring are reported a little later.
            let handled = settle(|| standing.handled().unwrap(), FRAMES);
            assert_eq!(came.total(), FRAMES, "{path}: {came:?}, {handled:?}\n{}", wires.counters());
            assert!(handled.total() >= FRAMES, "{path}: {handled:?}");
            assert!(handled.total() == FRAMES || path == DataPath::Bridge, "{path}: {handled:?}");
            assert!(handled.lost.is_empty(), "{path}: {handled:?}");
            drop(standing);
            drop(sink);
            assert_same(&before, &wires, path.as_str());
        }
    }
}

/// Check that packets whose TTL expires are reported as such, and are not forwarded.
#[test]
fn as_root_a_ttl_that_runs_out() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let wires = Wires::new(v6);
        let site = wires.site();
        let mut sink = Sink::set_up(&wires.sink_site(), false).unwrap();
        let way = Way::new(DataPath::Route, Bench::Forward);
        let mut route = set_up(&way, &site).unwrap();
        let mut frame = wires.frame(site.ingress.mac);
        frame.ttl = 1;
        wires.send_same(&frame, 100);
        let handled = settle(|| route.handled().unwrap(), 100);
        assert_eq!(handled.total(), 0, "{handled:?}");
        let (cause, packets) = handled.lost.iter().next().unwrap();
        assert!(cause.contains("TTL"), "{handled:?}");
        assert_eq!(*packets, 100, "{handled:?}");
        assert_eq!(sink.handled().unwrap().total(), 0);
    }
}

/// Check that frames redirected to a device whose peer accepts none are reported as such: without
/// the sink there is no NAPI there.
#[test]
fn as_root_an_end_without_napi() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    let site = wires.site();
    let way = Way::new(DataPath::XdpRedirect, Bench::Forward);
    let mut path = set_up(&way, &site).unwrap();
    wires.send_same(&wires.frame(site.ingress.mac), 500);
    let handled = settle(|| path.handled().unwrap(), 500);
    assert_eq!(handled.total(), 0, "{handled:?}");
    let (cause, packets) = handled.lost.iter().next().unwrap();
    assert!(cause.contains("its veth peer has no NAPI"), "{handled:?}");
    assert_eq!(*packets, 500, "{handled:?}");
}

/// Check that stamped frames are timed where a program or a reader sees them, and that those
/// without a stamp are counted separately.
#[test]
fn as_root_stamps_are_read() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let wires = Wires::new(v6);
        for path in [DataPath::Xdp, DataPath::Tc, DataPath::Socket, DataPath::AfXdp] {
            let way = Way { stamped: true, ..Way::new(path, Bench::Drop) };
            let site = wires.site();
            let mut standing = set_up(&way, &site).unwrap();
            let frame = wires.frame(site.ingress.mac);
            wires.send((0..200).map(|_| {
                let mut frame = frame.clone();
                // As if it had been late by a millisecond.
                frame.stamp = Some(monotonic_ns() - 1_000_000);
                frame.bytes()
            }));
            wires.send_same(&frame, 5);
            let handled = settle(|| standing.handled().unwrap(), 205);
            assert_eq!(handled.total(), 205, "{path}: {}", wires.counters());
            let times = handled.latency.unwrap();
            assert_eq!(times.count, 200, "{path}");
            assert!(times.min_ns >= 1_000_000, "{path}: {times:?}");
            assert!(times.max_ns >= times.min_ns);
            assert!(times.total_ns >= 200 * times.min_ns);
            let counted: u64 = times.buckets.iter().map(|(_, n)| n).sum();
            assert_eq!(counted, 200, "{path}");
            assert_eq!(standing.facts()["path.unstamped"], "5", "{path}");
        }
    }
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a structure of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Check that an unsafe program is refused with the verifier's reason and the line that
/// it is about.
#[test]
fn as_root_an_unsafe_program() {
    if !has_root() {
        return;
    }
    let Err(error) = refusal() else {
        panic!("the kernel took it");
    };
    let text = error.to_string();
    assert!(text.contains("invalid access to packet"), "{text}");
    assert!(text.contains("data[23]"), "{text}");
    let PathError::Refused(refusal) = error else {
        panic!("{text}");
    };
    let log = refusal.log;
    assert!(log.contains("invalid access to packet"), "{log}");
}

/// Check that impossible requests are reported, with advice, and change nothing: an MTU too large
/// for XDP, a device that has a program already, a CPU that doesn't exist, a path with an option
/// that it doesn't support.
#[test]
fn as_root_what_can_not_be() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    let site = wires.site();
    let refusal = |way: &Way| {
        let before = wires.state();
        let error = set_up(way, &site).err().unwrap().to_string();
        assert_same(&before, &wires, &error);
        error
    };
    let xdp = Way::new(DataPath::Xdp, Bench::Drop);
    let standing = set_up(&xdp, &site).unwrap();
    assert!(refusal(&xdp).contains("already has an XDP program"));
    drop(standing);

    let tx0 = wires.generator_site().ingress.index;
    wires.tx.set_up(tx0, Some(9_000)).unwrap();
    let text = refusal(&xdp);
    assert!(text.contains("MTU is too large"), "{text}");
    let several = Way { multi_buffer: true, ..xdp.clone() };
    drop(set_up(&several, &site).unwrap());
    wires.tx.set_up(tx0, Some(1_500)).unwrap();

    let text = refusal(&Way { cpus: vec![1_000], ..Way::new(DataPath::Socket, Bench::Drop) });
    assert!(text.contains("no such CPU 1000"), "{text}");
    let text = refusal(&Way::new(DataPath::Route, Bench::Drop));
    assert!(text.contains("invalid path `route`"), "{text}");
}

/// Check that testpmd drops and forwards all sent frames, and that the process, its files and its
/// changes to devices are gone afterwards.
#[test]
fn as_root_testpmd() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    if let Err(error) = needs(DataPath::Dpdk, Bench::Drop) {
        return netplumb_testkit::skip(&error.to_string());
    }
    for bench in [Bench::Drop, Bench::Forward] {
        let before = wires.state();
        let site = wires.site();
        let mut sink = Sink::set_up(&wires.sink_site(), false).unwrap();
        let mut path = set_up(&Way::new(DataPath::Dpdk, bench), &site).unwrap();
        wires.send_same(&wires.frame(site.ingress.mac), FRAMES);
        let handled = settle(|| path.handled().unwrap(), FRAMES);
        assert_eq!(handled.total(), FRAMES, "{bench}: {handled:?}\n{}", wires.counters());
        assert_eq!(handled.bytes, 60 * FRAMES, "{bench}");
        if bench == Bench::Forward {
            let came = settle(|| sink.handled().unwrap(), FRAMES);
            assert_eq!(came.total(), FRAMES, "{came:?}");
        }
        let facts = path.facts();
        assert!(facts["path.attached"].contains("net_af_"), "{facts:?}");
        assert!(facts["path.dpdk"].starts_with("DPDK "), "{facts:?}");
        assert!(!children().is_empty());
        drop(path);
        drop(sink);
        assert_same(&before, &wires, bench.as_str());
        assert_eq!(children(), Vec::<String>::new());
        let folder = format!("plumb-{}-", std::process::id());
        let left = std::fs::read_dir("/var/run/dpdk").into_iter().flatten();
        for entry in left.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.starts_with(&folder), "{name}");
        }
    }
}

/// What testpmd this process has started.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|p| std::fs::read_to_string(p.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let parent = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
            stat.contains("(dpdk-testpmd)")
                && parent.is_some_and(|mut rest| rest.nth(1) == Some(&own))
        })
        .collect()
}

/// Check that packets take the flowtable, or that the kernel is reported to have none.
#[test]
fn as_root_a_flow_table() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    let before = wires.state();
    let site = wires.site();
    let way = Way::new(DataPath::NftFlowtable, Bench::Forward);
    let mut path = match set_up(&way, &site) {
        Ok(path) => path,
        Err(PathError::CannotRun { reason, remedy }) => {
            assert!(reason.contains("flow tables are not supported"), "{reason}");
            assert!(remedy.contains("CONFIG_NF_FLOW_TABLE"), "{remedy}");
            assert_same(&before, &wires, "flow table");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut sink = Sink::set_up(&wires.sink_site(), false).unwrap();
    wires.send_same(&wires.frame(site.ingress.mac), FRAMES);
    let came = settle(|| sink.handled().unwrap(), FRAMES);
    assert_eq!(came.total(), FRAMES, "{came:?}");
    assert_eq!(path.handled().unwrap().total(), FRAMES);
    let slow: u64 = path.facts()["path.not_by_flow_table"].parse().unwrap();
    assert!((1..100).contains(&slow), "{slow}");
    drop(path);
    drop(sink);
    assert_same(&before, &wires, "flow table");
}

/// Check that a program is replaced while packets come: each of them meets one of the
/// programs, and no more than one.
#[test]
fn as_root_programs_are_replaced() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    let site = wires.site();
    let mut path = set_up(&Way::new(DataPath::Xdp, Bench::Drop), &site).unwrap();
    let frame = wires.frame(site.ingress.mac);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| wires.send_same(&frame, 4 * FRAMES));
        while !sender.is_finished() {
            path.replace_program().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    let handled = settle(|| path.handled().unwrap(), 4 * FRAMES);
    assert_eq!(handled.total(), 4 * FRAMES, "{}", wires.counters());
    let versions = path.by_version().unwrap();
    let by_version: u64 = versions.iter().map(Handled::total).sum();
    assert_eq!(by_version, 4 * FRAMES);
    let used = versions.iter().filter(|v| v.total() > 0).count();
    assert!(used > 1, "{versions:?}");
    let mut tc = set_up(&Way::new(DataPath::Tc, Bench::Drop), &wires.site()).unwrap();
    let error = tc.replace_program().unwrap_err().to_string();
    assert!(error.contains("only XDP programs"), "{error}");
}

/// Check that the list of sources is changed while the program runs: those on it are dropped, the
/// others passed and counted, and that a full list is reported.
#[test]
fn as_root_a_list_of_sources() {
    if !has_root() {
        return;
    }
    for v6 in [false, true] {
        let wires = Wires::new(v6);
        let site = wires.site();
        let way = Way { blocklist: Some(10_000), ..Way::new(DataPath::Xdp, Bench::Drop) };
        let mut path = set_up(&way, &site).unwrap();
        let list = path.blocklist().unwrap();
        let sources: Vec<_> = (0..10_000_u32)
            .map(|n| match v6 {
                false => std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into(),
                true => std::net::Ipv6Addr::from_bits((0xfd << 120) + u128::from(n)).into(),
            })
            .collect();
        let mut frame = wires.frame(site.ingress.mac);
        frame.source = sources[77];

        wires.send_same(&frame, 100);
        let handled = settle(|| path.handled().unwrap(), 100);
        assert_eq!((handled.total(), handled.lost.len()), (0, 1), "{handled:?}");
        list.add(&sources).unwrap();
        assert!(list.has(sources[77]).unwrap());
        wires.send_same(&frame, 200);
        let handled = settle(|| path.handled().unwrap(), 300);
        assert_eq!(handled.total(), 200, "{handled:?}");
        list.remove(&sources[..100]).unwrap();
        list.remove(&sources[..100]).unwrap();
        assert!(!list.has(sources[77]).unwrap());
        wires.send_same(&frame, 300);
        let handled = settle(|| path.handled().unwrap(), 600);
        let passed: u64 = handled.lost.values().sum();
        assert_eq!((handled.total(), passed), (200, 400), "{handled:?}");

        list.add(&sources).unwrap();
        let error = list.add(&[wires.addresses().0]).unwrap_err().to_string();
        assert!(error.contains("can't add to the list"), "{error}");
    }
}
