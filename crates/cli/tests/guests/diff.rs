//! `plumb diff` on recordings made here, without a guest; and one that a guest made.

// Also in what is no test itself.
use std::collections::BTreeMap;

use crate::common::{Place, Running, prints};
use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, env};
use netplumb_store::Writer;

/// Packets of a block.
const PACKETS: u64 = 200;

fn arm(name: &str, proto: Proto, rules: u32) -> Arm {
    Arm {
        name: name.into(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::from([
            ("kernel".into(), "debian".into()),
            ("nft.rules".into(), rules.to_string()),
        ]),
        made: None,
    }
}

/// Five blocks of each arm: every packet costs the same in `send`, and in its callee an amount that
/// differs by arm.
fn recording(arms: &[(Arm, u64)], callee: &str) -> Recording {
    let function = |name: &str| Function {
        name: name.into(),
        module: None,
        layer: Some("netfilter".into()),
        address: 0x1000,
        size_bytes: 16,
        source: None,
    };
    let node = |parent, function| Node { parent, function, tail: false };
    let mut recording = Recording {
        environment: [
            (env::CLOCK, "exact"),
            (env::UNIT, "instructions"),
            (env::QUICK, "no"),
            (env::KERNEL, "6.1.0"),
            (env::KERNEL_HASH, "0123"),
            (env::QEMU, "7.2.22"),
        ]
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into(),
        quantities: vec![(&netplumb_model::timing::INSTRUCTIONS).into()],
        arms: arms.iter().map(|(arm, _)| arm.clone()).collect(),
        functions: vec![function("send"), function(callee)],
        nodes: vec![node(None, 0), node(Some(0), 1)],
        complete: true,
        ..Recording::default()
    };
    for index in 0..5 {
        for (n, (_, insns)) in arms.iter().enumerate() {
            let block = recording.blocks.len() as u32;
            recording.blocks.push(Block {
                arm: n as u32,
                instrument: "exact".into(),
                index,
                ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
                totals: vec![netplumb_model::recording::Total {
                    quantity: 0,
                    kernel: PACKETS * (1_000 + insns),
                    user: 0,
                }],
                entered: 2 * PACKETS,
                returned: 2 * PACKETS,
                duration_ns: 0,
            });
            for (node, insns) in [(0, 1_000), (1, *insns)] {
                recording.costs.push(Cost {
                    quantity: 0,
                    block,
                    direction: Direction::Tx,
                    context: Context::Task,
                    node,
                    calls: PACKETS,
                    own: PACKETS * insns,
                });
            }
        }
    }
    recording
}

fn udp(insns: u64) -> Recording {
    recording(&[(arm("udp", Proto::Udp, 0), insns)], "nft_do_chain")
}

fn save(place: &Place, name: &str, recording: &Recording) {
    let mut writer = Writer::create(&place.path(name)).unwrap();
    writer.save(recording).unwrap();
}

/// A place with `a.plumb`, and `b.plumb`, which is dearer by 16.
fn two() -> Place {
    let place = Place::new();
    save(&place, "a.plumb", &udp(100));
    save(&place, "b.plumb", &udp(116));
    place
}

/// Check that the sentence comes before any table, and that it is right the other way round and for
/// a recording and itself.
#[test]
fn the_sentence() {
    let place = two();
    let ran = place.run("diff a.plumb b.plumb");
    ran.code(0);
    let dearer = "UDP send: 1,100 to 1,116 instructions per packet, +16 (+1.5%), all of it in nft_do_chain\n";
    assert!(
        ran.stdout.starts_with(&format!("before    a.plumb\nafter     b.plumb\n\n{dearer}")),
        "{}",
        ran.stdout
    );
    let ran = place.run("diff b.plumb a.plumb");
    prints(
        ran.code(0),
        &["1,116 to 1,100 instructions per packet, -16 (-1.4%), all of it in nft_do_chain"],
    );
    std::fs::copy(place.path("a.plumb"), place.path("c.plumb")).unwrap();
    let ran = place.run("diff a.plumb c.plumb --fail-if-worse 0");
    prints(ran.code(0), &["UDP send: 1,100 instructions per packet, no difference\n"]);
}

/// Check the exit code for CI, at the limit and beyond it, by percent and by
/// instructions; and that the limit is understood or refused.
#[test]
fn fail_if_worse() {
    let place = two();
    for (limit, code) in [
        ("1.5%", 0),
        ("1.45", 4),
        ("0.5%", 4),
        ("16insns", 0),
        ("15.9insns", 4),
        ("0", 4),
        ("100%", 0),
    ] {
        let ran = place.run(&format!("diff a.plumb b.plumb --fail-if-worse {limit}"));
        ran.code(code);
        if code == 4 {
            ran.says(&["worse by more than", "UDP send: 1,100 to 1,116"]);
        }
        // Better is not worse.
        place.run(&format!("diff b.plumb a.plumb --fail-if-worse {limit}")).code(0);
    }
    for limit in ["much", "-1%", "inf", "1ms", ""] {
        let mut command = place.plumb("diff a.plumb b.plumb");
        command.arg(format!("--fail-if-worse={limit}"));
        Running::start(&mut command).finish().code(2).says(&["like 0.5%, 10insns"]);
    }
}

/// Check that each rendering is what its reader takes, and the page is written.
#[test]
fn renderings() {
    let place = two();
    let json: serde_json::Value =
        serde_json::from_str(&place.run("diff a.plumb b.plumb --json").code(0).stdout).unwrap();
    assert_eq!(json["schema"], 2);
    assert_eq!(json["classes"][0]["verdict"], "worse");
    assert_eq!(json["classes"][0]["total"]["change_per_packet"], 16.0);
    let text = place.run("diff a.plumb b.plumb --csv").code(0).stdout.clone();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.records().map(Result::unwrap).count(), 2);
    let markdown = place.run("diff a.plumb b.plumb --markdown");
    prints(markdown.code(0), &["all of it in `nft_do_chain`", "<details>", "| **all** "]);
    let ran = place.run("diff a.plumb b.plumb --html d.html");
    ran.code(0).says(&["wrote d.html"]);
    prints(&ran, &["all of it in nft_do_chain"]);
    let page = std::fs::read_to_string(place.path("d.html")).unwrap();
    assert!(page.contains("all of it in nft_do_chain"), "the headline is there without scripts");
    place.run("diff a.plumb b.plumb --csv --json").code(2);
}

