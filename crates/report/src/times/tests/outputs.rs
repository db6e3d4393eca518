//! Times for other programs.

use std::collections::BTreeMap;

use netplumb_model::class::Proto;
use netplumb_model::recording::Recording;
use netplumb_model::span::{Span, SpanOf, StageKind};
use serde_json::Value;

use super::recording::{BLOCKS, PACKETS, between, functions, stages};
use super::{check, slow_queue, view};
use crate::analysis;
use crate::page::{PageCell, PageColumn, PagePart, PageStage};
use crate::times::{as_costs, classes, csv, json, markdown, openmetrics, page};
use crate::together::CrossQuantity;
use crate::trace::perfetto as trace;

/// Check each of these outputs.
#[test]
fn as_written() {
    for (name, recording) in
        [("functions", functions()), ("stages", stages()), ("between", between())]
    {
        let all = classes(&recording);
        check(&format!("{name}.json"), &json::render(&recording, &all, None));
        check(&format!("{name}.csv"), &csv(&all, None));
        let text = markdown::render(&recording, &all, None, &view(100));
        check(&format!("{name}.md"), &text);
        let text = openmetrics::render(&recording, &all);
        check(&format!("{name}.openmetrics"), &text);
    }
    check("trace.json", &trace::render(&stages()));
}

/// Check that every call of a function is on one edge to it, and its time, too.
#[test]
fn edges_are_all_calls() {
    let recording = functions();
    let document: Value =
        serde_json::from_str(&json::render(&recording, &classes(&recording), None)).unwrap();
    let mut seen = 0;
    for class in document["times"].as_array().unwrap() {
        for function in class["functions"].as_array().unwrap() {
            let edges = class["edges"].as_array().unwrap();
            let to: Vec<_> = edges.iter().filter(|e| e["callee"] == function["name"]).collect();
            let sum = |key: &str| -> f64 { to.iter().map(|e| e[key].as_f64().unwrap()).sum() };
            assert_eq!(sum("calls"), function["calls"].as_f64().unwrap());
            let corrected = function["corrected_ns"].as_f64().unwrap();
            let apart = (sum("corrected_ns") - corrected).abs();
            assert!(apart <= 1e-6 * corrected.abs(), "{function}");
            seen += to.iter().filter(|e| e["caller"].is_string()).count();
        }
    }
    assert!(seen > 0, "nothing calls anything");
}

/// Check that a CSV line has a field for each heading, for functions and stages.
#[test]
fn csv_is_rectangular() {
    for recording in [functions(), stages()] {
        let text = csv(&classes(&recording), None);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().len(), 19);
        assert!(reader.records().all(|r| r.is_ok()));
    }
}

/// A sample of the exposition: its name with its labels, but for `le`; that; and its
/// value.
type Sample = (String, Option<f64>, f64);

fn samples(text: &str) -> Vec<Sample> {
    let le = |label: &str| -> Option<f64> {
        match label {
            "+Inf" => Some(f64::INFINITY),
            number => number.parse().ok(),
        }
    };
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            match series.split_once(",le=\"") {
                Some((rest, bound)) => {
                    let bound = le(bound.strip_suffix("\"}").unwrap());
                    assert!(bound.is_some(), "{line}");
                    (format!("{rest}}}"), bound, value.parse().unwrap())
                }
                None => (series.to_string(), None, value.parse().unwrap()),
            }
        })
        .collect()
}

/// Check that histograms only rise, end in `+Inf` at their count, that their series
/// stand together, and that the text ends as it has to.
#[test]
fn openmetrics_adds_up() {
    for recording in [functions(), stages()] {
        let text = openmetrics::render(&recording, &classes(&recording));
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(text.matches("# EOF").count(), 1);
        let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        let mut families: Vec<&str> = Vec::new();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let family = line.split('{').next().unwrap();
            let family = ["_bucket", "_count", "_sum"]
                .iter()
                .fold(family, |f, end| f.strip_suffix(end).unwrap_or(f));
            if families.last() != Some(&family) {
                assert!(!families.contains(&family), "{family} is in two places");
                families.push(family);
            }
        }
        for (series, bound, value) in samples(&text) {
            if let Some(bound) = bound {
                let before = last.insert(series, (bound, value));
                if let Some((low, below)) = before.filter(|(b, _)| b.is_finite()) {
                    assert!(low < bound && below <= value);
                }
            } else if let Some((name, labels)) = series.split_once("_count{") {
                counts.insert(format!("{name}_bucket{{{labels}"), value);
            }
        }
        assert!(!counts.is_empty());
        for (series, count) in counts {
            assert_eq!(last[&series], (f64::INFINITY, count), "{series}");
        }
    }
}

