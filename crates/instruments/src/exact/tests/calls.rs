//! Calls, jumps and returns, and the faults and interrupts that come between.

use super::super::Mark;
use super::machine::Machine;
use super::{costs, sending};

/// Check that a call's instructions are the callee's, and those around it the
/// caller's.
#[test]
fn call_and_return() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 5, 0xe00);
            m.ret("ip_output", 0, 7, 0xe00);
            m.ret("udp_sendmsg", 20, 2, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 7",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 7",
        ],
    );
}

/// Check that a function called from two places has a node for each.
#[test]
fn nested_calls() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 1, 0xe00);
            m.call("ip_output", 0, 1, 0xd00);
            m.ret("helper", 0, 10, 0xd00);
            m.ret("ip_output", 4, 2, 0xe00);
            m.call("udp_sendmsg", 4, 1, 0xe00);
            m.ret("helper", 0, 10, 0xe00);
            m.call("udp_sendmsg", 8, 1, 0xe00);
            m.ret("helper", 0, 10, 0xe00);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 3",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output > helper, 1, 10",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > helper, 2, 20",
        ],
    );
}

/// Check that each level of a recursion is a node, and each return ends one.
#[test]
fn recursion() {
    sending(
        |m| {
            m.call("helper", 0, 2, 0xe00);
            m.call("helper", 0, 2, 0xd00);
            m.ret("helper", 0, 3, 0xd00);
            m.ret("helper", 8, 1, 0xe00);
            m.ret("helper", 8, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > helper, 1, 3",
            "tx task, entry_SYSCALL_64 > helper > helper, 1, 3",
            "tx task, entry_SYSCALL_64 > helper > helper > helper, 1, 3",
        ],
    );
}

/// Check that a chain of jumps hangs together, and that its last link's return
/// ends them all.
#[test]
fn tail_jumps() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 1, 0xe00);
            m.jump("ip_output", 0, 4);
            m.jump("dst_output", 0, 5);
            m.ret("helper", 0, 6, 0xe00);
            m.ret("udp_sendmsg", 4, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 2",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output ~ dst_output, 1, 5",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output ~ dst_output ~ helper, 1, 6",
        ],
    );
}

/// Check that a function that goes to its cold part and back was entered once.
#[test]
fn cold_part_and_back() {
    sending(
        |m| {
            m.jump("helper", 0, 3);
            m.call("helper.cold", 0, 2, 0xe00);
            m.ret("ip_output", 0, 1, 0xe00);
            m.jump("helper.cold", 8, 1);
            m.ret("helper", 12, 4, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > helper, 1, 7",
            "tx task, entry_SYSCALL_64 > helper ~ helper.cold, 1, 3",
            "tx task, entry_SYSCALL_64 > helper ~ helper.cold > ip_output, 1, 1",
        ],
    );
}

/// Check that an indirect call through a thunk, which moves its own return
/// address, ends where it began.
#[test]
fn thunk() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 1, 0xe00);
            // call 1f; 1: mov %rax,(%rsp); ret
            m.call("__x86_indirect_thunk_rax", 0, 1, 0xdf8);
            m.ret("__x86_indirect_thunk_rax", 4, 2, 0xdf8);
            m.ret("ip_output", 0, 5, 0xe00);
            m.ret("udp_sendmsg", 4, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 2",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > __x86_indirect_thunk_rax, 1, 1",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > __x86_indirect_thunk_rax > __x86_indirect_thunk_rax, 1, 2",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > __x86_indirect_thunk_rax ~ ip_output, 1, 5",
        ],
    );
}

/// Check that a block which runs on into the next function is both's.
#[test]
fn a_block_of_two_functions() {
    sending(
        |m| {
            // `dst_output` ends 8 bytes, two instructions, on; `helper` follows.
            let before_the_end = m.size("dst_output") - 8;
            m.jump("dst_output", 0, 2);
            m.ret("dst_output", before_the_end, 5, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > dst_output, 1, 4",
            "tx task, entry_SYSCALL_64 > dst_output ~ helper, 1, 3",
        ],
    );
}

/// Check that only the part of such a block that ran counts.
#[test]
fn a_block_of_two_functions_in_part() {
    sending(
        |m| {
            let before_the_end = m.size("dst_output") - 8;
            m.jump("dst_output", 0, 2);
            m.jump("dst_output", before_the_end, 5);
            m.partial(1);
            // A fault at the border, and the rest.
            m.jump("asm_exc_page_fault", 0, 2);
            m.iret("asm_exc_page_fault", 8, 1);
            m.ret("dst_output", before_the_end + 4, 4, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > dst_output, 1, 4",
            "tx task, entry_SYSCALL_64 > dst_output ~ helper, 1, 3",
            "tx task, entry_SYSCALL_64 > dst_output > asm_exc_page_fault, 1, 3",
        ],
    );
}

/// Check that a fault in mid-block counts what ran, its handler below it, and the
/// instruction again that is executed again.
#[test]
fn fault_in_mid_block() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 10, 0xe00);
            m.partial(4);
            m.call("asm_exc_page_fault", 0, 2, 0xd00);
            m.ret("error_entry", 0, 6, 0xd00);
            m.call("asm_exc_page_fault", 8, 2, 0xd00);
            m.ret("helper", 0, 6, 0xd00);
            m.iret("asm_exc_page_fault", 16, 1);
            m.call("udp_sendmsg", 12, 7, 0xe00);
            m.ret("ip_output", 0, 1, 0xe00);
            m.ret("udp_sendmsg", 40, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 12",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > asm_exc_page_fault, 1, 5",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > asm_exc_page_fault > error_entry, 1, 6",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > asm_exc_page_fault > helper, 1, 6",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 1",
        ],
    );
}