/// Check that text for a mailing list has its sentences and tables in 72 columns, without the folds
/// and marks of Markdown, and that it excludes other formats.
#[test]
fn mail() {
    let place = two();
    let text = place.run("diff a.plumb b.plumb");
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(widest(&text.code(0).stdout) > Some(72), "{}", text.stdout);
    let mail = place.run("diff a.plumb b.plumb --mail --fail-if-worse 1%");
    prints(
        mail.code(4),
        &[
            "UDP send: 1,100 to 1,116 instructions per packet, +16 (+1.5%), all of it",
            "nft_do_chain",
        ],
    );
    assert!(widest(&mail.stdout) <= Some(72), "{}", mail.stdout);
    for mark in ["<details>", "`", "**", "|", "\u{1b}"] {
        assert!(!mail.stdout.contains(mark), "{mark} in {}", mail.stdout);
    }
    for other in ["--csv", "--json", "--markdown", "--tree"] {
        place.run(&format!("diff a.plumb b.plumb --mail {other}")).code(2);
    }
}

/// Check that below a function each side is that function with its callees, in every format; that the graphs of both
/// sides are side by side; and that an unknown name is an error with similar ones.
#[test]
fn below() {
    let place = two();
    let ran = place.run("diff a.plumb b.plumb --below nft_do_chain");
    let sentence =
        "UDP send: nft_do_chain takes 16 more instructions per packet (+16.0%): 100 \u{2192} 116";
    prints(ran.code(0), &[sentence, "below     nft_do_chain", "9.09% of all in the windows"]);
    assert!(!ran.stdout.contains(" send "), "{}", ran.stdout);
    let ran = place.run("diff a.plumb b.plumb --below send --tree");
    let lines = [
        "100.00% 100.00%       1,100      1,116        +16            1    send",
        "9.09%  10.39%         100        116        +16            1      nft_do_chain",
    ];
    prints(ran.code(0), &lines);
    for format in ["--json", "--csv", "--markdown", "--html d.html"] {
        place.run(&format!("diff a.plumb b.plumb --below nft_do_chain {format}")).code(0);
    }
    let report = "report b.plumb --below nft_do_chain";
    let ran = place.run(report);
    prints(ran.code(0), &["udp tx below nft_do_chain  116 instructions per packet", "per call"]);
    let folded = place.run(&format!("{report} --folded"));
    prints(folded.code(0), &["udp;udp_tx;task;nft_do_chain 116000\n"]);
    for format in [
        "--callgrind",
        "--pprof p",
        "--speedscope",
        "--svg",
        "--json",
        "--csv",
        "--markdown",
        "--tree",
        "--html r.html",
    ] {
        place.run(&format!("{report} {format}")).code(0);
    }
    let json = place.run(&format!("{report} --json"));
    let json: serde_json::Value = serde_json::from_str(&json.code(0).stdout).unwrap();
    assert_eq!(json["environment"]["part.below"], "nft_do_chain");
    assert_eq!(json["classes"][0]["functions"][0]["calls_per_root_call"], 1.0);
    for command in ["report a.plumb", "diff a.plumb b.plumb"] {
        place.run(&format!("{command} --below nft_do_chian")).code(2).says(&[
            "a.plumb",
            "no such function",
            "nft_do_chian",
            "nft_do_chain, send",
        ]);
    }
    // What only one side calls costs nothing on the other.
    let arms = [(arm("udp", Proto::Udp, 0), 116)];
    save(&place, "c.plumb", &recording(&arms, "nft_do_other"));
    let ran = place.run("diff b.plumb c.plumb --below nft_do_chain");
    prints(
        ran.code(0),
        &[
            "nft_do_chain takes 116 fewer instructions per packet (-100.0%): 116 \u{2192} 0",
            "c.plumb has no call of nft_do_chain: what is below it is 0 there",
        ],
    );
    place
        .run("diff b.plumb c.plumb --below nft_do_chian")
        .code(2)
        .says(&["either recording", "nft_do_chain, "]);
    let chain = place.run("report b.plumb --below send;nft_do_chain");
    prints(chain.code(0), &["udp tx below nft_do_chain below send  116 instructions"]);
    place
        .run("report a.plumb --below nft_do_chain;send")
        .code(2)
        .says(&["no call of send below nft_do_chain"]);
    place
        .run("report a.plumb --below send --lines send")
        .code(2)
        .says(&["--below can't be used with --lines"]);
}

