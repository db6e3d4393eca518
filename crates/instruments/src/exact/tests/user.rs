//! Commands: user code, threads, programs.

use super::super::stream::Kind;
use super::super::{Losses, Mark, Record};
use super::machine::{Machine, symbols};

/// Stacks of tasks, 16 KiB each: the command's, those it makes, and the agent's.
const OWN: u64 = 0x4_0f00;
const MADE: u64 = 0x8_0f00;
const AGENT: u64 = 0xc_0f00;
/// Files: the agent itself is not among them.
const LOADER: u64 = 0;
const PROGRAM: u64 = 1;
const AGENT_CODE: u64 = 0x1_0000;

/// Run a command: what is given happens after the marker, until the agent has seen
/// its end.
fn run(files: &[&str], what: impl FnOnce(&mut Machine<'_>), expected: &[&str]) -> Losses {
    let symbols = symbols();
    run_on(Machine::of_command(&symbols, files), what, expected)
}

fn run_on(mut m: Machine<'_>, what: impl FnOnce(&mut Machine<'_>), expected: &[&str]) -> Losses {
    agent(&mut m);
    m.mark(Mark::RunBegin);
    what(&mut m);
    // A task that ends is switched from for good.
    switch(&mut m, OWN, AGENT);
    m.ret("schedule", 0x20, 2, AGENT);
    agent(&mut m);
    m.mark(Mark::WindowEnd);
    let window = m.window();
    m.check_run(&window);
    let mut expected: Vec<String> = expected.iter().map(|e| format!("run {e}")).collect();
    expected.sort_unstable();
    let cost_lines: Vec<String> = m
        .cost_lines(&window)
        .into_iter()
        .filter(|line| !line.contains("__switch_to") && !line.contains("schedule"))
        .collect();
    assert_eq!(cost_lines, expected);
    m.losses()
}

/// Some code of the agent, which is in no file.
fn agent(m: &mut Machine<'_>) {
    m.user_at(AGENT_CODE, 0x10_0000, 7, Kind::Other);
}

/// Switch from one stack to another, where `schedule` returns next.
fn switch(m: &mut Machine<'_>, from: u64, to: u64) {
    m.jump("entry_SYSCALL_64", 0, 1);
    m.call("entry_SYSCALL_64", 4, 1, from);
    m.call("schedule", 0, 2, from - 0x10);
    m.jump("__switch_to_asm", 0, 6);
    m.ret("__switch_to", 0, 9, to - 0x10);
}

/// Replace the program: the loader runs first, and then the program.
fn exec(m: &mut Machine<'_>, sp: u64) {
    m.jump("entry_SYSCALL_64", 0, 1);
    m.call("entry_SYSCALL_64", 4, 1, sp);
    m.ret("begin_new_exec", 0, 5, sp);
    m.jump("entry_SYSCALL_64", 8, 3);
    m.user_at(LOADER, 0x1000, 2, Kind::Other);
    m.user_at(PROGRAM, 0x1000, 4, Kind::Other);
}

