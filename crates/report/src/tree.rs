//! The call graph as an indented tree, and what is around one function.

use std::collections::BTreeMap;

use comfy_table::Cell;
use netplumb_model::recording::{FunctionId, NodeId};

use crate::analysis::ClassView;
use crate::number::{per_packet, percent, printable};
use crate::terminal::{right, table, trimmed};

/// Deeper than any kernel stack; a recording from elsewhere can't make us recurse
/// without end.
const MAX_DEPTH: usize = 200;

/// The tree of a class, without what is below `min_percent` of it. With a layer,
/// only its functions, each under the nearest caller that is also in it.
pub fn render(class: &ClassView<'_>, layer: Option<&str>, min_percent: f64) -> String {
    let mut out = String::from("   inclusive       self    calls  function\n");
    let mut hidden = 0;
    let below = Index::new(class);
    for root in below.of(None) {
        write(class, &below, *root, layer, 0, min_percent, &mut out, &mut hidden);
    }
    if hidden > 0 {
        out.push_str(&format!(
            "  ({hidden} branches of less than {min_percent}% of the path are left out)\n"
        ));
    }
    out
}

/// Children by parent: looking for them anew at every node would be slow.
struct Index {
    children: BTreeMap<Option<NodeId>, Vec<NodeId>>,
}

impl Index {
    fn new(class: &ClassView<'_>) -> Self {
        let mut children: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for id in class.nodes.keys() {
            children.entry(class.recording.nodes[*id as usize].parent).or_default().push(*id);
        }
        for list in children.values_mut() {
            list.sort_by_key(|id| (std::cmp::Reverse(class.nodes[id].inclusive_insns), *id));
        }
        Index { children }
    }

    fn of(&self, parent: Option<NodeId>) -> &[NodeId] {
        self.children.get(&parent).map_or(&[], Vec::as_slice)
    }
}

#[allow(clippy::too_many_arguments)]
fn write(
    class: &ClassView<'_>,
    below: &Index,
    id: NodeId,
    layer: Option<&str>,
    depth: usize,
    min_percent: f64,
    out: &mut String,
    hidden: &mut usize,
) {
    let node = class.nodes[&id];
    if percent(node.inclusive_insns, class.total) < min_percent || depth > MAX_DEPTH {
        *hidden += 1;
        return;
    }
    let function = class.recording.nodes[id as usize].function;
    let shown = layer.is_none_or(|l| class.layer(function) == l);
    if shown {
        out.push_str(&format!(
            "  {:>10} {:>10} {:>8}  {}{}{}\n",
            per_packet(node.inclusive_insns, class.packets),
            per_packet(node.self_insns, class.packets),
            per_packet(node.calls, class.packets),
            "  ".repeat(depth.min(40)),
            printable(class.name(function), 60),
            if class.recording.nodes[id as usize].tail { " (jump)" } else { "" }
        ));
    }
    for child in below.of(Some(id)) {
        let depth = if shown { depth + 1 } else { depth };
        write(class, below, *child, layer, depth, min_percent, out, hidden);
    }
}

/// A function's callers and callees in a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Focus {
    /// The function.
    pub function: FunctionId,
    /// Who called it: calls, and its inclusive instructions on their behalf. None
    /// where a context began with it.
    pub callers: Vec<(Option<FunctionId>, u64, u64)>,
    /// Whom it called: calls, and their inclusive instructions on its behalf.
    pub callees: Vec<(FunctionId, u64, u64)>,
}

/// What is around a function.
pub fn focus(class: &ClassView<'_>, function: FunctionId) -> Focus {
    let mut callers: BTreeMap<Option<FunctionId>, (u64, u64)> = BTreeMap::new();
    let mut callees: BTreeMap<FunctionId, (u64, u64)> = BTreeMap::new();
    let nodes = &class.recording.nodes;
    for (id, view) in &class.nodes {
        let node = nodes[*id as usize];
        let caller = node.parent.map(|p| nodes[p as usize].function);
        if node.function == function {
            let entry = callers.entry(caller).or_default();
            entry.0 += view.calls;
            entry.1 += view.inclusive_insns;
        }
        if caller == Some(function) {
            let entry = callees.entry(node.function).or_default();
            entry.0 += view.calls;
            entry.1 += view.inclusive_insns;
        }
    }
    let mut callers: Vec<_> = callers.into_iter().map(|(f, (c, i))| (f, c, i)).collect();
    let mut callees: Vec<_> = callees.into_iter().map(|(f, (c, i))| (f, c, i)).collect();
    callers.sort_by_key(|(f, _, insns)| (std::cmp::Reverse(*insns), *f));
    callees.sort_by_key(|(f, _, insns)| (std::cmp::Reverse(*insns), *f));
    Focus { function, callers, callees }
}

/// The same, as text.
pub fn render_focus(class: &ClassView<'_>, function: FunctionId, columns: usize) -> String {
    let Some(own) = class.functions.iter().find(|f| f.function == function) else {
        return format!("{}  does not get to {}\n", class.class, class.name(function));
    };
    let packets = class.packets;
    let around = focus(class, function);
    let mut table = table(columns);
    table.set_header(vec![
        Cell::new(""),
        Cell::new("function"),
        right("calls"),
        right("self"),
        right("inclusive"),
    ]);
    for (caller, calls, insns) in &around.callers {
        let name = caller.map_or("(a context begins)", |f| class.name(f));
        table.add_row(vec![
            Cell::new("  from"),
            Cell::new(printable(name, 60)),
            right(per_packet(*calls, packets)),
            right(""),
            right(per_packet(*insns, packets)),
        ]);
    }
    table.add_row(vec![
        Cell::new("  ->"),
        Cell::new(printable(class.name(function), 60)),
        right(per_packet(own.calls, packets)),
        right(per_packet(own.self_insns, packets)),
        right(per_packet(own.inclusive_insns, packets)),
    ]);
    for (callee, calls, insns) in &around.callees {
        table.add_row(vec![
            Cell::new("  to"),
            Cell::new(printable(class.name(*callee), 60)),
            right(per_packet(*calls, packets)),
            right(""),
            right(per_packet(*insns, packets)),
        ]);
    }
    format!("{}\n{}", class.class, trimmed(&table))
}
