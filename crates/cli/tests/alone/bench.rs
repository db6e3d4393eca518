//! `plumb bench`: every packet is accounted for, on every path; invalid requests; and leftovers
//! when it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Ran, Running, skip};
use netplumb_testkit::{has_root, mostly};
use serde_json::Value;

/// Benches take turns: each would disturb the other, and they would send from the same CPU. None
/// where benches can't run.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    has_root().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What every run here has: short blocks, and figures for programs.
const SHORT: &str = "--blocks 1 --time 150ms --warmup 50ms --json --quiet";

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
}

fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let mut arms = document["arms"].as_array().unwrap().iter();
    arms.find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("no arm {name}: {document:#}"))
}

/// Check that an arm has a block that counts, with enough packets, all accounted for.
fn closes(arm: &Value) {
    assert_eq!(arm["hops"].as_array().unwrap().len(), 2, "{arm:#}");
    assert!(crate::common::closes(arm) > 1_000, "{arm:#}");
}

/// Check that packets sent by several CPUs arrive on as many receive queues, evenly spread, where
/// the driver has per-queue counters.
fn spread(arm: &Value) {
    let cores: usize = arm["knobs"]["cores"].as_str().unwrap().parse().unwrap();
    let queues = arm["queues"].as_object().unwrap();
    let queues: Vec<u64> = queues.values().map(|n| n.as_u64().unwrap()).collect();
    if queues.is_empty() {
        return;
    }
    assert_eq!(queues.len(), cores, "{arm:#}");
    // Others may have one of the CPUs for themselves for a while.
    let all: u64 = queues.iter().sum();
    assert!(queues.iter().all(|n| n * 20 > all), "{arm:#}");
}

/// Check that every path that can run here accounts for every packet, and that the others report
/// why they can't.
#[test]
fn as_root_every_packet_is_somewhere() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    for (bench, must) in [
        ("drop", &["xdp", "xdp-skb", "tc", "nft-raw", "nft-conntrack", "socket"][..]),
        ("forward", &["xdp-tx", "xdp-redirect", "route", "bridge"]),
    ] {
        let ran = place.run(&format!("bench {bench} {SHORT}"));
        let document = document(ran.code(0));
        for one in document["arms"].as_array().unwrap() {
            let name = one["name"].as_str().unwrap();
            match one["failed"].as_str() {
                Some(why) if must.contains(&name) => panic!("{name}: {why}"),
                Some(why) => assert!(why.len() > 10, "{name}: {why}"),
                None => closes(one),
            }
        }
        // The recording has the same.
        let file = format!("bench-{bench}.plumb");
        let again = place.run(&format!("report {file} --json"));
        assert_eq!(document["arms"], self::document(again.code(0))["arms"]);
        let text = place.run(&format!("report {file}"));
        crate::common::prints(text.code(0), &["packets/s", must[0], "CPUs busy"]);
        let csv = place.run(&format!("report {file} --csv"));
        let mut reader = csv::Reader::from_reader(csv.code(0).stdout.as_bytes());
        assert!(reader.records().all(|r| r.is_ok()));
    }
    place.nothing_runs();
}

/// Check other frames: IPv6, TCP and ICMP, long ones and a mix, many flows, and a rate; also on all
/// CPUs.
#[test]
fn as_root_frames_of_all_kinds() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    for (words, arms) in [
        ("drop --path xdp,nft-raw --family ipv6 --size 78", 2),
        ("drop --path xdp,nft-raw --frames tcp-syn --size imix", 2),
        ("drop --path tc --frames icmp --size 98,1514", 2),
        ("drop --path xdp --flows 1,10000 --cores 1,2", 4),
        ("drop --path xdp --rate 20k,200k", 2),
        ("drop --path xdp,nft-raw --rate 50k --apart", 2),
        ("forward --path xdp-tx,route --family ipv6 --flows 100 --size 62", 2),
    ] {
        if words.contains("--cores 1,2") || words.contains("--apart") {
            let cpus = std::thread::available_parallelism().unwrap().get();
            if cpus < 2 {
                skip("one CPU: nothing on several");
                continue;
            }
        }
        let ran = place.run(&format!("bench {words} {SHORT} --output one.plumb"));
        let document = document(ran.code(0));
        let all = document["arms"].as_array().unwrap();
        assert_eq!(all.len(), arms, "{words}");
        all.iter().for_each(closes);
        all.iter().for_each(spread);
    }
    place.nothing_runs();
}

