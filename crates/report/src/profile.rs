//! The basis for the formats of other tools: the costs of each class by context,
//! as trees, and names that their readers accept.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::{FunctionId, NodeId, Recording, env};

use crate::analysis::ClassView;
use crate::number::printable;
use crate::trust::common::{arms_of, values_of_arms};

/// Letters of a name: longer than any real symbol of a kernel.
pub(crate) const NAME_LIMIT: usize = 200;
/// Frames of a stack. A kernel's have some tens; deeper ones, which only a made-up
/// recording has, lose those in the middle, so that output does not grow with the
/// square of the input.
pub(crate) const MAX_FRAMES: usize = 256;
/// Stands for the frames that were left out.
pub(crate) const ELIDED: &str = "(frames left out)";

/// One class in one context, summed over its blocks.
#[derive(Debug)]
pub(crate) struct ProfilePart<'a> {
    pub(crate) class: &'a ClassView<'a>,
    /// Its index among the given classes.
    pub(crate) class_index: usize,
    /// Whose time it was.
    pub(crate) context: Context,
    /// Its nodes, each after its parent.
    pub(crate) rows: Vec<ProfileNode>,
}

/// A node of one part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProfileNode {
    /// Row of the caller; none where the context began.
    pub(crate) parent: Option<usize>,
    pub(crate) function: FunctionId,
    /// Times entered.
    pub(crate) calls: u64,
    /// Instructions of its own.
    pub(crate) self_insns: u64,
    /// Instructions of its subtree, itself included.
    pub(crate) inclusive_insns: u64,
    /// Frames above it.
    pub(crate) depth: usize,
    /// The last row above it that a stack has before frames are left out; itself,
    /// if none is.
    anchor: usize,
}

impl ProfilePart<'_> {
    /// The functions of a stack from its leaf up; none where frames were left out.
    pub(crate) fn stack(&self, row: usize) -> Vec<Option<FunctionId>> {
        let mut stack = vec![Some(self.rows[row].function)];
        let mut above = match self.rows[row].anchor {
            anchor if anchor == row => self.rows[row].parent,
            anchor => {
                stack.push(None);
                Some(anchor)
            }
        };
        while let Some(row) = above {
            stack.push(Some(self.rows[row].function));
            above = self.rows[row].parent;
        }
        stack
    }
}

/// The parts of some classes of one recording, in their order, by context.
pub(crate) fn parts<'a>(classes: &'a [ClassView<'a>]) -> Vec<ProfilePart<'a>> {
    let Some(recording) = classes.first().map(|c| c.recording) else {
        return Vec::new();
    };
    let places: HashMap<(usize, Direction), usize> =
        classes.iter().enumerate().map(|(n, c)| ((c.arm, c.class.direction), n)).collect();
    let mut sums: BTreeMap<(usize, Context), BTreeMap<NodeId, (u64, u64)>> = BTreeMap::new();
    for cost in &recording.costs {
        let arm = recording.blocks[cost.block as usize].arm as usize;
        let Some(&place) = places.get(&(arm, cost.direction)) else {
            continue;
        };
        let nodes = sums.entry((place, cost.context)).or_default();
        let node = match nodes.get_mut(&cost.node) {
            Some(node) => node,
            None => {
                // Callers without a cost of their own; above one that is there,
                // all are.
                let mut above = recording.nodes[cost.node as usize].parent;
                while let Some(id) = above {
                    if nodes.contains_key(&id) {
                        break;
                    }
                    nodes.insert(id, (0, 0));
                    above = recording.nodes[id as usize].parent;
                }
                nodes.entry(cost.node).or_default()
            }
        };
        node.0 += cost.calls;
        node.1 += cost.own;
    }
    sums.into_iter()
        .map(|((place, context), nodes)| ProfilePart {
            class: &classes[place],
            class_index: place,
            context,
            rows: rows(&classes[place], nodes),
        })
        .collect()
}

fn rows(class: &ClassView<'_>, nodes: BTreeMap<NodeId, (u64, u64)>) -> Vec<ProfileNode> {
    let mut at: HashMap<NodeId, usize> = HashMap::with_capacity(nodes.len());
    let mut rows: Vec<ProfileNode> = Vec::with_capacity(nodes.len());
    // By id: a parent's is below its children's.
    for (id, (calls, self_insns)) in nodes {
        let node = class.recording.nodes[id as usize];
        let row = rows.len();
        let parent = node.parent.and_then(|p| at.get(&p).copied());
        let up = |row: usize| rows[row].parent.unwrap_or(row);
        let (depth, anchor) = match parent {
            None => (0, row),
            Some(p) if rows[p].depth + 1 < MAX_FRAMES => (rows[p].depth + 1, row),
            // Room for the leaf, and for the elided frame.
            Some(p) if rows[p].anchor == p => (MAX_FRAMES, up(up(p))),
            Some(p) => (rows[p].depth + 1, rows[p].anchor),
        };
        at.insert(id, row);
        rows.push(ProfileNode {
            parent,
            function: node.function,
            calls,
            self_insns,
            inclusive_insns: self_insns,
            depth,
            anchor,
        });
    }
    for row in (0..rows.len()).rev() {
        if let Some(parent) = rows[row].parent {
            rows[parent].inclusive_insns += rows[row].inclusive_insns;
        }
    }
    rows
}

/// A tree of frames: rows of one frame below one parent are one.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Each after its parent.
    pub(crate) nodes: Vec<FrameNode>,
}

