//! Two architectures: the arms of one recording give the same results as two recordings.

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::{Recording, env};
use netplumb_stats::judge::{Pair, judge};

use super::build::{Build, arm, diff, paired};
use crate::diff::arms::{Pairs, pair_within};
use crate::diff::{Diff, Judged, json, page, terminal};
use crate::view::View;

/// Facts of a guest of each.
const X86: [(&str, &str); 8] = [
    (env::ARCH, "x86-64"),
    (env::CPU, "max"),
    (env::REP, "each repetition counts as one"),
    (env::KERNEL, "6.1-amd64"),
    (env::KERNEL_HASH, "aaaa"),
    ("config.HZ", "250"),
    ("config.RETHUNK", "y"),
    ("config.ARM64_PAN", "absent"),
];
const ARM: [(&str, &str); 8] = [
    (env::ARCH, "arm64"),
    (env::CPU, "cortex-a72"),
    (env::REP, "every instruction counts as one"),
    (env::KERNEL, "6.1-arm64"),
    (env::KERNEL_HASH, "bbbb"),
    ("config.HZ", "250"),
    ("config.RETHUNK", "absent"),
    ("config.ARM64_PAN", "y"),
];

/// A system call by each one's entry, with a lock that one of them has inline.
fn measure(build: &mut Build, arm: u32, is_x86: bool) {
    if is_x86 {
        build.each(arm, "entry_SYSCALL_64/udp_sendmsg", 200);
        build.each(arm, "entry_SYSCALL_64/udp_sendmsg/lock", 30);
        build.each(arm, "entry_SYSCALL_64", 10);
    } else {
        build.each(arm, "el0t_64_sync/udp_sendmsg", 228);
        build.each(arm, "el0t_64_sync", 80);
    }
}

fn facts(of: [(&str, &str); 8]) -> BTreeMap<String, String> {
    let facts = of.iter();
    facts.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn alone(is_x86: bool) -> Recording {
    let mut build = Build::udp("6.1", 5);
    let of = if is_x86 { X86 } else { ARM };
    build.0.environment.extend(facts(of));
    measure(&mut build, 0, is_x86);
    build.0
}

/// Both as arms of one recording; the second sets the knob.
fn both() -> Recording {
    let mut arms = vec![arm("x86", Proto::Udp), arm("arm", Proto::Udp)];
    arms[1].knobs.insert("arch".into(), "arm64".into());
    let mut build = Build::with("6.1", arms, 5);
    build.0.environment.extend(facts(X86));
    build.0.notes_of(1).facts = facts(ARM);
    (build.0.notes_of(1).facts).retain(|key, _| key != "config.HZ");
    measure(&mut build, 0, true);
    measure(&mut build, 1, false);
    build.0
}

fn within(recording: &Recording) -> Diff<'_> {
    let pairs = Pairs { pairs: pair_within(recording), ..Pairs::default() };
    paired(recording, recording, &pairs)
}

const DIFFERENCES: [&str; 6] = [
    "architecture: x86-64 → arm64 (the same source is other code: registers, inlining and \
     configuration differ)",
    "CPU: max → cortex-a72 (the kernel patches itself for the CPU that it finds)",
    "string instructions: each repetition counts as one → every instruction counts as one (copies \
     and clears count otherwise)",
    "kernel: 6.1-amd64 → 6.1-arm64",
    "CONFIG_ARM64_PAN: absent → y",
    "CONFIG_RETHUNK: y → absent",
];

/// Check that arms of one recording and two recordings give the same differences: by functions, new
/// and gone ones, and in the footer.
#[test]
fn arms_as_recordings() {
    let (x86, arm, both) = (alone(true), alone(false), both());
    let (two, one) = (diff(&x86, &arm), within(&both));
    let listed = |diff: &Diff<'_>| -> Vec<String> {
        diff.differences.iter().map(ToString::to_string).collect()
    };
    assert_eq!(listed(&two), DIFFERENCES);
    assert_eq!(listed(&one), DIFFERENCES);
    let view = View { columns: 1_000, ..View::default() };
    let below = |diff: &Diff<'_>| {
        let text = terminal::render(diff, &view);
        text.split_once("\nUDP send").unwrap().1.to_string()
    };
    let text = below(&two);
    assert_eq!(below(&one), text);
    for (function, words) in [("entry_SYSCALL_64", "gone"), ("el0t_64_sync", "new")] {
        // Below the sum, which names the largest.
        let mut lines = text.lines().skip(1);
        let line = lines.find(|line| line.contains(function)).unwrap();
        assert!(line.contains(words), "{line}");
    }
    for words in [
        "inlined into udp_sendmsg: lock is gone",
        "CPU max → cortex-a72, one vCPU; each repetition counts as one → every instruction counts",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    let sides = |diff: &Diff<'_>| -> serde_json::Value {
        let document: serde_json::Value = serde_json::from_str(&json::render(diff)).unwrap();
        ["before", "after"]
            .map(|side| document[side]["environment"]["config.RETHUNK"].clone())
            .into()
    };
    assert_eq!(sides(&two), serde_json::json!(["y", "absent"]));
    assert_eq!(sides(&one), sides(&two));
    let page = page::page(&one);
    let cpu = page.facts.iter().find(|fact| fact.key == env::CPU).unwrap();
    assert_eq!((cpu.before.as_deref(), cpu.value.as_str()), (Some("max"), "cortex-a72"));
}