/// Check that frames over IPv6 are as long as they have to be where no size is asked for.
#[test]
fn as_root_the_shortest_frames() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    for (words, size) in [
        ("--family ipv6", "62"),
        ("--family ipv6 --frames tcp-syn", "74"),
        ("--family ipv6 --latency", "78"),
        ("--family ipv4", "60"),
    ] {
        let ran = place.run(&format!("bench drop --path xdp {words} {SHORT}"));
        let document = document(ran.code(0));
        let arm = arm(&document, "xdp");
        closes(arm);
        assert_eq!(arm["knobs"]["size"], size, "{words}");
    }
    let help = place.run("bench drop --help");
    let words: Vec<&str> = help.code(0).stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("62 over IPv6"), "{help:#?}");
}

/// Check that CPU time a packet is how long CPUs were busy, by the rate, on every path; and
/// that packets which the kernel does not count by CPU are under no CPU's number.
#[test]
fn as_root_cpu_time_adds_up() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let paths = ["xdp", "nft-raw", "tc"];
    let words = paths.join(",");
    let ran = place.run(&format!("bench drop --path {words} {SHORT}"));
    assert!(!ran.code(0).stdout.contains("4294967295"), "{ran:#?}");
    let document = document(&ran);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{document:#}"));
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
    for name in paths {
        let arm = arm(&document, name);
        let cpus = arm["cpus"].as_array().unwrap().iter();
        let busy: f64 = cpus.map(|cpu| number(&cpu["busy"])).sum();
        let wall = number(&arm["wall_ns_per_packet"]);
        assert!(near(wall, 1e9 / number(&arm["handled_pps"]["mean"])), "{arm:#}");
        assert!(near(number(&arm["cpu_ns_per_packet"]), wall * busy), "{arm:#}");
    }
    for block in document["blocks"].as_array().unwrap() {
        let by_cpu = block["handled_packets"].as_object().unwrap();
        let unknown = block["handled_packets_cpu_unknown"].as_u64().unwrap();
        let is_nft = document["arms"][block["arm"].as_u64().unwrap() as usize]["name"] == "nft-raw";
        assert_eq!((is_nft, by_cpu.is_empty()), (unknown > 0, unknown > 0), "{block:#}");
    }
    let again = place.run("report bench-drop.plumb --all");
    crate::common::prints(again.code(0), &["CPU ns/packet", "xdp: 1 valid block", " in, "]);
}

/// Check that testpmd accounts for every packet by one queue and by two: on veth it takes one queue
/// by AF_XDP, and two by packet sockets, which get copies of what the kernel would also handle.
#[test]
fn as_root_testpmd_by_queues() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip("one CPU: nothing on several");
        return;
    }
    for bench in ["drop", "forward"] {
        let words = "--path dpdk --cores 1,2 --rate 20k";
        let ran = place.run(&format!("bench {bench} {words} {SHORT}"));
        if ran.stdout.contains("apt-get install dpdk-dev") {
            skip("dpdk-testpmd is not installed");
            return;
        }
        let document = document(ran.code(0));
        let all = document["arms"].as_array().unwrap();
        assert_eq!(all.len(), 2);
        all.iter().for_each(closes);
    }
    place.nothing_runs();
}

/// Check that latencies belong to the packets that were handled.
#[test]
fn as_root_latency() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let ran = place.run(&format!("bench forward --path xdp-redirect --latency --rate 50k {SHORT}"));
    let document = document(ran.code(0));
    let arm = arm(&document, "xdp-redirect");
    closes(arm);
    let latency = &arm["latency"];
    let buckets = latency["buckets"].as_array().unwrap().iter();
    let sum: u64 = buckets.map(|b| b[1].as_u64().unwrap()).sum();
    assert_eq!(latency["count"], sum);
    assert!(sum > 1_000, "{latency}");
}

