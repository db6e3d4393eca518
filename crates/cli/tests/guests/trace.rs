//! `plumb trace`: single calls of the kernel's functions and of a program's, in guests.

use std::process::Command;

use crate::common::{Place, has_guests};
use netplumb_model::calls::COUNTED;
use netplumb_model::class::Context;
use netplumb_model::recording::Recording;
use netplumb_model::trace::{Flags, Trace};
use netplumb_report::analysis::classes;

/// A program that calls `outer` four times, which calls `inner` and, the third time, maps and
/// touches pages of a file.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void inner(long n)
{ __asm__ volatile("1: dec %0; nop; jnz 1b" : "+r"(n)); }
__attribute__((noinline)) int outer(int round)
{
	inner(10 * (round + 1));
	if (round == 2) {
		int fd = open("data", O_RDONLY);
		volatile char *at = mmap(0, 16384, PROT_READ, MAP_PRIVATE, fd, 0);
		int sum = 0;
		for (int page = 0; page < 4; page++) sum += at[page * 4096];
		close(fd);
		return sum;
	}
	return round;
}
int main(void)
{
	int sum = 0;
	for (int round = 0; round < 4; round++) sum += outer(round);
	return sum == 4 ? 0 : 0;
}
"#;

fn compile(place: &Place) {
    place.write("p.c", PROGRAM);
    place.write("data", vec![b'x'; 16384]);
    let done = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([place.path("p"), place.path("p.c")])
        .status()
        .unwrap();
    assert!(done.success());
}

/// What a block's calls add up to by the scalars of the trace.
fn traced_sums(recording: &Recording) -> (u64, u64) {
    let calls: f64 = recording.scalars_of(&COUNTED.calls).map(|s| s.value).sum();
    let sums = recording.scalars_of(&COUNTED.cost);
    let sums = sums.filter(|s| s.item.label.as_deref() == Some("sum"));
    (calls as u64, sums.map(|s| s.value).sum::<f64>() as u64)
}

/// Calls and inclusive cost of a function over all classes, by the costs.
fn cost(recording: &Recording, name: &str) -> (u64, u64) {
    let mut sums = (0, 0);
    for view in classes(recording) {
        for function in &view.functions {
            if recording.functions[function.function as usize].name == name {
                sums.0 += function.calls;
                sums.1 += function.inclusive_insns;
            }
        }
    }
    sums
}

/// The names of a trace's steps, each with its depth.
fn names<'r>(recording: &'r Recording, trace: &Trace) -> Vec<(usize, &'r str)> {
    let steps = trace.steps.iter().zip(trace.depths());
    steps.map(|(step, depth)| (depth, recording.text_of_trace(step.name))).collect()
}

/// Check that the calls of a function in packets are the same in two runs, to the instruction, that
/// they add up to `plumb path`'s counts, and that the kernel's path is below them.
#[test]
fn calls_in_packets() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    place.run("trace ip_rcv -q --packets 10 --depth 20 --slowest 100 -o a.plumb").code(0);
    place.run("trace ip_rcv -q --packets 10 --depth 20 --slowest 100 -o b.plumb").code(0);
    place.run("path -q --packets 10 --blocks 1 -o c.plumb").code(0);
    let [a, b, c] = ["a.plumb", "b.plumb", "c.plumb"].map(|name| place.recording(name));
    assert_eq!((&a.traces, &a.trace_texts), (&b.traces, &b.trace_texts));
    let (calls, insns) = traced_sums(&a);
    assert_eq!((calls, insns), cost(&c, "ip_rcv"));
    assert_eq!((calls, insns), cost(&a, "ip_rcv"));
    assert_eq!(calls, 10);
    assert_eq!(a.traces.len(), 10);
    let sum: u64 = a.traces.iter().map(|t| t.steps[0].total).sum();
    assert_eq!(sum, insns);
    let first = names(&a, &a.traces[0]);
    assert_eq!(first[0], (0, "ip_rcv"));
    assert!(first.iter().any(|(depth, name)| *depth > 0 && *name == "udp_rcv"), "{first:?}");
    for trace in &a.traces {
        let own: u64 = trace.steps.iter().filter(|s| counts(trace, s.parent)).map(|s| s.own).sum();
        let cut = trace.steps.iter().any(|s| s.flags.has(Flags::CUT));
        assert!(cut || own == trace.steps[0].total);
    }
    let shown = place.run("report a.plumb");
    shown.code(0);
    assert!(shown.stdout.contains("10 calls of ip_rcv"), "{}", shown.stdout);
    assert!(place.run("report a.plumb --call 11").code(2).stderr.contains("not kept"));
}

/// Whether nothing came in between above a step.
fn counts(trace: &Trace, mut at: Option<u32>) -> bool {
    while let Some(step) = at.map(|at| &trace.steps[at as usize]) {
        if step.flags.has(Flags::ASIDE) {
            return false;
        }
        at = step.parent;
    }
    true
}

