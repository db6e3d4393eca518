//! From a recording's costs to what tables show: per arm and direction, sums by
//! layer, context and function, self and inclusive.

use std::collections::BTreeMap;

use netplumb_model::class::{Class, Context, Direction};
use netplumb_model::recording::{Arm, Cost, FunctionId, NodeId, Recording, env};

use crate::number::printable;

/// What a function without a layer is listed under.
pub const NO_LAYER: &str = "(no layer)";

/// One arm and direction, summed over its blocks.
#[derive(Debug, Clone)]
pub struct ClassView<'a> {
    /// The recording that it is of.
    pub recording: &'a Recording,
    /// Index of the arm.
    pub arm: usize,
    /// Protocol and direction.
    pub class: Class,
    /// Packets offered, over all blocks.
    pub packets: u64,
    /// Blocks whose packets are not all accounted for: figures of packets that went missing
    /// are of nothing.
    pub invalid: usize,
    /// Instructions, over all blocks.
    pub total: u64,
    /// Instructions of each block.
    pub by_block: Vec<u64>,
    /// Instructions by context.
    pub contexts: BTreeMap<Context, u64>,
    /// By layer, the largest first.
    pub layers: Vec<(String, u64)>,
    /// By function, the largest self cost first.
    pub functions: Vec<FunctionView>,
    /// By node: calls, self, inclusive.
    pub nodes: BTreeMap<NodeId, NodeView>,
}

/// One function of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionView {
    /// Which.
    pub function: FunctionId,
    /// Times entered.
    pub calls: u64,
    /// Instructions of its own.
    pub self_insns: u64,
    /// With those of all that it called.
    pub inclusive_insns: u64,
}

/// One node of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Times entered.
    pub calls: u64,
    /// Instructions of its own.
    pub self_insns: u64,
    /// With those of its subtree.
    pub inclusive_insns: u64,
}

impl ClassView<'_> {
    /// The arm.
    pub fn arm(&self) -> &Arm {
        &self.recording.arms[self.arm]
    }

    /// The layer of a function, or [`NO_LAYER`].
    pub fn layer(&self, function: FunctionId) -> &str {
        self.recording.functions[function as usize]
            .layer
            .as_deref()
            .unwrap_or(NO_LAYER)
    }

    /// The name of a function.
    pub fn name(&self, function: FunctionId) -> &str {
        &self.recording.functions[function as usize].name
    }

    /// Instructions of a layer.
    pub fn layer_insns(&self, layer: &str) -> u64 {
        self.layers
            .iter()
            .find(|(name, _)| name == layer)
            .map_or(0, |(_, insns)| *insns)
    }

    /// The functions of a layer, or all.
    pub fn functions_of<'s>(
        &'s self,
        layer: Option<&'s str>,
    ) -> impl Iterator<Item = &'s FunctionView> {
        self.functions
            .iter()
            .filter(move |f| layer.is_none_or(|l| self.layer(f.function) == l))
    }

    /// Nodes without a parent in this class.
    pub fn roots(&self) -> Vec<NodeId> {
        self.children(None)
    }

    /// Nodes below one, the largest inclusive cost first.
    pub fn children(&self, parent: Option<NodeId>) -> Vec<NodeId> {
        let mut children: Vec<NodeId> = self
            .nodes
            .keys()
            .copied()
            .filter(|id| self.recording.nodes[*id as usize].parent == parent)
            .collect();
        children.sort_by_key(|id| (std::cmp::Reverse(self.nodes[id].inclusive_insns), *id));
        children
    }
}

/// Every arm and direction that has packets of its own: `other` is left out.
pub fn classes(recording: &Recording) -> Vec<ClassView<'_>> {
    let mut views = Vec::new();
    // A scan has hundreds of arms: each is to be handed its own costs only.
    let mut costs: Vec<Vec<&Cost>> = vec![Vec::new(); recording.arms.len()];
    for cost in &recording.costs {
        let block = recording.blocks.get(cost.block as usize);
        if let Some(of) = block.and_then(|b| costs.get_mut(b.arm as usize)) {
            of.push(cost);
        }
    }
    for (arm, costs) in costs.iter().enumerate() {
        for &direction in Direction::ALL {
            if direction == Direction::Other {
                continue;
            }
            let view = class_of(recording, arm, direction, costs);
            if view.total > 0 {
                views.push(view);
            }
        }
    }
    views
}

/// One arm and direction.
pub fn class(recording: &Recording, arm: usize, direction: Direction) -> ClassView<'_> {
    let costs: Vec<&Cost> = recording.costs.iter().collect();
    class_of(recording, arm, direction, &costs)
}

