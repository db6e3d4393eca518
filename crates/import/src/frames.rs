//! The places in code that stacks are made of, and the tree that stacks make.

use rustc_hash::FxHashMap;

use crate::spaces::FileId;

/// Where code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The threads of this name, which calls begin in.
    Thread(u32),
    /// An address of the kernel.
    Kernel(u64),
    /// An offset in a file that was mapped.
    File(FileId, u64),
    /// Where nothing was mapped.
    Nowhere,
    /// The kernel or a program of a guest, or a hypervisor.
    Elsewhere,
}

/// A node of the tree: a place below its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) parent: Option<u32>,
    pub(crate) frame: u32,
}

/// Places and nodes, each once.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    frames: FxHashMap<Place, u32>,
    places: Vec<Place>,
    children: FxHashMap<Node, u32>,
    nodes: Vec<Node>,
}

impl Tree {
    /// The node of a place below another one.
    pub(crate) fn node(&mut self, parent: Option<u32>, place: Place) -> u32 {
        let frame = *self.frames.entry(place).or_insert_with(|| {
            self.places.push(place);
            self.places.len() as u32 - 1
        });
        let node = Node { parent, frame };
        *self.children.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        })
    }

    /// All places and nodes.
    pub(crate) fn into_parts(self) -> (Vec<Place>, Vec<Node>) {
        (self.places, self.nodes)
    }
}
