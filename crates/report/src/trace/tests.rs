//! Tests of traced calls, of a made-up recording.

use std::collections::BTreeMap;

use netplumb_model::calls::{COUNTED, PLACES};
use netplumb_model::class::{Direction, Family, Link, Proto, Softirq};
use netplumb_model::experiment::Experiment;
use netplumb_model::quantity::FigureKey;
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, Total, env};
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_model::trace::Followed;

use super::*;
use crate::analysis::classes;
use crate::html;
use crate::together::CrossQuantity;

fn golden(name: &str, text: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/trace");
    netplumb_testkit::golden(&std::path::Path::new(folder).join(name), text);
}

const NAMES: [&str; 7] = [
    "filemap_fault",
    "page_cache_ra_unbounded",
    "xa_load",
    "asm_sysvec_apic_timer_interrupt",
    "handle_softirqs",
    "schedule",
    "<img src=x>\u{1b}[31m",
];

/// A step: parent, function, begin, elapsed, total, own, flags.
type StepFields = (Option<u32>, u32, u64, u64, u64, u64, Flags);

fn experiment() -> Experiment {
    Experiment::parse(
        "name = \"trace\"\ntitle = \"Calls of filemap_fault\"\n[workload]\nkind = \"command\"\ncommand = [\"cat\"]\n\
         [trace]\nfunction = \"filemap_fault\"\nif = \"insns > 100\"\n",
    )
    .unwrap()
}

