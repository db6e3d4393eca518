//! `plumb diff` and `plumb report` of times, on recordings made here.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Place, prints};
use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Ledger, Recording, Stage, env};
use netplumb_model::timing::{StageKind, Times};
use netplumb_store::Writer;

const PACKETS: u64 = 1_000;
/// Bucket of 1,984 to 2,047 ns.
const BUCKET: u16 = 16 * 7 + 15;

/// Ten blocks of UDP sent: two stages, and their sum. Blocks differ by some thousandths.
fn stages(driver_ns: u64) -> Recording {
    let mut recording = Recording {
        environment: [
            (env::CLOCK, "stages"),
            (env::UNIT, "nanoseconds"),
            (env::LAB, "netns"),
            (env::KERNEL, "6.1.0"),
        ]
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into(),
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
        }],
        complete: true,
        ..Recording::default()
    };
    for index in 0..10 {
        recording.blocks.push(Block {
            arm: 0,
            index,
            ledger: Ledger {
                offered: PACKETS,
                delivered: PACKETS,
                dropped: BTreeMap::new(),
            },
            kernel_insns: 0,
            user_insns: 0,
            entered: 0,
            returned: 0,
            duration_ns: 100_000_000,
        });
        let wobble = u64::from(index * 7 % 10);
        let parts = [1_200 + wobble, driver_ns + wobble];
        let names = [
            ("system call", StageKind::Work),
            ("driver", StageKind::Work),
            ("total", StageKind::Total),
        ];
        let each = [parts[0], parts[1], parts[0] + parts[1]];
        for (order, ((name, kind), ns)) in names.into_iter().zip(each).enumerate() {
            recording.stages.push(Stage {
                block: index,
                direction: Direction::Tx,
                order: order as u16,
                name: name.into(),
                kind,
                times: Times {
                    count: PACKETS,
                    total_ns: ns * PACKETS,
                    min_ns: ns,
                    max_ns: ns,
                    buckets: vec![(BUCKET, PACKETS)],
                },
                passed_over: 0,
            });
        }
    }
    recording
}

/// A place with `a.plumb`, and `b.plumb`, whose driver takes 800 ns and not 600.
fn two() -> Place {
    let place = Place::new();
    for (name, ns) in [("a.plumb", 600), ("b.plumb", 800)] {
        let mut writer = Writer::create(&place.path(name)).unwrap();
        writer.save(&stages(ns)).unwrap();
    }
    place
}

/// Check that two runs say that they took no turns before anything else, and that each
/// rendering has what changed.
#[test]
fn compared() {
    let place = two();
    let ran = place.run("diff a.plumb b.plumb");
    let beware = "before    a.plumb\nafter     b.plumb\nbeware    not interleaved: drift";
    assert!(ran.code(0).stdout.starts_with(beware), "{}", ran.stdout);
    let sentence = "UDP send: 1,809 to 2,009 ns per packet, slower by 11.1%";
    prints(&ran, &[sentence, "most of it in driver"]);
    prints(
        place.run("diff a.plumb b.plumb --markdown").code(0),
        &["- **beware**: not interleaved", "| `driver` |", "slower |"],
    );
    let ran = place.run("diff a.plumb b.plumb --csv");
    prints(
        ran.code(0),
        &[
            "arm_before,",
            ",stage,driver,work,packet,604.500,804.500,200.000,1.3",
        ],
    );
    let ran = place.run("diff a.plumb b.plumb --json");
    let json: serde_json::Value = serde_json::from_str(&ran.code(0).stdout).unwrap();
    assert_eq!(json["times"][0]["whole"]["verdict"], "slower");
    assert_eq!(json["times"][0]["interleaved"], false);
    let ran = place.run("diff a.plumb b.plumb --html out.html");
    ran.code(0).says(&["the page is out.html"]);
    let page = std::fs::read_to_string(place.path("out.html")).unwrap();
    assert!(page.contains("not interleaved"), "told without scripts");
}

/// Check the exit code for CI: what is certain is slower by more than the limit.
#[test]
fn fail_if_worse() {
    let place = two();
    for (limit, code) in [
        ("5%", 4),
        ("100ns", 4),
        ("20%", 0),
        ("300ns", 0),
        ("10insns", 2),
    ] {
        for format in ["", "--markdown", "--csv"] {
            let ran = place.run(&format!(
                "diff a.plumb b.plumb {format} --fail-if-worse {limit}"
            ));
            ran.code(code);
            if code == 4 {
                ran.says(&["worse by more than", "UDP send: 1,809 to 2,009"]);
            }
        }
        if code != 2 {
            place
                .run(&format!("diff b.plumb a.plumb --fail-if-worse {limit}"))
                .code(0);
        }
    }
}

/// Check that a recording of stages, which has no calls, is a page too; and that what
/// can't be in it is told.
#[test]
fn a_page() {
    let place = two();
    place
        .run("report a.plumb --html out.html")
        .code(0)
        .says(&["the page is out.html"]);
    let page = std::fs::read_to_string(place.path("out.html")).unwrap();
    for word in ["a packet&#39;s way takes 1,809 ns", "of waiting"] {
        assert!(page.contains(word), "no `{word}`");
    }
    place
        .run("report a.plumb --direction rx --html out.html")
        .code(2)
        .says(&["nothing in the recording is rx: it has udp tx"]);
}
