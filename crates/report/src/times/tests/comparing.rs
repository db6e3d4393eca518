//! Times, compared.

use netplumb_model::recording::{Recording, env};
use netplumb_model::span::Span;
use netplumb_stats::judge::Verdict;

use super::recording::{functions, functions_scaled, stages, stages_scaled};
use super::{check, view};
use crate::diff::arms::{Pairs, pair};
use crate::diff::{Diff, DiffRow, Sides, compare, csv, json, markdown, page, terminal};
use crate::page::Page;

pub(crate) fn diff<'a>(before: &'a Recording, after: &'a Recording) -> Diff<'a> {
    let all = |r: &Recording| (0..r.arms.len()).collect();
    let pairs: Pairs = pair((&before.arms, all(before)), (&after.arms, all(after)));
    let sides = Sides { before, after, before_name: "a.plumb", after_name: "b.plumb" };
    compare(sides, &pairs, &[])
}

/// The verdict on a row.
fn verdict(row: &DiffRow) -> Verdict {
    row.judged.statistically().unwrap().verdict
}

/// A page on lines short enough to compare; web/ is tested with the same file.
fn check_page(name: &str, page: &Page) {
    check(name, &super::lines(page));
}

/// Check the output for a planted change, in functions and in stages, and that it is
/// found in its place, at its size, and nowhere else.
#[test]
fn planted_changes() {
    let (before, after) = (functions(), functions_scaled(&[("ip_output", 1.5)]));
    let found = diff(&before, &after);
    check("diff-functions.txt", &terminal::render(&found, &view(110)));
    check("diff-functions-160.txt", &terminal::render(&found, &view(160)));
    check("diff-functions.json", &json::render(&found));
    check("diff-functions.md", &markdown::render(&found, 12));
    check("diff-functions.csv", &csv(&found, None));
    check_page("../page-times-diff.json", &page::page(&found));
    let tx = &found.classes[0];
    let changed: Vec<&str> = tx.changed().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(changed, ["ip_output"]);
    let row = tx.changed()[0];
    assert_eq!(verdict(row), Verdict::Slower);
    assert!((row.delta() - 200.0).abs() < 6.0, "{}", row.delta());
    assert_eq!(verdict(tx.whole().unwrap()), Verdict::Slower);
    let (percent, ns) = tx.worse_by();
    assert!((10.0..=20.5).contains(&percent), "{percent}");
    assert!((100.0..=205.0).contains(&ns), "{ns}");
    assert!(found.classes[1].changed().is_empty());
    assert_eq!(found.classes[1].worse_by(), (0.0, 0.0));

    let (before, after) = (stages(), stages_scaled(&[("qdisc", 20_000)]));
    let found = diff(&before, &after);
    check("diff-stages.txt", &terminal::render(&found, &view(110)));
    check("diff-stages.md", &markdown::render(&found, 12));
    check("diff-stages.csv", &csv(&found, None));
    check_page("../page-stages-diff.json", &page::page(&found));
    let changed: Vec<&str> = found.classes[0].changed().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(changed, ["qdisc"]);
    // Nine packets in ten go through it.
    let delta = found.classes[0].changed()[0].delta();
    assert!((delta / 18_000.0 - 1.0).abs() < 0.05, "{delta}");
}

/// Check that nothing is found between a recording and itself, with other numbers for
/// its functions, and that the smallest visible change is reported.
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
/// was watched but not called does.
#[test]
fn one_side_only() {
    let before = functions();
    let mut after = before.clone();
    let gone = |span: &Span| span.call().is_some_and(|call| [2, 6].contains(&call.node));
    after.spans.retain(|span| !gone(span));
    let id = |name: &str| after.functions.iter().position(|f| f.name == name);
    let gone = id("ip_output").unwrap() as u32;
    after.attachments.retain(|a| a.function != gone);
    let found = diff(&before, &after);
    assert_eq!(found.classes[0].one_side, ["ip_output"]);
    let rx = &found.classes[1];
    let row = rx.functions.iter().find(|r| r.name == "ip_rcv").unwrap();
    assert_eq!(verdict(row), Verdict::Faster);
    assert_eq!(row.judged.after(), 0.0);
}

