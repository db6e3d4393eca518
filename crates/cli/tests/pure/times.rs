//! `plumb diff` and `plumb report` of times, on recordings made here.

use std::collections::BTreeMap;

use crate::common::{Place, prints};
use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Recording, env};
use netplumb_model::span::{Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::timing::{FOLLOWED, SEEN};
use netplumb_stats::histogram::bucket_of;
use netplumb_store::Writer;

const PACKETS: u64 = 1_000;

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
            made: None,
        }],
        complete: true,
        ..Recording::default()
    };
    for index in 0..10 {
        recording.blocks.push(Block {
            arm: 0,
            instrument: "stages".into(),
            index,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: Vec::new(),
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
            recording.spans.push(Span {
                block: index,
                direction: Direction::Tx,
                of: SpanOf::Stage(Stage {
                    order: order as u16,
                    name: name.into(),
                    kind,
                    passed_over: 0,
                }),
                times: Times {
                    count: PACKETS,
                    total_ns: ns * PACKETS,
                    min_ns: ns,
                    max_ns: ns,
                    buckets: vec![(bucket_of(ns), PACKETS)],
                },
            });
        }
    }
    recording
}

/// Three blocks with these times in the driver.
fn wild(driver_ns: [u64; 3]) -> Recording {
    let mut recording = stages(600);
    recording.blocks.truncate(3);
    recording.spans.retain(|s| s.block < 3);
    for span in &mut recording.spans {
        let own_ns = driver_ns[span.block as usize];
        let ns = match span.stage().map(|stage| stage.name.as_str()) {
            Some("driver") => own_ns,
            Some("total") => 1_200 + own_ns,
            _ => 1_200,
        };
        span.times = Times {
            count: PACKETS,
            total_ns: ns * PACKETS,
            min_ns: ns,
            max_ns: ns,
            buckets: vec![(bucket_of(ns), PACKETS)],
        };
    }
    recording
}

fn saved(place: &Place, name: &str, recording: &Recording) {
    let mut writer = Writer::create(&place.path(name)).unwrap();
    writer.save(recording).unwrap();
}

/// Check that every rendering, and `--fail-if-worse`, reports where noise may hide any change, and
/// what helps; and that no interval is below -100 %.
#[test]
fn noise() {
    let place = Place::new();
    saved(&place, "a.plumb", &wild([10, 900, 40_000]));
    saved(&place, "b.plumb", &wild([30_000, 20, 500]));
    let ran = place.run("diff a.plumb b.plumb --fail-if-worse 2%");
    let words: Vec<&str> = ran.code(0).stdout.split_whitespace().collect();
    let text = words.join(" ");
    for said in [
        "no difference seen, but noise may hide any change: measure both sides as arms of one run",
        "noise may hide any change of total, driver",
    ] {
        assert!(text.contains(said), "no `{said}` in {text}");
    }
    ran.says(&["a change of that size of UDP send may not be seen", "--blocks"]);
    let percents = ran.stdout.split_whitespace().filter_map(|word| {
        let number = word.trim_matches(['(', ')', ',', ';']).strip_suffix('%')?;
        number.parse::<f64>().ok()
    });
    let percents: Vec<f64> = percents.collect();
    assert!(percents.len() > 4, "{}", ran.stdout);
    assert!(percents.iter().all(|p| *p >= -100.0), "{}", ran.stdout);
    prints(
        place.run("diff a.plumb b.plumb --markdown").code(0),
        &["noise may hide any change", " any |"],
    );
    let ran = place.run("diff a.plumb b.plumb --json");
    let json: serde_json::Value = serde_json::from_str(&ran.code(0).stdout).unwrap();
    let whole = &json["times"][0]["whole"];
    assert_eq!(whole["noise_hides_any_change"], true);
    assert!(whole["ratio_high"].is_null(), "{whole}");
    assert_eq!(whole["ratio_low"], 0.0);
    let ran = place.run("diff a.plumb b.plumb --html out.html");
    ran.code(0);
    let page = std::fs::read_to_string(place.path("out.html")).unwrap();
    assert!(page.contains("noise may hide any change"));
}

/// Record a number of packets seen at a place.
fn seen(recording: &mut Recording, place: &str, packets: f64) {
    recording.add(Subject::Block(0), &SEEN, FigureKey::label(place), packets);
}

