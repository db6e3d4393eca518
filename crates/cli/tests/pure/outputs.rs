//! `plumb report` in the formats of other tools, and those tools' reading of them: the same as was
//! measured, to the instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Place, Ran, Running};
use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, NodeId, Recording, env};
use netplumb_report::analysis::{ClassView, classes};
use netplumb_store::Writer;

const PACKETS: u64 = 10;

/// Check that text of help is wrapped at the width of the terminal.
#[test]
fn help_is_wrapped() {
    let place = Place::new();
    let help = |words: &str, columns: usize| {
        let mut command = place.plumb(words);
        command.env("COLUMNS", columns.to_string()).arg("--help");
        let ran = Running::start(&mut command).finish();
        ran.code(0);
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
        (widest.unwrap(), ran.stdout.lines().count())
    };
    for words in ["path", "diff", "run", "bench stream"] {
        let [narrow, wide] = [60, 100].map(|columns| {
            let (widest, lines) = help(words, columns);
            assert!((columns - 5..=columns).contains(&widest), "{words}: {widest}");
            lines
        });
        assert!(narrow > wide, "{words}");
    }
}

/// Functions of the recording: name, module, layer.
const FUNCTIONS: [(&str, Option<&str>, &str); 7] = [
    ("entry_SYSCALL_64", None, "syscall"),
    ("udp_sendmsg", None, "transport"),
    ("ip_output", None, "network"),
    ("veth_xmit", Some("veth"), "driver"),
    ("walk", None, "network"),
    ("helper", None, "network"),
    // Another function of the same name.
    ("helper", Some("veth"), "driver"),
];

/// Callers and callees: parent and function. `walk` calls itself, by `helper` too.
const NODES: [(Option<NodeId>, u32); 11] = [
    (None, 0),
    (Some(0), 1),
    (Some(1), 2),
    (Some(2), 3),
    (None, 4),
    (Some(4), 5),
    (Some(5), 4),
    (Some(6), 4),
    (Some(7), 6),
    // The other way round: a cycle of functions without recursion.
    (None, 5),
    (Some(9), 4),
];

