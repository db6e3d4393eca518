//! Traces in JSON: docs/reference/json.md describes them for users.

use netplumb_model::recording::Recording;
use netplumb_model::trace::{Flags, Followed, Step};
use serde::Serialize;

/// A traced packet or call.
#[derive(Serialize)]
pub(crate) struct TraceOut<'r> {
    follows: &'static str,
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    unit: &'r str,
    steps: Vec<StepOut<'r>>,
}

/// A step of one.
#[derive(Serialize)]
struct StepOut<'r> {
    parent: Option<u32>,
    name: &'r str,
    begin: u64,
    elapsed: u64,
    total: u64,
    #[serde(rename = "self")]
    own: u64,
    context: String,
    cpu: u32,
    thread: u32,
    command: &'r str,
    #[serde(skip_serializing_if = "is_none")]
    switches: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tail_call: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aside: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<&'r str>,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// All traces.
pub(crate) fn traces(recording: &Recording) -> Vec<TraceOut<'_>> {
    let text = |id| recording.text_of_trace(id);
    let step = |step: &Step| StepOut {
        parent: step.parent,
        name: text(step.name),
        begin: step.begin,
        elapsed: step.elapsed,
        total: step.total,
        own: step.own,
        context: step.context.to_string(),
        cpu: step.cpu,
        thread: step.thread,
        command: text(step.command),
        switches: step.switches,
        tail_call: step.flags.has(Flags::TAIL),
        aside: step.flags.has(Flags::ASIDE),
        unfinished: step.flags.has(Flags::OPEN),
        cut: step.flags.has(Flags::CUT),
        arguments: step.arguments.map(text),
        returned: step.returned.map(text),
    };
    let traces = recording.traces.iter().map(|trace| {
        let block = trace.block.and_then(|b| recording.blocks.get(b as usize));
        let arm = block.and_then(|b| recording.arms.get(b.arm as usize));
        let quantity = recording.quantities.get(trace.quantity as usize);
        TraceOut {
            follows: match trace.of {
                Followed::Packet => "packet",
                Followed::Call => "call",
            },
            number: trace.number,
            arm: arm.map(|arm| arm.name.as_str()),
            block: block.map(|block| block.index),
            unit: quantity.map_or("", |quantity| &quantity.unit),
            steps: trace.steps.iter().map(step).collect(),
        }
    });
    traces.collect()
}
