//! Windows, and what can't be followed.

use super::super::stream::Kind;
use super::super::{Losses, Mark, Record, Window};
use super::machine::{Machine, NOWHERE, symbols};
use super::{IDLE, OWN, assert_costs, in_window, sending, switch};

/// Check that warm-up and what is between windows is in none, that each window has
/// its own, and that a call which began in one and ends in the next is entered in
/// the one and returned in neither.
#[test]
fn windows() {
    let symbols = symbols();
    let mut m = Machine::new(&symbols);
    let send = |m: &mut Machine<'_>, insns: u32| {
        m.mark(Mark::TxBegin);
        m.call("entry_SYSCALL_64", 0, 4, 0xf00);
        m.ret("udp_sendmsg", 0, insns, 0xf00);
        m.jump("entry_SYSCALL_64", 16, 3);
        m.user();
        m.mark(Mark::TxEnd);
    };
    let idle = |m: &mut Machine<'_>| {
        m.call("entry_SYSCALL_64", 0, 4, OWN + 8);
        switch(m, OWN, IDLE);
        m.ret("schedule", 12, 2, IDLE + 8);
        m.call("cpu_idle", 0, 7, IDLE + 8);
        switch(m, IDLE, OWN);
        m.ret("schedule", 12, 2, OWN + 8);
        m.user();
    };
    m.user();
    m.mark(Mark::Arm);
    send(&mut m, 50);
    for insns in [10, 20] {
        m.mark(Mark::WindowBegin);
        send(&mut m, insns);
        idle(&mut m);
        m.mark(Mark::WindowEnd);
        let window = m.window();
        m.check_sums(&window);
        let cost_lines = m.cost_lines(&window);
        let sent = format!("tx task, entry_SYSCALL_64 > udp_sendmsg, 1, {insns}");
        assert!(cost_lines.contains(&sent), "{cost_lines:?}");
        assert!(cost_lines.contains(&"tx task, entry_SYSCALL_64, 1, 7".to_string()));
        // cpu_idle was entered in the first.
        let first = insns == 10;
        let idled = format!("other other-task, cpu_idle, {}, 7", u32::from(first));
        assert!(cost_lines.contains(&idled), "{cost_lines:?}");
        // schedule() and the two of the switch do not return from this; the first
        // time around, cpu_idle() and another schedule() were found.
        assert_eq!(window.entered - window.returned, if first { 5 } else { 3 });
        assert_eq!(window.user_insns, 200);
        send(&mut m, 70);
    }
    m.mark(Mark::WindowEnd);
    assert_eq!(m.losses(), Losses::default());
}

/// Check that a repeated instruction counts as often as it ran, and that the block
/// ends as it would have.
#[test]
fn repeated_instructions() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 3, 0xe00);
            m.ret("helper", 0, 4, 0xe00);
            m.partial(500);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > helper, 1, 500",
        ],
    );
}

/// Check that a return that matches no call is counted as a loss, and nothing of
/// what ran is.
#[test]
fn unmatched_return() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::TxBegin);
        m.call("entry_SYSCALL_64", 0, 4, 0xf00);
        m.call("udp_sendmsg", 0, 3, 0xe00);
        m.ret("ip_output", 0, 4, 0x700);
        m.jump("helper", 4, 2);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "tx task, entry_SYSCALL_64, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 3",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "tx task, entry_SYSCALL_64 ~ helper, 1, 2",
        ],
    );
    assert_eq!((window.entered, window.returned), (4, 2));
    assert_eq!(machine.losses(), Losses { unmatched_returns: 1, ..Losses::default() });
}

/// Check that a return into a function that was called before the stream began is not a
/// loss.
#[test]
fn return_to_before_the_beginning() {
    let symbols = symbols();
    let mut m = Machine::new(&symbols);
    m.ret("udp_sendmsg", 20, 3, 0xe00);
    m.ret("ip_output", 20, 3, 0xf00);
    m.jump("entry_SYSCALL_64", 20, 3);
    m.user();
    assert_eq!(m.losses(), Losses::default());
}

/// Check that code without a symbol is a function like another, and counted.
#[test]
fn unknown_code() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::TxBegin);
        m.call("entry_SYSCALL_64", 0, 4, 0xf00);
        m.at(NOWHERE, 6, Kind::Call);
        m.take(Record::Call(0xffff_c900_0000_0e00));
        m.ret("helper", 0, 5, 0xe00);
        m.at(NOWHERE + 24, 2, Kind::Ret);
        m.take(Record::Ret(0xffff_c900_0000_0f00));
        m.jump("entry_SYSCALL_64", 16, 3);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "tx task, entry_SYSCALL_64, 1, 7",
            "tx task, entry_SYSCALL_64 > [unknown], 1, 8",
            "tx task, entry_SYSCALL_64 > [unknown] > helper, 1, 5",
        ],
    );
    assert_eq!(machine.losses(), Losses { insns_without_symbol: 8, ..Losses::default() });
}

/// Check that calls whose addresses the plugin could not use are reported, and their
/// instructions still counted.
#[test]
fn calls_without_address() {
    let symbols = symbols();
    let (machine, _) = in_window(&symbols, |m| {
        m.mark(Mark::TxBegin);
        m.at(m.address("udp_sendmsg"), 3, Kind::Call);
        m.take(Record::Loss(1));
        m.at(m.address("helper"), 3, Kind::Ret);
        m.take(Record::Loss(2));
        m.jump("udp_sendmsg", 12, 1);
    });
    assert_eq!(
        machine.losses(),
        Losses { calls_without_address: 2, bad_addresses: 2, ..Losses::default() }
    );
}

/// Check that calls deeper than any stack are given up, that this is reported, and that
/// no instruction is lost by it, in an interrupt as in a task.
#[test]
fn deeper_than_any_stack() {
    for entry in ["entry_SYSCALL_64", "asm_common_interrupt"] {
        let symbols = symbols();
        let (machine, window) = in_window(&symbols, |m| {
            m.mark(Mark::TxBegin);
            m.call(entry, 0, 4, 0x80000);
            for depth in 0..10_000 {
                m.call("helper", 0, 2, 0x7fff8 - 8 * depth);
            }
            m.ret("helper", 0, 2, 0x7fff8 - 8 * 9_999);
        });
        assert_eq!(window.kernel_insns, 4 + 2 * 10_001);
        assert_eq!(machine.losses().stacks_given_up, 2);
    }
}

/// Check that the end of a window that never began closes none, and that nothing is
/// counted in it.
#[test]
fn window_without_a_beginning() {
    let symbols = symbols();
    let (_, window) = in_window(&symbols, |m| {
        // Sent again, the window begins anew.
        m.jump("entry_SYSCALL_64", 0, 4);
        m.user();
        m.mark(Mark::WindowBegin);
        m.jump("entry_SYSCALL_64", 0, 4);
    });
    assert_eq!(window.kernel_insns, 4);
    assert_eq!((window.entered, window.returned), (1, 1));
}

/// Check that blocks that were never described are passed over.
#[test]
fn block_never_described() {
    let symbols = symbols();
    let (_, window) = in_window(&symbols, |m| m.take(Record::Exec(77)));
    assert_eq!(window, Window { user_insns: 100, ..Window::default() });
}
