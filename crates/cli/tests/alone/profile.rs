//! `plumb profile`: shares that are known, by both ways to find user stacks; time off the CPU;
//! losses; names of code made at run time; comparisons; ends of the sampled; and what can't be
//! sampled.

mod compared;
mod ends;
mod lines;
mod made;

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::Place;
use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{
    CPU_TIME, OFF_CPU, STACKS_COPIED, STACKS_CUT, USER_STACKS, WAITS_BEGUN, WAITS_ENDED, WAITS_OPEN,
};
use netplumb_report::analysis::class;

/// A program that works for some seconds, in two functions, three times as long in one of them.
const WORK: &str = r#"
#include <stdlib.h>
#include <time.h>
volatile unsigned long sink;
__attribute__((noinline)) void work(unsigned long n)
{ for (unsigned long i = 0; i < n; i++) sink += i * i; }
__attribute__((noinline)) void heavy(unsigned long n) { work(3 * n); sink++; }
__attribute__((noinline)) void light(unsigned long n) { work(n); sink++; }
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
	double end = now() + atof(argv[1]);
	do {
		heavy(10000);
		light(10000);
	} while (now() < end);
	return argc > 2 ? atoi(argv[2]) : 0;
}
"#;

/// A program that sleeps twenty times 50 ms.
const SLEEP: &str = r#"
#include <time.h>
__attribute__((noinline)) void doze(void)
{
	struct timespec t = { 0, 50000000 };
	nanosleep(&t, 0);
}
/* By frame pointers, who calls a function without a frame, as nanosleep is, is not in its stack. */
__attribute__((noinline)) void nap(void) { doze(); }
int main(void)
{
	for (int i = 0; i < 20; i++)
		nap();
	return 0;
}
"#;

/// Waits until no other of these tests runs, which would take CPU time from this one; none without
/// root.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    netplumb_testkit::has_root().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn compile(place: &Place, name: &str, source: &str, words: &[&str]) {
    place.write("source.c", source);
    let done = Command::new("cc")
        .args(words)
        .arg("-o")
        .arg(place.path(name))
        .arg(place.path("source.c"))
        .status()
        .unwrap();
    assert!(done.success());
}

fn with_frame_pointers(place: &Place, name: &str, source: &str) {
    let words = ["-O0", "-static", "-fno-omit-frame-pointer"];
    compile(place, name, source, &words);
}