/// Check that error_entry, which moves its return address to another stack,
/// returns to its caller.
#[test]
fn error_entry_moves_its_return_address() {
    sending(
        |m| {
            m.jump("udp_sendmsg", 0, 3);
            m.call("asm_exc_page_fault", 0, 2, 0xd00);
            m.ret("error_entry", 0, 6, 0x8d00);
            m.iret("asm_exc_page_fault", 8, 1);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > asm_exc_page_fault, 1, 3",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > asm_exc_page_fault > error_entry, 1, 6",
        ],
    );
}

/// Check that an interrupt between a call and its callee does not part them.
#[test]
fn interrupt_after_a_call() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 3, 0xe00);
            m.jump("asm_sysvec_apic_timer_interrupt", 0, 2);
            m.iret("asm_sysvec_apic_timer_interrupt", 8, 1);
            m.ret("ip_output", 0, 4, 0xe00);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "other hardirq, asm_sysvec_apic_timer_interrupt, 1, 3",
        ],
    );
}

/// Check that one between a return and what is returned to does neither.
#[test]
fn interrupt_after_a_return() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 3, 0xe00);
            m.ret("ip_output", 0, 4, 0xe00);
            m.jump("asm_sysvec_apic_timer_interrupt", 0, 2);
            m.iret("asm_sysvec_apic_timer_interrupt", 8, 1);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "other hardirq, asm_sysvec_apic_timer_interrupt, 1, 3",
        ],
    );
}

/// Check that an interrupt that comes as another ends is not part of it, and that what
/// the first interrupted goes on after the second.
#[test]
fn interrupt_after_an_interrupt() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 3, 0xe00);
            for _ in 0..2 {
                m.jump("asm_sysvec_apic_timer_interrupt", 0, 2);
                m.iret("asm_sysvec_apic_timer_interrupt", 8, 1);
            }
            // A stub in the middle of the table of stubs, with the device's vector.
            m.jump("irq_entries_start", 24, 2);
            m.jump("asm_common_interrupt", 0, 1);
            m.iret("asm_common_interrupt", 4, 2);
            m.ret("ip_output", 0, 4, 0xe00);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "tx task, entry_SYSCALL_64 > udp_sendmsg > ip_output, 1, 4",
            "other hardirq, asm_sysvec_apic_timer_interrupt, 2, 6",
            "rx hardirq, irq_entries_start, 1, 2",
            "rx hardirq, irq_entries_start ~ asm_common_interrupt, 1, 3",
        ],
    );
}

/// Check that an interrupt of user mode, and one right after it, end there.
#[test]
fn interrupts_of_user_mode() {
    costs(
        |m| {
            m.mark(Mark::TxBegin);
            for _ in 0..2 {
                m.jump("asm_sysvec_apic_timer_interrupt", 0, 2);
                m.iret("asm_sysvec_apic_timer_interrupt", 8, 1);
            }
            m.user();
            // A system call that ends with an interrupt before user mode goes on.
            m.jump("entry_SYSCALL_64", 0, 4);
            m.iret("entry_SYSCALL_64", 16, 1);
            m.jump("asm_sysvec_apic_timer_interrupt", 0, 2);
            m.iret("asm_sysvec_apic_timer_interrupt", 8, 1);
            m.user();
            // A fault in user mode is the task's.
            m.jump("asm_exc_page_fault", 0, 2);
            m.iret("asm_exc_page_fault", 8, 1);
        },
        &[
            "other hardirq, asm_sysvec_apic_timer_interrupt, 3, 9",
            "tx task, entry_SYSCALL_64, 1, 5",
            "tx task, asm_exc_page_fault, 1, 3",
        ],
    );
}

/// Check that a task's marks decide whose its work is, between them and after.
#[test]
fn marks_give_the_direction() {
    let call = |m: &mut Machine<'_>| {
        m.jump("entry_SYSCALL_64", 0, 4);
        m.user();
    };
    costs(
        |m| {
            call(m);
            m.mark(Mark::TxBegin);
            call(m);
            m.mark(Mark::TxEnd);
            call(m);
            m.mark(Mark::RxBegin);
            call(m);
            call(m);
            m.mark(Mark::RxEnd);
        },
        &[
            "other task, entry_SYSCALL_64, 2, 8",
            "tx task, entry_SYSCALL_64, 1, 4",
            "rx task, entry_SYSCALL_64, 2, 8",
        ],
    );
}
