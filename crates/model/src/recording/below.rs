//! The part of a recording below a function: what it executes and all that it calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Cost, Function, FunctionId, Node, NodeId, Recording, env};
use crate::chain;
use crate::span::{Call, Span, SpanOf};

impl Recording {
    /// The recording below a function, or below a [`chain`] of them: its outermost calls, in any calling context, are
    /// one tree that begins with it. Calls and costs are as they were, so the root's calls are the function's, without
    /// recursive ones. Several functions of the name have a tree each. Blocks keep their totals, so that costs are now
    /// only a part of them. A direction that a block measured has a cost of 0 if nothing is below the function: that is
    /// known, too.
    ///
    /// Everything that has no place on the tree is left out: times of single samples, stages, per-packet traces, source
    /// lines, and the experiment's claims about the whole. The environment has the function ([`env::BELOW`]).
    pub fn below(&self, chain: &str) -> Recording {
        let mut part = Recording {
            blocks: self.blocks.clone(),
            scalars: self.scalars.clone(),
            experiment_toml: String::new(),
            nodes: Vec::new(),
            threads: Vec::new(),
            trace_texts: Vec::new(),
            ..self.without_blocks()
        };
        part.environment.insert(env::BELOW.into(), chain::chain_text(chain));
        let nodes = part.plant(self, &chain::below(self, chain));
        let mut costs: BTreeMap<_, Cost> = BTreeMap::new();
        for cost in &self.costs {
            let Some(node) = nodes.get(cost.node as usize).copied().flatten() else {
                continue;
            };
            let place = (cost.block, cost.quantity, cost.direction, cost.context, node);
            let sum = costs.entry(place).or_insert(Cost { node, calls: 0, own: 0, ..*cost });
            sum.calls = sum.calls.saturating_add(cost.calls);
            sum.own = sum.own.saturating_add(cost.own);
        }
        part.costs = costs.into_values().collect();
        part.add_nothing(self, chain);
        let mut spans: BTreeMap<_, Span> = BTreeMap::new();
        for (span, call) in self.calls() {
            let Some(node) = nodes.get(call.node as usize).copied().flatten() else {
                continue;
            };
            let call = Call { node, ..*call };
            let place = (span.block, span.direction, call.context, node);
            match spans.get_mut(&place) {
                Some(known) => {
                    known.times.add(&span.times);
                    if let SpanOf::Call(sum) = &mut known.of {
                        sum.corrected_ns += call.corrected_ns;
                        sum.uncertainty_ns += call.uncertainty_ns;
                    }
                }
                None => {
                    let of = SpanOf::Call(call);
                    spans.insert(place, Span { of, ..span.clone() });
                }
            }
        }
        part.spans = spans.into_values().collect();
        part
    }

    /// The function that this is the part below of, if it is one: "skb_dequeue below usbnet_bh" of a
    /// chain.
    pub fn root(&self) -> Option<&str> {
        self.environment.get(env::BELOW).map(String::as_str)
    }

    /// Add costs of 0 where another recording has costs, and this part of it has none.
    fn add_nothing(&mut self, other: &Recording, chain: &str) {
        let place = |cost: &Cost| (cost.block, cost.quantity, cost.direction);
        let has: BTreeSet<_> = self.costs.iter().map(place).collect();
        let all = other.costs.iter().map(|cost| (place(cost), cost.context));
        let mut none: BTreeMap<_, _> = all.filter(|(place, _)| !has.contains(place)).collect();
        // A context that the part has anyway.
        let known = self.costs.first().map(|cost| cost.context);
        none.values_mut().for_each(|context| *context = known.unwrap_or(*context));
        if none.is_empty() {
            return;
        }
        let node = self.root_node(chain);
        let costs = none.into_iter().map(|((block, quantity, direction), context)| Cost {
            block,
            quantity,
            direction,
            context,
            node,
            calls: 0,
            own: 0,
        });
        self.costs.extend(costs);
        self.costs.sort_by_key(|c| (c.block, c.quantity, c.direction, c.context, c.node));
    }

    /// A root of the tree: the first, or a node of the last function of a chain.
    fn root_node(&mut self, chain: &str) -> NodeId {
        if let Some(first) = self.nodes.iter().position(|node| node.parent.is_none()) {
            return first as NodeId;
        }
        let name = chain::names(chain).next_back().unwrap_or_default();
        let known = self.functions.iter().position(|f| f.name == name);
        let function = known.unwrap_or_else(|| {
            self.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            self.functions.len() - 1
        });
        self.nodes.push(Node { parent: None, function: function as FunctionId, tail: false });
        self.nodes.len() as NodeId - 1
    }

