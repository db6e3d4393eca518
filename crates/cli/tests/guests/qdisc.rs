//! Arms that differ in their queueing discipline: on this machine, and in guests, whose nanoseconds
//! are instructions. A delay inserted into a packet's path shows up in its stage, with its size,
//! and in no other.

use std::collections::BTreeMap;

use crate::common::{Place, Ran, Running, has_guests, poorer_cache, skip, tell};
use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_testkit::has_root;

const PLANTED_NS: f64 = 20_000.0;
/// Tolerance of a stage, as a share of the planted delay.
const OFF: f64 = 0.05;
const BLOCKS: u32 = 20;
/// Blocks that have to be right.
const RIGHT: u32 = 19;

/// The program with these words, and arms with these queueing disciplines.
fn path(place: &Place, words: &str, qdiscs: &[&str]) -> Ran {
    let mut command = place.plumb(words);
    for qdisc in qdiscs {
        command.args(["--qdisc", qdisc]);
    }
    Running::start(&mut command).finish()
}

/// The mean of each stage in each block of an arm, by direction and name.
fn means(recording: &Recording, arm: u32) -> Vec<BTreeMap<(Direction, String), f64>> {
    let mut blocks = vec![BTreeMap::new(); BLOCKS as usize];
    for (span, stage) in recording.stages().filter(|(s, _)| s.times.count > 0) {
        let block = &recording.blocks[span.block as usize];
        if block.arm == arm {
            let mean_ns = span.times.total_ns as f64 / span.times.count as f64;
            let key = (span.direction, stage.name.clone());
            blocks[block.index as usize].insert(key, mean_ns);
        }
    }
    blocks
}

/// What an arm's guest reported on the sender's queueing discipline.
fn qdisc_fact(recording: &Recording, arm: &str) -> Option<String> {
    let number = recording.arms.iter().position(|a| a.name == arm).unwrap();
    let notes = recording.notes.get(&(number as u32))?;
    notes.facts.get("qdisc.tx0").cloned()
}

/// Check that 20 us more of netem's delay on the sender's egress are 20 us more in `qdisc wait`,
/// and in the total of sent packets, and nowhere else. netem's own cost, and its timer's, is in
/// both arms.
#[test]
fn a_delay_is_a_wait_in_the_qdisc() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let words = format!("path --lab vm --clock stages --packets 100 --blocks {BLOCKS}");
    let qdiscs = ["netem delay 10us", "netem delay 30us"];
    path(&place, &format!("{words} -o planted.plumb"), &qdiscs).code(0);
    let recording = place.recording("planted.plumb");
    let names: Vec<&str> = recording.arms.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["qdisc=netem delay 10us", "qdisc=netem delay 30us"]);
    let read_back = &qdisc_fact(&recording, "qdisc=netem delay 30us").unwrap();
    // It shows the delay in whole microseconds, rounded down.
    assert!(read_back.starts_with("netem") && read_back.contains("delay"), "{read_back}");
    for block in &recording.blocks {
        let ledger = &block.ledger;
        assert!(ledger.closes() && ledger.delivered == 100, "{ledger:?}");
    }

    let (before, after) = (means(&recording, 0), means(&recording, 1));
    let (mut right, mut report) = (0, String::new());
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(before.keys().eq(after.keys()), "{before:?}\n{after:?}");
        assert!(before.len() > 8, "{before:?}");
        let mut as_planted = true;
        for ((direction, name), after) in after {
            let grown = after - before[&(*direction, name.clone())];
            let planted =
                *direction == Direction::Tx && ["qdisc wait", "total"].contains(&name.as_str());
            let expected = if planted { PLANTED_NS } else { 0.0 };
            if number == 0 {
                report += &format!("{direction} {name}: {after:.0} ns, {grown:+.0} ns\n");
            }
            if (grown - expected).abs() > OFF * PLANTED_NS {
                report += &format!(
                    "block {number}: {direction} {name}: {grown:+.0} ns, not {expected:+.0}\n"
                );
                as_planted = false;
            }
        }
        right += u32::from(as_planted);
    }
    tell(&format!("{right} of {BLOCKS} blocks as planted\n{report}"));
    assert!(right >= RIGHT, "{right} of {BLOCKS} blocks\n{report}");
}

/// Check that netem's losses, which no protocol counts, are a cause in the ledger by either clock,
/// and that late packets are not lost.
#[test]
fn a_loss_is_named() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    // Delays and losses are waited for in earnest by an instrument of time: few packets will do.
    let (loss, delay) = ("netem loss 20%", "netem delay 300ms");
    for (clock, qdiscs) in [
        ("stages", &[(loss, 40), (delay, 8)][..]),
        ("functions", &[(loss, 40), (delay, 8)]),
        ("exact", &[(loss, 100)]),
    ] {
        for &(qdisc, packets) in qdiscs {
            let words = format!(
                "path --lab vm --clock {clock} --packets {packets} --blocks 2 --proto udp \
                 -o run.plumb"
            );
            let ran = path(&place, &words, &[qdisc]);
            ran.code(0);
            assert!(!ran.stdout.contains("INVALID"), "{}", ran.stdout);
            let recording = place.recording("run.plumb");
            assert_eq!(recording.blocks.len(), 2);
            for block in &recording.blocks {
                let ledger = &block.ledger;
                tell(&format!("{clock}, {qdisc}: {ledger:?}"));
                assert!(ledger.closes(), "{clock}: {ledger:?}");
                let causes: Vec<&str> = ledger.dropped.keys().map(String::as_str).collect();
                if qdisc.contains("loss") {
                    assert_eq!(causes, ["sender: tx0 qdisc drops"], "{clock}");
                    assert!(ledger.dropped.values().sum::<u64>() > 0, "{ledger:?}");
                } else {
                    let delivered = ledger.delivered;
                    assert_eq!((delivered, causes.len()), (packets, 0), "{ledger:?}");
                }
            }
        }
    }
}

