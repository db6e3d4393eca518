//! `plumb between`: times that are known, budgets that add up, counts beside ftrace's; who causes slow ones;
//! comparisons; events that can't be paired.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::Place;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_model::span::StageKind;
use netplumb_model::spans::{APART, BEGUN, ENDED, NO_ROOM, NOT_BEGUN, OPEN, SEEN, UNMATCHED};
use netplumb_testkit::has_root;
use serde_json::Value;

/// Calls functions in turn, some time apart: `begin`, `middle` except every nth time, `end`.
const STEPS: &str = r#"
#include <stdlib.h>
#include <time.h>
#define APART __attribute__((noinline)) void
APART begin(long n) { __asm__ volatile("" :: "r"(n)); }
APART middle(long n) { __asm__ volatile("" :: "r"(n)); }
APART end(long n) { __asm__ volatile("" :: "r"(n)); }
static void spin(long ns)
{
	struct timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < ns);
}
int main(int argc, char **argv)
{
	long rounds = atol(argv[1]), skip = atol(argv[2]);
	/* All at once. */
	for (long n = 0; argc > 3 && n < rounds; n++)
		begin(n);
	for (long n = 0; argc > 3 && n < rounds; n++)
		end(n);
	for (long n = 0; argc == 3 && n < rounds; n++) {
		begin(n);
		spin(100000);
		if (!skip || n % skip)
			middle(n);
		spin(200000);
		end(n);
	}
	return 0;
}
"#;

/// Two threads that call functions with the same few numbers, on two CPUs.
const RACES: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#define APART __attribute__((noinline)) void
APART begin(long n) { __asm__ volatile("" :: "r"(n)); }
APART end(long n) { __asm__ volatile("" :: "r"(n)); }
static void *race(void *rounds)
{
	for (long n = 0; n < (long)rounds; n++) {
		begin(n % 4);
		end(n % 4);
	}
	return NULL;
}
int main(int argc, char **argv)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, race, (void *)atol(argv[1]));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
"#;

