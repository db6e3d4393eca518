//! Renderings of a made-up recording of two hosts.

use netplumb_model::experiment::Experiment;
use netplumb_model::hosts::{self, INSTRUMENT, Side};
use netplumb_model::quantity::{Declared, Figure, FigureKey, Subject};
use netplumb_model::recording::{Block, Derivation, Ledger, MadeBy, Recording, env};

use super::*;
use crate::claims;
use crate::json::pretty;

const EXPERIMENT: &str = r#"
name = "made"
title = "Who should do the work"
hosts = 2
[workload]
kind = "stream"
[blocks]
count = 2
[vary]
offload.tso = ["on", "off"]
tx_shift = [0, 2]
[[figure]]
name = "5"
title = "Throughput by offload"
x = "offload.tso"
y = "throughput"
lines = "tx_shift"
published = [{ label = "a paper", x = "off", y = 941e6 }]
[[figure]]
name = "6"
title = "Of what is not varied"
x = "rx_buffer"
y = "throughput"
[[claim]]
kind = "compare"
says = "TSO carries as much"
arm = "tso=off tx_shift=0"
against = "tso=on tx_shift=0"
quantity = "throughput"
within_percent = 1
[[claim]]
kind = "compare"
says = "and saves CPU time"
arm = "tso=off tx_shift=0"
against = "tso=on tx_shift=0"
quantity = "CPU use of sender"
at_least = 1.5
[[claim]]
kind = "unchanged"
says = "all carry as much"
quantity = "throughput"
within_percent = 2
"#;

fn experiment() -> Experiment {
    Experiment::parse(EXPERIMENT).unwrap()
}

