//! Costs that vary: CPU time by samples, in every rendering.

use std::borrow::Cow;

use std::collections::BTreeMap;
use std::path::Path;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::experiment::Experiment;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::FigureKey;
use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, Node, NodeId, Recording, Total, env,
};
use netplumb_model::timing::{CPU_TIME, DEFERRED, PERIOD, SAMPLED};
use netplumb_stats::judge::Verdict;
use netplumb_testkit::golden;

use super::{assert_tame, view};
use crate::analysis::classes;
use crate::claims::Answer;
use crate::diff::arms::pair;
use crate::diff::{self, Diff, DiffRow, Sides};
use crate::page::Page;
use crate::shape::{Shape, shape, varying};
use crate::together::CrossQuantity;
use crate::{
    callgrind, claims, folded, functions, html, json, markdown, pprof, speedscope, svg, terminal,
};

const PERIOD_NS: u64 = 100_000;
const BLOCKS: u32 = 5;
const PACKETS: u64 = 10_000;

/// A function below another, and its number of samples in a block.
type Part = (&'static str, Option<NodeId>, &'static str, Direction, Context, u64);

const NET_RX: Context = Context::Softirq(Softirq::NetRx);

fn parts() -> [Part; 14] {
    use Direction::{Other, Rx, Tx};
    let task = Context::Task;
    [
        ("do_syscall_64", None, "syscall", Tx, task, 120),
        ("udp_sendmsg", Some(0), "transport", Tx, task, 300),
        ("ip_send_skb", Some(1), "network", Tx, task, 90),
        ("ip_finish_output2", Some(2), "network", Tx, task, 150),
        ("__dev_queue_xmit", Some(3), "link", Tx, task, 210),
        ("veth_xmit", Some(4), "driver", Tx, task, 180),
        ("kmem_cache_alloc", Some(1), "memory", Tx, task, 70),
        ("__netif_receive_skb", None, "link", Rx, NET_RX, 160),
        ("ip_rcv", Some(7), "network", Rx, NET_RX, 110),
        ("udp_rcv", Some(8), "transport", Rx, NET_RX, 240),
        ("evil\x1b[2J=1+1|<b>", Some(9), "", Rx, NET_RX, 40),
        ("udp_recvmsg", None, "transport", Rx, task, 200),
        ("rarely", Some(11), "copy", Rx, task, 0),
        ("default_idle_call", None, "", Other, task, 400),
    ]
}

/// Five blocks of UDP, sent and received, in the namespaces of this machine.
pub(super) fn samples() -> Recording {
    samples_scaled(&[])
}

/// The same, with more or fewer samples in some functions.
fn samples_scaled(planted: &[(&str, f64)]) -> Recording {
    let mut recording = Recording {
        environment: environment(),
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }],
        losses: [(
            "samples".to_string(),
            vec![Loss {
                cause: "samples that there was no room for".into(),
                count: 3,
                meaning: "their time is missing".into(),
            }],
        )]
        .into(),
        complete: true,
        ..Recording::default()
    };
    let quantity = recording.quantity(&CPU_TIME);
    recording.set(&PERIOD, FigureKey::ONLY, PERIOD_NS as f64);
    for (n, (name, parent, layer, ..)) in (0..).zip(parts()) {
        recording.functions.push(Function {
            name: name.into(),
            module: (name == "veth_xmit").then(|| "veth".into()),
            layer: (!layer.is_empty()).then(|| layer.into()),
            address: 0,
            size_bytes: 0,
            source: None,
        });
        recording.nodes.push(Node { parent, function: n, tail: false });
    }
    for block in 0..BLOCKS {
        let mut kernel = 0;
        for (node, (name, _, _, direction, context, samples)) in (0..).zip(parts()) {
            let factor = planted.iter().find(|(n, _)| *n == name);
            let samples = (samples as f64 * factor.map_or(1.0, |(_, f)| *f)) as u64;
            // Blocks differ by some percent; one function is found in one block alone.
            let samples = match name {
                "rarely" => u64::from(block == 2),
                _ => samples * (98 + u64::from((block * 3 + node * 2) % 5)) / 100,
            };
            kernel += samples * PERIOD_NS;
            recording.costs.push(Cost {
                block,
                quantity,
                direction,
                context,
                node,
                calls: samples,
                own: samples * PERIOD_NS,
            });
        }
        recording.blocks.push(Block {
            arm: 0,
            instrument: CPU_TIME.instrument.into(),
            index: block,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: vec![Total { quantity, kernel, user: 50 * PERIOD_NS }],
            entered: 0,
            returned: 0,
            duration_ns: 1_000_000_000,
        });
    }
    recording
}

