//! Tests of counts, of made-up recordings.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction};
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::events::{BROKEN_DOWN, CALLERS, COUNT, ENABLED, Events, RUNNING, TIME};
use netplumb_model::experiment::Experiment;
use netplumb_model::layers::APPLICATION;
use netplumb_model::quantity::{FigureKey, Scalar, Subject};
use netplumb_model::recording::{
    Arm, Block, Cost, EVENT_MODULE, Function, Ledger, Node, Recording, THREAD_MODULE, Total, env,
};

use super::counted::focus;
use super::rows::{counts, meant};
use super::*;
use crate::diff::arms::pair;
use crate::diff::{self, Sides};
use crate::page::PagePart;
use crate::shape::{Shape, shape};
use crate::view::View;

fn golden(name: &str, text: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/events");
    netplumb_testkit::golden(&std::path::Path::new(folder).join(name), text);
}

/// Runs of a command with `writes` each, and a varying number of page faults.
fn recording(writes: u64, runs: u32) -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    for (key, value) in [
        (env::CLOCK, "events"),
        (env::LAB, "host"),
        (env::KERNEL, "6.1.0-42-amd64"),
        (env::NAME, "stat"),
        ("events.scope", "a command, from its exec, and what it starts"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    recording.arms.push(Arm {
        name: "./w\u{1b}[31m 1000".into(),
        proto: Proto::Command,
        family: Family::V4,
        link: Link::Any,
        forward: false,
        size_bytes: 0,
        knobs: BTreeMap::new(),
        made: None,
    });
    for run in 0..runs {
        recording.blocks.push(Block {
            arm: 0,
            instrument: INSTRUMENT.into(),
            index: run,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 2_000_000 + u64::from(run % 3) * 1_000,
        });
        let mut add = |of, item: FigureKey, value: u64| {
            recording.add(Subject::Block(run), of, item, value as f64);
        };
        let faults = 26 + u64::from(run * 5 % 3);
        for (name, value, of) in [
            ("page-faults", faults, &COUNT),
            ("task-clock", 700_000 + u64::from(run * 7 % 5) * 9_000, &TIME),
            ("syscalls:sys_enter_write", writes, &COUNT),
            ("cycles", 1_000_000, &COUNT),
        ] {
            add(of, FigureKey::label(name), value);
        }
        add(&COUNT, FigureKey::numbered(0, "page-faults"), faults - 6);
        add(&COUNT, FigureKey::numbered(1, "page-faults"), 6);
        add(&ENABLED, FigureKey::label("cycles"), 700_000);
        add(&RUNNING, FigureKey::label("cycles"), 280_000);
    }
    let not_measured = recording.not_measured.entry(INSTRUMENT.into()).or_default();
    not_measured.insert("instructions".into(), "no counters (PMU)".into());
    not_measured.insert("page-fualts".into(), "no such event; did you mean `page-faults`?".into());
    recording
}

fn asked() -> Experiment {
    Experiment {
        events: Events {
            ratios: vec![
                "page-faults/task-clock".into(),
                "task-clock/page-faults".into(),
                "cycles/instructions".into(),
            ],
            ..Events::default()
        },
        ..Experiment::default()
    }
}

/// Check counts in every output: with intervals, parts of CPUs, ratios, an event that shared its
/// counter, and a missing event, with the reason.
#[test]
fn outputs() {
    let recording = recording(1_000, 5);
    let experiment = asked();
    assert_eq!(shape(&recording), Shape::Counts);
    let text = document(&recording, Some(&experiment), &[]).terminal(130);
    assert!(!text.contains('\u{1b}'), "{text}");
    golden("wide.txt", &text);
    golden("narrow.txt", &document(&recording, None, &[]).terminal(80));
    golden("counts.csv", &document(&recording, None, &[]).csv());
    golden("document.json", &document(&recording, Some(&experiment), &[]).json());
    golden("report.md", &document(&recording, Some(&experiment), &[]).markdown());
    let page = document(&recording, Some(&experiment), &[]).page();
    let [PagePart::Table(events), PagePart::Table(_)] = &page.sections[0].parts[..] else {
        panic!("{:?}", page.sections);
    };
    let cells: Vec<&str> = events.rows[0].iter().map(|c| c.text.as_str()).collect();
    assert!(cells.contains(&"page-faults") && cells.contains(&"135"), "{cells:?}");
}

/// Check that the count of a single run has no interval.
#[test]
fn one_run() {
    let text = document(&recording(1_000, 1), None, &[]).terminal(100);
    assert!(!text.contains("interval") && !text.contains("per run"), "{text}");
    assert!(text.contains("1,000"), "{text}");
}

/// Check that a count is never scaled to the time in which it was not counted, with a note on it.
#[test]
fn shared_counters() {
    let recording = recording(1_000, 2);
    let rows = rows(&recording);
    let cycles = rows.iter().find(|row| row.name == "cycles").unwrap();
    assert_eq!(cycles.counted.as_ref().unwrap().total(), 2_000_000.0);
    assert_eq!(cycles.share(), Some(0.4));
    assert!(trust(&recording).iter().any(|note| note.topic == "shared"));
}

/// Check that a ratio is taken of the sums, in seconds if its denominator is a clock, and that there is
/// none if either event was not counted.
#[test]
fn ratios_of_sums() {
    let recording = recording(1_000, 4);
    let all = divided(&recording, &asked().events.ratios);
    let mean = |n: usize| all[n].mean.as_ref().map(|mean| mean.value);
    let faults = [26, 28, 27, 26].iter().sum::<u64>() as f64;
    let clock = [0_u64, 2, 4, 1].iter().map(|n| 700_000 + n * 9_000).sum::<u64>() as f64;
    assert!((mean(0).unwrap() / (faults / clock * 1e9) - 1.0).abs() < 1e-9);
    assert!((mean(1).unwrap() / (clock / faults) - 1.0).abs() < 1e-9);
    assert!(mean(2).is_none());
    let interval = all[0].mean.as_ref().unwrap();
    assert!(interval.low.unwrap() < interval.value && interval.value < interval.high.unwrap());
    // All faults in one block of four.
    let rare = rows::ratio_of(&[0.0, 8.0, 0.0, 0.0], &[4.0; 4], 1.0).unwrap();
    assert_eq!((rare.value, rare.low), (0.5, Some(0.0)));
    assert!(rare.high.unwrap() > 2.0);
}

/// Check that a ratio of events that carry a time is one of counts if their causes were counted, and else of times.
#[test]
fn ratios_of_what_was_counted() {
    let over = "sched:sched_stat_runtime";
    let unit_and_value = |quantity| {
        let mut recording = recording(1_000, 2);
        for run in 0..2 {
            recording.add(Subject::Block(run), quantity, FigureKey::label(over), 500.0);
        }
        let ratio = divided(&recording, &[format!("{over}/syscalls:sys_enter_write")]);
        (ratio[0].unit, ratio[0].mean.as_ref().unwrap().value)
    };
    assert_eq!(unit_and_value(&TIME), ("ns", 0.5));
    assert_eq!(unit_and_value(&COUNT), ("", 0.5));
}

/// Check that an event of only one kernel is missing in the other's arm, and that an event of no kernel is missing
/// in all arms.
#[test]
fn missing_in_an_arm() {
    let mut recording = recording(1_000, 2);
    let before = recording.arms[0].clone();
    recording.arms[0].name = "kernel=a".into();
    recording.arms.push(Arm { name: "kernel=b".into(), ..before });
    recording.blocks[1].arm = 1;
    let only = "fentry:page_add_file_rmap";
    recording.add(Subject::Block(0), &COUNT, FigureKey::label(only), 3.0);
    let not_measured = recording.not_measured.entry(INSTRUMENT.into()).or_default();
    not_measured.insert(only.into(), "the kernel has no such function".into());
    let all = rows(&recording);
    let of = |name: &str| -> Vec<(&str, bool)> {
        let its = all.iter().filter(|row| row.name == name);
        its.map(|row| (row.arm, row.counted.is_some())).collect()
    };
    assert_eq!(of(only), [("kernel=a", true), ("kernel=b", false)]);
    assert_eq!(of("instructions"), [("", false)]);
    assert!(document(&recording, None, &[]).csv().contains(&format!("kernel=b,{only},")));
}

/// Check that an event and the same in one mode are kept apart, whichever comes first, and that what was counted
/// of programs alone stands for the event where that was not counted.
#[test]
fn modes() {
    let mut recording = recording(1_000, 2);
    for run in 0..2 {
        for (name, count) in [("minor-faults:u", 20.0), ("minor-faults", 80.0)] {
            recording.add(Subject::Block(run), &COUNT, FigureKey::label(name), count);
        }
        recording.add(Subject::Block(run), &COUNT, FigureKey::label("cs:u"), 10.0);
    }
    let ratio = |text: &str| {
        let all = divided(&recording, &[text.to_string()]);
        all[0].mean.as_ref().map(|mean| mean.value)
    };
    assert_eq!(ratio("minor-faults/minor-faults:u"), Some(4.0));
    assert_eq!(ratio("minor-faults:u/minor-faults"), Some(0.25));
    assert_eq!(ratio("minor-faults:k/minor-faults"), None);
    let names = ["cs:u", "page-faults:u", "page-faults"];
    assert_eq!(meant(&names, "page-faults"), Some("page-faults"));
    assert_eq!(meant(&names, "page-faults:u"), Some("page-faults:u"));
    assert_eq!(meant(&names, "cs"), Some("cs:u"));
    for (name, of) in [
        ("page-faults:k", "memory"),
        ("page-faults:u", "memory"),
        ("fentry:ksys_read", "function"),
        ("kretprobe:ksys_read", "function"),
        ("uprobe:./a:u", "function"),
        ("block:block_rq_issue", "block"),
    ] {
        assert_eq!(focus(name), of, "{name}");
    }
}

fn compared(writes: [u64; 2]) -> String {
    let [before, after] = writes.map(|writes| recording(writes, 5));
    let sides =
        Sides { before: &before, after: &after, before_name: "before", after_name: "after" };
    let pairs = pair((&before.arms, vec![0]), (&after.arms, vec![0]));
    diff::terminal::render(&diff::compare(sides, &pairs, &[]), &View::default())
}

/// Check that a change of one event is found, and that two recordings of the same do not differ.
#[test]
fn comparisons() {
    let text = compared([1_000, 1_010]);
    golden("diff.txt", &text);
    let row = text.lines().find(|line| line.contains("sys_enter_write")).unwrap();
    assert!(text.contains("more") && row.contains("write"), "{text}");
    let same = compared([1_000, 1_000]);
    assert!(same.contains("no count differs per run"), "{same}");
    assert!(!same.contains(" more\n") && !same.contains(" fewer\n"), "{same}");
}

/// Check that an event belongs to the innermost layer that is not shared, even if that is the program's; that
/// events without a stack are a separate part, and that the parts add up to the whole.
#[test]
fn by_layer() {
    let mut recording = recording(1_000, 1);
    let by = (BROKEN_DOWN.to_string(), "layer".to_string());
    recording.environment.extend([by]);
    let mut node = |parent: Option<u32>, name: &str, module: Option<&str>, layer: Option<&str>| {
        recording.functions.push(Function {
            name: name.into(),
            module: module.map(Into::into),
            layer: layer.map(Into::into),
            address: 0,
            size_bytes: 0,
            source: None,
        });
        recording.nodes.push(Node {
            parent,
            function: recording.functions.len() as u32 - 1,
            tail: false,
        });
        recording.nodes.len() as u32 - 1
    };
    let event = node(None, "page-faults", Some(EVENT_MODULE), None);
    let thread = node(Some(event), "w", Some(THREAD_MODULE), Some(APPLICATION));
    let main = node(Some(thread), "main", Some("w"), Some(APPLICATION));
    let fault = node(Some(main), "handle_mm_fault", None, Some("memory"));
    let read = node(Some(main), "ext4_file_read_iter", None, Some("filesystem"));
    let copy = node(Some(read), "copy_page_to_iter", None, Some("copy"));
    let idle = node(Some(event), "[idle]", Some(THREAD_MODULE), Some(APPLICATION));
    let tick = node(Some(idle), "schedule", None, Some("scheduling"));
    let quantity = recording.quantity(&CALLERS);
    let parts = [(main, 3), (fault, 5), (copy, 7), (tick, 2)];
    recording.costs.extend(parts.map(|(node, own)| Cost {
        block: 0,
        quantity,
        direction: Direction::Run,
        context: Context::Task,
        node,
        calls: own,
        own,
    }));
    recording.blocks[0].totals = vec![Total { quantity, kernel: 17, user: 0 }];
    let part = recording.part(INSTRUMENT);
    assert_eq!(shape(&part), Shape::Counts);
    let all = counts(&part);
    let layers: Vec<(&str, f64)> = (all.iter())
        .filter(|c| c.name == "page-faults")
        .filter_map(|c| Some((c.layer?, c.total())))
        .collect();
    let wanted =
        [("(no stack)", 9.0), (APPLICATION, 8.0), ("filesystem", 7.0), ("scheduling", 2.0)];
    assert_eq!(layers, wanted);
    golden("layers.txt", &document(&part, None, &[]).terminal(110));
    // The call graph is a part without the counts.
    let graph = recording.part(CALLERS.name);
    assert_eq!(shape(&graph), Shape::Costs);
    recording.environment.insert(BROKEN_DOWN.into(), "stack".into());
    golden("stack.txt", &document(&recording.part(INSTRUMENT), None, &[]).terminal(110));
}

/// Check that an exception belongs to the program that causes it, on x86-64 and arm64, or to the kernel's layer
/// that does.
#[test]
fn exceptions_by_layer() {
    let layer = |stack: &[(&str, &str)]| {
        let mut recording = recording(1_000, 1);
        let by = (BROKEN_DOWN.to_string(), "layer".to_string());
        recording.environment.extend([by]);
        let quantity = recording.quantity(&CALLERS);
        let roots = [("page-faults", EVENT_MODULE), ("w", THREAD_MODULE)];
        let roots = roots.map(|(name, module)| (name, Some(module), None));
        let frames = stack.iter().map(|(name, layer)| (*name, None, Some(*layer)));
        for (at, (name, module, layer)) in (0..).zip(roots.into_iter().chain(frames)) {
            recording.functions.push(Function {
                name: name.into(),
                module: module.map(Into::into),
                layer: layer.map(Into::into),
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node {
                parent: u32::checked_sub(at, 1),
                function: at,
                tail: false,
            });
        }
        recording.costs.push(Cost {
            block: 0,
            quantity,
            direction: Direction::Run,
            context: Context::Task,
            node: stack.len() as u32 + 1,
            calls: 1,
            own: 1,
        });
        let found = layers::by_layer(&recording);
        found[0].2.to_string()
    };
    let entry = ("asm_exc_page_fault", "interrupt");
    let handled = ("handle_mm_fault", "memory");
    let read = ("vfs_read", "syscall");
    let clear = ("clear_user_original", "copy");
    assert_eq!(layer(&[entry, handled]), APPLICATION);
    assert_eq!(layer(&[("main", APPLICATION), entry, handled]), APPLICATION);
    assert_eq!(layer(&[read, clear, entry, handled]), "syscall");
    let vector = [("el0t_64_sync", "syscall"), ("el0t_64_sync_handler", "syscall")];
    let of_program = [&vector[..], &[("el0_da", "interrupt"), handled]].concat();
    assert_eq!(layer(&of_program), APPLICATION);
    let called = [("el0_svc", "syscall"), read, clear];
    let of_kernel = [("el1h_64_sync", "interrupt"), ("el1_abort", "interrupt"), handled];
    assert_eq!(layer(&[&vector[..], &called, &of_kernel].concat()), "syscall");
}

/// Check that claims about events are judged by their blocks, in every output: about an event as a whole and a
/// layer, and that missing events are named.
#[test]
fn claims_about_events() {
    let mut recording = recording(1_000, 5);
    recording.arms[0].name = "before".into();
    let mut after = recording.arms[0].clone();
    after.name = "after".into();
    recording.arms.push(after);
    let blocks = recording.blocks.clone();
    let scalars = recording.scalars.clone();
    for (number, block) in (5..).zip(blocks) {
        recording.blocks.push(Block { arm: 1, ..block });
        let own = scalars.iter().filter(|s| s.of == Subject::Block(number - 5));
        let more = own.map(|scalar| Scalar {
            of: Subject::Block(number),
            value: scalar.value * 2.0,
            ..scalar.clone()
        });
        recording.scalars.extend(more);
    }
    let claim = |says: &str, quantity: &str, rest: &str| {
        format!(
            "[[claim]]\nkind = \"compare\"\nsays = \"{says}\"\nclasses = [\"command run\"]\n\
             quantity = \"{quantity}\"\narm = \"after\"\nagainst = \"before\"\n{rest}\n"
        )
    };
    let text = format!(
        "name = \"e\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\ncommand = [\"true\"]\n\
         [[arm]]\nname = \"before\"\n[[arm]]\nname = \"after\"\nknobs.command = \"false\"\n{}{}{}",
        claim("Twice the faults", "page-faults", "is = \"more\""),
        claim("As many writes", "syscalls:sys_enter_write", "is = \"same\""),
        claim("Nothing", "page-fualts", "is = \"more\""),
    );
    let experiment = Experiment::parse(&text).unwrap();
    let judged = crate::claims::judge_blocks(&experiment, &recording);
    let verdicts: Vec<&str> = judged.iter().map(|one| one.verdict.as_str()).collect();
    assert_eq!(verdicts, ["holds", "does not hold", "not measured"], "{judged:#?}");
    assert!(judged[2].because.contains("there are page-faults"), "{judged:#?}");
    let text = document(&recording, Some(&experiment), &[]).terminal(110);
    golden("claims.txt", &text);
    assert!(document(&recording, Some(&experiment), &[]).json().contains("\"holds\""));
    assert!(document(&recording, Some(&experiment), &[]).markdown().contains("Twice the faults"));
    assert_eq!(document(&recording, Some(&experiment), &[]).page().claims.len(), 3);
}