/// Check that another lab, kernel and probe are reported first, and too few blocks.
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
    after.spans.retain(|span| span.block < 2);
    after.scalars.clear();
    let text = terminal::head(&diff(&before, &after), 110);
    for said in [
        "differs   kernel: 6.1.0-42-amd64 → 6.12.1",
        "differs   lab: netns → host",
        "differs   probes: fentry+fexit and kprobe+kretprobe → fsession",
        "no verdict: it needs 3 blocks a side",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

/// Check that an exact recording compared to one of times has no verdict, but rows for
/// functions that both saw; and that functions compared to stages have none.
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
    check("diff-clocks.txt", &terminal::render(&diff(&exact, &times), &view(110)));
    let found = diff(&exact, &times);
    check("diff-clocks.md", &markdown::render(&found, 12));
    check("diff-clocks.csv", &csv(&found, None));
    check_page("../page-clocks-diff.json", &page::page(&found));
    let (functions, stages) = (functions(), stages());
    let found = diff(&functions, &stages);
    assert!(markdown::render(&found, 12).contains("nothing to compare"));
    assert_eq!(csv(&found, None).lines().count(), 1);
    let text = terminal::render(&found, &view(110));
    assert!(text.contains("nothing to compare"), "{text}");
}

/// Check that runs that did not take turns have a note about it first, with intervals wider
/// than for arms that did, and that arms which took no turns are treated like runs.
#[test]
fn turns() {
    let planted = functions_scaled(&[("ip_output", 1.05)]);
    let before = functions();
    let apart = diff(&before, &planted);
    assert!(apart.warnings[0].starts_with("not interleaved: drift between the two runs"));
    let text = terminal::render(&apart, &view(110));
    assert!(text.contains("beware    not interleaved"), "{text}");
    assert!(text.contains("drift     "), "{text}");

    // The same blocks as arms of one recording, in turns or not.
    let mut both = before.clone();
    both.arms
        .push(netplumb_model::recording::Arm { name: "udp after".into(), ..both.arms[0].clone() });
    let many = both.blocks.len() as u32;
    for block in &planted.blocks {
        both.blocks.push(netplumb_model::recording::Block { arm: 1, ..block.clone() });
    }
    let later = planted.spans.iter().map(|span| Span { block: span.block + many, ..span.clone() });
    both.spans.extend(later);
    let mut turns = both.clone();
    let place = |block: u32| match block < many {
        true => 2 * block,
        false => 2 * (block - many) + 1,
    };
    for (n, block) in both.blocks.iter().enumerate() {
        turns.blocks[place(n as u32) as usize] = block.clone();
    }
    for span in &mut turns.spans {
        span.block = place(span.block);
    }
    let width = |recording: &Recording| {
        let sides =
            Sides { before: recording, after: recording, before_name: "x", after_name: "x" };
        let pairs = Pairs {
            pairs: vec![crate::diff::arms::ArmPair { before: 0, after: 1 }],
            ..Pairs::default()
        };
        let found = compare(sides, &pairs, &[]);
        let ratio =
            found.classes[0].whole().unwrap().judged.statistically().unwrap().ratio.unwrap();
        (found.warnings.len(), ratio.high - ratio.low)
    };
    let (said, wide) = width(&both);
    let (unsaid, narrow) = width(&turns);
    assert_eq!((said, unsaid), (1, 0));
    assert!(wide > 2.0 * narrow, "{wide} and {narrow}");
}

/// Check that names made of Markdown or HTML stay text in every rendering.
#[test]
fn hostile_names() {
    const EVIL: &str = "<img src=x>|`a`\n[b](http://c)";
    let rename = |mut recording: Recording| {
        for function in &mut recording.functions {
            if function.name == "ip_output" {
                function.name = EVIL.into();
            }
        }
        recording.arms[0].name = EVIL.into();
        recording
    };
    let (before, after) = (rename(functions()), rename(functions_scaled(&[("ip_output", 1.5)])));
    let found = diff(&before, &after);
    let text = markdown::render(&found, 12);
    let inside = |line: &str| line.contains("<img") && !line.contains('`');
    assert!(!text.lines().any(inside), "{text}");
    for line in text.lines().filter(|l| l.starts_with('|')) {
        let bars = line.replace("\\|", "").matches('|').count();
        assert!(bars == 11, "{bars}: {line}");
    }
    let page = crate::html::render(&page::page(&found));
    assert!(!page.contains("<img"), "a name is markup");
}
