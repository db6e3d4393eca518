//! `plumb path` in the labs of this machine: invalid requests, leftovers when it is killed, and its
//! output. All but the first need root.

mod gone;
mod hours;
mod ledger;
mod terminal;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::left::{namespaces, nothing_left};
use crate::common::{Place, Running, skip};
use netplumb_model::class::Direction;
use netplumb_model::recording::{Cost, env};
use netplumb_testkit::has_root;

/// Names of the run's namespaces, from its output.
fn run_name(said: &str) -> String {
    let at = said.find("namespaces: ").unwrap() + "namespaces: ".len();
    said[at..].split("-*").next().unwrap().to_string()
}

/// Check that invalid requests and combinations are refused with advice.
#[test]
fn what_cannot_be_asked() {
    let place = Place::new();
    for (words, code, said) in [
        ("path --lab moon", 2, &["moon", "netns"][..]),
        ("path --lab netns --clock exact", 3, &["--lab vm", "stages"]),
        ("path --lab host --clock exact", 3, &["--lab vm"]),
        ("path --duration 1s --blocks 3", 2, &["--duration"]),
        ("path --duration 1s --cold", 2, &["--cold", "--duration"]),
        ("path --watch", 2, &["--watch", "--clock functions"]),
        ("path --functions ip_*", 2, &["--functions"]),
        ("path --lab netns --duration 1s --packets 3", 2, &["--packets"]),
        ("path --lab netns --duration nan", 2, &["10s"]),
        ("path --lab netns --duration 5", 2, &["invalid duration `5`; expected like 10s or 500ms"]),
        ("path --lab netns --link e1000", 2, &["--lab vm"]),
        ("path --lab netns --kernel debian", 2, &["--kernel", "--lab vm"]),
        ("path --lab netns --quick", 2, &["--quick"]),
        ("path --lab netns --resume", 2, &["--resume", "--output"]),
        ("path --lab netns --interface lo", 2, &["--lab host"]),
        ("path --lab netns --bridge --forward", 2, &["forward"]),
        ("path --lab netns --bridge --link lo", 2, &["bridge", "veth"]),
        ("path --lab netns --offload gro=maybe", 2, &["on or off"]),
        ("path --lab netns --watch --json", 2, &["--json"]),
        ("path --lab netns --clock stages --functions ip_*", 2, &["--clock functions"]),
        ("path --lab netns --max-overhead 200%", 2, &["5%"]),
        ("path --lab netns --from-recording gone.plumb", 1, &["gone.plumb"]),
        ("path --lab host --size 10", 2, &["--lab netns"]),
        ("path --lab host --rate 5", 2, &["--rate"]),
        ("path --lab host --measure-cost", 2, &["--lab netns"]),
        ("path --lab host --interface eth987", 2, &["eth987", "lo"]),
        ("path --lab host --netns not-there", 2, &["not-there", "ip netns"]),
        ("path --lab host --pid 4294967", 2, &["no such process"]),
        ("path --lab host --cgroup /not-there", 2, &["/sys/fs/cgroup"]),
        ("path --clock stages --interface lo", 2, &["--lab host"]),
        ("path --clock functions --watch -- true", 2, &["--lab netns"]),
        ("doctor --clean --json", 2, &["--json"]),
    ] {
        let root = netplumb_testkit::is_root();
        let of_names = ["eth987", "not-there", "4294967", "/not-there", "gone"];
        // Whether they may be looked up is asked first.
        if !root && of_names.iter().any(|name| words.contains(name)) {
            continue;
        }
        place.run(words).code(code).says(said);
    }
    assert_eq!(place.files(), [""; 0]);
}

