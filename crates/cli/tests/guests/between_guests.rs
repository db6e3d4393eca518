//! `plumb between` and `plumb stat` in guests: functions by each kind of probe, of the kernel and of a
//! command; disks with a planted delay; packets; counts beside the exact ones.

use std::process::Command;

use crate::common::{OLDEST_AND_NEWEST, Place};
use netplumb_model::events::COUNT;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_model::spans::{BEGUN, ENDED, OPEN, UNMATCHED};

/// Writes a number of times, each time between two calls of its own that are some time apart.
const WRITES: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define APART __attribute__((noinline)) void
APART begin(long n) { __asm__ volatile("" :: "r"(n)); }
APART end(long n) { __asm__ volatile("" :: "r"(n)); }
int main(int argc, char **argv)
{
	long rounds = atol(argv[1]);
	int fd = open("/dev/null", O_WRONLY);
	for (long n = 0; n < rounds; n++) {
		begin(n);
		if (write(fd, "x", 1) != 1)
			return 1;
		for (volatile int spin = 0; spin < 20000; spin++)
			;
		end(n);
	}
	return 0;
}
"#;

/// How often it writes.
const ROUNDS: u64 = 100;

/// Begins twice, 40 ms apart, and ends once, 10 ms after the second time; and a function that calls itself as in
/// Fibonacci's recursion.
const AGAIN: &str = r#"
#include <stdlib.h>
#include <time.h>
#define APART __attribute__((noinline)) int
volatile int n;
APART begin(void) { return n++; }
APART end(void) { return n++; }
APART fib(int of)
{
	if (of < 2)
		return of;
	int before = fib(of - 1);
	return before + fib(of - 2);
}
static void ms(int number)
{
	struct timespec pause = { 0, number * 1000000L };
	nanosleep(&pause, 0);
}
int main(int argc, char **argv)
{
	for (int i = 0; i < 5; i++) {
		begin();
		ms(40);
		begin();
		ms(10);
		end();
		ms(5);
	}
	return fib(atoi(argv[1])) < 0;
}
"#;

fn compiled() -> Place {
    let place = Place::new();
    compile(&place, "writes", WRITES);
    place
}

fn compile(place: &Place, name: &str, text: &str) {
    let source = format!("{name}.c");
    place.write(&source, text);
    let done = Command::new("cc")
        .args(["-O1", "-static", "-fno-optimize-sibling-calls", "-o"])
        .args([place.path(name), place.path(&source)])
        .status()
        .unwrap();
    assert!(done.success());
}

/// A figure of all blocks of an arm.
fn sum(recording: &Recording, arm: usize, of: &Declared, label: Option<&str>) -> u64 {
    let is_its = |block: u32| recording.blocks[block as usize].arm as usize == arm;
    let all = recording.scalars_of(of);
    let all = all.filter(|s| s.block().is_some_and(is_its));
    let all = all.filter(|s| label.is_none() || s.item.label.as_deref() == label);
    all.map(|s| s.value as u64).sum()
}

/// How many went through a stage of an arm, and their time.
fn total(recording: &Recording, arm: usize, stage: &str) -> (u64, u64) {
    let is_its = |block: u32| recording.blocks[block as usize].arm as usize == arm;
    let of = recording.stages();
    let of = of.filter(|(span, s)| s.name == stage && is_its(span.block));
    of.fold((0, 0), |sum, (span, _)| (sum.0 + span.times.count, sum.1 + span.times.total_ns))
}

fn assert_ledger(recording: &Recording, arm: usize) {
    let counts = [&ENDED, &UNMATCHED, &OPEN].map(|of| sum(recording, arm, of, None));
    let begun = sum(recording, arm, &BEGUN, None);
    assert_eq!(begun, counts.iter().sum::<u64>(), "{counts:?}");
    assert_eq!(total(recording, arm, "total").0, counts[0]);
}

