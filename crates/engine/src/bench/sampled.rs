//! Where the nanoseconds of a packet went: the same blocks once more, while the clock of
//! each CPU samples what it does. A sample stands for the time since the one before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use netplumb_instruments::rates::samples::{PERIOD_NS, Sampled, Sampler, Samples, Who};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::process::VmError;
use netplumb_model::bench::{COUNTED, Measured, NANOSECONDS, Offered};
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, env};
use netplumb_workload::frames;

use super::block::{self, Ran};
use super::site::online;
use super::{BenchEvent, Run};
use crate::collect::{Index, UNKNOWN_NAME, kernel_function, known};
use crate::error::EngineError;
use crate::live::turns;
use crate::run::add_loss;

/// Sampling, of every arm.
#[derive(Debug, Clone, Copy)]
pub struct SamplePlan<'a> {
    /// Blocks of each.
    pub blocks: u32,
    /// By which functions are put into layers.
    pub layers: &'a LayerRules,
}

/// Environment keys begin so that tell of the samples.
const FACTS: &str = "sampled";
/// User code that has no name here.
const USER_CODE: &str = "[user code]";

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

/// What was seen in a block.
pub(super) struct Seen {
    samples: Samples,
    symbols: SymbolTable,
    tasks: Tasks,
}

/// Whose tasks are whose.
#[derive(Debug, Default)]
struct Tasks {
    /// This process.
    own: u32,
    /// What its threads are called that neither send nor handle packets.
    bystanders: BTreeSet<String>,
    /// Processes that it has started.
    started: BTreeSet<u32>,
}

/// Samples CPUs while a block's window is open.
pub(super) struct Watch(Sampler);

impl Watch {
    pub(super) fn load() -> Result<Watch, EngineError> {
        Ok(Watch(Sampler::load(&online()?)?))
    }

    pub(super) fn begin(&mut self) -> Result<(), EngineError> {
        Ok(self.0.begin()?)
    }

    pub(super) fn stop(&mut self) {
        self.0.stop();
    }

    /// What was seen. The path has to stand yet: its programs are named.
    pub(super) fn read(self) -> Result<Seen, EngineError> {
        let samples = self.0.read()?;
        let text = fs::read("/proc/kallsyms").map_err(EngineError::host("read the symbols"))?;
        Ok(Seen {
            samples,
            symbols: SymbolTable::parse(&text)?,
            tasks: Tasks::now(),
        })
    }
}

impl Tasks {
    fn now() -> Tasks {
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
    fn owner(&self, sampled: &Sampled, names: &[&str]) -> Option<(Direction, Context, usize)> {
        let outermost = names.iter().rposition(|name| PACKETS.contains(name));
        if let Some(at) = outermost {
            return Some((Direction::Rx, Context::Softirq(Softirq::NetRx), at + 1));
        }
        let all = names.len();
        let interrupt = |name: &&str| INTERRUPTS.iter().any(|begins| name.starts_with(begins));
        if names.iter().any(interrupt) {
            return Some((Direction::Other, Context::Hardirq, all));
        }
        let (direction, context) = match sampled.who {
            Who::Idle => return None,
            Who::Process(pid) if pid == self.own => match sampled.name.as_str() {
                name if name.starts_with(frames::THREAD) => (Direction::Tx, Context::Task),
                name if self.bystanders.contains(name) => (Direction::Other, Context::OtherTask),
                _ => (Direction::Rx, Context::Task),
            },
            Who::Process(pid) if self.started.contains(&pid) => (Direction::Rx, Context::Task),
            Who::Process(_) | Who::Foreign => (Direction::Other, Context::OtherTask),
        };
        Some((direction, context, all))
    }
}

impl Run<'_> {
    /// Sample all arms that can be here, in turns.
    pub(super) fn sampled(&mut self, plan: SamplePlan<'_>) -> Result<(), EngineError> {
        let mut arms: Vec<(usize, u32)> = Vec::new();
        for at in (0..self.plan.arms.len()).filter(|at| !self.absent.contains(at)) {
            let arm = arm_of(&self.recording.arms[at]);
            arms.push((at, self.recording.arms.len() as u32));
            self.recording.arms.push(arm);
        }
        let mut fact = |key: &str, value: String| {
            let key = format!("{FACTS}.{key}");
            self.recording.environment.insert(key, value);
        };
        fact("period_ns", PERIOD_NS.to_string());
        fact("event", "cpu-clock".into());
        let mut index = Index::of(self.recording);
        let order = turns(arms.len(), plan.blocks, false, self.options.seed);
        let all = order.len() as u32;
        for (done, turn) in (1..).zip(order) {
            if self.cancelled() {
                return Err(VmError::Interrupted.into());
            }
            let (at, number) = arms[turn.arm];
            let mut arm = self.plan.arms[at];
            if self.plan.search {
                arm.offered = Offered::Most;
            }
            let times = [self.plan.window, self.plan.warmup];
            let (ran, seen) = block::measure_watched(&arm, self.own, times, self.options.cancel)?;
            let why = match (ran, seen) {
                (Ran::Measured(measured, _), Some(seen)) => match measured.invalid() {
                    None => {
                        let into = (&mut *self.recording, &mut index);
                        seen.add(into, number, turn.index, &measured, plan.layers);
                        None
                    }
                    why => why,
                },
                (Ran::Measured(..), None) => None,
                (Ran::CannotHere(why), _) => Some(why),
            };
            if let Some(why) = why {
                let name = &self.recording.arms[number as usize].name;
                let key = format!("{}.{name}", env::FAILED);
                self.recording.environment.insert(key, why);
            }
            (self.save)(self.recording).map_err(EngineError::Save)?;
            (self.tell)(BenchEvent::Block(self.recording, done, all));
        }
        Ok(())
    }
}

