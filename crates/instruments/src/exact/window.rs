//! The window of a block: what it costs while it is open.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::NodeId;
use rustc_hash::FxHashMap;

use super::sample::Drawn;
use super::trace::TracedCalls;

/// One cost: whose, of what, how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedCost {
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The function, and how it was reached.
    pub node: NodeId,
    /// Times entered.
    pub calls: u64,
    /// Instructions.
    pub insns: u64,
}

/// Runs of a block of a command's own code, up to the same instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RanCode {
    /// The block: see [`super::Accountant::user_code`].
    pub block: u32,
    /// Instructions that ran each time. More than it has are repetitions of its last.
    pub insns: u32,
    /// How often.
    pub times: u64,
}

/// Samples of one function, reached in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledCost {
    /// What was done with the packet.
    pub direction: Direction,
    /// Whose time it was.
    pub context: Context,
    /// The function, and how it was reached.
    pub node: NodeId,
    /// Samples that fell there.
    pub fell: u64,
    /// Samples that a timer would have taken there.
    pub deferred: u64,
}

/// The samples of one seed in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sampled {
    /// In order of direction, context and node.
    pub costs: Vec<SampledCost>,
    /// Samples in user mode whose code is not counted: those that waited until then.
    pub user: InUserMode,
}

/// What one window held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Costs, in order of direction, context and node.
    pub costs: Vec<CountedCost>,
    /// Kernel instructions, counted apart from the costs.
    pub kernel_insns: u64,
    /// User instructions.
    pub user_insns: u64,
    /// Functions entered.
    pub entered: u64,
    /// How many of them returned.
    pub returned: u64,
    /// Of a command: blocks of its code that is in files, by number.
    pub user_code: Vec<RanCode>,
    /// Where it was sampled: by seed.
    pub sampled: Vec<Sampled>,
    /// Where it was sampled: the kernel's instructions.
    pub interrupts: BTreeMap<Direction, WithInterruptsOff>,
    /// The window's calls, where these were traced.
    pub traced: Option<TracedCalls>,
}

impl Window {
    /// The nodes that have costs or samples.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let sampled = self.sampled.iter().flat_map(|seed| &seed.costs);
        let costs = self.costs.iter().map(|cost| cost.node);
        costs.chain(sampled.map(|cost| cost.node))
    }
}

/// Instructions of the kernel, and the part with interrupts off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WithInterruptsOff {
    /// With interrupts off.
    pub off: u64,
    /// In all.
    pub all: u64,
}

/// Samples that waited until user mode.
type InUserMode = BTreeMap<(Direction, Context), u64>;

/// Samples by direction, context and node, in both views.
pub(super) type Samples = FxHashMap<(Direction, Context, NodeId), (u64, u64)>;

/// Calls and instructions, by node.
pub(super) type Slot = FxHashMap<NodeId, (u64, u64)>;

/// A cost under way: whose it is, calls and instructions.
pub(super) type Run = ((Direction, Context, NodeId), (u64, u64));

/// A window that has not closed yet.
#[derive(Debug, Default)]
pub(super) struct OpenWindow {
    pub(super) slots: FxHashMap<(Direction, Context), Slot>,
    /// The last cost added, not in its slot yet.
    pub(super) run: Option<Run>,
    pub(super) kernel_insns: u64,
    pub(super) user_insns_before: u64,
    /// User instructions of blocks in the stream.
    pub(super) user_insns: u64,
    pub(super) entered: u64,
    pub(super) returned: u64,
    /// By seed: samples, and samples in user mode.
    pub(super) samples: Vec<(Samples, InUserMode)>,
    pub(super) interrupts: BTreeMap<Direction, WithInterruptsOff>,
}

impl OpenWindow {
    /// Add samples of a node.
    pub(super) fn sample(
        &mut self,
        direction: Direction,
        context: Context,
        node: NodeId,
        drawn: &Drawn,
    ) {
        if let Some((samples, _)) = self.samples.get_mut(usize::from(drawn.by)) {
            let sum = samples.entry((direction, context, node)).or_default();
            sum.0 += u64::from(drawn.fell);
            sum.1 += u64::from(drawn.deferred);
        }
    }

    /// Add samples in user mode.
    pub(super) fn sample_user(&mut self, direction: Direction, context: Context, drawn: &Drawn) {
        if let Some((_, user)) = self.samples.get_mut(usize::from(drawn.by)) {
            *user.entry((direction, context)).or_default() += u64::from(drawn.deferred);
        }
    }

    /// Add instructions of the kernel, and how many of them ran with interrupts off.
    pub(super) fn add_off(&mut self, direction: Direction, off: u32, all: u32) {
        let sum = self.interrupts.entry(direction).or_default();
        sum.off += u64::from(off);
        sum.all += u64::from(all);
    }

    /// Add to the cost of a node.
    pub(super) fn add(
        &mut self,
        direction: Direction,
        context: Context,
        node: NodeId,
        calls: u32,
        insns: u32,
    ) {
        // Blocks of one function follow each other: look its cost up once for all.
        let key = (direction, context, node);
        match &mut self.run {
            Some((same, cost)) if *same == key => {
                cost.0 += u64::from(calls);
                cost.1 += u64::from(insns);
            }
            _ => {
                self.settle();
                self.run = Some((key, (u64::from(calls), u64::from(insns))));
            }
        }
    }

    fn settle(&mut self) {
        let Some(((direction, context, node), (calls, insns))) = self.run.take() else {
            return;
        };
        let cost = self.slots.entry((direction, context)).or_default().entry(node).or_default();
        cost.0 += calls;
        cost.1 += insns;
    }

    /// What it held.
    pub(super) fn close(
        mut self,
        user_insns: u64,
        user_code: Vec<RanCode>,
        traced: Option<TracedCalls>,
    ) -> Window {
        self.settle();
        let mut costs: Vec<CountedCost> = self
            .slots
            .into_iter()
            .flat_map(|((direction, context), slot)| {
                slot.into_iter().map(move |(node, (calls, insns))| CountedCost {
                    direction,
                    context,
                    node,
                    calls,
                    insns,
                })
            })
            .collect();
        costs.sort_unstable_by_key(|c| (c.direction, c.context, c.node));
        let sampled = self.samples.into_iter().map(|(samples, user)| {
            let samples = samples.into_iter();
            let mut costs: Vec<SampledCost> = samples
                .map(|((direction, context, node), (fell, deferred))| SampledCost {
                    direction,
                    context,
                    node,
                    fell,
                    deferred,
                })
                .collect();
            costs.sort_unstable_by_key(|c| (c.direction, c.context, c.node));
            Sampled { costs, user }
        });
        Window {
            costs,
            sampled: sampled.collect(),
            interrupts: self.interrupts,
            kernel_insns: self.kernel_insns,
            user_insns: user_insns.saturating_sub(self.user_insns_before),
            entered: self.entered,
            returned: self.returned,
            user_code,
            traced,
        }
    }
}
