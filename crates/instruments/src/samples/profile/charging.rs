//! What samples of a window are charged to.

use std::collections::HashMap;

use netplumb_model::class::{Context, Direction};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{EVENT_MODULE, THREAD_MODULE};
use netplumb_model::samples::Sample;
use netplumb_model::timing::{Costs, Met};

use super::super::UNKNOWN;
use super::super::arrived::{Place, Who};
use super::super::layout::{Known, REASON_BLOCKED, REASON_IO, REASON_PREEMPTED, REASON_SLEEP};
use super::super::tree::{Functions, Sum, Tree, nameless};
use super::lines::Leaves;
use super::stacks::{Moments, Places, StackPlace, Stacks};
use super::user::UserFrames;

/// What names of functions begin with that run programs at a tracepoint or a function.
const TRACEPOINTS: &[&str] = &[
    "bpf_prog_",
    "bpf_trampoline_",
    "bpf_trace_run",
    "__bpf_trace_",
    "__traceiter_",
    "perf_trace_",
    "perf_syscall_",
    "trace_call_bpf",
];

/// Charges samples to their places.
#[derive(Debug, Default)]
pub(super) struct Charging {
    tree: Tree,
    /// Samples of each stack, by its hash; without time, CPU and thread.
    charged: HashMap<u64, Sample>,
    /// Unwound samples, by their time too.
    unwound: HashMap<(u64, u64), Sample>,
    /// Where samples of user code were.
    pub(super) leaves: Leaves,
    kernel_ns: u64,
    user_ns: u64,
    pub(super) taken: u64,
    pub(super) idle: u64,
    pub(super) user_stacks: u64,
    pub(super) cut: u64,
    pub(super) copied: u64,
    pub(super) stackless: u64,
    pub(super) unknown: u64,
}

impl Charging {
    /// Charge samples of a stack, some of them with a user stack that was unwound.
    pub(super) fn add(
        &mut self,
        found: &StackPlace,
        known: &Known,
        unwound: &HashMap<UserFrames, Moments>,
        functions: &mut Functions,
    ) {
        let (place, stack, context) = (&found.place, &found.kernel, found.context);
        let (own, own_cut) = &found.user;
        if place.who == Who::Idle && context == Context::Task {
            self.idle += known.count;
            return;
        }
        self.taken += known.count;
        match place.user {
            true => self.user_ns += known.ns,
            false => self.kernel_ns += known.ns,
        }
        let root = functions.number(root(place));
        let mut left = known.count;
        let mut charge = |user: &[u32], cut: bool, places: &Places, samples: u64, ns: u64| {
            if let Some(function) = user.first().filter(|_| place.user) {
                self.leaves.add(*function, places, samples, ns);
            }
            if !user.is_empty() {
                self.user_stacks += samples;
                self.cut += if cut { samples } else { 0 };
            }
            let mut node = self.tree.node(None, root);
            for function in user.iter().rev().chain(stack.iter().rev()) {
                node = self.tree.node(Some(node), *function);
            }
            if stack.is_empty() && user.is_empty() {
                self.stackless += samples;
                let function = functions.number(nameless(UNKNOWN));
                node = self.tree.node(Some(node), function);
            }
            let sum = Sum { samples, ns };
            self.tree.charge((Direction::Run, context, node), sum);
            node
        };
        let weight = known.ns / known.count;
        let single = |node| Sample {
            time_ns: 0,
            weight,
            node,
            thread: 0,
            cpu: 0,
            direction: Direction::Run,
            context,
        };
        let alike = known.ns == weight * known.count;
        let (mut left_ns, mut one) = (known.ns, None);
        for ((user, cut), moments) in unwound {
            // As maps are switched, a sample may be counted on the other side than its time is.
            let samples = (moments.times_ns.len() as u64).min(left);
            if samples == 0 {
                continue;
            }
            // The last takes what division leaves.
            let ns = match samples == left {
                true => left_ns,
                false => weight * samples,
            };
            self.copied += samples;
            let node = charge(user, *cut, &moments.places, samples, ns);
            let times = moments.times_ns.iter().filter(|_| alike);
            (self.unwound).extend(times.map(|time| ((place.hash, *time), single(node))));
            one = Some(node);
            left -= samples;
            left_ns -= ns;
        }
        if left > 0 {
            let alone = Places::from([(found.leaf(), left)]);
            one = Some(charge(own, *own_cut, &alone, left, left_ns));
        }
        // Also of one whose copy came too late for this window.
        if let Some(node) = one.filter(|_| alike) {
            self.charged.insert(place.hash, single(node));
        }
    }

    /// A sample of a stack at a time, without thread and CPU, if its node is known.
    pub(super) fn sample(&self, hash: u64, time_ns: u64) -> Option<Sample> {
        let unwound = self.unwound.get(&(hash, time_ns));
        unwound.or_else(|| self.charged.get(&hash)).copied()
    }

