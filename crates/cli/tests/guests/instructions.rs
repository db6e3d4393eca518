//! Instructions of functions: they are the executed ones, and add up to the counts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common::Place;
use netplumb_model::code::FunctionCode;
use netplumb_model::recording::{Recording, SourceLine, THREAD_MODULE};
use netplumb_model::timing::INSTRUCTIONS;

/// Check that in each arm the instructions of each function were executed as often as it costs, and that
/// every function that costs something has some, but for those `without`.
fn add_up(recording: &Recording, without: impl Fn(&str) -> bool) {
    let part = recording.part(INSTRUCTIONS.instrument);
    let mut costs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for cost in &part.costs {
        let of = (part.blocks[cost.block as usize].arm, part.nodes[cost.node as usize].function);
        *costs.entry(of).or_default() += cost.own;
    }
    let mut executed: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for code in &part.code {
        let sum: u64 = code.insns.iter().map(|insn| insn.times).sum();
        *executed.entry((code.arm, code.function)).or_default() += sum;
    }
    assert!(executed.len() > 100);
    costs.retain(|(_, function), own| {
        let function = &part.functions[*function as usize];
        let root = function.module.as_deref() == Some(THREAD_MODULE);
        *own > 0 && !root && !without(&function.name)
    });
    let named = |of: &BTreeMap<(u32, u32), u64>| -> Vec<(u32, String, u64)> {
        let each = of.iter();
        each.map(|((arm, f), n)| (*arm, part.functions[*f as usize].name.clone(), *n)).collect()
    };
    executed.retain(|of, _| costs.contains_key(of));
    assert_eq!(named(&executed), named(&costs));
}

/// Check that the kernel's instructions add up to what its functions cost, in each arm, and that they are
/// shown.
#[test]
fn of_the_kernel() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("path -q --proto udp,tcp --link veth,virtio-net --blocks 2 -o x.plumb").code(0);
    add_up(&place.recording("x.plumb"), |_| false);
    let mut command = place.plumb("report x.plumb --lines udp_sendmsg --asm");
    command.args(["--arm", "udp veth"]);
    let shown = crate::common::Running::start(&mut command).finish();
    shown.code(0);
    // One listing, whatever the directions, from its first instruction to its return.
    assert_eq!(shown.stdout.matches("udp_sendmsg at ").count(), 1);
    for words in ["+0x0 ", "ret", "─►", "instructions per packet"] {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
}

/// A program with a loop, a string instruction and a line in another file.
const PROGRAM: &str = r#"
#include <string.h>
#include "twice.h"
static char from[300], to[300];
__attribute__((noinline)) int work(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++)
		sum += i % 3 ? twice(i) : i;
	__asm__ volatile("rep movsb" : : "S"(from), "D"(to), "c"(sizeof to) : "memory");
	return sum;
}
int main(void) { return work(1000) < 0; }
"#;