/// The same for packets that nobody counted.
fn of_others() -> Recording {
    let mut recording = samples();
    for block in &mut recording.blocks {
        block.ledger = Ledger::default();
    }
    recording
}

fn environment() -> BTreeMap<String, String> {
    let facts = [
        (env::CLOCK, "samples"),
        (env::LAB, "netns"),
        (env::PLUMB, "0.1.0"),
        (env::ARGV, "plumb path --lab netns --clock samples"),
        (env::STARTED, "1700000000"),
        (env::NAME, "path"),
        (env::KERNEL, "6.1.0-42-amd64"),
        (env::MITIGATIONS, "on"),
    ];
    facts.map(|(k, v)| (k.to_string(), v.to_string())).into()
}

pub(super) fn compared<'a>(before: &'a Recording, after: &'a Recording) -> Diff<'a> {
    let all = |r: &Recording| (0..r.arms.len()).collect();
    let pairs = pair((&before.arms, all(before)), (&after.arms, all(after)));
    let sides = Sides { before, after, before_name: "a.plumb", after_name: "b.plumb" };
    diff::compare(sides, &pairs, &[])
}

#[track_caller]
fn check(name: &str, text: &str) {
    let text = text.replace('\x1b', "(ESC)");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/samples");
    golden(&path.join(name), &text);
}

/// A page on lines short enough to compare; web/ is tested with the same file.
fn check_page(name: &str, page: &Page) {
    let text = serde_json::to_string(page).unwrap();
    let text = text.replace("},{", "},\n{").replace("\":[{", "\":[\n{").replace("],\"", "],\n\"");
    check(name, &(text + "\n"));
}

