//! Nothing is left of a run, however it ends: no process, no file but the
//! recording, and in that all that was measured.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Running};
use netplumb_model::recording::Recording;

/// Two arms of many small blocks: the second lasts long enough to be killed in.
const BLOCKS: usize = 120;

/// Start a run, and wait until it is in the midst of its second arm.
fn measuring(place: &Place) -> Running {
    let words = format!(
        "path --jobs 1 --proto udp,raw --link lo --packets 20 --warmup 20 --blocks {BLOCKS} -o run.plumb"
    );
    let mut running = Running::start(&mut place.plumb(&words));
    running.wait_for("measuring udp");
    let first_began = Instant::now();
    running.wait_for("measuring raw");
    // The second takes about as long as the first.
    sleep(first_began.elapsed() / 3);
    running
}

/// Check a recording that was cut short in its second arm: the first is complete, and the report
/// describes the cut.
fn check_cut_short(place: &Place) -> Recording {
    let recording = place.recording("run.plumb");
    assert!(!recording.complete);
    let first = recording.blocks.iter().filter(|b| b.arm == 0).count();
    assert_eq!(first, BLOCKS);
    assert!(recording.blocks.len() < 2 * BLOCKS);
    let report = place.run("report run.plumb");
    report.code(0);
    assert!(report.stdout.contains("udp tx"), "{report:?}");
    assert!(report.stdout.contains("the run did not finish"), "{report:?}");
    recording
}

/// Check that a run that went well leaves its recording.
#[test]
fn success() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("path --link lo --packets 20 --blocks 1 -o run.plumb").code(0);
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), ["run.plumb"]);
    assert_eq!(place.temporary_files(), [""; 0]);
}

/// Check that one that failed leaves nothing, and keeps its hands off what an
/// earlier one recorded.
#[test]
fn failure() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    drop(netplumb_store::Writer::create(&place.path("run.plumb")).unwrap());
    let earlier = std::fs::read(place.path("run.plumb")).unwrap();
    for _ in 0..2 {
        let mut panicking = place.plumb("path --link lo -o run.plumb");
        panicking.args(["--cmdline", "init=/nonexistent rdinit=/nonexistent"]);
        Running::start(&mut panicking).finish().code(1);
        assert_eq!(place.processes(), [""; 0]);
    }
    assert_eq!(place.files(), ["run.plumb"]);
    let kept = std::fs::read(place.path("run.plumb")).unwrap();
    assert_eq!(kept, earlier);
    assert_eq!(place.temporary_files(), [""; 0]);
}

/// Check Ctrl-C while the guest boots.
#[test]
fn interrupted_while_booting() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let cache = crate::common::own_cache();
    let words = format!("--cache {} path --link lo -o run.plumb", cache.path().display());
    let mut running = Running::start(&mut place.plumb(&words));
    running.wait_for("booting");
    sleep(Duration::from_millis(700));
    assert!(!place.processes().is_empty());
    running.signal(libc::SIGINT);
    running.finish().code(130).says(&["interrupted"]);
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), [""; 0]);
    assert_eq!(place.temporary_files(), [""; 0]);
}

/// Check Ctrl-C in the midst of an arm: complete blocks are shown and kept, including this arm's.
/// `kill` and a terminal that goes away do the same.
#[test]
fn interrupted_while_measuring() {
    if !crate::common::has_guests() {
        return;
    }
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        ended_while_measuring(signal, code);
    }
}

fn ended_while_measuring(signal: i32, code: i32) {
    let place = Place::new();
    let running = measuring(&place);
    running.signal(signal);
    let ran = running.finish();
    ran.code(code).says(&["interrupted", "measured before the error"]);
    assert!(ran.stdout.contains("udp tx"), "{ran:?}");
    assert!(ran.stdout.contains("the run did not finish"), "{ran:?}");
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), ["run.plumb"]);
    assert_eq!(place.temporary_files(), [""; 0]);
    let recording = check_cut_short(&place);
    assert!(recording.blocks.len() > BLOCKS, "none of the second arm");
    // The ledger has an entry for what could not be reported any more.
    for block in &recording.blocks {
        assert!(block.ledger.closes());
        assert_eq!(block.arm == 0, block.ledger.dropped.is_empty());
    }
}

/// Check that QEMU does not outlive a parent that is killed, and that the arm
/// before is kept.
#[test]
fn killed() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let running = measuring(&place);
    assert_eq!(place.processes().len(), 2, "{:?}", place.processes());
    running.signal(libc::SIGKILL);
    assert_eq!(running.finish().status.code(), None);
    place.nothing_runs();
    assert_eq!(place.files(), ["run.plumb"]);
    assert_eq!(place.temporary_files(), [""; 0]);
    check_cut_short(&place);
}

/// Check that a run started by `nohup` continues when its terminal is closed.
#[test]
fn nohup() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let mut command = place.command("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" path --link lo --packets 20 -o run.plumb"]);
    command.arg(env!("CARGO_BIN_EXE_plumb"));
    let mut running = Running::start(&mut command);
    running.wait_for("measuring");
    running.signal(libc::SIGHUP);
    running.finish().code(0);
    assert!(place.recording("run.plumb").complete);
}
