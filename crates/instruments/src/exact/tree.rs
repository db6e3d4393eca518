//! The calling-context tree: one node for each path to a function.

use netplumb_model::recording::NodeId;
use rustc_hash::FxHashMap;

/// A function as the accountant knows it: an index into the symbol table, or
/// [`UNKNOWN`].
pub type Symbol = u32;

/// Code that no symbol covers: compiled BPF, or a module that came late.
pub const UNKNOWN: Symbol = u32::MAX;

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeNode {
    /// The caller's node.
    pub parent: Option<NodeId>,
    /// The function, by its number among the kernel's or the programs' symbols.
    pub symbol: Symbol,
    /// Whether it was jumped to.
    pub tail: bool,
}

/// Nodes, numbered as they are first seen: a parent before its children.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<TreeNode>,
    index: FxHashMap<TreeNode, NodeId>,
}

impl Tree {
    /// The node of `symbol` below `parent`.
    pub fn child(&mut self, parent: Option<NodeId>, symbol: Symbol, tail: bool) -> NodeId {
        let node = TreeNode { parent, symbol, tail };
        *self.index.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            (self.nodes.len() - 1) as NodeId
        })
    }

    /// The node of `symbol` below `parent`, if there is one.
    pub(super) fn known(
        &self,
        parent: Option<NodeId>,
        symbol: Symbol,
        tail: bool,
    ) -> Option<NodeId> {
        let node = TreeNode { parent, symbol, tail };
        self.index.get(&node).copied()
    }

    /// All nodes, by id.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }
}
