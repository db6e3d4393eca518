//! The accountant and the stream, driven by hand.

mod calls;
mod links;
mod losses;
mod machine;
mod random;
mod samples;
mod softirqs;
mod stream;
mod switches;
mod threads;
mod traces;
mod user;

use netplumb_kernel::kallsyms::SymbolTable;

use super::{Losses, Mark, Window};
use machine::{Machine, symbols};

/// Run some code in a window.
fn in_window<'a>(
    symbols: &'a SymbolTable,
    run: impl FnOnce(&mut Machine<'a>),
) -> (Machine<'a>, Window) {
    let mut machine = Machine::new(symbols);
    machine.user();
    machine.mark(Mark::WindowBegin);
    run(&mut machine);
    machine.user();
    machine.mark(Mark::WindowEnd);
    let window = machine.window();
    machine.check_sums(&window);
    (machine, window)
}

/// Compare every cost: `direction context, path, calls, instructions`, where `>`
/// is a call and `~` a jump.
#[track_caller]
fn assert_costs(machine: &Machine<'_>, window: &Window, expected: &[&str]) {
    let mut expected: Vec<&str> = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(machine.cost_lines(window), expected);
}

/// Both, where every function returns and nothing is lost.
#[track_caller]
fn costs(run: impl FnOnce(&mut Machine<'_>), expected: &[&str]) {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, run);
    assert_costs(&machine, &window, expected);
    assert_eq!(window.entered, window.returned, "all returned");
    assert_eq!(machine.losses(), Losses::default());
}

/// The same, within a system call of the sender: what is given is below it.
#[track_caller]
fn sending(run: impl FnOnce(&mut Machine<'_>), expected: &[&str]) {
    costs(
        |m| {
            m.mark(Mark::TxBegin);
            m.jump("entry_SYSCALL_64", 0, 4);
            m.call("entry_SYSCALL_64", 16, 1, 0xf00);
            run(m);
            m.jump("entry_SYSCALL_64", 20, 3);
            m.user();
            m.mark(Mark::TxEnd);
        },
        &[&["tx task, entry_SYSCALL_64, 1, 8"], expected].concat(),
    );
}

/// Stacks of two tasks.
const OWN: u64 = 0x0d00;
const IDLE: u64 = 0xbd00;

/// The task on the stack of `from` waits, and the one on the stack of `to` runs.
fn switch(m: &mut Machine<'_>, from: u64, to: u64) {
    m.call("schedule", 0, 3, from);
    m.jump("__switch_to_asm", 0, 5);
    // By now the stack is the other's.
    m.ret("__switch_to", 0, 6, to);
}
