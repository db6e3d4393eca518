use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{
    Arm, Block, Cost, Derivation, Function, Ledger, MadeBy, Node, Recording,
};

use crate::analysis::classes;
use crate::claims::{Answer, Judged, judge};
use crate::together::CrossQuantity;
use crate::{conclusions, scan, seeds};

const PACKETS: u64 = 100;
const FUNCTIONS: [&str; 3] = ["udp_sendmsg", "nft_do_chain", "udp_rcv"];

/// An arm's name, its knobs, and what it spends in each of [`FUNCTIONS`] for a packet.
type Spent<'a> = (&'a str, &'a [(&'a str, &'a str)], [u64; 3]);

/// The key among an arm's knobs here for what the arm was made from.
const FROM: &str = "made from";
const SETTING: &str = "setting";
const CONTROL: &str = "control";

fn made(knobs: &[(&str, &str)]) -> Option<Derivation> {
    let knob = |name: &str| Some(knobs.iter().find(|(k, _)| *k == name)?.1);
    Some(Derivation {
        from: knob(FROM)?.into(),
        by: match knob(SETTING) {
            None => MadeBy::Seed,
            Some(setting) => {
                MadeBy::Scan { setting: setting.into(), control: knob(CONTROL).is_some() }
            }
        },
    })
}

fn recording(arms: &[Spent<'_>]) -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    for name in FUNCTIONS {
        recording.functions.push(Function {
            name: name.into(),
            module: None,
            layer: Some("transport".into()),
            address: 0,
            size_bytes: 16,
            source: None,
        });
        recording.nodes.push(Node {
            parent: None,
            function: recording.nodes.len() as u32,
            tail: false,
        });
    }
    for (n, (name, knobs, costs)) in arms.iter().enumerate() {
        recording.arms.push(Arm {
            name: name.to_string(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: knobs
                .iter()
                .filter(|(k, _)| ![FROM, SETTING, CONTROL].contains(k))
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            made: made(knobs),
        });
        if *costs == [0; 3] {
            continue;
        }
        recording.blocks.push(Block {
            arm: n as u32,
            instrument: "exact".into(),
            index: 0,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 0,
        });
        let block = recording.blocks.len() as u32 - 1;
        for (node, insns) in costs.iter().enumerate() {
            let rx = node == 2;
            recording.costs.push(Cost {
                quantity: 0,
                block,
                direction: if rx { Direction::Rx } else { Direction::Tx },
                context: if rx { Context::Softirq(Softirq::NetRx) } else { Context::Task },
                node: node as u32,
                calls: PACKETS,
                own: insns * PACKETS,
            });
        }
    }
    recording
}

const RULES: &[Spent<'_>] = &[
    ("none", &[], [4_282, 0, 3_190]),
    ("one", &[("nft.rules", "1")], [4_390, 213, 3_190]),
    ("ten", &[("nft.rules", "10")], [4_390, 834, 3_190]),
    ("hundred", &[("nft.rules", "100")], [4_390, 7_044, 3_190]),
];

fn judged(recording: &Recording, claim: &str) -> Judged {
    let arms: String =
        recording.arms.iter().map(|arm| format!("[[arm]]\nname = \"{}\"\n", arm.name)).collect();
    let text = format!("name = \"x\"\n{arms}[[claim]]\nsays = \"?\"\n{claim}");
    let experiment = Experiment::parse(&text).unwrap();
    judge(&experiment, &classes(recording)).remove(0)
}

/// Check that a line is found to the instruction, with its parts, and that one
/// instruction in a hundred packets breaks it.
#[test]
fn a_line_over_arms() {
    const CLAIM: &str = "kind = \"linear\"\nclasses = [\"udp tx\"]\nknob = \"nft.rules\"\n\
                         unit = \"rule\"\n";
    let mut recording = recording(RULES);
    let line = judged(&recording, CLAIM);
    assert_eq!(line.verdict, Answer::Holds, "{line:?}");
    assert_eq!(
        line.finding,
        "udp tx costs 4,534 + 69 for each rule, to the instruction, from 1 to 100"
    );
    let at = recording.costs.len() - 2;
    recording.costs[at].own += 1;
    let bent = judged(&recording, CLAIM);
    assert_eq!(bent.verdict, Answer::DoesNotHold);
    assert!(bent.finding.contains("is no line"), "{bent:?}");
    let loose = judged(&recording, &format!("{CLAIM}within_percent = 1.0\n"));
    assert_eq!(loose.verdict, Answer::Holds);
    let few = judged(&recording, &format!("{CLAIM}from = 10\n"));
    assert_eq!(few.verdict, Answer::NotMeasured);
    assert!(few.because.contains("a line takes 3"), "{few:?}");
}

/// Check that a line is over rules of files, too, whose number was read back.
#[test]
fn a_line_over_files_of_rules() {
    let files = [
        ("none", [4_282, 0, 3_190]),
        ("one", [4_390, 213, 3_190]),
        ("ten", [4_390, 834, 3_190]),
        ("hundred", [4_390, 7_044, 3_190]),
    ];
    let spent = files.map(|(name, costs)| -> Spent<'_> {
        match name {
            "none" => (name, &[], costs),
            _ => (name, &[("nft", "table ip t {}"), ("nft.file", "x.nft")], costs),
        }
    });
    let mut recording = recording(&spent);
    for (arm, rules) in [(1, "1"), (2, "10"), (3, "100")] {
        let facts = &mut recording.notes_of(arm).facts;
        facts.insert("nft.rules".into(), rules.into());
        facts.insert("nft.set_elements".into(), "0".into());
    }
    for (knob, verdict) in [("nft.rules", Answer::Holds), ("nft.set", Answer::NotMeasured)] {
        let claim = format!(
            "kind = \"linear\"\nclasses = [\"udp tx\"]\nknob = \"{knob}\"\nunit = \"rule\"\n"
        );
        let line = judged(&recording, &claim);
        assert_eq!(line.verdict, verdict, "{line:?}");
        if verdict == Answer::Holds {
            let finding =
                "udp tx costs 4,534 + 69 for each rule, to the instruction, from 1 to 100";
            assert_eq!(line.finding, finding);
        }
    }
}