/// Check that characters that names may not contain are escaped.
#[test]
fn openmetrics_escapes() {
    let mut recording = functions();
    recording.functions[0].name = "a\"b\\c\nd\x1b".into();
    let text = openmetrics::render(&recording, &classes(&recording));
    assert!(text.contains("function=\"a\\\"b\\\\c\\nd?\""));
}

/// Check that a trace names its tracks, has every step once, and that each arrow
/// begins within a step and ends where another begins.
#[test]
fn a_trace() {
    let recording = stages();
    let trace: Value = serde_json::from_str(&trace::render(&recording)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |ph: &str| -> Vec<&Value> { events.iter().filter(|e| e["ph"] == ph).collect() };
    assert_eq!(of("X").len() + of("i").len(), recording.traces[0].steps.len());
    assert_eq!(of("i").len(), 1);
    let (begins, ends) = (of("s"), of("f"));
    assert_eq!(begins.len(), 2, "to the other CPU, and to the receiver");
    assert_eq!(ends.len(), begins.len());
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!(begin["id"], end["id"]);
        let on = |e: &Value, s: &Value| e["pid"] == s["pid"] && e["tid"] == s["tid"];
        let at = |e: &Value| e["ts"].as_f64().unwrap();
        let steps = || events.iter().filter(|e| e["ph"] == "X" || e["ph"] == "i");
        assert!(steps().any(|s| {
            let ends = at(s) + s["dur"].as_f64().unwrap_or(0.0);
            on(begin, s) && at(s) <= at(begin) && at(begin) <= ends
        }));
        assert!(steps().any(|s| on(end, s) && at(s) == at(end)));
        assert!(at(begin) <= at(end));
    }
    let named: Vec<_> = of("M").iter().map(|e| e["args"]["name"].clone()).collect();
    for name in ["CPU 0", "CPU 1", "softirq:NET_RX", "a \"sender\" 4711"] {
        assert!(named.iter().any(|n| n == name), "{name}");
    }
}

/// Check that costs made of times add up to the same own times, that times below zero
/// are reported, and that the unit is nanoseconds.
#[test]
fn as_costs_they_add_up() {
    let mut recording = functions();
    let costs = as_costs(&recording);
    let (times, stacks) = (classes(&recording), analysis::classes(&costs));
    for stack in &stacks {
        let is = |t: &&crate::times::TimedClass<'_>| t.class == stack.class;
        let time = times.iter().find(is).unwrap();
        // Whole nanoseconds in each block and node.
        let off = (time.total_ns - stack.total as f64).abs();
        assert!(off < f64::from(BLOCKS) * 10.0, "{off}");
        assert_eq!(stack.packets, PACKETS * u64::from(BLOCKS));
    }
    assert_eq!(stacks.len(), 2, "what is no packet's is in none");
    assert_eq!(analysis::unit(&costs), "ns");
    assert_eq!(costs.losses, recording.losses);

    let tiny = recording
        .spans
        .iter_mut()
        .find(|span| span.call().is_some() && span.times.total_ns < 30_000);
    if let SpanOf::Call(call) = &mut tiny.unwrap().of {
        call.corrected_ns = -7_000.0;
    }
    let costs = as_costs(&recording);
    let loss = costs.all_losses().find(|l| l.cause.contains("below nothing"));
    assert_eq!(loss.unwrap().count, 7_000);
}

/// Check that the formats of other tools have the unit of their figures.
#[test]
fn units_of_other_formats() {
    let costs = as_costs(&functions());
    let stacks = analysis::classes(&costs);
    let folded = crate::folded::render(&stacks);
    assert!(folded.contains("udp;udp_tx;task;entry;udp_sendmsg;ip_output;walk;walk "));
    let callgrind = crate::callgrind::render(&costs, &stacks);
    assert!(callgrind.contains("events: Ns") && !callgrind.contains("nstructions"));
    let speedscope = crate::speedscope::render(&stacks, "t", "1");
    assert!(speedscope.contains("\"nanoseconds\""));
    let svg = crate::svg::render(&costs, &stacks, None, None);
    assert!(svg.contains(" ns per packet") && !svg.contains("nstructions"));
    let page = crate::html::report_page(&costs, &stacks, None, &CrossQuantity::default());
    let page = serde_json::to_string(&page).unwrap();
    assert!(page.contains(" ns per packet") && !page.contains("instructions per"));
    assert!(!crate::pprof::render(&costs, &stacks).is_empty());
}

