//! A clock of time in guests: a command's packets, and what measuring costs there.

use std::collections::BTreeSet;

use crate::common::{Place, Ran, Running, prints};
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::recording::{Recording, env};
use netplumb_model::span::StageKind;

/// Datagrams that `ask` sends; each is answered.
const ASKED: u64 = 3;
/// What the two send together, so that as many are received.
const PACKETS: u64 = 2 * ASKED;

/// Sends datagrams, waits for the answer to each, and ends with the code that it is given;
/// without one it never ends.
const ASK: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **words) {
	struct addrinfo want = { .ai_socktype = SOCK_DGRAM }, *at;
	char text[64];
	if (getaddrinfo("peer", "7777", &want, &at)) return 5;
	int s = socket(at->ai_family, at->ai_socktype, 0);
	if (connect(s, at->ai_addr, at->ai_addrlen)) return 6;
	for (int i = 0; i < 3; i++) {
		if (send(s, "how?", 4, 0) != 4) return 8;
		if (recv(s, text, sizeof text, 0) != 4) return 9;
	}
	puts("answered");
	fflush(stdout);
	while (n < 2) ;
	return atoi(words[1]);
}
"#;

const ANSWER: &str = r#"
#include <arpa/inet.h>
#include <sys/socket.h>
int main(void) {
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7777) }, from;
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	char text[64];
	if (bind(s, (void *)&at, sizeof at)) return 4;
	for (;;) {
		socklen_t size = sizeof from;
		long n = recvfrom(s, text, sizeof text, 0, (void *)&from, &size);
		if (n > 0) sendto(s, text, n, 0, (void *)&from, size);
	}
}
"#;

/// A place with both, or why there is none.
fn place() -> Option<Place> {
    if !crate::common::has_guests() {
        return None;
    }
    let place = Place::new();
    for (name, source) in [("ask", ASK), ("answer", ANSWER)] {
        place.write(&format!("{name}.c"), source);
        let mut cc = place.command("cc");
        cc.args(["-O1", "-o", name, &format!("{name}.c")]);
        assert!(cc.status().unwrap().success());
    }
    Some(place)
}

/// `plumb path` in the lab vm, under a clock and with these words, then a command.
fn timed(place: &Place, words: &str, command: &[&str]) -> Ran {
    let mut plumb = place.plumb(&format!("path -q --lab vm -o x.plumb --clock {words} --"));
    Running::start(plumb.args(command)).finish()
}

/// Packets of each direction that went all their way, in a block.
fn ways(recording: &Recording, block: u32) -> Vec<(Direction, u64)> {
    let all = recording.stages();
    let ways = all.filter(|(s, stage)| s.block == block && stage.kind == StageKind::Total);
    ways.map(|(s, _)| (s.direction, s.times.count)).collect()
}

/// Check that the packets of a command and its peer are measured from its start to its end, in one
/// window per run, and that its output and exit status are reported.
#[test]
fn packets_of_a_command_in_stages() {
    let Some(place) = place() else { return };
    for kernel in crate::common::oldest_and_newest(&place) {
        in_stages(&place, kernel);
    }
}

fn in_stages(place: &Place, kernel: &str) {
    let words = format!("stages --blocks 2 --kernel {kernel} --peer ./answer");
    let ran = timed(place, &words, &["./ask", "7"]);
    ran.code(1).says(&["./ask exited with code 7"]);
    assert!(ran.stdout.starts_with("answered\n"), "{}", ran.stdout);
    prints(&ran, &["udp tx", "udp rx", "lab vm"]);
    let recording = place.recording("x.plumb");
    let fact = |key: &str| recording.environment[key].as_str();
    assert_eq!(
        [fact(env::CLOCK), fact(env::UNIT), fact(env::LAB)],
        ["stages", "nanoseconds", "vm"]
    );
    assert_eq!(fact("command.words"), "./ask 7");
    assert_eq!(recording.arms.len(), 1);
    assert_eq!(recording.arms[0].proto, Proto::Udp);
    assert_eq!(recording.arms[0].family, Family::V4);
    assert_eq!(recording.arms[0].knobs["peer"], "./answer");
    let runs: Vec<u32> = recording.blocks.iter().map(|b| b.index).collect();
    assert_eq!(runs, [0, 1]);
    for block in 0..2 {
        let both = [(Direction::Tx, PACKETS), (Direction::Rx, PACKETS)];
        assert_eq!(ways(&recording, block), both, "block {block}");
    }
    assert!(recording.complete);
    place.nothing_runs();
}

/// Check the same of functions: calls of both ends, to the one.
#[test]
fn packets_of_a_command_in_functions() {
    let Some(place) = place() else { return };
    for kernel in crate::common::oldest_and_newest(&place) {
        in_functions(&place, kernel);
    }
}

fn in_functions(place: &Place, kernel: &str) {
    let words = format!(
        "functions --functions udp_sendmsg,udp_recvmsg,ip_rcv --kernel {kernel} --peer ./answer"
    );
    let ran = timed(place, &words, &["./ask", "0"]);
    ran.code(0);
    prints(&ran, &["udp_sendmsg", "udp_recvmsg", "ip_rcv"]);
    let recording = place.recording("x.plumb");
    assert_eq!(recording.environment[env::CLOCK], "functions");
    let calls = |name: &str| -> u64 {
        let of = |node: u32| {
            let function = recording.nodes[node as usize].function;
            recording.functions[function as usize].name == name
        };
        let all = recording.calls();
        all.filter(|(_, call)| of(call.node)).map(|(span, _)| span.times.count).sum()
    };
    assert_eq!(calls("udp_sendmsg"), PACKETS);
    assert_eq!(calls("ip_rcv"), PACKETS);
    // The peer waits for another when the command ends: that call has not returned.
    assert_eq!(calls("udp_recvmsg"), PACKETS);
}

