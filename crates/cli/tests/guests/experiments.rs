//! Experiments whose arms differ in more than the workload: rules, settings, offloads, modules,
//! seeds; and the experiment files that come with the program.

// Also in what is no test itself.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Place, Ran, Running};
use netplumb_kernel::layers::LAYERS;
use netplumb_model::class::{Context, Direction, Link, Proto, Softirq};
use netplumb_model::experiment::{Experiment, Kind, Lab};
use netplumb_model::recording::{Arm, Recording};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
}

/// Whether rules can be loaded; prints a note if not.
fn has_nft() -> bool {
    let found =
        ["/usr/sbin/nft", "/usr/bin/nft", "/sbin/nft"].iter().any(|path| Path::new(path).exists());
    if !found {
        crate::common::skip("nft is not installed: apt-get install nftables");
    }
    found && crate::common::has_guests()
}

/// Run an experiment file of this text.
fn run(place: &Place, text: &str) -> Ran {
    place.write("x.toml", text);
    place.run("run -q x.toml")
}

/// Instructions of every function of one arm, in the contexts that must be the same
/// in every run, per block.
fn steady(recording: &Recording, arm: &str) -> BTreeMap<(Direction, String), u64> {
    let arm = recording.arms.iter().position(|a| a.name == arm).unwrap();
    let mut sums = BTreeMap::new();
    for cost in &recording.costs {
        let of_arm = recording.blocks[cost.block as usize].arm as usize == arm;
        let steady = matches!(cost.context, Context::Task | Context::Softirq(Softirq::NetRx));
        if of_arm && steady && cost.direction != Direction::Other {
            let node = &recording.nodes[cost.node as usize];
            let name = recording.functions[node.function as usize].name.clone();
            *sums.entry((cost.direction, name)).or_default() += cost.own;
        }
    }
    sums
}

/// Every experiment that comes with the program; there are patches besides.
fn experiments() -> Vec<PathBuf> {
    let entries = fs::read_dir(shipped("")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect()
}

/// Check that every experiment that comes with the program is well-formed, named after
/// its file, asks something, and ends in a conclusion or a scan's sentence.
#[test]
fn shipped_files() {
    let mut names = Vec::new();
    for path in experiments() {
        let text = fs::read_to_string(&path).unwrap();
        let experiment = Experiment::parse(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        experiment.check_layers(&text, LAYERS).unwrap();
        let written = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&written), Ok(experiment.clone()), "{written}");
        assert_eq!(path.file_stem().unwrap(), experiment.name.as_str());
        assert!(!experiment.title.is_empty() && experiment.question.contains('?'));
        let scans = experiment.scan.is_some();
        assert!(scans || !experiment.claims.is_empty(), "{path:?}");
        names.push(experiment.name);
    }
    names.sort();
    assert_eq!(
        names,
        [
            "architectures",
            "counts-and-times",
            "ip-layer",
            "ipv6",
            "jumbo",
            "kernels",
            "knapsack",
            "knapsack-arm64",
            "knapsack-time",
            "links",
            "mitigations",
            "moderation",
            "moderation-latency",
            "nft-rules",
            "offload",
            "offload-turns",
            "packet-size",
            "readahead",
            "readahead-queue",
            "socket-buffers",
            "sysctl-scan",
            "usbnet-review",
            "veth-queues",
            "veth-times",
            "web-offload",
            "who-should-work",
            "who-should-work-latency",
            "xdp-paper"
        ]
    );
}

