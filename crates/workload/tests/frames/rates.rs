//! How fast it is: tables for people, which no test asks for.

use std::time::{Duration, Instant};

use netplumb_model::bench::{FrameKind, FrameSize, Generated, Offered};
use netplumb_model::class::Family;
use netplumb_workload::frames::{Generator, GeneratorPlan, Method, calibrate};

use super::common::{Pair, Sink, XDP_DROP, frames, program, refused, total, turn, udp};

/// Frames a second that were sent and that came; and those sent by a second of the
/// generator's thread, with which others may share the CPU.
fn rate(plan: GeneratorPlan, came: impl Fn() -> u64) -> [f64; 3] {
    let generator = Generator::start(plan).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let read = || {
        let counts = generator.counts().unwrap();
        let sent = total(&counts, |g| g.sent);
        (Instant::now(), sent, came(), thread_seconds())
    };
    let before = read();
    std::thread::sleep(Duration::from_millis(500));
    let after = read();
    let seconds = (after.0 - before.0).as_secs_f64();
    let counts = generator.stop().unwrap();
    if refused(&counts) > 0 {
        println!("{:?}", counts[0]);
    }
    let sent = (after.1 - before.1) as f64;
    let came = (after.2 - before.2) as f64;
    [sent / seconds, came / seconds, sent / (after.3 - before.3)]
}

/// What the generators' threads had of CPUs.
fn thread_seconds() -> f64 {
    let mut ns = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap();
        if name.starts_with("frames-") {
            let schedstat = std::fs::read_to_string(path.join("schedstat")).unwrap();
            ns += schedstat.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    ns as f64 / 1e9
}

/// Check nothing: print rates by batch, flows, kind and size.
#[test]
#[ignore = "prints a table"]
fn as_root_rates() {
    let _turn = turn();
    let pair = Pair::new();
    let sink = Sink::new(&pair, XDP_DROP);
    let mut rows = Vec::new();
    for batch in [1, 8, 16, 32, 64, 128, 256] {
        rows.push((format!("batch {batch}"), udp(), batch, false));
    }
    for flows in [1, 2, 100, 10_000, 1_000_000] {
        let what = frames(FrameKind::Udp, Family::V4, FrameSize::Bytes(60), flows);
        rows.push((format!("{flows} flows"), what, 64, false));
    }
    for family in [Family::V4, Family::V6] {
        for kind in [FrameKind::Udp, FrameKind::TcpSyn, FrameKind::Icmp] {
            for (size, stamped) in [
                (FrameSize::Bytes(96), false),
                (FrameSize::Bytes(96), true),
                (FrameSize::Bytes(1514), false),
                (FrameSize::Imix, false),
            ] {
                let stamps = if stamped { ", stamped" } else { "" };
                let name = format!("{kind} {family} {size}{stamps}");
                rows.push((name, frames(kind, family, size, 1), 64, stamped));
            }
        }
    }
    for (name, frames, batch, stamped) in rows {
        let rates: Vec<[f64; 3]> = (0..3)
            .map(|_| {
                let mut plan = pair.plan(frames);
                plan.offered = Offered::Most;
                plan.batch = batch;
                plan.stamped = stamped;
                plan.method = Some(Method::Xdp);
                rate(plan, || sink.count())
            })
            .collect();
        let best = |i: usize| rates.iter().map(|r| r[i]).fold(0.0, f64::max) / 1e6;
        let (sent, came, by_thread) = (best(0), best(1), best(2));
        println!("{name:32} {sent:6.2} M/s sent, {came:6.2} came, {by_thread:6.2} by its own time");
    }
    let mut plan = pair.plan(udp());
    println!("{:.1?}", calibrate(&plan).unwrap());
    plan.method = Some(Method::Sockets);
    plan.offered = Offered::Most;
    println!("packet sockets: {:.2?}", rate(plan, || sink.count()));
}

/// Check nothing: print how far the generator is from the least that can be done, a
/// program that does nothing but redirect or drop, in turns.
#[test]
#[ignore = "prints a table"]
fn as_root_beside_the_least() {
    let _turn = turn();
    let pair = Pair::new();
    let _sink = Sink::bare(&pair);
    let device = pair.exit(Family::V4).device;
    let least = [Bare::dropping(), Bare::redirecting(device)];
    let mut rates: Vec<(String, Vec<f64>)> = Vec::new();
    for turn in 0..9 {
        let mut add = |name: &str, pps: f64| {
            if turn == 0 {
                rates.push((name.to_string(), Vec::new()));
            }
            let found = rates.iter_mut().find(|(n, _)| n == name).unwrap();
            found.1.push(pps / 1e6);
        };
        add("drop", least[0].rate(&pair));
        add("redirect", least[1].rate(&pair));
        let calibrated = calibrate(&pair.plan(udp())).unwrap();
        add("ours, dropped", calibrated.loop_pps.pps().unwrap_or_default());
        add("ours, redirect only", calibrated.redirect_pps.pps().unwrap_or_default());
        add("ours", calibrated.full_pps.pps().unwrap_or_default());
        for flows in [1, 10_000] {
            let what = frames(FrameKind::Udp, Family::V4, FrameSize::Bytes(60), flows);
            let mut plan = pair.plan(what);
            plan.offered = Offered::Most;
            add(&format!("{flows} flows"), rate(plan, || 0)[2]);
        }
    }
    for (name, mut rates) in rates {
        rates.sort_by(f64::total_cmp);
        println!("{name:24} {:6.2} M/s {rates:.2?}", rates[rates.len() / 2]);
    }
}

/// A program of a few instructions.
struct Bare(std::os::fd::OwnedFd);

impl Bare {
    fn dropping() -> Bare {
        Bare(program(&[(0xb7, 0, 0, 0, XDP_DROP), (0x95, 0, 0, 0, 0)]))
    }

    fn redirecting(device: u32) -> Bare {
        // r1 = device, r2 = 0, call bpf_redirect (23), exit
        let code = [
            (0xb7, 1, 0, 0, device as i32),
            (0xb7, 2, 0, 0, 0),
            (0x85, 0, 0, 0, 23),
            (0x95, 0, 0, 0, 0),
        ];
        Bare(program(&code))
    }

    /// Runs of it a second.
    fn rate(&self, pair: &Pair) -> f64 {
        use std::os::fd::AsRawFd;
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let frame = [0_u8; 60];
                let mut options = libbpf_sys::bpf_test_run_opts {
                    sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
                    data_in: frame.as_ptr().cast(),
                    data_size_in: frame.len() as u32,
                    flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
                    batch_size: 64,
                    repeat: 3_000_000,
                    ..Default::default()
                };
                netplumb_sys::netns::inside(std::os::fd::AsFd::as_fd(&pair.tx), || {
                    // SAFETY: it is bound to CPU 0; the frame outlives the call.
                    unsafe {
                        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
                        libc::CPU_SET(0, &mut cpus);
                        libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus);
                        // ns of one run, without what comes before and after all of them.
                        let fd = self.0.as_raw_fd();
                        assert_eq!(libbpf_sys::bpf_prog_test_run_opts(fd, &raw mut options), 0);
                    }
                    Ok(1e9 / f64::from(options.duration))
                })
            });
            run.join().unwrap().unwrap()
        })
    }
}

