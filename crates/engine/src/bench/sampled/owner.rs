//! Whose time a sample is: the path's, the generator's, or that of something else, by name.

use std::collections::BTreeSet;
use std::fs;

use netplumb_instruments::rates::samples::{Sampled, Who};
use netplumb_model::bench::Other;
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::symbol::base_name;
use netplumb_workload::frames;

/// Functions below which all is done for packets, whatever task they are on top of.
const PACKETS: &[&str] = &[
    "net_rx_action",
    "net_tx_action",
    "napi_threaded_poll",
    "napi_threaded_poll_loop",
];
/// How the names of functions begin that an interrupt, or a softirq other than those of
/// packets, is below.
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

/// What runs softirqs, and what those that are not packets' are called, by the function
/// that carries them out (kernel/softirq.c has the names).
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
    /// How many of its frames are of that.
    pub(super) frames: usize,
    /// The function that stands for it if it is none of the bench's.
    pub(super) other: Option<String>,
}

/// Whose tasks are whose.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// This process.
    own: u32,
    /// What its threads are called that neither send nor handle packets.
    bystanders: BTreeSet<String>,
    /// Processes that it has started.
    started: BTreeSet<u32>,
}

impl Tasks {
    pub(super) fn now() -> Tasks {
        let own = std::process::id();
        let name = |path: &str| fs::read_to_string(path).ok();
        let bystanders = ["/proc/self/comm", "/proc/thread-self/comm"];
        let mut started = BTreeSet::new();
        let mut left = vec![own];
        while let Some(pid) = left.pop() {
            for task in fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
            {
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
        }
    }

    /// What a sample was of, and how many of its frames are of that; none if of nothing.
    pub(super) fn owner(&self, sampled: &Sampled, names: &[&str]) -> Option<Owner> {
        let owner = |direction, context, frames| Owner {
            direction,
            context,
            frames,
            other: None,
        };
        let outermost = names
            .iter()
            .rposition(|name| PACKETS.contains(&base_name(name)));
        if let Some(at) = outermost {
            let context = Context::Softirq(Softirq::NetRx);
            return Some(owner(Direction::Rx, context, at + 1));
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
        Some(match sampled.who {
            Who::Idle => return None,
            Who::Process(pid) if pid == self.own => match sampled.name.as_str() {
                name if name.starts_with(frames::THREAD) => {
                    owner(Direction::Tx, Context::Task, all)
                }
                name if self.bystanders.contains(name) => other(),
                _ => owner(Direction::Rx, Context::Task, all),
            },
            Who::Process(pid) if self.started.contains(&pid) => {
                owner(Direction::Rx, Context::Task, all)
            }
            Who::Process(_) | Who::Foreign => other(),
        })
    }
}

/// Which interrupt or softirq, other than those of packets, a stack is of, if it is of one.
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

    fn sampled(who: Who, name: &str) -> Sampled {
        Sampled {
            who,
            name: name.into(),
            user: false,
            stack: Vec::new(),
            samples: 1,
        }
    }

    /// Check whose a sample is: what softirqs do for packets is the path's on top of any
    /// task, and without what is above it.
    #[test]
    fn owners() {
        let tasks = Tasks {
            own: 10,
            bystanders: ["plumb".to_string()].into(),
            started: [11].into(),
        };
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
            (
                sampled(Who::Process(11), "lcore-worker-1"),
                &["packet_recvmsg"],
                Some((path, 1)),
            ),
            (
                sampled(Who::Process(12), "frames-1"),
                &["schedule"],
                Some((Direction::Other, 1)),
            ),
            (sampled(Who::Foreign, "x"), &[], Some((Direction::Other, 0))),
            (sampled(Who::Idle, ""), &["default_idle"], None),
        ] {
            let found = tasks.owner(&sample, names);
            let found = found.map(|owner| (owner.direction, owner.frames));
            assert_eq!(found, wanted, "{sample:?} {names:?}");
        }
    }

    /// Check that what is none of the bench's has a name: the task, the softirq, or the
    /// interrupt.
    #[test]
    fn others_have_names() {
        let tasks = Tasks {
            own: 10,
            bystanders: ["plumb".to_string()].into(),
            started: [11].into(),
        };
        let idle = || sampled(Who::Idle, "swapper/0");
        for (sample, names, wanted) in [
            (
                sampled(Who::Process(77), "cc1"),
                &["do_syscall_64"][..],
                Some("task cc1"),
            ),
            (sampled(Who::Foreign, "rustc"), &[], Some("task rustc")),
            (sampled(Who::Process(10), "plumb"), &[], Some("task plumb")),
            (
                idle(),
                &[
                    "call_timer_fn",
                    "run_timer_softirq",
                    "handle_softirqs.isra.0",
                    "irq_exit_rcu",
                ],
                Some("softirq timer"),
            ),
            (
                idle(),
                &[
                    "rcu_core",
                    "rcu_core_si",
                    "__do_softirq",
                    "asm_sysvec_apic_timer_interrupt",
                ],
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
                &[
                    "x",
                    "sysvec_call_function_single",
                    "asm_sysvec_call_function_single",
                ],
                Some("interrupt call_function_single"),
            ),
            (idle(), &["x", "common_interrupt"], Some("interrupt")),
            (sampled(Who::Process(11), "dpdk"), &["recv"], None),
        ] {
            let owner = tasks.owner(&sample, names).unwrap();
            let other = owner.other.as_deref();
            assert_eq!(other.and_then(Other::of), wanted, "{sample:?} {names:?}");
            assert_eq!(owner.direction == Direction::Other, wanted.is_some());
        }
    }
}
