//! The call graph as an indented tree, and the callers and callees of one function.

use std::collections::BTreeMap;

use netplumb_model::recording::{FunctionId, NodeId};

use crate::analysis::{ClassView, has_ancestor};
use crate::number::{counted, percent, printable};
use crate::summary::label;
use crate::table::{Column, Room, Table, Value};

/// Deeper than any kernel stack; a recording from elsewhere can't make us recurse
/// without end.
const MAX_DEPTH: usize = 200;
/// Names are cut to this...
const NAME_LETTERS: usize = 60;
/// ...and beside the figures of a tree to this.
const LINE_LETTERS: usize = 52;

/// The tree of a class, without nodes below `min_percent` of it. With a layer, only
/// its functions, each under the nearest caller that is also in it. Nodes of one
/// function under one parent are one line.
pub fn render(class: &ClassView<'_>, layer: Option<&str>, min_percent: f64) -> String {
    let calls = class.quantity.calls.title();
    let mut out = format!("    share  inclusive       self {calls:>8}  function\n");
    let mut tree = TreeWriter { class, below: below(class), layer, min_percent, hidden: 0 };
    let roots = tree.shown(&tree.below.get(&None).cloned().unwrap_or_default());
    for root in &roots {
        tree.write(root, 0, &mut out);
    }
    if tree.hidden > 0 {
        out.push_str(&format!(
            "  ({} of less than {min_percent}% of the path left out)\n",
            counted(tree.hidden, "branch")
        ));
    }
    out
}

/// Children by parent: searching for them at every node would be slow.
fn below(class: &ClassView<'_>) -> BTreeMap<Option<NodeId>, Vec<NodeId>> {
    let mut children: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
    for id in class.nodes.keys() {
        children.entry(class.recording.nodes[*id as usize].parent).or_default().push(*id);
    }
    children
}

struct TreeWriter<'a> {
    class: &'a ClassView<'a>,
    below: BTreeMap<Option<NodeId>, Vec<NodeId>>,
    layer: Option<&'a str>,
    min_percent: f64,
    hidden: usize,
}

/// Nodes that are one line.
struct TreeLine {
    function: FunctionId,
    nodes: Vec<NodeId>,
    tail: bool,
    calls: u64,
    self_insns: u64,
    inclusive_insns: u64,
}

impl TreeWriter<'_> {
    /// The lines of some nodes: the nodes or, where a layer hides them, the nearest
    /// ones below.
    fn shown(&self, nodes: &[NodeId]) -> Vec<TreeLine> {
        let mut lines: Vec<TreeLine> = Vec::new();
        let mut left: Vec<NodeId> = nodes.to_vec();
        while let Some(id) = left.pop() {
            let node = self.class.recording.nodes[id as usize];
            if self.layer.is_some_and(|l| self.class.layer(node.function) != l) {
                left.extend(self.below.get(&Some(id)).into_iter().flatten());
                continue;
            }
            let view = self.class.nodes[&id];
            let line = match lines.iter_mut().find(|l| l.function == node.function) {
                Some(line) => line,
                None => {
                    lines.push(TreeLine {
                        function: node.function,
                        nodes: Vec::new(),
                        tail: true,
                        calls: 0,
                        self_insns: 0,
                        inclusive_insns: 0,
                    });
                    let last = lines.len() - 1;
                    &mut lines[last]
                }
            };
            line.nodes.push(id);
            line.tail &= node.tail;
            line.calls += view.calls;
            line.self_insns += view.self_insns;
            line.inclusive_insns += view.inclusive_insns;
        }
        // Ancestors of another class's work, without cost in this one.
        lines.retain(|l| l.inclusive_insns > 0);
        lines.sort_by_key(|l| (std::cmp::Reverse(l.inclusive_insns), l.function));
        lines
    }

    fn write(&mut self, line: &TreeLine, depth: usize, out: &mut String) {
        let class = self.class;
        if percent(line.inclusive_insns, class.total) < self.min_percent || depth > MAX_DEPTH {
            self.hidden += 1;
            return;
        }
        out.push_str(&format!(
            " {:>7.2}% {:>10} {:>10} {:>8}  {}{}{}\n",
            percent(line.inclusive_insns, class.total),
            class.cost_text(line.inclusive_insns),
            class.cost_text(line.self_insns),
            class.calls(line.calls).cell_text(),
            "  ".repeat(depth.min(40)),
            printable(class.name(line.function), LINE_LETTERS),
            if line.tail { " (jump)" } else { "" }
        ));
        let children: Vec<NodeId> = line
            .nodes
            .iter()
            .flat_map(|id| self.below.get(&Some(*id)).into_iter().flatten())
            .copied()
            .collect();
        for child in &self.shown(&children) {
            self.write(child, depth + 1, out);
        }
    }
}

