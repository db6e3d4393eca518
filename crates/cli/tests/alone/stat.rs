//! `plumb stat`: known counts, compared to perf's; scopes; comparisons; what can't be counted.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Place, Running};
use netplumb_testkit::has_root;
use serde_json::Value;

/// A program that writes a number of times, one byte each, calling a function of its own as often, in a number of
/// processes one after the other.
const WRITES: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void called(void) { __asm__ volatile(""); }
int main(int argc, char **argv)
{
	int fd = open("/dev/null", O_WRONLY);
	for (long left = atol(argv[2]); left > 1; left--) {
		if (fork())
			return wait(0) < 0;
	}
	for (long i = atol(argv[1]); i > 0; i--) {
		called();
		if (write(fd, "x", 1) != 1)
			return 1;
	}
	return 0;
}
"#;

/// A byte back and forth between two processes, a number of times.
const PING: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int to[2], from[2];
	char byte = 0;
	if (pipe(to) || pipe(from))
		return 1;
	long rounds = atol(argv[1]);
	if (fork() == 0) {
		for (long i = 0; i < rounds; i++)
			if (read(to[0], &byte, 1) != 1 || write(from[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	for (long i = 0; i < rounds; i++)
		if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
			return 1;
	wait(0);
	return 0;
}
"#;

/// A number of names, with some system calls under each of them; then files that are closed by its
/// end.
const NAMES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char name[16];
	for (long i = 0; i < atol(argv[1]); i++) {
		snprintf(name, sizeof(name), "n%ld", i);
		prctl(PR_SET_NAME, name);
		getppid();
		getppid();
	}
	for (long i = 0; i < atol(argv[2]); i++)
		if (open("/dev/null", O_RDONLY) < 0)
			return 1;
	return 0;
}
"#;

/// How often the programs write.
const MANY: u64 = 1_234;

fn compiled(name: &str, source: &str) -> Place {
    let place = Place::new();
    place.write("source.c", source);
    let done = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .arg(place.path(name))
        .arg(place.path("source.c"))
        .status()
        .unwrap();
    assert!(done.success());
    place
}

fn stat(place: &Place, words: &[&str]) -> Output {
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    command.args(["stat", "-q"]).args(words).output().unwrap()
}

fn json(place: &Place, words: &[&str]) -> Value {
    let words: Vec<&str> = [&["--json"], words].concat();
    let done = stat(place, &words);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The count of an event, on all CPUs.
fn count(document: &Value, name: &str) -> u64 {
    let rows = document["events"].as_array().unwrap();
    let row = rows.iter().find(|r| r["event"] == name && r["cpu"].is_null());
    row.unwrap_or_else(|| panic!("{name}: {document:#}"))["count"].as_u64().unwrap()
}

/// Counts by `perf stat`; none without perf.
fn perf(place: &Place, events: &str, words: &[&str]) -> Option<Vec<u64>> {
    let done = Command::new("perf")
        .args(["stat", "-x,", "-e", events, "--"])
        .args(words)
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .output();
    let Ok(done) = done else {
        crate::common::skip("perf is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    let counts = text.lines().map(|line| line.split(',').next()?.parse().ok());
    Some(counts.map(|count| count.unwrap_or_else(|| panic!("{text}"))).collect())
}

/// Check that system calls, page faults and calls of a function of a command are counted exactly, in
/// each of several runs, and that what processes do that it starts is counted with it.
#[test]
fn as_root_exact_counts() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    let event = "syscalls:sys_enter_write";
    let many = MANY.to_string();
    for (processes, runs) in [("1", 1), ("1", 7), ("3", 2)] {
        let document = json(
            &place,
            &[
                "syscalls:sys_enter_write,uprobe:./writes:called,sched:sched_process_exec",
                "--blocks",
                &runs.to_string(),
                "--",
                "./writes",
                &many,
                processes,
            ],
        );
        assert_eq!(count(&document, event), runs * MANY);
        assert_eq!(count(&document, "uprobe:./writes:called"), runs * MANY);
        // The exec of the command itself is the first event of all.
        assert_eq!(count(&document, "sched:sched_process_exec"), runs);
        let writes = document["scalars"].as_array().unwrap().iter();
        let writes = writes.filter(|s| s["label"] == event).map(|s| &s["value"]);
        assert!(writes.clone().all(|value| value.as_f64() == Some(MANY as f64)));
        assert_eq!(writes.count() as u64, runs);
    }
}

/// Check that counts match `perf stat`, exactly where nothing varies, and otherwise within the
/// variation: switches of tasks that have to take turns on one CPU.
#[test]
fn as_root_as_perf_does() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    let events = "syscalls:sys_enter_write,minor-faults,major-faults";
    // Addresses would be other ones in each run.
    let words = ["setarch", "-R", "./writes", "1234", "1"];
    // The first run brings the program's pages into memory, so it has other faults than those after it.
    if perf(&place, events, &words).is_none() {
        return;
    }
    netplumb_testkit::mostly(2, 3, || {
        let theirs = perf(&place, events, &words).unwrap();
        let ours = json(&place, &[&[events, "--"], &words[..]].concat());
        let names = events.split(',');
        let ours: Vec<u64> = names.map(|name| count(&ours, name)).collect();
        assert_eq!(ours[0], MANY);
        assert_eq!(ours[0], theirs[0]);
        let message = format!("{ours:?}, by perf {theirs:?}");
        // Which of a file's pages one fault maps depends on what else uses memory.
        match ours[1].abs_diff(theirs[1]) <= 4 && ours[2].abs_diff(theirs[2]) <= 2 {
            true => Ok(message),
            false => Err(message),
        }
    });

    let place = compiled("ping", PING);
    let words = ["taskset", "-c", "0", "./ping", "1000"];
    netplumb_testkit::mostly(2, 3, || {
        let theirs = perf(&place, "context-switches", &words).unwrap()[0];
        let ours = json(&place, &[&["context-switches", "--"], &words[..]].concat());
        let ours = count(&ours, "context-switches");
        let message = format!("{ours}, by perf {theirs}");
        // What else runs on that CPU interrupts both.
        match ours.abs_diff(theirs) <= 20 && ours >= 1_990 {
            true => Ok(message),
            false => Err(message),
        }
    });
}

/// Check that parts of CPUs add up to the whole, of a command and of all CPUs, and that a ratio is that
/// of its counts.
#[test]
fn as_root_by_cpu() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    let event = "syscalls:sys_enter_write";
    let words =
        [event, "--by", "cpu", "--ratio", "syscalls:sys_enter_write/sched:sched_process_fork"];
    for rest in [&["--", "./writes", "1234", "2"][..], &["--duration", "300ms"]] {
        let document = json(&place, &[&words[..], rest].concat());
        let rows = document["events"].as_array().unwrap().iter();
        let parts = rows.filter(|r| r["event"] == event && !r["cpu"].is_null());
        let sum: u64 = parts.map(|r| r["count"].as_u64().unwrap()).sum();
        assert_eq!(sum, count(&document, event));
        if rest[0] == "--" {
            assert_eq!(sum, MANY);
            assert_eq!(document["ratios"][0]["value"], 1234.0);
        }
        // Software counts all the time, whichever CPU a task is on.
        let names = format!("page-faults,context-switches,{event}");
        let done = stat(&place, &[&[&names, "--by", "cpu"], rest].concat());
        let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && stdout.contains("page-faults"), "{stdout}");
        assert!(!stdout.contains("part of the time"), "{stdout}");
    }
}

/// Check that a process is counted that runs already, until it ends, and a cgroup.
#[test]
fn as_root_scopes() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    let mut sleeping = Command::new("sh")
        .args(["-c", "sleep 1; exec ./writes 1234 1"])
        .current_dir(place.path("."))
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let document = json(&place, &["syscalls:sys_enter_write", "--pid", &sleeping.id().to_string()]);
    assert!(sleeping.wait().unwrap().success());
    assert_eq!(count(&document, "syscalls:sys_enter_write"), MANY);
    assert!(document["complete"].as_bool().unwrap());
}

