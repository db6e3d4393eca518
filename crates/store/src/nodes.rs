//! The call tree. Nodes that costs or times refer to, and all above them, are rows, for SQL; those
//! of samples alone, which may be as many as samples, are packed.

use netplumb_model::recording::Node;
use netplumb_model::tree::NodeId;
use rusqlite::{Connection, Transaction, params};

use crate::packed::{self, CHUNK};
use crate::row::{Wrong, each, get};

/// Nodes that are packed, which a small file could have very many of: those with greater ids are rows.
const MAX_PACKED: usize = 1 << 24;
/// Columns of a chunk: [`numbers`].
const COLUMNS: usize = 4;

/// Write the nodes from `first` on, and the rows of those that `referred` are by new rows.
pub(crate) fn add(
    to: &Transaction<'_>,
    nodes: &[Node],
    first: usize,
    referred: impl Iterator<Item = NodeId>,
) -> rusqlite::Result<()> {
    let referred = referred.chain(first.max(MAX_PACKED) as NodeId..nodes.len() as NodeId);
    // One that had only samples so far is packed already, and becomes a row too.
    let mut put = to.prepare("INSERT OR IGNORE INTO node VALUES (?, ?, ?, ?)")?;
    let mut is_row = vec![false; nodes.len()];
    let mut path = Vec::new();
    for node in referred {
        let mut next = Some(node);
        while let Some(id) = next {
            let Some((node, is)) = nodes.get(id as usize).zip(is_row.get_mut(id as usize)) else {
                break;
            };
            if std::mem::replace(is, true) {
                break;
            }
            path.push((id, node));
            next = node.parent;
        }
        // Parents first.
        for (id, node) in path.drain(..).rev() {
            put.execute(params![id, node.parent, node.function, node.tail])?;
        }
    }
    let new = (0..).zip(nodes).zip(&is_row).skip(first);
    let alone = new.filter(|(_, is_row)| !**is_row);
    let alone: Vec<(NodeId, &Node)> = alone.map(|(numbered, _)| numbered).collect();
    let mut put = to.prepare("INSERT INTO node_chunk VALUES (?, ?, ?)")?;
    for chunk in alone.chunks(CHUNK) {
        let first = chunk[0].0;
        let mut before = first;
        let rows = chunk.iter().map(|(id, node)| {
            let numbers = numbers(*id, node, before);
            before = *id;
            numbers
        });
        put.execute(params![first, chunk.len(), packed::pack(rows)?])?;
    }
    Ok(())
}

/// The numbers of a node, a column each: its id and its parent's as differences, which for most
/// nodes are 1.
fn numbers(id: NodeId, node: &Node, before: NodeId) -> [u64; COLUMNS] {
    [
        u64::from(id - before),
        (node.parent).map_or(0, |parent| u64::from(id.wrapping_sub(parent))),
        u64::from(node.function),
        u64::from(node.tail),
    ]
}

/// The node with these numbers.
fn node(of: [u64; COLUMNS], before: NodeId) -> Option<(NodeId, Node)> {
    let [id, parent, function, tail] = of;
    let id = before.checked_add(id.try_into().ok()?)?;
    Some((
        id,
        Node {
            parent: match parent {
                0 => None,
                up => Some(id.checked_sub(up.try_into().ok()?)?),
            },
            function: function.try_into().ok()?,
            tail: match tail {
                0 => false,
                1 => true,
                _ => return None,
            },
        },
    ))
}

/// Read all nodes.
pub(crate) fn load(c: &Connection) -> Result<Vec<Node>, Wrong> {
    let mut packed: Vec<(NodeId, Node)> = Vec::new();
    each(c, "node_chunk", "first, count, columns", "first", |_, r| {
        let mut before: NodeId = get(r, 0)?;
        for numbers in packed::chunk::<COLUMNS>(r, (1, 2), "nodes")? {
            let Some((id, node)) = node(numbers, before) else {
                let why = format!("invalid numbers after those of node {before}");
                return Err(Wrong::Found(why));
            };
            if packed.last().is_some_and(|(last, _)| id <= *last) {
                return Err(Wrong::Found(format!("node {id} does not follow the last one")));
            }
            if id as usize >= MAX_PACKED {
                return Err(Wrong::Found(format!("more than {MAX_PACKED} nodes")));
            }
            packed.push((id, node));
            before = id;
        }
        Ok(())
    })?;
    let mut all = Vec::with_capacity(packed.len());
    let mut packed = packed.into_iter().peekable();
    each(c, "node", "id, parent, function, tail", "id", |_, r| {
        let (id, node) = (get(r, 0)?, row(r)?);
        while let Some((id, node)) = packed.next_if(|(packed, _)| *packed < id) {
            push(&mut all, id, node)?;
        }
        if packed.next_if(|(packed, _)| *packed == id).is_some_and(|(_, packed)| packed != node) {
            return Err(Wrong::Found(format!("node {id} differs from the packed one")));
        }
        push(&mut all, id, node)
    })?;
    for (id, node) in packed {
        push(&mut all, id, node)?;
    }
    Ok(all)
}

fn row(r: &rusqlite::Row<'_>) -> Result<Node, Wrong> {
    Ok(Node { parent: get(r, 1)?, function: get(r, 2)?, tail: get(r, 3)? })
}

/// Ids are dense.
fn push(all: &mut Vec<Node>, id: NodeId, node: Node) -> Result<(), Wrong> {
    if id as usize != all.len() {
        return Err(Wrong::Found(format!("node with id {id}, expected {}", all.len())));
    }
    all.push(node);
    Ok(())
}
