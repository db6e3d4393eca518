//! A machine whose calls store nothing (arm64): frames are known by the stack pointer.

use super::super::{Losses, Mark};
use super::machine::{Machine, symbols};
use super::{IDLE, OWN, assert_costs, costs, in_window};

/// In a system call of the sender.
#[track_caller]
fn sending(run: impl FnOnce(&mut Machine<'_>), expected: &[&str]) {
    costs(
        |m| {
            m.mark(Mark::TxBegin);
            m.jump("vectors:el0t_64_sync", 0, 4);
            m.call("el0t_64_sync", 0, 2, 0xf00);
            run(m);
            m.iret("el0t_64_sync", 8, 3);
            m.user();
            m.mark(Mark::TxEnd);
        },
        &[
            &[
                "tx task, vectors:el0t_64_sync, 1, 4",
                "tx task, vectors:el0t_64_sync ~ el0t_64_sync, 1, 5",
            ],
            expected,
        ]
        .concat(),
    );
}

/// Check that functions without a frame, whose stack pointer is their caller's, end one by one: by
/// where they return to.
#[test]
fn without_frames() {
    sending(
        |m| {
            // Each keeps its return address in a register.
            m.call("udp_sendmsg", 0, 5, 0xf00);
            m.call("ip_output", 0, 3, 0xf00);
            m.ret("helper", 0, 7, 0xf00);
            m.ret("ip_output", 12, 2, 0xf00);
            m.call("udp_sendmsg", 20, 1, 0xf00);
            m.ret("helper", 0, 7, 0xf00);
            m.ret("udp_sendmsg", 24, 1, 0xf00);
        },
        &[
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg, 1, 7",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > ip_output, 1, 5",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > ip_output > helper, 1, 7",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > helper, 1, 7",
        ],
    );
}

/// Check that a fault between a call and its function, and one between a return and where that leads,
/// change neither.
#[test]
fn faults_between() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 5, 0xe00);
            m.jump("vectors:el1h_64_sync", 0, 2);
            m.iret("vectors:el1h_64_sync", 8, 1);
            m.ret("helper", 0, 7, 0xe00);
            m.jump("vectors:el1h_64_sync", 0, 2);
            m.iret("vectors:el1h_64_sync", 8, 1);
            m.ret("udp_sendmsg", 20, 1, 0xf00);
        },
        &[
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg, 1, 6",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > vectors:el1h_64_sync, 1, 3",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > helper, 1, 7",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync > udp_sendmsg > helper > vectors:el1h_64_sync, 1, 3",
        ],
    );
}

/// Check that an interrupt is a scope of its own from its first instruction.
#[test]
fn interrupts() {
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::TxBegin);
        m.jump("vectors:el0t_64_sync", 0, 4);
        m.jump("el0t_64_sync", 0, 2);
        m.jump("vectors:el1h_64_irq", 0, 6);
        m.call("el1h_64_irq", 0, 2, 0xd00);
        m.ret("helper", 0, 7, 0xd00);
        m.iret("el1h_64_irq", 8, 2);
        m.iret("el0t_64_sync", 8, 3);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "tx task, vectors:el0t_64_sync, 1, 4",
            "tx task, vectors:el0t_64_sync ~ el0t_64_sync, 1, 5",
            "rx hardirq, vectors:el1h_64_irq, 1, 6",
            "rx hardirq, vectors:el1h_64_irq ~ el1h_64_irq, 1, 4",
            "rx hardirq, vectors:el1h_64_irq ~ el1h_64_irq > helper, 1, 7",
        ],
    );
    assert_eq!(machine.losses(), Losses::default());
}

/// Check that a switch returns on the other task's stack, to where that one called it.
#[test]
fn switches() {
    let switch = |m: &mut Machine<'_>, from: u64, to: u64| {
        m.call("schedule", 0, 3, from);
        m.ret("cpu_switch_to", 0, 5, to);
    };
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::RxBegin);
        m.jump("vectors:el0t_64_sync", 0, 4);
        m.call("el0t_64_sync", 0, 2, OWN + 16);
        for _ in 0..2 {
            switch(m, OWN, IDLE);
            m.ret("schedule", 12, 2, IDLE + 16);
            m.call("cpu_idle", 0, 7, IDLE + 16);
            switch(m, IDLE, OWN);
        }
        m.ret("schedule", 12, 2, OWN + 16);
        m.iret("el0t_64_sync", 8, 3);
    });
    assert_costs(
        &machine,
        &window,
        &[
            "rx task, vectors:el0t_64_sync, 1, 4",
            "rx task, vectors:el0t_64_sync ~ el0t_64_sync, 1, 5",
            "rx task, vectors:el0t_64_sync ~ el0t_64_sync > schedule, 1, 8",
            "rx task, vectors:el0t_64_sync ~ el0t_64_sync > schedule > cpu_switch_to, 2, 10",
            "other other-task, schedule, 1, 2",
            "other other-task, cpu_idle, 1, 14",
            "other other-task, cpu_idle > schedule, 2, 8",
            "other other-task, cpu_idle > schedule > cpu_switch_to, 2, 10",
        ],
    );
    assert_eq!(machine.losses(), Losses::default());
}
