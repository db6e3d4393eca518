//! Which arm is which, which function is which, and where cost went.

use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Recording};

use super::build::{Build, PACKETS, RX, arm, change, counted, diff, paired, row, verdict};
use crate::diff::Verdict;
use crate::diff::arms::{ArmPair, Pairs, pair, pair_within};
use crate::diff::sentence::sentence;

/// Check that a clone with another suffix is the same function, with its former name
/// reported, and so is a function of a module that is built in.
#[test]
fn clones_are_the_same_function() {
    let before = Build::send(
        "6.1",
        &[
            ("send", 10),
            ("send/ip_core.isra.0", 50),
            ("send/xmit [veth]", 20),
            ("send/half.cold", 8),
        ],
    );
    let after = Build::send(
        "6.2",
        &[
            ("send", 10),
            ("send/ip_core.constprop.3", 52),
            ("send/xmit", 20),
            ("send/half.part.0", 8),
        ],
    );
    let diff = diff(&before, &after);
    assert!(diff.functions.joints.iter().all(|j| j.status() == "both"), "{:?}", diff.functions);
    let class = &diff.classes[0];
    let core = change(class, "ip_core.constprop.3");
    assert_eq!((core.own.before.value(), core.own.after.value()), (50.0, 52.0));
    let joint = &diff.functions.joints[core.function as usize];
    assert_eq!(joint.was.as_deref(), Some("ip_core.isra.0"));
    assert_eq!(verdict(row(class, "xmit")), Verdict::Equal);
    assert_eq!(
        sentence(class),
        "UDP send: 88 to 90 instructions per packet, +2 (+2.3%), all of it in ip_core.constprop.3"
    );
}

/// Check that a compiler's part of a function is not taken for the whole that is still there.
#[test]
fn a_part_is_not_the_whole() {
    let before = Build::send("6.1", &[("send", 10), ("send/core", 50), ("send/core/core.cold", 9)]);
    let after = Build::send("6.2", &[("send", 10), ("send/core", 58)]);
    let diff = diff(&before, &after);
    let class = &diff.classes[0];
    assert_eq!(counted(class).moves.len(), 1, "{:?}", counted(class).moves);
    assert!(
        counted(class).moves[0].why.starts_with("inlined into core"),
        "{:?}",
        counted(class).moves
    );
    assert_eq!(diff.functions.joints.iter().filter(|j| j.is_gone()).count(), 1);
}

const RENAMED: [(&str, u64); 5] = [
    ("send", 10),
    ("send/old_route", 80),
    ("send/old_route/old_walk", 30),
    ("send/old_route/old_walk/fib_node", 12),
    ("send/old_route/lock", 6),
];

/// Check that a function at the same place with a similar cost is the same by another
/// name, and so are two if one calls the other.
#[test]
fn renamed_functions() {
    let before = Build::send("6.1", &RENAMED);
    let renamed: Vec<(String, u64)> = RENAMED
        .iter()
        .map(|(path, insns)| {
            let grew = u64::from(path.ends_with("old_walk"));
            (path.replace("old_", "new_"), insns + grew)
        })
        .collect();
    let renamed: Vec<(&str, u64)> = renamed.iter().map(|(p, i)| (p.as_str(), *i)).collect();
    let after = Build::send("6.2", &renamed);
    let diff = diff(&before, &after);
    let class = &diff.classes[0];
    for (is, was) in [("new_route", "old_route"), ("new_walk", "old_walk")] {
        let joint = &diff.functions.joints[change(class, is).function as usize];
        assert_eq!(joint.was.as_deref(), Some(was));
        assert!(joint.why.as_deref().unwrap().starts_with("renamed: "), "{joint:?}");
    }
    // The trees are one tree then.
    assert_eq!(class.trees[0].nodes.len(), RENAMED.len());
    assert!(counted(class).branches.is_empty());
    assert_eq!(counted(class).total.delta().value(), 1.0);
}

/// Check that two functions are not joined: in one kernel, under another caller, at
/// another cost or number of calls, or if a third would fit, too.
#[test]
fn not_renamed() {
    let before = Build::send("6.1", &[("send", 10), ("send/old", 80), ("send/other", 5)]);
    let others: [(&str, Vec<(&str, u64)>); 4] = [
        ("6.1", vec![("send", 10), ("send/new", 80), ("send/other", 5)]),
        ("6.2", vec![("send", 10), ("send/other", 5), ("send/other/new", 80)]),
        ("6.2", vec![("send", 10), ("send/new", 180), ("send/other", 5)]),
        ("6.2", vec![("send", 10), ("send/new", 80), ("send/new2", 79), ("send/other", 5)]),
    ];
    for (kernel, paths) in others {
        let after = Build::send(kernel, &paths);
        let diff = diff(&before, &after);
        assert!(diff.functions.joints.iter().all(|j| j.was.is_none()), "{paths:?}");
        assert_eq!(change(&diff.classes[0], "old").own.after.sum, 0);
    }
    let mut twice = Build::udp("6.2", 5);
    twice.each(0, "send", 10).each(0, "send/other", 5);
    for block in 0..5 {
        twice.once(block, "send/new", 2 * PACKETS, 80 * PACKETS);
    }
    let diff = diff(&before, &twice.0);
    assert!(diff.functions.joints.iter().all(|j| j.was.is_none()));
}