/// Check the planted change: every rule that never matches adds the same number of
/// instructions to the evaluation loop, to the instruction, up to a thousand; no other
/// function of a send changes with their number, and none of receiving at all.
#[test]
fn rules_that_never_match() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let mut command = place.plumb("run -q");
    let ran = Running::start(command.arg(shipped("nft-rules.toml"))).finish();
    ran.code(0);
    let recording = place.recording("nft-rules.plumb");
    let packets = u64::from(Experiment::parse(&recording.experiment_toml).unwrap().block_count())
        * recording.blocks[0].ledger.offered;
    let counts = [1_u64, 2, 10, 100, 1_000];
    let arms: Vec<BTreeMap<_, u64>> = counts
        .iter()
        .map(|n| match n {
            1 => steady(&recording, "1 rule"),
            1_000 => steady(&recording, "1,000 rules"),
            n => steady(&recording, &format!("{n} rules")),
        })
        .collect();
    let in_the_loop = (Direction::Tx, "nft_do_chain".to_string());
    let per_rule = arms[1][&in_the_loop] - arms[0][&in_the_loop];
    assert!(per_rule > 0 && per_rule.is_multiple_of(packets), "{per_rule}");
    for (n, arm) in counts.iter().zip(&arms) {
        assert_eq!(arm[&in_the_loop], arms[0][&in_the_loop] + (n - 1) * per_rule, "{n} rules");
        for (key, insns) in arm {
            let first = arms[0].get(key);
            assert!(*key == in_the_loop || first == Some(insns), "{n} rules: {key:?}");
        }
        assert_eq!(arm.len(), arms[0].len(), "{n} rules");
    }
    let receiving = |name: &str| {
        let mut costs = steady(&recording, name);
        costs.retain(|(direction, _), _| *direction == Direction::Rx);
        costs
    };
    for arm in ["0 rules", "a set of 1,000"] {
        assert_eq!(receiving(arm), receiving("1,000 rules"), "{arm}");
    }
    // The rules were read back.
    let arm = recording.arms.iter().position(|a| a.name == "1,000 rules");
    let notes = &recording.notes[&(arm.unwrap() as u32)];
    assert_eq!(notes.facts["nft.rules"], "1000");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = format!(
        "+ {} for each rule, to the instruction, from 1 to 1,000. udp rx with 0 rules, 1 rule",
        per_rule / packets
    );
    assert!(text.contains(&sentence), "no `{sentence}` in:\n{}", ran.stdout);
    assert!(!text.contains("fails:"), "{}", ran.stdout);
}

/// Check that arms with knobs of every kind give the same counts in a second run, and that a knob
/// without effect is reported as such.
#[test]
fn the_same_knobs_twice() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    place.write("rules.nft", "table inet t {\n  chain c {\n    type filter hook input priority 0;\n    udp dport 9 counter drop\n  }\n}\n");
    const TEXT: &str = "name = \"x\"\n[workload]\npackets = 50\n[blocks]\ncount = 2\n\
        [[arm]]\nname = \"sysctl\"\nknobs.sysctl.\"net.ipv4.ip_early_demux\" = \"0\"\n\
        [[arm]]\nname = \"offload\"\nknobs.offload = { tx-checksum = \"off\", gso = \"on\" }\n\
        [[arm]]\nname = \"rules\"\nknobs.nft = { file = \"rules.nft\" }\nknobs.nft_in = \"rx\"\n\
        [[arm]]\nname = \"set\"\nknobs.nft = { set = 20, match = \"port\" }\n\
        [[arm]]\nname = \"first\"\nknobs.sysctl.\"net.core.dev_weight\" = \"65\"\n\
        [[claim]]\nkind = \"ranking\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n";
    let mut recordings = Vec::new();
    for _ in 0..2 {
        let ran = run(&place, TEXT);
        ran.code(0);
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("no effect gso of tx0 was already on"), "{text}");
        recordings.push(place.recording("x.plumb"));
    }
    for arm in &recordings[0].arms {
        let (one, other) = (steady(&recordings[0], &arm.name), steady(&recordings[1], &arm.name));
        assert!(one.len() > 50, "{}: {}", arm.name, one.len());
        assert_eq!(one, other, "{}", arm.name);
    }
    // The purpose of each: it changes what it is about.
    let all = |arm: &str, direction: Direction| -> u64 {
        let costs = steady(&recordings[0], arm);
        let of = costs.iter().filter(|((d, _), _)| *d == direction);
        of.map(|(_, insns)| insns).sum()
    };
    let (tx, rx) = (Direction::Tx, Direction::Rx);
    assert!(all("rules", rx) > all("first", rx));
    assert!(all("set", tx) > all("first", tx));
    assert!(all("sysctl", rx) > all("first", rx));
    // Computed while it is copied, or left to a device that never does it.
    assert_ne!(all("offload", tx), all("first", tx));
}

/// Whether some instructions of an arm depend on random numbers (docs/limits.md): a usb-net's on a
/// busy host, and TCP's where it reads clocks.
fn may_differ(arm: &Arm) -> bool {
    arm.link == Link::UsbNet || arm.proto == Proto::Tcp
}

/// Experiments of more arms are run twice by `make soak`.
const FEW_ARMS: usize = 8;

