//! From a recording's costs to what tables show: per arm and direction, sums by
//! layer, context and function, self and inclusive.

use std::collections::BTreeMap;

use netplumb_model::class::{Class, Context, Direction, Proto};
use netplumb_model::hosts::PAYLOAD;
use netplumb_model::quantity::{Calls, Quantity, QuantityId, Repeats, Scalar};
use netplumb_model::recording::{Arm, Cost, FunctionId, NodeId, Recording};
use netplumb_model::symbol::base_name;
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, SAMPLED};
use netplumb_stats::welch::Mean;

use crate::number::{per_packet, printable};
use crate::per::{self, Per, offered};
use crate::table::Value;
use crate::times::{ns, rounded};

/// Bytes of a KiB.
const KIB: u64 = 1 << 10;
/// Letters of a unit.
const UNIT_LETTERS: usize = 40;

/// What a function without a layer is listed under.
pub const NO_LAYER: &str = "(no layer)";

/// One arm and direction, summed over its blocks.
#[derive(Debug, Clone)]
pub struct ClassView<'a> {
    /// The recording that the class is part of.
    pub recording: &'a Recording,
    /// Index of the arm.
    pub arm: usize,
    /// Protocol and direction.
    pub class: Class,
    /// The quantity that its costs are in.
    pub quantity: Quantity,
    /// Indexes of its blocks in [`Recording::blocks`].
    pub blocks: Vec<u32>,
    /// What its sums are shared by.
    pub per: Per,
    /// Packets offered, over all blocks; of forwarding, those that were forwarded.
    pub packets: u64,
    /// Between two hosts: the bytes of payload that these carried.
    pub payload_bytes: Option<u64>,
    /// Number of blocks whose packets are not all accounted for: their figures per packet
    /// mean nothing.
    pub invalid: usize,
    /// The cost, over all blocks.
    pub total: u64,
    /// The cost of each block.
    pub by_block: Vec<u64>,
    /// By context.
    pub contexts: BTreeMap<Context, u64>,
    /// By layer, the largest first.
    pub layers: Vec<(String, u64)>,
    /// By function, the largest self cost first.
    pub functions: Vec<FunctionView>,
    /// By node: calls, self, inclusive.
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// How often the recording's root function was called from elsewhere, if there is one.
    pub root_calls: Option<u64>,
    /// Each function's own cost in each block, if costs vary.
    pub(crate) spread: BTreeMap<FunctionId, Vec<u64>>,
}

/// One function of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionView {
    /// Index in [`Recording::functions`].
    pub function: FunctionId,
    /// Times entered.
    pub calls: u64,
    /// Instructions of its own.
    pub self_insns: u64,
    /// Its own instructions and its callees'.
    pub inclusive_insns: u64,
}

/// One node of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Times entered.
    pub calls: u64,
    /// The number of samples in its subtree, if it was sampled.
    pub(crate) samples_below: u64,
    /// Instructions of its own.
    pub self_insns: u64,
    /// Instructions of its subtree, itself included.
    pub inclusive_insns: u64,
}

