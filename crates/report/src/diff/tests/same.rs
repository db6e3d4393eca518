//! One function by several names, one question asked in several ways, and parts that add up.

use netplumb_model::class::{Direction, Proto};
use netplumb_model::recording::Recording;

use super::build::{Build, arm, change, counted, diff, paired};
use crate::diff::arms::{ArmPair, Pairs};
use crate::diff::exact::Delta;
use crate::diff::sentence::{sentence, signed, signed_parts};
use crate::diff::{ClassDiff, Sides, compare};

/// Check that implementations of one function that differ between kernels or CPUs are one
/// function, that a jump from one to the other is no call, and that a tagged allocator is
/// the same function.
#[test]
fn one_function_by_several_names() {
    let before = Build::send(
        "6.1",
        &[("send", 10), ("send/__memset", 60), ("send/kmem_cache_alloc_node", 106)],
    );
    let after = Build::send(
        "6.12",
        &[
            ("send", 10),
            ("send/memset", 2),
            ("send/memset/memset_orig", 108),
            ("send/kmem_cache_alloc_node_noprof", 176),
        ],
    );
    for (was, is, sign) in [(&before, &after, 1.0), (&after, &before, -1.0)] {
        let diff = diff(was, is);
        let joints = &diff.functions.joints;
        assert!(joints.iter().all(|j| j.status() == "both"), "{joints:?}");
        let class = &diff.classes[0];
        let memset = change(class, "memset");
        assert_eq!(memset.own.delta().value(), 50.0 * sign);
        assert_eq!(memset.calls.before.value(), 1.0);
        assert_eq!(memset.calls.after.value(), 1.0);
        assert_eq!(class.changed().len(), 2);
        assert_eq!(counted(class).total.delta().value(), 120.0 * sign);
    }
    // Where both sides ran the same ones, they stay separate.
    let diff = diff(&after, &after);
    assert_eq!(change(&diff.classes[0], "memset_orig").own.delta().size(), 0);
}

/// The changes of a class's functions, by name.
fn changes(class: &ClassDiff) -> Vec<(String, Delta)> {
    let counts = class.counts();
    counts.map(|(f, row)| (row.name.clone(), f.own.delta())).collect()
}

/// UDP and TCP on some kernels, each with a function that the next kernel renames, and has inlined
/// where TCP sends.
fn kernels(releases: &[&str]) -> Recording {
    let mut arms = Vec::new();
    for release in releases {
        for proto in [Proto::Udp, Proto::Tcp] {
            let mut arm = arm(&format!("{proto} kernel={release}"), proto);
            arm.knobs.insert("kernel".into(), (*release).into());
            arms.push(arm);
        }
    }
    let mut build = Build::with(releases[0], arms, 4);
    for (n, release) in (0..).zip(releases) {
        let (udp, tcp) = (2 * n, 2 * n + 1);
        let route = format!("send/route_of_{}", release.replace('.', "_"));
        build.each(udp, "send", 10).each(udp, &route, 40);
        if *release == "6.1" {
            build.each(tcp, "send", 10).each(tcp, &route, 40);
        } else {
            build.each(tcp, "send", 45);
        }
    }
    build.0
}

/// Check that the same two arms give the same changes, function by function, whatever else is
/// compared: as two files or as arms of one, with other arms or without, and of one direction.
#[test]
fn one_answer_however_it_is_asked() {
    let (old, new) = (kernels(&["6.1"]), kernels(&["6.12"]));
    let both = kernels(&["6.1", "6.12"]);
    let only = |before, after| Pairs { pairs: vec![ArmPair { before, after }], ..Pairs::default() };
    let all = Pairs {
        pairs: vec![ArmPair { before: 0, after: 0 }, ArmPair { before: 1, after: 1 }],
        ..Pairs::default()
    };
    let two_files = paired(&old, &new, &all);
    let alone = paired(&old, &new, &only(0, 0));
    let one_file = paired(&both, &both, &only(0, 2));
    let sides = Sides { before: &old, after: &new, before_name: "a", after_name: "b" };
    let one_way = compare(sides, &all, &[Direction::Tx]);
    let expected = changes(&alone.classes[0]);
    // Here it is recognized as the same, though TCP has inlined it.
    assert!(expected.iter().all(|(_, delta)| delta.size() == 0), "{expected:?}");
    for diff in [&two_files, &one_file, &one_way] {
        assert_eq!(changes(&diff.classes[0]), expected);
    }
    let tcp = paired(&both, &both, &only(1, 3));
    assert_eq!(changes(&tcp.classes[0]), changes(&two_files.classes[1]));
}

/// Check that the parts that a sentence names add up to its whole, including parts too small to
/// judge.
#[test]
fn parts_of_a_sentence_add_up() {
    let before = Build::send("6.1", &[("send", 500), ("send/core", 400), ("send/kfree", 30)]);
    let after = Build::send("6.1", &[("send", 700), ("send/core", 190), ("send/kfree", 32)]);
    let diff = diff(&before, &after);
    assert_eq!(
        sentence(&diff.classes[0]),
        "UDP send: 930 to 922 instructions per packet, -8 (-0.9%): +200 in 1 and -210 in 1 of 2 \
         functions, +2 too small to tell (largest core -210)"
    );
}

/// Check that parts are rounded so that they add up as shown.
#[test]
fn rounded_parts_add_up() {
    let shown = |text: &str| text.replace(',', "").parse::<f64>().unwrap();
    for denominator in [3, 7, 400, 1_001] {
        for parts in [[100, -107, 0], [40_000, -71_234, 11], [1, 1, 1], [-5, 12_345, 678]] {
            let delta = |numerator| Delta { numerator, denominator };
            let whole = delta(parts.iter().sum());
            let texts = signed_parts(&whole, &parts.map(delta));
            let sum: f64 = texts.iter().map(|t| shown(t)).sum();
            if whole.value().abs() >= 0.005 {
                let text = signed(&whole);
                assert!((sum - shown(&text)).abs() < 1e-6, "{texts:?} of {text}");
            }
        }
    }
}