/// Check that every experiment that comes with the program gives the same counts in a second run,
/// in every arm, and that comparing the two finds no difference. A scan has hundreds of arms: it
/// has its own test, with a few settings. The rates of a bench are never the same twice.
#[test]
fn shipped_experiments_twice() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let mut compared = 0;
    for path in experiments() {
        let text = fs::read_to_string(&path).unwrap();
        let experiment = Experiment::parse(&text).unwrap();
        let counts = experiment.lab == Lab::Vm && experiment.workload.kind == Kind::Packets;
        if !counts || experiment.instruments.iter().flatten().any(|i| i != "exact") {
            continue;
        }
        let missing = |k: &&str| !place.run(&format!("kernel show {k}")).status.success();
        let kernels = experiment.vary.get("kernel");
        if let Some(kernel) = kernels.into_iter().find(missing) {
            crate::common::tell(&format!("{}: there is no {kernel}", experiment.name));
            continue;
        }
        if experiment.scan.is_some() {
            continue;
        }
        // Experiments with many arms take minutes, twice.
        if experiment.arms().len() > FEW_ARMS && !netplumb_testkit::is_soak() {
            continue;
        }
        place.write("x.toml", fs::read(&path).unwrap());
        let recordings = ["one", "other"].map(|name| {
            let ran = place.run(&format!("run -q --seeds 1 x.toml -o {name}"));
            ran.code(0);
            place.recording(name)
        });
        for arm in &recordings[0].arms {
            let [one, other] = recordings.each_ref().map(|r| steady(r, &arm.name));
            assert!(one.len() > 50, "{}, {}", experiment.name, arm.name);
            let differs: Vec<_> = one.iter().filter(|(k, v)| other.get(k) != Some(v)).collect();
            let lost = other.len() != one.len();
            let alike = if may_differ(arm) {
                let sum = |of: &BTreeMap<_, u64>| of.values().sum::<u64>() as f64;
                (sum(&one) / sum(&other) - 1.0).abs() < 0.001
            } else {
                differs.is_empty() && !lost
            };
            assert!(alike, "{}, {}: {differs:?}", experiment.name, arm.name);
            compared += 1;
        }
        let luck = recordings[0].arms.iter().any(may_differ);
        let limit = if luck { "0.1%" } else { "0%" };
        let diff = place.run(&format!("diff --fail-if-worse {limit} one other"));
        diff.code(0);
        let sentences = || diff.stdout.lines().filter(|l| l.contains(" per packet, "));
        assert!(sentences().count() > 1, "{}", diff.stdout);
        let may = |line: &str| line.contains("usb-net") || line.contains("tcp");
        let differs = sentences().find(|l| !l.contains(", no difference") && !may(l));
        assert_eq!(differs, None, "{}", experiment.name);
    }
    let least = match netplumb_testkit::is_soak() {
        true => 20,
        false => 8,
    };
    assert!(compared > least, "only {compared} arms");
}

/// Check that a knob that can't be set is reported, with the reason, and leaves nothing behind.
#[test]
fn knobs_that_cannot_be_turned() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let refused = |knobs: &str, code: i32, words: &[&str]| {
        let text = format!("name = \"x\"\n[workload]\npackets = 10\n[knobs]\n{knobs}\n");
        run(&place, &text).code(code).says(words);
        place.nothing_runs();
        assert_eq!(place.files(), ["x.toml"]);
    };
    refused("sysctl.\"net.core.no_such\" = \"1\"", 3, &["net.core.no_such", "no such sysctl"]);
    refused(
        "sysctl.\"net.ipv4.tcp_available_ulp\" = \"x\"",
        3,
        &["tcp_available_ulp", "can't be written"],
    );
    refused(
        "sysctl.\"net.ipv4.ip_early_demux\" = \"-7\"",
        2,
        &["ip_early_demux", "rejected this value"],
    );
    refused("nft = \"table ip t {\\n  nonsense\\n}\"", 1, &["nft says", "line 2:"]);
    refused("nft = { file = \"gone.nft\" }", 1, &["gone.nft", "can't read the nftables rules"]);
    refused("module = \"gone.ko\"", 1, &["gone.ko", "can't read the module"]);
    refused(
        "link = \"lo\"\noffload = { tx-checksum = \"off\" }",
        3,
        &["tx-checksum of lo", "not supported by the driver"],
    );
}