/// Check that a planted change is found, and nothing between two recordings of the same.
#[test]
fn as_root_compared() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    for (output, many) in [("a.plumb", "1000"), ("b.plumb", "1000"), ("c.plumb", "1010")] {
        let words = ["syscalls:sys_enter_write", "--blocks", "6", "-o", output, "--"];
        let done = stat(&place, &[&words[..], &["./writes", many, "1"]].concat());
        assert!(done.status.success());
    }
    let verdict = |after: &str| {
        let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
        let done = command.args(["diff", "a.plumb", after, "--csv"]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let row = text.lines().find(|line| line.contains("sys_enter_write"));
        row.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    assert!(verdict("b.plumb").contains("no_difference_seen"));
    assert!(verdict("c.plumb").contains("slower"), "{}", verdict("c.plumb"));
}

/// Check that what can't be counted is a row with the reason and the nearest name, that it is an error
/// if nothing can, with the exit code, and that each error is a line.
#[test]
fn what_cannot_be_counted() {
    let place = Place::new();
    let done =
        stat(&place, &["page-faults:u,page-fualts,kprobe:no_such_function_here", "--", "true"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        assert!(text.contains("did you mean `page-faults`?"), "{text}");
        assert!(text.contains("not counted"), "{text}");
    }
    for (words, code, said) in [
        (&["page-fualts", "--", "true"][..], 2, "did you mean `page-faults`?"),
        (&["cycles:q", "--", "true"], 2, "`:u`"),
        (&["block:", "--", "true"], 2, "SUBSYSTEM:TRACEPOINT"),
        (&["--ratio", "cycles", "--", "true"], 2, "invalid ratio `cycles`"),
        (&["uprobe:/bin/sh:no_such_function", "--", "true"], 2, "/bin/sh"),
        (&["--pid", "4194999"], 2, "no such process"),
        (&["--by", "task", "--", "true"], 2, "counters of a command"),
        (&["--by", "task", "--lab", "vm", "--", "true"], 2, "counters of a command"),
        (&["page-faults:u", "--", "./is-not-there"], 2, "can't start"),
    ] {
        let done = stat(&place, words);
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// Check that an unknown event is the same error, with the same exit code, whether it is a function or a tracepoint,
/// and whoever counts it.
#[test]
fn as_root_unknown() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    for (event, says) in [
        ("kprobe:ksys_wrte", "did you mean `ksys_write`?"),
        ("fentry:ksys_wrte", "did you mean `ksys_write`?"),
        ("kprobe:no_function_is_called_this", "plumb kernel add --debug"),
        ("blok:*", "did you mean `block:*`?"),
        ("nosuch:nosuch", "no subsystem `nosuch`"),
    ] {
        for by in [&[][..], &["--by", "layer"]] {
            let done = stat(&place, &[&[event], by, &["--", "true"]].concat());
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(2), "{event} {by:?}: {said}");
            assert!(said.contains(says), "{event} {by:?}: {said}");
        }
    }
}

/// Check that the map has every event, with a reason for each that can't be counted.
#[test]
fn the_map() {
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    let done = command.args(["doctor", "--events", "--json"]).output().unwrap();
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), netplumb_model::events::EVENTS.len());
    for event in all {
        let counted = event["counted"].as_bool().unwrap();
        assert_eq!(counted, event["why_not"].is_null(), "{event}");
        assert_eq!(counted, !event["of"].is_null(), "{event}");
    }
}