/// Check that a function inlined into its caller is reported as moved, and so is one
/// taken out of it.
#[test]
fn inlined_and_taken_out() {
    let with = Build::send("6.1", &[("send", 10), ("send/core", 100), ("send/core/helper", 40)]);
    let without = Build::send("6.2", &[("send", 10), ("send/core", 133)]);
    let name =
        |diff: &crate::diff::Diff<'_>, id: u32| diff.functions.joints[id as usize].name.clone();
    let inlined = diff(&with, &without);
    let class = &inlined.classes[0];
    let moved = &counted(class).moves[0];
    assert_eq!(
        (name(&inlined, moved.from), name(&inlined, moved.to), moved.insns_per_packet),
        ("helper".into(), "core".into(), 40.0)
    );
    assert_eq!(moved.why, "inlined into core: helper is gone, and core grew by 33");
    // It is not reported again as a call that is gone.
    assert!(counted(class).branches.is_empty());
    let taken = diff(&without, &with);
    let moved = &counted(&taken.classes[0]).moves[0];
    assert_eq!(
        (name(&taken, moved.from), name(&taken, moved.to)),
        ("core".into(), "helper".into())
    );
    assert!(moved.why.starts_with("taken out of core"), "{moved:?}");
}

/// Check that two functions inlined into one are distinguished, and that a chain is
/// part of the nearest caller that is left.
#[test]
fn several_inlined_into_one() {
    let before = Build::send(
        "6.1",
        &[("send", 100), ("send/one", 30), ("send/one/two", 20), ("send/one/two/left", 9)],
    );
    let after = Build::send("6.2", &[("send", 150), ("send/left", 9)]);
    let diff = diff(&before, &after);
    let mut amounts: Vec<f64> =
        counted(&diff.classes[0]).moves.iter().map(|m| m.insns_per_packet).collect();
    amounts.sort_by(f64::total_cmp);
    assert_eq!(amounts, [20.0, 30.0]);
}

/// Check that a function that is gone is not called inlined where its caller did not
/// grow, or grew by something else, or where the kernel is the same.
#[test]
fn not_inlined() {
    let before = Build::send("6.1", &[("send", 100), ("send/helper", 40)]);
    for (kernel, insns) in [("6.2", 100), ("6.2", 180), ("6.2", 90), ("6.1", 135)] {
        let after = Build::send(kernel, &[("send", insns)]);
        let diff = diff(&before, &after);
        assert!(counted(&diff.classes[0]).moves.is_empty(), "{kernel} {insns}");
        assert_eq!(counted(&diff.classes[0]).branches.len(), 1);
    }
}

/// Check that cost that moved between two functions of one caller is reported as
/// such, except where their caller got more expensive.
#[test]
fn moved_between_siblings() {
    let before = Build::send("6.1", &[("send", 10), ("send/a", 80), ("send/b", 20)]);
    let after = Build::send("6.1", &[("send", 10), ("send/a", 30), ("send/b", 70)]);
    let same = diff(&before, &after);
    let class = &same.classes[0];
    assert_eq!(counted(class).verdict, Verdict::Equal);
    assert_eq!(counted(class).moves[0].insns_per_packet, 50.0);
    assert_eq!(
        counted(class).moves[0].why,
        "send with all below it costs what it did, 110 and 110"
    );
    assert_eq!(
        sentence(class),
        "UDP send: 110 instructions per packet, no difference in all, but b +50, a -50"
    );
    let after = Build::send("6.1", &[("send", 40), ("send/a", 30), ("send/b", 70)]);
    assert!(counted(&diff(&before, &after).classes[0]).moves.is_empty());
}

/// Check that cost that moved from a function to its callee is reported as such.
#[test]
fn moved_to_a_callee() {
    let before = Build::send("6.1", &[("send", 10), ("send/a", 80), ("send/a/b", 20)]);
    let after = Build::send("6.1", &[("send", 10), ("send/a", 50), ("send/a/b", 50)]);
    let diff = diff(&before, &after);
    assert!(counted(&diff.classes[0]).moves[0].why.starts_with("a with all below it"));
}