/// Check that the page of an experiment which claims a line has it as its figure: every
/// level that was measured, and the line from the first to the last that it is about.
#[test]
fn the_figure_of_a_line() {
    let recording = recording(RULES);
    let text = "name = \"x\"\n[[claim]]\nkind = \"linear\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
                knob = \"nft.rules\"\nunit = \"rule\"\nfrom = 1\n";
    let experiment = Experiment::parse(text).unwrap();
    let page = crate::html::report_page(
        &recording,
        &classes(&recording),
        Some(&experiment),
        &CrossQuantity::default(),
    );
    let [figure] = &page.figures[..] else { panic!("{:?}", page.figures) };
    assert_eq!(figure.x.label, "nft.rules");
    assert_eq!(figure.y.label, "instructions per packet");
    let [measured, line] = &figure.series[..] else { panic!("{:?}", figure.series) };
    let points = |of: &crate::page::PageSeries| -> Vec<(f64, f64)> {
        of.points.iter().map(|p| (p.x, p.y)).collect()
    };
    assert_eq!(measured.name, "udp tx");
    assert_eq!(points(measured), [(1.0, 4_603.0), (10.0, 5_224.0), (100.0, 11_434.0)]);
    assert_eq!(line.name, "udp tx: 4,534 + 69 for each rule");
    assert_eq!(points(line), [(1.0, 4_603.0), (100.0, 11_434.0)]);
    let without = Experiment::parse("name = \"x\"\n").unwrap();
    let page = crate::html::report_page(
        &recording,
        &classes(&recording),
        Some(&without),
        &CrossQuantity::default(),
    );
    assert!(page.figures.is_empty());
}

/// Check each relation of an arm to another, both ways.
#[test]
fn arms_compared() {
    let recording = recording(RULES);
    let verdict = |class: &str, arm: &str, is: &str| {
        let claim = format!(
            "kind = \"compare\"\nclasses = [\"udp {class}\"]\narm = \"{arm}\"\n\
             against = \"one\"\n{is}"
        );
        judged(&recording, &claim)
    };
    let outcome = verdict("tx", "none", "");
    assert_eq!(outcome.verdict, Answer::Answered);
    assert_eq!(
        outcome.finding,
        "with none instead of one, udp tx costs 321 less (4,282 against 4,603, -7.0%)"
    );
    for (class, arm, is, holds) in [
        ("tx", "none", "less", true),
        ("tx", "none", "more", false),
        ("tx", "ten", "more", true),
        ("tx", "one", "more", false),
        ("tx", "one", "same", true),
        ("rx", "ten", "same", true),
        ("tx", "ten", "same", false),
        ("tx", "ten", "different", true),
        ("rx", "ten", "different", false),
    ] {
        let got = verdict(class, arm, &format!("is = \"{is}\"\n"));
        let wanted = if holds { Answer::Holds } else { Answer::DoesNotHold };
        assert_eq!(got.verdict, wanted, "{class} {arm} {is}: {got:?}");
    }
}

