//! Times as JSON. docs/reference/json.md describes it for users.

use std::collections::BTreeMap;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Block, FunctionId, Ledger, Recording};
use netplumb_model::timing::Calibration;
use serde::Serialize;

use super::analysis::TimedClass;
use super::{table, trust};
use crate::analysis::has_ancestor;
use crate::claims;
use crate::json::{Common, pretty};
use crate::table::Value;

#[derive(Serialize)]
struct TimesJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    arms: &'a [Arm],
    blocks: Vec<BlockOut<'a>>,
    calibration: &'a [Calibration],
    times: Vec<ClassOut<'a>>,
}

#[derive(Serialize)]
struct BlockOut<'a> {
    arm: u32,
    index: u32,
    ledger: &'a Ledger,
    entered: u64,
    returned: u64,
    duration_ns: u64,
}

fn block_out(block: &Block) -> BlockOut<'_> {
    BlockOut {
        arm: block.arm,
        index: block.index,
        ledger: &block.ledger,
        entered: block.entered,
        returned: block.returned,
        duration_ns: block.duration_ns,
    }
}

#[derive(Serialize)]
struct ClassOut<'a> {
    arm: &'a str,
    class: String,
    /// "packet", "run" or "second".
    per: &'static str,
    per_count: f64,
    blocks: &'a [u32],
    raw_ns: f64,
    self_ns: f64,
    contexts: BTreeMap<String, f64>,
    layers: BTreeMap<&'a str, f64>,
    functions: Vec<Value>,
    edges: Vec<EdgeOut<'a>>,
    stages: Vec<Value>,
    stages_add_up: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Value>,
}

/// Caller and callee, among timed functions.
#[derive(Serialize)]
struct EdgeOut<'a> {
    caller: Option<&'a str>,
    callee: &'a str,
    calls: u64,
    raw_ns: f64,
    corrected_ns: f64,
}

/// The document, pretty-printed.
pub fn render(
    recording: &Recording,
    classes: &[TimedClass<'_>],
    experiment: Option<&Experiment>,
) -> String {
    let claims = experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording));
    let trust = trust::footer(recording, classes);
    pretty(&TimesJson {
        common: Common::new(recording, experiment, claims, trust),
        arms: &recording.arms,
        blocks: recording.blocks.iter().map(block_out).collect(),
        calibration: &recording.calibration,
        times: classes.iter().map(class_out).collect(),
    })
}

fn class_out<'a>(class: &'a TimedClass<'a>) -> ClassOut<'a> {
    let [functions, stages] = table::json(class);
    ClassOut {
        arm: &class.arm().name,
        class: class.class.to_string(),
        per: class.per.word(),
        per_count: class.per.count(),
        blocks: &class.blocks,
        raw_ns: class.raw_ns,
        self_ns: class.total_ns,
        contexts: class.contexts.iter().map(|(c, ns)| (c.to_string(), *ns)).collect(),
        layers: class.layers.iter().map(|(name, ns)| (name.as_str(), *ns)).collect(),
        functions,
        edges: edges(class),
        stages,
        stages_add_up: class.closes(),
        groups: table::groups_json(class),
    }
}

/// The edges of the class's calls. As for a function, recursion counts once.
fn edges<'a>(class: &'a TimedClass<'a>) -> Vec<EdgeOut<'a>> {
    let recording = class.recording;
    let mut edges: BTreeMap<(Option<FunctionId>, FunctionId), EdgeOut<'a>> = BTreeMap::new();
    for (span, call) in recording.calls() {
        let arm = recording.blocks[span.block as usize].arm as usize;
        if (arm, span.direction) != (class.arm, class.class.direction) {
            continue;
        }
        let node = recording.nodes[call.node as usize];
        let caller = node.parent.map(|p| recording.nodes[p as usize].function);
        let edge = (edges.entry((caller, node.function))).or_insert_with(|| EdgeOut {
            caller: caller.map(|f| class.name(f)),
            callee: class.name(node.function),
            calls: 0,
            raw_ns: 0.0,
            corrected_ns: 0.0,
        });
        edge.calls = edge.calls.saturating_add(span.times.count);
        if !has_ancestor(recording, call.node, node.function) {
            edge.raw_ns += span.times.total_ns as f64;
            // As for a function.
            edge.corrected_ns += match call.corrected_ns.is_finite() {
                true => call.corrected_ns,
                false => span.times.total_ns as f64,
            };
        }
    }
    edges.into_values().collect()
}
