//! Where costs are on the page, for references to rows of trees.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::{NodeId, Recording};

use crate::analysis::ClassView;

/// By arm and direction, and then by context: calls and own instructions of nodes.
pub(super) type Costs =
    HashMap<(usize, Direction), BTreeMap<Context, BTreeMap<NodeId, (u64, u64)>>>;

/// The rows of the page's trees that have the costs of nodes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    trees: HashMap<(usize, Direction, Context), TreeRows>,
}

/// Index of a class and of a context in it, and the nodes of that tree by its rows.
type TreeRows = (usize, usize, Vec<NodeId>);

impl Places {
    pub(super) fn from_recording(
        recording: &Recording,
        views: &[ClassView<'_>],
        costs: &Costs,
    ) -> Places {
        let mut trees = HashMap::new();
        // Only samples are looked up by thread.
        let views = views.iter().enumerate().filter(|_| !recording.samples.is_empty());
        for (class, view) in views {
            let direction = view.class.direction;
            let contexts = costs.get(&(view.arm, direction)).into_iter().flatten();
            for (index, (context, nodes)) in contexts.enumerate() {
                let rows = rows(recording, nodes).into_iter().collect();
                trees.insert((view.arm, direction, *context), (class, index, rows));
            }
        }
        Places { trees }
    }

    /// A class, a context in it, and a row of its tree; none if the page does not have the node.
    pub(crate) fn of_node(
        &self,
        arm: usize,
        direction: Direction,
        context: Context,
        node: NodeId,
    ) -> Option<(usize, usize, usize)> {
        let (class, index, rows) = self.trees.get(&(arm, direction, context))?;
        Some((*class, *index, rows.binary_search(&node).ok()?))
    }
}

/// The nodes of a tree, by its rows: those with a cost, and their ancestors.
pub(super) fn rows(
    recording: &Recording,
    nodes: &BTreeMap<NodeId, (u64, u64)>,
) -> BTreeSet<NodeId> {
    let mut rows: BTreeSet<NodeId> = nodes.keys().copied().collect();
    for id in nodes.keys() {
        let mut above = recording.nodes[*id as usize].parent;
        while let Some(id) = above.filter(|id| rows.insert(*id)) {
            above = recording.nodes[id as usize].parent;
        }
    }
    rows
}
