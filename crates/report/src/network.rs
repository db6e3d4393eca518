//! The network's total share of a profile: below calls on sockets, and in the softirqs that send and
//! receive.

use std::collections::HashMap;

use netplumb_model::class::{Context, Proto, Softirq};
use netplumb_model::recording::Recording;

use crate::analysis::ClassView;

/// Functions that programs' calls on sockets begin with (net/socket.c), and the functions that read,
/// write, poll and close sockets as files.
const SOCKET_CALLS: &[&str] = &[
    "__sys_accept4",
    "__sys_bind",
    "__sys_connect",
    "__sys_getsockopt",
    "__sys_listen",
    "__sys_recvfrom",
    "__sys_recvmmsg",
    "__sys_recvmsg",
    "__sys_sendmmsg",
    "__sys_sendmsg",
    "__sys_sendto",
    "__sys_setsockopt",
    "__sys_shutdown",
    "__sys_socket",
    "__sock_sendmsg",
    "sock_close",
    "sock_ioctl",
    "sock_poll",
    "sock_read_iter",
    "sock_recvmsg",
    "sock_sendmsg",
    "sock_splice_eof",
    "sock_splice_read",
    "sock_write_iter",
];
/// The same by the name of the system call, on any architecture: `__x64_sys_sendto`.
const SYSTEM_CALLS: &[&str] = &[
    "accept",
    "accept4",
    "bind",
    "connect",
    "getsockopt",
    "listen",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "socket",
    "socketcall",
];
const ARCHITECTURES: &[&str] = &["__x64_sys_", "__arm64_sys_", "__ia32_sys_"];

/// The network's part of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// Below calls on sockets, and not in a softirq.
    pub(crate) calls: u64,
    /// In the softirqs NET_RX and NET_TX, whatever they interrupted.
    pub(crate) softirqs: u64,
}

impl Network {
    /// The network's part of a profile; none for any other recording, for costs that were not sampled, and
    /// without any.
    pub(crate) fn from_class(class: &ClassView<'_>) -> Option<Network> {
        let recording = class.recording;
        if class.class.proto != Proto::Work || !class.is_sampled() {
            return None;
        }
        let number = recording.quantities.iter().position(|q| *q == class.quantity)? as u32;
        let is_of = |block: u32| class.blocks.contains(&block);
        let mut of = Network { calls: 0, softirqs: 0 };
        let below = below_calls(recording);
        let costs = recording.costs.iter().filter(|cost| {
            cost.quantity == number && cost.direction == class.class.direction && is_of(cost.block)
        });
        for cost in costs {
            let sum = match cost.context {
                Context::Softirq(Softirq::NetRx | Softirq::NetTx) => &mut of.softirqs,
                _ if below.get(&cost.node).copied().unwrap_or_default() => &mut of.calls,
                _ => continue,
            };
            *sum = sum.saturating_add(cost.own);
        }
        (of.all() > 0).then_some(of)
    }

    /// All of it.
    pub(crate) fn all(&self) -> u64 {
        self.calls.saturating_add(self.softirqs)
    }

    /// The line of a report.
    pub(crate) fn shares_text(&self, class: &ClassView<'_>) -> String {
        let share = |sum: u64| 100.0 * sum as f64 / class.total.max(1) as f64;
        format!(
            "network in all {}, {:.1}%: below calls on sockets {:.1}%, in softirqs NET_RX and NET_TX {:.1}%",
            class.with_unit(self.all()),
            share(self.all()),
            share(self.calls),
            share(self.softirqs)
        )
    }
}

/// Whether nodes are below a call on a socket, or one themselves.
fn below_calls(recording: &Recording) -> HashMap<u32, bool> {
    let functions: Vec<bool> = recording.functions.iter().map(|f| is_call(&f.name)).collect();
    let mut below = HashMap::with_capacity(recording.nodes.len());
    // A parent comes before its children.
    for (id, node) in (0..).zip(&recording.nodes) {
        let above = node.parent.and_then(|parent| below.get(&parent)).copied();
        let own = functions.get(node.function as usize).copied();
        below.insert(id, above.unwrap_or_default() || own.unwrap_or_default());
    }
    below
}

fn is_call(name: &str) -> bool {
    let of_arch = ARCHITECTURES.iter().find_map(|arch| name.strip_prefix(arch));
    match of_arch {
        Some(call) => SYSTEM_CALLS.contains(&call),
        None => SOCKET_CALLS.contains(&name),
    }
}
