//! The places in code that stacks are made of, and the tree that stacks make.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};

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
    /// An address of a process in memory without a file, in which it made code.
    Made(i32, u64),
    /// Where nothing was mapped.
    Nowhere,
    /// The kernel or a program of a guest, or a hypervisor.
    Elsewhere,
}

/// A node of the tree: a place below its callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The number of its caller's node, and [`ROOT`] without one.
    parent: u32,
    pub(crate) frame: u32,
}

/// In the place of a caller's number.
const ROOT: u32 = u32::MAX;

impl Node {
    /// The number of its caller's node.
    pub(crate) fn parent(self) -> Option<u32> {
        (self.parent != ROOT).then_some(self.parent)
    }
}

/// Places and nodes, each once.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    frames: FxHashMap<Place, u32>,
    places: Vec<Place>,
    nodes: Once<Node>,
}

impl Tree {
    /// The node of a place below another one.
    pub(crate) fn node(&mut self, parent: Option<u32>, place: Place) -> u32 {
        let frame = *self.frames.entry(place).or_insert_with(|| {
            self.places.push(place);
            self.places.len() as u32 - 1
        });
        let parent = parent.unwrap_or(ROOT);
        self.nodes.number(Node { parent, frame })
    }

    /// All places and nodes.
    pub(crate) fn into_parts(self) -> (Vec<Place>, Vec<Node>) {
        (self.places, self.nodes.all)
    }
}

/// Values, each once, by number. Of millions of nodes, a map that has them as keys takes three times
/// the memory.
#[derive(Debug)]
pub(crate) struct Once<T> {
    pub(crate) all: Vec<T>,
    numbers: HashTable<u32>,
}

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once { all: Vec::new(), numbers: HashTable::new() }
    }
}

impl<T: Hash + PartialEq> Once<T> {
    /// The number of a value.
    pub(crate) fn number(&mut self, value: T) -> u32 {
        let hash = |value: &T| FxBuildHasher.hash_one(value);
        let all = &mut self.all;
        let found = self.numbers.find(hash(&value), |at| all[*at as usize] == value);
        if let Some(number) = found {
            return *number;
        }
        let number = all.len() as u32;
        let of_value = hash(&value);
        all.push(value);
        self.numbers.insert_unique(of_value, number, |at| hash(&all[*at as usize]));
        number
    }
}
