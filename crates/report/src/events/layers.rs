//! Counts by the layer of the code that caused them, from their call graph.

use std::collections::BTreeMap;

use netplumb_model::events::{BROKEN_DOWN, By, CALLERS};
use netplumb_model::layers::{APPLICATION, LAYERS, SHARED};
use netplumb_model::recording::{EVENT_MODULE, NodeId, Recording, THREAD_MODULE};

use super::rows::Counted;

/// Code that no rule has a layer for.
const OTHER: &str = "(other)";
/// Events whose stack is not known.
const UNKNOWN: &str = "(no stack)";

/// The parts of `whole`, if it is known who caused events. `places` has the arm of each block and its place
/// among the arm's.
pub(super) fn parts<'r>(
    recording: &'r Recording,
    whole: &[Counted<'r>],
    places: &BTreeMap<u32, (usize, usize)>,
) -> Vec<Counted<'r>> {
    let quantity = recording.quantities.iter().position(|q| q.is(&CALLERS));
    let by = recording.environment.get(BROKEN_DOWN).map(String::as_str);
    let (Some(quantity), true) = (quantity, by == Some(By::Layer.as_str())) else {
        return Vec::new();
    };
    let mut parts: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    let mut known: BTreeMap<NodeId, Option<(&str, &str)>> = BTreeMap::new();
    for cost in (recording.costs.iter()).filter(|cost| cost.quantity as usize == quantity) {
        let of = *known
            .entry(cost.node)
            .or_insert_with(|| caused(recording, cost.node));
        let (Some((event, layer)), Some(&(arm, at))) = (of, places.get(&cost.block)) else {
            continue;
        };
        let index = whole.iter().position(|w| w.arm == arm && w.name == event);
        if let Some(index) = index {
            let blocks = whole[index].values.len();
            let values = parts
                .entry((index, layer))
                .or_insert_with(|| vec![0.0; blocks]);
            values[at] += cost.own as f64;
        }
    }
    // What is left has no stack.
    for (index, whole) in whole.iter().enumerate() {
        let mut left = whole.values.clone();
        let of_it = parts.range((index, "")..(index + 1, ""));
        let mut any = false;
        for values in of_it.map(|(_, values)| values) {
            any = true;
            left.iter_mut().zip(values).for_each(|(l, v)| *l -= v);
        }
        if any && left.iter().sum::<f64>() >= 1.0 {
            let left = left.iter().map(|l| l.max(0.0)).collect();
            parts.insert((index, UNKNOWN), left);
        }
    }
    let part = |((index, layer), values)| {
        let whole: &Counted<'r> = &whole[index];
        Counted {
            layer: Some(layer),
            values,
            ..whole.clone()
        }
    };
    parts.into_iter().map(part).collect()
}

/// The event of a node, and the layer that caused it: that of the innermost function, of the kernel or of
/// the program, that is in none which all layers share, or else of the innermost one.
fn caused(recording: &Recording, leaf: NodeId) -> Option<(&str, &str)> {
    let (mut innermost, mut layer) = (None, None);
    let mut at = Some(leaf);
    while let Some(number) = at {
        let node = recording.nodes.get(number as usize)?;
        let function = recording.functions.get(node.function as usize)?;
        match function.module.as_deref() {
            Some(EVENT_MODULE) => {
                let layer = layer.or(innermost).unwrap_or(OTHER);
                return Some((&function.name, layer));
            }
            Some(THREAD_MODULE) => {
                innermost.get_or_insert(APPLICATION);
            }
            _ => {
                // As it is written in the table of layers, which outlives this walk.
                let own = function.layer.as_deref();
                let known = own.and_then(|own| LAYERS.iter().find(|l| **l == own));
                let own = known.copied().or(own).unwrap_or(OTHER);
                innermost.get_or_insert(own);
                if own != OTHER && !SHARED.contains(&own) {
                    layer.get_or_insert(own);
                }
            }
        }
        at = node.parent;
    }
    None
}