/// A frame of such a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameNode {
    /// The frame above it.
    pub(crate) parent: Option<usize>,
    /// Its number, as assigned by the caller.
    pub(crate) frame: usize,
    /// Instructions of its own.
    pub(crate) self_insns: u64,
    /// Instructions of its subtree, itself included.
    pub(crate) inclusive_insns: u64,
}

impl Frames {
    /// From a part, with `frame` to number functions, and `elided` for the frame that
    /// replaces frames left out.
    pub(crate) fn from_part(
        part: &ProfilePart<'_>,
        frame: impl Fn(FunctionId) -> usize,
        elided: usize,
    ) -> Self {
        let mut known: HashMap<(Option<usize>, usize), usize> = HashMap::new();
        let mut nodes: Vec<FrameNode> = Vec::new();
        let mut node_of_row: Vec<usize> = Vec::with_capacity(part.rows.len());
        let mut add = |nodes: &mut Vec<FrameNode>, parent, frame| {
            *known.entry((parent, frame)).or_insert_with(|| {
                nodes.push(FrameNode { parent, frame, self_insns: 0, inclusive_insns: 0 });
                nodes.len() - 1
            })
        };
        for (n, row) in part.rows.iter().enumerate() {
            let parent = if row.anchor == n {
                row.parent.map(|p| node_of_row[p])
            } else {
                let anchor = node_of_row[row.anchor];
                Some(add(&mut nodes, Some(anchor), elided))
            };
            let node = add(&mut nodes, parent, frame(row.function));
            nodes[node].self_insns += row.self_insns;
            node_of_row.push(node);
        }
        for n in (0..nodes.len()).rev() {
            nodes[n].inclusive_insns += nodes[n].self_insns;
            if let Some(parent) = nodes[n].parent {
                nodes[parent].inclusive_insns += nodes[n].inclusive_insns;
            }
        }
        Frames { nodes }
    }

    /// Goes through the tree, a parent before its children, the siblings sorted by
    /// `key`. Calls `visit` once on entering a node (`true`) and once on leaving it.
    pub(crate) fn walk<K: Ord>(
        &self,
        key: impl Fn(&FrameNode) -> K,
        mut visit: impl FnMut(&FrameNode, bool),
    ) {
        let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (n, node) in self.nodes.iter().enumerate() {
            below.entry(node.parent).or_default().push(n);
        }
        for siblings in below.values_mut() {
            // The last is taken first.
            siblings.sort_by(|a, b| key(&self.nodes[*b]).cmp(&key(&self.nodes[*a])));
        }
        let mut path: Vec<Option<usize>> = vec![None];
        while let Some(&on) = path.last() {
            match below.get_mut(&on).and_then(Vec::pop) {
                Some(child) => {
                    visit(&self.nodes[child], true);
                    path.push(Some(child));
                }
                None => {
                    if let Some(left) = on {
                        visit(&self.nodes[left], false);
                    }
                    path.pop();
                }
            }
        }
    }
}

/// A name that other tools accept: on one line, of bounded length, and not empty.
pub(crate) fn tame(name: &str) -> String {
    match printable(name, NAME_LIMIT) {
        // Empty names are read as references, or not at all.
        name if name.trim().is_empty() => "?".into(),
        name => name,
    }
}

/// The conditions of the measurement, one a line: only facts that decide the
/// figures, since readers print them above every table.
pub(crate) fn conditions(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<String> {
    const KEYS: [&str; 12] = [
        env::NAME,
        env::UNIT,
        env::QUICK,
        env::KERNEL,
        env::KERNEL_HASH,
        env::CMDLINE,
        env::MITIGATIONS,
        env::QEMU,
        env::CPU,
        env::REP,
        env::PLUMB,
        env::BELOW,
    ];
    let shown = arms_of(recording, classes);
    KEYS.iter()
        .flat_map(|key| {
            let values = values_of_arms(recording, &shown, key).into_iter();
            values.map(move |value| format!("{key}: {}", printable(value, 1_000)))
        })
        .collect()
}
