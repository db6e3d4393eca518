//! Levels on the command line: which make arms, what they are called, and that
//! the report names a setting that could not act.

use crate::common::{Place, has_guests};
use netplumb_model::recording::Recording;

/// The names of a recording's arms.
fn names(recording: &Recording) -> Vec<&str> {
    recording.arms.iter().map(|a| a.name.as_str()).collect()
}

/// Check that the sizes that help gives as examples are accepted: they get as far as a kernel that
/// is not there.
#[test]
fn sizes_of_the_help() {
    let place = Place::new();
    let help = place.run("path --help");
    help.code(0);
    let line = help.stdout.lines().position(|l| l.contains("--size"));
    let lines: Vec<&str> = help.stdout.lines().skip(line.unwrap()).take(3).collect();
    let lines = lines.join(" ");
    let (_, examples) = lines.split_once("like ").unwrap();
    let examples: Vec<String> = examples
        .split_once(';')
        .unwrap()
        .0
        .split(" or ")
        .map(|word| word.trim().to_string())
        .collect();
    assert!(examples.len() > 1, "{examples:?}");
    for size in examples {
        let ran = place.run(&format!("path --size {size} --kernel none-such"));
        // Without QEMU it gets as far as that.
        assert!(!ran.stderr.contains("bytes"), "{size}: {}", ran.stderr);
    }
}

/// Check that two levels of an offload are two arms, that GRO without anything to merge is reported
/// as such, in the text, in JSON and as a fact, and that the recording gives the same report when
/// it is read again.
#[test]
fn an_offload_without_anything_to_do() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let words = "path --packets 20 --warmup 20 --blocks 2 -q -o";
    let ran = place
        .run(&format!("{words} gro.plumb --offload gro=on --offload gro=off --offload tso=off"));
    ran.code(0);
    let recording = place.recording("gro.plumb");
    assert_eq!(names(&recording), ["gro=on", "gro=off"]);
    for (number, arm) in (0..).zip(&recording.arms) {
        assert_eq!(arm.knobs["offload.tso"], "off");
        let inert = &recording.notes[&number].inert;
        assert!(inert["offload.gro"].contains("nothing to merge"));
        assert!(inert["offload.tso"].contains("TCP"));
    }
    let note = "gro could not act: one packet at a time, nothing to merge";
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(&ran.stdout).contains(note), "{}", ran.stdout);
    let diff = place.run("diff gro.plumb");
    diff.code(0);
    // GRO has a cost of its own: packets then take the way to it.
    let costs = "gro: one packet at a time, nothing to merge; the difference is what having it \
                 costs";
    assert!(flat(&diff.stdout).contains(costs), "{}", diff.stdout);
    let json = place.run("diff gro.plumb --json");
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    for class in document["classes"].as_array().unwrap() {
        assert_eq!(class["could_not_act"][0]["knob"], "gro", "{class}");
        assert_eq!(class["could_not_act"].as_array().unwrap().len(), 1);
    }
}

/// Check that there is no warning about settings that had an effect: a segment that TCP has to
/// split, a packet larger than one of the MTUs, and rules that it passes.
#[test]
fn settings_that_act() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let words = "path --packets 20 --warmup 20 --blocks 2 -q --size 4000 -o";
    for (name, settings) in [
        ("tso.plumb", "--proto tcp --offload tso=on --offload tso=off"),
        ("mtu.plumb", "--proto udp --mtu 1500,9000"),
    ] {
        let ran = place.run(&format!("{words} {name} {settings}"));
        ran.code(0);
        let recording = place.recording(name);
        assert_eq!(recording.arms.len(), 2);
        let inert = recording.notes.values().flat_map(|notes| &notes.inert);
        assert_eq!(inert.count(), 0, "{name}");
        assert!(!ran.stdout.contains("could not act"), "{}", ran.stdout);
    }
}
