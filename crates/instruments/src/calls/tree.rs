//! Calls from records of entries, returns and switches of tasks.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use netplumb_model::class::{Context, Direction};
use netplumb_model::condition::OfCall;
use netplumb_model::timing::NodeCost;
use netplumb_model::trace::{CallCounts, CallsSpec, Flags, Step, TimedCall};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kept::{Call, KeptCalls};

use super::ring::{Level, Record, What};

/// Nodes of the tree of all calls.
const MAX_NODES: usize = 1 << 20;
/// Tasks whose names are known at once.
const MAX_TASK_NAMES: usize = 1 << 16;
/// Entries of a task that are kept for what returned before them: an interrupt has fewer calls at its own
/// level, at its beginning and end.
const MAX_MARKS: usize = 64;

/// The tracer's own cost in a call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cost {
    /// Its part in the time of any function.
    pub(super) bias_ns: f64,
    /// How much longer a call takes in all.
    pub(super) call_ns: f64,
}

/// Names functions, and finds what runs in a stack of them.
pub(super) trait Names {
    /// The number of a function's name.
    fn name(&mut self, address: u64) -> u32;
    /// Whether functions with that name are traced.
    fn is_traced(&self, name: u32) -> bool;
    /// The number of a task's name.
    fn task(&mut self, task: i32, known: Option<&str>) -> u32;
    /// The context of an interrupt or softirq, by the numbers of its functions, the outermost first.
    fn context(&self, stack: &[u32], level: Level) -> Context;
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It returned.
    Returned,
    /// It had not when the window closed.
    Unfinished,
    /// It did, but the record is missing: the time is not known.
    Missed,
}

/// A function that has not returned.
#[derive(Debug, Clone)]
struct Open {
    function: u64,
    name: u32,
    depth: u32,
    level: Level,
    aside: bool,
    begin_ns: u64,
    /// When its task was last seen before.
    after_ns: u64,
    step: Option<u32>,
    node: Option<u32>,
    context: Context,
    /// Times of the calls that it made.
    below_ns: u64,
    /// Counters of its task when it was entered.
    before: Counters,
}

/// Time and calls in a task so far.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    /// Off the CPU.
    off_ns: u64,
    switches: u32,
    /// In interrupts and softirqs.
    aside_ns: f64,
    /// Calls that returned, but in these.
    calls: u64,
}

/// A task with what it has open.
#[derive(Debug, Default)]
struct Task {
    open: Vec<Open>,
    steps: Vec<Step>,
    number: u64,
    dropped: u64,
    now: Counters,
    left_ns: Option<u64>,
    /// The time of the last record.
    latest_ns: u64,
    /// The latest entries: when, and the counters before.
    marks: VecDeque<(u64, Counters)>,
}

/// The calls of a window.
#[derive(Debug, Default)]
pub(super) struct Calls {
    spec: CallsSpec,
    /// Tasks of the command, from when it began to execute its program; none if all count.
    started: Option<FxHashSet<i32>>,
    cost: Cost,
    tasks: FxHashMap<(i32, u32), Task>,
    /// Names of tasks, by their last switch or exec.
    task_names: FxHashMap<i32, String>,
    calls: KeptCalls<TimedCall>,
    /// The tree of all calls, and what they cost by context.
    nodes: Vec<(Option<u32>, u32)>,
    known: FxHashMap<(Option<u32>, u32), u32>,
    costs: BTreeMap<(u32, Context), (u64, u64)>,
    pub(super) losses: Losses,
    latest_ns: u64,
}

/// What is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Calls with a gap.
    pub(super) broken: u64,
    /// Steps of calls that had too many.
    pub(super) dropped: u64,
    /// Calls whose total is not in the distribution.
    pub(super) unranked: u64,
    /// Calls that the tree of all has no room for.
    pub(super) no_node: u64,
}

/// What a window had.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) counts: CallCounts,
    pub(super) kept: Vec<TimedCall>,
    pub(super) nodes: Vec<(Option<u32>, u32)>,
    pub(super) costs: Vec<NodeCost>,
    pub(super) losses: Losses,
}

