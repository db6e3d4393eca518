//! `plumb tune`: its result is better than the default, and within its conditions; in guests it is the same every time,
//! on interfaces of this machine all is as it was, or kept settings can be undone.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Ran, Running, can_unthrottle, own, skip};
use netplumb_lab::vm::trial;
use netplumb_model::arch::Arch;
use netplumb_sys::netns::Namespace;
use netplumb_testkit::has_root;
use serde_json::Value;
use tempfile::TempDir;

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Check that a search finds settings that take less CPU time, which hold the condition, with the lines that set
/// them; that its front has nothing that another beats; that a second search is the same; and that the experiment it
/// writes is one.
#[test]
fn less_cpu_time_within_a_latency() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // The default waits for QEMU's NIC, which takes longer than that, and in newer QEMUs always.
    let can_be_faster = can_unthrottle(&trial::find_qemu(Arch::OWN).unwrap());
    let limit_us = if can_be_faster { 120 } else { 300 };
    let words = format!(
        "tune --goal cpu --hold latency<{limit_us}us --candidates 6 --offload tso=on --buffer 64K \
         --print-nic enp1s0 --json -q"
    );
    let first = place.run(&format!("{words} -o a.plumb --experiment front.toml"));
    first.code(0);
    let found = document(&first.stdout);
    assert_eq!(found["holds"], true, "{found:#}");
    let front = found["front"].as_array().unwrap();
    let best = &front[0];
    assert_eq!(best["settings"].as_str().unwrap().trim_start_matches("* "), found["best"]);
    let of = |row: &Value, key: &str| row[key].as_f64().unwrap();
    assert!(of(best, "latency_ns") < f64::from(limit_us) * 1e3, "{found:#}");
    assert!(of(&found["default"], "latency_ns") > 120e3, "{found:#}");
    let lines = found["lines"].to_string();
    assert!(lines.contains("enp1s0") && !lines.contains("NIC"), "{lines}");
    assert!(!lines.contains("tso"), "{lines}");
    for row in front.iter().filter(|row| !row["settings"].to_string().contains("default")) {
        let beaten = front.iter().any(|other| {
            of(other, "mbit_per_second") > of(row, "mbit_per_second")
                && of(other, "latency_ns") < of(row, "latency_ns")
                && of(other, "cpu_ns_per_kib") < of(row, "cpu_ns_per_kib")
        });
        assert!(!beaten, "{row:#}");
    }
    let second = place.run(&format!("{words} -o b.plumb"));
    assert_eq!(document(&second.code(0).stdout), found);
    let arms = place.recording("a.plumb").arms.len();
    assert_eq!(arms, front.len());
    let text = std::fs::read_to_string(place.path("front.toml")).unwrap();
    // Only lines with content: no empty value, and no heading that nothing follows.
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&"["])) {
        assert!(!line.ends_with("= \"\"") && !line.ends_with("= []"), "{text}");
        assert!(!line.starts_with('[') || !next.starts_with('['), "{text}");
    }
    assert_eq!(text.matches("[[arm]]").count(), arms, "{text}");
    place.run("run front.toml -q -o again.plumb").code(0);
    // An existing file may have been edited.
    let again = place.run(&format!("{words} -o c.plumb --experiment front.toml"));
    again.code(2).says(&["front.toml exists", "--overwrite"]);
    assert_eq!(std::fs::read_to_string(place.path("front.toml")).unwrap(), text);
}

/// Check that conditions that nothing holds are judged so, and that no lines are recommended.
#[test]
fn conditions_that_nothing_holds() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran =
        place.run("tune --goal throughput --hold latency<1us --candidates 2 --budget 10ms -q");
    ran.code(4);
    crate::common::prints(
        &ran,
        &["Nothing that was tried holds all conditions", "latency below 1 us", "the time ran"],
    );
    assert!(!ran.stdout.contains("ethtool"), "{}", ran.stdout);
}

