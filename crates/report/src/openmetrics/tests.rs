//! Tests of expositions of counts and costs, and of all expositions by another parser.

use std::path::Path;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::events::{COUNT, ENABLED, INSTRUMENT, RUNNING, TIME};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Total, env};
use netplumb_model::timing::{CPU_TIME, OWN_CPU};

use super::*;
use crate::analysis::classes;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/openmetrics")
}

/// Blocks of one arm, each of a second.
fn recording(instrument: &str, blocks: u32) -> Recording {
    let mut recording = Recording {
        complete: true,
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
    for (key, value) in
        [(env::CLOCK, instrument), (env::LAB, "host"), (env::KERNEL, "6.1.0-42-amd64")]
    {
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
            duration_ns: 1_000_000_000,
        });
    }
    recording
}

fn of_counts() -> Recording {
    let mut recording = recording(INSTRUMENT, 2);
    for block in 0..2 {
        let mut add = |of, item: FigureKey, value: f64| {
            recording.add(Subject::Block(block), of, item, value);
        };
        add(&COUNT, FigureKey::label("page-faults"), 26.0);
        add(&TIME, FigureKey::label("task-clock"), 5e8);
        add(&COUNT, FigureKey::label("uprobe:/a \"b\"\\c\nd\u{1b}:main"), 3.0);
        add(&COUNT, FigureKey::label("cycles"), 1e6);
        add(&ENABLED, FigureKey::label("cycles"), 7e8);
        add(&RUNNING, FigureKey::label("cycles"), 2.8e8);
        add(&COUNT, FigureKey::label("context-switches"), 9.0);
        add(&COUNT, FigureKey::numbered(0, "context-switches"), 4.0);
        add(&COUNT, FigureKey::numbered(1, "context-switches"), 5.0);
    }
    let not_measured = recording.not_measured.entry(INSTRUMENT.into()).or_default();
    not_measured.insert("instructions".into(), "no counters (\"PMU\")".into());
    recording
}

/// Samples of `functions` in each of two blocks: the first one takes 1 µs, each next one 1 µs
/// more.
fn of_costs(functions: u32) -> Recording {
    let mut recording = recording("samples", 2);
    let quantity = recording.quantity(&CPU_TIME);
    for function in 0..functions {
        recording.functions.push(Function {
            name: format!("f{function:03}"),
            module: (function % 2 == 0).then(|| "/usr/bin/x".into()),
            layer: Some("application".into()),
            address: 0,
            size_bytes: 0,
            source: None,
        });
        recording.nodes.push(Node { parent: None, function, tail: false });
        for block in 0..2 {
            recording.costs.push(Cost {
                block,
                quantity,
                direction: Direction::Run,
                context: Context::Task,
                node: function,
                calls: 1,
                own: 1_000 * u64::from(function + 1),
            });
        }
    }
    let whole = recording.costs.iter().map(|cost| cost.own).sum::<u64>() / 2;
    for block in &mut recording.blocks {
        block.totals.push(Total { quantity, kernel: whole / 4, user: whole - whole / 4 });
    }
    for block in 0..2 {
        recording.add(Subject::Block(block), &OWN_CPU, FigureKey::ONLY, 5e6);
    }
    recording.add_loss("samples", Loss::new("samples lost: buffer full", 3, ""));
    recording
}

/// The samples of a family, as they are written.
fn lines<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let of = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    text.lines().filter(of).collect()
}

