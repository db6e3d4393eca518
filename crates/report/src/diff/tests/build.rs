//! A recording from paths and the cost of each packet there.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::recording::{
    Arm, Block, Cost, Function, FunctionId, Ledger, Node, NodeId, Recording, env,
};

use crate::diff::arms::{self, Pairs};
use crate::diff::{
    ClassDiff, Counts, Diff, DiffRow, ExactVerdict, Judged, Sides, Verdict, compare,
};

/// Packets of a block.
pub(super) const PACKETS: u64 = 200;
pub(super) const RX: Context = Context::Softirq(Softirq::NetRx);

pub(super) struct Build(pub(super) Recording);

pub(super) fn arm(name: &str, proto: Proto) -> Arm {
    Arm {
        name: name.into(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::from([("kernel".into(), "debian".into())]),
        made: None,
    }
}

impl Build {
    /// One UDP arm on some kernel, with blocks.
    pub(super) fn udp(kernel: &str, blocks: u32) -> Build {
        Build::with(kernel, vec![arm("udp", Proto::Udp)], blocks)
    }

    /// Some arms, each with this number of blocks.
    pub(super) fn with(kernel: &str, arms: Vec<Arm>, blocks: u32) -> Build {
        let environment = [
            (env::CLOCK, "exact"),
            (env::UNIT, "instructions"),
            (env::QUICK, "no"),
            (env::PLUMB, "0.1.0"),
            (env::KERNEL, kernel),
            (env::KERNEL_HASH, kernel),
            (env::MITIGATIONS, "off"),
            (env::QEMU, "7.2.22"),
            (env::CPU, "max"),
            (env::REP, "each repetition counts as one"),
        ];
        let mut made = Vec::new();
        for index in 0..blocks {
            for arm in 0..arms.len() as u32 {
                made.push(Block {
                    arm,
                    instrument: "exact".into(),
                    index,
                    ledger: Ledger {
                        offered: PACKETS,
                        delivered: PACKETS,
                        dropped: BTreeMap::new(),
                    },
                    totals: Vec::new(),
                    entered: 0,
                    returned: 0,
                    duration_ns: 0,
                });
            }
        }
        Build(Recording {
            environment: environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            arms,
            blocks: made,
            complete: true,
            ..Recording::default()
        })
    }

    /// A function; `name [module]` is one of a module.
    pub(super) fn function(&mut self, text: &str) -> FunctionId {
        let (name, module) = match text.split_once(" [") {
            Some((name, module)) => (name, Some(module.trim_end_matches(']').to_string())),
            None => (text, None),
        };
        let functions = &mut self.0.functions;
        let known = functions.iter().position(|f| f.name == name && f.module == module);
        known.unwrap_or_else(|| {
            functions.push(Function {
                name: name.into(),
                module,
                layer: Some(if name.starts_with("udp") { "transport" } else { "network" }.into()),
                address: 0x1000 * functions.len() as u64,
                size_bytes: 0x100,
                source: None,
            });
            functions.len() - 1
        }) as FunctionId
    }

    /// The node at the end of a path, "a/b/c".
    pub(super) fn node(&mut self, path: &str) -> NodeId {
        let mut parent = None;
        for name in path.split('/') {
            let function = self.function(name);
            let node = Node { parent, function, tail: false };
            let nodes = &mut self.0.nodes;
            let id = nodes.iter().position(|n| *n == node).unwrap_or_else(|| {
                nodes.push(node);
                nodes.len() - 1
            });
            parent = Some(id as NodeId);
        }
        parent.unwrap()
    }

    /// A cost in one block, in all.
    pub(super) fn once(
        &mut self,
        block: u32,
        path: &str,
        calls: u64,
        self_insns: u64,
    ) -> &mut Self {
        self.cost(block, Direction::Tx, Context::Task, path, calls, self_insns)
    }

    pub(super) fn cost(
        &mut self,
        block: u32,
        direction: Direction,
        context: Context,
        path: &str,
        calls: u64,
        self_insns: u64,
    ) -> &mut Self {
        let node = self.node(path);
        self.0.costs.push(Cost {
            quantity: 0,
            block,
            direction,
            context,
            node,
            calls,
            own: self_insns,
        });
        self
    }

    /// The cost of every packet of an arm at a path, called once: sending, in the
    /// task.
    pub(super) fn each(&mut self, arm: u32, path: &str, insns: u64) -> &mut Self {
        self.every(arm, Direction::Tx, Context::Task, path, insns)
    }

    pub(super) fn every(
        &mut self,
        arm: u32,
        direction: Direction,
        context: Context,
        path: &str,
        insns: u64,
    ) -> &mut Self {
        for block in 0..self.0.blocks.len() as u32 {
            if self.0.blocks[block as usize].arm == arm {
                let packets = self.0.blocks[block as usize].ledger.offered;
                self.cost(block, direction, context, path, packets, packets * insns);
            }
        }
        self
    }

    /// Sending, by path and instructions: one UDP arm with five blocks.
    pub(super) fn send(kernel: &str, paths: &[(&str, u64)]) -> Recording {
        let mut build = Build::udp(kernel, 5);
        for (path, insns) in paths {
            build.each(0, path, *insns);
        }
        build.0
    }
}

/// All arms of two recordings, paired.
pub(super) fn diff<'a>(before: &'a Recording, after: &'a Recording) -> Diff<'a> {
    let all = |r: &Recording| (0..r.arms.len()).collect::<Vec<_>>();
    let pairs = arms::pair((&before.arms, all(before)), (&after.arms, all(after)));
    paired(before, after, &pairs)
}

pub(super) fn paired<'a>(before: &'a Recording, after: &'a Recording, pairs: &Pairs) -> Diff<'a> {
    let sides = Sides { before, after, before_name: "a.plumb", after_name: "b.plumb" };
    compare(sides, pairs, &[])
}

/// The exact comparison's results for a class.
pub(super) fn counted(class: &ClassDiff) -> &ExactVerdict {
    class.counted.as_ref().unwrap()
}

/// The exact verdict on a row.
pub(super) fn verdict(row: &DiffRow) -> Verdict {
    match row.judged {
        Judged::Exactly(_, verdict) => verdict,
        Judged::Statistically(_) => panic!("judged by blocks"),
    }
}

/// The row of a function by its name after, in a class.
pub(super) fn row<'d>(class: &'d ClassDiff, name: &str) -> &'d DiffRow {
    class.functions.iter().find(|row| row.name == name).unwrap()
}

/// And its sums.
pub(super) fn change<'d>(class: &'d ClassDiff, name: &str) -> &'d Counts {
    row(class, name).counts.as_ref().unwrap()
}
