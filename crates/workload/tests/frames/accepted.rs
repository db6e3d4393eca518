//! How a receiving kernel counts the frames.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use netplumb_model::bench::Stamp;
use netplumb_model::bench::{FrameKind, FrameSize, IMIX, Offered};
use netplumb_model::class::Family;
use netplumb_sys::netns::inside;
use netplumb_workload::frames::{Generator, GeneratorError, Method};

use super::common::{
    Pair, Sink, TO_PORT, XDP_PASS, frames, let_run, refused, total, turn, within_a_second,
};

/// How long frames are sent for.
const RUN: Duration = Duration::from_millis(60);

/// Check that a kernel takes every kind of frame in, by either method, with and without
/// stamps: it counts as many as were sent, and no wrong checksum.
#[test]
fn as_root_a_kernel_takes_them() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let _sink = Sink::new(&pair, XDP_PASS);
    for family in [Family::V4, Family::V6] {
        // A listener nowhere: datagrams are refused by port, after their checksums.
        for (kind, counter, wrong) in [
            (
                FrameKind::Udp,
                ["Udp.NoPorts", "Udp6.NoPorts"],
                ["Udp.InCsumErrors", "Udp6.InCsumErrors"],
            ),
            (
                FrameKind::TcpSyn,
                ["Tcp.InSegs", "Tcp.InSegs"],
                ["Tcp.InCsumErrors", "Tcp.InCsumErrors"],
            ),
            (
                FrameKind::Icmp,
                ["Icmp.InEchos", "Icmp6.InEchos"],
                ["Icmp.InCsumErrors", "Icmp6.InCsumErrors"],
            ),
        ] {
            let v6 = usize::from(family == Family::V6);
            // TCP over both is counted together.
            let of = if kind == FrameKind::TcpSyn { Family::V4 } else { family };
            let read = || (pair.counter(of, counter[v6]), pair.counter(of, wrong[v6]));
            for method in [Method::Xdp, Method::Sockets] {
                for stamped in [false, true] {
                    let before = read();
                    let mut plan = pair.plan(frames(kind, family, FrameSize::Imix, 50));
                    plan.stamped = stamped;
                    plan.method = Some(method);
                    plan.flow_ports = 10;
                    let generator = Generator::start(plan).unwrap();
                    let_run(&generator, RUN);
                    let counts = generator.stop().unwrap();
                    let sent = total(&counts, |g| g.sent);
                    within_a_second(|| read().0 - before.0 >= sent);
                    let after = read();
                    assert!(sent > 0, "{counts:?}");
                    assert_eq!(sent, total(&counts, |g| g.frames));
                    let name = format!("{kind} {family} {method:?} stamped {stamped}");
                    assert_eq!(after.0 - before.0, sent, "{name}");
                    assert_eq!(after.1, before.1, "{name}: checksums");
                }
            }
        }
    }
}