/// Check that missing rights are named, with how to get them.
#[test]
fn without_rights() {
    if !has_root() {
        return;
    }
    if !Path::new("/usr/bin/setpriv").exists() {
        return netplumb_testkit::skip("setpriv is not installed");
    }
    let place = Place::new();
    let mut command = place.command("/usr/bin/setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(env!("CARGO_BIN_EXE_plumb"))
        .args(["path", "--lab", "netns"]);
    let ran = Running::start(&mut command).finish();
    ran.code(3).says(&["CAP_SYS_ADMIN", "CAP_BPF", "setcap", "sudo"]);
}

/// Check that the best clock available is chosen, reported and recorded, and that no namespace is
/// left.
#[test]
fn a_run_between_namespaces() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let ran = place.run("path --lab netns --duration 1s --blocks 4 --proto udp,tcp -o run.plumb");
    if ran.status.code() == Some(3) {
        skip(&format!("no clock of time here: {}", ran.stderr.trim()));
        return;
    }
    ran.code(0).says(&["instrument "]);
    let recording = place.recording("run.plumb");
    let clock = &recording.environment[env::CLOCK];
    assert!(["functions", "stages"].contains(&clock.as_str()), "{clock}");
    assert_eq!(recording.environment[env::LAB], "netns");
    assert!(recording.complete);
    assert_eq!(recording.arms.len(), 2);
    assert_eq!(recording.blocks.len(), 8);
    for block in &recording.blocks {
        assert!(block.ledger.offered > 0 && block.ledger.closes(), "{block:?}");
    }
    assert!(!recording.spans.is_empty());
    assert!(namespaces(&run_name(&ran.stderr)).is_empty());
    assert!(ran.stdout.contains("udp"), "{}", ran.stdout);
    place.run("report run.plumb").code(0);
}

/// Check that several instruments measure the same arms, each in its own blocks; that the report
/// has a part for each, and other formats one that is chosen; and that samples are costs in
/// nanoseconds that add up, for the sending and the receiving side.
#[test]
fn several_instruments() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let both = "path --lab netns --clock stages,samples --duration 4s --blocks 5 --stream";
    let ran = place.run(&format!("{both} -o both.plumb"));
    if ran.status.code() == Some(3) {
        skip(&format!("no such instruments here: {}", ran.stderr.trim()));
        return;
    }
    ran.code(0);
    let parts = ["Instrument stages", "Instrument samples"];
    let found = parts.map(|part| ran.stdout.find(part));
    assert!(found[0] < found[1] && found[0].is_some(), "{}", ran.stdout);
    let recording = place.recording("both.plumb");
    assert_eq!((recording.arms.len(), recording.blocks.len()), (1, 10));
    let samples = recording.part("samples");
    assert!(samples.spans.is_empty() && samples.blocks.len() == 5);
    let quantity = &recording.quantities[samples.costs[0].quantity as usize];
    assert_eq!((quantity.name.as_str(), quantity.unit.as_str()), ("CPU time", "ns"));
    for (number, block) in (0..).zip(&samples.blocks) {
        let of_block = samples.costs.iter().filter(|cost| cost.block == number);
        let sum: u64 = of_block.map(|cost| cost.own).sum();
        assert_eq!(block.kernel(), sum, "block {number}");
    }
    for direction in [Direction::Tx, Direction::Rx] {
        let is = |cost: &&Cost| cost.direction == direction;
        assert!(samples.costs.iter().any(|cost| is(&cost)), "no {direction}");
    }
    assert!(recording.part("stages").costs.is_empty());
    let refused = place.run("report both.plumb --csv");
    refused.code(2);
    assert!(refused.stderr.contains("--clock"), "{}", refused.stderr);
    for form in ["--csv", "--json", "--folded", "--callgrind", "--pprof p.gz", "--html p.html"] {
        place.run(&format!("report both.plumb --clock samples {form}")).code(0);
    }
    let early = place.run(&format!("{both} --json"));
    early.code(2);
    assert!(early.stderr.contains("a single instrument"), "{}", early.stderr);
}

/// Check that without a terminal the live view is lines.
#[test]
fn watched_without_a_terminal() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let ran = place.run("path --lab netns --watch --duration 2s --blocks 4");
    if ran.status.code() == Some(3) {
        skip(&format!("no clock of time here: {}", ran.stderr.trim()));
        return;
    }
    ran.code(0).says(&["overhead", "udp tx"]);
    assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
}