/// Three calls: one with everything, a small one, and one that did not return.
fn recording() -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    for (key, value) in [
        (env::CLOCK, "exact"),
        (env::UNIT, "instructions"),
        (env::LAB, "vm"),
        (env::KERNEL, "6.1.0-42-amd64"),
        (env::NAME, "trace"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    recording.arms.push(Arm {
        name: "cat a\u{7}file".into(),
        proto: Proto::Command,
        family: Family::V4,
        link: Link::Lo,
        forward: false,
        size_bytes: 0,
        knobs: BTreeMap::new(),
        made: None,
    });
    let quantity = recording.quantity(&INSTRUCTIONS);
    recording.blocks.push(Block {
        arm: 0,
        instrument: INSTRUCTIONS.instrument.into(),
        index: 0,
        ledger: Ledger { offered: 1, delivered: 1, ..Ledger::default() },
        totals: vec![Total { quantity, kernel: 2_000, user: 0 }],
        entered: 3,
        returned: 2,
        duration_ns: 0,
    });
    recording.functions.push(Function {
        name: NAMES[0].into(),
        module: None,
        layer: Some("memory".into()),
        address: 0,
        size_bytes: 0,
        source: None,
    });
    recording.nodes.push(Node { parent: None, function: 0, tail: false });
    recording.costs.push(Cost {
        block: 0,
        quantity,
        direction: Direction::Run,
        context: Context::Task,
        node: 0,
        calls: 3,
        own: 2_000,
    });
    for (quantity, value) in [
        (&COUNTED.calls, 3),
        (&COUNTED.matched, 3),
        (&COUNTED.recursive, 1),
        (&COUNTED.unfinished, 1),
    ] {
        recording.add(Subject::Block(0), quantity, FigureKey::ONLY, f64::from(value));
    }
    for (place, value) in PLACES.into_iter().zip([1_900, 110, 190, 1_600, 1_600]) {
        recording.add(Subject::Block(0), &COUNTED.cost, FigureKey::label(place), f64::from(value));
    }
    let mut texts = recording.known_texts();
    for name in NAMES {
        recording.trace_text(&mut texts, name);
    }
    let arguments = recording.trace_text(&mut texts, "vmf=0xffffc900\u{1b}, n=-1");
    let returned = recording.trace_text(&mut texts, "VM_FAULT_LOCKED");
    let command = recording.trace_text(&mut texts, "cat");
    let plain = Flags::default();
    let mut add = |number: u64, steps: &[StepFields]| {
        let step = |(parent, name, begin, elapsed, total, own, flags): &StepFields| Step {
            parent: *parent,
            name: *name,
            begin: *begin,
            elapsed: *elapsed,
            total: *total,
            own: *own,
            switches: u32::from(*elapsed > 5_000),
            context: match (flags.has(Flags::ASIDE), name) {
                (false, _) => Context::Task,
                (true, 3) => Context::Hardirq,
                (true, _) => Context::Softirq(Softirq::NetRx),
            },
            cpu: 0,
            thread: 0,
            command,
            flags: *flags,
            arguments: None,
            returned: None,
        };
        recording.traces.push(Trace {
            block: Some(0),
            quantity,
            of: Followed::Call,
            number,
            steps: steps.iter().map(step).collect(),
        });
    };
    add(
        0,
        &[
            (None, 0, 50, 9_000, 1_600, 200, plain),
            (Some(0), 1, 90, 8_800, 1_400, 900, Flags::CUT),
            (Some(1), 2, 100, 50, 50, 50, plain),
            (Some(1), 2, 150, 50, 50, 50, plain),
            (Some(1), 2, 200, 50, 50, 50, plain),
            (Some(1), 3, 250, 700, 300, 300, Flags::ASIDE),
            (Some(5), 4, 300, 400, 400, 400, Flags::ASIDE),
            (Some(1), 2, 960, 50, 50, 50, plain),
            (Some(1), 5, 1_010, 7_000, 250, 250, plain),
            (Some(8), 6, 1_020, 50, 50, 50, Flags::TAIL),
        ],
    );
    add(1, &[(None, 0, 9_500, 190, 190, 190, plain)]);
    add(2, &[(None, 0, 9_900, 110, 110, 110, Flags::OPEN)]);
    let first = &mut recording.traces[0].steps[0];
    (first.arguments, first.returned) = (Some(arguments), Some(returned));
    recording
}

/// Check the terminal's output: the first call and the largest one, folded, and the calls in between.
#[test]
fn on_a_terminal() {
    let (recording, experiment) = (recording(), experiment());
    let text = render(&recording, Some(&experiment), &[], &ShownCalls::Typical, 100);
    golden("calls.txt", &text);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
    let one = render(&recording, Some(&experiment), &[], &ShownCalls::Calls(vec![3]), 100);
    golden("call.txt", &one);
    let none = render(&recording, None, &["other".into()], &ShownCalls::Typical, 100);
    assert_eq!(none, "");
}

/// Check JSON, which has every step as it is.
#[test]
fn as_json() {
    let (recording, experiment) = (recording(), experiment());
    let views = classes(&recording);
    let together = CrossQuantity::from_recording(&recording, Some(&experiment), &[], &[]);
    let text = crate::json::render(&recording, &views, Some(&experiment), &together);
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let traces = document["traces"].take();
    assert_eq!(traces[0]["steps"].as_array().unwrap().len(), 10);
    let text = serde_json::to_string_pretty(&traces).unwrap() + "\n";
    golden("calls.json", &text);
}

/// Check the page's data, and that names can't be read as anything but text.
#[test]
fn on_the_page() {
    let (recording, experiment) = (recording(), experiment());
    let views = classes(&recording);
    let together = CrossQuantity::from_recording(&recording, Some(&experiment), &[], &[]);
    let page = html::report_page(&recording, &views, Some(&experiment), &together);
    let text = serde_json::to_string_pretty(&page.sections).unwrap() + "\n";
    golden("page.json", &text);
    assert!(!html::render(&page).contains("<img src=x>"));
}

/// Check that in Perfetto's format each call is a track, on which slices lie within each other.
#[test]
fn for_perfetto() {
    let text = perfetto::render(&recording());
    golden("perfetto.json", &text);
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(slices.len(), 12);
    let of = |e: &serde_json::Value| {
        let begin = e["ts"].as_f64().unwrap();
        (begin, begin + e["dur"].as_f64().unwrap())
    };
    for (at, one) in slices.iter().enumerate() {
        for other in slices[at + 1..].iter().filter(|e| e["tid"] == one["tid"]) {
            let (a, b) = (of(one), of(other));
            let apart = a.1 <= b.0 + 1e-9;
            assert!(apart || b.1 <= a.1 + 1e-9, "{one} {other}");
        }
    }
}

/// Check that a function that was not called is reported as such.
#[test]
fn never_called() {
    let mut recording = recording();
    recording.traces.clear();
    for scalar in &mut recording.scalars {
        scalar.value = 0.0;
    }
    let text = render(&recording, Some(&experiment()), &[], &ShownCalls::Typical, 100);
    assert_eq!(text, "cat a?file: filemap_fault was not called\n");
}

/// Check that equal steps in a row are one line, and that others are not, even with the same
/// name.
#[test]
fn folding() {
    let recording = recording();
    let lines = Tree::from_trace(&recording.traces[0]).lines();
    let folded: Vec<(u32, usize, usize)> =
        lines.iter().map(|l| (l.step, l.depth, l.times)).collect();
    assert_eq!(
        folded,
        [(0, 0, 1), (1, 1, 1), (2, 2, 3), (5, 2, 1), (6, 3, 1), (7, 2, 1), (8, 2, 1), (9, 3, 1)]
    );
}

/// Check that a claim about calls is about each of them: their cost, and their arguments; that the actual
/// values are reported, and that calls that were not kept are not judged.
#[test]
fn claims_about_calls() {
    let mut recording = recording();
    recording.arms[0].name = "a".into();
    let judged = |recording: &Recording, have: &str| {
        let text = format!(
            "name = \"trace\"\nlab = \"vm\"\n[workload]\nkind = \"command\"\ncommand = [\"cat\"]\n\
             [trace]\nfunction = \"filemap_fault\"\nargs = true\n[[arm]]\nname = \"a\"\n\
             [[claim]]\nkind = \"calls\"\nsays = \"so\"\nclasses = [\"command run\"]\narms = [\"a\"]\nhave = \"{have}\"\n"
        );
        let experiment = Experiment::parse(&text).unwrap();
        let mut all = crate::claims::judge(&experiment, &classes(recording));
        let one = all.remove(0);
        (one.verdict.as_str(), one.because)
    };
    let (verdict, because) = judged(&recording, "insns > 100");
    assert_eq!(
        (verdict, because.as_str()),
        ("holds", "a: all 3 calls of filemap_fault have insns > 100")
    );
    let (verdict, because) = judged(&recording, "n == -1");
    assert_eq!(
        (verdict, because.as_str()),
        ("not measured", "`n` is not known of 2 of 3 calls with a")
    );
    let first = recording.traces[0].steps[0];
    for call in &mut recording.traces[1..] {
        call.steps[0].arguments = first.arguments;
    }
    assert_eq!(judged(&recording, "n == -1").0, "holds");
    let other = recording.trace_texts.len() as u32;
    recording.trace_texts.push("vmf=0x1, n=7".into());
    recording.traces[2].steps[0].arguments = Some(other);
    let (verdict, because) = judged(&recording, "n == -1");
    assert_eq!(
        (verdict, because.as_str()),
        (
            "does not hold",
            "a: 2 of 3 calls of filemap_fault have n == -1 (n is -1 in 2 and 7 in 1)"
        )
    );
    recording.traces.pop();
    let (verdict, because) = judged(&recording, "insns > 100");
    assert_eq!(verdict, "not measured");
    assert!(because.contains("only 2 are kept"), "{because}");
    let mistake = "name = \"trace\"\n[workload]\nkind = \"command\"\ncommand = [\"cat\"]\n\
                   [[claim]]\nkind = \"calls\"\nsays = \"so\"\nclasses = [\"command run\"]\narms = [\"a\"]\nhave = \"n == 1\"\n";
    let refused = Experiment::parse(mistake).unwrap_err().to_string();
    assert!(refused.contains("[trace]"), "{refused}");
}

/// Check that a trace of times in which the function was not called still counts as one of times.
#[test]
fn times_of_no_call() {
    let mut recording = recording();
    recording.costs.clear();
    recording.traces.clear();
    recording.scalars.clear();
    recording.quantities.clear();
    (recording.environment).insert(env::CLOCK.into(), TIMED.step.instrument.into());
    let quantity = recording.quantity(&TIMED.step);
    for (number, block) in (0..).zip(recording.blocks.clone()) {
        let own = &mut recording.blocks[number as usize];
        own.instrument = TIMED.step.instrument.into();
        own.totals = vec![Total { quantity, ..block.totals[0] }];
        recording.add(Subject::Block(number), &TIMED.calls, FigureKey::ONLY, 0.0);
    }
    let text = render(&recording, Some(&experiment()), &[], &ShownCalls::Typical, 1_000);
    assert!(text.contains("filemap_fault was not called"), "{text}");
    let footer = crate::footer::terminal(&crate::trust::footer(&recording, &[]), 1_000);
    assert!(footer.contains("nanoseconds of calls by function_graph"), "{footer}");
    assert!(!footer.contains("instructions") && !footer.contains("QEMU"), "{footer}");
}
