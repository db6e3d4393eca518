//! Finds functions and nodes of a recording by content, to avoid duplicates.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::{
    Cost, Function, FunctionId, MAX_NAME_BYTES, Node, NodeId, Recording,
};

/// The index of a recording, over all guests.
#[derive(Debug, Default)]
pub(crate) struct Index {
    functions: HashMap<(String, Option<String>), FunctionId>,
    nodes: HashMap<Node, NodeId>,
}

impl Index {
    /// The id of a node, which is added if it is new.
    pub(crate) fn node(&mut self, recording: &mut Recording, new: Node) -> NodeId {
        *self.nodes.entry(new).or_insert_with(|| {
            recording.nodes.push(new);
            (recording.nodes.len() - 1) as NodeId
        })
    }

    /// The id of a function that the recording has.
    pub(crate) fn function(&self, name: &str, module: Option<&str>) -> Option<FunctionId> {
        let key = (bounded(name.into()), module.map(String::from));
        self.functions.get(&key).copied()
    }

    /// The index of an existing recording.
    pub(crate) fn from_recording(recording: &Recording) -> Index {
        let key = |f: &Function| (f.name.clone(), f.module.clone());
        Index {
            functions: (0..).zip(&recording.functions).map(|(id, f)| (key(f), id)).collect(),
            nodes: (0..).zip(&recording.nodes).map(|(id, n)| (*n, id)).collect(),
        }
    }
}

/// The id of a function, which is added if it is new.
pub(crate) fn known(recording: &mut Recording, index: &mut Index, mut new: Function) -> FunctionId {
    new.name = bounded(new.name);
    *index.functions.entry((new.name.clone(), new.module.clone())).or_insert_with(|| {
        recording.functions.push(new);
        (recording.functions.len() - 1) as FunctionId
    })
}

/// Add the costs of a block. Static functions of one name are one function of the recording, so
/// several nodes may have become one: their costs are added up.
pub(crate) fn add_costs(recording: &mut Recording, new: impl Iterator<Item = Cost>) {
    let mut sums: BTreeMap<(Direction, Context, NodeId), Cost> = BTreeMap::new();
    for cost in new {
        let key = (cost.direction, cost.context, cost.node);
        (sums.entry(key))
            .and_modify(|sum| {
                sum.calls += cost.calls;
                sum.own += cost.own;
            })
            .or_insert(cost);
    }
    recording.costs.extend(sums.into_values());
}

/// A name of limited length: of a longer one, as templates make them, the beginning and a hash.
pub(crate) fn bounded(name: String) -> String {
    const MARK_BYTES: usize = 32;
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let end = name.floor_char_boundary(MAX_NAME_BYTES - MARK_BYTES);
    format!("{}…{hash:016x}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names too long for a recording are shortened, and stay unique.
    #[test]
    fn long_names_differ() {
        let long = |end: &str| bounded("é".repeat(MAX_NAME_BYTES) + end);
        assert!(long("a").len() <= MAX_NAME_BYTES);
        assert_ne!(long("a"), long("b"));
        assert_eq!(bounded("udp_rcv".into()), "udp_rcv");
    }
}
