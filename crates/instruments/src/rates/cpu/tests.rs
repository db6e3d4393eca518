use std::time::{Duration, Instant};

use netplumb_testkit::mostly;

use super::*;
use crate::own::thread_ns;

fn stat(at_s: u64, text: &str) -> Stat {
    Stat { at_ns: at_s * 1_000_000_000, cpus: stat::parse(text, 100.0) }
}

/// Check that idle time is found for each CPU by its number, not for all together; that
/// what ticks were charged for is ignored; and that a CPU that came or went is left
/// out.
#[test]
fn idleness() {
    let before = stat(
        10,
        "cpu  1 2 3 4000 5 6\ncpu0 9 9 9 150 50 9 9 9\ncpu1 1 1 1 300 0 1\ncpu7 0 0 0 1\nintr 5\n",
    );
    let after =
        stat(12, "cpu  0\ncpu0 900 9 9 190 60 9 19 59 0 0\ncpu1 9999 1 1 501 0 1\ncpu3 0 0 0 9\n");
    let uses = before.busy_to(&after);
    assert_eq!(uses.len(), 2, "{uses:?}");
    assert!(before.has_cpus_of(&before) && !before.has_cpus_of(&after));
    assert_eq!(uses[0].cpu, 0);
    assert!((uses[0].busy - 0.75).abs() < 1e-9, "{uses:?}");
    assert!((uses[0].softirq - 0.05).abs() < 1e-9, "{uses:?}");
    assert!((uses[0].steal - 0.25).abs() < 1e-9, "{uses:?}");
    // A tick more than there was time for.
    assert_eq!((uses[1].cpu, uses[1].busy), (1, 0.0));
    assert!((before.resolution_to(&after) - 0.01).abs() < 1e-9);
    // No time between them.
    assert!(before.busy_to(&before).iter().all(|u| u.busy == 1.0));
    assert_eq!(before.resolution_to(&before), 1.0);
}

/// Check that the second method counts from one reading to the next, and keeps quiet
/// where it is not sure.
#[test]
fn unsure() {
    let ran =
        |at_ns, busy_ns, unsure_ns| CpuSums { at_ns, busy_ns, unsure_ns, others_ns: busy_ns / 10 };
    let expected = Some((0.25, 0.025));
    assert_eq!(second(&ran(0, 50, 5), &ran(1000, 300, 5)), expected);
    assert_eq!(second(&ran(0, 50, 5), &ran(1000, 300, 15)), expected);
    assert_eq!(second(&ran(0, 50, 5), &ran(1000, 300, 16)), None);
    assert_eq!(second(&ran(9, 50, 5), &ran(9, 50, 5)), None);
}

/// Run half of the time, in stretches of varying length; returns the share of the time
/// that was its own CPU time.
fn half(wall: Duration) -> f64 {
    let (began, ran) = (Instant::now(), thread_ns());
    let mut stretch = 1;
    while began.elapsed() < wall {
        // From 0.5 to 3.5 ms, so that ticks don't fall in step.
        stretch = stretch * 1_103_515_245 % 65_537 + 12_345;
        let long = Duration::from_micros(500 + stretch % 3000);
        let until = Instant::now() + long;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::sleep(long);
    }
    (thread_ns() - ran) as f64 / began.elapsed().as_nanos() as f64
}

/// Check that both methods measure a loop that runs half of the time: they agree with
/// each other and with the loop's own clock. Without the right to trace, the second one
/// may be missing.
#[test]
fn as_root_half_of_the_time() {
    const NEAR: f64 = 0.03;
    let clock = CpuClock::begin().unwrap();
    if let Some(why) = clock.without_second() {
        netplumb_testkit::skip(&why.to_string());
        return;
    }
    let measured = std::thread::spawn(move || {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let cpu = cpus - 1;
        netplumb_sys::cpus::pin(0, cpu as u32).unwrap();
        // Others use the machine, too; the two methods differ if the load changes
        // between their readings: most windows have to be right.
        mostly(3, 5, || {
            // From a switch of tasks on.
            std::thread::sleep(Duration::from_millis(1));
            let before = clock.read().unwrap();
            let own = half(Duration::from_millis(1000));
            let after = clock.read().unwrap();
            let uses = since(&before, &after);
            let used = uses.into_iter().find(|u| u.cpu as usize == cpu).unwrap();
            let agree = used
                .second
                .is_some_and(|s| (used.busy - s).abs() < NEAR && used.busy.min(s) > own - NEAR);
            let message = format!("{own:.3} by its own clock, {used:?}");
            // Less than half, where others or the machine below took their time.
            match agree && own > 0.02 && own < 0.6 {
                true => Ok(message),
                false => Err(message),
            }
        });
    });
    measured.join().unwrap();
}

/// Check that another program's use of a CPU is separated from ours.
#[test]
fn as_root_others() {
    const NEAR: f64 = 0.1;
    let clock = CpuClock::begin().unwrap();
    if let Some(why) = clock.without_second() {
        netplumb_testkit::skip(&why.to_string());
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let cpu = cpus - 1;
    // Its parent ends at once, so it is a child of ours no more.
    let spin = format!("timeout 8 taskset -c {cpu} sh -c 'while :; do :; done' &");
    let started = std::process::Command::new("sh").args(["-c", &spin]).status();
    assert!(started.unwrap().success());
    let measured = std::thread::spawn(move || {
        netplumb_sys::cpus::pin(0, cpu as u32).unwrap();
        mostly(3, 5, || {
            std::thread::sleep(Duration::from_millis(10));
            let before = clock.read().unwrap();
            let (began, ran) = (Instant::now(), thread_ns());
            while began.elapsed() < Duration::from_millis(800) {
                std::hint::spin_loop();
            }
            let own = (thread_ns() - ran) as f64 / began.elapsed().as_nanos() as f64;
            let after = clock.read().unwrap();
            let uses = since(&before, &after);
            let used = uses.into_iter().find(|u| u.cpu as usize == cpu).unwrap();
            let message = format!("{own:.3} by its own clock, {used:?}");
            // The other loop has as much as this one; other programs may have more. The rest is a concurrent
            // test's, which is ours.
            let is_right =
                used.others.is_some_and(|others| (own - NEAR..1.0 - own + NEAR).contains(&others));
            match is_right {
                true => Ok(message),
                false => Err(message),
            }
        });
    });
    measured.join().unwrap();
}

/// Check that what is under way counts: a CPU that is busy from before a window to
/// after it, perhaps without a task switch in it, is busy.
#[test]
fn as_root_a_period_under_way() {
    let clock = CpuClock::begin().unwrap();
    if let Some(why) = clock.without_second() {
        netplumb_testkit::skip(&why.to_string());
        return;
    }
    let busy = std::thread::spawn(move || {
        netplumb_sys::cpus::pin(0, 0).unwrap();
        let read = || clock.second.as_ref().unwrap().read().unwrap()[&0];
        let before = read();
        let until = Instant::now() + Duration::from_millis(30);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        second(&before, &read())
    });
    let (busy, _) = busy.join().unwrap().unwrap();
    assert!(busy > 0.999, "{busy}");
}