    /// Add those nodes of another recording that are below something. By node of the other one:
    /// which node it is here.
    fn plant(&mut self, other: &Recording, below: &[bool]) -> Vec<Option<NodeId>> {
        let mut known: HashMap<Node, NodeId> = HashMap::new();
        let mut planted: Vec<Option<NodeId>> = Vec::with_capacity(other.nodes.len());
        for (node, below) in other.nodes.iter().zip(below) {
            if !below {
                planted.push(None);
                continue;
            }
            // A parent comes before its children.
            let parent = node.parent.and_then(|p| planted.get(p as usize).copied()?);
            let here = Node {
                parent,
                // The tree begins with a root, however it was entered.
                tail: node.tail && parent.is_some(),
                ..*node
            };
            let id = *known.entry(here).or_insert_with(|| {
                self.nodes.push(here);
                self.nodes.len() as NodeId - 1
            });
            planted.push(Some(id));
        }
        planted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Context, Direction, Softirq};
    use crate::span::Times;
    use crate::timing::INSTRUCTIONS;

    /// Functions of the tree below.
    const BH: FunctionId = 1;
    const DEQUEUE: FunctionId = 2;

    /// `bh` in two places, and within itself; `dequeue` below it and elsewhere.
    fn recording() -> Recording {
        let mut recording = Recording::default();
        let quantity = recording.quantity(&INSTRUCTIONS);
        recording.functions = ["tasklet_action", "bh", "dequeue"]
            .map(|name| Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            })
            .to_vec();
        let node = |parent, function| Node { parent, function, tail: function == BH };
        recording.nodes = vec![
            node(None, 0),
            node(Some(0), BH),
            node(Some(1), DEQUEUE),
            node(None, BH),
            node(Some(3), DEQUEUE),
            node(Some(4), BH),
            node(Some(5), DEQUEUE),
            node(Some(0), DEQUEUE),
        ];
        let softirq = Context::Softirq(Softirq::NetRx);
        for (node, context, calls, own) in [
            (0, Context::Task, 1, 1_000),
            (1, Context::Task, 1, 10),
            (2, Context::Task, 2, 20),
            (3, Context::Task, 4, 40),
            (3, softirq, 5, 50),
            (4, softirq, 6, 60),
            (5, softirq, 7, 70),
            (6, softirq, 8, 80),
            (7, Context::Task, 9, 2_000),
        ] {
            recording.costs.push(Cost {
                block: 0,
                quantity,
                direction: Direction::Rx,
                context,
                node,
                calls,
                own,
            });
        }
        recording
    }

    /// Check that all outermost calls of a function are one tree that begins with it, with the sums
    /// of its calls and costs, by context; and that recursion stays below the first call.
    #[test]
    fn outermost_calls_are_one_tree() {
        let part = recording().below("bh");
        let functions: Vec<(Option<NodeId>, FunctionId, bool)> =
            (part.nodes.iter()).map(|n| (n.parent, n.function, n.tail)).collect();
        assert_eq!(
            functions,
            [
                (None, BH, false),
                (Some(0), DEQUEUE, false),
                (Some(1), BH, true),
                (Some(2), DEQUEUE, false),
            ]
        );
        let softirq = Context::Softirq(Softirq::NetRx);
        let sums: Vec<_> =
            (part.costs.iter()).map(|c| (c.context, c.node, c.calls, c.own)).collect();
        assert_eq!(
            sums,
            [
                (Context::Task, 0, 5, 50),
                (Context::Task, 1, 2, 20),
                (softirq, 0, 5, 50),
                (softirq, 1, 6, 60),
                (softirq, 2, 7, 70),
                (softirq, 3, 8, 80),
            ]
        );
        assert_eq!(part.root(), Some("bh"));
        assert_eq!(recording().root(), None);
        // A chain: the callees of `dequeue` where `bh` called it.
        let of_it = recording().below("bh;dequeue");
        assert_eq!(of_it.root(), Some("dequeue below bh"));
        let own: u64 = of_it.costs.iter().map(|c| c.own).sum();
        assert_eq!(own, 20 + 60 + 70 + 80);
        // A measured block without the function has a cost of 0 there.
        let none = recording().below("none");
        let costs: Vec<_> =
            (none.costs.iter()).map(|c| (c.block, c.direction, c.calls, c.own)).collect();
        assert_eq!(costs, [(0, Direction::Rx, 0, 0)]);
        let [node] = none.nodes[..] else {
            panic!("{:?}", none.nodes);
        };
        assert_eq!(none.functions[node.function as usize].name, "none");
    }

    /// Check that times of a function in several places are one distribution.
    #[test]
    fn times_add_up() {
        let mut recording = recording();
        for (node, ns) in [(1, 100), (3, 300), (0, 900)] {
            recording.spans.push(Span {
                block: 0,
                direction: Direction::Rx,
                of: SpanOf::Call(Call {
                    context: Context::Task,
                    node,
                    corrected_ns: ns as f64 - 10.0,
                    uncertainty_ns: 1.0,
                }),
                times: Times {
                    count: 1,
                    total_ns: ns,
                    min_ns: ns,
                    max_ns: ns,
                    buckets: Vec::new(),
                },
            });
        }
        let part = recording.below("bh");
        let [span] = &part.spans[..] else {
            panic!("{:?}", part.spans);
        };
        assert_eq!((span.times.count, span.times.total_ns), (2, 400));
        assert_eq!((span.times.min_ns, span.times.max_ns), (100, 300));
        let call = span.call().unwrap();
        assert_eq!((call.node, call.corrected_ns), (0, 380.0));
    }
}