/// Check that blocks and lengths of time which would have no effect are refused before anything runs, with what to do.
#[test]
fn without_effect() {
    let place = Place::new();
    for (words, says) in [
        ("--blocks 5 --duration 10s -- true", "a command runs once"),
        ("--blocks 5 --interval 1s -- true", "a command runs once"),
        ("--lab netns --blocks 5 -- true", "in lab netns runs once"),
        ("--lab vm --duration 1s", "--packets"),
        ("--lab vm --pid 1", "--lab host"),
    ] {
        let all: Vec<&str> = ["page-faults"].into_iter().chain(words.split(' ')).collect();
        let done = stat(&place, &all);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(says), "{words}: {said}");
    }
}

/// Check that packets that plumb sends are counted per packet, exactly: each goes through a driver
/// once.
#[test]
fn as_root_per_packet() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let text = "name = \"counts\"\nlab = \"netns\"\ninstruments = [\"events\"]\n\
                [events]\nnames = [\"net:net_dev_xmit\", \"net:netif_rx\"]\n\
                [workload]\npackets = 300\n[blocks]\ncount = 3\n[vary]\nproto = [\"udp\", \"tcp\"]\n";
    fs::write(place.path("counts.toml"), text).unwrap();
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    let done = command.args(["run", "-q", "counts.toml", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&done.stdout).unwrap();
    let rows = document["events"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let each = row["mean"].as_f64().unwrap();
        // TCP also sends an acknowledgement.
        let packets = if row["arm"] == "udp" { 1.0 } else { 2.0 };
        assert!((packets..packets + 0.05).contains(&each), "{row}");
    }
}

