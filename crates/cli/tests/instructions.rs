//! Instructions of functions: that they are what was executed, and add up to what is counted.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::Place;
use netplumb_model::recording::{Recording, THREAD_MODULE};
use netplumb_model::timing::INSTRUCTIONS;

/// Check that in each arm the instructions of each function were executed as often as it costs, and that
/// every function that costs something has some, but for those `without`.
fn add_up(recording: &Recording, without: impl Fn(&str) -> bool) {
    let part = recording.part(INSTRUCTIONS.instrument);
    let mut costs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for cost in &part.costs {
        let of = (
            part.blocks[cost.block as usize].arm,
            part.nodes[cost.node as usize].function,
        );
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
        each.map(|((arm, f), n)| (*arm, part.functions[*f as usize].name.clone(), *n))
            .collect()
    };
    executed.retain(|of, _| costs.contains_key(of));
    assert_eq!(named(&executed), named(&costs));
}

/// Check that the kernel's instructions add up to what its functions cost, in each arm, and that they are
/// shown.
#[test]
fn of_the_kernel() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    place
        .run("path -q --proto udp,tcp --link veth,virtio-net --blocks 2 -o x.plumb")
        .code(0);
    add_up(&place.recording("x.plumb"), |_| false);
    let mut command = place.plumb("report x.plumb --lines udp_sendmsg --asm");
    command.args(["--arm", "udp veth"]);
    let shown = common::Running::start(&mut command).finish();
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

/// Check that a program's instructions are those in its file, byte by byte, executed as often as they should
/// be; that they add up, with those of libraries; and that the recording has the source.
#[test]
fn of_a_program() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("work.c", PROGRAM);
    place.write(
        "twice.h",
        "static inline int twice(int n) { return 2 * n; }\n",
    );
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
    let code = recording
        .code
        .iter()
        .find(|c| c.function as usize == function);
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
        let (address, ..) = (listed.iter())
            .find(|(_, _, text)| text.starts_with(mnemonic))
            .unwrap();
        let at = (address - code.address) as u32;
        code.insns.iter().find(|i| i.offset == at).unwrap().times
    };
    // Twice each, for there are two runs.
    assert_eq!(times("ret"), 2);
    // A repetition each, and the pages that fault.
    assert!(
        (600..620).contains(&times("rep movsb")),
        "{}",
        times("rep movsb")
    );

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
