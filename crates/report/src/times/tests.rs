//! Every rendering of times of one small recording that has every kind of data.

pub(crate) mod comparing;
mod outputs;
pub(crate) mod recording;

use std::path::Path;

use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Recording, Total};
use netplumb_model::span::{Span, SpanOf};
use netplumb_model::spans;
use netplumb_testkit::golden;

use super::*;
use crate::shape::{Shape, shape};
use crate::view::View;
use recording::{between, functions, stages};

#[track_caller]
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/times").join(name);
    golden(&path, text);
}

/// A page as JSON on lines short enough to compare.
fn lines(page: &crate::page::Page) -> String {
    let text = serde_json::to_string(page).unwrap();
    text.replace("},{", "},\n{").replace("\":[{", "\":[\n{") + "\n"
}

fn view(columns: usize) -> View {
    View { columns, ..View::default() }
}

/// Check times on terminals of three widths, and that no line is longer than
/// these.
#[test]
fn on_a_terminal() {
    for columns in [80, 110, 150] {
        for (name, recording) in
            [("functions", functions()), ("stages", stages()), ("between", between())]
        {
            let text = terminal::render(&recording, &classes(&recording), &view(columns));
            check(&format!("{name}-{columns}.txt"), &text);
            for line in text.lines() {
                assert!(line.chars().count() <= columns, "{line}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}

/// Check by hand that own times are totals without functions below, including
/// below a caller that was entered before its packet was known.
#[test]
fn own_times() {
    let recording = functions();
    let all = classes(&recording);
    let tx = &all[0];
    assert_eq!(tx.class.to_string(), "udp tx");
    let of = |name: &str| tx.functions.iter().find(|f| tx.name(f.function) == name).unwrap();
    // Each packet: 1,000 in udp_sendmsg, 700 of them in ip_output, 300 of these in
    // walk, which calls itself; see `recording`.
    // Blocks differ by some thousandths.
    let each = |ns: f64| (tx.per.each(ns) / 5.0).round() * 5.0;
    assert_eq!(each(of("udp_sendmsg").self_ns), 300.0);
    assert_eq!(each(of("udp_sendmsg").corrected_ns), 1_000.0);
    assert_eq!(each(of("ip_output").self_ns), 400.0);
    // It calls itself: its total is the outer call's.
    assert_eq!(each(of("walk").corrected_ns), 300.0);
    assert_eq!(each(of("walk").self_ns), 300.0);
    assert_eq!(of("walk").times.count, 2 * of("udp_sendmsg").times.count);
    assert!(of("tiny").too_small());
    // All own times together are the outermost's total.
    assert_eq!(each(tx.total_ns), 1_000.0);
    let other = all.iter().find(|c| c.class.direction.as_str() == "other");
    let other = other.unwrap();
    assert_eq!(each(other.total_ns), 500.0);
}

/// Check that the correction is taken from percentiles, and that none gets negative.
#[test]
fn percentiles_are_shifted() {
    let recording = functions();
    let all = classes(&recording);
    for function in all.iter().flat_map(|c| &c.functions) {
        assert!(function.shift_ns > 0.0);
        let mut last = 0.0;
        for (_, share) in analysis::PERCENTILES {
            let value = function.percentile(share).unwrap();
            assert!(value >= last, "{function:?}");
            last = value;
        }
        assert!(last <= function.max_ns());
    }
}

/// Check that stages after the path are not part of it: a NIC's completion may take
/// any time.
#[test]
fn what_comes_afterwards() {
    let mut recording = stages();
    let completions = recording.spans.clone().into_iter().filter_map(|mut span| {
        let SpanOf::Stage(stage) = &mut span.of else {
            return None;
        };
        if stage.name != "driver" {
            return None;
        }
        stage.name = "completion".into();
        stage.order = 90;
        span.times.total_ns *= 1_000;
        Some(span)
    });
    let completions: Vec<Span> = completions.collect();
    recording.spans.extend(completions);
    let all = classes(&recording);
    assert!(all.iter().all(TimedClass::closes));
    let text = terminal::render(&recording, &all, &view(100));
    assert!(text.contains("completion") && !text.contains("INVALID"), "{text}");
    assert!(!all[0].parts().any(|s| s.name == "completion"));
}

/// Make the stages not add up: the wait in the queue exceeds its part of the total.
fn slow_queue(recording: &mut Recording) {
    for span in &mut recording.spans {
        if span.stage().is_some_and(|stage| stage.name == "qdisc") {
            span.times.total_ns += 100_000 * span.times.count;
        }
    }
}

/// Check the note on stages that don't add up.
#[test]
fn a_sum_that_is_open() {
    let mut recording = stages();
    assert!(classes(&recording).iter().all(TimedClass::closes));
    slow_queue(&mut recording);
    let all = classes(&recording);
    assert!(!all[0].closes());
    let text = terminal::render(&recording, &all, &view(100));
    assert!(text.contains("INVALID"), "{text}");
}

/// Check the message for a recording without any packet.
#[test]
fn nothing_was_seen() {
    let mut recording = stages();
    recording.spans.clear();
    assert_eq!(shape(&recording), Shape::Times);
    let text = terminal::render(&recording, &classes(&recording), &view(100));
    assert!(text.contains("No packet was seen"), "{text}");
}

/// A recording with a call graph of slow spans, without any that was slow.
fn none_slow(slow: &str, threshold_ns: Option<f64>) -> Recording {
    let mut recording = between();
    (recording.environment).insert("spans.slow".into(), slow.into());
    let of = [&spans::STACKS, &spans::SLOW].map(|of| recording.quantity(of));
    for block in &mut recording.blocks {
        block.totals =
            of.iter().map(|quantity| Total { quantity: *quantity, ..Total::default() }).collect();
    }
    if let Some(at) = threshold_ns {
        recording.add(Subject::Block(0), &spans::THRESHOLD, FigureKey::ONLY, at);
    }
    recording
}

/// Check that an empty call graph has a line with the reason, and is not taken for one of
/// instructions.
#[test]
fn nothing_was_slow() {
    for (slow, threshold_ns, beginning) in [
        ("10000000ns", Some(1e7), "none took longer than 10.0ms"),
        (
            "p99",
            Some(1e7),
            "none took longer than p99 of all that ended before, which was 10.0ms in the end",
        ),
        ("p99", None, "none is slow: p99 is known once 100 have ended, and "),
    ] {
        let recording = none_slow(slow, threshold_ns);
        assert_eq!(recording.parts(), ["spans", "stacks", "slow"]);
        let part = recording.part("slow");
        let text = nothing(&part).unwrap();
        assert!(text.starts_with(beginning), "{text}");
        let footer = crate::footer::terminal(&crate::trust::footer(&part, &[]), 1_000);
        for words in ["instructions", "QEMU", "0 of each class"] {
            assert!(!footer.contains(words), "{footer}");
        }
        assert_eq!(nothing(&recording.part("spans")), None);
        // The footer of the times has the reason, too.
        let times = recording.part("spans");
        let footer = trust::footer(&times, &classes(&times));
        let note = footer.iter().find(|note| note.topic == "slow").unwrap();
        assert_eq!(note.text.starts_with("none: "), threshold_ns.is_none());
    }
    assert_eq!(nothing(&between()), None);
    let stacks = none_slow("p99", None);
    assert_eq!(nothing(&stacks.part("stacks")).unwrap(), "none ended");
}

/// Check that an arm without spans, and so without a row, is named, with the events that did not occur; and
/// that an arm that was not measured is not.
#[test]
fn an_arm_without_spans() {
    let mut recording = between();
    let named = |recording: &Recording| {
        let footer = trust::footer(recording, &classes(recording));
        let notes = footer.into_iter().filter(|note| note.topic == "ended");
        notes.map(|note| note.text).collect::<Vec<_>>()
    };
    assert!(named(&recording).is_empty());
    for name in ["kyber", "unmeasured"] {
        let arm = Arm { name: name.into(), ..recording.arms[0].clone() };
        recording.arms.push(arm);
    }
    let arm = recording.arms.len() as u32 - 2;
    let number = recording.blocks.len() as u32;
    recording.blocks.push(Block { arm, ..recording.blocks[0].clone() });
    let of = Subject::Block(number);
    recording.add(of, &spans::ENDED, FigureKey::ONLY, 0.0);
    for (event, count) in [("block:block_rq_insert", 0.0), ("block:block_rq_issue", 7.0)] {
        recording.add(of, &spans::SEEN, FigureKey::label(event), count);
    }
    assert_eq!(
        named(&recording),
        ["none ended in kyber, which has no row, as these did not occur: block:block_rq_insert"]
    );
}