fn arm_of(of: &Arm) -> Arm {
    let mut arm = of.clone();
    arm.name.push_str(", sampled");
    arm.knobs.insert(COUNTED.into(), NANOSECONDS.into());
    arm
}

impl Seen {
    /// Add them as a block of an arm: what each function took, in nanoseconds.
    fn add(
        &self,
        (recording, index): (&mut Recording, &mut Index),
        arm: u32,
        number: u32,
        measured: &Measured,
        layers: &LayerRules,
    ) {
        let block = recording.blocks.len() as u32;
        let mut costs: BTreeMap<(Direction, Context, u32), u64> = BTreeMap::new();
        let (mut kernel, mut user) = (0, 0);
        for sampled in &self.samples.all {
            let symbols: Vec<Option<usize>> = (0..)
                .zip(&sampled.stack)
                // Callers by the instruction that calls: what follows may be another's.
                .map(|(depth, address)| match depth {
                    0 => self.symbols.lookup_index(*address),
                    _ => self.symbols.lookup_index(address.wrapping_sub(1)),
                })
                .collect();
            let names: Vec<&str> = symbols
                .iter()
                .map(|at| at.map_or(UNKNOWN_NAME, |at| &self.symbols.symbols()[at].name))
                .collect();
            let Some((direction, context, frames)) = self.tasks.owner(sampled, &names) else {
                continue;
            };
            let ns = sampled.samples * PERIOD_NS;
            if sampled.user && direction == Direction::Rx {
                user += ns;
                continue;
            }
            let functions = match (sampled.user, &symbols[..frames.min(symbols.len())]) {
                (true, _) => vec![nameless(USER_CODE)],
                (false, []) => vec![nameless(UNKNOWN_NAME)],
                (false, stack) => (stack.iter().rev())
                    .map(|at| match at {
                        Some(at) => kernel_function(&self.symbols, layers, *at as u32),
                        None => nameless(UNKNOWN_NAME),
                    })
                    .collect(),
            };
            let mut parent = None;
            for function in functions {
                let function = known(recording, index, function);
                let node = Node {
                    parent,
                    function,
                    tail: false,
                };
                parent = Some(index.node(recording, node));
            }
            if let Some(node) = parent {
                *costs.entry((direction, context, node)).or_default() += sampled.samples;
            }
            kernel += ns;
        }
        let packets = measured.handled.total();
        recording.blocks.push(Block {
            arm,
            index: number,
            ledger: Ledger {
                offered: packets,
                delivered: packets,
                ..Ledger::default()
            },
            kernel_insns: kernel,
            user_insns: user,
            entered: 0,
            returned: 0,
            duration_ns: measured.window_ns,
        });
        let costs = costs.into_iter();
        recording.costs.extend(costs.map(|(key, samples)| Cost {
            block,
            direction: key.0,
            context: key.1,
            node: key.2,
            calls: samples,
            self_insns: samples * PERIOD_NS,
        }));
        for (cause, count, meaning) in [
            (
                "samples that there was no room for",
                self.samples.lost,
                "their time is missing where a packet's nanoseconds went",
            ),
            (
                "samples whose stack is not known",
                self.samples.stackless,
                "their time is in [unknown]",
            ),
        ] {
            add_loss(recording, cause, count, meaning);
        }
    }
}

/// Code that no symbol covers.
fn nameless(name: &str) -> Function {
    Function {
        name: name.into(),
        module: None,
        layer: None,
        address: 0,
        size_bytes: 0,
        source: None,
    }
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
            let found = found.map(|(direction, _, frames)| (direction, frames));
            assert_eq!(found, wanted, "{sample:?} {names:?}");
        }
    }
}