/// Check that a broken lab yields no rate, whatever the generator counts: every block is invalid
/// with a reason, or the path is reported as impossible.
#[test]
fn as_root_phantoms() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    for (words, fault, code, said) in [
        ("drop --path nft-raw", "no-napi", 1, &["none of"][..]),
        ("drop --path socket", "no-napi", 1, &["none of"]),
        ("drop --path xdp", "full-ring", 1, &["ring", "--rate"]),
        ("drop --path nft-raw", "wrong-mac", 1, &["OTHERHOST"]),
        ("forward --path route", "wrong-mac", 1, &["OTHERHOST"]),
        ("forward --path route", "ttl", 1, &["TTL"]),
        ("forward --path route --family ipv6", "ttl", 1, &["TTL"]),
        ("drop --path xdp", "mtu", 3, &["MTU"]),
        ("forward --path xdp-redirect", "mtu", 3, &["MTU"]),
        ("drop --path xdp", "ttl", 3, &["the fault has no effect on xdp"]),
    ] {
        let ran = place.run(&format!("bench {words} --plant {fault} {SHORT} -o x.plumb"));
        let document = document(ran.code(code));
        let arm = &document["arms"][0];
        assert_eq!(arm["handled_pps"], Value::Null, "{words} {fault} {arm:#}");
        let report = match code {
            1 => place.run("report x.plumb").stdout,
            _ => arm["failed"].as_str().unwrap_or_default().to_string(),
        };
        let line: Vec<&str> = report.split_whitespace().collect();
        let line = line.join(" ");
        let missing: Vec<_> = said.iter().filter(|word| !line.contains(**word)).collect();
        assert!(missing.is_empty(), "{words} {fault}: {missing:?} not in\n{report}");
        assert_eq!(line.contains("invalid"), code == 1, "{report}");
    }
    place.nothing_runs();
}

/// Check that a path without a valid block is worse than one with: `--fail-if-worse` exits
/// with 4.
#[test]
fn as_root_a_path_that_died() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let words = format!("bench drop --path nft-raw {SHORT}");
    place.run(&format!("{words} -o before.plumb")).code(0);
    let after = format!("{words} --plant no-napi -o after.plumb");
    place.run(&after).code(1);
    let diff = "diff before.plumb after.plumb";
    place.run(diff).code(0);
    place
        .run(&format!("{diff} --fail-if-worse 5%"))
        .code(4)
        .says(&["nft-raw", "no valid block in AFTER"]);
    place.nothing_runs();
}

/// Check that an unsafe program is rejected by the verifier, with the source line; that a user's
/// own safe program is accepted; and that a file that isn't a program is reported.
#[test]
fn as_root_unsafe_programs() {
    let place = Place::new();
    place.write("text.o", "no object");
    let Some(_turn) = turn() else { return };
    let said = ["rejected the program", "invalid access to packet", "data[23]", "unsafe.bpf.c:"];
    crate::common::prints(place.run("bench verify").code(0), &said);
    place.run("bench verify text.o").code(1).says(&["text.o"]);
    place.run("bench verify none.o").code(1).says(&["none.o"]);
    place.write(
        "two.c",
        r#"
#include <linux/bpf.h>
__attribute__((section("xdp"), used)) int good(struct xdp_md *ctx) { return XDP_PASS; }
__attribute__((section("xdp"), used)) int bad(struct xdp_md *ctx)
{
	return *(char *)(long)ctx->data;
}
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"#,
    );
    let flags = "-target bpf -O2 -g -idirafter /usr/include/x86_64-linux-gnu -c two.c -o two.o";
    let mut clang = Command::new("clang");
    clang.args(flags.split(' ')).current_dir(place.path(""));
    assert!(clang.status().is_ok_and(|s| s.success()));
    let ran = place.run("bench verify two.o");
    crate::common::prints(ran.code(1), &["`good`: accepted", "`bad`", "ctx->data", "two.c:"]);
}

/// The verdicts of `plumb diff` on the arms of a recording, by name.
fn verdicts(place: &Place, recording: &str) -> BTreeMap<String, (String, f64)> {
    let ran = place.run(&format!("diff {recording} --json"));
    let rates = document(ran.code(0))["rates"].clone();
    let rows = rates.as_array().unwrap().iter().map(|row| {
        let grown_ns = row["after_ns"].as_f64().unwrap() - row["before_ns"].as_f64().unwrap();
        let word = |key: &str| row[key].as_str().unwrap().to_string();
        assert_eq!(row["interleaved"], true);
        (word("name"), (word("verdict"), grown_ns))
    });
    rows.collect()
}

/// Check that the same against the same shows no difference, except in one try of twenty.
#[test]
fn as_root_the_same_against_the_same() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let (mut alike, mut report) = (0, String::new());
    let tries = netplumb_testkit::tries(4);
    for _ in 0..tries {
        let words = "drop --path xdp,nft-raw --twice --blocks 6 --time 40ms --warmup 10ms";
        place.run(&format!("bench {words} --quiet -o a.plumb")).code(0);
        let mut all = verdicts(&place, "a.plumb");
        all.retain(|name, _| name.ends_with(" again"));
        assert_eq!(all.len(), 2, "{all:?}");
        all.retain(|_, (verdict, _)| verdict != "no_difference_seen");
        alike += usize::from(all.is_empty());
        report += &format!("{all:?}\n");
    }
    crate::common::tell(&format!("{alike} of {tries} tries saw no difference"));
    // One in twenty is the promise: of few tries one may be among them.
    let may_differ = (tries / 20).max(1);
    assert!(alike + may_differ >= tries, "{alike} of {tries}\n{report}");
}

