//! Tests of the view of counts and of samples, as screens.

use std::path::Path;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::events::{COUNT, INSTRUMENT, TIME};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, env};
use netplumb_model::span::{Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::spans;
use netplumb_model::timing::{BUSY, CPU_TIME, OWN_CPU};
use netplumb_stats::histogram::bucket_of;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::View;

/// Blocks of one arm, each of half a second.
fn recording(instrument: &str, blocks: u32) -> Recording {
    let mut recording = Recording {
        arms: vec![Arm {
            name: "all CPUs".into(),
            proto: Proto::Work,
            family: Family::V4,
            link: Link::Any,
            forward: false,
            size_bytes: 0,
            knobs: Default::default(),
            made: None,
        }],
        ..Recording::default()
    };
    for (key, value) in [(env::CLOCK, instrument), (env::LAB, "host")] {
        recording.environment.insert(key.into(), value.into());
    }
    for index in 0..blocks {
        recording.blocks.push(Block {
            arm: 0,
            instrument: instrument.into(),
            index,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 500_000_000,
        });
        recording.add(Subject::Block(index), &BUSY, FigureKey::ONLY, 0.75);
    }
    recording
}

/// Counts that rise and fall, and one that stays the same.
fn counts(events: u32) -> Recording {
    let mut recording = recording(INSTRUMENT, 40);
    for block in 0..40 {
        let wave = f64::from(block % 10);
        let of = Subject::Block(block);
        recording.add(of, &TIME, FigureKey::label("task-clock"), 2.5e8 + wave * 1e7);
        recording.add(of, &COUNT, FigureKey::label("page-faults"), wave * 1e5);
        recording.add(of, &COUNT, FigureKey::label("cpu-migrations"), 0.0);
        for event in 0..events {
            let name = format!("block:a_tracepoint_with_a_name_of_some_length_{event:02}");
            recording.add(of, &COUNT, FigureKey::label(name), 40.0 - f64::from(event));
        }
    }
    let not_measured = recording.not_measured.entry(INSTRUMENT.into()).or_default();
    not_measured.insert("cycles".into(), "no PMU".into());
    recording
}

/// Samples of some functions.
fn samples(functions: u32) -> Recording {
    let mut recording = recording("samples", 12);
    let quantity = recording.quantity(&CPU_TIME);
    for function in 0..functions {
        recording.functions.push(Function {
            name: match function {
                0 => "a\u{1b}[2Jfunction_of_a_file".into(),
                n => format!("function_{n}"),
            },
            module: None,
            layer: None,
            address: 0,
            size_bytes: 0,
            source: None,
        });
        recording.nodes.push(Node { parent: None, function, tail: false });
        for block in 0..12 {
            recording.costs.push(Cost {
                block,
                quantity,
                direction: Direction::Run,
                context: Context::Task,
                node: function,
                calls: 1,
                own: 100_000_000 / u64::from(function + 1) + 3_000_000 * u64::from(block % 4),
            });
        }
    }
    for block in 0..12 {
        recording.add(Subject::Block(block), &OWN_CPU, FigureKey::ONLY, 2e6);
    }
    recording.add_loss("samples", Loss::new("samples lost: buffer full", 3, ""));
    recording
}

/// Times between events: stages, with a few that take another way.
fn times() -> Recording {
    let mut recording = recording(spans::INSTRUMENT, 40);
    let events = "block:block_rq_insert → block:block_rq_issue → block:block_rq_complete";
    recording.environment.insert("spans.events".into(), events.into());
    for (order, name, kind, count, each_ns) in [
        (1, "block_rq_insert → block_rq_issue", StageKind::Wait, 90, 40_000),
        (2, "block_rq_insert → block_rq_complete", StageKind::Wait, 10, 900_000),
        (5, "block_rq_issue → block_rq_complete", StageKind::Wait, 90, 570_000),
        (9, "total", StageKind::Total, 100, 639_000),
    ] {
        for block in 0..40 {
            recording.spans.push(Span {
                block,
                direction: Direction::Run,
                of: SpanOf::Stage(Stage {
                    order,
                    name: name.into(),
                    kind,
                    passed_over: 100 - count,
                }),
                times: Times {
                    count,
                    total_ns: count * each_ns,
                    min_ns: each_ns,
                    max_ns: each_ns,
                    buckets: vec![(bucket_of(each_ns), count)],
                },
            });
        }
    }
    for block in 0..40 {
        recording.add(Subject::Block(block), &OWN_CPU, FigureKey::ONLY, 2e6);
    }
    recording
}

fn screen(recording: &Recording, width: u16, height: u16) -> String {
    let view = View::from_recording(recording, 12);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.render(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|c| c.symbol()).collect::<String>())
        .map(|line| line.trim_end().to_string() + "\n")
        .collect()
}

fn golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/watch");
    netplumb_testkit::golden(&folder.join(name), text);
}

/// Check what counts and samples look like, narrow and wide: the most first, with history, and how
/// many don't fit.
#[test]
fn screens() {
    for (name, width, height) in [("narrow", 80, 24), ("wide", 160, 40)] {
        let of_counts = screen(&counts(30), width, height);
        assert!(!of_counts.contains('\u{1b}'));
        golden(&format!("counts-{name}.txt"), &of_counts);
        golden(&format!("times-{name}.txt"), &screen(&times(), width, height));
        golden(&format!("samples-{name}.txt"), &screen(&samples(9), width, height));
    }
    golden("counts-one.txt", &screen(&counts(0), 40, 6));
    golden("nothing.txt", &screen(&recording(INSTRUMENT, 0), 80, 5));
}

/// Check the line without a terminal.
#[test]
fn in_a_line() {
    let line = View::from_recording(&counts(1), 12).line();
    assert!(
        line.starts_with("20.0 s: task-clock 0.68 CPUs, page-faults 1.80M/s, block:"),
        "{line}"
    );
    assert!(line.ends_with("; nothing lost, 0.75 CPUs busy"), "{line}");
    let line = View::from_recording(&samples(2), 12).line();
    assert!(line.contains("a?[2Jfunction_of_a_file"), "{line}");
    assert!(line.ends_with("0.75 CPUs busy; 3 samples lost: buffer full"), "{line}");
}
