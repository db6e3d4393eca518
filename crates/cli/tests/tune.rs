//! `plumb tune`: what it finds is the same every time, better than the default, and within its conditions.

#![allow(clippy::unwrap_used)]

mod common;

use common::Place;
use serde_json::Value;

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Check that a search finds settings that take less CPU time, which hold the condition, with the lines that set
/// them; that its front has nothing that another beats; that a second search is the same; and that the experiment it
/// writes is one.
#[test]
fn less_cpu_time_within_a_latency() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = "tune --goal cpu --hold latency<120us --candidates 6 --offload tso=on --buffer 64K \
                 --nic enp1s0 --json -q";
    let first = place.run(&format!("{words} -o a.plumb --experiment front.toml"));
    first.code(0);
    let found = document(&first.stdout);
    assert_eq!(found["holds"], true, "{found:#}");
    let front = found["front"].as_array().unwrap();
    let best = &front[0];
    assert_eq!(
        best["settings"].as_str().unwrap().trim_start_matches("* "),
        found["best"]
    );
    let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
    assert!(of(best, "latency_ns") < 120e3, "{found:#}");
    // The default waits for QEMU's NIC, which takes longer than that.
    assert!(of(&found["default"], "latency_ns") > 120e3, "{found:#}");
    let lines = found["lines"].to_string();
    assert!(
        lines.contains("enp1s0") && !lines.contains("NIC"),
        "{lines}"
    );
    assert!(!lines.contains("tso"), "{lines}");
    for row in front
        .iter()
        .filter(|row| !row["settings"].to_string().contains("default"))
    {
        let beaten = front.iter().any(|other| {
            of(other, "mbit_per_second") > of(row, "mbit_per_second")
                && of(other, "latency_ns") < of(row, "latency_ns")
                && of(other, "cpu_ns_per_kib") < of(row, "cpu_ns_per_kib")
        });
        assert!(!beaten, "{row:#}");
    }
    let second = place.run(&format!("{words} -o b.plumb"));
    assert_eq!(document(&second.code(0).stdout), found);
    let arms = place.recording("a.plumb").arms.len();
    assert_eq!(arms, front.len());
    let text = std::fs::read_to_string(place.path("front.toml")).unwrap();
    assert_eq!(text.matches("[[arm]]").count(), arms, "{text}");
    place.run("run front.toml -q -o again.plumb").code(0);
}

/// Check that conditions that nothing holds are judged so, and that no lines are recommended.
#[test]
fn conditions_that_nothing_holds() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran =
        place.run("tune --goal throughput --hold latency<1us --candidates 2 --budget 10ms -q");
    ran.code(4);
    common::prints(
        &ran,
        &[
            "Nothing that was tried holds all conditions",
            "latency below 1 us",
            "the time ran",
        ],
    );
    assert!(!ran.stdout.contains("ethtool"), "{}", ran.stdout);
}

/// Check that what can't be searched is said at once.
#[test]
fn what_it_refuses() {
    let place = Place::new();
    for (words, why) in [
        ("", "--goal"),
        ("--goal speed", "throughput"),
        ("--goal cpu --hold latency>1us", "latency<TIME"),
        ("--goal cpu --tx-shift 1,2", "one value"),
        ("--goal cpu --nic a;b", "name of an interface"),
        ("--goal cpu --link e1000e", "tso"),
    ] {
        place.run(&format!("tune {words}")).code(2).says(&[why]);
    }
}
