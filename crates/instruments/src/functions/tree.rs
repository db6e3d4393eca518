//! Reads the programs' counters as a tree of calling contexts.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Proto, Softirq};
use netplumb_model::span::Times;
use netplumb_model::timing::{Attached, NodeTimes, TimedNode};

use super::layout::{CELL_HEAD, CELL_WORDS, NESTED, Node, cell, direction, node, proto};
use super::runtime::{Memory, Shape};

/// The tree, with the cells' values when the window was opened.
#[derive(Debug)]
pub(super) struct Tree {
    shape: Shape,
    /// By a function's number in the kernel, its index for the user.
    functions: BTreeMap<u32, u32>,
    /// Nodes by their number in the kernel.
    known: Vec<KnownNode>,
    nodes: Vec<TimedNode>,
    /// Nodes that are called within an RCU read section.
    nested: Vec<u32>,
    /// Words of the cells, by CPU and node; grown as nodes are.
    before: Vec<Vec<[u64; CELL_WORDS]>>,
}

/// The node of the result for a node in the kernel.
#[derive(Debug, Clone, Copy)]
struct KnownNode {
    /// Its index among the user's, or the index of the nearest above it.
    index: Option<u32>,
    /// Whether the node itself is there, not only one above it.
    own: bool,
    context: Context,
}

/// The results of a window.
#[derive(Debug, Default)]
pub(super) struct WindowTimes {
    pub(super) nodes: Vec<TimedNode>,
    pub(super) nested: Vec<u32>,
    pub(super) functions: Vec<NodeTimes>,
    /// Calls in contexts that there was no room for.
    pub(super) lost_calls: u64,
}

impl Tree {
    pub(super) fn new(shape: Shape, functions: BTreeMap<u32, u32>) -> Tree {
        Tree {
            shape,
            functions,
            known: (0..node::FIXED).map(root).collect(),
            nodes: Vec::new(),
            nested: Vec::new(),
            before: vec![Vec::new(); shape.cpus as usize],
        }
    }

    /// Add new nodes.
    fn grow(&mut self, memory: &Memory) {
        for id in self.known.len() as u32..memory.node_count() {
            let raw = memory.node(id);
            // It has been allocated, but not filled in yet: wait for the next reading.
            if raw.parent == 0 {
                break;
            }
            let known = self.add(raw);
            self.known.push(known);
        }
    }

    fn add(&mut self, raw: Node) -> KnownNode {
        let above = self.known[raw.parent as usize];
        let Some(&function) = self.functions.get(&raw.function) else {
            // A class, or calibration's.
            return KnownNode { own: false, ..above };
        };
        let (direction, proto) = class(raw.class);
        if raw.hint & NESTED != 0 {
            self.nested.push(self.nodes.len() as u32);
        }
        self.nodes.push(TimedNode {
            parent: above.index,
            function,
            direction,
            proto,
            context: above.context,
        });
        KnownNode { index: Some(self.nodes.len() as u32 - 1), own: true, context: above.context }
    }

    /// What a node in the kernel is for the user, if it is a function.
    pub(super) fn node(&mut self, memory: &Memory, id: u32) -> Option<&TimedNode> {
        self.grow(memory);
        let known = self.known.get(id as usize).filter(|k| k.own)?;
        self.nodes.get(known.index? as usize)
    }

    /// Open a window: earlier counts belong to none.
    pub(super) fn open(&mut self, memory: &Memory) {
        self.grow(memory);
        for cpu in 0..self.shape.cpus {
            let before = &mut self.before[cpu as usize];
            before.resize(self.known.len(), [0; CELL_WORDS]);
            for (id, before) in (0..).zip(before) {
                memory.cell(cpu, id, before);
                memory.forget_extremes(cpu, id);
            }
        }
    }