/// Check that arms of one file are compared, by name, by words they have in
/// common, and by themselves; and that `plumb report` does so too.
#[test]
fn arms() {
    let place = Place::new();
    let arms = [
        (arm("udp rules=0", Proto::Udp, 0), 100),
        (arm("tcp rules=0", Proto::Tcp, 0), 200),
        (arm("udp rules=1", Proto::Udp, 1), 122),
        (arm("tcp rules=1", Proto::Tcp, 1), 222),
    ];
    save(&place, "x.plumb", &recording(&arms, "nft_do_chain"));
    let both = [
        "UDP send (nft.rules 0 → 1): 1,100 to 1,122 instructions per packet, +22",
        "TCP send (nft.rules 0 → 1): 1,200 to 1,222 instructions per packet, +22",
    ];
    prints(place.run("report x.plumb").code(0), &both);
    let one = ["1,100 to 1,122 instructions per packet, +22 (+2.0%), all of it in nft_do_chain"];
    prints(place.run("diff x.plumb --proto udp").code(0), &one);
    for words in [
        ["diff", "x.plumb:udp rules=0", "x.plumb:udp rules=1"],
        ["diff", "x.plumb:rules=0", "x.plumb:rules=1"],
    ] {
        let ran = Running::start(place.plumb("").args(words)).finish();
        prints(ran.code(0), &["differs   nft.rules: 0 → 1"]);
        prints(&ran, &one);
    }
    prints(
        place.run("diff x.plumb:rules=0 x.plumb:rules=1").code(0),
        &["TCP send: 1,200 to 1,222"],
    );
    // A name of a file may have what parts it from its arm.
    save(&place, "y:udp.plumb", &udp(100));
    save(&place, "y:z:1.plumb", &udp(116));
    let ran = place.run("diff y:udp.plumb y:z:1.plumb:udp");
    prints(ran.code(0), &["UDP send: 1,100 to 1,116"]);
}

/// Check the warnings on top: other machines or kernels, an interrupted run.
#[test]
fn differences_first() {
    let place = two();
    let mut other = udp(116);
    for (key, value) in [
        (env::QEMU, "9.1"),
        (env::QUICK, "yes"),
        (env::KERNEL, "6.6.0"),
        (env::CPU, "qemu64\x1b[2J"),
    ] {
        other.environment.insert(key.into(), value.into());
    }
    other.complete = false;
    other.arms[0].link = Link::Lo;
    save(&place, "other.plumb", &other);
    let ran = place.run("diff a.plumb other.plumb");
    ran.code(0);
    let (head, _) = ran.stdout.split_once("UDP send").unwrap();
    for words in [
        "QEMU: 7.2.22 → 9.1",
        "quick mode: no → yes",
        "kernel: 6.1.0 → 6.6.0",
        "CPU: unknown → qemu64?[2J",
        "link: veth → lo",
        "other.plumb is incomplete",
    ] {
        assert!(head.contains(words), "no `{words}` in:\n{head}");
    }
}