/// Check that calls of a kernel function are paired by kprobes and by trampolines, and calls of a command's function by
/// uprobes, each as often as the command made them.
#[test]
fn functions() {
    if !crate::common::has_guests() {
        return;
    }
    let place = compiled();
    let events = [
        ("kprobe:ksys_write kretprobe:ksys_write", 100),
        ("fentry:ksys_write fexit:ksys_write", 100),
        ("uprobe:./writes:begin uprobe:./writes:end --key arg0", 20_000),
    ];
    let all = crate::common::oldest_and_newest(&place)
        .into_iter()
        .flat_map(|kernel| events.map(|events| (kernel, events)));
    for (kernel, (events, least_ns)) in all {
        let ran = place
            .run(&format!("between -q {events} --lab vm --kernel {kernel} -- ./writes {ROUNDS}"));
        ran.code(0);
        crate::common::prints(&ran, &["100 begun = 100 ended + 0 open + 0 unmatched"]);
        let recording = place.recording("between.plumb");
        assert_ledger(&recording, 0);
        let (count, ns) = total(&recording, 0, "total");
        assert_eq!(count, ROUNDS, "{events}");
        let each = ns / count;
        // Probes by kprobes have what they cost themselves within: 2,328 instructions on the newest kernel.
        assert!(each >= least_ns && each < 30 * least_ns, "{events}: {each} ns");
        assert!(!recording.environment.contains_key("spans.probes"));
    }
    // A call that returns the requested count is found by it.
    let ran = place.run(&format!(
        "between -q fentry:ksys_write fexit:ksys_write --key count,retval --by stack --lab vm -- ./writes {ROUNDS}"
    ));
    ran.code(0);
    let recording = place.recording("between.plumb");
    assert_eq!(total(&recording, 0, "total").0, ROUNDS);
    assert_eq!(recording.parts(), ["spans", "stacks"]);
    let tree = place.run("report between.plumb --clock stacks --folded");
    tree.code(0);
    // Of what calls the program there is nothing.
    assert!(tree.stdout.contains(";ksys_write "), "{}", tree.stdout);
}

/// Check that a repeated first event starts the pair again: the time is from the later one, and the earlier one is not
/// lost but unmatched.
#[test]
fn begun_again() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place, "again", AGAIN);
    for kernel in crate::common::oldest_and_newest(&place) {
        let ran = place.run(&format!(
            "between -q uprobe:./again:begin uprobe:./again:end --lab vm --kernel {kernel} -- ./again 0"
        ));
        let ledger = "10 begun = 5 ended + 0 open + 5 unmatched (begun again before the end 5)";
        crate::common::prints(ran.code(0), &[ledger]);
        let recording = place.recording("between.plumb");
        assert_ledger(&recording, 0);
        assert_eq!(recording.all_losses().count(), 0, "{kernel}: {}", ran.stdout);
        let (count, ns) = total(&recording, 0, "total");
        let each = ns as f64 / count as f64;
        assert!((each / 10e6 - 1.0).abs() < 0.05, "{kernel}: {each} ns of 10 ms");
    }
}

/// Check that each call of a function that calls itself is paired with its own return.
#[test]
fn calls_of_itself() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place, "again", AGAIN);
    for kernel in crate::common::oldest_and_newest(&place) {
        let ran = place.run(&format!(
            "between -q uprobe:./again:fib uretprobe:./again:fib --lab vm --kernel {kernel} -- ./again 10"
        ));
        crate::common::prints(ran.code(0), &["177 begun = 177 ended + 0 open + 0 unmatched"]);
        let recording = place.recording("between.plumb");
        assert_ledger(&recording, 0);
        let whole = recording.stages().find(|(_, stage)| stage.name == "total");
        let times = &whole.unwrap().0.times;
        // The outermost call has all others in it.
        assert!(
            times.max_ns > 88 * times.min_ns,
            "{kernel}: {} to {} ns",
            times.min_ns,
            times.max_ns
        );
    }
}

/// Check that a delay that was planted in a disk is found within a twentieth, in the stage that it is in,
/// by the disk's name, and that the arm without it has none.
#[test]
fn planted_delay() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let text = r#"
name = "queue"
lab = "vm"
instruments = ["spans"]

[workload]
kind = "command"
command = ["plumb", "read-file", "/disk/data", "--mmap", "--random", "--count", "16"]

[setup]
files = { "/disk/data" = "16M" }
drop_caches = true

[knobs]
scheduler = "mq-deadline"
read_ahead_kb = 128

[spans]
events = ["block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete"]
by = "device"

[[arm]]
name = "plain"
knobs.disk = "null_blk:24M:ext4"

[[arm]]
name = "queue"
knobs.disk = "null_blk:24M:ext4:3300us"
"#;
    place.write("queue.toml", text);
    let ran = place.run("run -q queue.toml -o one.plumb");
    ran.code(0);
    let recording = place.recording("one.plumb");
    let stages = ["block_rq_insert → block_rq_issue", "block_rq_issue → block_rq_complete"];
    for arm in 0..2 {
        assert_ledger(&recording, arm);
        let whole = total(&recording, arm, "total");
        assert!(whole.0 > 10, "{whole:?}");
        let parts: u64 = stages.iter().map(|name| total(&recording, arm, name).1).sum();
        assert_eq!(parts, whole.1);
    }
    let mean = |arm: usize| {
        let (count, ns) = total(&recording, arm, stages[1]);
        ns as f64 / count as f64
    };
    let planted = mean(1) - mean(0);
    assert!((planted / 3.3e6 - 1.0).abs() < 0.05, "{planted} ns");
    // The name of the disk in the guest.
    let groups: Vec<&str> = recording.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(groups, ["plumb", "plumb"]);
}