impl Calls {
    pub(super) fn new(spec: &CallsSpec, cost: Cost) -> Calls {
        Calls {
            spec: spec.clone(),
            cost,
            started: spec.children.then(FxHashSet::default),
            ..Calls::default()
        }
    }

    /// Take records, in the order of their times.
    pub(super) fn take(&mut self, records: &[Record], names: &mut dyn Names) {
        for record in records {
            self.latest_ns = self.latest_ns.max(record.ns);
            self.record(record, names);
        }
    }

    fn key(record: &Record) -> (i32, u32) {
        // Each CPU has an idle task of its own.
        (record.task, if record.task == 0 { record.cpu } else { 0 })
    }

    fn rename(&mut self, task: i32, name: &str) {
        // Idle tasks have the names of their CPUs.
        if task == 0 || name.is_empty() {
            return;
        }
        match self.task_names.get_mut(&task) {
            Some(known) if known == name => {}
            Some(known) => name.clone_into(known),
            None => {
                // The names that are forgotten here are read from /proc where needed.
                if self.task_names.len() >= MAX_TASK_NAMES {
                    self.task_names.clear();
                }
                self.task_names.insert(task, name.into());
            }
        }
    }

    fn record(&mut self, record: &Record, names: &mut dyn Names) {
        match &record.what {
            What::Switch { name, next, next_name } => {
                self.rename(record.task, name);
                self.rename(*next, next_name);
                if let Some(task) = self.tasks.get_mut(&Self::key(record)) {
                    task.left_ns = Some(record.ns);
                    task.now.switches += 1;
                }
                let next = Record { task: *next, ..record.clone() };
                if let Some(task) = self.tasks.get_mut(&Self::key(&next))
                    && let Some(left_ns) = task.left_ns.take()
                {
                    task.now.off_ns += record.ns.saturating_sub(left_ns);
                }
            }
            What::Fork { child } => {
                if let Some(started) = &mut self.started
                    && started.contains(&record.task)
                {
                    started.insert(*child);
                }
            }
            What::Exec { name } => {
                self.rename(record.task, name);
                if let Some(started) = &mut self.started {
                    started.insert(record.task);
                }
            }
            What::Gap => self.gap(),
            What::Enter { function } => self.enter(record, *function, names),
            What::Leave { function, times } => {
                let Some(task) = self.tasks.get_mut(&Self::key(record)) else {
                    return;
                };
                task.latest_ns = record.ns;
                let is_it = |open: &Open| (open.function, open.depth) == (*function, record.depth);
                if !task.open.iter().any(is_it) {
                    return;
                }
                let times = times.unwrap_or((0, record.ns));
                self.leave(record, times, is_it, names);
            }
        }
    }

    fn enter(&mut self, record: &Record, function: u64, names: &mut dyn Names) {
        let key = Self::key(record);
        let started = self.started.as_ref();
        if started.is_some_and(|started| !started.contains(&record.task)) {
            return;
        }
        self.close_missed(record, names);
        let name = names.name(function);
        let is_root = names.is_traced(name);
        let task = self.tasks.entry(key).or_default();
        let after_ns = std::mem::replace(&mut task.latest_ns, record.ns);
        match (task.open.is_empty(), is_root) {
            (true, false) => return,
            (true, true) => {
                task.number = self.calls.counts.calls;
                task.steps.clear();
                task.dropped = 0;
                self.calls.counts.calls += 1;
            }
            (false, true) => self.calls.counts.recursive += 1,
            (false, false) => {}
        }
        let above = task.open.last();
        let aside = above.is_some_and(|above| record.level > above.level);
        let stack: Vec<u32> = match record.level {
            Level::Task => Vec::new(),
            _ => task.open.iter().map(|open| open.name).chain([name]).collect(),
        };
        let context = match (record.level, above) {
            (Level::Task, _) => Context::Task,
            (level, Some(above)) if above.level == level => above.context,
            (level, _) => names.context(&stack, level),
        };
        let parent = task.open.iter().rev().find_map(|open| open.step);
        let has_room = task.steps.len() < self.spec.steps as usize;
        // Deeper ones are recorded, too: their number gives what the tracer adds to those above.
        let is_shown = task.open.len() < self.spec.depth as usize;
        let step = (has_room && is_shown).then_some(task.steps.len() as u32);
        match (step, parent) {
            (Some(_), _) => task.steps.push(Step {
                parent,
                name,
                begin: record.ns,
                elapsed: 0,
                total: 0,
                own: 0,
                switches: 0,
                context,
                cpu: record.cpu,
                thread: record.task.unsigned_abs(),
                command: 0,
                flags: if aside { Flags::ASIDE } else { Flags::default() },
                arguments: None,
                returned: None,
            }),
            (None, Some(parent)) => {
                task.dropped += u64::from(is_shown);
                let flags = &mut task.steps[parent as usize].flags;
                *flags = flags.with(Flags::CUT);
            }
            (None, None) => task.dropped += 1,
        }
        let at = (above.and_then(|above| above.node), name);
        let node = match self.known.get(&at) {
            Some(node) => Some(*node),
            None if self.nodes.len() < MAX_NODES => {
                let node = self.nodes.len() as u32;
                self.nodes.push(at);
                self.known.insert(at, node);
                Some(node)
            }
            None => None,
        };
        if task.marks.len() == MAX_MARKS {
            task.marks.pop_front();
        }
        task.marks.push_back((record.ns, task.now));
        task.open.push(Open {
            function,
            name,
            depth: record.depth,
            level: record.level,
            aside,
            begin_ns: record.ns,
            after_ns,
            step,
            node,
            context,
            below_ns: 0,
            before: task.now,
        });
    }