/// Check that an arm whose `arch` is not set has the architecture of its kernel.
#[test]
fn arch_not_set() {
    let both = both();
    let sentence = crate::diff::of_arms(&both, &[], 1_000).unwrap();
    assert!(sentence.starts_with("UDP send (arch x86-64 → arm64): "), "{sentence}");
    // Setting it to the same value changes nothing.
    let mut set = alone(true);
    let knobs = &mut set.arms[0].knobs;
    knobs.insert("arch".into(), "x86-64".into());
    assert!(diff(&alone(true), &set).differences.is_empty());
}

/// Check that a report of several architectures has a note on them, with the options in which their
/// kernels differ; and that one of a single architecture has not.
#[test]
fn report_of_several() {
    let footer = |recording: &Recording| {
        let notes = crate::trust::footer(recording, &[]);
        crate::footer::terminal(&notes, 1_000)
    };
    let text = footer(&both());
    for line in [
        "kernel    6.1-amd64 and 6.1-arm64, by arm (aaaa and bbbb), mitigations off\n",
        "arch      x86-64 and arm64, by arm: the same source is other code: registers, inlining and \
         configuration differ\n",
        "config    by arm: CONFIG_ARM64_PAN absent and y, CONFIG_RETHUNK y and absent\n",
    ] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
    let text = footer(&alone(true));
    assert!(!text.contains("arch ") && !text.contains("config "), "{text}");
}

/// Check that fewer instructions are not called faster, though they were sampled.
#[test]
fn fewer_is_not_faster() {
    let class = |unit: &str| {
        let (before, after) = (alone(true), alone(true));
        let mut class = diff(&before, &after).classes.remove(0);
        class.unit = unit.into();
        class
    };
    let pair = |before: [f64; 4], after: [f64; 4]| Pair {
        before: before.into(),
        after: after.into(),
        shared: [0.0; 2],
        apart: false,
        counting: None,
    };
    let (many, few) = ([10.0, 10.1, 9.9, 10.0], [5.0, 5.1, 4.9, 5.0]);
    for (pair, words) in
        [(pair(many, few), ["fewer", "faster"]), (pair(few, many), ["more", "slower"])]
    {
        let judged = Judged::Statistically(judge(&[pair])[0]);
        let verdicts = ["instructions", "ns"].map(|unit| class(unit).verdict(&judged));
        assert_eq!(verdicts, words);
    }
}

/// Check that no two pairs have the same label, and that it has the architecture only where an arm sets it.
#[test]
fn labels_of_either() {
    let mut arms = Vec::new();
    for (name, arch) in [("x86", None), ("arm", Some("arm64"))] {
        for gro in ["on", "off"] {
            let mut one = arm(&format!("{name} {gro}"), Proto::Udp);
            one.knobs.insert("offload.gro".into(), gro.into());
            let arch = arch.map(|arch: &str| ("arch".to_string(), arch.to_string()));
            one.knobs.extend(arch);
            arms.push(one);
        }
    }
    let mut build = Build::with("6.1", arms, 5);
    build.0.environment.extend(facts(X86));
    for (number, is_x86) in (0..).zip([true, true, false, false]) {
        if !is_x86 {
            build.0.notes_of(number as usize).facts = facts(ARM);
        }
        measure(&mut build, number, is_x86);
    }
    let diff = within(&build.0);
    let labels: Vec<&str> = diff.classes.iter().map(|c| c.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "offload.gro on → off",
            "arch x86-64 → arm64; offload.gro on",
            "arch x86-64 → arm64; offload.gro off",
        ]
    );
}
