use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Block, Ledger, Recording, env};
use netplumb_model::span::Span;

use crate::claims::{Answer, Judged, judge_blocks};
use crate::figures::sweeps;
use crate::rates::tests::block;
use crate::times::tests::recording::{functions, functions_scaled, stages, stages_scaled};

/// Two recordings of one arm each, as one recording of two arms.
fn beside(mut before: Recording, after: Recording) -> Recording {
    let (arms, blocks) = (before.arms.len() as u32, before.blocks.len() as u32);
    before.arms[0].name = "before".into();
    before.arms.extend(after.arms);
    before.arms[arms as usize].name = "after".into();
    before
        .blocks
        .extend(after.blocks.into_iter().map(|block| Block { arm: block.arm + arms, ..block }));
    before
        .spans
        .extend(after.spans.into_iter().map(|span| Span { block: span.block + blocks, ..span }));
    before
}

fn judged(recording: &Recording, claim: &str) -> Judged {
    let text = format!(
        "name = \"x\"\nlab = \"netns\"\n[[arm]]\nname = \"before\"\n[[arm]]\nname = \"after\"\n\
         [[claim]]\nsays = \"?\"\nclasses = [\"udp tx\"]\n{claim}\n"
    );
    let experiment = Experiment::parse(&text).unwrap();
    judge_blocks(&experiment, recording).remove(0)
}

const COMPARED: &str = "kind = \"compare\"\narm = \"after\"\nagainst = \"before\"";

/// Check that claims about a stage are judged by intervals: a planted change is found, and
/// none between equal recordings.
#[test]
fn stages_compared() {
    let slower = beside(stages(), stages_scaled(&[("qdisc", 5_000)]));
    let same = beside(stages(), stages());
    let of = |recording, is: &str| {
        let claim = format!("{COMPARED}\nstage = \"qdisc\"\nis = \"{is}\"");
        judged(recording, &claim).verdict
    };
    assert_eq!(of(&slower, "more"), Answer::Holds);
    assert_eq!(of(&slower, "less"), Answer::DoesNotHold);
    assert_eq!(of(&slower, "same"), Answer::DoesNotHold);
    assert_eq!(of(&same, "same"), Answer::Holds);
    assert_eq!(of(&same, "different"), Answer::NotShown);
    assert_eq!(of(&same, "less"), Answer::NotShown);
    assert_eq!(of(&slower, "different"), Answer::Holds);
    let outcome = judged(&same, COMPARED);
    assert_eq!(outcome.verdict, Answer::Answered);
    assert!(outcome.because.contains("no difference seen"), "{outcome:?}");
    let gone = judged(&same, &format!("{COMPARED}\nstage = \"nowhere\""));
    assert_eq!(gone.verdict, Answer::NotMeasured);
    assert!(gone.because.contains("qdisc"), "{gone:?}");
}

/// Check the same for functions and layers, and that claims that need exact counts are not judged.
#[test]
fn functions_compared() {
    let recording = functions();
    let views = crate::times::classes(&recording);
    let sends = views.iter().find(|view| view.class.to_string() == "udp tx");
    let most = sends.unwrap().functions[0].function;
    let name = recording.functions[most as usize].name.clone();
    let slower = beside(functions(), functions_scaled(&[(&name, 2.0)]));
    let same = beside(functions(), functions());
    let kind = |recording, claim: &str| judged(recording, claim).verdict;
    let of = format!("{COMPARED}\nfunction = \"{name}\"\nis = \"more\"");
    assert_eq!(kind(&slower, &of), Answer::Holds);
    assert_eq!(kind(&same, &of), Answer::NotShown);
    assert_eq!(kind(&same, "kind = \"unchanged\""), Answer::Holds);
    let order = judged(&slower, "kind = \"ranking\"");
    assert!(order.because.contains("before") && order.because.contains("after"), "{order:?}");
    let counts = kind(&same, "kind = \"changed-by\"\narm = \"after\"");
    assert_eq!(counts, Answer::NotMeasured);
}