/// Check that equal and unequal costs over all arms are distinguished, that arms are
/// ranked, and that the function that changed is named.
#[test]
fn arms_side_by_side() {
    let recording = recording(RULES);
    let rx = judged(&recording, "kind = \"unchanged\"\nclasses = [\"udp rx\"]\n");
    assert_eq!(rx.verdict, Answer::Holds);
    assert_eq!(rx.finding, "udp rx costs 3,190 in all 4 arms");
    let tx = judged(&recording, "kind = \"unchanged\"\nclasses = [\"udp tx\"]\n");
    assert_eq!(tx.verdict, Answer::DoesNotHold);
    let some = "kind = \"unchanged\"\nclasses = [\"udp tx\"]\nfunction = \"udp_sendmsg\"\n\
                arms = [\"one\", \"ten\"]\n";
    assert_eq!(judged(&recording, some).verdict, Answer::Holds);
    let ranking = judged(&recording, "kind = \"ranking\"\nclasses = [\"udp tx\"]\n");
    assert_eq!(
        ranking.finding,
        "udp tx costs least with none (4,282) and most with hundred (11,434)"
    );
    let by = "kind = \"changed-by\"\nclasses = [\"udp tx\"]\narm = \"ten\"\nagainst = \"one\"\n";
    assert_eq!(
        judged(&recording, by).finding,
        "with ten instead of one udp tx changes by +621, most in nft_do_chain +621"
    );
}

/// Check that a claim about an arm that was not measured is reported as such, without a verdict.
#[test]
fn an_arm_is_missing() {
    let mut arms = RULES.to_vec();
    arms.push(("gone", &[], [0; 3]));
    let recording = recording(&arms);
    let gone = judged(
        &recording,
        "kind = \"compare\"\nclasses = [\"udp tx\"]\narm = \"gone\"\nis = \"less\"\n",
    );
    assert_eq!(gone.verdict, Answer::NotMeasured);
    assert!(gone.finding.contains("no udp tx of gone"), "{gone:?}");
}

/// Check that a claim can be about the part below a function, whole or one function of it, and that
/// an arm without that part costs nothing there.
#[test]
fn below_a_function() {
    let mut recording = recording(RULES);
    // The rules are evaluated below the send.
    recording.nodes[1].parent = Some(0);
    let of = |keys: &str| {
        let claim = format!(
            "kind = \"compare\"\nclasses = [\"udp tx\"]\narm = \"ten\"\nagainst = \"one\"\n{keys}"
        );
        judged(&recording, &claim).finding
    };
    assert_eq!(
        of("below = \"udp_sendmsg\""),
        "with ten instead of one, udp tx below udp_sendmsg costs 621 more (5,224 against 4,603, \
         +13.5%)"
    );
    assert_eq!(
        of("below = \"udp_sendmsg\"\nfunction = \"udp_sendmsg\""),
        "with ten instead of one, udp tx in udp_sendmsg below udp_sendmsg costs the same (4,390)"
    );
    let inner = of("below = \"udp_sendmsg;nft_do_chain\"");
    assert!(
        inner.contains("below nft_do_chain below udp_sendmsg costs 621 more (834 against 213"),
        "{inner}"
    );
    assert_eq!(
        of("below = \"nft_do_chain;udp_sendmsg\""),
        "not measured: there are no calls of udp_sendmsg below nft_do_chain in the recording"
    );
}

