//! The accountant and the stream, driven by hand.

mod machine;
mod random;
mod stream;
mod threads;
mod user;

use netplumb_kernel::kallsyms::SymbolTable;

use super::stream::Kind;
use super::{Losses, Mark, Record, Window};
use machine::{Machine, NOWHERE, symbols};

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
    assert_eq!(machine.told(window), expected);
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

/// Check that of such a block only the part that ran counts.
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

/// Check that an interrupt that comes as another ends is no part of it, and that
/// what the first interrupted goes on after the second.
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

/// Check that the marks of a task say whose its work is, between them and after.
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

/// The task on the stack of `from` waits, and the one on the stack of `to` runs.
fn switch(m: &mut Machine<'_>, from: u64, to: u64) {
    m.call("schedule", 0, 3, from);
    m.jump("__switch_to_asm", 0, 5);
    // By now the stack is the other's.
    m.ret("__switch_to", 0, 6, to);
}

const OWN: u64 = 0x0d00;
const IDLE: u64 = 0xbd00;

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
/// stack, are no switches.
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
        .told(&window)
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

const VECTOR_SP: u64 = 0xa00;
const PACKET_SP: u64 = 0x900;
const BELOW_SP: u64 = 0x800;

/// Run softirqs as a section ends that kept them out: 2 instructions and the call
/// before, 1 after.
fn softirqs(m: &mut Machine<'_>, run: impl FnOnce(&mut Machine<'_>)) {
    m.call("udp_sendmsg", 0, 3, 0xe00);
    m.call("__local_bh_enable_ip", 0, 3, 0xd00);
    softirq_run(m, 0xd00, run);
    m.ret("__local_bh_enable_ip", 16, 1, 0xe00);
    m.ret("udp_sendmsg", 12, 1, 0xf00);
}

/// The run itself: 3 instructions before the vectors, 2 after.
fn softirq_run(m: &mut Machine<'_>, sp: u64, run: impl FnOnce(&mut Machine<'_>)) {
    m.jump("handle_softirqs", 0, 3);
    run(m);
    m.ret("handle_softirqs", 32, 2, sp);
}

/// A vector: the call, 2 instructions before what it does, 2 after.
fn vector(m: &mut Machine<'_>, name: &str, run: impl FnOnce(&mut Machine<'_>)) {
    m.call_only("handle_softirqs", VECTOR_SP);
    m.jump(name, 0, 2);
    run(m);
    m.ret(name, 32, 2, VECTOR_SP);
}

fn napi(m: &mut Machine<'_>, run: impl FnOnce(&mut Machine<'_>)) {
    vector(m, "net_rx_action", run);
}

/// One packet that gets to some functions: the call, 4 instructions before and 2
/// after, a call and 10 instructions for each.
fn packet(m: &mut Machine<'_>, reaches: &[&str]) {
    m.call_only("net_rx_action", PACKET_SP);
    m.jump("__netif_receive_skb_core", 0, 4);
    for name in reaches {
        m.call_only("__netif_receive_skb_core", BELOW_SP);
        m.ret(name, 0, 10, BELOW_SP);
    }
    m.ret("__netif_receive_skb_core", 32, 2, PACKET_SP);
}

/// The transmit completion: the call and 8 instructions.
fn completion(m: &mut Machine<'_>) {
    m.call_only("net_rx_action", PACKET_SP);
    m.ret("free_old_xmit_skbs", 0, 8, PACKET_SP);
}

/// What [`softirqs`] costs the sender.
const SENDER: [&str; 2] = [
    "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
    "tx task, entry_SYSCALL_64 > udp_sendmsg > __local_bh_enable_ip, 1, 4",
];

/// Compare the costs of a softirq run in the sender's stack, where `N` stands for
/// handle_softirqs and net_rx_action, `P` for the packet's function below it.
#[track_caller]
fn in_softirqs(run: impl FnOnce(&mut Machine<'_>), expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|line| {
            line.replace("P", "N > __netif_receive_skb_core")
                .replace(", N", " softirq:NET_RX, handle_softirqs > net_rx_action")
        })
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    sending(|m| softirqs(m, run), &[&SENDER, &expected[..]].concat());
}

