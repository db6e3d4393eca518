//! Whose time a sample is: a packet's, sent or received, or something else's, by name.

use std::collections::BTreeSet;
use std::fs;

use netplumb_kernel::path_rules::PathRules;
use netplumb_model::bench::Other;
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::symbol::base_name;
use netplumb_model::timing::Roles;

use super::arrived::{Place, Who};

/// Functions below which all work is for packets, on top of whatever task.
const PACKETS: &[&str] =
    &["net_rx_action", "net_tx_action", "napi_threaded_poll", "napi_threaded_poll_loop"];
/// What names of functions begin with that run an interrupt, or a softirq other than
/// packets'.
const INTERRUPTS: &[&str] = &[
    "handle_softirqs",
    "__do_softirq",
    "irq_exit",
    "__irq_exit",
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
];

/// Functions that run softirqs, and names of softirqs other than packets', by the
/// function that carries them out (kernel/softirq.c has the names).
const SOFTIRQS_RUN_BY: &[&str] = &["handle_softirqs", "__do_softirq"];
const SOFTIRQS: &[(&str, &str)] = &[
    ("run_timer_softirq", "timer"),
    ("hrtimer_run_softirq", "hrtimer"),
    ("rcu_core", "rcu"),
    ("run_rebalance_domains", "sched"),
    ("sched_balance_softirq", "sched"),
    ("tasklet_", "tasklet"),
    ("blk_done_softirq", "block"),
    ("irq_poll_softirq", "irq_poll"),
];

/// Whose a sample is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) direction: Direction,
    pub(super) context: Context,
    /// How many of its frames belong to that.
    pub(super) frames: usize,
    /// The function that stands for it if it is not a packet's.
    pub(super) other: Option<String>,
}

/// Whose a task is: this process's, of one that it started, or another's.
#[derive(Debug)]
pub(super) struct Tasks {
    /// This process.
    own: u32,
    /// Names of its threads that neither send nor handle packets.
    bystanders: BTreeSet<String>,
    /// Processes that it has started.
    started: BTreeSet<u32>,
    /// How to know whether they send or receive.
    roles: Roles,
    rules: PathRules,
}

impl Tasks {
    pub(super) fn now(roles: &Roles, rules: &PathRules) -> Tasks {
        let own = std::process::id();
        let name = |path: &str| fs::read_to_string(path).ok();
        let bystanders = ["/proc/self/comm", "/proc/thread-self/comm"];
        let mut started = BTreeSet::new();
        let mut left = vec![own];
        while let Some(pid) = left.pop() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten() {
                let children = task.map(|t| t.path().join("children"));
                let text = children.and_then(fs::read_to_string).unwrap_or_default();
                let children = text.split_whitespace().filter_map(|n| n.parse().ok());
                left.extend(children.filter(|child| started.insert(*child)));
            }
        }
        Tasks {
            own,
            bystanders: (bystanders.iter().filter_map(|path| name(path)))
                .map(|name| name.trim_end().to_string())
                .collect(),
            started,
            roles: roles.clone(),
            rules: rules.clone(),
        }
    }

    /// The owner of a sample, with the number of frames that belong to it; `None` if it has no owner.
    pub(super) fn owner(&self, sampled: &Place, names: &[&str]) -> Option<Owner> {
        let owner = |direction, context, frames| Owner { direction, context, frames, other: None };
        let outermost = names.iter().rposition(|name| PACKETS.contains(&base_name(name)));
        if let Some(at) = outermost {
            let (direction, vector) = match &self.roles {
                Roles::Threads(_) => (Direction::Rx, Softirq::NetRx),
                Roles::Calls => self.softirq(&names[..=at]),
            };
            return Some(owner(direction, Context::Softirq(vector), at + 1));
        }
        let all = names.len();
        if let Some(what) = interrupt(names) {
            return Some(Owner {
                other: Some(what),
                ..owner(Direction::Other, Context::Hardirq, all)
            });
        }
        let other = || Owner {
            other: Some(Other::Task(&sampled.name).function()),
            ..owner(Direction::Other, Context::OtherTask, all)
        };
        let is_own = |pid| pid == self.own;
        Some(match (sampled.who, &self.roles) {
            (Who::Idle, _) => return None,
            (Who::Process(pid), Roles::Threads(senders)) if is_own(pid) => {
                match sampled.name.as_str() {
                    name if name.starts_with(senders) => owner(Direction::Tx, Context::Task, all),
                    name if self.bystanders.contains(name) => other(),
                    _ => owner(Direction::Rx, Context::Task, all),
                }
            }
            (Who::Process(pid), Roles::Threads(_)) if self.started.contains(&pid) => {
                owner(Direction::Rx, Context::Task, all)
            }
            (Who::Process(pid), Roles::Calls) if is_own(pid) || self.started.contains(&pid) => {
                let call = names.iter().rev().find_map(|name| self.rules.call(name));
                match call {
                    Some(direction) => owner(direction, Context::Task, all),
                    // Its own code, between its calls.
                    None if sampled.user => owner(Direction::Rx, Context::Task, all),
                    None => other(),
                }
            }
            (Who::Process(_) | Who::Foreign, _) => other(),
        })
    }

    /// What a softirq was doing, by the functions that it was in: receiving, if nothing
    /// shows more.
    fn softirq(&self, names: &[&str]) -> (Direction, Softirq) {
        let sends = |name: &&&str| base_name(name) == "net_tx_action";
        if names.last().as_ref().is_some_and(sends) {
            return (Direction::Tx, Softirq::NetTx);
        }
        let roles = names.iter().map(|name| self.rules.role(name));
        let (mut reached, mut completes) = (0, false);
        for role in roles {
            reached |= role.reaches;
            completes |= role.completion;
        }
        let direction = match self.rules.direction(reached) {
            _ if completes => Direction::Tx,
            // Data come with an acknowledgement: a stack does not show whether there were any.
            Direction::Ack => Direction::Rx,
            direction => direction,
        };
        (direction, Softirq::NetRx)
    }
}

