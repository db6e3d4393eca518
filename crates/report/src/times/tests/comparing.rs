//! Times, compared.

use netplumb_model::recording::{Recording, env};
use netplumb_stats::judge::Verdict;

use super::recording::{functions, functions_scaled, stages, stages_scaled};
use super::{check, view};
use crate::diff::Sides;
use crate::diff::arms::{Pairs, pair};
use crate::times::diff::{TimesDiff, compare, json, terminal};

fn diff<'a>(before: &'a Recording, after: &'a Recording) -> TimesDiff<'a> {
    let all = |r: &Recording| (0..r.arms.len()).collect();
    let pairs: Pairs = pair((&before.arms, all(before)), (&after.arms, all(after)));
    let sides = Sides {
        before,
        after,
        before_name: "a.plumb",
        after_name: "b.plumb",
    };
    compare(sides, &pairs, &[])
}

/// Check what a planted change looks like, in functions and in stages, and that it
/// is found where it is, at its size, and nowhere else.
#[test]
fn planted_changes() {
    let (before, after) = (functions(), functions_scaled(&[("ip_output", 1.5)]));
    let found = diff(&before, &after);
    check("diff-functions.txt", &terminal::render(&found, &view(110)));
    check("diff-functions.json", &json::render(&found));
    let tx = &found.classes[0];
    let changed: Vec<&str> = tx.changed().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(changed, ["ip_output"]);
    let row = tx.changed()[0];
    assert_eq!(row.judged.verdict, Verdict::Slower);
    assert!((row.delta() - 200.0).abs() < 6.0, "{}", row.delta());
    assert_eq!(tx.whole().unwrap().judged.verdict, Verdict::Slower);
    let (percent, ns) = tx.worse_by();
    assert!((10.0..=20.5).contains(&percent), "{percent}");
    assert!((100.0..=205.0).contains(&ns), "{ns}");
    assert!(found.classes[1].changed().is_empty());
    assert_eq!(found.classes[1].worse_by(), (0.0, 0.0));

    let (before, after) = (stages(), stages_scaled(&[("qdisc", 20_000)]));
    let found = diff(&before, &after);
    check("diff-stages.txt", &terminal::render(&found, &view(110)));
    let changed: Vec<&str> = found.classes[0]
        .changed()
        .iter()
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(changed, ["qdisc"]);
    // Nine packets in ten meet it.
    let delta = found.classes[0].changed()[0].delta();
    assert!((delta / 18_000.0 - 1.0).abs() < 0.05, "{delta}");
}

/// Check that nothing is found between a recording and itself, with other numbers for
/// its functions, and that it says what could have been.
#[test]
fn the_same() {
    let before = functions();
    let mut after = before.clone();
    after.functions.reverse();
    let last = after.functions.len() as u32 - 1;
    for node in &mut after.nodes {
        node.function = last - node.function;
    }
    for attachment in &mut after.attachments {
        attachment.function = last - attachment.function;
    }
    let found = diff(&before, &after);
    assert!(found.classes.iter().all(|c| c.changed().is_empty()));
    let text = terminal::render(&found, &view(110));
    assert!(text.contains("no difference seen"), "{text}");
    assert!(!text.contains("differs   "), "{text}");
}

/// Check that a function that was not watched on a side gets no verdict, and one that
/// was and was not called does.
#[test]
fn one_side_only() {
    let before = functions();
    let mut after = before.clone();
    after.timed.retain(|t| t.node != 2 && t.node != 6);
    let id = |name: &str| after.functions.iter().position(|f| f.name == name);
    let gone = id("ip_output").unwrap() as u32;
    after.attachments.retain(|a| a.function != gone);
    let found = diff(&before, &after);
    assert_eq!(found.classes[0].one_side, ["ip_output"]);
    let rx = &found.classes[1];
    let row = rx.functions.iter().find(|r| r.name == "ip_rcv").unwrap();
    assert_eq!(row.judged.verdict, Verdict::Faster);
    assert_eq!(row.judged.after, 0.0);
}

/// Check that another lab, kernel and probe are said first, and too few blocks.
#[test]
fn differences_are_said() {
    let before = functions();
    let mut after = before.clone();
    let mut set = |key: &str, value: &str| {
        after.environment.insert(key.into(), value.into());
    };
    set(env::LAB, "host");
    set(env::KERNEL, "6.12.1");
    for attachment in &mut after.attachments {
        attachment.mechanism = netplumb_model::timing::Mechanism::Fsession;
    }
    after.blocks.truncate(2);
    after.timed.retain(|t| t.block < 2);
    after.counters.clear();
    let text = terminal::head(&diff(&before, &after), 110);
    for said in [
        "differs   kernel: 6.1.0-42-amd64 → 6.12.1",
        "differs   lab: netns → host",
        "differs   probes: fentry+fexit and kprobe+kretprobe → fsession",
        "no verdict: it takes 3 blocks a side",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

/// Check that an exact recording beside one of times has no verdict, but rows for
/// what both saw; and that functions beside stages have nothing.
#[test]
fn two_clocks() {
    let exact = crate::tests::recording::small();
    let mut times = functions();
    // What is `ip_output` here is `ip_finish_output2` there.
    for function in &mut times.functions {
        if function.name == "ip_output" {
            function.name = "ip_finish_output2".into();
        }
    }
    for (before, after) in [(&exact, &times), (&times, &exact)] {
        let found = diff(before, after);
        assert!(!found.one_clock && found.classes.is_empty());
        let tx = &found.both[0];
        let names: Vec<&str> = tx.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["ip_finish_output2", "udp_sendmsg"]);
        assert_eq!(tx.functions[0].self_insns, 90.0);
        assert!((tx.functions[0].self_ns - 400.0).abs() < 5.0);
    }
    check(
        "diff-clocks.txt",
        &terminal::render(&diff(&exact, &times), &view(110)),
    );
    let (functions, stages) = (functions(), stages());
    let found = diff(&functions, &stages);
    let text = terminal::render(&found, &view(110));
    assert!(text.contains("nothing to compare"), "{text}");
}