/// Check that receive work in the sender's own stack is not charged to it.
#[test]
fn softirq_in_the_senders_stack() {
    in_softirqs(
        |m| napi(m, |m| packet(m, &[])),
        &[
            "rx softirq:NET_RX, handle_softirqs, 1, 6",
            "rx, N, 1, 5",
            "rx, P, 1, 6",
        ],
    );
}

/// Check that of two packets of different kinds in one run each gets its own, and
/// that the poll's work goes to the packet that follows, or to the last.
#[test]
fn two_packets_of_different_kinds() {
    in_softirqs(
        |m| {
            napi(m, |m| {
                packet(m, &["ip_forward"]);
                m.jump("net_rx_action", 16, 3);
                packet(m, &[]);
            });
        },
        &[
            "forward softirq:NET_RX, handle_softirqs, 1, 6",
            "forward, N, 1, 3",
            "forward, P, 1, 7",
            "forward, P > ip_forward, 1, 10",
            "rx, N, 0, 6",
            "rx, P, 1, 6",
        ],
    );
}

/// Check that an echo is told from a packet received, and an acknowledgement from
/// a segment that carries data too.
#[test]
fn kinds_of_packets() {
    in_softirqs(
        |m| {
            napi(m, |m| {
                packet(m, &["icmp_echo"]);
                packet(m, &["tcp_ack"]);
                packet(m, &["tcp_ack", "tcp_data_queue"]);
            });
        },
        &[
            "echo softirq:NET_RX, handle_softirqs, 1, 6",
            "echo, N, 1, 3",
            "echo, P, 1, 7",
            "echo, P > icmp_echo, 1, 10",
            "ack, N, 0, 1",
            "ack, P, 1, 7",
            "ack, P > tcp_ack, 1, 10",
            "rx, N, 0, 3",
            "rx, P, 1, 8",
            "rx, P > tcp_ack, 1, 10",
            "rx, P > tcp_data_queue, 1, 10",
        ],
    );
}

/// Check that a transmit completion in the poll of a receiver is the sender's, and
/// what it took to get there the receiver's.
#[test]
fn transmit_completion() {
    in_softirqs(
        |m| {
            napi(m, |m| {
                completion(m);
                packet(m, &[]);
            });
        },
        &[
            "rx softirq:NET_RX, handle_softirqs, 1, 6",
            "rx, N, 1, 6",
            "rx, P, 1, 6",
            "tx, N > free_old_xmit_skbs, 1, 8",
        ],
    );
}

/// Check that a poll that does nothing else is the sender's as a whole.
#[test]
fn poll_for_completions_only() {
    in_softirqs(
        |m| napi(m, completion),
        &[
            "tx softirq:NET_RX, handle_softirqs, 1, 6",
            "tx, N, 1, 5",
            "tx, N > free_old_xmit_skbs, 1, 8",
        ],
    );
}

/// Check that each vector of a run is charged as itself, and the run to the packet.
#[test]
fn several_vectors_in_a_run() {
    in_softirqs(
        |m| {
            vector(m, "rcu_core_si", |_| {});
            vector(m, "net_tx_action", |_| {});
            napi(m, |m| packet(m, &["ip_forward"]));
        },
        &[
            "other softirq:RCU, handle_softirqs > rcu_core_si, 1, 4",
            "tx softirq:NET_TX, handle_softirqs > net_tx_action, 1, 4",
            "forward softirq:NET_RX, handle_softirqs, 1, 8",
            "forward, N, 1, 5",
            "forward, P, 1, 7",
            "forward, P > ip_forward, 1, 10",
        ],
    );
}

/// Check that a run without packets' vectors is no packet's.
#[test]
fn vectors_that_are_no_packets() {
    in_softirqs(
        |m| vector(m, "rcu_core_si", |_| {}),
        &[
            "other softirq:RCU, handle_softirqs, 1, 6",
            "other softirq:RCU, handle_softirqs > rcu_core_si, 1, 4",
        ],
    );
}

/// A device's interrupt with softirqs at its end.
fn interrupt(m: &mut Machine<'_>, name: &str, run: impl FnOnce(&mut Machine<'_>)) {
    m.call(name, 0, 3, 0x5c00);
    softirq_run(m, 0x5c00, run);
    m.iret(name, 12, 2);
}