/// Check what can't be compared: a missing arm or class, a side with itself, an empty recording, a
/// file that isn't a recording.
#[test]
fn bad_input() {
    let place = two();
    let says = |words: &str, code: i32, lines: &[&str]| {
        let ran = place.run(words);
        ran.code(code).says(lines);
        assert_eq!(ran.stdout, "");
    };
    says("diff a.plumb:upd b.plumb", 2, &["a.plumb: no such arm `upd`; it has udp"]);
    says("diff a.plumb b.plumb --direction rx", 2, &["no class of rx in common", "udp tx"]);
    says("diff a.plumb b.plumb --proto tcp", 2, &["no class of tcp"]);
    says("diff a.plumb b.plumb --layer netwrok", 2, &["invalid layer `netwrok`", "network"]);
    says("diff a.plumb a.plumb", 2, &["both sides are the same"]);
    says("diff a.plumb ./a.plumb:udp", 2, &["both sides are the same"]);
    says("diff a.plumb", 2, &["no two arms to compare (it has udp)"]);
    says("diff", 2, &["BEFORE"]);
    says("diff a.plumb missing.plumb", 1, &["missing.plumb: no such file"]);
    says("diff missing.plumb:udp b.plumb", 1, &["missing.plumb: no such file"]);
    says("diff a.plumb .", 1, &["not a Netplumb recording"]);
    place.write("text", "no recording at all");
    says("diff a.plumb text", 1, &["text: not a Netplumb recording"]);
    let mut empty = udp(1);
    empty.blocks.clear();
    empty.costs.clear();
    save(&place, "empty.plumb", &empty);
    says("diff a.plumb empty.plumb", 1, &["empty.plumb", "nothing was measured"]);
    save(
        &place,
        "tcp.plumb",
        &recording(&[(arm("tcp", Proto::Tcp, 0), 5), (arm("raw", Proto::Raw, 0), 5)], "f"),
    );
    says(
        "diff a.plumb tcp.plumb",
        2,
        &["no class in common", "arm udp: only in a.plumb", "arm raw: only in tcp.plumb"],
    );
}

/// Check that names made of HTML, of control characters and of 10,000 letters harm
/// no rendering.
#[test]
fn hostile_names() {
    for name in
        ["<script>alert(1)</script>", "\x1b[2J\x07\n\r", &"x".repeat(10_000), "`|@all #1", ""]
    {
        let place = Place::new();
        for (file, insns) in [("a.plumb", 100), ("b.plumb", 150)] {
            save(&place, file, &recording(&[(arm(name, Proto::Udp, 0), insns)], name));
        }
        for format in ["", "--markdown"] {
            let ran = place.run(&format!("diff a.plumb b.plumb {format}"));
            ran.code(0);
            assert!(!ran.stdout.chars().any(|c| c.is_control() && c != '\n'), "{}", ran.stdout);
            assert!(ran.stdout.len() < 10_000, "{}", ran.stdout.len());
        }
        let json = place.run("diff a.plumb b.plumb --json").code(0).stdout.clone();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["classes"][0]["arm"], name);
        place.run("diff a.plumb b.plumb --html d.html").code(0);
        let page = std::fs::read_to_string(place.path("d.html")).unwrap();
        assert!(!page.contains("<script>alert"), "a name became an element");
    }
}

/// Check that two boots of the same differ in nothing, and that a setting which
/// keeps the kernel from looking for the socket early is seen where it is.
#[test]
fn two_boots() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let short = "--link veth --packets 50 --blocks 5 -q";
    for (name, more) in [("a", ""), ("b", ""), ("c", "--sysctl net.ipv4.ip_early_demux=0")] {
        place.run(&format!("path --proto udp,tcp,raw {short} {more} -o {name}.plumb")).code(0);
    }
    let ran = place.run("diff a.plumb b.plumb --fail-if-worse 0");
    ran.code(0);
    let sentences = ran.stdout.lines().filter(|l| l.contains("instructions per packet"));
    let equal = sentences.filter(|l| l.contains("no difference")).count();
    // Eight classes, and all of each protocol.
    assert_eq!(equal, 11, "{}", ran.stdout);
    // Without a change there is no table.
    assert!(!ran.stdout.contains("   function"), "{}", ran.stdout);
    let ran = place.run("diff a.plumb c.plumb --proto udp --direction rx,tx --fail-if-worse 5%");
    ran.code(4);
    prints(
        &ran,
        &[
            "differs   sysctl.net.ipv4.ip_early_demux: not set → 0",
            "UDP send: 4,",
            "instructions per packet, no difference",
            "now calls ip_route_input_noref",
            "no longer calls udp_v4_early_demux",
        ],
    );
}