/// Check that NICs that refuse what another link's NICs accept have a search of their own, without lines that their
/// driver refuses.
#[test]
fn levels_of_another_link() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run(
        "tune --goal latency --link virtio-net --offload gro=on --buffer 64K --candidates 4 -q --json",
    );
    ran.code(0);
    let found = document(&ran.stdout);
    assert_eq!((&found["possible"], &found["tried"]), (&4.into(), &4.into()));
    assert_eq!(found["left_out"], Value::Array(Vec::new()));
    for word in ["TSO", "rings", "adaptive", "rx-usecs", "at once"] {
        assert!(!ran.stdout.contains(word), "{word}: {found:#}");
    }
}

/// Check that what can't be searched is reported at once.
#[test]
fn what_it_refuses() {
    let place = Place::new();
    for (words, why) in [
        ("", "--goal"),
        ("--goal speed", "throughput"),
        ("--goal cpu --hold latency>1us", "latency<TIME"),
        ("--goal cpu --tx-shift 1,2", "one value"),
        ("--goal cpu --nic a;b -- true", "name of an interface"),
        ("--goal cpu --print-nic a;b", "name of an interface"),
        ("--goal cpu --nic eth0", "COMMAND"),
        ("--goal cpu -- true", "--nic NIC"),
        ("--goal cpu --keep", "--nic"),
        ("--goal cpu --peer 192.0.2.1", "--nic"),
        ("--goal cpu --lab netns --nic eth0 -- true", "--lab"),
        ("--goal cpu --lab netns --wire-rate 100M", "wire_rate"),
        ("--goal cpu --experiment /", "a directory"),
        ("--goal cpu --nic no-such0 -- true", "no-such0"),
        ("--goal cpu --link e1000e", "tso"),
    ] {
        place.run(&format!("tune {words}")).code(2).says(&[why]);
    }
}

/// Check that between namespaces the levels that are plainly the worst and the best are found as such: sockets whose
/// buffers hold 4 KiB, and large frames where neither end may merge or cut packets.
#[test]
fn as_root_between_namespaces() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let fixed = "--offload tso=off --offload gro=off --offload tx-checksum=on";
    let words =
        format!("tune --lab netns --goal throughput --candidates 5 {fixed} --mtu 1500 --json -q");
    let ran = place.run(&format!("{words} -o n.plumb --budget 2m"));
    ran.code(0);
    let found = document(&ran.stdout);
    assert_eq!((&found["lab"], &found["tried"]), (&"netns".into(), &5.into()), "{found:#}");
    let front = found["front"].as_array().unwrap();
    let has = |name: &str| front.iter().any(|row| row["settings"].to_string().contains(name));
    assert!(has("default") && !has("buffers of 4K"), "{found:#}");
    let ratio = |key: &str| found["ratio"][key].as_f64().unwrap();
    assert!(ratio("low") <= ratio("value"), "{found:#}");
    assert_eq!(found["ratio"]["blocks"], 10);
    // The recording is a run of the points that were measured again, and nothing of the namespaces.
    assert!(place.recording("n.plumb").arms.len() >= front.len());
    place.nothing_runs();

    let ran = place.run(&format!(
        "tune --lab netns --goal cpu --candidates 2 {fixed} --buffer 256K --json -q -o m.plumb --budget 2m"
    ));
    ran.code(0);
    let found = document(&ran.stdout);
    assert_eq!(found["best"], "MTU of 9000", "{found:#}");
    assert_eq!(found["recommended"], true, "{found:#}");
    assert_eq!(found["lines"][0], "ip link set eth0 mtu 9000");
    assert!(found["ratio"]["high"].as_f64().unwrap() < 1.0, "{found:#}");
}

/// Check that a level which the kernel refuses only when a combination is run is left out and named, and that the
/// others are measured: TSO that was given can't be on without the checksum offload.
#[test]
fn as_root_a_level_that_is_refused() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let ran = place.run(
        "tune --lab netns --goal cpu --offload tso=on --offload gro=off --mtu 1500 --candidates 5 --budget 5s --json -q",
    );
    ran.code(0);
    let found = document(&ran.stdout);
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 1, "{found:#}");
    let why = left_out[0].as_str().unwrap();
    assert!(why.starts_with("no checksum offload: ") && why.contains("tso"), "{why}");
    assert!(found["tried"].as_u64().unwrap() > 1, "{found:#}");
    for row in found["front"].as_array().unwrap() {
        assert!(!row["settings"].to_string().contains("checksum"), "{row:#}");
    }
    // The notes on the machine, as bench has them, once.
    let trust = found["trust"].as_array().unwrap();
    let of_cpus = trust.iter().filter(|note| note["topic"] == "CPU use");
    assert_eq!(of_cpus.count(), 1, "{found:#}");
    place.nothing_runs();
}

