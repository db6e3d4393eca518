//! Tasks that wait, and others that run meanwhile.

use super::super::{Losses, Mark};
use super::machine::symbols;
use super::{IDLE, OWN, assert_costs, in_window, switch};

/// Check that a task that waits goes on where it left off, and that what runs
/// meanwhile, on a stack never seen before and on one seen, is not its own.
#[test]
fn task_switches() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::RxBegin);
        m.call("entry_SYSCALL_64", 0, 4, OWN + 8);
        for _ in 0..2 {
            switch(m, OWN, IDLE);
            m.ret("schedule", 12, 2, IDLE + 8);
            m.call("cpu_idle", 0, 7, IDLE + 8);
            switch(m, IDLE, OWN);
        }
        m.ret("schedule", 12, 2, OWN + 8);
        m.jump("entry_SYSCALL_64", 16, 3);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "rx task, entry_SYSCALL_64, 1, 7",
            "rx task, entry_SYSCALL_64 > schedule, 1, 8",
            "rx task, entry_SYSCALL_64 > schedule > __switch_to_asm, 2, 10",
            "rx task, entry_SYSCALL_64 > schedule > __switch_to_asm ~ __switch_to, 2, 12",
            "other other-task, schedule, 1, 2",
            "other other-task, cpu_idle, 1, 14",
            "other other-task, cpu_idle > schedule, 2, 8",
            "other other-task, cpu_idle > schedule > __switch_to_asm, 2, 10",
            "other other-task, cpu_idle > schedule > __switch_to_asm ~ __switch_to, 2, 12",
        ],
    );
    // Idle is still in its schedule(), and was found in one.
    assert_eq!(window.entered - window.returned, 5);
    assert_eq!(machine.losses(), Losses::default());
}

/// Check that the calls in __switch_to_asm that fill the return buffer, on the new
/// stack, are not switches.
#[test]
fn return_buffer_is_filled() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::RxBegin);
        m.call("entry_SYSCALL_64", 0, 4, OWN + 8);
        m.call("schedule", 0, 3, OWN);
        m.call("__switch_to_asm", 0, 5, IDLE - 8);
        m.call("__switch_to_asm", 24, 1, IDLE - 16);
        m.jump("__switch_to_asm", 32, 2);
        m.ret("__switch_to", 0, 6, IDLE);
        m.ret("schedule", 12, 2, IDLE + 8);
        m.call("cpu_idle", 0, 7, IDLE + 8);
        switch(m, IDLE, OWN);
        m.ret("schedule", 12, 2, OWN + 8);
        m.jump("entry_SYSCALL_64", 16, 3);
    });
    let own: Vec<String> = machine
        .cost_lines(&window)
        .into_iter()
        .filter(|line| line.starts_with("rx task"))
        .collect();
    assert_eq!(
        own,
        [
            "rx task, entry_SYSCALL_64 > schedule > __switch_to_asm, 1, 5",
            "rx task, entry_SYSCALL_64 > schedule, 1, 5",
            "rx task, entry_SYSCALL_64, 1, 7",
        ]
    );
    assert_eq!(machine.losses(), Losses::default());
}

/// Check that a task that an interrupt preempts has the interrupt, and its own
/// call, to go on with.
#[test]
fn preempted_at_the_end_of_an_interrupt() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::TxBegin);
        m.call("entry_SYSCALL_64", 0, 4, 0xf00);
        m.call("udp_sendmsg", 0, 3, 0xe00);
        m.call("asm_common_interrupt", 0, 2, OWN + 8);
        switch(m, OWN, IDLE);
        m.call("cpu_idle", 0, 7, IDLE + 8);
        switch(m, IDLE, OWN);
        m.ret("schedule", 12, 2, OWN + 8);
        m.iret("asm_common_interrupt", 8, 1);
        m.ret("ip_output", 0, 4, 0xe00);
        m.ret("udp_sendmsg", 12, 1, 0xf00);
        m.jump("entry_SYSCALL_64", 16, 3);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "tx task, entry_SYSCALL_64, 1, 7",
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "rx hardirq, asm_common_interrupt, 1, 3",
            "rx hardirq, asm_common_interrupt > schedule, 1, 5",
            "rx hardirq, asm_common_interrupt > schedule > __switch_to_asm, 1, 5",
            "rx hardirq, asm_common_interrupt > schedule > __switch_to_asm ~ __switch_to, 1, 6",
            "other other-task, cpu_idle, 1, 7",
            "other other-task, cpu_idle > schedule, 1, 3",
            "other other-task, cpu_idle > schedule > __switch_to_asm, 1, 5",
            "other other-task, cpu_idle > schedule > __switch_to_asm ~ __switch_to, 1, 6",
        ],
    );
    assert_eq!(machine.losses(), Losses::default());
}
