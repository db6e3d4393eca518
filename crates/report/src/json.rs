//! A recording's figures as JSON. docs/reference/json.md describes it for users;
//! `schema` is raised with any change that would break a reader.

use std::collections::BTreeMap;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Block, Ledger, Loss, Recording};
use serde::Serialize;

use crate::analysis::{ClassView, has_ancestor, other_work};
use crate::claims::{self, Judged};
use crate::lines;
use crate::number::json_text;
use crate::scalars::{self, NotesOut, ScalarOut};

/// Version of the document.
pub const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    complete: bool,
    environment: &'a BTreeMap<String, String>,
    notes: Vec<NotesOut<'a>>,
    untried: &'a BTreeMap<String, String>,
    unwatched: &'a BTreeMap<String, String>,
    scalars: Vec<ScalarOut<'a>>,
    arms: &'a [Arm],
    blocks: Vec<BlockOut<'a>>,
    classes: Vec<ClassOut<'a>>,
    apart: Vec<Apart>,
    losses: &'a [Loss],
    claims: Vec<Judged>,
}

#[derive(Serialize)]
struct ClassOut<'a> {
    arm: &'a str,
    class: String,
    packets: u64,
    insns: u64,
    insns_per_packet: f64,
    insns_by_block: &'a [u64],
    contexts: BTreeMap<String, u64>,
    layers: Vec<LayerOut<'a>>,
    functions: Vec<FunctionOut<'a>>,
    edges: Vec<EdgeOut<'a>>,
}

#[derive(Serialize)]
struct LayerOut<'a> {
    layer: &'a str,
    insns: u64,
    share: f64,
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: &'a str,
    module: Option<&'a str>,
    layer: Option<&'a str>,
    calls: u64,
    self_insns: u64,
    inclusive_insns: u64,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceOut<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<LineOut<'a>>,
}

/// Where a function is defined.
#[derive(Serialize)]
struct SourceOut<'a> {
    file: &'a str,
    line: u32,
}

/// What a line of it cost.
#[derive(Serialize)]
struct LineOut<'a> {
    file: &'a str,
    line: u32,
    insns: u64,
}

#[derive(Serialize)]
struct EdgeOut<'a> {
    caller: Option<&'a str>,
    callee: &'a str,
    calls: u64,
    inclusive_insns: u64,
}

/// What happened in an arm's windows that was no packet's work.
#[derive(Serialize)]
struct Apart {
    arm: String,
    contexts: BTreeMap<String, u64>,
}

/// A block under a clock that has no time: without its duration.
#[derive(Serialize)]
struct BlockOut<'a> {
    arm: u32,
    index: u32,
    ledger: &'a Ledger,
    valid: bool,
    kernel_insns: u64,
    user_insns: u64,
    entered: u64,
    returned: u64,
}

fn block_out(block: &Block) -> BlockOut<'_> {
    BlockOut {
        arm: block.arm,
        index: block.index,
        ledger: &block.ledger,
        valid: block.ledger.closes(),
        kernel_insns: block.kernel(),
        user_insns: block.user(),
        entered: block.entered,
        returned: block.returned,
    }
}

/// The document, pretty-printed.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
) -> String {
    let document = Document {
        schema: SCHEMA,
        complete: recording.complete,
        environment: &recording.environment,
        notes: scalars::notes(recording),
        untried: &recording.untried,
        unwatched: &recording.unwatched,
        scalars: scalars::all(recording),
        arms: &recording.arms,
        blocks: recording.blocks.iter().map(block_out).collect(),
        classes: classes.iter().map(class_out).collect(),
        apart: (0..recording.arms.len())
            .map(|arm| Apart {
                arm: recording.arms[arm].name.clone(),
                contexts: named(&other_work(recording, arm)),
            })
            .collect(),
        losses: &recording.losses,
        claims: experiment.map_or_else(Vec::new, |e| claims::judge(e, classes)),
    };
    // Strings, numbers and lists: nothing in it that JSON could not hold.
    json_text(serde_json::to_string_pretty(&document).unwrap_or_default() + "\n")
}

fn named<K: ToString, V: Copy>(map: &BTreeMap<K, V>) -> BTreeMap<String, V> {
    map.iter().map(|(k, v)| (k.to_string(), *v)).collect()
}

fn class_out<'a>(class: &'a ClassView<'a>) -> ClassOut<'a> {
    let share = |insns: u64| insns as f64 / class.total.max(1) as f64;
    let recording = class.recording;
    let mut lines = lines::of_class(class);
    let functions = class
        .functions
        .iter()
        .map(|f| {
            let function = &class.recording.functions[f.function as usize];
            FunctionOut {
                name: &function.name,
                module: function.module.as_deref(),
                layer: function.layer.as_deref(),
                calls: f.calls,
                self_insns: f.self_insns,
                inclusive_insns: f.inclusive_insns,
                share: share(f.self_insns),
                source: recording
                    .source_of(f.function)
                    .map(|(file, line)| SourceOut { file, line }),
                lines: lines
                    .remove(&f.function)
                    .into_iter()
                    .flatten()
                    .filter_map(|(source, insns)| {
                        let (file, line) = recording.source(source)?;
                        Some(LineOut { file, line, insns })
                    })
                    .collect(),
            }
        })
        .collect();
    let mut edges: BTreeMap<(Option<u32>, u32), (u64, u64)> = BTreeMap::new();
    for (id, view) in &class.nodes {
        let node = class.recording.nodes[*id as usize];
        let caller = node
            .parent
            .map(|p| class.recording.nodes[p as usize].function);
        let edge = edges.entry((caller, node.function)).or_default();
        edge.0 += view.calls;
        // As for a function: recursion counts once, where it began.
        if !has_ancestor(class.recording, *id, node.function) {
            edge.1 += view.inclusive_insns;
        }
    }
    ClassOut {
        arm: &class.arm().name,
        class: class.class.to_string(),
        packets: class.packets,
        insns: class.total,
        insns_per_packet: class.total as f64 / class.packets.max(1) as f64,
        insns_by_block: &class.by_block,
        contexts: named(&class.contexts),
        layers: class
            .layers
            .iter()
            .map(|(layer, insns)| LayerOut {
                layer,
                insns: *insns,
                share: share(*insns),
            })
            .collect(),
        functions,
        edges: edges
            .into_iter()
            .map(|((caller, callee), (calls, insns))| EdgeOut {
                caller: caller.map(|f| class.name(f)),
                callee: class.name(callee),
                calls,
                inclusive_insns: insns,
            })
            .collect(),
    }
}
