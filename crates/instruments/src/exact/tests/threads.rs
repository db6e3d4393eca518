//! What PREEMPT_RT does in threads: handlers of interrupts, and softirqs.

use super::machine::symbols;
use super::{Losses, Mark, OWN, in_window, switch};

const THREAD: u64 = 0xbd00;

/// Check that a thread's interrupt handler is charged to the packet whose softirq it raises, in the thread's time;
/// that the compiler's clone of a softirq is a softirq; and that what else the thread does is charged to no packet.
/// The same if it sleeps in the middle of a packet.
#[test]
fn interrupt_in_a_thread() {
    for sleeps in [false, true] {
        let symbols = symbols();
        let (machine, window) = in_window(&symbols, |m| {
            m.mark(Mark::TxBegin);
            m.call("entry_SYSCALL_64", 0, 4, OWN + 8);
            switch(m, OWN, THREAD);
            m.ret("schedule", 12, 2, THREAD + 8);
            m.call("irq_thread", 0, 7, THREAD + 8);
            m.call("irq_forced_thread_fn", 0, 5, THREAD - 0x100);
            m.call("__local_bh_enable_ip", 0, 3, THREAD - 0x200);
            m.call("handle_softirqs.constprop.0", 0, 3, THREAD - 0x300);
            m.call("net_rx_action", 0, 2, THREAD - 0x400);
            if sleeps {
                m.call("__netif_receive_skb_core", 0, 3, THREAD - 0x500);
                switch(m, THREAD - 0x508, OWN);
                m.ret("schedule", 12, 2, OWN + 8);
                m.call("entry_SYSCALL_64", 0, 4, OWN + 8);
                switch(m, OWN, THREAD - 0x508);
                m.ret("schedule", 12, 2, THREAD - 0x500);
                m.ret("__netif_receive_skb_core", 12, 1, THREAD - 0x400);
            } else {
                m.ret("__netif_receive_skb_core", 0, 4, THREAD - 0x400);
            }
            m.ret("net_rx_action", 32, 2, THREAD - 0x300);
            m.ret("handle_softirqs.constprop.0", 32, 2, THREAD - 0x200);
            m.ret("__local_bh_enable_ip", 16, 1, THREAD - 0x100);
            m.ret("irq_forced_thread_fn", 32, 2, THREAD + 8);
            m.call("irq_thread", 32, 1, THREAD + 8);
            switch(m, THREAD, OWN);
            m.ret("schedule", 12, 2, OWN + 8);
            m.jump("entry_SYSCALL_64", 16, 3);
        });
        machine.check_sums(&window);
        assert_eq!(machine.losses(), Losses::default());
        let cost_lines = machine.cost_lines(&window);
        let run = "handle_softirqs.constprop.0";
        for line in [
            "other other-task, irq_thread, 1, 8".to_string(),
            "rx other-task, irq_thread > irq_forced_thread_fn, 1, 7".to_string(),
            "rx other-task, irq_thread > irq_forced_thread_fn > __local_bh_enable_ip, 1, 4".into(),
            format!("rx softirq:NET_RX, {run}, 1, 5"),
            format!("rx softirq:NET_RX, {run} > net_rx_action, 1, 4"),
            format!("rx softirq:NET_RX, {run} > net_rx_action > __netif_receive_skb_core, 1, 4"),
        ] {
            assert!(cost_lines.contains(&line), "no `{line}` in {cost_lines:#?}");
        }
    }
}
