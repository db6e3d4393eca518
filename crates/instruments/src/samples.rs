//! The `samples` instrument: where CPU time goes, by what each CPU does every so often.
//!
//! In a guest of the vm lab nothing is sampled: its samples are drawn on the host, from the stream
//! that `exact` counts (`exact/sample.rs`), and are of instructions. What follows is of kernels
//! that run natively.
//!
//! It is on any kernel that has perf's clock, and puts no probe on any packet. A sample
//! stands for the time since the one before it; what is sampled while packets are handled
//! is theirs, sent or received, and the rest has the name of the task, softirq or interrupt
//! that it was.

mod layout;
mod owner;
mod sampler;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::Instant;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_model::capability::Availability;
use netplumb_model::class::{Context, Direction};
use netplumb_model::experiment::Lab;
use netplumb_model::quantity::{Declared, Figure, Kind};
use netplumb_model::timing::{
    Attached, CPU_TIME, Costs, DEFERRED, IN_KERNEL, INTERRUPTS_OFF, Met, NodeCost, PERIOD, Roles,
    SAMPLE_PERIOD, SAMPLE_SEED, SAMPLED, TimingSpec, Window,
};
use netplumb_sys::cpus;

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers};
use crate::live::{self, Live, LiveError};
use owner::Tasks;
pub use owner::context;
use sampler::{PERIOD_NS, Sampled, Sampler, Seen};

/// What the instrument is called.
const SAMPLES: &str = CPU_TIME.instrument;
/// User code that has no name here.
const USER_CODE: &str = "[user code]";
/// The name of code that no symbol covers.
const UNKNOWN: &str = "[unknown]";
/// Samples that were taken.
const TAKEN: Declared = Declared::new(SAMPLES, "samples", "samples", Kind::Count);

/// The instrument.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "CPU time of every kernel function, by samples; in the vm lab, instructions"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] = &[
            CPU_TIME,
            PERIOD,
            TAKEN,
            SAMPLED,
            DEFERRED,
            INTERRUPTS_OFF,
            IN_KERNEL,
            SAMPLE_PERIOD,
            SAMPLE_SEED,
        ];
        ALL
    }

    fn unavailable(&self, lab: Lab) -> Option<(&'static str, &'static str)> {
        match lab {
            Lab::Vm | Lab::Netns => None,
            Lab::Host => Some((
                "it can't tell work on packets from other work",
                "use --lab netns",
            )),
        }
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        match (lab, tried.verdict("qemu-plugin")) {
            (Lab::Vm, no @ Availability::No { .. }) => no,
            (Lab::Vm, _) => Availability::yes(
                "of instructions, unbiased and as a timer would take them; needs no root and no KVM",
            ),
            _ => by_clock(tried),
        }
    }

    fn attach(&self, spec: &TimingSpec, _: &Layers<'_>) -> Result<Box<dyn Live>, LiveError> {
        Ok(Box::new(Sampling::attach(spec)?))
    }
}

/// Without hardware events, what keeps interrupts off is charged to where they come on again.
fn by_clock(tried: &Tried<'_>) -> Availability {
    let sampled = tried.any(&[(&["perf-event"], "by samples")]);
    match (sampled, tried.verdict("perf-hardware")) {
        (Availability::Yes { .. }, Availability::No { reason, remedy }) => Availability::partly(
            "by samples of the CPU's clock",
            format!(
                "{reason}; code with interrupts off is not sampled: its time is shown where they are enabled again"
            ),
            remedy,
        ),
        (sampled, _) => sampled,
    }
}

/// CPUs that are sampled while a window is open.
#[derive(Debug)]
struct Sampling {
    sampler: Sampler,
    roles: Roles,
    rules: PathRules,
    attached: Attached,
    /// The kernel's, as they were when last something was not among them.
    symbols: Option<SymbolTable>,
    opened: Instant,
    closed: Option<Instant>,
    run_ns: u64,
}

impl Sampling {
    fn attach(spec: &TimingSpec) -> Result<Sampling, LiveError> {
        let begun = Instant::now();
        if spec.one_packet > 0 {
            return Err(LiveError::Asked(
                "`samples` does not follow packets; omit --one-packet".into(),
            ));
        }
        let filter = &spec.filter;
        let narrow = filter.port.is_some()
            || filter.address.is_some()
            || filter.interface.is_some()
            || filter.pid.is_some()
            || filter.cgroup.is_some();
        if narrow {
            return Err(LiveError::Asked(
                "`samples` covers all work of the CPUs; omit filters of packets and tasks".into(),
            ));
        }
        let cpus = cpus::online().map_err(LiveError::system("read which CPUs are online"))?;
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let sampler = Sampler::load(&cpus)?;
        let attached = Attached {
            attach_ns: begun.elapsed().as_nanos() as u64,
            facts: BTreeMap::from([("sampled.event".into(), "cpu-clock".into())]),
            figures: vec![Figure::new(&PERIOD, PERIOD_NS as f64)],
            ..Attached::default()
        };
        Ok(Sampling {
            run_ns: sampler.run_ns(),
            sampler,
            roles: spec.roles.clone(),
            rules: PathRules::built_in(),
            attached,
            symbols: None,
            opened: begun,
            closed: None,
        })
    }