/// Check that a module's file takes the place of the kernel's own, and that one that is
/// built for another kernel is refused before a guest boots.
#[test]
fn a_module_of_ones_own() {
    let Ok(kernel) = crate::common::kernel() else {
        crate::common::has_guests();
        return;
    };
    let place = Place::new();
    let tree = kernel.module_tree().unwrap();
    let veth = tree.find("veth").unwrap().read().unwrap();
    place.write("veth.ko", &veth);
    const TEXT: &str = "name = \"x\"\n[workload]\npackets = 10\n[knobs]\nmodule = \"veth.ko\"\n";
    run(&place, TEXT).code(0);
    assert_eq!(
        place.recording("x.plumb").arms[0].knobs["module"],
        place.path("veth.ko").display().to_string()
    );
    fs::remove_file(place.path("x.plumb")).unwrap();

    let vermagic = format!("vermagic={}", kernel.release);
    let find = |bytes: &[u8]| veth.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let mut other = veth.clone();
    other[find(vermagic.as_bytes()) + "vermagic=".len()] = b'9';
    place.write("veth.ko", &other);
    let of_another = ["veth.ko", "built for kernel 9", &kernel.release];
    run(&place, TEXT).code(1).says(&of_another);

    // Under another licence it lacks the symbols that are for the GPL only.
    let mut touched = veth.clone();
    touched[find(b"license=") + "license=".len()] = b'X';
    place.write("veth.ko", &touched);
    let why = ["veth.ko", "does not load", "Unknown symbol"];
    run(&place, TEXT).code(1).says(&why);
    assert_eq!(place.files(), ["veth.ko", "x.toml"]);
    place.nothing_runs();
}

/// Check that a scan finds the setting that changes a path's cost and the one that breaks it, and
/// continues after that.
#[test]
fn a_scan_of_few_settings() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = run(
        &place,
        "name = \"x\"\n[workload]\npackets = 20\nwarmup_packets = 20\n[blocks]\ncount = 1\n\
         [scan]\nsysctl = [\"net.ipv4.ip_early_demux\", \"net.ipv4.udp_early_demux\", \
         \"net.ipv4.tcp_sack\", \"net.ipv4.tcp_congestion_control\"]\n",
    );
    ran.code(0);
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "net.ipv4.ip_early_demux: 1 to 0",
        "net.ipv4.udp_early_demux: 1 to 0",
        "its value is a word (1): net.ipv4.tcp_congestion_control",
        "In short: Of 3 settings, 2 change what a packet costs, none breaks the path, and 1 does nothing (of which 1 could not act here); 1 more was not tried.",
    ] {
        assert!(text.contains(words), "no `{words}` in:\n{}", ran.stdout);
    }
    // The recording alone gives the same output.
    assert_eq!(place.run("report x.plumb").stdout, ran.stdout);
}

/// Check that arms repeated with other seeds are shown as a spread, next to the tables of the
/// first.
#[test]
fn other_seeds() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run("path --link lo --packets 20 --blocks 1 --seeds 2 -q");
    ran.code(0);
    let has = |words: &str| ran.stdout.contains(words);
    assert!(has("under 2 random seeds") && !has("seed=2"), "{}", ran.stdout);
    let recording = place.recording("path.plumb");
    assert_eq!(recording.arms.len(), 2);
    assert_eq!(recording.arms[1].repeats(), Some("udp"));
    place.run("path --seeds 0").code(2);
}

/// Check that packets dropped by a rule are a cause in the ledger: no counter of the guest has
/// them, so the block closes by what netfilter freed.
#[test]
fn a_rule_that_drops_is_a_cause() {
    if !crate::common::has_guests() || !has_nft() {
        return;
    }
    let place = Place::new();
    place.write(
        "drops.toml",
        r#"
name = "drops"
[workload]
packets = 40
[blocks]
count = 1
[knobs]
proto = "udp"
link = "veth"
nft_in = "rx"
nft = "table ip t { chain c { type filter hook input priority 0; meta l4proto udp numgen inc mod 4 0 drop; }; }"
"#,
    );
    place.run("run drops.toml -q -o drops.plumb").code(0);
    let recording = place.recording("drops.plumb");
    let ledger = &recording.blocks[0].ledger;
    assert!(ledger.closes(), "{ledger:?}");
    let (cause, dropped) = ledger.dropped.iter().next().unwrap();
    assert!(cause.contains("netfilter"), "{ledger:?}");
    assert_eq!(*dropped, 10, "{ledger:?}");
}
