//! What was sampled, on a calling-context tree.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::{Context, Direction};
use netplumb_model::quantity::Declared;
use netplumb_model::timing::{Costs, Met, NodeCost};
use rustc_hash::FxHashMap;

/// What samples are charged to.
pub(super) type Charged = (Direction, Context, u32);

/// Samples and what they stand for, by node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) samples: u64,
    pub(super) ns: u64,
}

/// All functions that were met, by number.
#[derive(Debug, Default)]
pub(super) struct Functions {
    all: Vec<Met>,
    numbers: HashMap<Met, u32>,
}

impl Functions {
    /// The number of a function.
    pub(super) fn number(&mut self, met: Met) -> u32 {
        if let Some(number) = self.numbers.get(&met) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(met.clone());
        self.numbers.insert(met, number);
        number
    }

    /// The function with this number, if it was met.
    pub(super) fn met(&self, number: u32) -> Option<&Met> {
        self.all.get(number as usize)
    }

    /// The name of a function.
    pub(super) fn name(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", |met| &met.name)
    }
}

/// A calling-context tree of one window.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<(Option<u32>, u32)>,
    numbers: FxHashMap<(Option<u32>, u32), u32>,
    sums: BTreeMap<Charged, Sum>,
}

impl Tree {
    /// The function below another one, or at the root.
    pub(super) fn node(&mut self, parent: Option<u32>, function: u32) -> u32 {
        let key = (parent, function);
        *self.numbers.entry(key).or_insert_with(|| {
            self.nodes.push(key);
            self.nodes.len() as u32 - 1
        })
    }

    /// Charge samples to a node.
    pub(super) fn charge(&mut self, to: Charged, sum: Sum) {
        let of = self.sums.entry(to).or_default();
        of.samples += sum.samples;
        of.ns += sum.ns;
    }

    /// Costs in nanoseconds: in the kernel, and the rest in `user`.
    pub(super) fn costs(
        self,
        functions: &Functions,
        quantity: &Declared,
        (kernel, user): (u64, u64),
    ) -> Costs {
        // This window's only.
        let mut used: FxHashMap<u32, u32> = FxHashMap::default();
        let mut met = Vec::new();
        let nodes = self.nodes.into_iter().map(|(parent, function)| {
            let number = *used.entry(function).or_insert_with(|| {
                met.push(functions.all[function as usize].clone());
                met.len() as u32 - 1
            });
            (parent, number)
        });
        let nodes = nodes.collect();
        let sums = self.sums.into_iter();
        Costs {
            quantity: quantity.into(),
            functions: met,
            nodes,
            costs: sums
                .map(|((direction, context, node), sum)| NodeCost {
                    node,
                    direction,
                    context,
                    calls: sum.samples,
                    own: sum.ns,
                })
                .collect(),
            kernel,
            user,
            samples: Vec::new(),
            threads: Vec::new(),
        }
    }
}

/// Code that no symbol covers, or what stands for no code.
pub(super) fn nameless(name: &str) -> Met {
    Met { name: name.into(), ..Met::default() }
}