const FRAMES: &str = r#"
name = "x"
lab = "netns"
[workload]
kind = "frames"
[[figure]]
name = "1"
x = "queues"
y = "handled"
vary = { path = ["xdp", "tc"], queues = [1, 2] }
[[claim]]
kind = "faster"
says = "faster"
figure = "1"
path = "xdp"
than = "tc"
[[claim]]
kind = "compare"
says = "a second queue"
arm = "xdp queues=2"
against = "xdp queues=1"
is = "same"
[[claim]]
kind = "pinned"
says = "busy"
path = "tc"
where = { queues = 2 }
at_least = 0.9
[[claim]]
kind = "faster"
says = "the other way round"
path = "tc"
than = "xdp"
"#;

/// Check that a sweep by queues is drawn and judged: of paths, and of arms by their names.
#[test]
fn frames_by_queues() {
    let experiment = Experiment::parse(FRAMES).unwrap();
    let recording = of_frames(&experiment, None);
    let mut names: Vec<String> = recording.arms.iter().map(|a| a.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["tc queues=1", "tc queues=2", "xdp queues=1", "xdp queues=2"]);
    let verdicts: Vec<Answer> =
        (judge_blocks(&experiment, &recording).iter()).map(|judged| judged.verdict).collect();
    use Answer::{DoesNotHold, Holds};
    assert_eq!(verdicts, [Holds, Holds, Holds, DoesNotHold]);
    let lines = sweeps::series(
        &sweeps::Plotted::from_figure(&experiment, &experiment.figures[0]),
        &recording,
    );
    let drawn: Vec<(&str, Vec<f64>)> = (lines.iter())
        .map(|l| {
            let along = l.points.iter().map(|p| p.x).collect();
            (l.name.as_str(), along)
        })
        .collect();
    assert_eq!(drawn, [("xdp", vec![1.0, 2.0]), ("tc", vec![1.0, 2.0])]);
    assert!(lines.iter().all(|line| line.points.iter().all(|p| p.y.is_some())));
    let text = sweeps::render(&experiment, &recording, 100);
    assert!(text.contains("handled by queues") && text.contains("2 queues"), "{text}");
}

/// Check that CPU use is the path's own, without other programs' use of its CPUs, and that a claim about it is
/// neither shown nor refuted where that is much.
#[test]
fn other_programs() {
    let experiment = Experiment::parse(FRAMES).unwrap();
    let judged = |others| {
        let recording = of_frames(&experiment, Some(others));
        judge_blocks(&experiment, &recording).remove(2)
    };
    let quiet = judged(0.01);
    assert_eq!(quiet.verdict, Answer::Holds, "{quiet:?}");
    let crowded = judged(0.6);
    assert_eq!(crowded.verdict, Answer::NotShown, "{crowded:?}");
    let because = "0.41 CPUs busy at the least, while other programs had 0.60 CPUs";
    assert_eq!(crowded.because, because);
}

/// Blocks of frames whose path's CPUs were busy all the time, partly with other programs.
fn of_frames(experiment: &Experiment, others: Option<f64>) -> Recording {
    let mut recording = Recording {
        environment: [(env::CLOCK.to_string(), "rates".to_string())].into(),
        arms: experiment.arms(),
        complete: true,
        ..Recording::default()
    };
    let twice: Vec<u64> =
        (recording.arms.iter()).map(|arm| 1 + u64::from(arm.name.starts_with("xdp"))).collect();
    for (arm, packets) in (0..).zip(twice.iter().map(|n| n * 1_000_000)) {
        for index in 0..3 {
            let mut measured = block(packets + 1_000 * u64::from(index), 0, None);
            if let Some(cpu) = measured.cpus.last_mut() {
                cpu.others = others;
            }
            let at = recording.blocks.len() as u32;
            recording.blocks.push(Block {
                arm,
                instrument: "rates".into(),
                index,
                ledger: Ledger::default(),
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: measured.window_ns,
            });
            measured.add_to(&mut recording, at);
        }
    }
    recording
}