fn value(line: &str) -> f64 {
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Check the exposition of counts and of samples: parts in place of the whole, times in seconds,
/// missing events, and the most expensive functions.
#[test]
fn as_written() {
    let counts = render(&of_counts(), &[], &[]);
    netplumb_testkit::golden(&folder().join("counts.openmetrics"), &counts);
    assert_eq!(lines(&counts, "plumb_events_total").len(), 2 + 2 + 1);
    assert!(!counts.contains('\u{1b}'));
    let recording = of_costs(4);
    let samples = render(&recording, &classes(&recording), &[]);
    netplumb_testkit::golden(&folder().join("samples.openmetrics"), &samples);
}

/// Check that the most expensive functions have a series each, and all others one together, so that
/// nothing is missing.
#[test]
fn functions_are_bounded() {
    let many = FUNCTIONS as u32 + 20;
    let recording = of_costs(many);
    let text = render(&recording, &classes(&recording), &[]);
    let all = lines(&text, "plumb_function_cpu_time_seconds_total");
    assert_eq!(all.len(), FUNCTIONS + 1);
    assert!(!text.contains("\"f019\"") && text.contains("\"f020\""));
    let sum: f64 = all.iter().map(|line| value(line)).sum();
    let whole = 2e-6 * f64::from(many * (many + 1) / 2);
    assert!((sum - whole).abs() < 1e-12, "{sum} {whole}");
    let modes = lines(&text, "plumb_cpu_time_seconds_total");
    let modes: f64 = modes.iter().map(|line| value(line)).sum();
    assert!((modes - whole).abs() < 1e-12, "{modes} {whole}");
}

/// Check that windows added one by one give the sums of all, that no series falls or disappears, and
/// that a function has one only once it was expensive.
#[test]
fn sums_only_rise() {
    let mut sums = Sums::new(Keep::expensive(2, 0.01));
    let mut before: Vec<(String, f64)> = Vec::new();
    let window = |own: [u64; 3]| {
        let mut recording = of_costs(3);
        recording.blocks.truncate(1);
        recording.costs.retain(|cost| cost.block == 0);
        for cost in &mut recording.costs {
            cost.own = own[cost.node as usize];
        }
        recording
    };
    let ms = 1_000_000;
    // 1% of a CPU is 10 ms here. There is room for two.
    for own in [[20 * ms, 2 * ms, ms], [0, ms, 30 * ms], [ms, 500 * ms, 0]] {
        sums.add(&window(own), 0, &|_, _| true);
        let mut text = Text::default();
        sums.render(&mut text);
        let now: Vec<(String, f64)> = (text.as_str().lines())
            .filter(|line| !line.starts_with('#'))
            .map(|line| (line.rsplit_once(' ').unwrap().0.to_string(), value(line)))
            .collect();
        for (series, value) in &before {
            let same = now.iter().find(|(name, _)| name == series);
            let (_, now) = same.unwrap_or_else(|| panic!("{series} is gone"));
            assert!(now >= value, "{series}: {now} after {value}");
        }
        before = now;
    }
    let of = |function: &str| {
        let label = format!("function=\"{function}\"");
        let found = before.iter().find(|(series, _)| series.contains(&label));
        found.map(|(_, seconds)| (seconds * 1e3).round())
    };
    assert_eq!(of("f000"), Some(21.0));
    assert_eq!(of("f002"), Some(30.0));
    assert_eq!(of("f001"), None, "no room for a third one");
    assert_eq!(of(OTHER), Some(504.0));
}

/// Check that series are bounded to a limit and one for each event, however many CPUs events have, that
/// the sum is complete, and that events without a series are counted.
#[test]
fn events_are_bounded() {
    let mut recording = recording(INSTRUMENT, 1);
    for event in 0..60 {
        for cpu in 0..100 {
            let item = FigureKey::numbered(cpu, format!("event:{event:02}"));
            recording.add(Subject::Block(0), &COUNT, item, 1.0);
        }
    }
    let text = render(&recording, &[], &[]);
    let all = lines(&text, "plumb_events_total");
    assert!((5_000..=5_060).contains(&all.len()), "{}", all.len());
    assert_eq!(all.iter().map(|line| value(line)).sum::<f64>(), 6_000.0);
    let left = lines(&text, "plumb_series_left_out");
    assert_eq!(left, ["plumb_series_left_out{family=\"plumb_events\"} 1000"]);
}

/// Check that the parser of Prometheus's own client accepts every exposition.
#[test]
fn another_parser() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for name in ["openmetrics/counts", "openmetrics/samples", "times/functions", "times/stages"] {
        let path = data.join(format!("{name}.openmetrics"));
        let text = std::fs::read_to_string(path).unwrap();
        if !netplumb_testkit::parse_openmetrics(&text) {
            return;
        }
    }
}

/// Check that the reference has all families with fixed names, and the families of declared
/// quantities.
#[test]
fn reference() {
    let mut out = String::from(INTRODUCTION);
    let mut row = |metric: &Metric, sample: &str| {
        let labels: Vec<String> = metric
            .labels
            .split([',', ';'])
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .map(|l| format!("`{}`", l.replace(" or ", "` or `")))
            .collect();
        out.push_str(&format!(
            "| `{sample}` | {} | {} | {} |\n",
            metric.kind.as_str(),
            labels.join(", "),
            metric.help
        ));
    };
    for metric in METRICS {
        row(metric, &format!("{}{}", metric.name, metric.kind.suffix()));
    }
    for metric in [
        metric::of_functions(&(&CPU_TIME).into()),
        metric::of_modes(&(&CPU_TIME).into()),
        metric::of_calls(&(&CPU_TIME).into()),
    ] {
        row(&metric, &format!("{}_total", metric.name));
    }
    out.push_str(REST);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    netplumb_testkit::golden(&path, &out);
}

const INTRODUCTION: &str = "# Metrics

What `--openmetrics` writes and `plumb serve` serves: [OpenMetrics 1.0](https://prometheus.io/docs/specs/om/open_metrics_spec/)
text. Counters are sums since plumb began to measure, so that any rate can be made of them.

| sample | type | labels | what |
|---|---|---|---|
";

const REST: &str = "
The last three are of CPU time. Other quantities have families of the same kinds, with their name and unit: of instructions
`plumb_function_instructions_total`, of cycles `plumb_function_cycles_total`, of time off the CPU
`plumb_function_off_cpu_seconds_total`.

Bounds: at most 100 functions of each class have series of their own (`plumb serve profile --top`), and `[other]` is the rest;
at most 5,000 series of events, `[other]` again is the rest, and `plumb_series_left_out` counts what is in it. Values of labels have at most 200 letters.
With `--by`, an event has a series for each part, and none for the whole: their sum is that.
";