    /// End calls whose returns are missing: calls as deep as what is entered now.
    fn close_missed(&mut self, record: &Record, names: &mut dyn Names) {
        let key = Self::key(record);
        while let Some(open) = self.tasks.get(&key).and_then(|task| task.open.last())
            && open.depth >= record.depth
        {
            let begin_ns = open.begin_ns;
            self.losses.broken += 1;
            self.close(key, (begin_ns, record.ns), End::Missed, names);
        }
    }

    /// A function returned, and with it those that are still open above it, whose returns are
    /// missing.
    fn leave(
        &mut self,
        record: &Record,
        (entered_ns, left_ns): (u64, u64),
        is_it: impl Fn(&Open) -> bool,
        names: &mut dyn Names,
    ) {
        let key = Self::key(record);
        while let Some(open) = self.tasks.get(&key).and_then(|task| task.open.last()) {
            let found = is_it(open);
            let begin_ns = match found && entered_ns > 0 {
                // An interrupt came before the entry was recorded, and is recorded before it.
                true => entered_ns.max(open.after_ns),
                false => open.begin_ns,
            };
            self.losses.broken += u64::from(!found);
            let end = if found { End::Returned } else { End::Missed };
            self.close(key, (begin_ns, left_ns), end, names);
            if found {
                break;
            }
        }
    }

    fn close(
        &mut self,
        key: (i32, u32),
        (begin_ns, end_ns): (u64, u64),
        end: End,
        names: &mut dyn Names,
    ) {
        let Some(task) = self.tasks.get_mut(&key) else {
            return;
        };
        let Some(open) = task.open.pop() else { return };
        let elapsed = end_ns.saturating_sub(begin_ns);
        // An interrupt came before the return was recorded, and is not part of what had ended.
        let until_ns = end_ns.max(open.begin_ns + 1);
        let since = task.marks.partition_point(|(at_ns, _)| *at_ns < until_ns);
        let now = task.marks.get(since).map_or(task.now, |(_, then)| *then);
        let before = open.before;
        let calls = now.calls - before.calls;
        let others = (now.off_ns - before.off_ns) as f64 + (now.aside_ns - before.aside_ns);
        let own_cost = self.cost.bias_ns + calls as f64 * self.cost.call_ns;
        let total = (elapsed as f64 - others - own_cost).max(0.0).round() as u64;
        // The cost is a usual call's: a call never takes less than what it called.
        let total = total.max(open.below_ns);
        let own = total - open.below_ns;
        if let Some(step) = open.step.and_then(|at| task.steps.get_mut(at as usize)) {
            (step.begin, step.elapsed) = (begin_ns, elapsed);
            (step.total, step.own) = (total, own);
            step.switches = now.switches - before.switches;
            if end != End::Returned {
                step.flags = step.flags.with(Flags::OPEN);
            }
        }
        match open.node {
            Some(node) => {
                let cost = self.costs.entry((node, open.context)).or_default();
                *cost = (cost.0 + 1, cost.1 + own);
            }
            None => self.losses.no_node += 1,
        }
        match open.aside {
            true => {
                let within = now.aside_ns - before.aside_ns;
                let outside = self.cost.call_ns - self.cost.bias_ns;
                task.now.aside_ns += (elapsed as f64 - within + outside).max(0.0);
                task.now.calls = before.calls;
            }
            false => {
                task.now.calls += 1;
                if let Some(above) = task.open.last_mut()
                    && end != End::Missed
                {
                    above.below_ns += total;
                }
            }
        }
        if task.open.is_empty() {
            let command = names.task(key.0, self.task_names.get(&key.0).map(String::as_str));
            for step in &mut task.steps {
                step.command = command;
            }
            let call = TimedCall { number: task.number, steps: std::mem::take(&mut task.steps) };
            let dropped = task.dropped;
            self.calls.counts.unfinished += u64::from(end != End::Returned);
            // A call without a known end has no time.
            if end != End::Missed {
                self.keep(call, total, dropped);
            }
        }
    }