/// Check that events of all CPUs are separated by task: a program has its known number of events, also if it ended
/// within a window, and the parts add up to the whole.
#[test]
fn as_root_by_task() {
    if !has_root() {
        return;
    }
    let place = compiled("writes-by-task", WRITES);
    let line = "sleep 0.3; ./writes-by-task 1234 3; sleep 0.3; ./writes-by-task 1000 1";
    let mut other = place.command("sh");
    let mut other = other.args(["-c", line]).spawn().unwrap();
    let document = json(
        &place,
        &[
            "syscalls:sys_enter_write,task-clock,context-switches",
            "--by",
            "task",
            "--duration",
            "2s",
            "--interval",
            "500ms",
        ],
    );
    assert!(other.wait().unwrap().success());
    let rows = document["events"].as_array().unwrap();
    let of = |event: &str, task: &str| -> u64 {
        let is = |row: &&Value| row["event"] == event && row["task"] == task;
        rows.iter().filter(is).filter_map(|r| r["count"].as_u64()).sum()
    };
    // `comm` has 15 letters.
    let writes = of("syscalls:sys_enter_write", "writes-by-task");
    assert_eq!(writes, MANY + 1_000, "{document:#}");
    assert!(of("task-clock", "writes-by-task") > 0);
    for event in ["syscalls:sys_enter_write", "task-clock", "context-switches"] {
        let parts = rows.iter().filter(|r| r["event"] == event && !r["task"].is_null());
        let parts: u64 = parts.filter_map(|row| row["count"].as_u64()).sum();
        let whole = rows.iter().find(|r| r["event"] == event && r["task"].is_null());
        assert_eq!(whole.unwrap()["count"].as_u64(), Some(parts), "{event}");
    }
    let refused = stat(&place, &["--by", "task", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--cgroup"), "{said}");
}

/// Check counts by layer: the layers of an event add up to its count, the call graph has as many, and a
/// clock is refused with the reason.
#[test]
fn as_root_by_layer() {
    if !has_root() {
        return;
    }
    let place = compiled("writes", WRITES);
    let document = json(
        &place,
        &[
            "syscalls:sys_enter_write,page-faults,task-clock",
            "--by",
            "layer",
            "--blocks",
            "2",
            "-o",
            "layers.plumb",
            "--",
            "./writes",
            "1234",
            "3",
        ],
    );
    let rows = document["events"].as_array().unwrap();
    let of = |event: &str, is: &dyn Fn(&Value) -> bool| -> u64 {
        let all = rows.iter().filter(|r| r["event"] == event && is(&r["layer"]));
        all.filter_map(|row| row["count"].as_u64()).sum()
    };
    let writes = "syscalls:sys_enter_write";
    assert_eq!(of(writes, &|layer| layer == "syscall"), 2 * MANY, "{document:#}");
    for event in [writes, "page-faults"] {
        let (whole, parts) = (of(event, &Value::is_null), of(event, &Value::is_string));
        assert!(whole > 0 && whole == parts, "{event}: {document:#}");
    }
    // Each process has a stack, data and code of its own.
    assert!(of("page-faults", &|layer| layer == "application") > 12, "{document:#}");
    let clock = rows.iter().find(|r| r["event"] == "task-clock").unwrap();
    assert!(clock["not_counted"].as_str().unwrap().contains("plumb profile"));
    let report = (place.command(env!("CARGO_BIN_EXE_plumb")))
        .args(["report", "layers.plumb", "--clock", "callers", "--csv"])
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    let root = text.lines().find(|line| line.contains(&format!(",{writes},")));
    let has =
        |line: &str| line.split(',').any(|f| f == MANY.to_string() || f == (2 * MANY).to_string());
    assert!(root.is_some_and(has), "{text}");
    let refused = stat(&place, &["--by", "stack", "task-clock", "--", "true"]);
    assert_eq!(refused.status.code(), Some(3));
}

/// Check that no stack is lost as a block is closed, however many there are, and that none turns up in another
/// block; and that others who count the same events meanwhile have them all.
#[test]
fn as_root_many_stacks() {
    if !has_root() {
        return;
    }
    let place = compiled("names", NAMES);
    let event = "syscalls:sys_enter_getppid";
    let mut idle = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = idle.id().to_string();
    let mut beside = place.command(env!("CARGO_BIN_EXE_plumb"));
    let mut beside = beside
        .args(["stat", event, "--by", "layer", "--pid", &pid, "-o", "beside.plumb"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let words = [event, "--by", "stack", "--blocks", "3", "-o", "names.plumb"];
    let command = ["--", "./names", "6000", "0"];
    let document = json(&place, &[&words[..], &command[..]].concat());
    let plain = json(&place, &[&[event][..], &command[..]].concat());
    idle.kill().unwrap();
    idle.wait().unwrap();
    beside.wait().unwrap();
    assert_eq!(count(&document, event), 3 * 12_000, "{document:#}");
    assert_eq!(count(&plain, event), 12_000, "{plain:#}");
    let recording = netplumb_store::read(&place.path("names.plumb")).unwrap();
    for block in 0..3 {
        let of = recording.costs.iter().filter(|cost| cost.block == block);
        assert_eq!(of.map(|cost| cost.own).sum::<u64>(), 12_000, "block {block}");
    }
}

/// Check that what a command does as it exits is its, in a guest, whose functions can be counted.
#[test]
fn vm_as_it_exits() {
    if !crate::common::has_guests() {
        return;
    }
    let place = compiled("names", NAMES);
    let words = ["fentry:filp_close", "--by", "layer", "--lab", "vm", "--", "./names", "1", "300"];
    let closed = count(&json(&place, &words), "fentry:filp_close");
    assert!((300..310).contains(&closed), "{closed}");
}

/// Check that another function is not probed instead of one that does not exist or has no
/// trampoline.
#[test]
fn vm_trampolines_one_by_one() {
    if !crate::common::has_guests() {
        return;
    }
    let place = compiled("names", NAMES);
    let words = "fentry:no_such_function,fentry:filp_close --lab vm -- ./names 1 300";
    let words: Vec<&str> = words.split_whitespace().collect();
    let document = json(&place, &words);
    let closed = count(&document, "fentry:filp_close");
    assert!((300..310).contains(&closed), "{closed}");
    let text = document.to_string();
    assert!(!text.contains("probed by kprobes"), "{document:#}");
    assert!(text.contains("no_such_function"), "{document:#}");
    let alone = stat(&place, &["kprobe:ksys_wrte", "--lab", "vm", "--", "./names", "1", "3"]);
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert_eq!(alone.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean `ksys_write`?"), "{said}");
}

/// Check that Ctrl-C ends a command, whose last words are waited for, and shows the counts.
#[test]
fn as_root_ctrl_c_shows_what_was_counted() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let mut command = place.plumb("stat context-switches --");
    // It continues for a moment after the interruption.
    command.args([
        "sh",
        "-c",
        "trap 'echo last words >&2; exit 0' INT; echo begun >&2; while :; do sleep 0.01; done",
    ]);
    let mut running = Running::start(&mut command);
    running.wait_for("begun");
    running.signal(libc::SIGINT);
    let ran = running.finish();
    ran.code(130).says(&["last words", "sh was interrupted"]);
    assert!(ran.stdout.contains("context-switches"), "{ran:#?}");
    place.nothing_runs();
}