/// Check nothing: print how near the rate is to the one asked for, in a second, and how
/// long a stop takes.
#[test]
#[ignore = "prints a table"]
fn as_root_paces() {
    let _turn = turn();
    let pair = Pair::new();
    let sink = Sink::new(&pair, XDP_DROP);
    for method in [Method::Xdp, Method::Sockets] {
        for pps in [1e3, 1e5, 1e6, 3e6] {
            let mut plan = pair.plan(udp());
            plan.offered = Offered::Pps(pps);
            plan.method = Some(method);
            let begun = Instant::now();
            let generator = Generator::start(plan).unwrap();
            let start = begun.elapsed();
            std::thread::sleep(Duration::from_millis(100));
            let read = || {
                let counts = generator.counts().unwrap();
                let of = |of: fn(&Generated) -> u64| total(&counts, of) as f64;
                (Instant::now(), of(|g| g.frames), of(|g| g.behind), sink.count())
            };
            let before = read();
            std::thread::sleep(Duration::from_secs(1));
            let after = read();
            let begun = Instant::now();
            generator.stop().unwrap();
            let stop = begun.elapsed();
            let seconds = (after.0 - before.0).as_secs_f64();
            let share = |n: f64| 100.0 * n / pps / seconds;
            println!(
                "{method:?} {pps:9} pps: made {:8.3} %, forgotten {:7.3} %, came {:8.3} %, start {start:.1?}, stop {stop:.1?}",
                share(after.1 - before.1),
                share(after.2 - before.2),
                share((after.3 - before.3) as f64),
            );
        }
    }
}