/// Check that arms with queueing disciplines share a boot, count the same each time, and
/// that `plumb diff` names them.
#[test]
fn instructions_of_queueing_disciplines() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let insns = |name: &str| -> Vec<BTreeMap<u32, u64>> {
        let words = "path --packets 20 --warmup 20 --blocks 2 -q -o";
        path(&place, &format!("{words} {name}"), &["", "pfifo", "fq"]).code(0);
        let recording = place.recording(name);
        let names: Vec<&str> = recording.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["qdisc=own", "qdisc=pfifo", "qdisc=fq"]);
        let fact = |key: &str| recording.environment.get(key).cloned().unwrap_or_default();
        assert!(fact("guest.modules").contains("sch_fq"));
        let fq = qdisc_fact(&recording, "qdisc=fq").unwrap();
        assert!(fq.starts_with("fq limit"), "{fq}");
        assert_eq!(qdisc_fact(&recording, "qdisc=own"), None);
        let mut arms = vec![BTreeMap::new(); 3];
        for cost in recording.costs.iter().filter(|c| c.direction == Direction::Tx) {
            let arm = recording.blocks[cost.block as usize].arm as usize;
            let function = recording.nodes[cost.node as usize].function;
            *arms[arm].entry(function).or_default() += cost.own;
        }
        arms
    };
    let (first, again) = (insns("first.plumb"), insns("again.plumb"));
    let sums = |arms: &[BTreeMap<u32, u64>]| -> Vec<u64> {
        arms.iter().map(|arm| arm.values().sum()).collect()
    };
    assert_eq!(sums(&first), sums(&again));
    let sums = sums(&first);
    assert!(0 < sums[0] && sums[0] < sums[1] && sums[1] < sums[2], "{sums:?}");
    let diff = place.run("diff first.plumb");
    diff.code(0);
    assert!(diff.stdout.contains("qdisc not set → fq"), "{}", diff.stdout);
}

/// Check that what a guest's kernel lacks is reported before it boots, and words that `tc` rejects
/// after it has.
#[test]
fn guests_that_cannot() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let folders = ["kernel/drivers/net", "kernel/drivers/virtio", "kernel/drivers/char"];
    let cache = poorer_cache(&folders);
    let words = format!("--cache {} path", cache.path().display());
    let ran = path(&place, &words, &["", "netem delay 20us"]);
    ran.code(3).says(&["sch_netem", "plumb kernel add"]);
    assert!(!ran.stderr.contains("booting"), "{ran:?}");
    path(&place, "path --packets 5", &["netem dealy 20us"])
        .code(1)
        .says(&["tx0", "tc says", "dealy"]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check that invalid requests are refused with advice.
#[test]
fn what_cannot_be_asked() {
    let place = Place::new();
    for (words, qdiscs, said) in [
        ("path --lab host", &["fq"][..], "--lab netns"),
        ("path", &["fq", "fq"], "duplicate arm"),
        ("path", &["dev eth0 root fq"], "invalid qdisc name `dev`"),
        ("path", &["netem\ndelay"], "invalid character in qdisc"),
        ("path --qdisc-in router", &["fq"], "forward"),
        ("path --qdisc-in rx", &[], "--qdisc"),
    ] {
        path(&place, words, qdiscs).code(2).says(&[said]);
    }
    let mut command = place.plumb("path --qdisc fq -- true");
    let ran = Running::start(&mut command).finish();
    ran.code(2).says(&["--qdisc"]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check that on this machine a shaper's queue exists only during its arm, and that a discipline
/// that the kernel lacks is reported, with nothing left behind.
#[test]
fn as_root_between_namespaces() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words = "path --lab netns --clock stages --duration 1s --blocks 4 -o run.plumb";
    let ran = path(&place, words, &["", "tbf rate 800mbit burst 1600 limit 1000000"]);
    if ran.status.code() == Some(3) {
        return skip(&format!("no stages, tc or sch_tbf here: {}", ran.stderr.trim()));
    }
    ran.code(0);
    let recording = place.recording("run.plumb");
    let waited = |arm: u32| -> u64 {
        let of_arm = |block: u32| recording.blocks[block as usize].arm == arm;
        let waits =
            (recording.stages()).filter(|(s, of)| of.name == "qdisc wait" && of_arm(s.block));
        waits.map(|(s, _)| s.times.count).sum()
    };
    assert_eq!(waited(0), 0);
    assert!(waited(1) > 0);
    let arm = &recording.arms[1].name;
    let fact = qdisc_fact(&recording, arm).unwrap();
    assert!(fact.starts_with("tbf rate 800Mbit"), "{fact}");
    assert_eq!(recording.environment["net.veth.ipv4.sender.tx0.qdisc"], "noqueue");

    let lacks = path(&place, "path --lab netns --duration 1s", &["no_such_thing"]);
    lacks.code(3).says(&["no_such_thing", "--lab vm"]);
    assert!(!lacks.stderr.contains("namespaces: "), "{lacks:?}");
    assert_eq!(place.files(), ["run.plumb"]);
}
