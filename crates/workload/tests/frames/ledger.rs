//! Frames made = sent + refused; frames sent = received.

use std::time::Duration;

use netplumb_model::bench::{FrameKind, FrameSize, Generated, Limit, Offered};
use netplumb_model::class::Family;
use netplumb_workload::frames::{Generator, GeneratorPlan, Method, calibrate};

use super::common::{
    Pair, Sink, XDP_DROP, frames, let_run, refused, total, turn, udp, within_a_second,
};

const RUN: Duration = Duration::from_millis(150);

fn closes(counts: &[Generated]) {
    for g in counts {
        let refused: u64 = g.refused.values().sum();
        assert_eq!(g.frames, g.sent + refused, "{g:?}");
    }
}

/// Frames come within a moment of when they were sent, or never.
fn comes_to(sink: &Sink, sent: u64) {
    within_a_second(|| sink.count() >= sent);
    assert_eq!(sink.count(), sent);
}

/// Check that at full rate, by every method, on one CPU and on all, the ledger closes to
/// the packet, while it runs too, and that nothing is sent any more after a stop.
#[test]
fn as_root_at_full_rate() {
    let Some(_turn) = turn() else { return };
    for method in [Method::Xdp, Method::Sockets] {
        for cpus in [vec![0], vec![1, 0]] {
            let pair = Pair::new();
            let sink = Sink::new(&pair, XDP_DROP);
            let what = frames(FrameKind::Udp, Family::V4, FrameSize::Imix, 100);
            let plan = GeneratorPlan {
                offered: Offered::Most,
                cpus: cpus.clone(),
                method: Some(method),
                batch: 256,
                ..pair.plan(what)
            };
            let generator = Generator::start(plan).unwrap();
            assert_eq!(generator.method(), method);
            let_run(&generator, RUN);
            let during = generator.counts().unwrap();
            assert_eq!(during.iter().map(|g| g.cpu).collect::<Vec<_>>(), cpus);
            for g in &during {
                let known: u64 = g.sent + g.refused.values().sum::<u64>();
                // The count is read in one go, but one after another.
                assert!(g.frames + 4096 > known && known + 4096 > g.frames, "{g:?}");
            }
            let counts = generator.stop().unwrap();
            closes(&counts);
            assert!(counts.iter().all(|g| g.sent > 0 && g.batches > 0 && g.idle == 0));
            let mean = total(&counts, |g| g.bytes) as f64 / total(&counts, |g| g.frames) as f64;
            assert!((mean / what.size.mean_bytes() - 1.0).abs() < 0.01, "{mean}");
            comes_to(&sink, total(&counts, |g| g.sent));
        }
    }
}

/// Check that at a rate the ledger closes too, and that there are runs with nothing to do.
#[test]
fn as_root_at_a_rate() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let sink = Sink::new(&pair, XDP_DROP);
    let mut sent = 0;
    for (method, pps) in [
        (Method::Xdp, 5_000.0),
        (Method::Xdp, 400_000.0),
        (Method::Sockets, 5_000.0),
        (Method::Sockets, 40_000.0),
    ] {
        let plan =
            GeneratorPlan { offered: Offered::Pps(pps), method: Some(method), ..pair.plan(udp()) };
        let generator = Generator::start(plan).unwrap();
        let_run(&generator, RUN);
        let counts = generator.stop().unwrap();
        closes(&counts);
        assert!(counts[0].frames > 0 && counts[0].idle > 0, "{counts:?}");
        sent += total(&counts, |g| g.sent);
        comes_to(&sink, sent);
    }
}

/// Check that packets of concurrent generators are distinguished.
#[test]
fn as_root_two_at_once() {
    let Some(_turn) = turn() else { return };
    let pairs = [Pair::new(), Pair::new()];
    let sinks = [0, 1].map(|i| Sink::new(&pairs[i], XDP_DROP));
    // The same device number in two namespaces, and the same CPU.
    let generators = [0, 1].map(|i| {
        let mut plan = pairs[i].plan(udp());
        plan.offered = Offered::Pps(20_000.0 * (i + 1) as f64);
        Generator::start(plan).unwrap()
    });
    generators.iter().for_each(|g| let_run(g, RUN));
    for (generator, sink) in generators.into_iter().zip(&sinks) {
        let counts = generator.stop().unwrap();
        closes(&counts);
        assert_eq!(refused(&counts), 0, "{counts:?}");
        assert!(counts[0].sent > 0);
        comes_to(sink, counts[0].sent);
    }
}

/// Check that a generator that is dropped sends no more, and that none can be calibrated
/// where nothing is taken.
#[test]
fn as_root_dropped_and_calibrated() {
    let Some(_turn) = turn() else { return };
    let pair = Pair::new();
    let why = calibrate(&pair.plan(udp())).unwrap_err().to_string();
    assert!(
        why.contains("were refused (no XDP transmit on this device, or its veth peer has no NAPI"),
        "{why}"
    );
    let sink = Sink::new(&pair, XDP_DROP);
    let generator = Generator::start(pair.plan(udp())).unwrap();
    assert_eq!(generator.method(), Method::Xdp);
    assert!(generator.facts()["generator.sent"].starts_with("seen at"));
    let_run(&generator, RUN);
    drop(generator);
    let at_once = sink.count();
    assert!(at_once > 0);
    std::thread::sleep(RUN);
    // Frames under way at that time may have arrived since.
    assert!(sink.count() - at_once < 256);
    let limits = calibrate(&pair.plan(udp())).unwrap();
    // On a busy machine one may stay unknown: none is 0.
    for limit in [limits.loop_pps, limits.redirect_pps, limits.full_pps] {
        match limit {
            Limit::Pps(pps) => {
                assert!(pps > 0.0, "{limits:?}");
                assert_eq!(limit.bounds(pps), Some(true));
                assert_eq!(limit.bounds(pps * 0.9), Some(false));
            }
            other => assert_eq!(other, Limit::Unknown),
        }
    }
}