/// Check every output, that none mentions instructions or equal blocks, and that names
/// are harmless.
#[test]
fn as_shown() {
    let recording = samples();
    assert_eq!(shape(&recording), Shape::Costs);
    assert!(varying(&recording).is_some());
    let all = classes(&recording);
    let mut shown = Vec::new();
    for columns in [60, 80, 110] {
        let text = terminal::render(&recording, &all, &view(columns));
        assert_tame(&text, columns);
        check(&format!("terminal-{columns}.txt"), &text);
        shown.push(text);
    }
    let documents = [
        ("functions.csv", functions::csv(&all, None, &CrossQuantity::default())),
        ("document.json", json::render(&recording, &all, None, &CrossQuantity::default())),
        (
            "report.md",
            markdown::render(&recording, &all, None, &view(100), &CrossQuantity::default()),
        ),
        ("callgrind.out", callgrind::render(&recording, &all)),
        ("stacks.folded", folded::render(&all)),
        ("speedscope.json", speedscope::render(&all, "t", "1")),
        ("figures.svg", svg::render(&recording, &all, None, None)),
    ];
    for (name, text) in documents {
        check(name, &text);
        shown.push(text);
    }
    check_page(
        "../page-samples.json",
        &html::report_page(&recording, &all, None, &CrossQuantity::default()),
    );
    assert!(!pprof::render(&recording, &all).is_empty());
    for text in shown {
        for word in ["instruction", "insn", "same count", "\x1b"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    let text = functions::csv(&all, None, &CrossQuantity::default());
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert!(reader.records().all(|r| r.is_ok()));
}

/// Check that costs without counted packets are per second, and that one block has no
/// interval.
#[test]
fn without_packets() {
    let mut recording = of_others();
    let text = terminal::render(&recording, &classes(&recording), &view(110));
    check("terminal-of-others.txt", &text);
    assert!(text.contains("per second") && !text.contains("per packet"));
    recording.blocks.truncate(1);
    recording.costs.retain(|c| c.block == 0);
    let text = terminal::render(&recording, &classes(&recording), &view(110));
    assert!(!text.contains("; 95% interval") && !text.contains("NaN"), "{text}");
}

/// Check an interval by hand: five blocks of 300 samples, and some percent more or less.
#[test]
fn intervals() {
    let recording = samples();
    let all = classes(&recording);
    let function = all[0].functions.iter().find(|f| all[0].name(f.function) == "udp_sendmsg");
    let mean = all[0].mean_of(function.unwrap().function).unwrap();
    // 100, 98, 101, 99 and 102 percent of 300 samples of 100 us, of 10,000 packets.
    assert!((mean.value - 3_000.0).abs() < 1e-9, "{mean:?}");
    // 2.776 (Student, 4 degrees of freedom) x 47.43 / sqrt 5.
    let reach = mean.high.unwrap() - mean.value;
    assert!((reach - 58.89).abs() < 0.01, "{reach}");
    assert!((mean.value - mean.low.unwrap() - reach).abs() < 1e-9);
}

/// Check that a planted change is found where it is, at its size, and nowhere else; and
/// none between a recording and itself.
#[test]
fn planted_changes() {
    let (before, after) = (samples(), samples_scaled(&[("ip_finish_output2", 1.5)]));
    let found = compared(&before, &after);
    check("diff.txt", &diff::terminal::render(&found, &view(110)));
    check("diff.csv", &diff::csv(&found, None));
    check("diff.json", &diff::json::render(&found));
    check("diff.md", &diff::markdown::render(&found, 12));
    check_page("../page-samples-diff.json", &diff::page::page(&found));
    assert!(found.one_clock);
    let [tx, rx] = &found.classes[..] else {
        panic!("{:?}", found.classes);
    };
    let changed: Vec<&str> = tx.changed().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(changed, ["ip_finish_output2"]);
    let row = tx.changed()[0];
    assert_eq!(row.judged.statistically().unwrap().verdict, Verdict::Slower);
    assert!((row.delta() - 750.0).abs() < 15.0, "{}", row.delta());
    assert!(tx.whole().unwrap().judged.is_worse());
    assert!(rx.changed().is_empty());
    // One sample in all blocks shows nothing.
    assert_eq!(rx.small, 1);
}

/// Check that inclusive costs of functions are judged too: a callee that got slower makes its callers
/// slower, whose own costs are the same; a function that calls nothing has no such row.
#[test]
fn inclusive_costs_are_judged() {
    let (before, after) = (samples(), samples_scaled(&[("veth_xmit", 1.6)]));
    let found = compared(&before, &after);
    let class = found.classes.iter().find(|c| c.after.direction == Direction::Tx);
    let class = class.unwrap();
    let row = |rows: &[diff::DiffRow], name: &str| rows.iter().find(|r| r.name == name).cloned();
    for caller in ["udp_sendmsg", "__dev_queue_xmit"] {
        let own = row(&class.functions, caller).unwrap();
        assert!(!own.judged.differs(), "{own:?}");
        let inclusive = row(&class.inclusive, caller).unwrap();
        assert!(inclusive.judged.is_worse(), "{inclusive:?}");
        assert!(inclusive.judged.after() > own.judged.after());
    }
    let apart = row(&class.inclusive, "kmem_cache_alloc");
    assert_eq!(apart, None);
    assert!(row(&class.inclusive, "do_syscall_64").is_some());
    let text = diff::terminal::render(&found, &view(110));
    assert!(text.contains("with all it calls"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&diff::json::render(&found)).unwrap();
    let inclusive = json["times"][0]["inclusive"].as_array().unwrap();
    assert!(inclusive.iter().any(|row| row["name"] == "udp_sendmsg"), "{inclusive:?}");
    let csv = diff::csv(&found, None);
    assert!(csv.contains("inclusive"), "{csv}");
    // The same against itself has no difference.
    let same = compared(&before, &before);
    let all = same.classes.iter().flat_map(|c| &c.inclusive);
    assert!(all.clone().count() > 0 && all.clone().all(|row| !row.judged.differs()));
}

/// Check that a claim agrees with a comparison of the same arms, with the smallest visible change; that
/// a change that was not seen is "not shown", and the opposite of a seen one fails; and that claims
/// about other than the requested arms are left out.
#[test]
fn claims_agree_with_comparisons() {
    let mut recording = samples();
    let after = samples_scaled(&[("veth_xmit", 1.6)]);
    let blocks = recording.blocks.len() as u32;
    recording.arms[0].name = "before".into();
    recording.arms.extend(after.arms);
    recording.arms[1].name = "after".into();
    recording.blocks.extend(after.blocks.into_iter().map(|mut block| {
        block.arm = 1;
        block
    }));
    recording.costs.extend(after.costs.into_iter().map(|mut cost| {
        cost.block += blocks;
        cost
    }));
    let text = |kind: &str| {
        format!(
            "name = \"x\"\nlab = \"netns\"\n[[arm]]\nname = \"before\"\n[[arm]]\nname = \"after\"\n\
             [[claim]]\nname = \"c\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n{kind}\n"
        )
    };
    let judged = |of: &str, is: &str| {
        let kind = format!(
            "kind = \"compare\"\narm = \"after\"\nagainst = \"before\"\nfunction = \"{of}\"\nis = \"{is}\""
        );
        let experiment = Experiment::parse(&text(&kind)).unwrap();
        claims::judge_all(&experiment, &recording, &classes(&recording)).remove(0)
    };
    assert_eq!(judged("veth_xmit", "more").verdict, Answer::Holds);
    assert_eq!(judged("veth_xmit", "less").verdict, Answer::DoesNotHold);
    assert_eq!(judged("veth_xmit", "same").verdict, Answer::DoesNotHold);
    let unseen = judged("udp_sendmsg", "less");
    assert_eq!(unseen.verdict, Answer::NotShown);
    assert!(
        unseen.because.contains("no difference seen; one of ")
            && unseen.because.contains("% would have been"),
        "{unseen:?}"
    );
    assert_eq!(judged("udp_sendmsg", "same").verdict, Answer::Holds);
    let pairs = crate::diff::arms::Pairs {
        pairs: vec![crate::diff::arms::ArmPair { before: 0, after: 1 }],
        ..Default::default()
    };
    let sides = Sides { before: &recording, after: &recording, before_name: "a", after_name: "a" };
    let diff = diff::compare(sides, &pairs, &[Direction::Tx]);
    for (name, differs) in [("veth_xmit", true), ("udp_sendmsg", false)] {
        let row = diff.classes[0].functions.iter().find(|r| r.name == name);
        assert_eq!(row.unwrap().judged.differs(), differs, "{name}");
    }
    let kind = "kind = \"compare\"\narm = \"after\"\nagainst = \"before\"\nis = \"more\"";
    let whole = format!("conclusion = \"{{c}}.\"\n{}", text(kind));
    let experiment = Experiment::parse(&whole).unwrap();
    let asked = |directions: &[Direction], arms: &[&str]| {
        let arms: Vec<String> = arms.iter().map(ToString::to_string).collect();
        let asked = claims::asked(&experiment, directions, &arms);
        (asked.claims.len(), asked.conclusion.is_some())
    };
    assert_eq!(asked(&[], &[]), (1, true));
    assert_eq!(asked(&[Direction::Tx], &["before", "after"]), (1, true));
    assert_eq!(asked(&[], &["before"]), (0, false));
    assert_eq!(asked(&[Direction::Rx], &[]), (0, false));
    // Once, by the first part, and by the part that has its quantity.
    let owners = |text: &str| -> Vec<usize> {
        let parts = ["samples", "disk reads"].map(|name| (name, Cow::Borrowed(&recording)));
        let by_part = claims::by_part(&Experiment::parse(text).unwrap(), &parts);
        by_part.iter().map(|of| of.claims.len()).collect()
    };
    assert_eq!(owners(&whole), [1, 0]);
    assert_eq!(owners(&format!("{whole}\nquantity = \"disk reads\"")), [0, 1]);
    assert_eq!(owners(&format!("{whole}\nquantity = \"unheard of\"")), [1, 0]);
}

/// Check that without counted packets shares of all samples are compared, including user mode, so that
/// windows of another length are not a change; and that a planted change is found.
#[test]
fn shares_are_compared() {
    let (one, mut other) = (of_others(), of_others());
    // Twice as long.
    for cost in &mut other.costs {
        (cost.calls, cost.own) = (2 * cost.calls, 2 * cost.own);
    }
    for total in other.blocks.iter_mut().flat_map(|b| &mut b.totals) {
        (total.kernel, total.user) = (2 * total.kernel, 2 * total.user);
    }
    let found = compared(&one, &other);
    assert!(found.classes.iter().all(|c| c.changed().is_empty()));
    let class = &found.classes[0];
    assert!(class.is_share() && class.sampled);
    let all: f64 = (one.blocks.iter()).map(|b| (b.kernel() + b.user()) as f64).sum();
    let row = class.functions.iter().find(|r| r.name == "udp_sendmsg");
    let judged = row.unwrap().judged.statistically().unwrap();
    let own = 5.0 * 300.0 * PERIOD_NS as f64;
    assert!((judged.before - 100.0 * own / all).abs() < 0.1, "{judged:?}");
    let [Some(before), Some(after)] = judged.sides else {
        panic!("{judged:?}");
    };
    assert!(before.0 < judged.before && judged.before < before.1);
    // Twice as many samples give a narrower interval.
    assert!(after.1 - after.0 < before.1 - before.0);
    let text = diff::terminal::render(&found, &view(140));
    assert!(text.contains("95% before") && !text.contains("p50"), "{text}");
    assert!(text.contains("of samples") && text.contains("shares"), "{text}");
    let page = diff::page::page(&found);
    assert_eq!(page.unit, "percent");
    assert!(page.classes.iter().all(|c| !c.contexts.is_empty()));

    let mut after = samples_scaled(&[("ip_finish_output2", 1.5)]);
    for block in &mut after.blocks {
        block.ledger = Ledger::default();
    }
    let found = compared(&one, &after);
    let changed = found.classes[0].changed();
    let names: Vec<&str> = changed.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names[0], "ip_finish_output2");
    let text = diff::csv(&found, None);
    assert!(text.contains("before_percent") && text.contains(",sample,"), "{text}");
}

/// Check that below a function shares are of its subtree, and the one figure of the class is the
/// subtree's share of all samples; and that a class with nothing there on one side, and unknown on the
/// other, is left out.
#[test]
fn shares_below_a_function() {
    let (one, mut other) = (of_others(), samples_scaled(&[("ip_finish_output2", 1.5)]));
    for block in &mut other.blocks {
        block.ledger = Ledger::default();
    }
    // As of a command: nothing else was sampled.
    other.costs.retain(|cost| cost.direction != Direction::Other);
    let parts = [&one, &other].map(|r| r.below("ip_send_skb"));
    let found = compared(&parts[0], &parts[1]);
    assert!(found.unpaired.is_empty(), "{:?}", found.unpaired);
    assert_eq!(found.classes.len(), 1);
    let class = &found.classes[0];
    let judged = |row: &DiffRow| *row.judged.statistically().unwrap();
    let sum = |of: fn(&netplumb_stats::judge::Judged) -> f64| -> f64 {
        class.functions.iter().map(|row| of(&judged(row))).sum()
    };
    assert!((sum(|j| j.before) - 100.0).abs() < 0.5, "{}", sum(|j| j.before));
    assert!((sum(|j| j.after) - 100.0).abs() < 0.5, "{}", sum(|j| j.after));
    let whole = judged(class.whole().unwrap());
    let own: u64 = parts[0].costs.iter().map(|cost| cost.own).sum();
    let all: u64 = one.blocks.iter().map(|b| b.kernel() + b.user()).sum();
    let share = 100.0 * own as f64 / all as f64;
    assert!((whole.before - share).abs() < 0.1, "{whole:?}, {share}");
    assert!(whole.after > whole.before && whole.after < 90.0, "{whole:?}");
    assert!(class.inclusive.iter().all(|row| row.name != "ip_send_skb"));
    let changed = class.changed();
    assert_eq!(changed[0].name, "ip_finish_output2");
    let text = diff::terminal::render(&found, &view(140));
    assert!(text.contains("of all samples"), "{text}");
    assert!(text.contains("of the samples below the function"), "{text}");
    assert!(!text.contains("only in"), "{text}");
}

/// Check that no drift is reported for samples of guests, since guests execute the same at any time.
#[test]
fn guests_do_not_drift() {
    let of_guest = || {
        let mut recording = samples();
        let number = recording.costs[0].quantity as usize;
        recording.quantities[number] = (&SAMPLED).into();
        recording
    };
    let (one, other) = (of_guest(), of_guest());
    let found = compared(&one, &other);
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert!(found.classes.iter().all(|c| !c.apart));
    let text = diff::terminal::render(&found, &view(110));
    assert!(!text.contains("beware"), "{text}");
    let (one, other) = (samples(), samples());
    assert!(!compared(&one, &other).warnings.is_empty());
}

/// Check that actual samples and those that a timer would have taken are distinguished where
/// their unit is the same.
#[test]
fn quantities_are_named() {
    for of in [&SAMPLED, &DEFERRED] {
        let mut recording = samples();
        let number = recording.costs[0].quantity as usize;
        recording.quantities[number] = of.into();
        let views = classes(&recording);
        let all = view(110);
        let name = format!("({})", of.name);
        let page: Page = html::report_page(&recording, &views, None, &CrossQuantity::default());
        assert!(page.title.ends_with(&name), "{}", page.title);
        let text = markdown::render(&recording, &views, None, &all, &CrossQuantity::default());
        assert!(text.contains(&format!("Instructions {name} per")), "{text}");
        let text = functions::csv(&views, None, &CrossQuantity::default());
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let at = reader.headers().unwrap().iter().position(|c| c == "quantity");
        for row in reader.records() {
            assert_eq!(&row.unwrap()[at.unwrap()], of.name);
        }
        let diff = compared(&recording, &recording);
        let text = diff::terminal::render(&diff, &all);
        assert!(text.contains(&format!("quantity  {}", of.name)), "{text}");
        assert!(diff::csv(&diff, None).lines().next().unwrap().contains("quantity"));
        assert!(diff::page::page(&diff).title.ends_with(&name));
        assert!(diff::markdown::render(&diff, 0).contains(&name));
    }
}

/// Check that profiles of few samples can be compared, with blocks that have none at all or that were not measured
/// for any time: in all outputs, and without a figure that is no number.
#[test]
fn few_samples() {
    let mut state = 7_u64;
    // Knuth's linear congruential generator.
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    let mut profile = |packets: bool| {
        let mut recording = if packets { samples() } else { of_others() };
        let kept = below(u64::from(BLOCKS) + 1) as u32;
        let most = [1, 2, 3, 10][below(4) as usize];
        let empty: Vec<bool> = (0..BLOCKS).map(|_| below(3) == 0).collect();
        for cost in &mut recording.costs {
            cost.calls = match empty[cost.block as usize] {
                true => 0,
                false => below(most),
            };
            cost.own = cost.calls * PERIOD_NS;
        }
        recording.costs.retain(|cost| cost.block < kept && (cost.calls > 0 || below(2) == 0));
        recording.blocks.truncate(kept as usize);
        for (n, block) in (0..).zip(&mut recording.blocks) {
            let own = recording.costs.iter().filter(|cost| cost.block == n);
            block.totals[0].kernel = own.map(|cost| cost.own).sum();
            block.totals[0].user = 0;
            if below(4) == 0 {
                block.duration_ns = 0;
            }
        }
        if !packets && below(2) == 0 {
            for cost in &mut recording.costs {
                cost.direction = Direction::Run;
            }
            recording.arms[0].proto = Proto::Work;
        }
        recording
    };
    for try_ in 0..400 {
        let packets = try_ % 2 == 0;
        let (before, after) = (profile(packets), profile(packets));
        let diff = compared(&before, &after);
        let page = html::render(&diff::page::page(&diff));
        let data = page.split("<script").next().unwrap_or_default().len();
        for text in [
            diff::terminal::render(&diff, &view(0)),
            diff::csv(&diff, None),
            diff::json::render(&diff),
            diff::markdown::render(&diff, 0),
            page[..data].to_string(),
        ] {
            assert!(!text.contains("NaN") && !text.contains("inf%"), "{text}");
        }
        diff.classes.iter().for_each(|class| {
            class.worse_by();
            class.may_miss(1.0);
        });
    }
}
