//! The live view on a terminal.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, skip};
use netplumb_testkit::has_root;

/// Check that `q` ends the live view well, that the terminal is as it was, and that
/// nothing else draws on it meanwhile.
#[test]
fn watched_on_a_terminal() {
    if !has_root() {
        return;
    }
    if !Path::new("/usr/bin/script").exists() {
        skip("script is not installed: apt-get install bsdutils");
        return;
    }
    let place = Place::new();
    let plumb = env!("CARGO_BIN_EXE_plumb");
    place.write(
        "watch.sh",
        format!(
            "stty cols 100 rows 40\nstty -a > before\n\
             {plumb} path --lab netns --clock stages --watch --duration 120s --blocks 400 -o run.plumb\n\
             echo ended with $?\nstty -a > after\n"
        ),
    );
    let mut command = place.command("/usr/bin/script");
    command
        .args(["-q", "-e", "-c", "sh watch.sh", "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let began = Instant::now();
    while !place.path("run.plumb").exists()
        && !place.path("after").exists()
        && began.elapsed() < Duration::from_secs(60)
    {
        sleep(Duration::from_millis(50));
    }
    sleep(Duration::from_millis(700));
    keys.write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(keys);
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("ended with 3") {
        skip(&format!("no stages here: {said}"));
        return;
    }
    assert!(began.elapsed() < Duration::from_secs(100), "{said}");
    assert!(said.contains("ended with 0"), "{said}");
    let (_, rest) = said.split_once("\u{1b}[?1049h").unwrap();
    let (screen, after) = rest.split_once("\u{1b}[?1049l").unwrap();
    assert!(screen.contains("udp tx"), "{screen}");
    // The line of progress.
    assert!(!screen.contains("s left"), "{screen}");
    assert!(after.contains("udp tx") && after.contains("\u{1b}[?25h"), "{after}");
    let state = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(state("before"), state("after"));
    let recording = place.recording("run.plumb");
    assert!(recording.complete && recording.blocks.len() < 400);
    place.nothing_runs();
}