/// Check that packets seen at one place and not at the next are reported, with what is known of
/// them, and so are packets that were offered but not followed; and that neither is called a loss.
#[test]
fn gaps() {
    let place = Place::new();
    let mut recording = stages(600);
    recording.scalars.clear();
    for (place, packets) in [
        ("udp tx queue", 4_401.0),
        ("udp tx sent", 4_390.0),
        ("udp tx dropped", 2.0),
        ("udp tx under way", 3.0),
        ("udp rx arrived", 4_390.0),
        ("udp rx user", 4_390.0),
    ] {
        seen(&mut recording, place, packets);
    }
    recording.blocks[0].ledger.offered = 8_982;
    recording.blocks[0].ledger.delivered = 8_982;
    saved(&place, "gaps.plumb", &recording);
    let wide = |name: &str| place.run(&format!("report {name}"));
    let ran = wide("gaps.plumb");
    let text = ran.code(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "gap udp: 8,982 offered by the workload, 4,401 of them followed (4,581 not seen at the device's queue",
        "gap udp tx queue: 4,401 seen, 9 of them not at tx sent or tx dropped (3 still under way when a \
         window closed, or gone on unseen, 6 not seen again",
        "loss none that was counted",
    ] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
    // Where nothing is missing, there is no note.
    recording.scalars[1].value = 4_399.0;
    recording.blocks[0].ledger.offered = 4_401;
    recording.blocks[0].ledger.delivered = 4_401;
    recording.scalars.remove(3);
    recording.scalars[3].value = 4_390.0;
    saved(&place, "none.plumb", &recording);
    let ran = wide("none.plumb");
    assert!(!ran.code(0).stdout.contains("gap "), "{}", ran.stdout);
    prints(&ran, &["loss      none: no call was missed"]);
}

/// Check that other programs' packets are followed, not offered, and have no size.
#[test]
fn packets_of_others() {
    let place = Place::new();
    let mut recording = stages(600);
    recording.environment.insert(env::LAB.into(), "host".into());
    recording.arms[0].link = Link::Any;
    recording.arms[0].size_bytes = 0;
    for block in &mut recording.blocks {
        block.ledger = Ledger::default();
    }
    recording.scalars.clear();
    for (block, packets) in [(0, 20.0), (1, 2.0)] {
        recording.add(Subject::Block(block), &FOLLOWED, FigureKey::ONLY, packets);
    }
    saved(&place, "host.plumb", &recording);
    let ran = place.run("report host.plumb");
    prints(ran.code(0), &["udp: udp over ipv4, as other programs sent it", "22 followed"]);
    for word in ["offered", "0 bytes", "any,"] {
        assert!(!ran.stdout.contains(word), "`{word}` in {}", ran.stdout);
    }
}

/// A place with `a.plumb`, and `b.plumb`, with 800 ns in the driver instead of 600.
fn two() -> Place {
    let place = Place::new();
    for (name, ns) in [("a.plumb", 600), ("b.plumb", 800)] {
        let mut writer = Writer::create(&place.path(name)).unwrap();
        writer.save(&stages(ns)).unwrap();
    }
    place
}

/// Check that two runs start with the note that they took no turns, and that each rendering has
/// what changed.
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
        &["- **beware**: not interleaved", "| `driver` |", "| slower"],
    );
    let ran = place.run("diff a.plumb b.plumb --csv");
    prints(ran.code(0), &["arm_before,", ",stage,driver,work,packet,604.500,804.500,200.000,1.3"]);
    let ran = place.run("diff a.plumb b.plumb --json");
    let json: serde_json::Value = serde_json::from_str(&ran.code(0).stdout).unwrap();
    assert_eq!(json["times"][0]["whole"]["verdict"], "slower");
    assert_eq!(json["times"][0]["interleaved"], false);
    let ran = place.run("diff a.plumb b.plumb --html out.html");
    ran.code(0).says(&["wrote out.html"]);
    let page = std::fs::read_to_string(place.path("out.html")).unwrap();
    assert!(page.contains("not interleaved"), "in the page without scripts");
}

/// Check the exit code for CI: a certain change is slower by more than the limit.
#[test]
fn fail_if_worse() {
    let place = two();
    for (limit, code) in [("5%", 4), ("100ns", 4), ("20%", 0), ("300ns", 0), ("10insns", 2)] {
        for format in ["", "--markdown", "--csv"] {
            let ran = place.run(&format!("diff a.plumb b.plumb {format} --fail-if-worse {limit}"));
            ran.code(code);
            if code == 4 {
                ran.says(&["worse by more than", "UDP send: 1,809 to 2,009"]);
            }
        }
        if code != 2 {
            place.run(&format!("diff b.plumb a.plumb --fail-if-worse {limit}")).code(0);
        }
    }
}

/// Check that a recording of stages, which has no calls, makes a page too; and that what the page
/// can't show is mentioned.
#[test]
fn a_page() {
    let place = two();
    place.run("report a.plumb --html out.html").code(0).says(&["wrote out.html"]);
    let page = std::fs::read_to_string(place.path("out.html")).unwrap();
    for word in ["a packet&#39;s way takes 1,809 ns", "of waiting"] {
        assert!(page.contains(word), "no `{word}`");
    }
    place
        .run("report a.plumb --direction rx --html out.html")
        .code(2)
        .says(&["no class of direction rx in the recording; it has udp tx"]);
}
