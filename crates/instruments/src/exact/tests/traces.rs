//! Single calls: their trees, and that they add up to what the function costs.

use std::sync::Arc;

use netplumb_kernel::prototype::{Parameter, Place, Prototype, Shape, Type, Unread};
use netplumb_kernel::symbol::Symbol;
use netplumb_model::arch::Arch;
use netplumb_model::experiment::Trace;
use netplumb_model::trace::Flags;

use super::super::stream::Kind;
use super::super::{
    Images, InFile, Losses, Mark, Prototypes, Record, TracedCall, TracedCalls, TracedStep,
};
use super::machine::{Machine, find, symbols};
use super::random::generate;
use super::{IDLE, OWN, switch};

fn spec(function: &str) -> Trace {
    Trace { function: function.into(), ..Trace::default() }
}

/// Run some code of a sender in a window, with calls traced.
fn traced(spec: &Trace, run: impl FnOnce(&mut Machine<'_>)) -> (Vec<String>, TracedCalls) {
    let symbols = symbols();
    let mut machine = Machine::new(&symbols).tracing(spec);
    machine.user();
    machine.mark(Mark::WindowBegin);
    machine.mark(Mark::TxBegin);
    machine.jump("entry_SYSCALL_64", 0, 4);
    machine.call("entry_SYSCALL_64", 16, 1, 0xf00);
    run(&mut machine);
    machine.user();
    machine.mark(Mark::WindowEnd);
    let window = machine.window();
    machine.check_sums(&window);
    let calls = window.traced.unwrap();
    let lines = calls.kept.iter().flat_map(|call| step_lines(&machine, call));
    (lines.collect(), calls)
}

/// A call, a line for each step: `function total/own @begin+elapsed`, and what else is known.
fn step_lines(machine: &Machine<'_>, call: &TracedCall) -> Vec<String> {
    let mut depths: Vec<usize> = Vec::new();
    let steps = call.steps.iter().map(|step| {
        let depth = step.parent.map_or(0, |parent| depths[parent as usize] + 1);
        depths.push(depth);
        let mut line = format!(
            "{}{} {}/{} @{}+{}",
            ". ".repeat(depth),
            machine.name(step.symbol),
            step.total,
            step.own,
            step.begin,
            step.elapsed
        );
        for (flag, word) in [(Flags::TAIL, " tail"), (Flags::OPEN, " open"), (Flags::CUT, " cut")] {
            if step.flags.has(flag) {
                line += word;
            }
        }
        if step.flags.has(Flags::ASIDE) {
            line += &format!(" aside {}", step.context);
        }
        if step.switches > 0 {
            line += &format!(" switched {}", step.switches);
        }
        line
    });
    steps.collect()
}

/// Check that the calls below a call are there in order, each with its own instructions and what it
/// called, and that jumps are distinguished from calls.
#[test]
fn a_tree_in_order() {
    let (lines, calls) = traced(&spec("udp_sendmsg"), |m| {
        m.call("udp_sendmsg", 0, 5, 0xe00);
        m.ret("helper", 0, 3, 0xe00);
        m.call("udp_sendmsg", 20, 1, 0xe00);
        m.call("ip_output", 0, 2, 0xd00);
        m.ret("helper", 0, 4, 0xd00);
        m.jump("ip_output", 8, 1);
        m.ret("dst_output", 0, 6, 0xe00);
        m.ret("udp_sendmsg", 24, 2, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    });
    assert_eq!(
        lines,
        [
            "udp_sendmsg 24/8 @5+24",
            ". helper 3/3 @10+3",
            ". ip_output 13/3 @14+13",
            ". . helper 4/4 @16+4",
            ". . dst_output 6/6 @21+6 tail",
        ]
    );
    assert_eq!((calls.counts.calls, calls.counts.sum), (1, 24));
    assert_eq!(calls.counts.spread, Some([24; 4]));
}

/// Check that calls deeper than the depth, and more than there is room for, are in the totals and
/// marked, and that those that had no room are counted.
#[test]
fn depth_and_room() {
    let run = |m: &mut Machine<'_>| {
        m.call("udp_sendmsg", 0, 5, 0xe00);
        m.call("ip_output", 0, 2, 0xd00);
        m.ret("helper", 0, 4, 0xd00);
        m.ret("ip_output", 8, 1, 0xe00);
        m.ret("udp_sendmsg", 24, 2, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    };
    let shallow = Trace { depth: Some(2), ..spec("udp_sendmsg") };
    let (lines, calls) = traced(&shallow, run);
    assert_eq!(lines, ["udp_sendmsg 14/7 @5+14", ". ip_output 7/3 @10+7 cut"]);
    assert_eq!(calls.dropped, 0);
    let small = Trace { steps: Some(1), ..spec("udp_sendmsg") };
    let (lines, calls) = traced(&small, run);
    assert_eq!(lines, ["udp_sendmsg 14/7 @5+14 cut"]);
    assert_eq!(calls.dropped, 2);
}

/// Check that interrupts and softirqs that come in between are reported as such, with the vector,
/// and are in no total of what they interrupted; and that a fault is part of it.
#[test]
fn what_comes_in_between() {
    let (lines, _) = traced(&spec("udp_sendmsg"), |m| {
        m.jump("udp_sendmsg", 0, 5);
        m.jump("asm_exc_page_fault", 0, 2);
        m.iret("asm_exc_page_fault", 8, 1);
        m.call("udp_sendmsg", 20, 1, 0xe00);
        m.jump("asm_common_interrupt", 0, 3);
        m.call("asm_common_interrupt", 12, 1, 0xd00);
        m.jump("handle_softirqs", 0, 3);
        m.call("handle_softirqs", 16, 1, 0xc00);
        m.call("net_rx_action", 0, 2, 0xb00);
        m.ret("helper", 0, 50, 0xb00);
        m.ret("net_rx_action", 32, 2, 0xc00);
        m.ret("handle_softirqs", 32, 2, 0xd00);
        m.iret("asm_common_interrupt", 16, 2);
        m.ret("ip_output", 0, 7, 0xe00);
        m.ret("udp_sendmsg", 24, 2, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    });
    assert_eq!(
        lines,
        [
            "udp_sendmsg 18/8 @5+84",
            ". asm_exc_page_fault 3/3 @10+3",
            ". asm_common_interrupt 6/6 @14+66 aside hardirq",
            ". . handle_softirqs 60/6 @18+60 aside softirq:NET_RX",
            ". . . net_rx_action 54/4 @22+54",
            ". ip_output 7/7 @80+7",
        ]
    );
}

/// Check that a call that sleeps counts how often it was switched out, and not what others do
/// meanwhile.
#[test]
fn a_call_that_sleeps() {
    let (lines, calls) = traced(&spec("udp_sendmsg"), |m| {
        m.call("udp_sendmsg", 0, 5, OWN + 8);
        switch(m, OWN, IDLE);
        m.ret("schedule", 12, 2, IDLE + 8);
        m.call("cpu_idle", 0, 70, IDLE + 8);
        switch(m, IDLE, OWN);
        m.ret("schedule", 12, 2, OWN + 8);
        m.ret("udp_sendmsg", 24, 2, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    });
    assert_eq!(
        lines,
        [
            "udp_sendmsg 23/7 @5+109 switched 1",
            ". schedule 16/5 @10+102 switched 1",
            ". . __switch_to_asm 11/5 @13+97 switched 1",
            ". . . __switch_to 6/6 @18+92 tail switched 1",
        ]
    );
    assert_eq!(calls.counts.spread, Some([23; 4]));
}

/// Check that the first and the largest of many calls are kept, that a condition leaves others out,
/// and that the distribution covers all.
#[test]
fn the_first_and_the_slowest() {
    let run = |m: &mut Machine<'_>| {
        for insns in [4, 9, 2, 9, 7, 3, 8] {
            m.call_only("entry_SYSCALL_64", 0xe00);
            m.ret("helper", 0, insns, 0xe00);
        }
    };
    let kept = |calls: &TracedCalls| {
        let kept = calls.kept.iter().map(|call| (call.number, call.steps[0].total));
        kept.collect::<Vec<_>>()
    };
    let two = Trace { slowest: Some(2), ..spec("helper") };
    let (_, calls) = traced(&two, run);
    assert_eq!(kept(&calls), [(0, 4), (1, 9), (3, 9)]);
    assert_eq!((calls.counts.calls, calls.counts.matched, calls.counts.sum), (7, 7, 42));
    assert_eq!(calls.counts.spread, Some([2, 7, 9, 9]));
    let some = Trace { only: Some("insns >= 3 && insns < 9".parse().unwrap()), ..two };
    let (_, calls) = traced(&some, run);
    assert_eq!(kept(&calls), [(0, 4), (4, 7), (6, 8)]);
    assert_eq!((calls.counts.calls, calls.counts.matched, calls.counts.sum), (7, 4, 42));
}

/// Check that calls of the function within a traced call are part of it, that a call within an
/// interrupt of one is a call of its own, that calls that have not returned at the end are
/// marked, and that what began before a window is not counted in it.
#[test]
fn unfinished_calls() {
    let symbols = symbols();
    let mut m = Machine::new(&symbols).tracing(&spec("helper"));
    m.user();
    m.mark(Mark::WindowBegin);
    m.call("entry_SYSCALL_64", 0, 1, 0xf00);
    m.call("helper", 0, 2, 0xe00);
    m.jump("helper", 0, 1);
    m.jump("asm_common_interrupt", 0, 3);
    m.call("asm_common_interrupt", 12, 1, 0xd00);
    m.ret("helper", 0, 10, 0xd00);
    m.iret("asm_common_interrupt", 16, 2);
    m.call("helper", 8, 3, 0xd00);
    m.jump("ip_output", 0, 4);
    m.mark(Mark::WindowEnd);
    let calls = m.window().traced.unwrap();
    let lines: Vec<Vec<String>> = calls.kept.iter().map(|call| step_lines(&m, call)).collect();
    assert_eq!(
        lines,
        [
            vec![
                "helper 10/2 @1+26 open",
                ". helper 8/4 @3+24 open",
                ". . asm_common_interrupt 16/6 @4+16 aside hardirq",
                ". . ip_output 4/4 @23+4 open",
            ],
            vec!["helper 10/10 @8+10"],
        ]
    );
    assert_eq!((calls.counts.calls, calls.counts.recursive, calls.counts.unfinished), (2, 1, 1));
    m.mark(Mark::WindowBegin);
    m.ret("ip_output", 4, 2, 0xd00);
    m.ret("helper", 12, 2, 0xe00);
    m.ret("helper", 12, 2, 0xf00);
    m.mark(Mark::WindowEnd);
    let calls = m.window().traced.unwrap();
    assert_eq!((calls.counts.calls, calls.counts.sum, calls.counts.spread), (0, 0, None));
}

/// Check that a call of a program has the kernel's calls below it, and not what interrupts it; and
/// that a function is distinguished from another file's of the same name.
#[test]
fn functions_of_programs() {
    let of = |function: &str| {
        let symbols = symbols();
        let mut m = Machine::of_command(&symbols, &["ld.so", "ping"]).tracing(&spec(function));
        m.mark(Mark::RunBegin);
        m.jump("entry_SYSCALL_64", 0, 1);
        m.call("entry_SYSCALL_64", 4, 1, 0x4_0f00);
        m.ret("begin_new_exec", 0, 5, 0x4_0f00);
        m.jump("entry_SYSCALL_64", 8, 3);
        m.user_at(1, 0x1000, 4, Kind::Other);
        m.user_call(1, 0x1010, 1, 0xe00);
        m.user_call(1, 0x1100, 5, 0xd00);
        m.jump("asm_common_interrupt", 0, 3);
        m.iret("asm_common_interrupt", 12, 1);
        m.user_at(1, 0x1200, 3, Kind::Other);
        m.jump("entry_SYSCALL_64", 0, 1);
        m.call("entry_SYSCALL_64", 4, 1, 0x4_0f00);
        m.ret("udp_sendmsg", 0, 11, 0x4_0f00);
        m.jump("entry_SYSCALL_64", 8, 1);
        m.user_ret(1, 0x120c, 1, 0xd00);
        m.user_ret(1, 0x1114, 2, 0xe00);
        m.user_at(1, 0x1014, 1, Kind::Other);
        m.mark(Mark::WindowEnd);
        let window = m.window();
        m.check_run(&window);
        let calls = window.traced.unwrap();
        let lines: Vec<String> = calls.kept.iter().flat_map(|call| step_lines(&m, call)).collect();
        lines
    };
    let main = [
        "main 25/7 @15+29",
        ". asm_common_interrupt 4/4 @20+4 aside hardirq",
        ". work 18/4 @24+18",
        ". . entry_SYSCALL_64 14/3 @27+14",
        ". . . udp_sendmsg 11/11 @29+11",
    ];
    assert_eq!(of("main"), main);
    assert_eq!(of("ping:main"), main);
    let symbols = symbols();
    let mut files = Images::default();
    files.add_made(
        super::super::Image {
            name: "/usr/bin/ping".into(),
            entry: 0,
            program: true,
            functions: Vec::new(),
            segments: Vec::new(),
        },
        &[],
    );
    let find = |function: &str| find(&spec(function), &symbols, &files);
    assert!(find("udp_sendmsg").is_ok());
    let missing = find("udp_sendmgs").unwrap_err();
    assert_eq!((missing.near, missing.no_file), (vec!["udp_sendmsg".to_string()], false));
    assert!(find("nc:main").unwrap_err().no_file);
    assert!(!find("ping:main").unwrap_err().no_file);
    // A clone of the compiler's is what its source is called.
    assert!(find("handle_softirqs").is_ok());
}

/// Check that the calls of every function in random streams add up to its inclusive cost on the
/// calling-context tree, its calls of itself counted once, to the instruction; and that each step is
/// its own and what is below it.
#[test]
fn calls_add_up_to_costs() {
    let symbols = symbols();
    let mut calls = 0;
    for seed in 0..120 {
        for function in ["f0", "f3", "net_rx_action", "asm_common_interrupt", "entry_SYSCALL_64"] {
            let everything =
                Trace { depth: Some(1_000), slowest: Some(1_000_000), ..spec(function) };
            let mut m = Machine::new(&symbols).tracing(&everything);
            m.user();
            m.mark(Mark::WindowBegin);
            generate(&mut m, seed);
            m.mark(Mark::WindowEnd);
            let window = m.window();
            let (entered, insns) = m.inclusive(&window, function);
            let traced = window.traced.unwrap();
            assert_eq!(
                (traced.counts.calls, traced.counts.sum),
                (entered, insns),
                "{function}, seed {seed}"
            );
            assert_eq!((traced.counts.unfinished, traced.dropped), (0, 0));
            assert_eq!(traced.kept.len() as u64, entered);
            for call in &traced.kept {
                let mut below = vec![0; call.steps.len()];
                for step in &call.steps {
                    if let Some(parent) = step.parent.filter(|_| !step.flags.has(Flags::ASIDE)) {
                        below[parent as usize] += step.total;
                    }
                    assert!(step.elapsed >= step.total && !step.flags.has(Flags::OPEN));
                }
                for (step, below) in call.steps.iter().zip(below) {
                    // Of what came in between, only the beginning is recorded.
                    let within = step.flags.has(Flags::ASIDE) || !is_reported(call, step.parent);
                    assert!(within || step.total == step.own + below, "{function}, seed {seed}");
                }
            }
            calls += entered;
        }
    }
    assert!(calls > 2_000, "only {calls} calls");
}

/// Whether a step is below nothing that came in between.
fn is_reported(call: &TracedCall, mut at: Option<u32>) -> bool {
    while let Some(step) = at.map(|at| &call.steps[at as usize]) {
        if step.flags.has(Flags::ASIDE) {
            return false;
        }
        at = step.parent;
    }
    true
}

/// Check that names of code that no symbol covers don't stop a trace.
#[test]
fn unknown_code() {
    let (lines, _) = traced(&spec("udp_sendmsg"), |m| {
        m.call("udp_sendmsg", 0, 5, 0xe00);
        m.at(super::machine::NOWHERE, 9, Kind::Ret);
        m.take(super::super::Record::Ret(0xffff_c900_0000_0e00));
        m.ret("udp_sendmsg", 24, 2, 0xf00);
        m.jump("entry_SYSCALL_64", 20, 3);
    });
    assert_eq!(lines, ["udp_sendmsg 16/7 @5+16", ". [unknown] 9/9 @10+9"]);
}

/// Prototypes of a few functions, for tests.
struct Made;

impl Prototypes for Made {
    fn of_kernel(&self, symbol: &Symbol) -> Option<Arc<Prototype>> {
        let long = || Type::scalar(Shape::Signed, 8);
        let named = |name: &str| Parameter { name: name.into(), of: long(), place: Place::ByAbi };
        let parameters = match symbol.name.as_str() {
            "udp_sendmsg" => vec![named("sk"), named("len")],
            _ => return None,
        };
        Some(Arc::new(Prototype { parameters, returns: Some(long()), arch: Arch::X86_64 }))
    }

    fn of_programs(&self, _: &[InFile]) -> Vec<(InFile, Arc<Prototype>)> {
        Vec::new()
    }
}

/// Three calls, the second with an error; each calls `helper`, which jumps on, and is
/// interrupted.
fn with_values(m: &mut Machine<'_>, checked: bool) {
    for (len, value) in [(10, 10), (20, -90_i64), (30, 30)] {
        let registers = |first: u64| [first, len, 0, 0, 0, 0, 0, 0];
        m.call_only("entry_SYSCALL_64", 0xe00);
        m.jump("udp_sendmsg", 0, 5);
        m.take(Record::Arguments { checked, registers: registers(1) });
        m.take(Record::Text(1, b"a name".to_vec()));
        m.call("udp_sendmsg", 20, 1, 0xd00);
        m.jump("helper", 0, 2);
        m.take(Record::Arguments { checked, registers: registers(2) });
        m.jump("asm_common_interrupt", 0, 3);
        m.iret("asm_common_interrupt", 12, 1);
        m.ret("dst_output", 0, 3, 0xd00);
        m.take(Record::Returned(7));
        m.ret("udp_sendmsg", 24, 2, 0xe00);
        m.take(Record::Returned(value as u64));
    }
    m.jump("entry_SYSCALL_64", 20, 3);
}

fn traced_with_values(only: &str, checked: bool) -> (TracedCalls, Losses) {
    let symbols = symbols();
    let spec = Trace { args: true, only: Some(only.parse().unwrap()), ..spec("udp_sendmsg") };
    let mut m = Machine::new(&symbols).tracing_with(&spec, &Made);
    m.user();
    m.mark(Mark::WindowBegin);
    m.jump("entry_SYSCALL_64", 0, 4);
    with_values(&mut m, checked);
    m.user();
    m.mark(Mark::WindowEnd);
    (m.window().traced.unwrap(), m.losses())
}

/// Check that calls have the registers with which they began and what they returned, a function that
/// jumped to another what that did, and that conditions compare them.
#[test]
fn arguments_and_return_values() {
    let (calls, losses) = traced_with_values("insns > 0", true);
    assert!(!losses.no_registers);
    assert_eq!((calls.counts.calls, calls.counts.matched), (3, 3));
    let values = calls.kept.iter().map(|call| {
        let steps = call.steps.iter();
        let step = |s: &TracedStep| {
            (s.arguments.map(|a| call.registers[a as usize][..2].to_vec()), s.returned)
        };
        steps.map(step).collect::<Vec<_>>()
    });
    let of = |len: u64, value: i64| {
        vec![
            (Some(vec![1, len]), Some(value as u64)),
            (Some(vec![2, len]), Some(7)),
            (None, None),
            (None, Some(7)),
        ]
    };
    assert_eq!(values.collect::<Vec<_>>(), [of(10, 10), of(20, -90), of(30, 30)]);
    let texts = calls.kept.iter().map(|call| call.texts.clone());
    let one = vec![((0, 1), "a name".to_string())];
    assert_eq!(texts.collect::<Vec<_>>(), vec![one; 3]);
    let matched = |only: &str| {
        let (calls, _) = traced_with_values(only, true);
        calls.kept.iter().map(|call| call.number).collect::<Vec<_>>()
    };
    assert_eq!(matched("len > 10"), [1, 2]);
    assert_eq!(matched("retval < 0"), [1]);
    assert_eq!(matched("len > 10 && retval >= 0"), [2]);
    assert_eq!(matched("sk != 1"), []);
}

/// Check that it is a loss, which ends the run, if registers were never seen to be right, and that an argument which
/// is not there is refused with those that are.
#[test]
fn unknown_arguments() {
    let (_, losses) = traced_with_values("insns > 0", false);
    assert!(losses.no_registers);
    let symbols = symbols();
    let refused = |function: &str, only: &str| {
        let spec = Trace { only: Some(only.parse().unwrap()), ..spec(function) };
        let tracing = find(&spec, &symbols, &Images::default()).unwrap();
        tracing.with_prototypes(&symbols, &Made).unwrap_err()
    };
    let missing = refused("udp_sendmsg", "length > 3");
    let names: Vec<String> = missing.prototype.unwrap().names().collect();
    assert_eq!((missing.name.as_deref(), names.join(" ")), (Some("length"), "sk len".into()));
    assert_eq!(missing.why, Unread::Missing);
    assert_eq!(refused("helper", "retval > 3").prototype, None);
}

/// Check the options passed to the plugin: the addresses of the kernel's functions, and the pages of a
/// program's.
#[test]
fn options_of_the_plugin() {
    let symbols = symbols();
    let mut files = Images::default();
    files.add_made(
        super::super::Image {
            functions: vec![super::super::ImageFunction {
                start: 0x2123,
                end: 0x2200,
                name: "main".into(),
            }],
            ..super::super::Image::default()
        },
        &[(0x1000, 7), (0x2000, 0xabc)],
    );
    let of = |function: &str| {
        let tracing = find(&spec(function), &symbols, &files).unwrap();
        tracing.options(&symbols, &files)
    };
    let address = symbols.by_name("udp_sendmsg")[0].addr;
    assert_eq!(of("udp_sendmsg"), [format!("call={address:x}:0")]);
    assert_eq!(of("main"), ["user=abc:123:0"]);
}
