//! The union of two calling-context trees: nodes by their calling path, with equal
//! functions merged.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Context;
use netplumb_model::recording::{FunctionId, NodeId};

use super::functions::{Functions, JointId};
use super::side::{Side, Sum};

/// A node of either tree, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnionNode {
    /// Index of the caller's node, less than its own.
    pub parent: Option<u32>,
    /// Index among the joint functions of both sides.
    pub function: JointId,
    /// Its own cost before.
    pub before: Sum,
    /// And after.
    pub after: Sum,
    /// Instructions of its subtree before.
    pub inclusive_before: u64,
    /// And after.
    pub inclusive_after: u64,
    /// Whether no caller is the same function: recursion counts once.
    pub outermost: bool,
}

/// The tree of one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnionTree {
    /// Whose time it was.
    pub context: Context,
    /// A parent before its children.
    pub nodes: Vec<UnionNode>,
}

/// The trees of a class, one for each context of either side.
pub(super) fn unite(
    before: Option<&Side<'_>>,
    after: Option<&Side<'_>>,
    functions: &Functions,
) -> Vec<UnionTree> {
    let sides = || before.into_iter().chain(after);
    let mut contexts: Vec<Context> = sides().flat_map(|s| s.nodes.keys().copied()).collect();
    contexts.sort_unstable();
    contexts.dedup();
    contexts
        .into_iter()
        .map(|context| {
            let mut builder = Builder::default();
            if let Some(side) = before {
                builder.add(side, context, &functions.before, |node| &mut node.before);
            }
            if let Some(side) = after {
                builder.add(side, context, &functions.after, |node| &mut node.after);
            }
            UnionTree { context, nodes: builder.finish() }
        })
        .collect()
}

#[derive(Default)]
struct Builder {
    nodes: Vec<UnionNode>,
    by_path: BTreeMap<(Option<u32>, JointId), u32>,
}

impl Builder {
    fn add(
        &mut self,
        side: &Side<'_>,
        context: Context,
        joints: &BTreeMap<FunctionId, JointId>,
        sum_of: impl Fn(&mut UnionNode) -> &mut Sum,
    ) {
        let mut united: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut within: BTreeSet<NodeId> = BTreeSet::new();
        let of_parent = |id: NodeId| {
            let parent = side.recording.nodes[id as usize].parent?;
            Some(side.recording.nodes[parent as usize].function)
        };
        for (id, sum) in side.nodes.get(&context).into_iter().flatten() {
            // Up to a known node, and down again: callers without a cost of their
            // own are nodes too.
            let mut path = Vec::new();
            let mut next = Some(*id);
            while let Some(id) = next.filter(|id| !united.contains_key(id)) {
                path.push(id);
                next = side.recording.nodes[id as usize].parent;
            }
            let mut parent = next.map(|id| united[&id]);
            for id in path.into_iter().rev() {
                let raw = side.recording.nodes[id as usize].function;
                let function = joints[&raw];
                // One implementation that jumped to another is one call of the function.
                if let Some(above) = parent
                    && self.nodes[above as usize].function == function
                    && of_parent(id) != Some(raw)
                {
                    united.insert(id, above);
                    within.insert(id);
                    continue;
                }
                let node = *self.by_path.entry((parent, function)).or_insert_with(|| {
                    self.nodes.push(UnionNode {
                        parent,
                        function,
                        before: Sum::default(),
                        after: Sum::default(),
                        inclusive_before: 0,
                        inclusive_after: 0,
                        outermost: true,
                    });
                    (self.nodes.len() - 1) as u32
                });
                united.insert(id, node);
                parent = Some(node);
            }
            let mut sum = *sum;
            if within.contains(id) {
                sum.calls = 0;
            }
            sum_of(&mut self.nodes[united[id] as usize]).add(sum);
        }
    }

    fn finish(mut self) -> Vec<UnionNode> {
        for n in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[n];
            node.inclusive_before = node.inclusive_before.saturating_add(node.before.self_insns);
            node.inclusive_after = node.inclusive_after.saturating_add(node.after.self_insns);
            let node = *node;
            if let Some(parent) = node.parent {
                let parent = &mut self.nodes[parent as usize];
                parent.inclusive_before =
                    parent.inclusive_before.saturating_add(node.inclusive_before);
                parent.inclusive_after =
                    parent.inclusive_after.saturating_add(node.inclusive_after);
            }
        }
        for n in 0..self.nodes.len() {
            let mut above = self.nodes[n].parent;
            while let Some(id) = above {
                let caller = self.nodes[id as usize];
                if caller.function == self.nodes[n].function {
                    self.nodes[n].outermost = false;
                    break;
                }
                above = caller.parent;
            }
        }
        self.nodes
    }
}