    /// The kernel's symbols, read again if an address is in none of those that are known.
    fn symbols(&mut self, samples: &Seen) -> Result<SymbolTable, LiveError> {
        let known = self.symbols.take().filter(|symbols| {
            let mut all = samples.all.iter().flat_map(|s| &s.stack);
            all.all(|address| symbols.lookup_index(*address).is_some())
        });
        match known {
            Some(symbols) => Ok(symbols),
            None => {
                let text =
                    fs::read("/proc/kallsyms").map_err(LiveError::system("read the symbols"))?;
                SymbolTable::parse(&text).map_err(LiveError::system("read the symbols"))
            }
        }
    }
}

impl Live for Sampling {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.closed = None;
        self.run_ns = self.sampler.run_ns();
        self.opened = Instant::now();
        self.sampler.begin()
    }

    fn stop(&mut self) {
        self.sampler.stop();
        self.closed.get_or_insert_with(Instant::now);
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        let closed = self.closed.unwrap_or_else(Instant::now);
        let samples = self.sampler.read()?;
        let symbols = self.symbols(&samples)?;
        // While those that it has started run yet.
        let tasks = Tasks::now(&self.roles, &self.rules);
        let mut tree = Tree::default();
        for sampled in &samples.all {
            tree.add(sampled, &symbols, &tasks);
        }
        self.symbols = Some(symbols);
        let taken: u64 = samples.all.iter().map(|s| s.samples).sum();
        let losses = [
            (
                "samples lost (buffer full)",
                samples.lost,
                "their time is missing",
            ),
            (
                "samples without a stack",
                samples.stackless,
                "their time is in [unknown]",
            ),
        ];
        Ok(Window {
            duration_ns: (closed - self.opened).as_nanos() as u64,
            own_cpu_ns: self.sampler.run_ns().saturating_sub(self.run_ns),
            figures: vec![Figure::new(&TAKEN, taken as f64)],
            costs: Some(tree.costs()),
            losses: live::losses(losses),
            ..Window::default()
        })
    }
}

/// What was sampled, on a calling-context tree.
#[derive(Debug, Default)]
struct Tree {
    functions: Vec<Met>,
    known: HashMap<Met, u32>,
    nodes: Vec<(Option<u32>, u32)>,
    numbers: HashMap<(Option<u32>, u32), u32>,
    samples: BTreeMap<(Direction, Context, u32), u64>,
    kernel: u64,
    user: u64,
}

impl Tree {
    fn add(&mut self, sampled: &Sampled, symbols: &SymbolTable, tasks: &Tasks) {
        let stack: Vec<Option<usize>> = (0..)
            .zip(&sampled.stack)
            // Callers by the instruction that calls: what follows may be another's.
            .map(|(depth, address)| match depth {
                0 => symbols.lookup_index(*address),
                _ => symbols.lookup_index(address.wrapping_sub(1)),
            })
            .collect();
        let names: Vec<&str> = (stack.iter())
            .map(|at| at.map_or(UNKNOWN, |at| &symbols.symbols()[at].name))
            .collect();
        let Some(owner) = tasks.owner(sampled, &names) else {
            return;
        };
        if sampled.user && owner.direction == Direction::Rx {
            self.user += sampled.samples;
            return;
        }
        let stack = &stack[..owner.frames.min(stack.len())];
        let met = |at: &Option<usize>| match at {
            Some(at) => {
                let symbol = &symbols.symbols()[*at];
                Met {
                    name: symbol.name.clone(),
                    module: symbol.module.clone(),
                    address: symbol.addr,
                    size_bytes: symbol.size,
                }
            }
            None => nameless(UNKNOWN),
        };
        let functions = match (sampled.user, stack) {
            (true, _) => vec![nameless(USER_CODE)],
            (false, []) => vec![nameless(UNKNOWN)],
            (false, stack) => stack.iter().rev().map(met).collect(),
        };
        let root = owner.other.as_deref().map(nameless);
        let mut node = None;
        for function in root.into_iter().chain(functions) {
            let function = self.function(function);
            let key = (node, function);
            node = Some(match self.numbers.get(&key) {
                Some(number) => *number,
                None => {
                    self.nodes.push(key);
                    let number = self.nodes.len() as u32 - 1;
                    self.numbers.insert(key, number);
                    number
                }
            });
        }
        if let Some(node) = node {
            let key = (owner.direction, owner.context, node);
            *self.samples.entry(key).or_default() += sampled.samples;
        }
        self.kernel += sampled.samples;
    }

    fn function(&mut self, met: Met) -> u32 {
        match self.known.get(&met) {
            Some(number) => *number,
            None => {
                self.functions.push(met.clone());
                let number = self.functions.len() as u32 - 1;
                self.known.insert(met, number);
                number
            }
        }
    }

    /// In nanoseconds.
    fn costs(self) -> Costs {
        let costs = self.samples.into_iter();
        Costs {
            quantity: (&CPU_TIME).into(),
            functions: self.functions,
            nodes: self.nodes,
            costs: costs
                .map(|((direction, context, node), samples)| NodeCost {
                    node,
                    direction,
                    context,
                    calls: samples,
                    own: samples * PERIOD_NS,
                })
                .collect(),
            kernel: self.kernel * PERIOD_NS,
            user: self.user * PERIOD_NS,
        }
    }
}

/// Code that no symbol covers.
fn nameless(name: &str) -> Met {
    Met {
        name: name.into(),
        ..Met::default()
    }
}