    /// Keep an ended call if it is one of the longest, or the first.
    fn keep(&mut self, call: TimedCall, total: u64, dropped: u64) {
        self.calls.ended(total);
        let first = call.steps.first();
        let switches = first.map_or(0, |step| step.switches);
        let elapsed = first.map_or(0, |step| step.elapsed);
        let value = |of: &OfCall| match of {
            OfCall::Duration => Some(i128::from(total)),
            OfCall::Elapsed => Some(i128::from(elapsed)),
            OfCall::Switches => Some(i128::from(switches)),
            _ => None,
        };
        if self.spec.only.as_ref().is_none_or(|only| only.holds(value)) {
            let no_room = self.calls.keep(call, self.spec.slowest);
            self.losses.dropped += dropped + no_room;
        }
    }

    /// Records were lost: which open calls have returned meanwhile is not known.
    fn gap(&mut self) {
        for task in self.tasks.values_mut() {
            if !task.open.is_empty() {
                self.losses.broken += 1;
                self.calls.counts.unfinished += 1;
            }
            task.open.clear();
        }
    }

    /// Forget what belongs to no window.
    pub(super) fn forget(&mut self) {
        *self = Calls { started: self.started.take(), ..Calls::new(&self.spec, self.cost) };
    }

    /// Close the window; returns its results, without calls that are still open.
    pub(super) fn end(&mut self, names: &mut dyn Names) -> Ended {
        let open: Vec<(i32, u32)> = (self.tasks.iter())
            .filter(|(_, task)| !task.open.is_empty())
            .map(|(key, _)| *key)
            .collect();
        for key in open {
            // Time off the CPU until now.
            if let Some(task) = self.tasks.get_mut(&key)
                && let Some(left_ns) = task.left_ns.take()
            {
                task.now.off_ns += self.latest_ns.saturating_sub(left_ns);
            }
            while let Some(open) = self.tasks.get(&key).and_then(|task| task.open.last()) {
                let begin_ns = open.begin_ns;
                let times = (begin_ns, self.latest_ns.max(begin_ns));
                self.close(key, times, End::Unfinished, names);
            }
        }
        let calls = std::mem::take(&mut self.calls);
        self.losses.unranked = calls.unranked;
        let (counts, kept) = calls.end();
        let costs = std::mem::take(&mut self.costs).into_iter();
        let ended = Ended {
            counts,
            kept,
            nodes: std::mem::take(&mut self.nodes),
            costs: costs
                .map(|((node, context), (calls, own))| NodeCost {
                    node,
                    direction: Direction::Run,
                    context,
                    calls,
                    own,
                })
                .collect(),
            losses: self.losses,
        };
        self.forget();
        ended
    }
}

impl Call for TimedCall {
    fn number(&self) -> u64 {
        self.number
    }

    fn total(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.total)
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }
}
