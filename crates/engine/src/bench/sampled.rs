//! Where the nanoseconds of a packet went: the same blocks once more, while the clock of
//! each CPU samples what it does. A sample stands for the time since the one before it.

mod owner;

use std::collections::BTreeMap;
use std::fs;

use netplumb_instruments::rates::samples::{PERIOD_NS, Sampler, Samples};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::process::VmError;
use netplumb_model::bench::{Measured, Offered};
use netplumb_model::class::{Context, Direction};
use netplumb_model::quantity::Item;
use netplumb_model::recording::{Block, Cost, Function, Ledger, Node, Recording, Total};
use netplumb_model::timing::{CPU_TIME, PERIOD};

use super::block::{self, Ran};
use super::site::online;
use super::{BenchEvent, Run};
use crate::collect::{Index, UNKNOWN_NAME, kernel_function, known};
use crate::error::EngineError;
use crate::live::turns;
use crate::run::add_loss;
use owner::Tasks;

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

/// What was seen in a block.
pub(super) struct Seen {
    samples: Samples,
    symbols: SymbolTable,
    tasks: Tasks,
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

impl Run<'_> {
    /// Sample all arms that can be here, in turns.
    pub(super) fn sampled(&mut self, plan: SamplePlan<'_>) -> Result<(), EngineError> {
        let all = 0..self.plan.arms.len();
        let arms: Vec<usize> = all.filter(|at| !self.absent.contains(at)).collect();
        let mut fact = |key: &str, value: String| {
            let key = format!("{FACTS}.{key}");
            self.recording.environment.insert(key, value);
        };
        fact("event", "cpu-clock".into());
        self.recording.set(&PERIOD, Item::ONLY, PERIOD_NS as f64);
        let mut index = Index::of(self.recording);
        let order = turns(arms.len(), plan.blocks, false, self.options.seed);
        let all = order.len() as u32;
        for (done, turn) in (1..).zip(order) {
            if self.cancelled() {
                return Err(VmError::Interrupted.into());
            }
            let at = arms[turn.arm];
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
                        seen.add(into, at as u32, turn.index, &measured, plan.layers);
                        None
                    }
                    why => why,
                },
                (Ran::Measured(..), None) => None,
                (Ran::CannotHere(why), _) => Some(why),
            };
            if let Some(why) = why {
                let failed = &mut self.recording.notes_of(at).failed;
                failed.insert(CPU_TIME.instrument.into(), why);
            }
            (self.save)(self.recording).map_err(EngineError::Save)?;
            (self.tell)(BenchEvent::Block(self.recording, done, all));
        }
        Ok(())
    }
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
            let Some(owner) = self.tasks.owner(sampled, &names) else {
                continue;
            };
            let ns = sampled.samples * PERIOD_NS;
            if sampled.user && owner.direction == Direction::Rx {
                user += ns;
                continue;
            }
            let stack = &symbols[..owner.frames.min(symbols.len())];
            let functions = match (sampled.user, stack) {
                (true, _) => vec![nameless(USER_CODE)],
                (false, []) => vec![nameless(UNKNOWN_NAME)],
                (false, stack) => (stack.iter().rev())
                    .map(|at| match at {
                        Some(at) => kernel_function(&self.symbols, layers, *at as u32),
                        None => nameless(UNKNOWN_NAME),
                    })
                    .collect(),
            };
            let root = owner.other.as_deref().map(nameless);
            let mut parent = None;
            for function in root.into_iter().chain(functions) {
                let function = known(recording, index, function);
                let node = Node {
                    parent,
                    function,
                    tail: false,
                };
                parent = Some(index.node(recording, node));
            }
            if let Some(node) = parent {
                let key = (owner.direction, owner.context, node);
                *costs.entry(key).or_default() += sampled.samples;
            }
            kernel += ns;
        }
        let packets = measured.handled.total();
        let quantity = recording.quantity(&CPU_TIME);
        recording.blocks.push(Block {
            arm,
            instrument: CPU_TIME.instrument.into(),
            index: number,
            ledger: Ledger {
                offered: packets,
                delivered: packets,
                ..Ledger::default()
            },
            totals: vec![Total {
                quantity,
                kernel,
                user,
            }],
            entered: 0,
            returned: 0,
            duration_ns: measured.window_ns,
        });
        // How busy CPUs were in this very window, and how many packets it had.
        measured.add_to(recording, block);
        let costs = costs.into_iter();
        recording.costs.extend(costs.map(|(key, samples)| Cost {
            block,
            quantity,
            direction: key.0,
            context: key.1,
            node: key.2,
            calls: samples,
            own: samples * PERIOD_NS,
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
