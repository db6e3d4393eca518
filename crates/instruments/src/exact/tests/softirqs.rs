//! Softirqs and interrupts: to which packet their work is charged.

use netplumb_model::class::Direction;

use super::super::Mark;
use super::machine::{Machine, symbols};
use super::{costs, in_window, sending};

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
        &["rx softirq:NET_RX, handle_softirqs, 1, 6", "rx, N, 1, 5", "rx, P, 1, 6"],
    );
}

/// Check that two packets of different kinds in one run each get their own work, and
/// that the poll's goes to the packet that follows, or to the last.
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

/// Check that an echo is distinguished from a packet received, and an acknowledgement from a segment
/// that carries data too; where header prediction fails, what would queue data looks at both.
#[test]
fn kinds_of_packets() {
    in_softirqs(
        |m| {
            napi(m, |m| {
                packet(m, &["icmp_echo"]);
                packet(m, &["tcp_ack"]);
                packet(m, &["tcp_ack", "tcp_data_queue"]);
                packet(m, &["tcp_ack", "tcp_queue_rcv"]);
            });
        },
        &[
            "echo softirq:NET_RX, handle_softirqs, 1, 6",
            "echo, N, 1, 3",
            "echo, P, 1, 7",
            "echo, P > icmp_echo, 1, 10",
            "ack, N, 0, 2",
            "ack, P, 2, 15",
            "ack, P > tcp_ack, 2, 20",
            "ack, P > tcp_data_queue, 1, 10",
            "rx, N, 0, 3",
            "rx, P, 1, 8",
            "rx, P > tcp_ack, 1, 10",
            "rx, P > tcp_queue_rcv, 1, 10",
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

/// Check that what hands a transfer to the wire is not a packet's work, in a sender's system
/// call and in a router's softirq.
#[test]
fn wire() {
    sending(
        |m| {
            m.call("udp_sendmsg", 0, 3, 0xe00);
            m.ret("vhci_urb_enqueue", 0, 10, 0xe00);
            m.ret("udp_sendmsg", 12, 1, 0xf00);
        },
        &[
            "tx task, entry_SYSCALL_64 > udp_sendmsg, 1, 4",
            "other task, entry_SYSCALL_64 > udp_sendmsg > vhci_urb_enqueue, 1, 10",
        ],
    );
    in_softirqs(
        |m| napi(m, |m| packet(m, &["ip_forward", "vhci_urb_enqueue"])),
        &[
            "forward softirq:NET_RX, handle_softirqs, 1, 6",
            "forward, N, 1, 5",
            "forward, P, 1, 8",
            "forward, P > ip_forward, 1, 10",
            "other, P > vhci_urb_enqueue, 1, 10",
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

/// A poll for packets received and sent, in which these run one after the other.
fn poll(m: &mut Machine<'_>, below: &[&str]) {
    m.call_only("net_rx_action", PACKET_SP);
    if !below.is_empty() {
        m.jump("usbnet_bh", 0, 3);
    }
    for (n, name) in below.iter().enumerate() {
        if n > 0 {
            m.jump("usbnet_bh", 16, 1);
        }
        m.call_only("usbnet_bh", BELOW_SP);
        m.ret(name, 0, 10, BELOW_SP);
    }
    m.ret("usbnet_bh", 32, 2, PACKET_SP);
}

/// Check that a poll for packets received and sent is the sender's if it receives nothing, the
/// receiver's if it does and hands that on, even if no packet is handled in it, and that what it
/// takes apart and doesn't hand on is dropped.
#[test]
fn poll_for_both() {
    in_softirqs(
        |m| napi(m, |m| poll(m, &[])),
        &["tx softirq:NET_RX, handle_softirqs, 1, 6", "tx, N, 1, 5", "tx, N > usbnet_bh, 1, 2"],
    );
    in_softirqs(
        |m| napi(m, |m| poll(m, &["smsc95xx_rx_fixup"])),
        &[
            "drop softirq:NET_RX, handle_softirqs, 1, 6",
            "drop, N, 1, 5",
            "drop, N > usbnet_bh, 1, 6",
            "drop, N > usbnet_bh > smsc95xx_rx_fixup, 1, 10",
        ],
    );
    in_softirqs(
        |m| napi(m, |m| poll(m, &["smsc95xx_rx_fixup", "netif_rx_internal"])),
        &[
            "rx softirq:NET_RX, handle_softirqs, 1, 6",
            "rx, N, 1, 5",
            "rx, N > usbnet_bh, 1, 8",
            "rx, N > usbnet_bh > smsc95xx_rx_fixup, 1, 10",
            "rx, N > usbnet_bh > netif_rx_internal, 1, 10",
        ],
    );
}

/// Check that the completion of a transfer in a task is charged as the next poll is, and to the
/// receiver without one; and that the completion of a transmission is the sender's there, too.
#[test]
fn completions_in_a_task() {
    let complete = |m: &mut Machine<'_>, name: &str| {
        m.call("schedule", 0, 3, 0x3f00);
        m.ret(name, 0, 10, 0x3f00);
        m.jump("schedule", 16, 1);
    };
    let of_completion = |run: &dyn Fn(&mut Machine<'_>), expected: &str| {
        let symbols = symbols();
        let (machine, window) = in_window(&symbols, |m| run(m));
        let cost_lines = machine.cost_lines(&window);
        let found: Vec<&String> = cost_lines.iter().filter(|t| t.contains("_complete")).collect();
        assert_eq!(found, [expected]);
    };
    of_completion(
        &|m| {
            complete(m, "rx_complete");
            m.call("schedule", 20, 2, 0x3e00);
            softirq_run(m, 0x3e00, |m| {
                napi(m, |m| poll(m, &["smsc95xx_rx_fixup"]));
            });
        },
        "drop task, schedule > rx_complete, 1, 10",
    );
    of_completion(
        &|m| {
            complete(m, "rx_complete");
            m.call("schedule", 20, 2, 0x3e00);
            softirq_run(m, 0x3e00, |m| {
                napi(m, |m| packet(m, &["ip_forward"]));
            });
        },
        "rx task, schedule > rx_complete, 1, 10",
    );
    of_completion(&|m| complete(m, "tx_complete"), "tx task, schedule > tx_complete, 1, 10");
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

/// Check that a run without packets' vectors is charged to no packet.
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
        |m| interrupt(m, "asm_common_interrupt", |m| napi(m, |m| packet(m, &["ip_forward"]))),
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

/// Check that the timer's interrupt is charged to no packet, even if packets are
/// handled at its end, in the middle of another one.
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

/// Check that marked system calls and packets belong to the phase that they are in, that forwarding remains that, and that
/// packets are packets again after it.
#[test]
fn phases_of_a_connection() {
    let call = |m: &mut Machine<'_>, packets: &[&str]| {
        m.mark(Mark::TxBegin);
        m.jump("entry_SYSCALL_64", 0, 4);
        m.call("entry_SYSCALL_64", 16, 1, 0xf00);
        softirqs(m, |m| {
            napi(m, |m| {
                for name in packets {
                    packet(m, &[name]);
                }
            });
        });
        m.jump("entry_SYSCALL_64", 20, 3);
        m.user();
        m.mark(Mark::TxEnd);
    };
    let symbols = symbols();
    let (machine, window) = in_window(&symbols, |m| {
        m.mark(Mark::Phase(Some(Direction::Connect)));
        call(m, &["ip_forward", "tcp_ack"]);
        m.mark(Mark::Phase(None));
        call(m, &["tcp_ack"]);
    });
    let lines = machine.cost_lines(&window);
    let of = |begins: &str| lines.iter().filter(|line| line.starts_with(begins)).count();
    assert!(of("connect task") > 0 && of("connect softirq:NET_RX") > 0, "{lines:?}");
    assert!(of("forward softirq:NET_RX") > 0, "{lines:?}");
    assert!(of("tx task") > 0 && of("ack softirq:NET_RX") > 0, "{lines:?}");
    let forwarded = lines.iter().filter(|line| line.contains("ip_forward"));
    assert!(forwarded.clone().count() > 0 && forwarded.clone().all(|l| l.starts_with("forward")));
}
