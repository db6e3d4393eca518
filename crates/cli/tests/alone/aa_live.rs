//! The same against the same on the running kernel: `plumb diff` sees no difference, and
//! sees one where there is one.
//!
//! The two are arms of one recording and their blocks alternate, so that whatever else the machine
//! does affects both about equally. One more byte in a datagram costs nothing.

use std::sync::{Mutex, PoisonError};

use crate::common::{Place, skip, tell};
use netplumb_testkit::{has_root, mostly};
use serde_json::Value;

/// As many as an instrument fails that sees a difference in most; `make soak` has 20.
const TRIES: usize = 5;

/// One at a time: what one does is the other's noise.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether an instrument can measure here; prints a note if not.
fn has(place: &Place, clock: &str) -> bool {
    if !has_root() {
        return false;
    }
    let words = "path --lab netns --duration 100ms --blocks 1 -o s.plumb --clock";
    let ran = place.run(&format!("{words} {clock}"));
    if ran.status.code() == Some(3) {
        skip(&format!("no {clock} here: {}", ran.stderr.trim()));
        return false;
    }
    ran.code(0);
    true
}

/// `plumb diff` of the two arms of a recording.
fn diff(place: &Place, recording: &str) -> Value {
    let diff = place.run(&format!("diff {recording} --json"));
    diff.code(0);
    serde_json::from_str(&diff.stdout).unwrap()
}

/// Differences, by class and name.
fn differs(diff: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for class in diff["times"].as_array().unwrap() {
        let parts = |key: &str| class[key].as_array().unwrap().iter();
        assert!(parts("stages").chain(parts("functions")).count() > 3, "{class}");
        let all_parts = parts("stages").chain(parts("functions"));
        for part in all_parts.chain([&class["whole"]]) {
            if part["verdict"] != "no_difference_seen" {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
                let (class, name) = (word(&class["class_before"]), word(&part["name"]));
                let verdict = word(&part["verdict"]);
                all.push(format!("{class} {name}: {} {verdict}", part["ratio"]));
            }
        }
    }
    all
}

/// Check that the same against the same shows no difference, except in one try of twenty.
#[test]
fn as_root_the_same_against_the_same() {
    same_against_same("stages", "--duration 1s --blocks 8");
}

/// Check that the same is so of samples, with all their functions.
#[test]
fn as_root_the_same_samples() {
    same_against_same("samples", "--duration 2s --blocks 8");
}

fn same_against_same(clock: &str, how: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    if !has(&place, clock) {
        return;
    }
    let (mut alike, mut report) = (0, String::new());
    let tries = netplumb_testkit::tries(TRIES);
    for n in 0..tries {
        let words = "path --lab netns --size 10,11 --clock";
        place.run(&format!("{words} {clock} {how} -o {n}.plumb")).code(0);
        let diff = diff(&place, &format!("{n}.plumb"));
        assert_eq!(diff["times"].as_array().unwrap().len(), 2, "{diff}");
        let differs = differs(&diff);
        alike += usize::from(differs.is_empty());
        if !differs.is_empty() {
            report += &format!("try {n}: {}\n", differs.join("; "));
        }
    }
    tell(&format!("{alike} of {tries} tries saw no difference\n{report}"));
    // One in twenty is the promise: of few tries one may be among them.
    let may_differ = (tries / 20).max(1);
    assert!(alike + may_differ >= tries, "{alike} of {tries}\n{report}");
}

/// Check that different workloads are distinguished: 60,000 bytes that are copied in and out
/// against 10.
#[test]
fn as_root_more_bytes_are_slower() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    if !has(&place, "stages") {
        return;
    }
    let words = "path --lab netns --clock stages --link lo --size 10,60000 --duration 2s";
    mostly(2, 3, || {
        place.run(&format!("{words} --blocks 10 -o more.plumb")).code(0);
        let differs = differs(&diff(&place, "more.plumb"));
        let slower = |part: &str| {
            let found = |one: &String| one.starts_with(part) && one.ends_with(" slower");
            differs.iter().any(found)
        };
        let message = format!("{differs:?}");
        match slower("udp tx system call") && slower("udp rx read") {
            true => Ok(message),
            false => Err(message),
        }
    });
}