fn arm(name: &str, proto: Proto) -> Arm {
    Arm {
        name: name.into(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::new(),
        made: None,
    }
}

/// Two arms of two blocks, the second with half as much again.
fn recording() -> Recording {
    let mut recording = Recording {
        quantities: vec![(&netplumb_model::timing::INSTRUCTIONS).into()],
        arms: vec![arm("size=10", Proto::Udp), arm("size=20", Proto::Udp)],
        complete: true,
        ..Recording::default()
    };
    for (key, value) in [
        (env::NAME, "test"),
        (env::PLUMB, "0.1.0"),
        (env::KERNEL, "6.1.0"),
        (env::STARTED, "1700000000"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    for (n, (name, module, layer)) in FUNCTIONS.into_iter().enumerate() {
        recording.functions.push(Function {
            name: name.into(),
            module: module.map(String::from),
            layer: Some(layer.into()),
            address: 0xffff_ffff_8100_0000 + 0x100 * n as u64,
            size_bytes: 0x100,
            source: None,
        });
    }
    for (parent, function) in NODES {
        recording.nodes.push(Node { parent, function, tail: false });
    }
    for block in 0..4 {
        let arm = block % 2;
        let (mut kernel_insns, mut entered) = (0, 0);
        for node in 0..NODES.len() as u32 {
            let (direction, context) = match node {
                0..4 => (Direction::Tx, Context::Task),
                4..9 => (Direction::Rx, Context::Softirq(Softirq::NetRx)),
                _ => (Direction::Rx, Context::Task),
            };
            // The one at the top of a context was there before the window.
            let calls = if node == 4 { 0 } else { PACKETS };
            let self_insns = PACKETS * u64::from(7 + 13 * node) * u64::from(2 + arm) / 2;
            kernel_insns += self_insns;
            entered += calls;
            recording.costs.push(Cost {
                quantity: 0,
                block,
                direction,
                context,
                node,
                calls,
                own: self_insns,
            });
        }
        recording.blocks.push(Block {
            arm,
            instrument: "exact".into(),
            index: block / 2,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: vec![netplumb_model::recording::Total {
                quantity: 0,
                kernel: kernel_insns,
                user: 0,
            }],
            entered,
            returned: entered,
            duration_ns: 0,
        });
    }
    recording
}

/// A place with the recording in it as r.plumb.
fn place() -> Place {
    let place = Place::new();
    let mut writer = Writer::create(&place.path("r.plumb")).unwrap();
    writer.save(&recording()).unwrap();
    place
}

/// What an option writes to the standard output.
fn written(place: &Place, words: &str) -> String {
    let ran = place.run(&format!("report r.plumb {words}"));
    ran.code(0);
    assert_eq!(ran.stderr, "");
    ran.stdout
}

/// Self and inclusive cost by name, over some classes.
fn costs(views: &[ClassView<'_>]) -> BTreeMap<String, (u64, u64)> {
    let mut costs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for class in views {
        for f in &class.functions {
            let cost = costs.entry(class.name(f.function).into()).or_default();
            cost.0 += f.self_insns;
            cost.1 += f.inclusive_insns;
        }
    }
    costs
}

/// Likewise, with names instead of functions: one that is below another of its name
/// counts once.
fn costs_by_name(recording: &Recording) -> BTreeMap<String, (u64, u64)> {
    let mut costs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for cost in &recording.costs {
        let name = |node: NodeId| {
            let function = recording.nodes[node as usize].function;
            recording.functions[function as usize].name.clone()
        };
        costs.entry(name(cost.node)).or_default().0 += cost.own;
        let mut names = BTreeSet::new();
        let mut on = Some(cost.node);
        while let Some(node) = on {
            names.insert(name(node));
            on = recording.nodes[node as usize].parent;
        }
        for name in names {
            costs.entry(name).or_default().1 += cost.own;
        }
    }
    costs
}

/// A tool that a test needs; prints a note if it is missing.
fn tool(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = names.iter().find_map(|name| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    });
    if found.is_none() {
        crate::common::skip(&format!("{} is not installed", names[0]));
    }
    found
}

fn ran(command: &mut Command) -> Ran {
    let ran = Running::start(command).finish();
    ran.code(0);
    ran
}

/// The numbers before a function's name in a table of callgrind_annotate's, in its
/// first column, by the name.
fn annotated(text: &str) -> BTreeMap<String, u64> {
    let number = |text: &str| text.replace(',', "").parse::<u64>().ok();
    let mut costs = BTreeMap::new();
    for line in text.lines() {
        // 1,234 (50.0%)  [layer]:function [object]
        let Some(insns) = line.split_whitespace().next().and_then(number) else {
            continue;
        };
        let name = match line.split_once("]:") {
            Some((_, name)) => name.split(" [").next().unwrap().trim(),
            None if line.contains("PROGRAM TOTALS") => "PROGRAM TOTALS",
            None => continue,
        };
        costs.insert(name.to_string(), insns);
    }
    costs
}

/// Check that callgrind_annotate sees the total and each function's own and
/// inclusive cost to the instruction, of all classes, of an arm and of a direction.
#[test]
fn callgrind_annotate_agrees() {
    let Some(annotate) = tool(&["callgrind_annotate"]) else {
        return;
    };
    let place = place();
    let recording = recording();
    let all = classes(&recording);
    let of = |wanted: &dyn Fn(&ClassView<'_>) -> bool| -> Vec<ClassView<'_>> {
        all.iter().filter(|c| wanted(c)).cloned().collect()
    };
    for (words, views) in [
        ("", of(&|_| true)),
        ("--arm size=20", of(&|c| c.arm == 1)),
        ("--arm size=10 --direction tx", of(&|c| c.arm == 0 && c.class.direction == Direction::Tx)),
    ] {
        let out = place.path("callgrind.out");
        written(&place, &format!("{words} --callgrind callgrind.out"));
        let total: u64 = views.iter().map(|c| c.total).sum();
        for (mode, inclusive) in [("--inclusive=no", false), ("--inclusive=yes", true)] {
            let mut command = place.command(&annotate);
            command.args(["--threshold=100", mode]).arg(&out);
            let output = ran(&mut command);
            assert_eq!(output.stderr, "");
            let by_name = annotated(&output.stdout);
            assert_eq!(by_name["PROGRAM TOTALS"], total, "{words} {mode}");
            for (name, (own, with_callees)) in costs(&views) {
                // The second `helper` has its address in its name, and levels of
                // recursion have theirs.
                let names = by_name.iter().filter(|(n, _)| {
                    let rest = n.strip_prefix(name.as_str());
                    rest.is_some_and(|r| r.is_empty() || r.starts_with(['\'', '@']))
                });
                let sum: u64 = if inclusive {
                    // The first level includes the ones below it.
                    names.filter(|(n, _)| !n.contains('\'')).map(|(_, i)| i).sum()
                } else {
                    names.map(|(_, insns)| insns).sum()
                };
                let expected = if inclusive { with_callees } else { own };
                assert_eq!(sum, expected, "{words} {mode} {name}: {by_name:?}");
            }
        }
    }
}

/// A table of `go tool pprof -top`: flat and cumulative, by name.
fn top(text: &str) -> BTreeMap<String, (u64, u64)> {
    let rows = text.lines().skip_while(|l| !l.trim_start().starts_with("flat"));
    rows.skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |n: usize| words[n].parse::<u64>().unwrap();
            (words[5].to_string(), (number(0), number(3)))
        })
        .collect()
}

/// Check that `go tool pprof` takes the profile, and sees each function's own and
/// inclusive cost and the total, of all and of one class.
#[test]
fn go_tool_pprof_agrees() {
    let Some(go) = tool(&["go", "/usr/local/go/bin/go"]) else {
        return;
    };
    let place = place();
    let recording = recording();
    let all = classes(&recording);
    written(&place, "--pprof out.pb.gz");
    let pprof = |words: &[&str]| {
        let mut command = place.command(&go);
        // Go builds the tool the first time that it is asked for.
        command
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env("PPROF_TMPDIR", place.path("pprof"))
            .args(["tool", "pprof"])
            .args(words)
            .arg("out.pb.gz");
        ran(&mut command).stdout
    };
    let exact = ["-top", "-nodecount=0", "-nodefraction=0", "-unit=count"];
    let shown = top(&pprof(&exact));
    assert_eq!(shown, costs_by_name(&recording));
    let of_class = [&exact[..], &["-tagfocus=class=^udp tx$"]].concat();
    let shown = top(&pprof(&of_class));
    let udp_tx: Vec<ClassView<'_>> =
        all.iter().filter(|c| c.class.direction == Direction::Tx).cloned().collect();
    assert_eq!(shown, costs(&udp_tx));
    let calls = top(&pprof(&[&exact[..], &["-sample_index=calls"]].concat()));
    let expected: u64 = all
        .iter()
        .flat_map(|c| &c.functions)
        .filter(|f| recording.functions[f.function as usize].name == "walk")
        .map(|f| f.calls)
        .sum();
    assert_eq!(calls["walk"].0, expected);
    let raw = pprof(&["-raw"]);
    let total: u64 = all.iter().map(|c| c.total).sum();
    let sum: u64 = raw
        .lines()
        .skip_while(|l| !l.starts_with("Samples:"))
        .take_while(|l| !l.starts_with("Locations"))
        // calls insns: locations
        .filter_map(|l| l.split_once(':')?.0.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, total, "{raw}");
    for word in ["kernel.release: 6.1.0", "vmlinux", "veth", "context:[softirq:NET_RX]"] {
        assert!(raw.contains(word), "no {word} in {raw}");
    }
}

/// Check that each format goes to a file as to the standard output, with `-` and
/// with nothing, and that the file is an ordinary one, whole, and alone.
#[test]
fn to_a_file_and_to_the_standard_output() {
    let place = place();
    for format in ["folded", "callgrind", "speedscope", "svg", "markdown"] {
        let text = written(&place, &format!("--{format}"));
        assert!(!text.is_empty());
        assert_eq!(written(&place, &format!("--{format} -")), text);
        // Over an older one.
        place.write("out", "old");
        assert_eq!(written(&place, &format!("--{format} out")), "");
        assert_eq!(fs::read_to_string(place.path("out")).unwrap(), text);
        fs::remove_file(place.path("out")).unwrap();
    }
    written(&place, "--pprof out");
    let ran = place.plumb("report r.plumb --pprof").output().unwrap();
    assert_eq!(ran.stdout, fs::read(place.path("out")).unwrap());
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode();
    place.write("ordinary", "");
    assert_eq!(mode("out"), mode("ordinary"));
    assert_eq!(place.files(), ["ordinary", "out", "r.plumb"]);
    // A symbolic link is kept; a device or pipe is written to in place.
    std::os::unix::fs::symlink("out", place.path("link")).unwrap();
    let text = written(&place, "--folded");
    written(&place, "--folded link");
    assert!(place.path("link").is_symlink());
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), text);
    written(&place, "--folded /dev/null");
    assert_eq!(written(&place, "--folded /dev/stdout"), text);
}

