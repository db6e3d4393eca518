//! Times as JSON. docs/reference/json.md describes it for users.

use std::collections::BTreeMap;

use netplumb_model::recording::{Arm, Block, FunctionId, Ledger, Loss, Recording};
use netplumb_model::timing::{Calibration, Times};
use serde::Serialize;

use super::analysis::{PERCENTILES, Per, Stage, TimedClass, TimedFunction, percentile};
use crate::analysis::has_ancestor;
use crate::json::SCHEMA;
use crate::scalars::{self, NotesOut, ScalarOut};

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    complete: bool,
    environment: &'a BTreeMap<String, String>,
    notes: Vec<NotesOut<'a>>,
    untried: &'a BTreeMap<String, String>,
    unwatched: &'a BTreeMap<String, String>,
    arms: &'a [Arm],
    blocks: Vec<BlockOut<'a>>,
    calibration: &'a [Calibration],
    times: Vec<ClassOut<'a>>,
    scalars: Vec<ScalarOut<'a>>,
    losses: &'a [Loss],
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
    functions: Vec<FunctionOut<'a>>,
    edges: Vec<EdgeOut<'a>>,
    stages: Vec<StageOut<'a>>,
    stages_add_up: bool,
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: &'a str,
    module: Option<&'a str>,
    layer: Option<&'a str>,
    mechanism: Option<&'static str>,
    calls: u64,
    raw_ns: f64,
    corrected_ns: f64,
    self_ns: f64,
    self_uncertainty_ns: f64,
    too_small_to_rank: bool,
    raw_ns_per_call: f64,
    corrected_ns_per_call: f64,
    self_ns_by_block: &'a [f64],
    calls_by_block: &'a [u64],
    times: Distribution<'a>,
}

/// Who called whom, of the functions that were timed.
#[derive(Serialize)]
struct EdgeOut<'a> {
    caller: Option<&'a str>,
    callee: &'a str,
    calls: u64,
    raw_ns: f64,
    corrected_ns: f64,
}

#[derive(Serialize)]
struct StageOut<'a> {
    name: &'a str,
    kind: &'static str,
    packets: u64,
    passed_over: u64,
    ns_per_packet: f64,
    ns_per_packet_by_block: &'a [Option<f64>],
    times: Distribution<'a>,
}

/// As read: nothing is taken from it.
#[derive(Serialize)]
struct Distribution<'a> {
    min_ns: u64,
    percentiles_ns: BTreeMap<&'static str, Option<f64>>,
    max_ns: u64,
    buckets: &'a [(u16, u64)],
}

fn distribution(times: &Times) -> Distribution<'_> {
    Distribution {
        min_ns: times.min_ns,
        percentiles_ns: PERCENTILES
            .iter()
            .map(|(name, share)| (*name, percentile(times, *share)))
            .collect(),
        max_ns: times.max_ns,
        buckets: &times.buckets,
    }
}

/// The document, pretty-printed.
pub fn render(recording: &Recording, classes: &[TimedClass<'_>]) -> String {
    let document = Document {
        schema: SCHEMA,
        complete: recording.complete,
        environment: &recording.environment,
        notes: scalars::notes(recording),
        untried: &recording.untried,
        unwatched: &recording.unwatched,
        arms: &recording.arms,
        blocks: recording.blocks.iter().map(block_out).collect(),
        calibration: &recording.calibration,
        times: classes.iter().map(class_out).collect(),
        scalars: scalars::all(recording),
        losses: &recording.losses,
    };
    // Plain data with string keys always serializes.
    let mut out =
        crate::number::json_text(serde_json::to_string_pretty(&document).unwrap_or_default());
    out.push('\n');
    out
}

fn class_out<'a>(class: &'a TimedClass<'a>) -> ClassOut<'a> {
    ClassOut {
        arm: &class.arm().name,
        class: class.class.to_string(),
        per: class.per.word(),
        per_count: match class.per {
            Per::Packet(n) | Per::Run(n) => n as f64,
            Per::Second(s) => s,
        },
        blocks: &class.blocks,
        raw_ns: class.raw_ns,
        self_ns: class.total_ns,
        contexts: class
            .contexts
            .iter()
            .map(|(c, ns)| (c.to_string(), *ns))
            .collect(),
        layers: class
            .layers
            .iter()
            .map(|(name, ns)| (name.as_str(), *ns))
            .collect(),
        functions: class.functions.iter().map(|f| function(class, f)).collect(),
        edges: edges(class),
        stages: class.stages.iter().map(stage).collect(),
        stages_add_up: class.closes(),
    }
}

fn function<'a>(class: &'a TimedClass<'a>, function: &'a TimedFunction) -> FunctionOut<'a> {
    let data = &class.recording.functions[function.function as usize];
    FunctionOut {
        name: &data.name,
        module: data.module.as_deref(),
        layer: data.layer.as_deref(),
        mechanism: function.mechanism.map(|m| m.as_str()),
        calls: function.times.count,
        raw_ns: function.raw_ns,
        corrected_ns: function.corrected_ns,
        self_ns: function.self_ns,
        self_uncertainty_ns: function.uncertainty_ns,
        too_small_to_rank: function.too_small(),
        raw_ns_per_call: function.raw_mean_ns(),
        corrected_ns_per_call: function.mean_ns(),
        self_ns_by_block: &function.self_by_block,
        calls_by_block: &function.calls_by_block,
        times: distribution(&function.times),
    }
}

/// The edges of the class's calls. As for a function, recursion counts once.
fn edges<'a>(class: &'a TimedClass<'a>) -> Vec<EdgeOut<'a>> {
    let recording = class.recording;
    let mut edges: BTreeMap<(Option<FunctionId>, FunctionId), EdgeOut<'a>> = BTreeMap::new();
    for timed in &recording.timed {
        let arm = recording.blocks[timed.block as usize].arm as usize;
        if (arm, timed.direction) != (class.arm, class.class.direction) {
            continue;
        }
        let node = recording.nodes[timed.node as usize];
        let caller = node.parent.map(|p| recording.nodes[p as usize].function);
        let edge = (edges.entry((caller, node.function))).or_insert_with(|| EdgeOut {
            caller: caller.map(|f| class.name(f)),
            callee: class.name(node.function),
            calls: 0,
            raw_ns: 0.0,
            corrected_ns: 0.0,
        });
        edge.calls = edge.calls.saturating_add(timed.times.count);
        if !has_ancestor(recording, timed.node, node.function) {
            edge.raw_ns += timed.times.total_ns as f64;
            // As for a function.
            edge.corrected_ns += match timed.corrected_ns.is_finite() {
                true => timed.corrected_ns,
                false => timed.times.total_ns as f64,
            };
        }
    }
    edges.into_values().collect()
}

fn stage(stage: &Stage) -> StageOut<'_> {
    StageOut {
        name: &stage.name,
        kind: stage.kind.as_str(),
        packets: stage.times.count,
        passed_over: stage.passed_over,
        ns_per_packet: stage.mean_ns(),
        ns_per_packet_by_block: &stage.by_block,
        times: distribution(&stage.times),
    }
}