/// A machine of our own: v0 is joined to v1 in another namespace, where iperf3 listens. Its own sockets
/// receive into buffers of a few packets, so that any other limit is plainly better.
struct Machine {
    namespace: Namespace,
    _peer: Namespace,
    server: Child,
    place: Place,
    journal: TempDir,
}

const LOAD: &str = "sh load.sh";
/// iperf3's server does not listen for a moment between two clients.
const SCRIPT: &str = "for try in 1 2 3 4 5 6 7 8 9; do\n\
                      iperf3 -c 192.0.2.2 -R -n 32M && exit\nsleep 0.05\ndone\nexit 1\n";

impl Machine {
    fn new() -> Option<Machine> {
        if !has_root() {
            return None;
        }
        for tool in ["iperf3", "ethtool"] {
            if !Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success()) {
                skip(&format!("no {tool}"));
                return None;
            }
        }
        let [namespace, peer] = [(); 2].map(|()| Namespace::new().unwrap());
        let [left, right] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        namespace.add_veth(("v0", left), ("v1", right), &peer, None).unwrap();
        for (namespace, line) in [
            (&namespace, "ip addr add 192.0.2.1/24 dev v0"),
            (&peer, "ip addr add 192.0.2.2/24 dev v1"),
            (&namespace, "ip link set v0 up"),
            (&peer, "ip link set v1 up"),
        ] {
            own::sh(namespace, line);
        }
        set(&namespace, "net.ipv4.tcp_rmem=4096 4096 4096");
        let mut server = Command::new("iperf3");
        server.args(["-s", "-B", "192.0.2.2"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = own::inside(&peer, server).spawn().unwrap();
        let machine = Machine {
            namespace,
            _peer: peer,
            server,
            place: Place::new(),
            journal: TempDir::new().unwrap(),
        };
        machine.place.write("load.sh", SCRIPT);
        let begun = Instant::now();
        let load = || {
            let mut load = Command::new("sh");
            load.arg(machine.place.path("load.sh"));
            own::inside(&machine.namespace, load).output().unwrap().status.success()
        };
        while !load() {
            assert!(begun.elapsed() < crate::common::PATIENCE, "iperf3 never answers");
            sleep(Duration::from_millis(100));
        }
        Some(machine)
    }

    fn plumb(&self, words: &str) -> Command {
        own::plumb(&self.namespace, self.place.plumb(words), self.journal.path())
    }

    fn run(&self, words: &str) -> Ran {
        Running::start(&mut self.plumb(words)).finish()
    }

    /// All that a search changes.
    fn state(&self) -> String {
        let mut text = own::sh(&self.namespace, "ethtool -k v0");
        text += &own::sh(&self.namespace, "sysctl net.ipv4.tcp_wmem net.ipv4.tcp_rmem");
        for file in ["gro_flush_timeout", "napi_defer_hard_irqs"] {
            let path = format!("/sys/class/net/v0/{file}");
            let read = self.namespace.with_sysfs(|| std::fs::read_to_string(&path));
            text += &read.unwrap();
        }
        text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn set(namespace: &Namespace, setting: &str) {
    let mut sysctl = Command::new("sysctl");
    sysctl.args(["-qw", setting]);
    assert!(own::inside(namespace, sysctl).status().unwrap().success());
}

/// Check that on an interface a plainly better setting is found, that all is as it was, and that with --keep it stays,
/// with lines that undo it.
#[test]
fn as_root_an_interface() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    let words = "tune --nic v0 --goal throughput --candidates 12 --budget 20s --json -q";
    let ran = machine.run(&format!("{words} -- {LOAD}"));
    ran.code(0);
    assert_eq!(machine.state(), before);
    let found = document(&ran.stdout);
    assert_eq!((&found["lab"], &found["kept"]), (&"host".into(), &false.into()));
    assert!(found["best"].to_string().contains("buffers of"), "{found:#}");
    assert_eq!(found["recommended"], true, "{found:#}");
    assert!(found["ratio"]["low"].as_f64().unwrap() > 1.2, "{found:#}");
    assert!(found["lines"].to_string().contains("tcp_wmem"), "{found:#}");
    // Without -o it is recorded by the usual name, as a search between two hosts is.
    let recording = machine.place.recording("tune.plumb");
    let front = found["front"].as_array().unwrap();
    assert!(recording.arms.len() >= front.len(), "{found:#}");
    assert_eq!(recording.blocks.len(), recording.arms.len() * 6);
    let report = machine.place.run("report tune.plumb");
    crate::common::prints(
        report.code(0),
        &["Interface v0", "buffers of", "busy", "load.sh", "a turn is"],
    );
    for not in ["rx busy", "Two hosts", "sender"] {
        assert!(!report.stdout.contains(not), "{not}: {}", report.stdout);
    }
    for words in ["--json", "--csv", "--markdown"] {
        machine.place.run(&format!("report tune.plumb {words}")).code(0);
    }
    machine.place.run("report tune.plumb --html page.html").code(0);
    let file = |name: &str| machine.place.path(name);
    std::fs::copy(file("tune.plumb"), file("again.plumb")).unwrap();
    machine.place.run("diff tune.plumb again.plumb").code(0);

    let ran = machine.run(&format!("{words} -o kept.plumb --keep --peer 192.0.2.2 -- {LOAD}"));
    ran.code(0);
    let report = machine.place.run("report kept.plumb");
    crate::common::prints(report.code(0), &["median", "echoes (ICMP)"]);
    let found = document(&ran.stdout);
    assert_eq!(found["kept"], true, "{found:#}");
    let kept = machine.state();
    assert_ne!(kept, before);
    for line in found["lines"].as_array().unwrap() {
        let line = line.as_str().unwrap();
        if let Some(limits) = line.split("tcp_wmem='").nth(1) {
            let limits = limits.split('\'').next().unwrap().replace(' ', "\t");
            assert!(kept.contains(&format!("tcp_wmem = {limits}")), "{line}: {kept}");
        }
    }
    let path = machine.place.path("undo");
    let undo: Vec<&str> =
        (found["undo"].as_array().unwrap().iter()).map(|line| line.as_str().unwrap()).collect();
    // /sys belongs to another namespace here: those lines are read, and made by the test.
    let (files, lines): (Vec<&str>, Vec<&str>) = undo.iter().partition(|l| l.starts_with("echo"));
    std::fs::write(&path, format!("set -e\n{}\n", lines.join("\n"))).unwrap();
    own::sh(&machine.namespace, &format!("sh {}", path.display()));
    for line in files {
        let (value, file) = line["echo ".len()..].split_once(" > ").unwrap();
        let write = || std::fs::write(file, value);
        machine.namespace.with_sysfs(write).unwrap();
    }
    assert_eq!(machine.state(), before);
}

/// Check that all is as it was after Ctrl-C, after a kill by the next run, and after a command that fails or moves
/// nothing, which is reported.
#[test]
fn as_root_an_interface_ended_early() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = machine.state();
    let words = "tune --nic v0 --goal cpu -q";
    for (load, says) in [("false", "exited with 1"), ("true", "moved nothing over v0")] {
        let ran = machine.run(&format!("{words} -- {load}"));
        ran.code(1).says(&[says]);
        assert_eq!(machine.state(), before);
    }
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let running = Running::start(&mut machine.plumb(&format!("{words} -- sleep 60")));
        let begun = Instant::now();
        while machine.state() == before {
            assert!(begun.elapsed() < crate::common::PATIENCE, "nothing was ever set");
            sleep(Duration::from_millis(2));
        }
        running.signal(signal);
        let ran = running.finish();
        if signal == libc::SIGINT {
            ran.code(130);
        } else {
            machine.run("stat -q cs -o next.plumb -- true").code(0);
        }
        assert_eq!(machine.state(), before);
    }
}
