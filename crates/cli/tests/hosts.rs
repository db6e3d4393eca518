//! Two hosts and a wire: the same in every run to the nanosecond, as fast as a wire is, and gone
//! when one of them is.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use common::{Place, Running};
use netplumb_model::hosts::{BUSY, FRAMES, THROUGHPUT, TURN, TURNS};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;

/// All that a recording says of its blocks, and the times of its frames.
fn figures(recording: &Recording) -> BTreeMap<String, String> {
    let mut figures = BTreeMap::new();
    for scalar in &recording.scalars {
        let quantity = &recording.quantities[scalar.quantity as usize].name;
        let key = format!("{:?} {quantity} {:?}", scalar.of, scalar.item.label);
        figures.insert(key, format!("{:?}", scalar.value));
    }
    for (arm, notes) in &recording.notes {
        let frames = notes.facts["wire.frames"].clone();
        figures.insert(format!("{arm} frames"), frames);
    }
    figures
}

/// The mean over all blocks.
fn mean(recording: &Recording, quantity: &Declared, label: Option<&str>) -> f64 {
    let values: Vec<f64> = recording
        .scalars_of(quantity)
        .filter(|scalar| scalar.item.label.as_deref() == label)
        .map(|scalar| scalar.value)
        .collect();
    assert!(!values.is_empty(), "{}", quantity.name);
    values.iter().sum::<f64>() / values.len() as f64
}

/// Check that three runs of one plan are the same to the nanosecond, one of them from a cold boot and
/// one on a busy machine, and that throughput is below that of the wire and near it.
#[test]
fn the_same_every_time() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    let run = |file: &str| {
        let words = format!("bench stream --bytes 1M --blocks 2 -o {file}");
        place.run(&words).code(0);
        place.recording(file)
    };
    let first = run("1.plumb");
    let second = run("2.plumb");
    let busy = AtomicBool::new(true);
    let third = scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let third = run("3.plumb");
        busy.store(false, Ordering::Relaxed);
        third
    });
    assert_eq!(figures(&first), figures(&second));
    assert_eq!(figures(&first), figures(&third));
    // 1,448 of 1,538 bytes are payload.
    let rate = mean(&first, &THROUGHPUT, None);
    let most = 1e9 * 1_448.0 / 1_538.0;
    assert!((most * 0.9..most).contains(&rate), "{rate}");
    let sent = mean(&first, &FRAMES, Some("sender"));
    assert!((725.0..760.0).contains(&sent), "{sent}");
    for host in ["sender", "receiver"] {
        let busy = mean(&first, &BUSY, Some(host));
        assert!((0.02..0.9).contains(&busy), "{host}: {busy}");
    }
    assert_eq!(place.processes(), [""; 0]);
}

/// Check that turns take longer over a longer wire, by twice the difference; that losses and jitter
/// are the same for the same seed, and others for another.
#[test]
fn turns_losses_and_seeds() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    let run = |words: &str| {
        let words = format!("bench request --turns 10 --blocks 1 -o x.plumb {words}");
        place.run(&words).code(0);
        place.recording("x.plumb")
    };
    let turn = |words: &str| {
        let recording = run(words);
        assert!(mean(&recording, &TURNS, None) > 0.0);
        mean(&recording, &TURN, Some("least"))
    };
    // 128 us is the interval of interrupts of these NICs: multiples of it hide the wire.
    let (short, long) = (turn("--wire-delay 1us"), turn("--wire-delay 5ms"));
    let longer = long - short;
    assert!((9.6e6..10.4e6).contains(&longer), "{short} {long}");

    let stream = |words: &str| {
        let words = format!("bench stream --bytes 512K --blocks 1 -o x.plumb {words}");
        place.run(&words).code(0);
        figures(&place.recording("x.plumb"))
    };
    let lossy = "--wire-loss 1% --wire-jitter 10us";
    let one = stream(lossy);
    assert_eq!(one, stream(lossy));
    assert_ne!(one, stream(""));
}

/// Check that the end of any of the three processes is the end of all, whatever ends it: of a host
/// with an error, of plumb without a trace.
#[test]
fn one_ends_all() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    // So that what is killed below is at work, not booting.
    place
        .run("bench stream --bytes 1M --blocks 1 -o x.plumb")
        .code(0);
    for victim in 0..3 {
        let mut running =
            Running::start(&mut place.plumb("bench stream --bytes 256M --blocks 50 -o y.plumb"));
        running.wait_for("measuring");
        sleep(Duration::from_millis(1_500));
        let guests = children(running.id());
        assert_eq!(guests.len(), 2, "{guests:?}");
        let killed = [guests[0], guests[1], running.id()][victim];
        // SAFETY: takes numbers; it is a process of this test.
        unsafe { libc::kill(killed as libc::pid_t, libc::SIGKILL) };
        if victim < 2 {
            let ran = running.finish();
            ran.code(1);
            assert!(ran.stderr.contains("QEMU failed"), "{ran:?}");
            assert!(!ran.stderr.contains("other host has ended"), "{ran:?}");
        } else {
            running.finish();
        }
        let began = Instant::now();
        while !place.processes().is_empty() && began.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(20));
        }
        assert_eq!(place.processes(), [""; 0], "{victim}");
    }
    assert_eq!(place.files(), ["x.plumb"]);
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split(' ').nth(2));
        if parent.and_then(|p| p.parse().ok()) == Some(of) {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

/// Check that what can't be is one clear line, before anything boots.
#[test]
fn what_cannot_be() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    for (words, says) in [
        ("bench stream --link veth", "can't join two hosts"),
        ("bench stream --link e1000e", "IP fragments"),
        ("bench stream --wire-rate fast", "like 1G"),
        ("bench stream --wire-loss 90%", "at most 50%"),
        ("bench stream --hosts 3", "2"),
        ("bench stream --wire-rate 100G --wire-delay 0", "too short"),
        ("bench stream --quick", "clock of instructions"),
        ("bench stream --size 100", "--write-bytes"),
        ("bench request --turns 0", "expected 1 to"),
    ] {
        let ran = place.run(words);
        ran.code(2);
        assert!(ran.stderr.contains(says), "{words}: {ran:?}");
    }
    assert_eq!(place.processes(), [""; 0]);
}