/// An image with debug information of one function, made up: its first instruction is of line 10,
/// the others are of line 20.
const MADE_UP: &str = "#line 10 \"/build/linux/net/ipv4/udp.c\"
void udp_sendmsg(void) {
#line 20
\t__asm__ volatile(\".rept NOPS; nop; .endr\");
}
";

/// Check that the kernel's instructions have the lines of debug information that was added, and that
/// these add up to what a function costs.
#[test]
fn lines_of_the_kernel() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // The kernel in a store of its own, at first without debug information.
    let own = crate::common::kernel().unwrap();
    let folder = place.path("cache/kernels").join(&own.hash);
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(&own.folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "debug" {
            symlink(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    place.run("path -q --cache cache --proto udp -o without.plumb").code(0);
    let without = place.recording("without.plumb");
    let named = |r: &Recording| {
        let found = r.functions.iter().find(|f| f.name == "udp_sendmsg");
        found.unwrap().clone()
    };
    assert_eq!(named(&without).source, None);
    let report = place.run("report without.plumb --lines udp_sendmsg");
    report.code(0);
    crate::common::prints(&report, &["plumb kernel add", "--debug"]);

    fs::create_dir_all(folder.join("debug/modules")).unwrap();
    // As long as the function, and no longer.
    let nops = named(&without).size_bytes - 16;
    place.write("udp.c", MADE_UP.replace("NOPS", &nops.to_string()));
    let text = format!("-Wl,-Ttext={:#x},-e,udp_sendmsg", named(&without).address);
    let status = (place.command("gcc"))
        .args(["-g", "-O0", "-nostdlib", "-static", "-fno-pie", "-no-pie"])
        .args(["-fcf-protection=none", "-mcmodel=kernel", &text, "udp.c", "-o"])
        .arg(folder.join("debug/vmlinux"))
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    place.run("path -q --cache cache --proto udp -o with.plumb").code(0);
    let with = place.recording("with.plumb");
    let function = named(&with);
    let line = |source: SourceLine| {
        let (file, line) = with.source(source).unwrap();
        assert_eq!(file, "net/ipv4/udp.c");
        line
    };
    assert_eq!(function.source.map(line), Some(10));
    let is_it = |code: &&FunctionCode| with.functions[code.function as usize] == function;
    let code = with.code.iter().find(is_it).unwrap();
    let lines: Vec<u32> = code.insns.iter().map(|insn| line(insn.source.unwrap())).collect();
    assert_eq!(lines[0], 10);
    assert!(lines.len() > 50 && lines[1..].iter().all(|line| *line == 20), "{lines:?}");
    let report = place.run("report with.plumb --lines udp_sendmsg");
    report.code(0);
    crate::common::prints(&report, &["net/ipv4/udp.c:10", "of all packets of the arm"]);
    assert!(!report.stdout.contains("of no line"), "{}", report.stdout);
    // No other function is in it.
    let others = with.functions.iter().filter(|f| f.source.is_some()).count();
    assert_eq!(others, 1);
}

/// Check that a program's instructions are those in its file, byte by byte, executed as often as they should be; that
/// they add up, libraries included; and that the recording has the source.
#[test]
fn of_a_program() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("work.c", PROGRAM);
    place.write("twice.h", "static inline int twice(int n) { return 2 * n; }\n");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-o", "work", "work.c"])
        .current_dir(place.path("."))
        .status();
    assert!(built.unwrap().success());
    place.run("path -q --blocks 2 -o x.plumb -- ./work").code(0);
    let recording = place.recording("x.plumb");
    // Code of the agent and of others is one cost.
    add_up(&recording, |name| name == "[unknown]");

    let function = (recording.functions.iter())
        .position(|f| f.name == "work" && f.module.as_deref() == Some("work"))
        .unwrap();
    let code = recording.code.iter().find(|c| c.function as usize == function);
    let code = code.unwrap();
    let listed = Command::new("objdump")
        .args(["-d", "--disassemble=work", "--insn-width=15", "work"])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let listed: Vec<(u64, Vec<u8>, String)> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('\t');
            let address = parts.next()?.trim().strip_suffix(':')?;
            let bytes = parts.next()?.split_whitespace();
            let bytes = bytes.map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
            let address = u64::from_str_radix(address, 16).ok()?;
            Some((address, bytes, parts.next().unwrap_or("").to_owned()))
        })
        .collect();
    assert!(listed.len() > 10);
    for insn in &code.insns {
        let address = code.address + u64::from(insn.offset);
        let (_, bytes, _) = listed.iter().find(|(at, ..)| *at == address).unwrap();
        assert_eq!(insn.code(), bytes);
    }
    let times = |mnemonic: &str| {
        let (address, ..) =
            (listed.iter()).find(|(_, _, text)| text.starts_with(mnemonic)).unwrap();
        let at = (address - code.address) as u32;
        code.insns.iter().find(|i| i.offset == at).unwrap().times
    };
    // Twice each, for there are two runs.
    assert_eq!(times("ret"), 2);
    // A repetition each, and the pages that fault.
    assert!((600..620).contains(&times("rep movsb")), "{}", times("rep movsb"));

    // Its sources may go: the recording has them.
    std::fs::remove_file(place.path("work.c")).unwrap();
    std::fs::remove_file(place.path("twice.h")).unwrap();
    let shown = place.run("report x.plumb --lines work --source");
    shown.code(0).says(&[]);
    prints_source(&shown.stdout);
    let shown = place.run("report x.plumb --lines work --asm --source");
    shown.code(0);
    prints_source(&shown.stdout);
    assert!(shown.stdout.contains("rep movsb"), "{}", shown.stdout);
}

#[track_caller]
fn prints_source(text: &str) {
    for words in ["sum += i % 3 ? twice(i) : i;", "return 2 * n;"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