/// Check that a run that is killed, whatever it is at, leaves what the next one removes,
/// and that Ctrl-C leaves nothing and keeps what was measured.
#[test]
fn killed_and_interrupted() {
    if !has_root() {
        return;
    }
    let words = "path --lab netns --duration 60s --blocks 200 -o run.plumb";
    let place = Place::new();
    let probe = place.run("path --lab netns --duration 500ms --blocks 1 -o probe.plumb");
    let attaches = probe.status.code() != Some(3);
    for (until, wait_ms) in [("namespaces: ", 0), ("attached in", 0), ("attached in", 1_500)] {
        if until != "namespaces: " && !attaches {
            skip("no clock of time here: killed only before it is attached");
            continue;
        }
        let mut running = Running::start(&mut place.plumb(words));
        running.wait_for(until);
        sleep(Duration::from_millis(wait_ms));
        running.signal(libc::SIGKILL);
        let run = run_name(&running.finish().stderr);
        nothing_left(&place, &run, "doctor --clean");
    }
    if !attaches {
        return;
    }
    // About the end: the last block, the namespaces, the recording, the report.
    for wait_ms in [350, 450, 500, 550, 600, 700] {
        let short = "path --lab netns --duration 500ms --blocks 2 -o short.plumb";
        let mut running = Running::start(&mut place.plumb(short));
        running.wait_for("attached in");
        sleep(Duration::from_millis(wait_ms));
        running.signal(libc::SIGKILL);
        let run = run_name(&running.finish().stderr);
        nothing_left(&place, &run, "doctor --clean");
        if place.path("short.plumb").exists() {
            place.run("report short.plumb").code(0);
        }
    }
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("attached in");
    sleep(Duration::from_millis(1_500));
    running.signal(libc::SIGINT);
    let ended = Instant::now();
    let ran = running.finish();
    ran.code(130).says(&["measured before the error"]);
    assert!(ended.elapsed() < Duration::from_secs(20));
    assert!(namespaces(&run_name(&ran.stderr)).is_empty());
    let recording = place.recording("run.plumb");
    assert!(!recording.complete && !recording.blocks.is_empty());
}

/// Check that a host's traffic is measured while a command causes some, that the command's end is
/// reported, and that a run without traffic reports what is needed.
#[test]
fn a_hosts_traffic() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    // No packet of any kind has this port.
    let none = place.run("path --lab host --proto udp --port 1 --duration 300ms");
    if none.status.code() == Some(3) {
        skip(&format!("no clock of time here: {}", none.stderr.trim()));
        return;
    }
    none.code(1).says(&["no packets matched", "--port", "--lab netns"]);
    place.run("path --lab host --port 1 -- true").code(1).says(&["no packets"]);
    place.run("path --lab host -- no-such-command-here").code(2).says(&["no-such-command-here"]);
    let script = "import socket,time\n\
        a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); a.bind(('127.0.0.1',0))\n\
        end=time.time()+1\n\
        while time.time()<end:\n a.sendto(b'x',a.getsockname()); a.recv(9); time.sleep(.001)\n\
        print('said by it')\nraise SystemExit(5)\n";
    place.write("traffic.py", script);
    let ran = place.run("path --lab host --proto udp -o host.plumb -- python3 traffic.py");
    ran.code(1).says(&["exited with code 5"]);
    assert!(ran.stdout.contains("said by it"), "{}", ran.stdout);
    let recording = place.recording("host.plumb");
    assert_eq!(recording.environment[env::LAB], "host");
    assert!(recording.arms.iter().any(|a| a.name.starts_with("udp")));
}

/// Check that a command that crashes is reported as such, with what was measured of it, and that
/// one that does nothing leaves no recording.
#[test]
fn commands_that_end_early() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words = "path --lab netns --clock stages -o run.plumb --";
    let none = place.run(&format!("{words} true"));
    if none.status.code() == Some(3) {
        skip(&format!("no stages here: {}", none.stderr.trim()));
        return;
    }
    none.code(1).says(&["exited without sending"]);
    assert_eq!(place.files(), [""; 0]);
    place.run(&format!("{words} no-such-command-here")).code(2).says(&["no-such-command-here"]);
    let script = "import os,socket\n\
        a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
        for n in range(50): a.sendto(b'x',(os.environ['PLUMB_PEER'],9))\n\
        os.kill(os.getpid(),11)\n";
    place.write("crash.py", script);
    place
        .run(&format!("{words} python3 crash.py"))
        .code(1)
        .says(&["python3 was killed by signal 11"]);
    assert!(!place.recording("run.plumb").blocks.is_empty());
    assert!(namespaces(&run_name(&none.stderr)).is_empty());
}
