//! Frames of the generator's: as in a bench.

use std::time::{Duration, Instant};

use netplumb_model::bench::{Bench, DataPath, FrameKind, FrameSize, Frames, Handled, Offered};
use netplumb_model::class::Family;
use netplumb_paths::{Sink, Standing, Way, frame_mac, needs, set_up};
use netplumb_testkit::has_root;
use netplumb_workload::frames::{BATCH, Exit, Generator, GeneratorPlan, TTL};

use crate::common::{PORT, Wires, settle};

/// A generator at tx0, on the second CPU; testpmd and readers are on the first.
fn plan(wires: &Wires, to_mac: [u8; 6], offered: Offered, stamped: bool) -> GeneratorPlan {
    let from = wires.generator_site();
    GeneratorPlan {
        exit: Exit {
            namespace: from.namespace,
            device: from.ingress.index,
            mac: from.ingress.mac,
            to_mac,
            source: from.source,
            destination: from.destination,
            source_port: 4_000,
            destination_port: PORT,
        },
        frames: Frames {
            kind: FrameKind::Udp,
            family: if wires.v6 { Family::V6 } else { Family::V4 },
            size: FrameSize::Bytes(if stamped { 80 } else { 64 }),
            flows: 1,
        },
        flow_ports: 0,
        ttl: TTL,
        offered,
        cpus: vec![1],
        batch: BATCH,
        stamped,
        method: None,
    }
}

/// What a path stands for, with its sink, if it has one.
fn stand(way: &Way, wires: &Wires) -> (Box<dyn Standing>, Option<Sink>) {
    let site = wires.site();
    let at = match (way.bench, way.path) {
        (Bench::Drop, _) => None,
        (_, DataPath::XdpTx) => Some(wires.generator_site()),
        _ => Some(wires.sink_site()),
    };
    let sink = at.map(|site| Sink::set_up(&site, way.stamped).unwrap());
    (set_up(way, &site).unwrap(), sink)
}

/// Check that each path handles all generated frames that the device took, which come as XDP frames
/// do, or reports where the others went; and that stamps are read where there is somebody to read
/// them.
#[test]
fn as_root_frames_of_the_kernel() {
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    for bench in Bench::ALL {
        for path in DataPath::for_bench(*bench) {
            // testpmd takes seconds to start: once is enough.
            let again = *path == DataPath::Dpdk && *bench == Bench::Forward;
            if again || needs(*path, *bench).is_err() {
                continue;
            }
            let way = Way { stamped: true, ..Way::new(*path, *bench) };
            let (mut standing, mut sink) = stand(&way, &wires);
            let to = frame_mac(*path, &wires.site());
            let offered = Offered::Pps(50_000.0);
            let generator = Generator::start(plan(&wires, to, offered, true)).unwrap();
            // Where others have the CPU, it takes longer.
            let begun = Instant::now();
            let so_far = || generator.counts().unwrap().iter().map(|g| g.sent).sum::<u64>();
            while so_far() < 1_000 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let sent: u64 = generator.stop().unwrap().iter().map(|g| g.sent).sum();
            assert!(sent > 100, "{path}: {sent}");
            let handled = settle(|| standing.handled().unwrap(), sent);
            let lost: u64 = handled.lost.values().sum();
            // The kernel's bridge counts what left by the device, its own frames among them.
            let own = match path {
                DataPath::Bridge => handled.total() + lost - sent,
                _ => 0,
            };
            assert!(
                handled.total() + lost == sent + own && own < 10,
                "{bench} {path}: sent {sent}, {handled:?}\n{}",
                wires.counters()
            );
            let left = sent - lost;
            let timed = match &mut sink {
                Some(sink) => settle(|| sink.handled().unwrap(), left),
                None => handled.clone(),
            };
            assert_eq!(timed.total(), left, "{bench} {path}\n{}", wires.counters());
            if let Some(times) = &timed.latency {
                assert_eq!(times.count, timed.total(), "{bench} {path}: {times:?}");
            }
        }
    }
}

/// Print how fast each path goes here: not a test, since no rate is one.
#[test]
#[ignore = "measures; run it by hand: cargo test --release -p netplumb-paths -- --ignored"]
fn as_root_rates() {
    use std::io::Write;
    if !has_root() {
        return;
    }
    let wires = Wires::new(false);
    for bench in Bench::ALL {
        for path in DataPath::for_bench(*bench) {
            let mut line = format!("{bench} {path}: ");
            match needs(*path, *bench) {
                Err(why) => line += &why.to_string(),
                Ok(()) => line += &rate(&Way::new(*path, *bench), &wires),
            }
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

fn rate(way: &Way, wires: &Wires) -> String {
    let (mut standing, mut sink) = stand(way, wires);
    let to = frame_mac(way.path, &wires.site());
    let generator = Generator::start(plan(wires, to, Offered::Most, false)).unwrap();
    let mut ask = |standing: &mut Box<dyn Standing>| -> Handled {
        match &mut sink {
            Some(sink) => sink.handled().unwrap(),
            None => standing.handled().unwrap(),
        }
    };
    std::thread::sleep(Duration::from_millis(300));
    let (before, start) = (ask(&mut standing).total(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (after, took) = (ask(&mut standing).total(), start.elapsed());
    drop(generator);
    let handled = standing.handled().unwrap();
    let mpps = (after - before) as f64 / took.as_secs_f64() / 1e6;
    format!("{mpps:.2} Mpps; lost {:?}", handled.lost)
}