/// Check that a command's functions are its root's, by calls and jumps, and that what
/// the kernel does for it is below the function that asked.
#[test]
fn functions_and_system_calls() {
    let losses = run(
        &["ld.so", "ping"],
        |m| {
            exec(m, OWN);
            m.user_call(PROGRAM, 0x1010, 1, 0xe00);
            m.user_call(PROGRAM, 0x1100, 5, 0xd00);
            m.user_at(PROGRAM, 0x1400, 2, Kind::Other);
            m.user_at(PROGRAM, 0x1500, 3, Kind::Other);
            m.jump("entry_SYSCALL_64", 0, 1);
            m.call("entry_SYSCALL_64", 4, 1, OWN);
            m.ret("udp_sendmsg", 0, 11, OWN);
            m.jump("entry_SYSCALL_64", 8, 1);
            m.user_ret(PROGRAM, 0x150c, 1, 0xd00);
            m.user_ret(PROGRAM, 0x1114, 2, 0xe00);
            m.user_at(PROGRAM, 0x1014, 1, Kind::Other);
        },
        &[
            // What the exec itself cost belongs to the command.
            "task, ping > entry_SYSCALL_64, 1, 5",
            "task, ping > entry_SYSCALL_64 > begin_new_exec, 1, 5",
            "task, ping > _start, 1, 2",
            "task, ping > _start ~ _start, 1, 6",
            "task, ping > _start ~ _start > main, 1, 7",
            "task, ping > _start ~ _start > main > write@plt, 1, 2",
            "task, ping > _start ~ _start > main > write@plt ~ write, 1, 4",
            "task, ping > _start ~ _start > main > write@plt ~ write > entry_SYSCALL_64, 1, 3",
            "task, ping > _start ~ _start > main > write@plt ~ write > entry_SYSCALL_64 > udp_sendmsg, 1, 11",
            "task, ping > _start ~ _start > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
    assert_eq!(losses, Losses::default());
}

/// Check that a thread is named after its program, not after a library whose code happens to
/// begin at the file's entry point.
#[test]
fn a_library_is_no_program() {
    let losses = run(
        &["ld.so", "curl", "librtmp.so.1"],
        |m| {
            exec(m, OWN);
            m.user_call(PROGRAM, 0x1010, 1, 0xe00);
            m.user_at(PROGRAM + 1, 0x1000, 5, Kind::Other);
        },
        &[
            "task, curl > entry_SYSCALL_64, 1, 5",
            "task, curl > entry_SYSCALL_64 > begin_new_exec, 1, 5",
            "task, curl > _start, 1, 2",
            "task, curl > _start ~ _start, 1, 5",
            "task, curl > _start ~ _start > _start, 1, 5",
            "task, curl > _start ~ _start > _start > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
    assert_eq!(losses, Losses::default());
}

/// Check that each thread is a root of its own with a number, that a forked one that
/// runs another program is another root, and that stacks are used again.
#[test]
fn threads_and_children() {
    let create = |m: &mut Machine<'_>| {
        m.jump("entry_SYSCALL_64", 0, 1);
        m.call("entry_SYSCALL_64", 4, 1, OWN);
        m.call("schedule", 0, 1, OWN - 0x10);
        m.jump("copy_thread", 0, 3);
        // To its own stack, and to the new task's.
        m.store(OWN - 0x18);
        m.store(MADE);
        m.ret("copy_thread", 12, 1, OWN - 0x10);
        m.ret("schedule", 4, 1, OWN);
        m.jump("entry_SYSCALL_64", 8, 1);
        m.user_at(PROGRAM, 0x1200, 5, Kind::Other);
    };
    run(
        &["ld.so", "ping"],
        |m| {
            exec(m, OWN);
            create(m);
            switch(m, OWN, MADE);
            m.jump("ret_from_fork", 0, 4);
            // A thread begins on a stack of its own.
            m.user_call(PROGRAM, 0x1300, 6, 0x7000_0000);
            m.user_at(PROGRAM, 0x1200, 7, Kind::Other);
            switch(m, MADE, OWN);
            m.ret("schedule", 0x20, 2, OWN);
            m.jump("entry_SYSCALL_64", 8, 1);
            // The same stack again: another thread.
            create(m);
            switch(m, OWN, MADE);
            m.jump("ret_from_fork", 0, 4);
            m.user_at(PROGRAM, 0x1300, 8, Kind::Other);
            exec(m, MADE);
            switch(m, MADE, OWN);
            m.ret("schedule", 0x20, 2, OWN);
            m.jump("entry_SYSCALL_64", 8, 1);
            m.user_at(PROGRAM, 0x1300, 9, Kind::Other);
        },
        &[
            "task, ping > entry_SYSCALL_64, 1, 5",
            "task, ping > entry_SYSCALL_64 > begin_new_exec, 1, 5",
            "task, ping > _start, 1, 2",
            "task, ping > _start ~ _start, 1, 4",
            "task, ping > _start ~ _start ~ work, 1, 10",
            "task, ping > _start ~ _start ~ work ~ other, 1, 9",
            "task, ping > _start ~ _start > entry_SYSCALL_64, 1, 3",
            "task, ping > _start ~ _start ~ work > entry_SYSCALL_64, 2, 9",
            "task, ping > _start ~ _start ~ work ~ other > entry_SYSCALL_64, 1, 2",
            "task, ping #2 > ret_from_fork, 1, 4",
            "task, ping #2 > other, 1, 6",
            "task, ping #2 > other > work, 1, 7",
            "task, ping #2 > other > work > entry_SYSCALL_64, 1, 2",
            "task, ping #3 > ret_from_fork, 1, 4",
            "task, ping #3 > other, 1, 8",
            "task, ping #3 > other > entry_SYSCALL_64, 1, 5",
            "task, ping #3 > other > entry_SYSCALL_64 > begin_new_exec, 1, 5",
            "task, ping #3 > _start, 1, 2",
            "task, ping #3 > _start ~ _start, 1, 4",
            "task, ping #3 > _start ~ _start > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
}

/// Check that a forked task goes on in the functions that its maker is in, below its own root, and
/// calls none of them again; and that a thread, which has a stack of its own, does not.
#[test]
fn forks() {
    for (sp, expected) in [
        (
            0xce0,
            [
                "task, ping #2 > _start > main > work, 0, 6",
                "task, ping #2 > _start > main, 0, 5",
                "task, ping #2 > _start > main > entry_SYSCALL_64, 1, 2",
            ],
        ),
        (
            0x7000_0000,
            [
                "task, ping #2 > work, 1, 6",
                "task, ping #2 > main, 1, 5",
                "task, ping #2 > main > entry_SYSCALL_64, 1, 2",
            ],
        ),
    ] {
        let others = [
            "task, ping > _start, 1, 1",
            "task, ping > _start > main, 1, 1",
            "task, ping > _start > main > work, 1, 7",
            "task, ping > _start > main > work > entry_SYSCALL_64, 3, 8",
            "task, ping #2 > ret_from_fork, 1, 4",
            "other-task, agent, 0, 7",
        ];
        let all: Vec<&str> = others.iter().chain(&expected).copied().collect();
        run(
            &["ld.so", "ping"],
            |m| {
                m.user_call(PROGRAM, 0x1000, 1, 0xe00);
                m.user_call(PROGRAM, 0x1100, 1, 0xd00);
                m.user_at(PROGRAM, 0x1200, 1, Kind::Other);
                m.jump("entry_SYSCALL_64", 0, 1);
                m.call("entry_SYSCALL_64", 4, 1, OWN);
                m.call("schedule", 0, 1, OWN - 0x10);
                m.jump("copy_thread", 0, 3);
                m.store(MADE);
                m.ret("copy_thread", 12, 1, OWN - 0x10);
                m.ret("schedule", 4, 1, OWN);
                m.jump("entry_SYSCALL_64", 8, 1);
                m.user_moved((PROGRAM, 0x1204, 2), 0xce0, 0, Record::User);
                switch(m, OWN, MADE);
                m.jump("ret_from_fork", 0, 4);
                m.user_moved((PROGRAM, 0x1204, 6), sp, 0, Record::Ret(0xd00));
                m.user_at(PROGRAM, 0x1104, 5, Kind::Other);
                switch(m, MADE, OWN);
                m.ret("schedule", 0x20, 2, OWN);
                m.jump("entry_SYSCALL_64", 8, 1);
                m.user_at(PROGRAM, 0x1208, 4, Kind::Other);
            },
            &all,
        );
    }
}

/// Check that a goroutine whose stack moves goes on where it was, that the scheduler's work is its
/// thread's, and that each goroutine gets its own functions back.
#[test]
fn goroutines() {
    const GOGO: u64 = 0x1000;
    const MCALL: u64 = 0x1100;
    const MAIN: u64 = 0x1200;
    const GROW: u64 = 0x1300;
    const MORE: u64 = 0x1400;
    const PARK_M: u64 = 0x1500;
    let begin = |m: &mut Machine<'_>, address, sp, goroutine, end| {
        m.user_at(0, GOGO, 1, Kind::Other);
        m.user_moved((0, address, 1), sp, goroutine, end);
    };
    let park = |m: &mut Machine<'_>, address, sp| {
        m.user_call(0, address, 1, sp);
        m.user_call(0, MCALL, 1, 0x9f8);
        m.user_at(0, PARK_M, 2, Kind::Other);
    };
    let symbols = symbols();
    let losses = run_on(
        Machine::of_go(&symbols),
        |m| {
            m.user_at(0, PARK_M, 2, Kind::Other);
            // One goroutine grows its stack, which moves further up, over the old one.
            begin(m, MAIN, 0x408, 1, Record::Call(0x3f0));
            m.user_call(0, GROW, 1, 0x3e8);
            m.user_call(0, MORE, 1, 0x9f8);
            m.user_at(0, PARK_M, 3, Kind::Other);
            begin(m, GROW + 4, 0x7f0, 1, Record::Call(0x7e0));
            m.user_call(0, GROW, 1, 0x7d0);
            park(m, GROW + 8, 0x7c8);
            // Another one is in the same place, further down.
            begin(m, MAIN, 0x208, 2, Record::Call(0x1f0));
            park(m, GROW + 8, 0x1e8);
            // The first one's stack was moved meanwhile.
            begin(m, GROW + 12, 0x5d0, 1, Record::Ret(0x5d0));
            m.user_ret(0, GROW + 16, 1, 0x5e0);
            m.user_ret(0, GROW + 20, 1, 0x5f0);
            m.user_at(0, MAIN + 4, 5, Kind::Other);
        },
        &[
            "task, go > runtime.park_m, 3, 6",
            "task, go > runtime.park_m ~ runtime.gogo.abi0, 3, 3",
            "task, go > main.main, 2, 7",
            "task, go > main.main > main.grow, 2, 4",
            "task, go > main.main > main.grow > runtime.mcall, 1, 1",
            "task, go > main.main > main.grow > runtime.morestack.abi0, 1, 1",
            "task, go > main.main > main.grow > runtime.morestack.abi0 > runtime.park_m, 1, 3",
            "task, go > main.main > main.grow > runtime.morestack.abi0 > runtime.park_m ~ runtime.gogo.abi0, 1, 1",
            "task, go > main.main > main.grow > main.grow, 1, 2",
            "task, go > main.main > main.grow > main.grow > main.grow, 1, 2",
            "task, go > main.main > main.grow > main.grow > main.grow > runtime.mcall, 1, 1",
            "task, go > main.main > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
    assert_eq!(losses, Losses::default());
}

/// Check that frames which `longjmp` leaves behind are gone, that a signal's handler
/// is below what it interrupted, and that a page that no file has is named so.
#[test]
fn odd_ways() {
    let losses = run(
        &["ld.so", "ping"],
        |m| {
            // As a program that has been started without a loader.
            m.user_at(PROGRAM, 0x1000, 1, Kind::Other);
            m.user_call(PROGRAM, 0x1100, 1, 0xe00);
            m.user_call(PROGRAM, 0x1200, 1, 0xd00);
            m.user_call(PROGRAM, 0x1300, 1, 0xc00);
            m.user_at(PROGRAM, 0x1500, 2, Kind::Other);
            // Back into the middle of main, whose next call is further up the stack.
            m.user_call(PROGRAM, 0x1104, 1, 0xe00);
            m.user_at(PROGRAM, 0x1300, 2, Kind::Other);
            m.user_at(PROGRAM, 0x4000, 3, Kind::Other);
            m.user_ret(PROGRAM, 0x1308, 1, 0xe00);
            // A handler returns, further down, to code without a call.
            m.user_ret(PROGRAM, 0x1500, 4, 0x800);
            m.user_at(PROGRAM, 0x1108, 5, Kind::Other);
        },
        &[
            "task, ping > _start, 1, 1",
            "task, ping > _start ~ main, 1, 2",
            "task, ping > _start ~ main > work, 1, 1",
            "task, ping > _start ~ main > work > other, 1, 1",
            "task, ping > _start ~ main > work > other > write, 1, 2",
            "task, ping > _start ~ main > other, 1, 3",
            "task, ping > _start ~ main > other ~ [unknown], 1, 3",
            "task, ping > _start ~ main ~ write, 1, 4",
            "task, ping > main, 1, 5",
            "task, ping > main > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
    assert_eq!(losses.insns_without_file, 3);
    assert_eq!(losses.stack_switches, 0);
}

/// Check that a coroutine's functions, which are entered again where it goes on, are counted as a switch each time, but
/// neither its first call nor what returns on the stack that it was called from.
#[test]
fn coroutines() {
    const MAIN: u64 = 0x7fff_0000;
    const OWN: u64 = 0x5000_0000;
    let losses = run(
        &["ld.so", "ping"],
        |m| {
            m.user_call(PROGRAM, 0x1000, 1, MAIN);
            m.user_call(PROGRAM, 0x1100, 1, MAIN - 0x100);
            // Begins on a stack of its own, and leaves it in what it calls.
            m.user_ret(PROGRAM, 0x1300, 1, OWN);
            let call = Record::Call(OWN - 0x100);
            m.user_moved((PROGRAM, 0x1200, 1), OWN + 8, 0, call);
            m.user_ret(PROGRAM, 0x1300, 1, MAIN - 0x100);
            // Goes on.
            m.user_call(PROGRAM, 0x1104, 1, MAIN - 0x100);
            m.user_ret(PROGRAM, 0x1300, 1, OWN - 0x100);
            let call = Record::Call(OWN - 0x100);
            m.user_moved((PROGRAM, 0x1204, 1), OWN - 0xf8, 0, call);
            m.user_ret(PROGRAM, 0x1300, 1, MAIN - 0x100);
            m.user_at(PROGRAM, 0x1108, 1, Kind::Other);
        },
        &[
            "task, ping > _start, 1, 1",
            "task, ping > _start > main, 1, 3",
            "task, ping > _start > main > other, 2, 2",
            "task, ping > _start > main > other ~ work, 2, 2",
            "task, ping > _start > main > other ~ work > other, 2, 2",
            "task, ping > _start > main > entry_SYSCALL_64, 1, 2",
            "other-task, agent, 0, 7",
        ],
    );
    assert_eq!(losses.stack_switches, 1);
}

/// Check that a window that the stream's end cuts short holds what ran until then.
#[test]
fn cut_short() {
    let symbols = symbols();
    let mut m = Machine::of_command(&symbols, &["ld.so", "ping"]);
    agent(&mut m);
    m.mark(Mark::RunBegin);
    m.user_at(PROGRAM, 0x1100, 5, Kind::Other);
    m.jump("entry_SYSCALL_64", 0, 4);
    let window = m.finish().unwrap();
    m.check_run(&window);
    assert_eq!((window.user_insns, window.kernel_insns), (5, 4));
    assert_eq!(m.losses().windows_cut, 1);
    assert!(m.finish().is_none());
}