/// Check that packets that plumb sends are paired, in a guest and between namespaces of this machine.
#[test]
fn packets() {
    let place = Place::new();
    let events = "net:net_dev_queue net:net_dev_start_xmit --packets 50 --blocks 2";
    let root = netplumb_testkit::is_root();
    let newest = OLDEST_AND_NEWEST[1];
    let can_boot = crate::common::has_guests();
    for (lab, can) in [
        ("vm", can_boot),
        (
            &format!("vm --kernel {newest}"),
            can_boot && crate::common::has_kernels(&place, &[newest]),
        ),
        ("netns", root),
    ] {
        if !can {
            crate::common::skip("no guests, or not root");
            continue;
        }
        let ran = place.run(&format!("between -q {events} --lab {lab} -o lab.plumb"));
        ran.code(0);
        let recording = place.recording("lab.plumb");
        assert_eq!(recording.blocks.len(), 2);
        assert_eq!(recording.environment["spans.key"], "sk_buff");
        let offered: u64 = recording.blocks.iter().map(|b| b.ledger.offered).sum();
        assert_eq!(offered, 100, "{lab}");
        assert_eq!(total(&recording, 0, "total").0, offered, "{lab}");
        let ran = place.run(&format!(
            "between -q --preset qdisc --packets 50 --blocks 2 --lab {lab} -o qdisc.plumb"
        ));
        ran.code(0);
        let recording = place.recording("qdisc.plumb");
        assert_eq!(total(&recording, 0, "total").0, offered, "{lab}");
    }
}

/// Check that what can't be paired in a guest is an error of a line, with what to do.
#[test]
fn bad_input() {
    if !crate::common::has_guests() {
        return;
    }
    let place = compiled();
    for (words, code, says) in [
        ("fentry:ksys_wrte fexit:ksys_write", 2, "did you mean `ksys_write`?"),
        ("kprobe:ksys_wrte kretprobe:ksys_write", 2, "did you mean `ksys_write`?"),
        ("uprobe:/bin/sh:main uprobe:/bin/sh:f", 2, "--with /bin/sh"),
        ("--preset disk", 1, "what was run does not cause it"),
        ("--preset disk --duration 1s", 2, "goes on until it ends"),
        (
            "fentry:ksys_write fexit:ksys_write --key buf,retval",
            1,
            "no two had the same key (buf, retval)",
        ),
        ("--preset disk --pid 1", 2, "use --lab host"),
    ] {
        // Of a process and a command only one can be asked for.
        let command = match words.contains("--pid") {
            true => String::new(),
            false => format!(" -- ./writes {ROUNDS}"),
        };
        let ran = place.run(&format!("between -q {words} --lab vm{command}"));
        ran.code(code);
        ran.says(&[says]);
        assert!(ran.stderr.trim().lines().count() <= 2, "{}", ran.stderr);
    }
}

/// Check that counts in a guest are shown with its instructions, of the same command: system calls, and functions by
/// trampolines, of the command alone.
#[test]
fn counts() {
    if !crate::common::has_guests() {
        return;
    }
    let place = compiled();
    for kernel in crate::common::oldest_and_newest(&place) {
        counts_on(&place, kernel);
    }
}

fn counts_on(place: &Place, kernel: &str) {
    let ran = place.run(&format!(
        "stat -q syscalls:sys_enter_write,fentry:ksys_write,fexit:ksys_write,page-faults,cycles --lab vm \
         --kernel {kernel} -- ./writes {ROUNDS}"
    ));
    ran.code(0);
    crate::common::prints(
        &ran,
        &[
            "instructions",
            "fentry:ksys_write",
            "guests have no counters (PMU); their instructions are counted by `exact`",
        ],
    );
    let recording = place.recording("stat.plumb");
    for event in ["syscalls:sys_enter_write", "fentry:ksys_write", "fexit:ksys_write"] {
        assert_eq!(sum(&recording, 0, &COUNT, Some(event)), ROUNDS, "{event}");
    }
    assert!(sum(&recording, 0, &COUNT, Some("page-faults")) > 0);
    let exact = recording.blocks.iter().filter(|b| b.instrument == "exact");
    let instructions: u64 =
        exact.flat_map(|block| &block.totals).map(|total| total.kernel + total.user).sum();
    // Each round spins that often.
    assert!(instructions > ROUNDS * 20_000, "{instructions}");
    // The same function, counted without a probe.
    let calls: u64 = (recording.costs.iter())
        .filter(|cost| {
            let node = &recording.nodes[cost.node as usize];
            recording.functions[node.function as usize].name == "ksys_write"
        })
        .map(|cost| cost.calls)
        .sum();
    assert_eq!(calls, ROUNDS);
}