    /// Charge waits of a stack, to their reason and their waker. Its user code is as it was
    /// unwound, or else as frame pointers have it.
    pub(super) fn add_wait(
        &mut self,
        stacks: &mut Stacks,
        (stack, waker, reason): (u64, u64, u32),
        unwound: Option<&UserFrames>,
        (samples, ns): (u64, u64),
    ) {
        let waker = stacks.get(waker).map(|found| match found.context {
            Context::Task | Context::OtherTask => found.place.name.clone(),
            other => other.to_string(),
        });
        let reason = match reason as usize {
            REASON_PREEMPTED => "[preempted]",
            REASON_SLEEP => "[sleep]",
            REASON_IO => "[I/O]",
            REASON_BLOCKED => "[blocked]",
            _ => UNKNOWN,
        };
        let leaves = std::iter::once(reason.to_string())
            .chain(waker.map(|waker| format!("[woken by {waker}]")));
        self.add_time(stacks, (stack, unwound), leaves, (samples, ns));
    }

    /// Charge time to a stack that was taken at an event, and to what is below it.
    pub(super) fn add_time(
        &mut self,
        stacks: &mut Stacks,
        (stack, unwound): (u64, Option<&UserFrames>),
        leaves: impl Iterator<Item = String>,
        sums: (u64, u64),
    ) {
        self.add_below(None, stacks, (stack, unwound), leaves, sums);
    }

    /// Charge what happened to the stack that it happened on, below the event if it is named.
    pub(super) fn add_event(
        &mut self,
        stacks: &mut Stacks,
        event: Option<&str>,
        stack: u64,
        sums: (u64, u64),
    ) {
        let above = event.map(|name| Met {
            name: name.into(),
            module: Some(EVENT_MODULE.into()),
            ..Met::default()
        });
        self.add_below(above, stacks, (stack, None), std::iter::empty(), sums);
    }

    fn add_below(
        &mut self,
        above: Option<Met>,
        stacks: &mut Stacks,
        (stack, unwound): (u64, Option<&UserFrames>),
        leaves: impl Iterator<Item = String>,
        (samples, ns): (u64, u64),
    ) {
        let (all, functions) = stacks.parts();
        let Some(found) = all.get(&stack) else {
            self.unknown += samples;
            return;
        };
        self.kernel_ns += ns;
        let above = above.map(|above| functions.number(above));
        let above = above.map(|above| self.tree.node(None, above));
        let root = functions.number(root(&found.place));
        let mut node = self.tree.node(above, root);
        let (user, _) = unwound.unwrap_or(&found.user);
        let of_kernel = without_tracepoint(functions, &found.kernel);
        for function in user.iter().rev().chain(of_kernel.iter().rev()) {
            node = self.tree.node(Some(node), *function);
        }
        for leaf in leaves {
            node = self.tree.node(Some(node), functions.number(nameless(&leaf)));
        }
        let sum = Sum { samples, ns };
        let to = (Direction::Run, Context::Task, node);
        self.tree.charge(to, sum);
    }

    pub(super) fn costs(self, functions: &Functions, quantity: &Declared) -> Costs {
        let sums = (self.kernel_ns, self.user_ns);
        self.tree.costs(functions, quantity, sums)
    }
}

/// What stands for a thread: its name.
fn root(place: &Place) -> Met {
    Met {
        name: match (place.name.as_str(), place.who) {
            ("", Who::Idle) => "[idle]".into(),
            // Threads are distinguished only where somebody asks for them.
            ("", Who::Foreign) => "[all threads]".into(),
            ("", Who::Process(_)) => "[no name]".into(),
            (name, _) => name.into(),
        },
        module: Some(THREAD_MODULE.into()),
        user: true,
        ..Met::default()
    }
}

/// The frames of a stack that was taken at a tracepoint, without the tracepoint's own.
fn without_tracepoint<'a>(functions: &Functions, stack: &'a [u32]) -> &'a [u32] {
    let of_tracepoint = |at: &u32| {
        let name = functions.name(*at);
        TRACEPOINTS.iter().any(|begins| name.starts_with(begins))
    };
    let first = stack.iter().position(|at| !of_tracepoint(at));
    &stack[first.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the idle task is called idle, of those without a name.
    #[test]
    fn threads() {
        let named = |name: &str, who| {
            let place = Place {
                hash: 1,
                time_ns: 0,
                who,
                name: name.into(),
                user: false,
                kernel: Vec::new(),
                frames: Vec::new(),
            };
            root(&place).name
        };
        assert_eq!(named("cat", Who::Process(7)), "cat");
        assert_eq!(named("swapper", Who::Idle), "swapper");
        assert_eq!(named("", Who::Idle), "[idle]");
        assert_eq!(named("", Who::Foreign), "[all threads]");
        assert_eq!(named("", Who::Process(7)), "[no name]");
    }
}