/// Check that a device's interrupt is the packet's whose softirq it raised.
#[test]
fn interrupt_of_a_device() {
    costs(
        |m| {
            interrupt(m, "asm_common_interrupt", |m| {
                napi(m, |m| packet(m, &["ip_forward"]))
            })
        },
        &[
            "forward hardirq, asm_common_interrupt, 1, 5",
            "forward softirq:NET_RX, handle_softirqs, 1, 6",
            "forward softirq:NET_RX, handle_softirqs > net_rx_action, 1, 5",
            "forward softirq:NET_RX, handle_softirqs > net_rx_action > __netif_receive_skb_core, 1, 7",
            "forward softirq:NET_RX, handle_softirqs > net_rx_action > __netif_receive_skb_core > ip_forward, 1, 10",
        ],
    );
    costs(
        |m| interrupt(m, "asm_common_interrupt", |m| napi(m, completion)),
        &[
            "tx hardirq, asm_common_interrupt, 1, 5",
            "tx softirq:NET_RX, handle_softirqs, 1, 6",
            "tx softirq:NET_RX, handle_softirqs > net_rx_action, 1, 5",
            "tx softirq:NET_RX, handle_softirqs > net_rx_action > free_old_xmit_skbs, 1, 8",
        ],
    );
}

/// Check that the timer's interrupt is no packet's, though packets be handled at
/// its end, in the middle of another packet.
#[test]
fn interrupt_of_the_timer() {
    costs(
        |m| {
            interrupt(m, "asm_sysvec_apic_timer_interrupt", |m| {
                napi(m, |m| {
                    m.call_only("net_rx_action", PACKET_SP);
                    m.jump("__netif_receive_skb_core", 0, 4);
                    m.jump("asm_sysvec_apic_timer_interrupt", 0, 3);
                    m.iret("asm_sysvec_apic_timer_interrupt", 12, 2);
                    m.ret("__netif_receive_skb_core", 32, 2, PACKET_SP);
                });
            });
        },
        &[
            "other hardirq, asm_sysvec_apic_timer_interrupt, 2, 10",
            "rx softirq:NET_RX, handle_softirqs, 1, 6",
            "rx softirq:NET_RX, handle_softirqs > net_rx_action, 1, 5",
            "rx softirq:NET_RX, handle_softirqs > net_rx_action > __netif_receive_skb_core, 1, 6",
        ],
    );
}

/// Check that an interrupt between two packets of a run leaves their count alone.
#[test]
fn interrupt_between_packets() {
    in_softirqs(
        |m| {
            napi(m, |m| {
                packet(m, &["ip_forward"]);
                m.jump("asm_common_interrupt", 0, 3);
                m.iret("asm_common_interrupt", 12, 2);
                packet(m, &[]);
            });
        },
        &[
            "forward softirq:NET_RX, handle_softirqs, 1, 6",
            "forward, N, 1, 3",
            "forward, P, 1, 7",
            "forward, P > ip_forward, 1, 10",
            "rx, N, 0, 3",
            "rx, P, 1, 6",
            "rx hardirq, asm_common_interrupt, 1, 5",
        ],
    );
}

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
        let told = m.told(&window);
        let sent = format!("tx task, entry_SYSCALL_64 > udp_sendmsg, 1, {insns}");
        assert!(told.contains(&sent), "{told:?}");
        assert!(told.contains(&"tx task, entry_SYSCALL_64, 1, 7".to_string()));
        // cpu_idle was entered in the first.
        let first = insns == 10;
        let idled = format!("other other-task, cpu_idle, {}, 7", u32::from(first));
        assert!(told.contains(&idled), "{told:?}");
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
    assert_eq!(
        machine.losses(),
        Losses {
            unmatched_returns: 1,
            ..Losses::default()
        }
    );
}

/// Check that a return into a function that was called before anybody looked is
/// none.
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
    assert_eq!(
        machine.losses(),
        Losses {
            insns_without_symbol: 8,
            ..Losses::default()
        }
    );
}

/// Check that calls whose addresses the plugin could not use are told, and their
/// instructions counted all the same.
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
        Losses {
            calls_without_address: 2,
            bad_addresses: 2,
            ..Losses::default()
        }
    );
}

/// Check that calls deeper than any stack are given up, that this is told, and
/// that no instruction is lost by it, in an interrupt as in a task.
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

/// Check that the end of a window that never began is none, and that nothing is
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
    assert_eq!(
        window,
        Window {
            user_insns: 100,
            ..Window::default()
        }
    );
}