/// Check that a socket receives the frames reported as sent: ports, sizes and stamps.
#[test]
fn as_root_a_socket_reads_them() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let _sink = Sink::new(&pair, XDP_PASS);
    for method in [Method::Xdp, Method::Sockets] {
        let socket = inside(pair.rx.as_fd(), || {
            let socket = UdpSocket::bind(("10.77.0.2", TO_PORT))?;
            socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })
        .unwrap();
        let mut plan = pair.plan(frames(FrameKind::Udp, Family::V4, FrameSize::Imix, 12));
        plan.flow_ports = 4;
        plan.stamped = true;
        plan.offered = Offered::Pps(5_000.0);
        plan.method = Some(method);
        let generator = Generator::start(plan).unwrap();
        let_run(&generator, RUN);
        let counts = generator.stop().unwrap();
        let sent = total(&counts, |g| g.sent);
        let behind = total(&counts, |g| g.behind);
        let (mut bytes, mut flows, mut sizes) = (0, [0_u64; 12], [0_u64; 3]);
        let mut last: Option<Stamp> = None;
        let mut room = [0; 2048];
        for sequence in 0..sent {
            let mut read = socket.recv_from(&mut room);
            within_a_second(|| {
                if read.is_err() {
                    read = socket.recv_from(&mut room);
                }
                read.is_ok()
            });
            let (length, from) = read.expect("all that were sent");
            // The headers that the socket took off.
            bytes += length as u64 + 42;
            let stamp = Stamp::read(&room[..length]).expect("a stamp");
            assert_eq!(u64::from(stamp.sequence), sequence);
            if let Some(last) = last.replace(stamp) {
                let gap_ns = stamp.due_ns - last.due_ns;
                // A forgotten frame leaves a gap.
                let most = if behind > 0 { u64::MAX } else { 301_000 };
                assert!((99_000..most).contains(&gap_ns), "{gap_ns}");
            }
            let std::net::IpAddr::V4(address) = from.ip() else {
                panic!("{from}");
            };
            let flow = u16::from(address.octets()[3]) * 4 + from.port() - 4000;
            flows[usize::from(flow)] += 1;
            let size = IMIX.iter().position(|(b, _)| *b == length as u32 + 42);
            sizes[size.expect("a size of the mix")] += 1;
        }
        assert!(socket.recv_from(&mut room).is_err(), "one too many");
        assert_eq!(total(&counts, |g| g.bytes), bytes);
        let spread = flows.iter().max().unwrap() - flows.iter().min().unwrap();
        assert!(spread <= 1, "{flows:?}");
        assert!(sizes.iter().all(|n| *n > 0), "{sizes:?}");
    }
}

/// Check that a veth whose peer has no NAPI is detected: if test runs are requested, all frames are
/// counted as refused, with the cause, and none as sent; if the method is left open, sockets are
/// used, and the reason is given.
#[test]
fn as_root_nobody_at_the_other_end() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let plan = |method| {
        let mut plan = pair.plan(super::common::udp());
        plan.method = method;
        plan
    };
    let generator = Generator::start(plan(Some(Method::Xdp))).unwrap();
    let_run(&generator, RUN);
    let counts = generator.stop().unwrap();
    assert!(counts[0].frames > 0, "{counts:?}");
    assert_eq!(counts[0].sent, 0);
    assert_eq!(refused(&counts), counts[0].frames);
    let cause = counts[0].refused.keys().next().unwrap();
    assert_eq!(cause, "no XDP transmit on this device, or its veth peer has no NAPI (EOPNOTSUPP)");

    let before = pair.counter(Family::V4, "Udp.NoPorts");
    let generator = Generator::start(plan(None)).unwrap();
    assert_eq!(generator.method(), Method::Sockets);
    let why = &generator.facts()["generator.method"];
    assert!(why.contains("the device does not transmit frames that XDP redirects to it"), "{why}");
    let_run(&generator, RUN);
    let counts = generator.stop().unwrap();
    assert!(counts[0].sent > 0, "{counts:?}");
    let came = || pair.counter(Family::V4, "Udp.NoPorts") - before;
    within_a_second(|| came() >= counts[0].sent);
    assert_eq!(came(), counts[0].sent);
}

/// Check that a device that is down, or whose MTU is too small for the frames, is reported at once.
#[test]
fn as_root_a_device_that_can_not() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let said = |plan| match Generator::start(plan) {
        Err(GeneratorError::Input(what)) => what,
        other => panic!("{other:?}"),
    };
    let long = frames(FrameKind::Udp, Family::V4, FrameSize::Bytes(1514), 1);
    pair.ip(&pair.tx, "link set tx0 mtu 1400");
    let what = said(pair.plan(long));
    assert!(what.contains("too long for tx0, whose MTU is 1400"), "{what}");
    pair.ip(&pair.tx, "link set tx0 down");
    let what = said(pair.plan(super::common::udp()));
    assert!(what.contains("tx0 is down"), "{what}");
}
