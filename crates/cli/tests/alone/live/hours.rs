//! Runs of hours, here shortened to seconds: they are killed, resumed and ended early.

use std::thread::sleep;
use std::time::Duration;

use netplumb_model::recording::Recording;
use netplumb_testkit::has_root;

use crate::common::{Place, Running, skip};
use crate::live::{namespaces, run_name};

/// The seconds that a run measured, and its packets.
fn measured(recording: &Recording) -> (f64, u64) {
    let packets = recording.blocks.iter().map(|b| b.ledger.offered).sum();
    (recording.run_ns() as f64 / 1e9, packets)
}

/// Check that a run in namespaces that was killed continues where it was, that Ctrl-C ends it early
/// with all that was measured by then, and that nothing is left behind.
#[test]
fn killed_and_resumed() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words = "path --lab netns --clock stages --link lo --rate 500 --duration 12h -o run.plumb";
    if place.run("path --lab netns --clock stages --duration 200ms -o probe.plumb").status.code()
        == Some(3)
    {
        skip("stages can't be attached here");
        return;
    }
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("left; latest: ");
    sleep(Duration::from_millis(3_500));
    running.signal(libc::SIGKILL);
    let run = run_name(&running.finish().stderr);
    let killed = place.recording("run.plumb");
    assert!(!killed.complete);
    let (seconds, packets) = measured(&killed);
    // The blocks that were complete when it was killed.
    assert!((3.0..8.0).contains(&seconds), "{seconds}");
    assert!(packets >= 1_000, "{packets}");

    let mut running = Running::start(&mut place.plumb(&format!("{words} --resume")));
    running.wait_for("left; latest: ");
    sleep(Duration::from_millis(2_500));
    running.signal(libc::SIGINT);
    let ended = running.finish();
    ended.code(130).says(&["--resume"]);
    assert!(ended.stdout.contains("in 2 separate sessions"), "{ended:?}");
    assert!(namespaces(&run).is_empty() && namespaces(&run_name(&ended.stderr)).is_empty());
    let resumed = place.recording("run.plumb");
    let (more_seconds, more_packets) = measured(&resumed);
    assert!(more_seconds > seconds + 1.0 && more_packets > packets + 500);
    assert_eq!(resumed.blocks[..killed.blocks.len()], killed.blocks);
    let indices: Vec<u32> = resumed.blocks.iter().map(|b| b.index).collect();
    assert!(indices.is_sorted_by(|a, b| a < b), "{indices:?}");
    place
        .run(&format!("{} --resume", words.replace("--link lo", "--link veth")))
        .code(2)
        .says(&["knobs.link was \"lo\"", "\"veth\""]);
    place
        .run(&format!("{} --resume", words.replace("500", "400")))
        .code(2)
        .says(&["workload.rate was", "500"]);
    // The recording continues the one before, so that is not kept apart.
    assert!(!place.files().iter().any(|file| file.contains("run.plumb.old")));
    let json = place.run("report run.plumb --json");
    assert!(json.stdout.contains("\"drift\": ["), "{json:?}");
}

/// Check that the traffic of this machine is observed in the same way: on the loopback device of a
/// namespace.
#[test]
fn traffic_of_a_device() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    place.write(
        "traffic.py",
        "import socket,time\n\
         a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
         a.bind(('127.0.0.1',9999))\n\
         while True:\n a.sendto(b'x',('127.0.0.1',9999)); a.recv(9); time.sleep(.002)\n",
    );
    let own = crate::live::gone::Throwaway::new(&place, "hours");
    let traffic = Running::start(&mut own.command(&place, "python3 traffic.py"));
    let words =
        format!("path --lab host --clock stages --netns {} --duration 1h -o run.plumb", own.name());
    let mut seconds = 0.0;
    for (resume, signal, code) in
        [("", libc::SIGKILL, None), (" --resume", libc::SIGINT, Some(130))]
    {
        let mut running = Running::start(&mut place.plumb(&format!("{words}{resume}")));
        running.wait_for("measuring, ");
        sleep(Duration::from_millis(2_500));
        running.signal(signal);
        let ended = running.finish();
        assert_eq!(ended.status.code(), code, "{ended:?}");
        let recording = place.recording("run.plumb");
        assert!(!recording.blocks.is_empty());
        let now = measured(&recording).0;
        assert!(now > seconds + 1.0, "{now} after {seconds}");
        seconds = now;
    }
    traffic.signal(libc::SIGKILL);
    traffic.finish();
}
