//! Functions whose names are found out late. Those that have one name then are one function, and their nodes
//! in one place are one node.

use std::collections::{BTreeMap, HashMap};

use super::{Cost, FunctionId, Node, NodeId, Recording, Samples};
use crate::span::SpanOf;

/// A function's identity in a recording: its name and its module.
pub type FunctionKey = (String, Option<String>);

impl Recording {
    /// Rename functions and their modules; returns whether any matched.
    pub fn rename(&mut self, names: &HashMap<FunctionKey, FunctionKey>) -> bool {
        let key = |f: &super::Function| (f.name.clone(), f.module.clone());
        if !self.functions.iter().any(|f| names.contains_key(&key(f))) {
            return false;
        }
        let mut known: HashMap<FunctionKey, FunctionId> = HashMap::new();
        let mut functions = Vec::new();
        let mut ids: Vec<FunctionId> = Vec::new();
        for mut function in std::mem::take(&mut self.functions) {
            if let Some(is) = names.get(&key(&function)) {
                (function.name, function.module) = is.clone();
            }
            let next = functions.len() as FunctionId;
            let id = *known.entry(key(&function)).or_insert(next);
            if id == next {
                functions.push(function);
            }
            ids.push(id);
        }
        self.functions = functions;
        self.renumber_functions(|id| ids.get(id as usize).copied().unwrap_or(id));
        self.join_nodes();
        true
    }

    fn renumber_functions(&mut self, new: impl Fn(FunctionId) -> FunctionId) {
        let of_nodes = self.nodes.iter_mut().map(|node| &mut node.function);
        let of_code = self.code.iter_mut().map(|code| &mut code.function);
        let of_attachments = self.attachments.iter_mut().map(|of| &mut of.function);
        for id in of_nodes.chain(of_code).chain(of_attachments) {
            *id = new(*id);
        }
        let mut lines = BTreeMap::new();
        for mut cost in std::mem::take(&mut self.line_costs) {
            cost.function = new(cost.function);
            let key = (cost.block, cost.function, cost.source);
            let sum = lines.entry(key).or_insert(super::LineCost { own: 0, ..cost });
            sum.own += cost.own;
        }
        self.line_costs = lines.into_values().collect();
    }

    /// Make nodes of one function in one place one node.
    fn join_nodes(&mut self) {
        let mut known: HashMap<Node, NodeId> = HashMap::new();
        let mut nodes = Vec::new();
        let mut ids: Vec<NodeId> = Vec::new();
        for mut node in std::mem::take(&mut self.nodes) {
            node.parent = node.parent.and_then(|at| ids.get(at as usize).copied());
            let next = nodes.len() as NodeId;
            let id = *known.entry(node).or_insert(next);
            if id == next {
                nodes.push(node);
            }
            ids.push(id);
        }
        self.nodes = nodes;
        let new = |id: NodeId| ids.get(id as usize).copied().unwrap_or(id);
        let mut costs: BTreeMap<_, Cost> = BTreeMap::new();
        for mut cost in std::mem::take(&mut self.costs) {
            cost.node = new(cost.node);
            let key = (cost.block, cost.quantity, cost.direction, cost.context, cost.node);
            costs
                .entry(key)
                .and_modify(|sum| {
                    sum.calls += cost.calls;
                    sum.own += cost.own;
                })
                .or_insert(cost);
        }
        self.costs = costs.into_values().collect();
        for samples in &mut self.samples {
            let singles: Vec<_> = samples.iter().collect();
            let singles = singles.into_iter().map(|mut sample| {
                sample.node = new(sample.node);
                sample
            });
            *samples = Samples::new(samples.block, samples.quantity, singles);
        }
        for span in &mut self.spans {
            if let SpanOf::Call(call) = &mut span.of {
                call.node = new(call.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{Context, Direction};
    use crate::samples::Sample;
    use crate::tree::Function;

    /// Check that functions which have one name in the end are one, with their nodes, costs and samples, and
    /// that others stay as they are.
    #[test]
    fn become_one() {
        let function = |name: &str| Function {
            name: name.into(),
            module: Some("[anon]".into()),
            layer: None,
            address: 0,
            size_bytes: 0,
            source: None,
        };
        let node = |parent, function| Node { parent, function, tail: false };
        // Below main, at two places of one function; both call leaf.
        let mut recording = Recording {
            functions: ["main", "[1]", "[2]", "leaf"].map(function).into(),
            nodes: vec![
                node(None, 0),
                node(Some(0), 1),
                node(Some(1), 3),
                node(Some(0), 2),
                node(Some(3), 3),
            ],
            ..Recording::default()
        };
        let cost = |block, node| Cost {
            block,
            quantity: 0,
            direction: Direction::Other,
            context: Context::Task,
            node,
            calls: 1,
            own: 10 + u64::from(node),
        };
        recording.costs = vec![cost(0, 0), cost(0, 2), cost(0, 4), cost(1, 3)];
        let sample = |node| Sample {
            time_ns: u64::from(node),
            thread: 0,
            cpu: 0,
            node,
            direction: Direction::Other,
            context: Context::Task,
            weight: 1,
        };
        recording.samples = vec![Samples::new(0, 0, [2, 4].map(sample))];
        let anon = |name: &str| (name.to_owned(), Some("[anon]".to_owned()));
        let made = ("made".to_owned(), Some("[JIT]".to_owned()));
        let before = recording.clone();
        assert!(!recording.rename(&HashMap::from([(anon("[3]"), made.clone())])));
        assert_eq!(recording, before);
        let names = ["[1]", "[2]", "[3]"].map(|was| (anon(was), made.clone()));
        assert!(recording.rename(&HashMap::from(names)));
        let known: Vec<_> =
            (recording.functions.iter()).map(|f| (f.name.as_str(), f.module.as_deref())).collect();
        let anon = Some("[anon]");
        assert_eq!(known, [("main", anon), ("made", Some("[JIT]")), ("leaf", anon)]);
        let nodes = [node(None, 0), node(Some(0), 1), node(Some(1), 2)];
        assert_eq!(recording.nodes, nodes);
        let costs: Vec<_> =
            (recording.costs.iter()).map(|c| (c.block, c.node, c.calls, c.own)).collect();
        assert_eq!(costs, [(0, 0, 1, 10), (0, 2, 2, 26), (1, 1, 1, 13)]);
        let of_samples: Vec<_> = recording.samples[0].iter().map(|s| s.node).collect();
        assert_eq!(of_samples, [2, 2]);
    }
}