/// Check that a function of a program is a tree with the kernel's calls below it, that the slowest
/// call faults, and that a kernel's function is traced in the same program.
#[test]
fn calls_in_a_program() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place);
    let trace = |words: &str| {
        let ran = place.run(&format!("trace {words} -q -o x.plumb --with data -- ./p"));
        ran.code(0);
        (ran.stdout, place.recording("x.plumb"))
    };
    let (shown, program) = trace("outer --depth 8 --slowest 1");
    assert!(shown.contains("4 calls of outer"), "{shown}");
    assert_eq!(traced_sums(&program), cost(&program, "outer"));
    let kept: Vec<u64> = program.traces.iter().map(|t| t.number).collect();
    assert_eq!(kept, [0, 2]);
    assert_eq!(names(&program, &program.traces[0]), [(0, "outer"), (1, "inner")]);
    assert_eq!(program.traces[0].steps[1].total, 31);
    let slow = names(&program, &program.traces[1]);
    for wanted in ["inner", "entry_SYSCALL_64", "asm_exc_page_fault"] {
        assert!(slow.iter().any(|(_, name)| *name == wanted), "{slow:?}");
    }
    let (_, faults) = trace("handle_mm_fault --if insns>1000000");
    let (calls, insns) = traced_sums(&faults);
    assert!(calls > 4, "{calls}");
    // The agent's faults are not the program's.
    let its_own: u64 = (faults.costs.iter())
        .filter(|cost| {
            let function = faults.nodes[cost.node as usize].function as usize;
            cost.context != Context::OtherTask
                && faults.functions[function].name == "handle_mm_fault"
        })
        .map(|cost| cost.calls)
        .sum();
    assert_eq!(calls, its_own);
    let (all_calls, all_insns) = cost(&faults, "handle_mm_fault");
    assert!(calls < all_calls && insns < all_insns);
    assert_eq!(faults.traces.len(), 0);
    let absolute = place.path("p").display().to_string();
    let folder = place.path("").canonicalize().unwrap();
    let around = format!("../{}/p", folder.file_name().unwrap().display());
    for file in ["p", "./p", &absolute, &around] {
        let (_, called) = trace(&format!("{file}:main --depth 1"));
        assert_eq!(traced_sums(&called).0, 1, "{file}");
    }
}

/// A program whose reads and opens succeed and fail, and that calls `work` with values of all
/// kinds.
const VALUES: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
enum mode { READ, WRITE = 7, NONE = -1 };
char buffer[4096];
char text[] = "netplumb";
static inline __attribute__((always_inline)) long inlined(long n) { __asm__ volatile("" : "+r"(n)); return n * 3; }
__attribute__((noinline)) long work(const char *name, uint8_t small, int delta, _Bool yes, enum mode mode, long last, int on_stack)
{ return inlined(name[0] ? delta * last : small + yes + mode + on_stack); }
__attribute__((noinline)) void nothing(unsigned int n) { __asm__ volatile("" :: "r"(n)); }
int main(void)
{
	int fd = openat(AT_FDCWD, "data", O_RDONLY | O_CLOEXEC);
	long a = read(fd, buffer, 77);
	long b = read(-1, buffer + 16, 5);
	int error = errno;
	long c = openat(AT_FDCWD, "absent", O_RDONLY);
	long d = work(text, 0xf3, -3, 1, NONE, 1L << 40, 9);
	long e = work(text, 4, 5, 0, WRITE, -2, 9);
	for (unsigned n = 0; n < 3; n++) nothing(n);
	printf("%d %ld %ld %d %ld %ld %ld\n", fd, a, b, error, c, d, e);
	return 0;
}
"#;

/// The calls of a function as they are shown, in order: arguments and return value.
fn values(recording: &Recording) -> Vec<(String, String)> {
    let text = |id: Option<u32>| id.map_or(String::new(), |id| recording.text_of_trace(id).into());
    let first = recording.traces.iter().map(|trace| &trace.steps[0]);
    first.map(|step| (text(step.arguments), text(step.returned))).collect()
}

