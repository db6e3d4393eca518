use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Function, Ledger, Node};
use netplumb_model::span::{Call, Span, SpanOf, Stage, StageKind, Times};
use netplumb_model::timing::OWN_CPU;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn times(count: u64, each_ns: u64) -> Times {
    Times {
        count,
        total_ns: count * each_ns,
        min_ns: each_ns,
        max_ns: each_ns,
        buckets: vec![(histogram::bucket_of(each_ns), count)],
    }
}

/// Two blocks of one arm.
fn recording() -> Recording {
    let block = |index| Block {
        arm: 0,
        instrument: "functions".into(),
        index,
        ledger: Ledger { offered: 10, delivered: 10, ..Ledger::default() },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: 500_000_000,
    };
    let mut recording = Recording {
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: Default::default(),
            made: None,
        }],
        blocks: vec![block(0), block(1)],
        losses: [("stages".to_string(), vec![Loss::new("map full", 3, "")])].into(),
        ..Recording::default()
    };
    for (key, value) in [(env::CLOCK, "stages"), (env::LAB, "netns")] {
        recording.environment.insert(key.into(), value.into());
    }
    for block in 0..2 {
        recording.add(Subject::Block(block), &OWN_CPU, FigureKey::ONLY, 5e6);
    }
    recording
}

fn with_stages() -> Recording {
    let mut recording = recording();
    for block in 0..2 {
        for (order, name, kind, each_ns) in [
            (0, "send to qdisc", StageKind::Work, 1_000),
            (1, "in the qdisc", StageKind::Wait, 3_000),
            (2, "total", StageKind::Total, 4_000),
        ] {
            recording.spans.push(Span {
                block,
                direction: Direction::Tx,
                of: SpanOf::Stage(Stage { order, name: name.into(), kind, passed_over: 0 }),
                times: times(10, each_ns),
            });
        }
    }
    recording
}

fn screen(recording: &Recording) -> Vec<String> {
    let view = View::from_recording(recording, 5);
    let mut terminal = Terminal::new(TestBackend::new(96, 16)).unwrap();
    terminal.draw(|frame| view.render(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content().chunks(96);
    rows.map(|row| row.iter().map(|c| c.symbol()).collect::<String>())
        .map(|line| line.trim_end().to_string())
        .collect()
}

/// Check that stages follow one another, to scale, with work and wait distinguished, and that
/// losses and overhead are shown.
#[test]
fn stages_are_a_waterfall() {
    let lines = screen(&with_stages());
    let of = |name: &str| {
        lines.iter().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{name}: {lines:#?}"))
    };
    assert!(lines[0].starts_with("stages, lab netns   1.0 s, 2 blocks"));
    let (first, second, whole) = (of("send to qdisc"), of("in the qdisc"), of("total"));
    let bar = |line: &str, sign: char| line.chars().filter(|c| *c == sign).count();
    assert_eq!(bar(first, '█'), 10);
    assert_eq!(bar(second, '░'), 30);
    assert_eq!(bar(whole, '█'), 40);
    // The second begins where the first ends.
    let begin = |line: &str, sign: char| line.chars().position(|c| c == sign).unwrap();
    assert_eq!(begin(second, '░'), begin(first, '█') + 10);
    assert!(first.contains("1000 ns"), "{first}");
    assert!(of("overhead").contains("1.0 % of a CPU"));
    assert!(of("overhead").contains("3 map full"));
    assert!(of("q: end").contains("report"));
}

/// Check that self time excludes callees, that layers add up per packet, and that functions are
/// ordered by self time.
#[test]
fn functions_and_layers() {
    let mut recording = recording();
    recording.functions = [("udp_sendmsg", "transport"), ("ip_output", "network")]
        .map(|(name, layer)| Function {
            name: name.into(),
            module: None,
            layer: Some(layer.into()),
            address: 0,
            size_bytes: 0,
            source: None,
        })
        .to_vec();
    recording.nodes = vec![
        Node { parent: None, function: 0, tail: false },
        Node { parent: Some(0), function: 1, tail: false },
    ];
    for (node, each_ns) in [(0, 1_000), (1, 900)] {
        recording.spans.push(Span {
            block: 0,
            direction: Direction::Tx,
            of: SpanOf::Call(Call {
                context: Context::Task,
                node,
                corrected_ns: 20.0 * each_ns as f64,
                uncertainty_ns: 0.0,
            }),
            times: times(20, each_ns),
        });
    }
    let view = View::from_recording(&recording, 5);
    let layers: Vec<(&str, f64)> =
        view.ways[0].rows.iter().map(|r| (r.name.as_str(), r.mean_ns)).collect();
    assert_eq!(layers, [("transport", 100.0), ("network", 900.0)]);
    let top: Vec<&str> = view.top.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(top, ["ip_output", "udp_sendmsg"]);
    assert!(screen(&recording).iter().any(|l| l.contains("udp_sendmsg")));
}

/// Check an empty recording, and a terminal without size.
#[test]
fn little_to_show_and_little_room() {
    assert!(screen(&recording()).iter().any(|l| l.contains("no packets yet")));
    for (width, height) in [(1, 1), (20, 3), (60, 4)] {
        let view = View::from_recording(&with_stages(), 5);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.render(frame)).unwrap();
    }
    assert!(View::from_recording(&with_stages(), 5).line().contains("udp tx 4000 ns (20)"));
}
