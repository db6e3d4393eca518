//! Counts by the layer of the code that caused them, from their call graph.

use std::collections::BTreeMap;

use netplumb_model::events::{BROKEN_DOWN, By, CALLERS, COUNT};
use netplumb_model::layers::{APPLICATION, LAYERS, SHARED};
use netplumb_model::recording::{EVENT_MODULE, NodeId, Recording, THREAD_MODULE};

use super::counted::EventCount;

/// Code that no rule has a layer for.
const OTHER: &str = "(other)";
/// Where exceptions of programs and of the kernel enter it (arch/x86/include/asm/idtentry.h).
const EXCEPTIONS: &str = "asm_exc_";
/// Where programs enter the kernel on arm64 (arch/arm64/kernel/entry-common.c), and the entries that are
/// not exceptions: system calls and interrupts.
const OF_PROGRAMS: &str = "el0_";
const NO_EXCEPTIONS: &[&str] = &["el0_svc", "el0_interrupt"];
/// Events whose stack is not known.
const UNKNOWN: &str = "(no stack)";

/// Events by layer: the block, the event, the layer, and the count; none unless requested.
pub(crate) fn by_layer(recording: &Recording) -> Vec<(u32, &str, &str, u64)> {
    let quantity = recording.quantities.iter().position(|q| q.is(&CALLERS));
    let by = recording.environment.get(BROKEN_DOWN).map(String::as_str);
    if by != Some(By::Layer.as_str()) {
        return Vec::new();
    }
    let mut known: BTreeMap<NodeId, Option<(&str, &str)>> = BTreeMap::new();
    let costs = (recording.costs.iter()).filter(|cost| Some(cost.quantity as usize) == quantity);
    let of = costs.filter_map(|cost| {
        let of = known.entry(cost.node).or_insert_with(|| caused(recording, cost.node));
        let (event, layer) = (*of)?;
        Some((cost.block, event, layer, cost.own))
    });
    let mut all: Vec<(u32, &str, &str, u64)> = of.collect();
    let mut with_stack: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    for (block, event, _, count) in &all {
        *with_stack.entry((*block, *event)).or_default() += count;
    }
    let whole = recording.scalars_of(&COUNT);
    for scalar in whole.filter(|scalar| scalar.item.number.is_none()) {
        let (Some(block), Some(event)) = (scalar.block(), scalar.item.label.as_deref()) else {
            continue;
        };
        let known = with_stack.get(&(block, event)).copied().unwrap_or(0);
        let left = (scalar.value as u64).saturating_sub(known);
        if left > 0 {
            all.push((block, event, UNKNOWN, left));
        }
    }
    all
}

/// The parts of `whole`, if the cause of events is known. `places` has the arm of each block and its place
/// among the arm's.
pub(super) fn parts<'r>(
    recording: &'r Recording,
    whole: &[EventCount<'r>],
    places: &BTreeMap<u32, (usize, usize)>,
) -> Vec<EventCount<'r>> {
    let mut parts: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
    for (block, event, layer, count) in by_layer(recording) {
        let Some(&(arm, at)) = places.get(&block) else {
            continue;
        };
        let index = whole.iter().position(|w| w.arm == arm && w.name == event);
        if let Some(index) = index {
            let blocks = whole[index].values.len();
            let values = parts.entry((index, layer)).or_insert_with(|| vec![0.0; blocks]);
            values[at] += count as f64;
        }
    }
    let part = |((index, layer), values)| {
        let whole: &EventCount<'r> = &whole[index];
        EventCount { layer: Some(layer), values, ..whole.clone() }
    };
    parts.into_iter().map(part).collect()
}

/// The event of a node, and the layer that caused it: the innermost function's layer, of the kernel or the
/// program, skipping [`SHARED`] layers; or else the innermost of all.
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
                // The spelling in the table of layers, which outlives this walk.
                let own = function.layer.as_deref();
                let known = own.and_then(|own| LAYERS.iter().find(|l| **l == own));
                let own = known.copied().or(own).unwrap_or(OTHER);
                innermost.get_or_insert(own);
                if is_of_program(recording, &function.name, node.parent) {
                    layer.get_or_insert(APPLICATION);
                }
                if own != OTHER && !SHARED.contains(&own) {
                    layer.get_or_insert(own);
                }
            }
        }
        at = node.parent;
    }
    None
}

/// Whether a function handles an exception in a program, not in the kernel's own code: its caller is the
/// program, or the thread alone.
fn is_of_program(recording: &Recording, name: &str, below: Option<NodeId>) -> bool {
    if name.starts_with(OF_PROGRAMS) {
        return !NO_EXCEPTIONS.iter().any(|begins| name.starts_with(begins));
    }
    let is_program = |below: NodeId| {
        let node = recording.nodes.get(below as usize);
        let function = node.and_then(|node| recording.functions.get(node.function as usize));
        function.is_some_and(|function| {
            let module = function.module.as_deref();
            module.is_some_and(|module| [EVENT_MODULE, THREAD_MODULE].contains(&module))
                || function.layer.as_deref() == Some(APPLICATION)
        })
    };
    name.starts_with(EXCEPTIONS) && below.is_none_or(is_program)
}