/// Check that write errors are reported with their reason and leave nothing behind, and that a
/// recording is not overwritten by mistake.
#[test]
fn what_cannot_be_written() {
    let place = place();
    let before = fs::read(place.path("r.plumb")).unwrap();
    let report = |words: &str| place.run(&format!("report r.plumb {words}"));
    report("--svg nowhere/x.svg").code(1).says(&["can't write nowhere/x.svg", "No such file"]);
    report("--svg .").code(2).says(&["can't write .", "directory"]);
    report("--svg /dev/full").code(1).says(&["can't write /dev/full", "No space left"]);
    report("--folded r.plumb").code(2).says(&["r.plumb is a recording"]);
    report("--folded --svg").code(2).says(&["cannot be used with"]);
    report("--folded --json").code(2).says(&["cannot be used with"]);
    report("--markdown --tree").code(2).says(&["cannot be used with"]);
    report("--folded --arm size=30")
        .code(2)
        .says(&["no such arm `size=30`; the recording has size=10, size=20"]);
    // Nothing is measured if it couldn't be written.
    place.run("path --svg nowhere/x.svg").code(1).says(&["can't write nowhere/x.svg"]);
    assert_eq!(place.files(), ["r.plumb"]);
    assert_eq!(fs::read(place.path("r.plumb")).unwrap(), before);
}