    /// Close the window: counts since it was opened, or since the last call.
    pub(super) fn close(&mut self, memory: &Memory) -> WindowTimes {
        self.grow(memory);
        let mut seen = WindowTimes {
            nodes: self.nodes.clone(),
            nested: self.nested.clone(),
            ..Default::default()
        };
        let mut sums = Sums::default();
        for (id, known) in (0..).zip(&self.known) {
            if !known.own && id != node::LOST {
                continue;
            }
            sums.clear();
            for cpu in 0..self.shape.cpus {
                let mut now = [0; CELL_WORDS];
                memory.cell(cpu, id, &mut now);
                memory.forget_extremes(cpu, id);
                let before = &mut self.before[cpu as usize];
                sums.add(&now, before.get(id as usize));
                // New ones are at the end, one after the other.
                if before.len() <= id as usize {
                    before.resize(id as usize + 1, [0; CELL_WORDS]);
                }
                before[id as usize] = now;
            }
            let (times, interruptions) = sums.times();
            if id == node::LOST {
                seen.lost_calls = times.count;
            } else if let Some(index) = known.index
                && (times.count > 0 || interruptions > 0)
            {
                seen.functions.push(NodeTimes { node: index, times, interruptions });
            }
        }
        seen.sum_interruptions();
        seen
    }
}

impl WindowTimes {
    /// An interruption was counted in the interrupted function: it interrupted all callers, too.
    fn sum_interruptions(&mut self) {
        let mut all = vec![0; self.nodes.len()];
        for times in &self.functions {
            all[times.node as usize] = times.interruptions;
        }
        for id in (0..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[id].parent {
                all[parent as usize] += all[id];
            }
        }
        for times in &mut self.functions {
            times.interruptions = all[times.node as usize];
        }
    }

    /// Packets, where each was first seen: by protocol, direction and function.
    pub(super) fn ledger(&self, attached: &Attached) -> BTreeMap<String, u64> {
        let mut ledger = BTreeMap::new();
        for times in &self.functions {
            let node = &self.nodes[times.node as usize];
            let above = node.parent.map(|p| &self.nodes[p as usize]);
            let first =
                above.is_none_or(|a| (a.proto, a.direction) != (node.proto, node.direction));
            if let (Some(proto), true) = (node.proto, first) {
                let function = &attached.functions[node.function as usize].name;
                let key = format!("{proto} {} {function}", node.direction);
                *ledger.entry(key).or_insert(0) += times.times.count;
            }
        }
        ledger
    }
}

/// A node's cells of all CPUs, added up.
#[derive(Debug)]
struct Sums {
    words: [u64; CELL_WORDS],
    max_ns: u64,
    min_ns: Option<u64>,
}

impl Default for Sums {
    fn default() -> Self {
        Sums { words: [0; CELL_WORDS], max_ns: 0, min_ns: None }
    }
}

impl Sums {
    fn clear(&mut self) {
        *self = Sums::default();
    }

    fn add(&mut self, now: &[u64; CELL_WORDS], before: Option<&[u64; CELL_WORDS]>) {
        for (word, sum) in self.words.iter_mut().enumerate() {
            // Lost updates can make it slightly less than it was.
            *sum += now[word].saturating_sub(before.map_or(0, |b| b[word]));
        }
        self.max_ns = self.max_ns.max(now[cell::MAX]);
        if now[cell::INVERSE_MIN] > 0 {
            let min = !now[cell::INVERSE_MIN];
            self.min_ns = Some(self.min_ns.map_or(min, |m| m.min(min)));
        }
    }

    fn times(&self) -> (Times, u64) {
        let buckets: Vec<_> = (0..)
            .zip(&self.words[CELL_HEAD..])
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (bucket, *count))
            .collect();
        let times = Times {
            count: buckets.iter().map(|(_, count)| count).sum(),
            total_ns: self.words[cell::TOTAL],
            min_ns: self.min_ns.unwrap_or(0),
            max_ns: self.max_ns,
            buckets,
        };
        (times, self.words[cell::INTERRUPTIONS])
    }
}

