//! Windows of an accountant, gathered into a recording.
//!
//! Several guests may contribute to one recording, each with a symbol table and
//! a tree of its own; functions are the same if their name and module are.

use std::collections::HashMap;

use netplumb_instruments::exact::{Symbol, TreeNode, UNKNOWN, Window};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::recording::{
    Block, Cost, Function, FunctionId, Ledger, Node, NodeId, Recording,
};

/// The name of code that no symbol covers.
pub(crate) const UNKNOWN_NAME: &str = "[unknown]";

/// What of the recording is known by content, over all guests.
#[derive(Debug, Default)]
pub(crate) struct Index {
    functions: HashMap<(String, Option<String>), FunctionId>,
    nodes: HashMap<Node, NodeId>,
}

/// One guest's numbers, as the recording's.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    symbols: HashMap<Symbol, FunctionId>,
    nodes: Vec<NodeId>,
}

impl Translation {
    /// Take in nodes that the accountant has added.
    pub(crate) fn add_nodes(
        &mut self,
        recording: &mut Recording,
        index: &mut Index,
        symbols: &SymbolTable,
        layers: &LayerRules,
        nodes: &[TreeNode],
    ) {
        for node in nodes {
            let function = *self
                .symbols
                .entry(node.symbol)
                .or_insert_with(|| function(recording, index, symbols, layers, node.symbol));
            let new = Node {
                // A parent comes before its children, so it is translated.
                parent: node.parent.map(|p| self.nodes[p as usize]),
                function,
                tail: node.tail,
            };
            let id = *index.nodes.entry(new).or_insert_with(|| {
                recording.nodes.push(new);
                (recording.nodes.len() - 1) as NodeId
            });
            self.nodes.push(id);
        }
    }

    /// Add a block and its costs.
    pub(crate) fn add_block(
        &self,
        recording: &mut Recording,
        arm: u32,
        index: u32,
        window: &Window,
        ledger: Ledger,
    ) {
        let block = recording.blocks.len() as u32;
        recording.blocks.push(Block {
            arm,
            index,
            ledger,
            kernel_insns: window.kernel_insns,
            user_insns: window.user_insns,
            entered: window.entered,
            returned: window.returned,
        });
        recording.costs.extend(window.costs.iter().map(|c| Cost {
            block,
            direction: c.direction,
            context: c.context,
            node: self.nodes[c.node as usize],
            calls: c.calls,
            self_insns: c.insns,
        }));
    }
}

fn function(
    recording: &mut Recording,
    index: &mut Index,
    symbols: &SymbolTable,
    layers: &LayerRules,
    symbol: Symbol,
) -> FunctionId {
    let new = if symbol == UNKNOWN {
        Function {
            name: UNKNOWN_NAME.into(),
            module: None,
            layer: None,
            address: 0,
            size_bytes: 0,
        }
    } else {
        let symbol = &symbols.symbols()[symbol as usize];
        Function {
            name: symbol.name.clone(),
            module: symbol.module.clone(),
            layer: layers
                .layer(&symbol.name, symbol.module.as_deref())
                .map(String::from),
            address: symbol.addr,
            size_bytes: symbol.size,
        }
    };
    *index
        .functions
        .entry((new.name.clone(), new.module.clone()))
        .or_insert_with(|| {
            recording.functions.push(new);
            (recording.functions.len() - 1) as FunctionId
        })
}