/// Check that repeats under other seeds make a spread, with the functions that depend on
/// the seed, and do not count as arms in a claim.
#[test]
fn seeds_make_a_spread() {
    let of = |seed| [("seed", seed), (FROM, "udp")];
    let (two, three) = (of("2"), of("3"));
    let recording = recording(&[
        ("udp", &[], [100, 7, 50]),
        ("udp seed=2", &two, [100, 9, 50]),
        ("udp seed=3", &three, [100, 4, 50]),
    ]);
    let views = classes(&recording);
    let spreads = seeds::spreads(&views);
    assert_eq!(spreads.len(), 2);
    assert_eq!(spreads[0].costs, [104.0, 107.0, 109.0]);
    assert_eq!(spreads[0].functions, [("nft_do_chain".into(), 4.0, 9.0)]);
    assert!(spreads[1].functions.is_empty());
    let text = seeds::render(&recording, &views, 100);
    assert!(text.contains("under 3 random seeds"), "{text}");
    assert!(text.contains("udp tx depends on the seed in nft_do_chain 4.0 to 9.0"), "{text}");
    assert!(text.contains("udp rx: nothing depends on the seed"), "{text}");
    let claim = "kind = \"unchanged\"\nclasses = [\"udp tx\"]\n";
    assert_eq!(judged(&recording, claim).verdict, Answer::NotMeasured);
    // Claims about the arm are judged by the typical seed.
    let claim = "kind = \"ranking\"\nclasses = [\"udp tx\"]\n";
    assert_eq!(judged(&recording, claim).because, "udp tx: udp 107");
    let typical = seeds::typical(&views);
    let costs: Vec<u64> = typical.iter().map(|v| v.total / v.packets).collect();
    assert_eq!(costs, [107, 50]);
    // Choosing twice gives the same: also where the typical seed is a repeat.
    let lucky = self::recording(&[("udp", &[], [100, 9, 50]), ("udp seed=2", &two, [100, 7, 50])]);
    let once = seeds::typical(&classes(&lucky));
    assert_eq!(once[0].arm().name, "udp seed=2");
    let twice = seeds::typical(&once);
    let names = |views: &[crate::analysis::ClassView<'_>]| -> Vec<String> {
        views.iter().map(|v| v.arm().name.clone()).collect()
    };
    assert_eq!(names(&once), names(&twice));
}

/// Check that a scan distinguishes settings that change a cost, only make noise,
/// break the path or were not tried.
#[test]
fn a_scan_is_reported() {
    let of = |setting: &'static str| [(SETTING, setting), (FROM, "udp")];
    let control = [(SETTING, "net.a=0 (as it was)"), (FROM, "udp"), (CONTROL, "yes")];
    let (a, b, c, d) = (of("a"), of("b"), of("c"), of("d"));
    let mut recording = recording(&[
        ("udp", &[], [100, 5, 50]),
        ("udp, control", &control, [100, 6, 50]),
        ("udp, a", &a, [100, 6, 50]),
        ("udp, b", &b, [100, 45, 50]),
        ("udp, c", &c, [0; 3]),
        ("udp, d", &d, [100, 5, 40]),
    ]);
    let failed = &mut recording.notes_of(4).failed;
    failed.insert("exact".into(), "none of 50 warm-up packets arrived".into());
    recording.not_tried.insert("net.x".into(), "its value is a word".into());
    let scan = scan::scan(&recording, &classes(&recording)).unwrap();
    assert_eq!((scan.tried, scan.changing, scan.missing), (4, 2, 0));
    assert_eq!(scan.breaking[0].0, "c");
    let (class, effects) = &scan.effects[0];
    assert_eq!(class, "udp tx");
    // `a` changes no more than writing the same value does.
    assert_eq!(effects.len(), 1);
    assert_eq!((effects[0].setting.as_str(), effects[0].change), ("b", 40.0));
    assert_eq!(scan.effects[1].1[0].setting, "d");
    let sentence = scan::sentence(&scan);
    assert_eq!(
        sentence,
        "Of 4 settings, 2 change what a packet costs, 1 breaks the path, and 1 does nothing; \
         1 more was not tried. The largest effect on udp tx: b (+40.0 instructions per packet, \
         +38.1%). The largest effect on udp rx: d (-10.0 instructions per packet, -20.0%)."
    );
    let text = scan::render(&scan, 100);
    for words in ["nft_do_chain +40.0", "50 warm-up packets", "its value is a word (1): net.x"] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    let plain = super::tests::recording(RULES);
    assert_eq!(scan::scan(&plain, &classes(&plain)), None);
}

/// Check that guests' own reports of their knobs are shown by arm.
#[test]
fn what_guests_say() {
    let mut recording = recording(RULES);
    let ten = recording.arms.iter().position(|a| a.name == "ten").unwrap();
    recording
        .notes_of(ten)
        .facts
        .insert("vulnerability.spectre_v2".into(), "Retpolines\x1b[2J".into());
    let text = conclusions::knobs(&recording, 100);
    assert!(text.contains("- ten: spectre_v2: Retpolines?[2J"), "{text}");
}