fn class_of<'a>(
    recording: &'a Recording,
    arm: usize,
    direction: Direction,
    costs: &[&Cost],
) -> ClassView<'a> {
    let blocks: Vec<u32> = (0..recording.blocks.len() as u32)
        .filter(|b| recording.blocks[*b as usize].arm as usize == arm)
        .collect();
    let packets = blocks
        .iter()
        .map(|b| recording.blocks[*b as usize].ledger.offered)
        .sum();
    let invalid = blocks
        .iter()
        .filter(|b| !recording.blocks[**b as usize].ledger.closes())
        .count();
    let mut by_block: BTreeMap<u32, u64> = blocks.iter().map(|b| (*b, 0)).collect();
    let mut contexts = BTreeMap::new();
    let mut nodes: BTreeMap<NodeId, NodeView> = BTreeMap::new();
    let mut total = 0;
    for cost in costs.iter().filter(|c| c.direction == direction) {
        let Some(block) = by_block.get_mut(&cost.block) else {
            continue;
        };
        *block += cost.own;
        *contexts.entry(cost.context).or_default() += cost.own;
        total += cost.own;
        let node = nodes.entry(cost.node).or_default();
        node.calls += cost.calls;
        node.self_insns += cost.own;
        // Ancestors without a cost of their own still have one of their subtree. Those
        // of a node that is there are there too.
        let mut above = recording.nodes[cost.node as usize].parent;
        while let Some(id) = above {
            if nodes.contains_key(&id) {
                break;
            }
            nodes.insert(id, NodeView::default());
            above = recording.nodes[id as usize].parent;
        }
    }
    // A parent's id is below its children's.
    let ids: Vec<NodeId> = nodes.keys().rev().copied().collect();
    for id in ids {
        let inclusive = nodes[&id].inclusive_insns + nodes[&id].self_insns;
        if let Some(node) = nodes.get_mut(&id) {
            node.inclusive_insns = inclusive;
        }
        if let Some(parent) = recording.nodes[id as usize].parent
            && let Some(node) = nodes.get_mut(&parent)
        {
            node.inclusive_insns += inclusive;
        }
    }
    let (functions, layers) = sums(recording, &nodes);
    ClassView {
        recording,
        arm,
        class: Class {
            proto: recording.arms[arm].proto,
            direction,
        },
        packets,
        invalid,
        total,
        by_block: by_block.into_values().collect(),
        contexts,
        layers,
        functions,
        nodes,
    }
}

fn sums(
    recording: &Recording,
    nodes: &BTreeMap<NodeId, NodeView>,
) -> (Vec<FunctionView>, Vec<(String, u64)>) {
    let mut functions: BTreeMap<FunctionId, FunctionView> = BTreeMap::new();
    let mut layers: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, node) in nodes {
        let function = recording.nodes[*id as usize].function;
        let view = functions.entry(function).or_insert(FunctionView {
            function,
            calls: 0,
            self_insns: 0,
            inclusive_insns: 0,
        });
        view.calls += node.calls;
        view.self_insns += node.self_insns;
        // Recursion counts once, where it began.
        if !has_ancestor(recording, *id, function) {
            view.inclusive_insns += node.inclusive_insns;
        }
        let layer = recording.functions[function as usize]
            .layer
            .as_deref()
            .unwrap_or(NO_LAYER);
        *layers.entry(layer).or_default() += node.self_insns;
    }
    let mut functions: Vec<FunctionView> = functions
        .into_values()
        .filter(|f| f.inclusive_insns > 0)
        .collect();
    let name = |f: &FunctionView| recording.functions[f.function as usize].name.clone();
    functions.sort_by_key(|f| (std::cmp::Reverse(f.self_insns), name(f)));
    let mut layers: Vec<(String, u64)> = layers
        .into_iter()
        .filter(|(_, insns)| *insns > 0)
        .map(|(layer, insns)| (layer.to_string(), insns))
        .collect();
    layers.sort_by_key(|(name, insns)| (std::cmp::Reverse(*insns), name.clone()));
    (functions, layers)
}

/// Whether a function is on the way down to a node.
pub(crate) fn has_ancestor(recording: &Recording, node: NodeId, function: FunctionId) -> bool {
    let mut above = recording.nodes[node as usize].parent;
    while let Some(id) = above {
        let ancestor = recording.nodes[id as usize];
        if ancestor.function == function {
            return true;
        }
        above = ancestor.parent;
    }
    false
}

/// What costs are in: instructions or nanoseconds.
pub fn unit(recording: &Recording) -> String {
    recording
        .environment
        .get(env::UNIT)
        .map_or_else(|| "instructions".into(), |unit| printable(unit, 40))
}

/// What happened in the windows of an arm that was no packet's work, by context.
pub fn other_work(recording: &Recording, arm: usize) -> BTreeMap<Context, u64> {
    class(recording, arm, Direction::Other).contexts
}