/// Check that lookups planted in the path are detected, and that a quarter of them costs a quarter. They take several
/// times as long as the path without them, so that even a busy machine shows them; what a single one costs, only a
/// quiet machine can show (benches/rates.rs).
#[test]
fn as_root_planted_lookups() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    mostly(2, 3, || {
        let words = "drop --path xdp --lookups 0,16,64 --blocks 10 --time 60ms --warmup 10ms";
        place.run(&format!("bench {words} --quiet -o l.plumb")).code(0);
        let all = verdicts(&place, "l.plumb");
        let of = |n: u32| {
            let mut rows = all.iter();
            let name = format!("lookups={n}");
            let row = rows.find(|(row, _)| row.ends_with(&name)).unwrap().1;
            (row.0 == "slower", row.1)
        };
        let ((few_seen, few_ns), (many_seen, many_ns)) = (of(16), of(64));
        let ratio = 4.0 * few_ns / many_ns;
        let message = format!(
            "a lookup: {:.1} ns by 16 (found: {few_seen}), {:.1} by 64 (found: {many_seen})",
            few_ns / 16.0,
            many_ns / 64.0
        );
        match few_seen && many_seen && (0.5..2.0).contains(&ratio) {
            true => Ok(message),
            false => Err(message),
        }
    });
}

/// Check that invalid requests are refused with advice, and that nothing is created.
#[test]
fn what_cannot_be_asked() {
    let place = Place::new();
    for (words, said) in [
        ("bench", &["drop", "forward"][..]),
        ("bench drop --path route", &["route", "xdp", "socket"]),
        ("bench drop --path xpd", &["xpd", "xdp"]),
        ("bench drop --size 59", &["60 to 1514"]),
        ("bench drop --rate 0", &["250k"]),
        ("bench drop --rate fast", &["max"]),
        ("bench drop --cores 0", &["cores"]),
        ("bench drop --flows 0", &["flows"]),
        ("bench drop --batch 257", &["256"]),
        ("bench drop --time soon", &["500ms"]),
        ("bench drop --csv --json", &["--json"]),
        ("bench drop --all --json", &["--all"]),
        ("bench drop --path tc --lookups 1", &["lookups", "xdp"]),
        ("bench drop --link e1000", &["--lab vm", "--nic"]),
        ("bench drop --lab vm --link e1000 --explain", &["explain", "veth"]),
        ("bench drop --lab vm --link lo", &["e1000", "virtio-net"]),
        ("bench drop --path xdp,tc --multi-buffer", &["multi-buffer", "xdp-skb"]),
        ("bench drop --plant rain", &["no-napi", "wrong-mac"]),
    ] {
        place.run(words).code(2).says(said);
    }
    assert_eq!(place.files(), [""; 0]);
    if has_root() {
        let many = place.run("bench drop --path xdp --cores 1000");
        many.code(2).says(&["1000 CPUs", "--cores"]);
        let short = place.run("bench drop --path xdp --family ipv6 --size 60 --quiet");
        assert!(!short.status.success(), "{short:#?}");
        assert!((short.stdout + &short.stderr).contains("62"));
    }
}

/// Check that a file's figures and claims are reported, and its mistakes with their lines.
#[test]
fn as_root_a_file_with_figures() {
    let place = Place::new();
    let file = r#"
name = "small"
lab = "netns"
[workload]
kind = "frames"
[blocks]
count = 3
time = "100ms"
warmup = "50ms"
[[figure]]
name = "1"
title = "Drops"
x = "cores"
y = "handled"
vary.path = ["xdp", "nft-conntrack"]
published = [{ label = "XDP elsewhere", x = 1, y = 24e6 }]
[[claim]]
kind = "faster"
says = "XDP is ahead"
figure = "1"
path = "xdp"
than = "nft-conntrack"
"#;
    place.write("wrong.toml", file.replace("\"xdp\", ", "\"route\", "));
    let wrong = place.run("run wrong.toml");
    wrong.code(2).says(&["line 15", "route"]);
    place.write("small.toml", file);
    for flag in ["--resume", "--seeds 2", "--cold", "--tree", "--folded"] {
        let refused = place.run(&format!("run small.toml {flag}"));
        refused.code(2).says(&["bench"]);
    }
    let Some(_turn) = turn() else { return };
    let ran = place.run("run small.toml --quiet");
    // Whether it holds, only a calm machine can show.
    let words = ["figure 1: Drops", "XDP elsewhere", "24.00 M", "XDP is ahead"];
    crate::common::prints(ran.code(0), &words);
    let again = place.run("report small.plumb");
    assert_eq!(again.code(0).stdout, ran.stdout);
    // And two of its arms, compared.
    let diff = place.run("diff small.plumb:xdp small.plumb:nft-conntrack");
    crate::common::prints(diff.code(0), &["xdp to nft-conntrack", "ns before"]);
    let markdown = place.run("diff --markdown small.plumb");
    crate::common::prints(markdown.code(0), &["| `xdp to nft-conntrack` |"]);
    let csv = place.run("diff --csv small.plumb");
    crate::common::prints(csv.code(0), &["name,before_pps", "xdp to nft-conntrack,"]);
    place.run("report small.plumb --tree").code(2).says(&["--tree"]);
}