/// What the CPU was executing for: by the innermost softirq or interrupt that a stack is in.
pub fn context(names: &[&str]) -> Context {
    let begins = |name: &str, all: &[&str]| all.iter().any(|begins| name.starts_with(begins));
    for (depth, name) in names.iter().enumerate() {
        if PACKETS.contains(&base_name(name)) {
            let sends = base_name(name) == "net_tx_action";
            return Context::Softirq(if sends { Softirq::NetTx } else { Softirq::NetRx });
        }
        if begins(name, SOFTIRQS_RUN_BY) {
            let called = names[..depth].iter().rev().find_map(|name| {
                let found = SOFTIRQS.iter().find(|(begins, _)| name.starts_with(begins));
                found.and_then(|(_, called)| called.to_uppercase().parse().ok())
            });
            return called.map_or(Context::Hardirq, Context::Softirq);
        }
        if begins(name, INTERRUPTS) {
            return Context::Hardirq;
        }
    }
    Context::Task
}

/// A stack's interrupt or softirq other than packets', if it has one.
fn interrupt(names: &[&str]) -> Option<String> {
    let begins = |name: &&str| INTERRUPTS.iter().any(|begins| name.starts_with(begins));
    let outermost = names.iter().rposition(begins)?;
    let runs = |name: &&str| SOFTIRQS_RUN_BY.iter().any(|run| name.starts_with(run));
    if let Some(at) = names.iter().position(runs) {
        let inside = &names[..at];
        let known = inside.iter().rev().find_map(|name| {
            let found = SOFTIRQS.iter().find(|(begins, _)| name.starts_with(begins));
            found.map(|(_, called)| *called)
        });
        return Some(Other::Softirq(known.unwrap_or_default()).function());
    }
    let name = names[outermost].trim_start_matches("asm_");
    let vector = name.strip_prefix("sysvec_").unwrap_or_default();
    let vector = vector.trim_start_matches("apic_");
    Some(Other::Interrupt(vector.trim_end_matches("_interrupt")).function())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(roles: Roles) -> Tasks {
        Tasks {
            own: 10,
            bystanders: ["plumb".to_string()].into(),
            started: [11].into(),
            roles,
            rules: PathRules::built_in(),
        }
    }

    fn frames() -> Tasks {
        tasks(Roles::Threads("frames-".into()))
    }

    fn sampled(who: Who, name: &str) -> Place {
        Place {
            who,
            name: name.into(),
            user: false,
            hash: 0,
            time_ns: 0,
            kernel: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Check whose a sample is: what softirqs do for packets is the path's on top of any
    /// task, and without what is above it.
    #[test]
    fn owners() {
        let tasks = frames();
        let own = |name| sampled(Who::Process(10), name);
        let path = Direction::Rx;
        let poll = ["veth_poll", "__napi_poll", "net_rx_action"];
        let below: Vec<&str> = (poll.iter().copied())
            .chain(["handle_softirqs", "do_softirq", "bpf_test_run_xdp_live"])
            .collect();
        let timer = ["run_timer_softirq", "handle_softirqs", "irq_exit_rcu"];
        for (sample, names, wanted) in [
            (own("frames-1"), &below[..], Some((path, 3))),
            (sampled(Who::Idle, ""), &below[..], Some((path, 3))),
            (own("frames-1"), &["xdp_do_flush"], Some((Direction::Tx, 1))),
            (own("reader-0"), &["udp_recvmsg"], Some((path, 1))),
            (own("plumb"), &["schedule"], Some((Direction::Other, 1))),
            (own("frames-1"), &timer, Some((Direction::Other, 3))),
            (sampled(Who::Process(11), "lcore-worker-1"), &["packet_recvmsg"], Some((path, 1))),
            (sampled(Who::Process(12), "frames-1"), &["schedule"], Some((Direction::Other, 1))),
            (sampled(Who::Foreign, "x"), &[], Some((Direction::Other, 0))),
            (sampled(Who::Idle, ""), &["default_idle"], None),
        ] {
            let found = tasks.owner(&sample, names);
            let found = found.map(|owner| (owner.direction, owner.frames));
            assert_eq!(found, wanted, "{sample:?} {names:?}");
        }
    }

    /// Check that where packets go through system calls, these give the direction, and in
    /// softirqs the functions that packets meet.
    #[test]
    fn calls() {
        let tasks = tasks(Roles::Calls);
        let own = || sampled(Who::Process(10), "plumb");
        let send = ["ip_output", "udp_sendmsg", "__x64_sys_sendto"];
        let receive = ["udp_recvmsg", "sock_recvmsg", "__x64_sys_recvfrom"];
        let softirq = ["veth_xmit", "ip_output", "ip_forward", "ip_rcv", "net_rx_action"];
        let below: Vec<&str> =
            ["udp_rcv", "net_rx_action", "__do_softirq"].into_iter().chain(send).collect();
        for (sample, names, wanted) in [
            (own(), &send[..], (Direction::Tx, 3)),
            (own(), &receive, (Direction::Rx, 3)),
            (own(), &softirq, (Direction::Forward, 5)),
            (own(), &below, (Direction::Rx, 2)),
            (own(), &["qdisc_run", "net_tx_action"], (Direction::Tx, 2)),
            (own(), &["free_old_xmit", "net_rx_action"], (Direction::Tx, 2)),
            (own(), &["tcp_ack", "net_rx_action"], (Direction::Rx, 2)),
            (own(), &["do_sys_poll"], (Direction::Other, 1)),
            (sampled(Who::Process(12), "curl"), &send, (Direction::Other, 3)),
        ] {
            let found = tasks.owner(&sample, names).unwrap();
            assert_eq!((found.direction, found.frames), wanted, "{names:?}");
        }
    }

    /// Check that the innermost softirq or interrupt is what the CPU was executing for.
    #[test]
    fn contexts() {
        let receive = ["ip_rcv", "__napi_poll", "net_rx_action", "handle_softirqs"];
        let timer = ["run_timer_softirq", "handle_softirqs", "irq_exit_rcu"];
        let tick = ["tick_nohz", "sysvec_apic_timer_interrupt", "handle_softirqs"];
        for (names, wanted) in [
            (&receive[..], "softirq:NET_RX"),
            (&timer, "softirq:TIMER"),
            (&tick, "hardirq"),
            (&["x", "irq_poll_softirq", "__do_softirq"], "softirq:IRQ_POLL"),
            (&["udp_sendmsg"], "task"),
            (&[], "task"),
        ] {
            assert_eq!(context(names).to_string(), wanted, "{names:?}");
        }
    }

    /// Check that work for no packet has a name: the task, the softirq, or the
    /// interrupt.
    #[test]
    fn others_have_names() {
        let tasks = frames();
        let idle = || sampled(Who::Idle, "swapper/0");
        for (sample, names, wanted) in [
            (sampled(Who::Process(77), "cc1"), &["do_syscall_64"][..], Some("task cc1")),
            (sampled(Who::Foreign, "rustc"), &[], Some("task rustc")),
            (sampled(Who::Process(10), "plumb"), &[], Some("task plumb")),
            (
                idle(),
                &["call_timer_fn", "run_timer_softirq", "handle_softirqs.isra.0", "irq_exit_rcu"],
                Some("softirq timer"),
            ),
            (
                idle(),
                &["rcu_core", "rcu_core_si", "__do_softirq", "asm_sysvec_apic_timer_interrupt"],
                Some("softirq rcu"),
            ),
            (idle(), &["x", "handle_softirqs"], Some("softirq")),
            (
                idle(),
                &["tick_sched_handle", "sysvec_apic_timer_interrupt"],
                Some("interrupt timer"),
            ),
            (
                idle(),
                &["x", "sysvec_call_function_single", "asm_sysvec_call_function_single"],
                Some("interrupt call_function_single"),
            ),
            (idle(), &["x", "common_interrupt"], Some("interrupt")),
            (sampled(Who::Process(11), "dpdk"), &["recv"], None),
        ] {
            let owner = tasks.owner(&sample, names).unwrap();
            let other = owner.other.as_deref();
            assert_eq!(other.and_then(Other::category), wanted, "{sample:?} {names:?}");
            assert_eq!(owner.direction == Direction::Other, wanted.is_some());
        }
    }
}