/// Check that arguments and return values are as a program passed and saw them, of its own functions and of the
/// kernel's, that conditions compare them, and that they change no count.
#[test]
fn arguments_and_return_values() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    place.write("v.c", VALUES);
    place.write("data", vec![b'x'; 1000]);
    let done = Command::new("cc")
        .args(["-O1", "-g", "-static", "-no-pie", "-o"])
        .args([place.path("v"), place.path("v.c")])
        .status()
        .unwrap();
    assert!(done.success());
    let symbols = Command::new("nm").arg(place.path("v")).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let address = |name: &str| {
        let line = symbols.lines().find(|l| l.ends_with(&format!(" {name}")));
        u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap()
    };
    let buffer = address("buffer");
    let trace = |words: &str| {
        let ran =
            place.run(&format!("trace {words} -q --slowest 100 -o x.plumb --with data -- ./v"));
        ran.code(0);
        assert!(ran.stdout.contains("3 77 -1 9 -1 "), "{}", ran.stdout);
        (ran.stdout, place.recording("x.plumb"))
    };

    let (shown, with) = trace("ksys_read --args --depth 4");
    let of = |fd: u32, at: u64, count: u32, returned: &str| {
        let arguments = format!("fd={fd}, buf={at:#x}, count={count}");
        (arguments, returned.to_string())
    };
    assert_eq!(
        values(&with),
        [of(3, buffer, 77, "77"), of(u32::MAX, buffer + 16, 5, "-9")],
        "{shown}"
    );
    assert!(shown.contains(&format!("ksys_read(fd=3, buf={buffer:#x}, count=77) = 77")), "{shown}");
    let below = &with.traces[0].steps[1..];
    let named = below.iter().filter(|step| step.arguments.is_some());
    assert!(named.count() * 2 > below.len(), "{shown}");
    let (_, again) = trace("ksys_read --args --depth 4");
    assert_eq!((&with.traces, &with.trace_texts), (&again.traces, &again.trace_texts));
    let (_, without) = trace("ksys_read --depth 4");
    assert_eq!(
        (&with.costs, &with.nodes, &with.functions),
        (&without.costs, &without.nodes, &without.functions)
    );
    assert!(without.traces[0].steps[0].arguments.is_none());

    let (shown, opened) = trace("do_sys_openat2 --if retval<0");
    let opened = values(&opened);
    let errors: Vec<_> = opened.iter().filter(|(_, error)| error != "-2").collect();
    assert!(!opened.is_empty() && errors.is_empty(), "{shown}");
    assert!(opened[0].0.starts_with("dfd=-100, filename=\"absent\", how=0x"), "{shown}");
    let (_, some) = trace("ksys_read --if fd==3&&count>=77");
    assert_eq!(values(&some), [of(3, buffer, 77, "77")]);

    let (shown, own) = trace("work --args");
    let last = 1_u64 << 40;
    assert_eq!(
        values(&own),
        [
            (
                format!(
                    "name=\"netplumb\", small=243, delta=-3, yes=true, mode=NONE, last={last}, on_stack=?"
                ),
                (-9 * (last as i64)).to_string()
            ),
            (
                "name=\"netplumb\", small=4, delta=5, yes=false, mode=WRITE, last=-2, on_stack=?"
                    .into(),
                "-30".into()
            ),
        ],
        "{shown}"
    );
    let (_, own) = trace("v:nothing --if n>0x1");
    assert_eq!(values(&own), [("n=2".into(), String::new())]);

    let refused = |words: &str, why: &[&str]| {
        let ran = place.run(&format!("trace {words} -q --with data -- ./v"));
        ran.code(2);
        for why in why {
            assert!(ran.stderr.contains(why), "{}", ran.stderr);
        }
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    };
    refused("ksys_read --if nbytes>3", &["no argument `nbytes`", "fd, buf, count, retval, insns"]);
    refused("nothing --if retval>3", &["returns nothing", "one of n, insns"]);
    refused("v:inlined", &["inlined into work"]);
}

/// Check that read-ahead's size is the argument that the kernel's function has, of three settings.
#[test]
fn pages_to_read_ahead() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    for (kib, pages) in [(128, 32), (512, 128), (2048, 512)] {
        let ran = place.run(&format!(
            "trace page_cache_ra_unbounded -q --args --depth 1 --disk null_blk:24M:ext4 \
             --read-ahead {kib} --make-file /disk/data:16M --drop-caches -o x.plumb -- \
             plumb read-file /disk/data --mmap --random --count 8"
        ));
        ran.code(0);
        let nr_to_read = format!("nr_to_read={pages}, ");
        let calls = values(&place.recording("x.plumb"));
        let same = calls.iter().filter(|(all, _)| all.contains(&nr_to_read));
        // A read at the end of the file is shorter.
        let at_least = calls.len().saturating_sub(1).max(2);
        assert!(same.count() >= at_least, "{}", ran.stdout);
    }
}

/// Check that what can't be traced is refused: in one line, with the remedy.
#[test]
fn what_is_refused() {
    let place = Place::new();
    let refused = |words: &str, code: i32, why: &str| {
        let ran = place.run(words);
        ran.code(code);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    };
    refused("trace ip_rcv --packets 3 -- true", 2, "--packets");
    refused("trace nc: -q", 2, "function");
    for condition in ["dur>1", "insns", "a->b>3"] {
        let ran = place.run(&format!("trace ip_rcv --if {condition}"));
        ran.code(2);
        assert!(ran.stderr.contains("invalid condition"), "{}", ran.stderr);
    }
    if !has_guests() {
        return;
    }
    refused("trace ip_rvc -q", 2, "ip_rcv");
    // Inlined in this kernel, whose debug information is elsewhere.
    refused("trace do_page_cache_ra -q", 2, "page_cache_ra_unbounded");
    refused("trace ip_rcv -q --if calls>3", 2, "one of skb, dev, pt");
    refused("trace no_such_function_anywhere -q -- true", 2, "no name is similar");
    refused("trace gone.so:main -q -- true", 2, "no file `gone.so`");
}