/// Names of namespaces of ours.
fn namespaces() -> BTreeSet<PathBuf> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten();
    let paths = names.flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("plumb-")
    };
    paths.filter(ours).collect()
}

/// What the machine has that a bench may change outside of its namespaces.
fn machine() -> String {
    let mut output = String::new();
    for command in [
        "ip -details link",
        "ip address",
        "ip route show table all",
        "ip -6 route show table all",
        "nft list ruleset",
        "iptables-save",
        "sysctl -a -r ^net\\.(ipv4|ipv6|core|netfilter|bridge)",
        "ls /sys/fs/bpf",
    ] {
        let words: Vec<_> = command.split(' ').collect();
        // A program that is not installed changes nothing.
        if let Ok(ran) = Command::new(words[0]).args(&words[1..]).output() {
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            // Lines without values that change by themselves.
            let still = |line: &&str| {
                let moving = ["expires", "valid_lft", "# Generated", "# Completed", "gc_"];
                let counted = ["_count =", "tcp_mem", "fib_multipath_hash_seed"];
                !moving.iter().chain(&counted).any(|word| line.contains(word))
            };
            let lines: Vec<&str> = text.lines().filter(still).collect();
            output += &format!("# {command}\n{}\n", lines.join("\n"));
        }
    }
    output
}

/// Check that a run that is killed, whatever it is at, or interrupted, leaves nothing
/// that the next one does not remove.
#[test]
fn as_root_killed_and_interrupted() {
    let Some(_turn) = turn() else { return };
    const WORDS: [&str; 3] = [
        "drop --path xdp,nft-raw,socket --blocks 50 --time 60ms",
        "forward --path xdp-redirect,route,bridge,af-xdp --blocks 50 --time 60ms",
        "drop --path nft-conntrack,iptables-raw,dpdk --blocks 50 --time 60ms",
    ];
    let place = Place::new();
    let untouched = machine();
    let mut left = BTreeSet::new();
    for n in 0..netplumb_testkit::kills(12) as u64 {
        // Moments that no two runs share: multiples of the golden ratio, modulo one.
        let ms = 20 + (n as f64 * 0.618_034 % 1.0 * 900.0) as u64;
        let words = WORDS[n as usize / 2 % WORDS.len()];
        let signal = match n % 4 {
            0 | 2 => libc::SIGKILL,
            1 => libc::SIGINT,
            _ => libc::SIGTERM,
        };
        let before = namespaces();
        let running = Running::start(&mut place.plumb(&format!("bench {words} --warmup 20ms")));
        if signal != libc::SIGKILL {
            // A process started in the background ignores SIGINT until the program handles it,
            // which it does once there are namespaces.
            let begun = Instant::now();
            while namespaces().is_subset(&before) {
                assert!(begun.elapsed() < crate::common::PATIENCE, "nothing is made");
                sleep(Duration::from_millis(2));
            }
        }
        sleep(Duration::from_millis(ms));
        running.signal(signal);
        let ran = running.finish();
        assert!(!ran.status.success(), "{ran:#?}");
        if signal == libc::SIGKILL {
            left.extend(namespaces().difference(&before).cloned());
        } else {
            assert_eq!(ran.status.code(), Some(128 + signal), "{ran:#?}");
        }
    }
    place.nothing_runs();
    place.run(&format!("bench drop --path xdp {SHORT}")).code(0);
    let now = namespaces();
    let still: Vec<_> = left.intersection(&now).collect();
    assert!(still.is_empty(), "{still:?}");
    assert_eq!(machine(), untouched);
}