/// Without tail calls, whose callers are on no stack.
const WITHOUT_FRAME_POINTERS: &[&str] =
    &["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];

/// Run `plumb profile`.
fn profile(place: &Place, words: &[&str]) -> Output {
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    command.arg("profile").args(words).output().unwrap()
}

/// The same, which has to succeed; its recording.
fn recorded(place: &Place, words: &[&str]) -> Recording {
    let done = profile(place, words);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    netplumb_store::read(&place.path("profile.plumb")).unwrap()
}

/// Samples of a function with its callees, and of all; of the quantity of a part.
fn share(recording: &Recording, name: &str) -> (f64, f64) {
    let view = class(recording, 0, Direction::Run);
    let found = view.functions.iter().find(|f| view.name(f.function) == name);
    let inclusive = found.map_or(0, |f| f.inclusive_insns);
    let samples: u64 = recording.costs.iter().map(|c| c.calls).sum();
    (inclusive as f64 / view.total.max(1) as f64, samples as f64)
}

/// Check a share against its known value: within five standard errors for its number of samples,
/// and what the program's other work may take.
fn check_share(recording: &Recording, name: &str, expected: f64) {
    let (share, samples) = share(recording, name);
    assert!(samples > 300.0, "{samples} samples");
    let error = (expected * (1.0 - expected) / samples).sqrt();
    assert!((share - expected).abs() < 5.0 * error + 0.03, "{name}: {share} of {samples} samples");
}

/// Check that functions have their known shares, in a program with frame pointers and in one without, whose stacks are
/// unwound; that stacks are no longer copied where frame pointers hold; that the blocks add up; and that an error names
/// the command's exit code.
#[test]
fn known_shares() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let recording = recorded(&place, &["--", "./work", "2"]);
    check_share(&recording, "heavy", 0.75);
    check_share(&recording, "light", 0.25);
    check_share(&recording, "main", 1.0);
    assert!(recording.blocks.len() >= 5, "{}", recording.blocks.len());
    assert!(recording.complete);
    for (number, block) in (0..).zip(&recording.blocks) {
        let of = recording.costs.iter().filter(|c| c.block == number);
        let sum: u64 = of.map(|c| c.own).sum();
        assert_eq!(sum, block.kernel() + block.user(), "block {number}");
    }
    // Its stacks were copied until its frame pointers were found to hold.
    let parts = |recording: &Recording| {
        let sum = |of| recording.scalars_of(of).map(|s| s.value).sum::<f64>();
        let all = sum(&USER_STACKS);
        (sum(&STACKS_COPIED) / all, sum(&STACKS_CUT) / all)
    };
    // Also of a program whose threads begin in a library, which may have no symbols for that.
    compile(&place, "dynamic", WORK, &["-O0", "-fno-omit-frame-pointer"]);
    let dynamic = recorded(&place, &["--", "./dynamic", "2"]);
    for recording in [&recording, &dynamic] {
        let (copied, cut) = parts(recording);
        assert!(copied > 0.0 && copied < 0.5 && cut < 0.05, "{copied}, {cut}");
    }
    compile(&place, "bare", WORK, WITHOUT_FRAME_POINTERS);
    for (how, least) in [("auto", 0.95), ("dwarf", 0.99)] {
        let recording = recorded(&place, &["--user-stacks", how, "--", "./bare", "2"]);
        check_share(&recording, "heavy", 0.75);
        check_share(&recording, "main", 1.0);
        let (copied, cut) = parts(&recording);
        assert!(copied >= least && cut < 0.05, "{how}: {copied}, {cut}");
        // No copy takes the place of one of the next block.
        assert_eq!(recording.samples.len(), recording.blocks.len(), "{how}");
    }
    let recording = recorded(&place, &["--user-stacks", "fp", "--", "./bare", "2"]);
    let (copied, cut) = parts(&recording);
    assert!(copied == 0.0 && cut > 0.5, "{copied}, {cut}");

    let done = profile(&place, &["--", "./work", "0.5", "7"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("work exited with code 7"), "{said}");
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    for words in ["Profile of ./work", "heavy", "CPU time", "irqs off", "cost"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

/// Check that the time that a program sleeps is off the CPU, by the function that sleeps, and that
/// every wait that began ended or is open.
#[test]
fn sleeps() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "sleep", SLEEP);
    check_sleep(&place, "fp", &["nap", "[sleep]"]);
    check_sleep(&place, "auto", &["doze", "nap", "main", "[sleep]"]);
    compile(&place, "sleep", SLEEP, WITHOUT_FRAME_POINTERS);
    check_sleep(&place, "auto", &["doze", "nap", "main", "[sleep]"]);
}

/// Check the time that the program sleeps, which each of some functions has, and the ledger of waits.
#[track_caller]
fn check_sleep(place: &Place, how: &str, functions: &[&str]) {
    let recording = recorded(
        place,
        &["--off-cpu", "--frequency", "5000", "--user-stacks", how, "--", "./sleep"],
    );
    let waits = recording.part(OFF_CPU.name);
    let view = class(&waits, 0, Direction::Run);
    let ns = |name: &str| {
        let found = view.functions.iter().find(|f| view.name(f.function) == name);
        found.map_or(0, |f| f.inclusive_insns) as f64 / 1e9
    };
    // Timers are not early, but a task whose timer ends before its CPU leaves it does not wait, as on
    // a machine whose CPUs are not always run; how late it is, nobody knows.
    for name in functions {
        assert!((0.75..3.0).contains(&ns(name)), "{name}: {} s", ns(name));
    }
    let sum = |of| recording.scalars_of(of).map(|s| s.value).sum::<f64>();
    let open = recording.scalars_of(&WAITS_OPEN).last().unwrap().value;
    assert_eq!(sum(&WAITS_BEGUN), sum(&WAITS_ENDED) + open);
    assert!(sum(&WAITS_ENDED) >= 15.0, "{}", sum(&WAITS_ENDED));
    let lost: Vec<_> = recording.all_losses().filter(|l| l.count > 0).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let of_cpu = recording.part(CPU_TIME.instrument);
    let view = class(&of_cpu, 0, Direction::Run);
    assert!(view.functions.iter().all(|f| view.name(f.function) != "[sleep]"));
}

/// Check that processes that live for some milliseconds have names.
#[test]
fn short_lives() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let line = "for i in $(seq 100); do ./work 0.01; done";
    let recording = recorded(&place, &["--", "sh", "-c", line]);
    let (heavy, samples) = share(&recording, "heavy");
    let (root, _) = share(&recording, "work");
    assert!(samples > 300.0, "{samples}");
    // Of the program's own time; what else it takes is the kernel's, to make and to end it.
    assert!(heavy > 0.4 && root > heavy, "{heavy} of {root}");
    let (unknown, _) = share(&recording, "[unknown]");
    assert!(unknown < 0.05, "{unknown}");
}

/// Check that stacks without room are counted as lost, and that nothing is lost otherwise.
#[test]
fn no_room() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "work", WORK);
    let lost = |recording: &Recording| {
        let of = |l: &&netplumb_model::loss::Loss| l.cause.contains("no room for more stacks");
        recording.all_losses().filter(of).map(|l| l.count).sum::<u64>()
    };
    let recording = recorded(&place, &["--", "./work", "1"]);
    assert_eq!(lost(&recording), 0);
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    command.args(["profile", "--", "./work", "1"]);
    let done = command.env("PLUMB_TEST_SAMPLES_KEYS", "2").output().unwrap();
    assert!(done.status.success());
    let recording = netplumb_store::read(&place.path("profile.plumb")).unwrap();
    // A second has 1,000, if nobody else has the CPU.
    assert!(lost(&recording) > 10, "{}", lost(&recording));
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(shown.contains("no room for more stacks"), "{shown}");
}