/// Check that no binary is written to a terminal, but text is.
#[test]
fn no_binary_on_a_terminal() {
    let place = place();
    for (format, code) in [("pprof", 2), ("folded", 0)] {
        let (mut ours, mut theirs) = (0, 0);
        // SAFETY: both descriptors are written by the call; no name, settings or size.
        let opened = unsafe {
            libc::openpty(
                &mut ours,
                &mut theirs,
                std::ptr::null_mut(),
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        assert_eq!(opened, 0);
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: they were just opened, and are nobody else's.
        let (_ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let ran = place
            .plumb(&format!("report r.plumb --{format}"))
            .stdout(Stdio::from(theirs))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(stderr.contains("--pprof out.pb.gz"), code == 2, "{stderr}");
    }
}

/// Check that `plumb path` writes its results in the same format.
#[test]
fn of_what_was_just_measured() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("path --link lo --packets 20 --blocks 2 -o r.plumb --folded stacks.folded").code(0);
    let text = fs::read_to_string(place.path("stacks.folded")).unwrap();
    assert_eq!(text, written(&place, "--folded"));
    let recording = place.recording("r.plumb");
    let total: u64 = classes(&recording).iter().map(|c| c.total).sum();
    let counts = text.lines().map(|l| l.rsplit_once(' ').unwrap().1);
    assert_eq!(counts.map(|n| n.parse::<u64>().unwrap()).sum::<u64>(), total);
}

/// The script of docs/guide/ci.md, with an experiment of this text.
fn compare(place: &Place, experiment: &str, before: &str, after: &str, limit: &str) -> Ran {
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/ci"));
    place.write("small.toml", experiment);
    let mut command = place.command("sh");
    command
        .arg(docs.join("compare.sh"))
        .args([before, after])
        .env("PLUMB", env!("CARGO_BIN_EXE_plumb"))
        .env("EXPERIMENT", place.path("small.toml"))
        .env("LIMIT", limit)
        .env_remove("OUT");
    Running::start(&mut command).finish()
}

/// Check that the guide's script exits with 0 for a kernel and itself, with 4 for a slower one, and
/// with the failed command's code otherwise, and leaves the comment to post.
#[test]
fn the_script_for_ci() {
    const CHEAP: &str = r#"
        name = "ci"
        workload = { packets = 20 }
        blocks = { count = 2 }
        [knobs]
        kernel = "@KERNEL@"
        link = "lo"
    "#;
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let same = compare(&place, CHEAP, "debian", "debian", "0%");
    same.code(0);
    let files = ["after.plumb", "before.plumb", "diff.md"];
    let left = || {
        let mut names: Vec<String> = fs::read_dir(place.path("plumb-out"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(left(), files);
    let comment = || fs::read_to_string(place.path("plumb-out/diff.md")).unwrap();
    assert!(same.stdout.ends_with(&comment()), "{same:#?}");

    // The earlier recording is taken as it is, and the new one costs more.
    let dear = CHEAP.replace("link =", "mitigations = true\nlink =");
    let worse = |limit: &str| compare(&place, &dear, "plumb-out/before.plumb", "debian", limit);
    worse("0.1%").code(4).says(&["worse by more than 0.1%"]);
    assert_eq!(left(), files);
    assert!(comment().contains("UDP send"), "{}", comment());

    worse("10%").code(0);

    compare(&place, CHEAP, "nowhere.deb", "debian", "1%").code(2);
    compare(&place, "name = 1", "debian", "debian", "1%").code(2);
    let usage = compare(&place, CHEAP, "debian", "", "1%");
    assert_ne!(usage.status.code(), Some(0));
    place.nothing_runs();
}

/// Check that the experiment of the guide is one, once the kernel is put in.
#[test]
fn the_experiment_for_ci() {
    let text = include_str!("../../../../docs/guide/ci/experiment.toml");
    let text = text.replace("@KERNEL@", "debian");
    let experiment = netplumb_model::experiment::Experiment::parse(&text).unwrap();
    let arms = experiment.arms();
    assert_eq!(arms.len(), 2);
    assert!(arms.iter().all(|a| a.knobs["kernel"] == "debian"));
}