/// Check the reports on commands that cause no packets, don't end, or don't exist.
#[test]
fn commands_that_end_otherwise() {
    let Some(place) = place() else { return };
    let ran = timed(&place, "stages", &["sh", "-c", "exit 7"]);
    ran.code(1).says(&["sh exited with code 7", "no packets", "exited without"]);
    let ran = timed(&place, "stages --proto tcp --peer ./answer", &["./ask", "0"]);
    ran.code(1).says(&["--proto"]);
    assert!(!place.path("x.plumb").exists());
    let ran = timed(&place, "stages --timeout 8 --peer ./answer", &["./ask"]);
    ran.code(1).says(&["was killed after", "--timeout"]);
    let recording = place.recording("x.plumb");
    assert_eq!(ways(&recording, 0)[0], (Direction::Tx, PACKETS));
    assert!(!recording.complete);
    timed(&place, "stages", &["nothing-of-this-name"])
        .code(2)
        .says(&["nothing-of-this-name", "$PATH"]);
    place.nothing_runs();
}

/// Check that blocks run with the instrument and without, all of their packets arriving,
/// that only the first kind has figures of it, and that both are in the table.
#[test]
fn what_measuring_costs() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for clock in ["stages", "functions --functions udp_sendmsg,ip_rcv"] {
        let ran = place.run(&format!(
            "path -q --lab vm --clock {clock} --measure-cost --packets 50 --blocks 3 -o x.plumb"
        ));
        ran.code(0);
        prints(&ran, &["overhead of measuring, udp", "throughput", "per instruction"]);
        let recording = place.recording("x.plumb");
        let names: Vec<&str> = recording.arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["udp", "udp probes=off"]);
        assert_eq!(recording.arms[1].knobs["probes"], "off");
        // Neither is always the first.
        let order: Vec<(u32, u32)> = recording.blocks.iter().map(|b| (b.arm, b.index)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]);
        for block in &recording.blocks {
            assert_eq!((block.ledger.offered, block.ledger.delivered), (50, 50));
            assert!(block.duration_ns > 0);
        }
        let seen: BTreeSet<u32> = recording.spans.iter().map(|span| span.block).collect();
        assert_eq!(seen, BTreeSet::from([0, 3, 4]));
        // The guest's clock counts instructions: probes are some, in every run.
        let latency = |block: u32| {
            let mut all = recording.scalars_of(&netplumb_model::timing::LATENCY_P50);
            let found = all.find(|s| s.block() == Some(block));
            found.unwrap().value
        };
        for (probed, bare) in [(0, 1), (3, 2), (4, 5)] {
            assert!(latency(probed) > latency(bare), "{clock}, block {probed}");
        }
    }
}

/// Check that several instruments share the blocks without any: each arm has as many of them as of
/// each instrument, and every instrument is compared with them.
#[test]
fn several_instruments_share_the_bare_blocks() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run(
        "path -q --lab vm --clock stages,functions --functions udp_sendmsg --measure-cost \
         --packets 50 --blocks 2 -o x.plumb",
    );
    ran.code(0);
    prints(&ran, &["stages: overhead of measuring", "functions: overhead"]);
    let recording = place.recording("x.plumb");
    let mut blocks: Vec<(u32, &str, u32)> =
        (recording.blocks.iter()).map(|b| (b.arm, b.instrument.as_str(), b.index)).collect();
    blocks.sort_unstable();
    let of = |arm, instrument| [(arm, instrument, 0), (arm, instrument, 1)];
    let wanted = [of(0, "functions"), of(0, "stages"), of(1, "")].concat();
    assert_eq!(blocks, wanted);
}

/// Check that what guests can't have is refused before any boots, with what to do.
#[test]
fn refused_at_once() {
    let place = Place::new();
    for (words, said) in [
        ("--watch", &["a guest reports nothing", "--lab netns"][..]),
        ("--watch -- true", &["--watch", "--lab netns"]),
        ("--measure-cost -- true", &["omit the command"]),
        ("--duration 1s -- true", &["--timeout"]),
        ("--packets 9 -- true", &["--packets", "can't be used"]),
        ("--rate 9 -- true", &["--rate", "can't be used"]),
        ("--pid 1 -- true", &["--pid", "--lab host"]),
        ("--link veth,lo -- true", &["in one arm", "plumb diff"]),
    ] {
        let ran = place.run(&format!("path --lab vm --clock stages {words}"));
        ran.code(2).says(said);
    }
    assert_eq!(place.files(), [""; 0]);
}

/// Check that packets which are forwarded, or answered by the kernel, have a class of their own without being asked for.
#[test]
fn forwarded_and_answered() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (words, direction) in
        [("--proto udp --forward", Direction::Forward), ("--proto raw", Direction::Echo)]
    {
        let words = format!(
            "path --lab vm --link veth --family ipv4 {words} --clock functions --packets 30 --blocks 1 -o x.plumb"
        );
        place.run(&words).code(0);
        let recording = place.recording("x.plumb");
        let mut calls = recording.calls();
        assert!(
            calls.any(|(span, _)| span.direction == direction && span.times.count > 0),
            "{words}"
        );
    }
}