/// Check that a call that one side alone makes is reported once, at its top, with all
/// that is below it.
#[test]
fn branches() {
    let before = Build::send("6.1", &[("send", 10), ("send/look", 30), ("send/look/walk", 20)]);
    let after = Build::send("6.1", &[("send", 10)]);
    let diff = diff(&before, &after);
    let class = &diff.classes[0];
    let [branch] = &counted(class).branches[..] else { panic!("{:?}", counted(class).branches) };
    assert_eq!(branch.inclusive_insns.delta().value(), -50.0);
    assert_eq!(branch.calls.delta().value(), -1.0);
}

/// Check how arms are paired: by name, alone, by what they send, and not at all.
#[test]
fn arms_are_paired() {
    let arms = |names: &[(&str, Proto)]| names.iter().map(|(n, p)| arm(n, *p)).collect::<Vec<_>>();
    let all = |arms: &[_]| (0..arms.len()).collect::<Vec<usize>>();
    let pairs = |a: &[(&str, Proto)], b: &[(&str, Proto)]| {
        let (a, b) = (arms(a), arms(b));
        let pairs = pair((&a, all(&a)), (&b, all(&b)));
        let found: Vec<_> = pairs.pairs.iter().map(|p| (p.before, p.after)).collect();
        (found, pairs.left_before, pairs.left_after)
    };
    use Proto::{Raw, Tcp, Udp};
    assert_eq!(
        pairs(&[("udp", Udp), ("tcp", Tcp)], &[("tcp", Tcp), ("udp", Udp)]).0,
        [(0, 1), (1, 0)]
    );
    assert_eq!(pairs(&[("x", Udp)], &[("y", Tcp)]).0, [(0, 0)]);
    assert_eq!(
        pairs(&[("udp k=1", Udp), ("tcp k=1", Tcp)], &[("udp k=2", Udp), ("raw k=2", Raw)]),
        (vec![(0, 0)], vec![1], vec![1])
    );
    // No guess between two candidates.
    assert_eq!(
        pairs(&[("a", Udp), ("b", Udp)], &[("c", Udp), ("d", Udp)]),
        (vec![], vec![0, 1], vec![0, 1])
    );
}

/// Check that arms of one recording are compared with the first from which they
/// differ in one thing.
#[test]
fn arms_of_one_recording() {
    let mut arms = Vec::new();
    for family in [Family::V4, Family::V6] {
        for link in [Link::Lo, Link::Veth] {
            for proto in [Proto::Udp, Proto::Tcp] {
                let mut one = arm("x", proto);
                (one.family, one.link) = (family, link);
                arms.push(one);
            }
        }
    }
    let of = |arms: Vec<Arm>| Recording { arms, ..Recording::default() };
    let pairs: Vec<_> = pair_within(&of(arms)).iter().map(|p| (p.before, p.after)).collect();
    assert_eq!(pairs, [(0, 2), (1, 3), (0, 4), (1, 5), (2, 6), (3, 7)]);
    let two = vec![arm("a", Proto::Udp), arm("b", Proto::Tcp)];
    assert!(pair_within(&of(two)).is_empty());
}

/// Check that two arms of one recording that ran different kernels are matched
/// like two recordings.
#[test]
fn kernels_by_arm() {
    let mut arms = vec![arm("old", Proto::Udp), arm("new", Proto::Udp)];
    arms[1].knobs.insert("kernel".into(), "other".into());
    let mut build = Build::with("6.1", arms, 5);
    build.each(0, "send", 10).each(0, "send/core.isra.0", 50);
    build.each(1, "send", 10).each(1, "send/core.isra.1", 50);
    let pairs = Pairs { pairs: vec![ArmPair { before: 0, after: 1 }], ..Pairs::default() };
    let diff = paired(&build.0, &build.0, &pairs);
    assert_eq!(counted(&diff.classes[0]).verdict, Verdict::Equal);
    assert_eq!(diff.classes[0].changed().len(), 0);
    assert_eq!(diff.differences.len(), 1);
    assert_eq!(diff.differences[0].to_string(), "kernel: debian → other");
}

/// Check that an arm of one side alone is reported, and that a direction counts as 0 on the other.
#[test]
fn one_side_only() {
    let before = Build::with("6.1", vec![arm("udp", Proto::Udp), arm("tcp", Proto::Tcp)], 5);
    let (mut before, mut after) = (before, Build::udp("6.1", 5));
    before.each(0, "send", 10).each(1, "send", 10);
    before.every(0, Direction::Rx, RX, "poll", 7);
    after.each(0, "send", 10);
    let diff = diff(&before.0, &after.0);
    assert_eq!(diff.unpaired, ["arm tcp: only in a.plumb"]);
    assert_eq!(diff.classes.len(), 2);
    let receive = counted(&diff.classes[1]).total;
    assert_eq!((receive.before.value(), receive.after.sum), (7.0, 0));
}
