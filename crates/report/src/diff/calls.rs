//! The call graphs of both sides as one indented text: the inclusive cost of each call before and
//! after, and its share of its side.

use std::collections::BTreeMap;

use netplumb_model::quantity::Calls;

use super::exact::{Delta, PerPacket};
use super::sentence::{figure, signed};
use super::tree::UnionTree;
use super::{Change, ClassDiff, Diff};
use crate::analysis::quantity;
use crate::number::{self, printable};

/// Names are cut to this.
const NAME_LETTERS: usize = 60;
/// Deeper calls are not indented any further...
const MAX_INDENT: usize = 40;
/// ...and the deepest not shown: no kernel's stack is as deep.
const MAX_DEPTH: usize = 200;

/// The graphs of a class, without calls below `min_percent` of either side. `trees` is the class's
/// comparison, judged like exact costs.
pub(super) fn render(trees: &Diff<'_>, class: &ClassDiff, min_percent: f64) -> String {
    let Some(counted) = &class.counted else {
        return String::new();
    };
    // Samples are not calls.
    let sampled = quantity(trees.sides.after).calls == Calls::Samples;
    let calls = if sampled { "" } else { "calls  " };
    let mut out =
        format!("  share before   after      before      after     change  {calls:>13}function\n");
    let mut writer = Writer {
        trees,
        packets: [counted.total.before.packets, counted.total.after.packets],
        total: counted.total,
        sampled,
        min_percent,
        hidden: 0,
    };
    for tree in &class.trees {
        writer.write_tree(tree, &mut out);
    }
    if writer.hidden > 0 {
        let branches = number::counted(writer.hidden, "branch");
        out.push_str(&format!(
            "  ({branches} of less than {min_percent}% of both sides left out)\n"
        ));
    }
    out
}

struct Writer<'a> {
    trees: &'a Diff<'a>,
    packets: [u64; 2],
    total: Change,
    sampled: bool,
    min_percent: f64,
    hidden: usize,
}

/// The figures of a line: inclusive costs, and calls.
struct CallLine<'t> {
    name: &'t str,
    inclusive: [u64; 2],
    calls: Option<[u64; 2]>,
}

impl Writer<'_> {
    fn change(&self, sums: [u64; 2]) -> Change {
        let side = |n: usize| PerPacket { sum: sums[n], packets: self.packets[n] };
        Change { before: side(0), after: side(1) }
    }

    /// Its shares of both sides, in percent.
    fn shares(&self, sums: [u64; 2]) -> [f64; 2] {
        let change = self.change(sums);
        let share = |part: PerPacket, whole: PerPacket| match whole.value() {
            all if all > 0.0 => part.value() * 100.0 / all,
            _ => 0.0,
        };
        [share(change.before, self.total.before), share(change.after, self.total.after)]
    }

    fn line(&self, line: &CallLine<'_>, depth: usize, out: &mut String) {
        let [was, is] = self.shares(line.inclusive);
        let change = self.change(line.inclusive);
        let calls = line.calls.map_or_else(String::new, |calls| {
            let calls = self.change(calls);
            let (was, is) = (figure(calls.before), figure(calls.after));
            match was == is {
                true => is,
                false => format!("{was} \u{2192} {is}"),
            }
        });
        let calls = match self.sampled {
            true => String::new(),
            false => format!("{calls:>11}  "),
        };
        let delta: Delta = change.delta();
        out.push_str(&format!(
            "      {was:>6.2}% {is:>6.2}%  {:>10} {:>10} {:>10}  {calls}{}{}\n",
            figure(change.before),
            figure(change.after),
            signed(&delta),
            "  ".repeat(depth.min(MAX_INDENT)),
            printable(line.name, NAME_LETTERS)
        ));
    }

    fn is_small(&self, inclusive: [u64; 2]) -> bool {
        let [was, is] = self.shares(inclusive);
        was.max(is) < self.min_percent
    }

    fn write_tree(&mut self, tree: &UnionTree, out: &mut String) {
        let mut below: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for (id, node) in (0..).zip(&tree.nodes) {
            below.entry(node.parent).or_default().push(id);
        }
        for siblings in below.values_mut() {
            // The last is taken first.
            siblings.sort_by_key(|id| {
                let node = &tree.nodes[*id as usize];
                node.inclusive_before.max(node.inclusive_after)
            });
        }
        let roots = below.get(&None).cloned().unwrap_or_default();
        let whole = roots.iter().fold([0, 0], |sum: [u64; 2], id| {
            let node = &tree.nodes[*id as usize];
            [
                sum[0].saturating_add(node.inclusive_before),
                sum[1].saturating_add(node.inclusive_after),
            ]
        });
        let context = tree.context.to_string();
        if self.is_small(whole) {
            self.hidden += 1;
            return;
        }
        let all = CallLine { name: &context, inclusive: whole, calls: None };
        self.line(&all, 0, out);
        let mut open: Vec<(u32, usize)> = roots.into_iter().map(|id| (id, 1)).collect();
        while let Some((id, depth)) = open.pop() {
            let node = tree.nodes[id as usize];
            let inclusive = [node.inclusive_before, node.inclusive_after];
            if self.is_small(inclusive) || depth > MAX_DEPTH {
                self.hidden += usize::from(inclusive != [0, 0]);
                continue;
            }
            let trees = self.trees;
            let line = CallLine {
                name: &trees.functions.joints[node.function as usize].name,
                inclusive,
                calls: Some([node.before.calls, node.after.calls]),
            };
            self.line(&line, depth, out);
            let callees = below.get(&Some(id)).into_iter().flatten();
            open.extend(callees.map(|id| (*id, depth + 1)));
        }
    }
}