impl ClassView<'_> {
    /// The recording's arm with index `self.arm`.
    pub fn arm(&self) -> &Arm {
        &self.recording.arms[self.arm]
    }

    /// The layer of a function, or [`NO_LAYER`].
    pub fn layer(&self, function: FunctionId) -> &str {
        self.recording.functions[function as usize].layer.as_deref().unwrap_or(NO_LAYER)
    }

    /// The name of a function.
    pub fn name(&self, function: FunctionId) -> &str {
        &self.recording.functions[function as usize].name
    }

    /// Whether the same costs the same in every run.
    pub fn is_exact(&self) -> bool {
        self.quantity.repeats == Repeats::Exactly
    }

    /// Whether it was sampled: then calls are numbers of samples.
    pub(crate) fn is_sampled(&self) -> bool {
        self.quantity.calls == Calls::Samples
    }

    /// A cost's share of one packet, run or second.
    pub(crate) fn each(&self, sum: u64) -> Value {
        match self.quantity.unit.as_str() {
            _ if self.is_exact() => Value::Each(sum, self.packets),
            "ns" => Value::Ns(self.per.each(sum as f64)),
            _ => Value::Number(self.per.each(sum as f64)),
        }
    }

    /// The same as text, without its unit.
    pub(crate) fn cost_text(&self, sum: u64) -> String {
        match self.quantity.unit.as_str() {
            _ if self.is_exact() => per_packet(sum, self.packets),
            "ns" => ns(self.per.each(sum as f64)),
            _ => rounded(self.per.each(sum as f64)),
        }
    }

    /// The same with its unit.
    pub(crate) fn with_unit(&self, sum: u64) -> String {
        let text = self.cost_text(sum);
        match self.quantity.unit.as_str() {
            // A long time has its unit already.
            "ns" if text.ends_with('s') => text,
            unit => format!("{text} {}", printable(unit, UNIT_LETTERS)),
        }
    }

    /// A cost's share of a KiB of payload; none where there is none.
    pub(crate) fn per_kib(&self, sum: u64) -> Option<Value> {
        let bytes = self.payload_bytes?;
        Some(Value::Each(sum.saturating_mul(KIB), bytes))
    }

    /// The same as text.
    pub(crate) fn cost_per_kib_text(&self, sum: u64) -> Option<String> {
        let bytes = self.payload_bytes?;
        Some(per_packet(sum.saturating_mul(KIB), bytes))
    }

    /// Calls of each packet, run or second; samples in all.
    pub(crate) fn calls(&self, calls: u64) -> Value {
        match (self.is_sampled(), self.is_exact()) {
            (true, _) => Value::Count(calls),
            (_, true) => Value::Each(calls, self.packets),
            _ => Value::Number(self.per.each(calls as f64)),
        }
    }

    /// What the sums of each of its blocks are shared by.
    pub(crate) fn per_by_block(&self) -> Vec<Per> {
        let one = |block: &u32| {
            let packets = match self.packets {
                0 => 0,
                _ => offered(self.recording, &[*block]),
            };
            Per::from_recording(self.recording, self.class.proto, &[*block], packets)
        };
        self.blocks.iter().map(one).collect()
    }

    /// A cost of each of its blocks, as the mean over these, with its interval.
    pub(crate) fn mean(&self, by_block: &[u64]) -> Option<Mean> {
        let per = self.per_by_block();
        let each: Vec<f64> =
            (per.iter().zip(by_block)).map(|(per, sum)| per.each(*sum as f64)).collect();
        Mean::from_values(&each)
    }

    /// A function's own cost as such a mean; none if costs do not vary.
    pub(crate) fn mean_of(&self, function: FunctionId) -> Option<Mean> {
        self.mean(self.spread.get(&function)?)
    }

    /// Instructions of a layer.
    pub fn layer_insns(&self, layer: &str) -> u64 {
        self.layers.iter().find(|(name, _)| name == layer).map_or(0, |(_, insns)| *insns)
    }

    /// The functions of a layer, or all.
    pub fn functions_of<'s>(
        &'s self,
        layer: Option<&'s str>,
    ) -> impl Iterator<Item = &'s FunctionView> {
        self.functions.iter().filter(move |f| layer.is_none_or(|l| self.layer(f.function) == l))
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

/// Whether costs of a direction are shown as a class. Work for no packet is not, except in a recording
/// of one function's costs, which has all of them.
pub(crate) fn is_class(recording: &Recording, direction: Direction) -> bool {
    direction != Direction::Other || recording.root().is_some()
}

/// Every arm and direction that has packets of its own: `other` is left out, except below a
/// function.
pub fn classes(recording: &Recording) -> Vec<ClassView<'_>> {
    let mut views = measured(recording);
    views.retain(|view| view.total > 0);
    views
}