/// A function's callers and callees in a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Focus {
    /// The function in the middle.
    pub function: FunctionId,
    /// Its callers: calls, and its inclusive instructions on their behalf. None where a
    /// context began with it.
    pub callers: Vec<(Option<FunctionId>, u64, u64)>,
    /// Its callees: calls, and their inclusive instructions on its behalf.
    pub callees: Vec<(FunctionId, u64, u64)>,
}

/// The callers and callees of a function.
pub fn focus(class: &ClassView<'_>, function: FunctionId) -> Focus {
    let mut callers: BTreeMap<Option<FunctionId>, (u64, u64)> = BTreeMap::new();
    let mut callees: BTreeMap<FunctionId, (u64, u64)> = BTreeMap::new();
    let nodes = &class.recording.nodes;
    for (id, view) in &class.nodes {
        let node = nodes[*id as usize];
        let caller = node.parent.map(|p| nodes[p as usize].function);
        let edges = [
            (node.function == function).then(|| callers.entry(caller).or_default()),
            (caller == Some(function)).then(|| callees.entry(node.function).or_default()),
        ];
        // Recursion counts once, where it began.
        let outermost =
            edges.iter().any(Option::is_some) && !has_ancestor(class.recording, *id, node.function);
        for edge in edges.into_iter().flatten() {
            edge.0 += view.calls;
            if outermost {
                edge.1 += view.inclusive_insns;
            }
        }
    }
    let mut callers: Vec<_> = callers.into_iter().map(|(f, (c, i))| (f, c, i)).collect();
    let mut callees: Vec<_> = callees.into_iter().map(|(f, (c, i))| (f, c, i)).collect();
    callers.sort_by_key(|(f, _, insns)| (std::cmp::Reverse(*insns), *f));
    callees.sort_by_key(|(f, _, insns)| (std::cmp::Reverse(*insns), *f));
    Focus { function, callers, callees }
}

/// A line of it.
struct Edge {
    side: &'static str,
    name: String,
    calls: u64,
    own: Option<u64>,
    inclusive: u64,
}

/// The same, as text.
pub fn render_focus(class: &ClassView<'_>, function: FunctionId, columns: usize) -> String {
    let Some(own) = class.functions.iter().find(|f| f.function == function) else {
        return format!("{}  does not get to {}\n", label(class), class.name(function));
    };
    let around = focus(class, function);
    let edge = |side, name: &str, calls, inclusive| Edge {
        side,
        name: name.into(),
        calls,
        own: None,
        inclusive,
    };
    let callers = around.callers.iter().map(|(caller, calls, insns)| {
        let name = caller.map_or("(a context begins)", |f| class.name(f));
        edge("from", name, *calls, *insns)
    });
    let itself = Edge {
        own: Some(own.self_insns),
        ..edge("->", class.name(function), own.calls, own.inclusive_insns)
    };
    let callees = around
        .callees
        .iter()
        .map(|(callee, calls, insns)| edge("to", class.name(*callee), *calls, *insns));
    let all = vec![
        Column::text("", |e: &Edge| e.side.into()).people(0),
        Column::code("function", |e: &Edge| Value::Name(e.name.clone(), None)).people(1),
        Column::figure(class.quantity.calls.title(), |e: &Edge| class.calls(e.calls)).people(2),
        Column::figure("self", |e: &Edge| {
            e.own.map_or(Value::Text(String::new()), |own| class.each(own))
        })
        .people(3),
        Column::figure("inclusive", |e: &Edge| class.each(e.inclusive)).people(4),
    ];
    let table = Table::new(all, callers.chain([itself]).chain(callees));
    let place = crate::source::definition(class.recording, function);
    let place = place.map_or_else(String::new, |place| format!("  defined at {place}"));
    let table = table.terminal(Room::new(columns, NAME_LETTERS));
    format!("{}{place}\n{table}", label(class))
}