/// Sleeps a number of times for a duration, and prints the average in nanoseconds.
const SLEEPS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv)
{
	long rounds = atol(argv[1]);
	struct timespec sleep = { 0, atol(argv[2]) }, from, to;
	long long sum = 0;
	for (long n = 0; n < rounds; n++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &sleep, 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		sum += (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec;
	}
	printf("%lld\n", sum / rounds);
	return 0;
}
"#;

fn compiled(name: &str, source: &str) -> Place {
    let place = Place::new();
    place.write("source.c", source);
    let done = Command::new("cc")
        .args(["-O1", "-static", "-fno-omit-frame-pointer", "-o"])
        .arg(place.path(name))
        .arg(place.path("source.c"))
        .status()
        .unwrap();
    assert!(done.success());
    place
}

fn between(place: &Place, words: &[&str]) -> Output {
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    command.args(["between", "-q"]).args(words).output().unwrap()
}

/// Measure, and read the recording.
fn measured(place: &Place, words: &[&str]) -> Recording {
    let done = between(place, words);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    netplumb_store::read(&place.path("between.plumb")).unwrap()
}

fn report(place: &Place, words: &[&str]) -> String {
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    let done = command.arg("report").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{words:?}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

/// A figure of all blocks, of a label or of all.
fn sum(recording: &Recording, of: &Declared, label: Option<&str>) -> u64 {
    let all = recording.scalars_of(of);
    let all = all.filter(|s| label.is_none() || s.item.label.as_deref() == label);
    all.map(|s| s.value as u64).sum()
}

/// All that began ended, is open, or has a cause for why not.
fn assert_ledger(recording: &Recording) {
    let open = sum(recording, &OPEN, None);
    let counts = [&ENDED, &UNMATCHED].map(|of| sum(recording, of, None));
    assert_eq!(
        sum(recording, &BEGUN, None),
        counts[0] + counts[1] + open,
        "ended, unmatched {counts:?}, open {open}"
    );
    // What ended is in the distribution.
    assert_eq!(total(recording, "total").0, counts[0]);
}

/// How many went through a stage, and their time.
fn total(recording: &Recording, stage: &str) -> (u64, u64) {
    let of = recording.stages().filter(|(_, s)| s.name == stage);
    of.fold((0, 0), |sum, (span, _)| (sum.0 + span.times.count, sum.1 + span.times.total_ns))
}

/// Check that the stages of a budget add up to the whole, to the nanosecond, that what skips an event has
/// a stage of its own, and that times are what they are.
#[test]
fn as_root_budget() {
    if !has_root() {
        return;
    }
    let place = compiled("steps", STEPS);
    let event = |f: &str| format!("uprobe:./steps:{f}");
    let [a, b, c] = ["begin", "middle", "end"].map(event);
    let command = ["--", "./steps", "400", "4"];
    let words: Vec<&str> =
        [&[a.as_str(), &b, &c, "--key", "arg0", "--kind", "work,wait"], &command[..]].concat();
    let recording = measured(&place, &words);
    assert_ledger(&recording);
    assert_eq!(sum(&recording, &BEGUN, None), 400);
    let [first, second, skipped, whole] =
        ["begin → middle", "middle → end", "begin → end", "total"]
            .map(|name| total(&recording, name));
    assert_eq!((first.0, second.0, skipped.0, whole.0), (300, 300, 100, 400));
    assert_eq!(first.1 + second.1 + skipped.1, whole.1);
    for (name, kind) in [
        ("begin → middle", StageKind::Work),
        ("middle → end", StageKind::Wait),
        ("begin → end", StageKind::Either),
    ] {
        let found = recording.stages().find(|(_, stage)| stage.name == name);
        assert_eq!(found.unwrap().1.kind, kind, "{name}");
    }
    // Spinning takes no less; how much more, depends on who else runs.
    assert!(first.1 / first.0 >= 100_000 && second.1 / second.0 >= 200_000);
    let text = report(&place, &["between.plumb"]);
    assert!(text.contains("begin → end"), "{text}");
    assert!(text.contains("400 begun = 400 ended + 0 open + 0 unmatched"), "{text}");
    let json: Value = serde_json::from_str(&report(&place, &["between.plumb", "--json"])).unwrap();
    let class = &json["times"][0];
    assert_eq!(class["stages_add_up"], true);
    let stage = class["stages"].as_array().unwrap().iter().find(|s| s["name"] == "begin → middle");
    assert_eq!(stage.unwrap()["count"], 300);
    assert_eq!(stage.unwrap()["passed_over"], 100);
    let csv = report(&place, &["between.plumb", "--csv"]);
    assert!(csv.contains("begin → end"), "{csv}");
}

/// Check that the ledger adds up where two CPUs begin and end one key at a time.
#[test]
fn as_root_one_key_on_two_cpus() {
    if !has_root() {
        return;
    }
    const ROUNDS: u64 = 50_000;
    let place = compiled("races", RACES);
    let races = place.path("races");
    let [begin, end] = ["begin", "end"].map(|name| format!("uprobe:{}:{name}", races.display()));
    let rounds = ROUNDS.to_string();
    let program = races.to_str().unwrap();
    let recording = measured(&place, &[&begin, &end, "--key", "arg0", "--", program, &rounds]);
    assert_ledger(&recording);
    assert_eq!(sum(&recording, &BEGUN, None), 2 * ROUNDS);
    assert_eq!(sum(&recording, &SEEN, None), 4 * ROUNDS);
}

/// Check that a planted sleep is found as long as the program itself saw it, within a twentieth.
#[test]
fn as_root_planted_sleep() {
    if !has_root() {
        return;
    }
    let place = compiled("sleeps", SLEEPS);
    let events = ["syscalls:sys_enter_clock_nanosleep", "syscalls:sys_exit_clock_nanosleep"];
    let command = ["--", "./sleeps", "50", "10000000"];
    let done = between(&place, &[&events[..], &["--csv"], &command].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // With CSV what the command prints is on standard error.
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let own: f64 =
        said.lines().find_map(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("{said}"));
    let recording = netplumb_store::read(&place.path("between.plumb")).unwrap();
    assert_ledger(&recording);
    let (count, ns) = total(&recording, "total");
    assert_eq!(count, 50);
    let mean = ns as f64 / 50.0;
    assert!((mean / own - 1.0).abs() < 0.05, "{mean} ns, by itself {own} ns");
    let wait = recording.stages().find(|(_, stage)| stage.kind == StageKind::Wait);
    assert!(wait.is_some());
}

/// Check that an event that begins and ends is paired with the one before it and not with itself, and is
/// begun again where another one is between.
#[test]
fn as_root_the_same_event_twice() {
    if !has_root() {
        return;
    }
    let place = compiled("sleeps", SLEEPS);
    let [enter, exit] = ["enter", "exit"].map(|of| format!("syscalls:sys_{of}_clock_nanosleep"));
    let command = ["--", "./sleeps", "20", "2000000"];
    for events in [vec![&enter, &enter], vec![&enter, &exit, &enter]] {
        let events: Vec<&str> = events.into_iter().map(String::as_str).collect();
        let recording = measured(&place, &[&events[..], &command].concat());
        assert_ledger(&recording);
        let [begun, ended, open] = [&BEGUN, &ENDED, &OPEN].map(|of| sum(&recording, of, None));
        assert_eq!((begun, ended, open), (20, 19, 1), "{events:?}");
        let (count, ns) = total(&recording, "total");
        assert!(count == 19 && ns / count >= 2_000_000, "{count} {ns}");
        if events.len() == 3 {
            let slept = recording.stages().find(|(_, s)| s.kind == StageKind::Wait);
            let slept = &slept.unwrap().0.times;
            assert!(slept.count == 19 && slept.total_ns / 19 >= 2_000_000);
        }
    }
    // A tracepoint of the kernel's own, whose arguments are read.
    let words = ["sched:sched_switch", "sched:sched_switch", "--key", "next"];
    let recording = measured(&place, &[&words[..], &command].concat());
    assert_ledger(&recording);
    let (count, ns) = total(&recording, "total");
    assert!(count >= 15 && ns / count >= 1_000_000, "{count} {ns}");
}

/// Check that a wake-up belongs to the task that is woken up: for a command that sleeps, by its name.
#[test]
fn as_root_who_is_woken() {
    if !has_root() {
        return;
    }
    let place = compiled("sleeps", SLEEPS);
    let command = ["--", "./sleeps", "50", "2000000"];
    let words = ["--preset", "runqueue", "--by", "task"];
    let recording = measured(&place, &[&words[..], &command].concat());
    assert_ledger(&recording);
    // There are kernels that run no program where a timer interrupts some tasks (docs/limits.md).
    let woken = total(&recording, "total").0;
    assert!((40..=60).contains(&woken), "{woken}");
    let csv = report(&place, &["between.plumb", "--csv"]);
    assert!(csv.contains("sleeps"), "{csv}");
    let sleeps = Running::new(&place, "sleeps", &["5000", "1000000"]);
    let pid = sleeps.pid();
    let words = [&words[..2], &["--pid", &pid, "--duration", "300ms"]].concat();
    let woken = total(&measured(&place, &words), "total").0;
    assert!((100..=300).contains(&woken), "{woken}");
}

/// A process that runs until it is dropped.
struct Running(Child);

impl Running {
    fn new(place: &Place, program: &str, words: &[&str]) -> Running {
        let mut command = Command::new(place.path(program));
        Running(command.args(words).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Check that a run that ends before its events do counts all of them until the same moment: one thread has at most one
/// round under way then, whether its events are probes or tracepoints that perf attaches.
#[test]
fn as_root_ends_at_one_moment() {
    if !has_root() {
        return;
    }
    let steps = compiled("steps", STEPS);
    let event = |f: &str| format!("uprobe:./steps:{f}");
    let probes = ["begin", "middle", "end"].map(event);
    let sleeps = compiled("sleeps", SLEEPS);
    let calls = ["syscalls:sys_enter_clock_nanosleep", "syscalls:sys_exit_clock_nanosleep"];
    for (place, running, events, key) in [
        (
            &steps,
            Running::new(&steps, "steps", &["100000000", "0"]),
            &probes.each_ref().map(String::as_str)[..],
            "arg0",
        ),
        (&sleeps, Running::new(&sleeps, "sleeps", &["100000000", "1000000"]), &calls[..], "task"),
    ] {
        let pid = running.pid();
        let options = ["--key", key, "--pid", &pid, "--duration", "1s"];
        let recording = measured(place, &[events, &options].concat());
        assert_ledger(&recording);
        assert!(sum(&recording, &ENDED, None) > 100, "{events:?}");
        let open = sum(&recording, &OPEN, None);
        assert!(open <= 1, "{open} open of {events:?}");
        assert_eq!(sum(&recording, &UNMATCHED, None), 0, "{events:?}");
        // Tracepoints are seen of all processes.
        if key == "arg0" {
            let seen = events.iter().map(|of| sum(&recording, &SEEN, Some(of)));
            let seen: Vec<u64> = seen.collect();
            let (least, most) = (seen.iter().min(), seen.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{seen:?}");
        }
    }
}

/// Where tracefs can be used, in an instance of its own; removed when dropped.
struct Traced {
    mounted: tempfile::TempDir,
    instance: PathBuf,
}

impl Traced {
    fn new(events: &[&str]) -> Option<Traced> {
        let mounted = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(mounted.path()).status();
        if !mount.is_ok_and(|status| status.success()) {
            crate::common::skip("tracefs can't be mounted");
            return None;
        }
        let name = format!("plumb-test-{}", std::process::id());
        let instance = mounted.path().join("instances").join(name);
        let traced = Traced { mounted, instance };
        if fs::create_dir(&traced.instance).is_err() {
            crate::common::skip("tracefs makes no instance");
            return None;
        }
        let write = |file: &str, text: &str| fs::write(traced.instance.join(file), text).unwrap();
        write("buffer_size_kb", "16384");
        for event in events {
            write(&format!("events/{event}/enable"), "1");
        }
        Some(traced)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read(self.instance.join("trace")).unwrap();
        let text = String::from_utf8_lossy(&text);
        let all = text.lines().filter(|line| !line.starts_with('#'));
        all.map(String::from).collect()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        let _ = Command::new("umount").arg(self.mounted.path()).status();
    }
}

/// What a request is known by in a line of ftrace, from the device on: `254,0 R ... 123 + 8`.
fn request(line: &str, event: &str) -> Option<(String, String)> {
    let rest = line.split_once(&format!(" {event}: "))?.1;
    let device = rest.split(' ').next()?;
    // Before it comes the command, in parentheses.
    let after = rest.rsplit_once(") ")?.1;
    let sector = after.split(' ').next()?;
    Some((device.into(), sector.into()))
}

/// A file of `mib` MiB, and a command that reads it from its disk, a piece at a time.
fn read_from_disk(file: &Path, mib: u32) -> Vec<String> {
    let bytes = vec![0x5a_u8; (mib as usize) << 20];
    fs::write(file, bytes).unwrap();
    fs::File::open(file).unwrap().sync_all().unwrap();
    let input = format!("if={}", file.display());
    ["dd", &input, "of=/dev/null", "bs=64K", "iflag=direct"].map(String::from).to_vec()
}

/// Check that a disk's requests match ftrace's: as many begun by the command, and all of their completions, mostly in
/// the idle task.
#[test]
fn as_root_requests_as_ftrace_has_them() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let file = place.path("data");
    let command = read_from_disk(&file, 16);
    let Some(traced) = Traced::new(&["block/block_rq_issue", "block/block_rq_complete"]) else {
        return;
    };
    let mut words = vec!["block:block_rq_issue", "block:block_rq_complete", "--by", "device", "--"];
    words.extend(command.iter().map(String::as_str));
    let done = between(&place, &words);
    let lines = traced.lines();
    let issued: Vec<_> = lines
        .iter()
        .filter(|line| line.ends_with("[dd]"))
        .filter_map(|line| request(line, "block_rq_issue"))
        .collect();
    if issued.is_empty() {
        // On a file system in memory.
        crate::common::skip("temporary files are on no disk");
        return;
    }
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let recording = netplumb_store::read(&place.path("between.plumb")).unwrap();
    assert_ledger(&recording);
    let begun = sum(&recording, &BEGUN, None);
    assert_eq!(begun, issued.len() as u64);
    let completed =
        |line: &&String| request(line, "block_rq_complete").is_some_and(|of| issued.contains(&of));
    let completed: Vec<&String> = lines.iter().filter(completed).collect();
    // All, except ones that interrupted a task in which this machine's kernel runs no program (docs/limits.md).
    let (ended, all) = (sum(&recording, &ENDED, None), completed.len() as u64);
    assert!(ended <= all && ended + all / 50 >= all, "{ended} of {all}");
    let idle = completed.iter().filter(|line| line.contains("<idle>")).count();
    netplumb_testkit::tell(&format!("{idle} of {} completions in the idle task", completed.len()));
    // All are of one disk.
    let groups: Vec<&str> = recording.groups.iter().map(|g| g.name.as_str()).collect();
    assert!(groups.windows(2).all(|two| two[0] == two[1]), "{groups:?}");
    let of_groups: u64 = recording.groups.iter().map(|g| g.times.count).sum();
    assert_eq!(of_groups, ended);
    let slices: u64 = recording.slices.iter().flat_map(|s| &s.buckets).map(|b| b.1).sum();
    assert_eq!(slices, ended);
}

/// A loop device on a file; released when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        fs::File::create(file).unwrap().set_len(64 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.ok().filter(|made| made.status.success());
        let Some(made) = made else {
            crate::common::skip("no loop devices");
            return None;
        };
        Some(Loop(String::from_utf8(made.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Check that requests of a loop device are found by its name, and that the call graph of who caused
/// them leads to the command's read.
#[test]
fn as_root_loop_device() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let Some(device) = Loop::new(&place.path("image")) else {
        return;
    };
    let input = format!("if={}", device.0);
    let read = ["--", "dd", &input, "of=/dev/null", "bs=16K", "count=256", "iflag=direct"];
    let events = ["block:block_rq_issue", "block:block_rq_complete"];
    let words = [&events[..], &["--key", "request", "--by", "device"], &read].concat();
    let recording = measured(&place, &words);
    let name = device.0.trim_start_matches("/dev/");
    let group = recording.groups.iter().filter(|group| group.name == name);
    assert_eq!(group.map(|g| g.times.count).sum::<u64>(), 256);
    assert_ledger(&recording);
    let words = [&events[..], &["--slow", "1ns"], &read].concat();
    let recording = measured(&place, &words);
    assert_ledger(&recording);
    let parts = recording.parts();
    assert_eq!(parts, ["spans", "stacks", "slow"]);
    for part in ["stacks", "slow"] {
        let tree = report(&place, &["between.plumb", "--clock", part, "--folded"]);
        let all: u64 =
            tree.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(all, total(&recording, "total").1, "{part}");
        // Whoever else reads it (udev) may have caused some.
        let of_dd = tree.lines().filter(|line| line.contains("dd") && line.contains("vfs_read"));
        assert!(of_dd.count() > 0, "{tree}");
    }
    let text = report(&place, &["between.plumb", "--clock", "slow", "--tree"]);
    assert!(text.contains("blkdev"), "{text}");
    // Where there are none, only this is printed.
    let words = [&events[..], &["--slow", "100s"], &read].concat();
    assert_ledger(&measured(&place, &words));
    let text = report(&place, &["between.plumb", "--clock", "slow"]);
    assert!(text.starts_with("none took longer than "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// Check time from a wake-up to running: paired by the task that each is about, with counts of what
/// nobody had woken apart, and broken down by task.
#[test]
fn as_root_wake_ups() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words = ["sched:sched_wakeup", "sched:sched_switch", "--by", "task", "--duration", "1s"];
    let recording = measured(&place, &words);
    assert_ledger(&recording);
    assert_eq!(recording.environment["spans.key"], "task");
    assert!(sum(&recording, &ENDED, None) > 0);
    // Tasks that are only preempted, and the idle ones, are not woken.
    assert!(sum(&recording, &APART, None) > 0);
    let seen = sum(&recording, &SEEN, Some("sched:sched_switch"));
    assert!(seen >= sum(&recording, &ENDED, None));
    let groups: u64 = recording.groups.iter().map(|g| g.times.count).sum();
    assert_eq!(groups, sum(&recording, &ENDED, None));
    assert!(recording.blocks.len() >= 5);
    let html = place.path("page.html");
    report(&place, &["between.plumb", "--html", html.to_str().unwrap()]);
    assert!(fs::metadata(&html).unwrap().len() > 10_000);
}

/// Check that what a full table has no room for is counted, and the ledger closes.
#[test]
fn as_root_full_table() {
    if !has_root() {
        return;
    }
    let place = compiled("steps", STEPS);
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    // Nothing ends: rounds begin with another number each.
    let words =
        ["between", "-q", "uprobe:./steps:begin", "uprobe:./steps:end", "--key", "arg0,task"];
    command.args(words).args(["--", "./steps", "100", "0"]).env("PLUMB_TEST_SPANS_OPEN", "8");
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("no pair: `uprobe:./steps:begin` was seen 100 times"), "{said}");
    assert!(said.contains("--key"), "{said}");

    // A hundred are under way at once: the result has those for which there was room, and the others are
    // a loss with its cause.
    let words = ["between", "-q", "uprobe:./steps:begin", "uprobe:./steps:end"];
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    let done = command
        .args(words)
        .args(["--key", "arg0", "--", "./steps", "100", "0", "at once"])
        .env("PLUMB_TEST_SPANS_OPEN", "8")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    let recording = netplumb_store::read(&place.path("between.plumb")).unwrap();
    assert_ledger(&recording);
    assert_eq!(sum(&recording, &BEGUN, None), 100);
    let ended = sum(&recording, &ENDED, None);
    assert!((1..=8).contains(&ended), "{ended}");
    let of = |quantity: &Declared, cause: &str| sum(&recording, quantity, Some(cause));
    assert_eq!(of(&UNMATCHED, NO_ROOM), 100 - ended);
    assert_eq!(of(&APART, NOT_BEGUN), 100 - ended);
    let lost = recording.losses["spans"].iter();
    let lost: u64 = lost.filter(|loss| loss.cause.contains("no room")).map(|loss| loss.count).sum();
    assert_eq!(lost, 100 - ended);
    let text = report(&place, &["between.plumb"]);
    assert!(text.contains("no room in the table"), "{text}");
}

/// Check that no difference is found between two runs of the same, in most of a few tries, but between different
/// sleeps.
#[test]
fn as_root_compared() {
    if !has_root() {
        return;
    }
    let place = compiled("sleeps", SLEEPS);
    let events = ["syscalls:sys_enter_clock_nanosleep", "syscalls:sys_exit_clock_nanosleep"];
    let run = |times: &str, ns: &str, to: &str| {
        let options = ["--interval", "100ms", "-o", to, "--", "./sleeps", times, ns];
        let done = between(&place, &[&events[..], &options].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run("800", "1000000", "a.plumb");
    run("200", "10000000", "c.plumb");
    let diff = |a: &str, b: &str| -> Value {
        let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
        let done = command.args(["diff", a, b, "--json"]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let text = |document: &Value| document.to_string();
    let slower = diff("a.plumb", "c.plumb");
    assert!(text(&slower).contains("\"slower\""), "{slower:#}");
    netplumb_testkit::mostly(2, 3, || {
        run("800", "1000000", "b.plumb");
        let same = text(&diff("a.plumb", "b.plumb"));
        match ["\"slower\"", "\"faster\""].iter().any(|word| same.contains(word)) {
            true => Err(same),
            false => Ok("no difference".into()),
        }
    });
}

/// Check that what can't be measured is an error of a line, with what to write instead.
#[test]
fn as_root_bad_input() {
    if !has_root() {
        return;
    }
    let place = compiled("steps", STEPS);
    let issue = "block:block_rq_issue";
    let complete = "block:block_rq_complete";
    for (words, code, says) in [
        (&[issue][..], 2, "expected 2 to 8 events"),
        (&["block:block_rq_isue", complete], 2, "did you mean `block:block_rq_issue`?"),
        (&["block_rq_isue", complete], 2, "did you mean `block:block_rq_issue`?"),
        (&["page-faults", complete], 2, "has no moment"),
        (&["block:*", complete], 2, "may be several events"),
        (&[issue, complete, "--key", "sector"], 2, "use --key request"),
        (&[issue, complete, "--key", "request,foo"], 2, "it has rq (request)"),
        (&[issue, complete, "--key", "a,b,c"], 2, "3 keys for 2 events"),
        (&[issue, complete, "--slow", "p100"], 2, "expected like p99 or 10ms"),
        (
            &["sched:sched_switch", "sched:sched_wakeup", "--by", "device"],
            2,
            "a request, a bio or an skb",
        ),
        (&["uprobe:./steps:bgin", "uprobe:./steps:end"], 2, "did you mean `begin`?"),
        (&[issue, complete, "--pid", "999999999"], 2, "no such process"),
    ] {
        let done = between(&place, &[words, &["--duration", "100ms"]].concat());
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        // clap's errors have a line about --help.
        assert!(said.trim().lines().count() <= 3, "{said}");
    }
}