/// Check that the page of times between events has them by device and over time, all of them.
#[test]
fn page_over_time() {
    let recording = between();
    let page = page::page(&recording, &classes(&recording), None);
    check("../page-between.json", &super::lines(&page));
    let (heat, devices) = match &page.sections[..] {
        [heat, devices, ..] => match (&heat.parts[..], &devices.parts[..]) {
            ([PagePart::Heat(heat)], [PagePart::Table(devices)]) => (heat, devices),
            _ => panic!("{:?}", page.sections),
        },
        _ => panic!("{:?}", page.sections),
    };
    let cells: u64 = heat.cells.iter().map(|cell| cell.count).sum();
    let slices = recording.slices.iter().flat_map(|slice| &slice.buckets);
    assert_eq!(cells, slices.map(|bucket| bucket.1).sum::<u64>());
    assert_eq!(devices.rows.len(), 2);
    assert_eq!(page.classes.len(), 1);
    assert!(page.warnings.is_empty(), "{:?}", page.warnings);
}

/// Check that a stage that no span of a block went through still counts all spans: blocks then lack it.
#[test]
fn stages_that_blocks_lack() {
    let mut recording = between();
    let order_of = |span: &Span| match &span.of {
        SpanOf::Stage(stage) => stage.order,
        _ => u16::MAX,
    };
    let stage = |recording: &Recording| {
        let stages = classes(recording).remove(0).stages;
        let whole = stages.iter().find(|s| s.kind == StageKind::Total).unwrap().packets();
        let one = stages.into_iter().find(|s| s.order == 2).unwrap();
        (one.packets(), whole, one.by_block.iter().flatten().count())
    };
    let (of_all, whole, blocks) = stage(&recording);
    assert_eq!(of_all, whole);
    recording.spans.retain(|span| span.block > 0 || order_of(span) != 2);
    assert_eq!(stage(&recording), (whole, whole, blocks));
}

/// Check that a page has what the tables have: web/ is tested with the same files.
#[test]
fn pages() {
    for (name, recording) in [("times", functions()), ("stages", stages())] {
        let all = classes(&recording);
        let page = page::page(&recording, &all, None);
        check(&format!("../page-{name}.json"), &super::lines(&page));
        assert_eq!(page.classes.len(), 2, "what is no packet's is in the footer");
        for (class, shown) in all.iter().zip(&page.classes) {
            let times = shown.times.as_ref().unwrap();
            let figure = |columns: &[PageColumn], cells: &[PageCell], key: &str| {
                let mut cells = columns.iter().filter(|c| !c.own).zip(cells);
                cells.find(|(c, _)| c.key == key).unwrap().1.value.unwrap()
            };
            assert_eq!(times.functions.len(), class.functions.len());
            assert_eq!(times.stages.len(), class.stages.len());
            assert!((times.total_ns - class.per.each(class.total_ns)).abs() < 0.01);
            for (is, of) in times.functions.iter().zip(&class.functions) {
                assert_eq!(is.small, of.too_small());
                assert_eq!(is.buckets, of.times.buckets);
                let p99 = of.percentile(0.99).unwrap();
                assert!((figure(&shown.columns, &is.cells, "p99") - p99).abs() < 0.01);
            }
            let parts = times.stages.iter().filter(|s| s.kind != "total");
            let mean = |s: &PageStage| figure(&times.stage_columns, &s.cells, "mean");
            let sum: f64 = parts.map(mean).sum();
            let total = times.stages.iter().find(|s| s.kind == "total");
            assert!(total.is_none_or(|t| (mean(t) - sum).abs() < 1.0));
        }
        assert!(!crate::html::render(&page).contains("<b>"), "a name is markup");
    }
}

/// Check that the times of a command are called a run's.
#[test]
fn titles_of_commands() {
    let mut recording = functions();
    for arm in &mut recording.arms {
        arm.proto = Proto::Command;
    }
    let all = classes(&recording);
    let title = page::page(&recording, &all, None).title;
    assert!(title.starts_with("What a run takes, by function"), "{title}");
    let markdown = markdown::render(&recording, &all, None, &view(100));
    assert!(markdown.starts_with("# What a run takes\n"), "{markdown}");
}

/// Check the warnings on stages that don't add up, and on an empty recording.
#[test]
fn pages_that_warn() {
    let mut recording = stages();
    slow_queue(&mut recording);
    let open = page::page(&recording, &classes(&recording), None);
    assert!(open.warnings.iter().any(|w| w.contains("INVALID")));
    assert!(open.classes[0].times.as_ref().unwrap().open.contains("INVALID"));
    recording.spans.clear();
    let nothing = page::page(&recording, &classes(&recording), None);
    assert!(nothing.headline[0].contains("No packet was seen"));
    assert!(nothing.classes.is_empty());
}

/// Check that where nobody counted packets, figures are per second.
#[test]
fn a_page_per_second() {
    let mut recording = functions();
    for block in &mut recording.blocks {
        block.ledger = Default::default();
    }
    let all = classes(&recording);
    let page = page::page(&recording, &all, None);
    assert_eq!(page.classes[0].per, "second");
    assert_eq!(page.classes[0].count, Some(0.5));
    assert!(!page.parts().any(|part| matches!(part, PagePart::Ledgers { .. })));
}