/// The same, including classes known to have no cost below the recording's root function.
pub(crate) fn measured(recording: &Recording) -> Vec<ClassView<'_>> {
    let mut views = Vec::new();
    // A scan has hundreds of arms: pass each its own costs only.
    let mut costs: Vec<Vec<&Cost>> = vec![Vec::new(); recording.arms.len()];
    for cost in &recording.costs {
        let block = recording.blocks.get(cost.block as usize);
        if let Some(of) = block.and_then(|b| costs.get_mut(b.arm as usize)) {
            of.push(cost);
        }
    }
    for (arm, costs) in costs.iter().enumerate() {
        for &direction in Direction::ALL {
            if !is_class(recording, direction) {
                continue;
            }
            let view = class_of(recording, arm, direction, costs);
            let has_none = recording.root().is_some() && !view.contexts.is_empty();
            if view.total > 0 || has_none {
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
    let mut packets = offered(recording, &blocks);
    let payload_bytes = payload(recording, &blocks);
    let invalid = blocks.iter().filter(|b| !recording.blocks[**b as usize].ledger.closes()).count();
    let mut by_block: BTreeMap<u32, u64> = blocks.iter().map(|b| (*b, 0)).collect();
    let mut contexts = BTreeMap::new();
    // By id, not in a map: a recording of samples may have very many nodes.
    let mut nodes: Vec<Option<NodeView>> = vec![None; recording.nodes.len()];
    let mut total = 0;
    let number = costs.first().map(|c| c.quantity);
    let quantity = quantity_of(recording, number);
    let is_exact = quantity.repeats == Repeats::Exactly;
    let places: BTreeMap<u32, usize> = blocks.iter().enumerate().map(|(n, b)| (*b, n)).collect();
    let mut spread: BTreeMap<FunctionId, Vec<u64>> = BTreeMap::new();
    let is_of = |c: &&&Cost| c.direction == direction && Some(c.quantity) == number;
    let of_connections = is_of_connections(&recording.arms[arm]);
    if direction == Direction::Forward && is_exact && !of_connections && recording.root().is_none()
    {
        let own = costs.iter().filter(is_of).copied();
        let own = own.filter(|cost| places.contains_key(&cost.block));
        let forwarded: u64 = per::forwarded(recording, own).into_values().sum();
        // Packets sent, where forwarded ones can't be counted.
        packets = if forwarded > 0 { forwarded } else { packets };
    }
    for cost in costs.iter().filter(is_of) {
        let Some(block) = by_block.get_mut(&cost.block) else {
            continue;
        };
        *block += cost.own;
        if !is_exact {
            let function = recording.nodes[cost.node as usize].function;
            let of = spread.entry(function).or_insert_with(|| vec![0; blocks.len()]);
            of[places[&cost.block]] += cost.own;
        }
        *contexts.entry(cost.context).or_default() += cost.own;
        total += cost.own;
        let node = nodes[cost.node as usize].get_or_insert_default();
        node.calls += cost.calls;
        node.self_insns += cost.own;
        // Ancestors without a cost of their own still have their subtree's. If a node is
        // there, so are its ancestors.
        let mut above = recording.nodes[cost.node as usize].parent;
        while let Some(id) = above {
            if nodes[id as usize].is_some() {
                break;
            }
            nodes[id as usize] = Some(NodeView::default());
            above = recording.nodes[id as usize].parent;
        }
    }
    // A parent's id is below its children's.
    for id in (0..nodes.len()).rev() {
        let Some(node) = &mut nodes[id] else {
            continue;
        };
        node.inclusive_insns += node.self_insns;
        node.samples_below += node.calls;
        let (inclusive, samples) = (node.inclusive_insns, node.samples_below);
        let parent = recording.nodes[id].parent;
        if let Some(node) = parent.and_then(|parent| nodes[parent as usize].as_mut()) {
            node.inclusive_insns += inclusive;
            node.samples_below += samples;
        }
    }
    let nodes = (0..).zip(nodes);
    let nodes: BTreeMap<NodeId, NodeView> = nodes.filter_map(|(id, of)| Some((id, of?))).collect();
    let (functions, layers) = sums(recording, &nodes);
    ClassView {
        recording,
        arm,
        class: Class { proto: recording.arms[arm].proto, direction },
        per: match is_exact {
            true if recording.arms[arm].proto == Proto::Command => Per::Run(packets),
            true if of_connections => Per::Connection(packets),
            true => Per::Packet(packets),
            false => Per::from_recording(recording, recording.arms[arm].proto, &blocks, packets),
        },
        quantity,
        blocks,
        packets,
        payload_bytes,
        invalid,
        total,
        by_block: by_block.into_values().collect(),
        contexts,
        layers,
        functions,
        root_calls: recording.root().map(|_| {
            let roots = nodes.iter().filter(|(id, _)| {
                let node = recording.nodes[**id as usize];
                node.parent.is_none()
            });
            roots.map(|(_, node)| node.calls).sum()
        }),
        nodes,
        spread,
    }
}

/// Whether each packet of an arm has a TCP connection of its own.
pub(crate) fn is_of_connections(arm: &Arm) -> bool {
    arm.proto == Proto::Tcp && arm.is_on("new_flows")
}

/// The bytes of payload of some blocks, where two hosts were counted.
fn payload(recording: &Recording, blocks: &[u32]) -> Option<u64> {
    let of_blocks = |scalar: &&Scalar| scalar.block().is_some_and(|b| blocks.contains(&b));
    let scalars = recording.scalars_of(&PAYLOAD).filter(of_blocks);
    let bytes: u64 = scalars.map(|scalar| scalar.value as u64).sum();
    (bytes > 0).then_some(bytes)
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
        let layer = recording.functions[function as usize].layer.as_deref().unwrap_or(NO_LAYER);
        *layers.entry(layer).or_default() += node.self_insns;
    }
    let mut functions: Vec<FunctionView> =
        functions.into_values().filter(|f| f.inclusive_insns > 0).collect();
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

/// The quantity of a recording's costs: the first cost's.
pub(crate) fn quantity(recording: &Recording) -> Quantity {
    quantity_of(recording, recording.costs.first().map(|c| c.quantity))
}

/// A quantity of costs. Without costs, the quantity of the totals that they would add up to;
/// without totals, instructions, once the only quantity.
fn quantity_of(recording: &Recording, number: Option<QuantityId>) -> Quantity {
    let totals = || recording.blocks.iter().flat_map(|block| &block.totals);
    let number = number.or_else(|| totals().next().map(|total| total.quantity));
    let known = number.and_then(|n| recording.quantities.get(n as usize));
    known.cloned().unwrap_or_else(|| (&INSTRUCTIONS).into())
}

/// The name of a quantity that its unit does not identify: a recording has two kinds of samples of
/// instructions.
pub(crate) fn name_beside_unit(quantity: &Quantity) -> Option<&str> {
    let sampled = [&SAMPLED, &DEFERRED].iter().any(|of| quantity.is(of));
    sampled.then_some(&quantity.name)
}

/// The unit of costs: instructions or nanoseconds.
pub fn unit(recording: &Recording) -> String {
    printable(&quantity(recording).unit, UNIT_LETTERS)
}

/// An arm's cost in the measured windows that was not any packet's work, by context.
pub fn other_work(recording: &Recording, arm: usize) -> BTreeMap<Context, u64> {
    class(recording, arm, Direction::Other).contexts
}

/// Own instructions by name, without the suffixes of compilers' clones.
pub(crate) fn functions<'v>(view: &'v ClassView<'_>) -> BTreeMap<&'v str, u64> {
    let mut functions = BTreeMap::new();
    for function in &view.functions {
        *functions.entry(base_name(view.name(function.function))).or_default() +=
            function.self_insns;
    }
    functions
}