/// A node that was there from the beginning.
fn root(id: u32) -> KnownNode {
    let context = match id {
        node::OTHER_TASK => Context::OtherTask,
        node::HARDIRQ => Context::Hardirq,
        _ => (id.checked_sub(node::SOFTIRQ))
            .and_then(|vector| Softirq::ALL.get(vector as usize))
            .map_or(Context::Task, |vector| Context::Softirq(*vector)),
    };
    KnownNode { index: None, own: false, context }
}

/// A class as the programs encode it.
fn class(class: u32) -> (Direction, Option<Proto>) {
    let direction = match class & 7 {
        direction::TX => Direction::Tx,
        direction::RX => Direction::Rx,
        direction::FORWARD => Direction::Forward,
        direction::ECHO => Direction::Echo,
        _ => Direction::Other,
    };
    let proto = match class >> 3 & 3 {
        proto::RAW => Some(Proto::Raw),
        proto::UDP => Some(Proto::Udp),
        proto::TCP => Some(Proto::Tcp),
        _ => None,
    };
    (direction, proto)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that classes are skipped, and contexts and classes inherited.
    #[test]
    fn nodes_are_complete() {
        let mut tree = Tree::new(Shape::new(1, 2), BTreeMap::from([(1, 0), (2, 1)]));
        let raw = |parent, function, class| Node { parent, function, class, hint: 0 };
        let udp_rx = 0x80 | proto::UDP << 3 | direction::RX;
        for node in [
            raw(node::SOFTIRQ + 3, 1, 0),
            raw(16, 40, udp_rx),
            raw(17, 2, udp_rx),
            raw(node::TASK, 2, 0),
        ] {
            let known = tree.add(node);
            tree.known.push(known);
        }
        let all: Vec<_> = tree
            .nodes
            .iter()
            .map(|n| (n.parent, n.function, n.direction, n.proto, n.context))
            .collect();
        let softirq = Context::Softirq(Softirq::NetRx);
        assert_eq!(
            all,
            [
                (None, 0, Direction::Other, None, softirq),
                (Some(0), 1, Direction::Rx, Some(Proto::Udp), softirq),
                (None, 1, Direction::Other, None, Context::Task),
            ]
        );
    }

    /// Check that counts before the window are excluded, and that minimum and maximum are over all
    /// CPUs with calls.
    #[test]
    fn cells_are_added_up() {
        let mut sums = Sums::default();
        let mut before = [0; CELL_WORDS];
        before[cell::TOTAL] = 100;
        before[CELL_HEAD + 20] = 5;
        let mut now = before;
        now[cell::TOTAL] = 150;
        now[cell::MAX] = 30;
        now[cell::INVERSE_MIN] = !20;
        now[CELL_HEAD + 20] = 6;
        now[CELL_HEAD + 30] = 1;
        sums.add(&now, Some(&before));
        sums.add(&[0; CELL_WORDS], None);
        let (times, interruptions) = sums.times();
        assert_eq!(interruptions, 0);
        assert_eq!(
            times,
            Times {
                count: 2,
                total_ns: 50,
                min_ns: 20,
                max_ns: 30,
                buckets: vec![(20, 1), (30, 1)]
            }
        );
    }

    /// Check that an interruption also counts for the callers.
    #[test]
    fn interruptions_are_of_callers_too() {
        let timed = |parent, function| TimedNode {
            parent,
            function,
            direction: Direction::Tx,
            proto: None,
            context: Context::Task,
        };
        let of = |node, interruptions| NodeTimes { node, times: Times::default(), interruptions };
        let mut seen = WindowTimes {
            nodes: vec![timed(None, 0), timed(Some(0), 1), timed(Some(1), 2)],
            functions: vec![of(0, 1), of(1, 0), of(2, 3)],
            ..Default::default()
        };
        seen.sum_interruptions();
        let all: Vec<_> = seen.functions.iter().map(|f| f.interruptions).collect();
        assert_eq!(all, [4, 3, 3]);
    }
}