/// Arms of the experiment, whose figures are made up: each arm sends more slowly than the one before.
pub(crate) fn recording() -> Recording {
    let mut recording = Recording { arms: experiment().arms(), ..Recording::default() };
    for (key, value) in [
        (env::LAB, "vm"),
        (env::CLOCK, INSTRUMENT),
        (env::KERNEL, "6.1.0-56-amd64"),
        (env::MITIGATIONS, "off"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    for arm in 0..recording.arms.len() {
        recording.notes_of(arm).facts.insert("wire.frames".into(), format!("hash{arm}"));
        for index in 0..2 {
            recording.blocks.push(Block {
                arm: arm as u32,
                instrument: INSTRUMENT.into(),
                index,
                ledger: Ledger {
                    offered: 4 << 20,
                    delivered: 4 << 20,
                    dropped: Default::default(),
                },
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 36_000_000,
            });
            let block = Subject::Block(recording.blocks.len() as u32 - 1);
            let mut figure = |quantity: &Declared, item: FigureKey, value: f64| {
                recording.add_figure(block, Figure::new(quantity, value).with_key(item));
            };
            let slower = (arm * 2 + index as usize) as f64;
            figure(&hosts::THROUGHPUT, FigureKey::ONLY, 930e6 - slower * 1e6);
            figure(&hosts::WIRE_USE, FigureKey::ONLY, 0.99 - slower / 1e3);
            for (side, busy) in [(Side::Tx, 0.15), (Side::Rx, 0.4)] {
                let item = || FigureKey::label(side.called());
                figure(&hosts::BUSY, item(), busy * (1.0 + slower / 4.0));
                figure(&hosts::FRAMES, item(), 2_900.0);
                figure(&hosts::INTERRUPTS, item(), 280.0 - slower);
            }
        }
    }
    recording
        .notes_of(1)
        .inert
        .insert("coalesce.rx-usecs".into(), "QEMU's NIC lets 128 us pass".into());
    recording
        .notes_of(1)
        .facts
        .insert("no_effect.rx-usecs.rx0".into(), "rx-usecs of rx0 was already 3".into());
    recording
}

/// Check the outputs: terminal, Markdown, CSV, JSON and the page.
#[test]
fn renderings() {
    let (recording, experiment) = (recording(), experiment());
    let file = Some(&experiment);
    let check = |name: &str, text: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/hosts");
        netplumb_testkit::golden(&std::path::Path::new(folder).join(name), text);
    };
    check("wide.txt", &document(&recording, file).terminal(140));
    check("narrow.txt", &document(&recording, file).terminal(70));
    check("hosts.md", &document(&recording, file).markdown());
    check("hosts.csv", &document(&recording, None).csv());
    check("page.json", &pretty(&document(&recording, file).page()));
}

/// Check that rates over blocks of different length are by their total time, that the least and the most
/// are taken over all blocks, and that a short time has its unit.
#[test]
fn over_blocks() {
    let mut recording = recording();
    recording.blocks.truncate(2);
    recording.scalars.clear();
    // 200 turns in 30 ms, and in 2.3 s.
    for (block, ns, least, most) in [(0, 30e6, 3_494.0, 7.9e6), (1, 2.3e9, 3_100.0, 2.296e9)] {
        recording.blocks[block].duration_ns = ns as u64;
        let mut figure = |quantity: &Declared, item: FigureKey, value: f64| {
            recording.add_figure(
                Subject::Block(block as u32),
                Figure::new(quantity, value).with_key(item),
            );
        };
        figure(&hosts::TURNS, FigureKey::ONLY, 200e9 / ns);
        figure(&hosts::TURN, FigureKey::label("mean"), ns / 200.0);
        figure(&hosts::TURN, FigureKey::label("least"), least);
        figure(&hosts::TURN, FigureKey::label("most"), most);
    }
    let text = document(&recording, None).terminal(140);
    let row = text.lines().find(|line| line.contains("tso=on")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().skip(2).collect();
    assert_eq!(cells, ["171.7", "5,825us", "3,100ns", "-", "-", "2,296ms"], "{text}");
    assert!(text.contains("all their time"), "{text}");
    let rows: Vec<String> = document(&recording, None).csv().lines().map(str::to_string).collect();
    assert!(rows[1].contains(",3100,") && rows[1].contains(",2296000000,"), "{rows:?}");
}

/// Check that the ledger of a web server has its requests, and that other requests are not counted as such.
#[test]
fn requests_in_the_ledger() {
    let mut recording = recording();
    let report = |recording: &Recording| {
        let text = document(recording, Some(&experiment())).terminal(140);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(!report(&recording).contains("requests answered"));
    for block in 0..recording.blocks.len() as u32 {
        let turns = Figure::new(&hosts::TURNS, 1_000.0).with_key(FigureKey::ONLY);
        recording.add_figure(Subject::Block(block), turns);
    }
    let text = report(&recording);
    assert!(text.contains("288 requests answered, no errors"), "{text}");
}

/// Check that a published ratio stands beside ours.
#[test]
fn a_published_ratio() {
    let text = EXPERIMENT.replace("at_least = 1.5", "at_least = 1.5\npublished = 1.7");
    let experiment = Experiment::parse(&text).unwrap();
    let shown = document(&recording(), Some(&experiment)).terminal(140);
    assert!(shown.contains("published 1.7"), "{shown}");
    let wrong = EXPERIMENT.replace("at_least = 1.5", "at_least = 1.5\npublished = 0");
    let why = Experiment::parse(&wrong).unwrap_err().to_string();
    assert!(why.contains("expected a ratio"), "{why}");
}

/// A made-up recording of two namespaces: by the clock of this machine, with a client that has no CPU use.
fn clocked() -> (Recording, Experiment) {
    const TEXT: &str = "name = \"netns\"\ntitle = \"Beside iperf3\"\nhosts = 2\nlab = \"netns\"\n[workload]\n\
                        kind = \"stream\"\n[blocks]\ncount = 3\n[vary]\nclient = [\"plumb\", \"iperf3\"]\n";
    let experiment = Experiment::parse(TEXT).unwrap();
    let mut recording =
        Recording { arms: experiment.arms(), complete: true, ..Recording::default() };
    for (key, value) in [
        (env::LAB, "netns"),
        (env::CLOCK, hosts::CLOCKED),
        (env::UNIT, "bytes"),
        (env::KERNEL, "6.18.5"),
        (env::HOSTS_CPUS, "0 1"),
        (env::HOSTS_CPU_USE, "tracepoints"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    for arm in 0..2 {
        for index in 0..3 {
            let bytes = 64 << 20;
            recording.blocks.push(Block {
                arm,
                instrument: hosts::CLOCKED.into(),
                index,
                ledger: Ledger { offered: bytes, delivered: bytes, dropped: Default::default() },
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 60_000_000,
            });
            let block = Subject::Block(recording.blocks.len() as u32 - 1);
            let mut figure = |quantity: &Declared, item: FigureKey, value: f64| {
                let quantity = hosts::clocked(quantity);
                recording.add_figure(block, Figure::new(&quantity, value).with_key(item));
            };
            let faster = f64::from(arm * 2 + index);
            figure(&hosts::THROUGHPUT, FigureKey::ONLY, 8.9e9 + faster * 1e8);
            figure(&hosts::RETRANSMITTED, FigureKey::ONLY, f64::from(arm));
            for (side, busy) in [(Side::Tx, 0.95), (Side::Rx, 0.6)] {
                if arm == 0 {
                    let item = FigureKey::label(side.called());
                    figure(&hosts::BUSY, item, busy - faster / 100.0);
                }
            }
        }
    }
    recording.notes_of(0).inert.insert(
        "offload.rx-checksum".into(),
        "packets over veth arrive with CHECKSUM_PARTIAL and are not verified".into(),
    );
    (recording, experiment)
}

/// Check the outputs for namespaces of this machine: means with their intervals, and whose clock it is.
#[test]
fn renderings_of_namespaces() {
    let (recording, experiment) = clocked();
    let file = Some(&experiment);
    let check = |name: &str, text: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/hosts");
        netplumb_testkit::golden(&std::path::Path::new(folder).join(name), text);
    };
    check("sockets.txt", &document(&recording, file).terminal(140));
    check("sockets.md", &document(&recording, file).markdown());
    check("sockets.csv", &document(&recording, None).csv());
}

/// Check that with wrk as the client, its times are explained.
#[test]
fn times_of_wrk() {
    let has_note = |client: &str| {
        let mut recording = clocked().0;
        let knobs = &mut recording.arms[1].knobs;
        knobs.insert("client".into(), client.into());
        let text = document(&recording, None).terminal(140);
        text.contains("coordinated omission")
    };
    assert!(has_note("wrk") && !has_note("iperf3"));
}

/// Check that one byte is "byte", not "bytes".
#[test]
fn a_single_byte() {
    let mut recording = recording();
    recording.blocks.truncate(1);
    recording.scalars.clear();
    let ledger = &mut recording.blocks[0].ledger;
    (ledger.offered, ledger.delivered) = (1, 1);
    let text = document(&recording, None).terminal(140);
    assert!(text.contains("1 byte of payload"), "{text}");
    assert!(text.contains("1 byte sent = 1 received"), "{text}");
}

/// Check that levels that are words are on the axis as such, with a published figure at one of them,
/// and that an empty figure has a reason.
#[test]
fn figures_of_words() {
    let (recording, experiment) = (recording(), experiment());
    let page = document(&recording, Some(&experiment)).page();
    let [by_offload, of_nothing] = &page.figures[..] else { panic!("{:?}", page.figures) };
    assert_eq!(by_offload.x.names, ["on", "off"]);
    assert_eq!(by_offload.y.unit, "bit/s");
    let names: Vec<&str> = by_offload.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["tx_shift=0", "tx_shift=2", "published"]);
    assert_eq!(by_offload.series[2].points[0].x, 1.0);
    assert!(of_nothing.note.contains("no arm has a level of rx_buffer"));
}

/// Check that all levels are on a figure's axis: as numbers where all are, percentages too, else all by their
/// names, and that a line can go through percentages.
#[test]
fn figures_of_all_levels() {
    let of = |levels: &str| {
        let text = format!(
            "name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[vary]\n{levels}\n[[figure]]\nname = \"1\"\n\
             x = \"{knob}\"\ny = \"throughput\"\n[[claim]]\nkind = \"linear\"\nsays = \"a line\"\n\
             knob = \"{knob}\"\nquantity = \"throughput\"\nwithin_percent = 100\n",
            knob = levels.split(' ').next().unwrap(),
        );
        let experiment = Experiment::parse(&text).unwrap();
        let recording = Recording { arms: experiment.arms(), ..recording() };
        let mut page = document(&recording, Some(&experiment)).page();
        let figure = page.figures.remove(0);
        let along: Vec<f64> = figure.series[0].points.iter().map(|p| p.x).collect();
        let text = document(&recording, Some(&experiment)).terminal(140);
        (figure.x.names, along, page.claims.remove(0).verdict, text)
    };
    let (names, along, verdict, text) = of("wire_loss = [\"0\", \"0.5%\", \"2%\"]");
    assert_eq!((names.len(), along), (0, vec![0.0, 0.005, 0.02]));
    assert_eq!(verdict.as_str(), "holds", "{text}");
    assert!(text.contains("0.5%"), "{text}");
    let (names, along, ..) = of("rps_cpus = [\"none\", \"0\"]");
    assert_eq!((names, along), (vec!["none".into(), "0".into()], vec![0.0, 1.0]));
}

/// Check that a figure of arms under several seeds has the median, the least and the most, with a note.
#[test]
fn figures_under_seeds() {
    let experiment = EXPERIMENT.replace("count = 2", "count = 2\nseeds = 3");
    let experiment = Experiment::parse(&experiment).unwrap();
    let mut recording = recording();
    let of_one = recording.arms.len() as u32;
    let (arms, blocks, scalars) =
        (recording.arms.clone(), recording.blocks.clone(), recording.scalars.clone());
    for seed in [2_u32, 3] {
        let first = recording.blocks.len() as u32;
        recording.arms.extend(arms.iter().map(|arm| Arm {
            name: format!("{} seed={seed}", arm.name),
            made: Some(Derivation { from: arm.name.clone(), by: MadeBy::Seed }),
            ..arm.clone()
        }));
        recording.blocks.extend(
            blocks
                .iter()
                .map(|block| Block { arm: block.arm + of_one * (seed - 1), ..block.clone() }),
        );
        for scalar in &scalars {
            let block = scalar.block().unwrap();
            let mut scalar = scalar.clone();
            scalar.of = Subject::Block(block + first);
            scalar.value *= [1.0, 0.5, 0.9][seed as usize - 1];
            recording.scalars.push(scalar);
        }
    }
    let text = document(&recording, Some(&experiment)).terminal(140);
    let cell = "836.55 M (464.75 M to 929.50 M)";
    assert!(text.contains(cell), "{text}");
    assert!(text.contains("medians under 3 random seeds"), "{text}");
    let page = document(&recording, Some(&experiment)).page();
    let point = &page.figures[0].series[0].points[0];
    let [low, high] = [point.low, point.high].map(Option::unwrap);
    assert!(low < point.y && point.y < high, "{point:?}");
    assert!(page.figures[0].note.contains("3 random seeds"));
}

/// Check that claims about figures that are the same in every run need no repeats: a ratio is within
/// its bounds, or it is not.
#[test]
fn claims_of_ratios() {
    let recording = recording();
    let judged = claims::judge_blocks(&experiment(), &recording);
    let verdicts: Vec<&str> = judged.iter().map(|one| one.verdict.as_str()).collect();
    assert_eq!(verdicts, ["holds", "does not hold", "holds"], "{judged:?}");
    assert!(judged[0].because.contains("claimed 0.99 to 1.01 times"), "{judged:?}");
    let tight = EXPERIMENT.replace("within_percent = 2", "within_percent = 0.1");
    let tight = Experiment::parse(&tight).unwrap();
    let judged = claims::judge_blocks(&tight, &recording);
    assert_eq!(judged[2].verdict.as_str(), "does not hold", "{judged:?}");
}

/// Check that an experiment without figures of its own has one for each measured quantity, by the
/// varied knob.
#[test]
fn figures_by_default() {
    let mut experiment = experiment();
    experiment.figures.clear();
    let page = document(&recording(), Some(&experiment)).page();
    let titles: Vec<&str> = page.figures.iter().map(|f| f.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "throughput by tx_shift",
            "CPU use of sender by tx_shift",
            "CPU use of receiver by tx_shift"
        ]
    );
    assert!(page.figures[0].x.names.is_empty());
    // A command has no file: the same, with intervals where blocks differ.
    let of_command = document(&recording(), None).page();
    assert_eq!(of_command.figures, page.figures);
}
