//! Two hosts and a wire: the same in every run to the nanosecond, as fast as a wire is, and gone
//! when one of them is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::common::{Place, Running};
use netplumb_model::class::Direction;
use netplumb_model::hosts::{
    BUSY, COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS, FRAMES, FRAMES_PER_POLL, INSTRUCTIONS,
    KERNEL_IDLE, MISSED, THROUGHPUT, TURN, TURNS,
};
use netplumb_model::quantity::{Declared, Subject};
use netplumb_model::recording::Recording;

/// A recording's figures of its blocks, and the times of its frames.
fn figures(recording: &Recording) -> BTreeMap<String, String> {
    let mut figures = BTreeMap::new();
    // Figures of the run are QEMU's own.
    for scalar in recording.scalars.iter().filter(|s| s.of != Subject::Run) {
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

/// Check that three runs of one plan are the same to the nanosecond, one of them from a cold boot and one on a busy
/// machine, and that throughput is a little below the wire's.
#[test]
fn the_same_every_time() {
    if !crate::common::has_guests() {
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
    assert!((725.0..775.0).contains(&sent), "{sent}");
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
    if !crate::common::has_guests() {
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
    // 128 us is the interrupt interval of these NICs: multiples of it hide the wire.
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
    // Longer than the NIC's own timers, which have to fit between two exchanges of frames.
    let far = "--wire-delay 2ms";
    let one = stream(far);
    assert_eq!([stream(far), stream(far)], [one.clone(), one]);
}

/// Check that the end of any of the three processes is the end of all, whatever ends it: of a host
/// with an error, of plumb without a trace.
#[test]
fn one_ends_all() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // So that the run that is killed below is at work, not booting.
    place.run("bench stream --bytes 1M --blocks 1 -o x.plumb").code(0);
    for victim in 0..3 {
        let mut running =
            Running::start(&mut place.plumb("bench stream --bytes 256M --blocks 50 -o y.plumb"));
        running.wait_for("measuring");
        sleep(Duration::from_millis(1_500));
        let guests = children(running.id());
        assert_eq!(guests.len(), 2, "{guests:?}");
        let killed = [guests[0], guests[1], running.id()][victim];
        // QEMU ends well by the second.
        let signal = [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL][victim];
        // SAFETY: takes numbers; it is a process of this test.
        unsafe { libc::kill(killed as libc::pid_t, signal) };
        if victim < 2 {
            let ran = running.finish();
            ran.code(1);
            let by = ["signal: 9", "from outside, by signal 15"][victim];
            for part in ["QEMU failed", by] {
                assert!(ran.stderr.contains(part), "no `{part}`: {ran:?}");
            }
            let host = ["sender", "receiver"][victim];
            let says = format!("the guest of the {host} ended");
            assert!(ran.stderr.contains(&says), "{ran:?}");
            for noise in ["other host has ended", "not connected to host network"] {
                assert!(!ran.stderr.contains(noise), "{ran:?}");
            }
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

/// Check that counting the instructions of both hosts changes no frame's time, that two runs are the same in
/// every count, that all that either host executed is accounted for, and that functions are on the side
/// where they are called, by frame and by byte.
#[test]
fn instructions_of_both() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let run = |file: &str, words: &str| {
        let words = format!("bench stream --bytes 512K --blocks 2 -o {file} {words}");
        place.run(&words).code(0);
        place.recording(file)
    };
    let plain = run("plain.plumb", "");
    let first = run("1.plumb", "--exact");
    let second = run("2.plumb", "--exact");
    let of_wire = |recording: &Recording| figures(&recording.part("wire"));
    assert_eq!(of_wire(&plain), of_wire(&first));
    let counts = first.part("exact");
    assert_eq!(counts.costs, second.part("exact").costs);
    assert_eq!(first.functions, second.functions);
    assert_eq!(first.code, second.code);

    for (number, block) in (0..).zip(&counts.blocks) {
        let own: u64 =
            (counts.costs.iter()).filter(|cost| cost.block == number).map(|cost| cost.own).sum();
        assert_eq!(own, block.totals[0].kernel);
        // 512 KiB in frames of 1,448 bytes, and the first ones of either direction.
        assert!((362..400).contains(&block.ledger.offered), "{block:?}");
        assert!(block.ledger.closes());
    }
    // The wire's count for a host is the plugin's, except for the instructions of the marks.
    let sum = |recording: &Recording, quantity: &Declared, host: &str| -> u64 {
        let scalars = recording.scalars_of(quantity);
        let of_host = scalars.filter(|scalar| scalar.item.label.as_deref() == Some(host));
        of_host.map(|scalar| scalar.value as u64).sum()
    };
    for host in ["sender", "receiver"] {
        let executed = sum(&first, &INSTRUCTIONS, host);
        let counted =
            sum(&first, &COUNTED_IN_KERNEL, host) + sum(&first, &COUNTED_IN_PROGRAMS, host);
        assert!(executed.abs_diff(counted) < 200, "{host}: {executed} {counted}");
    }
    let has = |direction: Direction, function: &str| {
        counts.costs.iter().any(|cost| {
            let node = &counts.nodes[cost.node as usize];
            cost.direction == direction && counts.functions[node.function as usize].name == function
        })
    };
    for (function, tx, rx) in [
        ("tcp_sendmsg_locked", true, false),
        // The sender also reads a byte, by which the receiver signals that it has everything.
        ("tcp_recvmsg_locked", true, true),
        ("skb_gro_receive", false, true),
        ("tcp_ack", true, true),
        ("tcp_gro_receive", true, true),
    ] {
        let found = [Direction::Tx, Direction::Rx].map(|direction| has(direction, function));
        assert_eq!(found, [tx, rx], "{function}");
    }
    let report = place.run("report 1.plumb");
    report.code(0);
    for word in ["Instrument wire", "Instrument exact", "tcp tx", "tcp rx", "per KiB"] {
        assert!(report.stdout.contains(word), "{word}: {report:?}");
    }
    let same = place.run("diff 1.plumb 2.plumb --clock exact");
    same.code(0);
    assert!(same.stdout.contains("no difference"), "{same:?}");
}

/// Check that several connections carry all bytes, the same in each run; and that echoes take as long as
/// their frames do, whatever their size.
#[test]
fn connections_and_echoes() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let run = |words: &str| {
        place.run(&format!("bench {words} --blocks 1 -o x.plumb")).code(0);
        place.recording("x.plumb")
    };
    let several = "stream --bytes 512K --connections 3";
    let first = run(several);
    assert_eq!(figures(&first), figures(&run(several)));
    let ledger = &first.blocks[0].ledger;
    assert_eq!((ledger.offered, ledger.delivered), (512 << 10, 512 << 10));
    assert!(mean(&first, &FRAMES_PER_POLL, Some("receiver")) > 0.0);

    // The larger ones are sent as 7 frames in either direction; interrupts come every 128 us.
    let turn = |size: u32| {
        let recording = run(&format!("ping --turns 5 --size {size}"));
        mean(&recording, &TURN, Some("median"))
    };
    let (small, large) = (turn(56), turn(10_000));
    assert!((20e3..400e3).contains(&small), "{small}");
    let on_the_wire = 6.0 * 12_304.0;
    assert!(large > small + on_the_wire, "{small} {large}");
    // 34 frames in either direction, each while the ones before are read; summing 50,000 bytes in a slow program is not
    // part of it.
    let largest = turn(50_000);
    assert!((60.0 * 12_304.0..1_500e3).contains(&largest), "{largest}");
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2));
        if parent.and_then(|p| p.parse().ok()) == Some(of) {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

/// Check that a run takes as long as it takes, while frames go over the wire, and that a host that stops
/// ends it.
#[test]
fn as_long_as_it_goes_on() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("bench stream --bytes 1M --blocks 1 -o x.plumb").code(0);
    let began = Instant::now();
    let long = "bench stream --blocks 1 --timeout 3 -o y.plumb --bytes";
    place.run(&format!("{long} 48M")).code(0);
    assert!(began.elapsed() > Duration::from_secs(3), "too short for this test");

    let mut running = Running::start(&mut place.plumb(&format!("{long} 1024M")));
    running.wait_for("measuring");
    sleep(Duration::from_millis(1_500));
    let guests = children(running.id());
    // SAFETY: takes numbers; it is a process of this test.
    unsafe { libc::kill(guests[0] as libc::pid_t, libc::SIGSTOP) };
    let ran = running.finish();
    ran.code(1);
    for part in ["within 3 s", "is stopped (SIGSTOP"] {
        assert!(ran.stderr.contains(part), "no `{part}`: {ran:?}");
    }
    assert_eq!(place.processes(), [""; 0]);
}

/// Check that frames which a receiver's NIC has no room for are counted as dropped: what came to its driver, and what TCP
/// sent again, is the rest; and that a longer ring drops none.
#[test]
fn dropped_by_the_nic() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = "bench stream --blocks 1 --rx-shift 3 --connections 16 --exact -o";
    place.run(&format!("{words} x.plumb")).code(0);
    let recording = place.recording("x.plumb");
    let of_rx = |quantity: &Declared| mean(&recording, quantity, Some("receiver")) as u64;
    let dropped = of_rx(&MISSED);
    assert!(dropped > 100, "too few for this test: {dropped}");
    let counts = recording.part("exact");
    let ledger = &counts.blocks[0].ledger;
    assert!(ledger.closes());
    assert_eq!(ledger.delivered, ledger.offered - dropped);
    let receive = counts.functions.iter().position(|f| f.name == "napi_gro_receive");
    let calls: u64 = (counts.costs.iter())
        .filter(|cost| counts.nodes[cost.node as usize].function as usize == receive.unwrap())
        .filter(|cost| cost.direction == Direction::Rx)
        .map(|cost| cost.calls)
        .sum();
    // The byte by which both agree on the end is among them, or not.
    assert!(calls.abs_diff(ledger.delivered) <= 2, "{calls} {ledger:?}");
    place.run(&format!("{words} y.plumb --rings rx=4096")).code(0);
    let longer = place.recording("y.plumb");
    assert_eq!(mean(&longer, &MISSED, Some("receiver")), 0.0);
}

/// Check that the kernel's own account of a host's idle time goes with the time in which it executes nothing: its work
/// to become idle is idle to it.
#[test]
fn idle_by_the_kernel() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("bench stream --bytes 1M --blocks 1 -o x.plumb").code(0);
    let recording = place.recording("x.plumb");
    for host in ["sender", "receiver"] {
        let [busy, idle] = [&BUSY, &KERNEL_IDLE].map(|of| mean(&recording, of, Some(host)));
        assert!((0.98..1.2).contains(&(busy + idle)), "{host}: {busy} {idle}");
    }
}

/// Check that a boot that fails ends all arms that wait for it, with its error.
#[test]
fn a_boot_that_fails_is_not_repeated() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let arms = "--jobs 4 --tx-shift 0,1 --offload tso=on --offload tso=off";
    let words = format!("bench stream --bytes 1M --blocks 1 {arms}");
    let mut command = place.plumb(&words);
    command.args(["--cmdline", "rdinit=/nonexistent panic=0"]);
    let ran = Running::start(&mut command).finish();
    ran.code(1).says(&["arm tso=on tx_shift=0: the guest's kernel panicked"]);
    // Both hosts boot.
    assert_eq!(ran.stderr.matches("booting").count(), 2, "{ran:?}");
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check that what can't be is one clear line, before anything boots.
#[test]
fn what_cannot_be() {
    if !crate::common::has_guests() {
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
        ("bench stream --quick", "virtual time"),
        ("bench stream --size 100", "--write-bytes"),
        ("bench request --turns 0", "expected 1 to"),
        ("bench stream --connections 65", "expected 1 to 64"),
        ("bench ping --size 70000", "65507"),
    ] {
        let ran = place.run(words);
        ran.code(2);
        assert!(ran.stderr.contains(says), "{words}: {ran:?}");
    }
    assert_eq!(place.processes(), [""; 0]);
}

const CLAIMS: &str = r#"
name = "claims"
hosts = 2
[workload]
kind = "stream"
bytes = "256K"
[blocks]
count = 1
[[arm]]
name = "fast"
[[arm]]
name = "slow"
knobs.tx_shift = 3
[[claim]]
kind = "compare"
says = "a slow sender sends as much"
arm = "slow"
against = "fast"
quantity = "throughput"
within_percent = 1
[[claim]]
kind = "compare"
says = "where both are always busy it sends less"
arm = "slow"
against = "fast"
quantity = "throughput"
at_most = 0.9
only_if = { quantity = "CPU use of sender", at_least = 1.5 }
[[claim]]
kind = "compare"
says = "a slow sender sends less"
arm = "slow"
against = "fast"
quantity = "throughput"
at_most = 0.9
"#;

/// Check that a claim that does not hold is a failure only where that is asked for, with a code of its own and the
/// claim's name; that one without data is named, and no failure; and that a file without claims can't be asked so.
#[test]
fn claims_that_fail() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("claims.toml", CLAIMS);
    place.run("run -q claims.toml").code(0);
    let ran = place.run("run -q claims.toml --fail-if-claim-fails");
    ran.code(4).says(&[
        "a claim does not hold: a slow sender sends as much",
        "there are no data for a claim: where both are always busy",
    ]);
    let held = "a slow sender sends less";
    assert!(!ran.stderr.contains(held), "{}", ran.stderr);
    let (first, rest) = CLAIMS.split_once("[[claim]]").unwrap();
    let (_, others) = rest.split_once("[[claim]]").unwrap();
    place.write("others.toml", format!("{first}[[claim]]{others}"));
    place
        .run("run -q others.toml --fail-if-claim-fails")
        .code(0)
        .says(&["no failure: there are no data for a claim"]);
    place.write("none.toml", first);
    place
        .run("run -q none.toml --fail-if-claim-fails")
        .code(2)
        .says(&["none.toml has no [[claim]]"]);
}
