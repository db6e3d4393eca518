//! A comparison as JSON, with everything that is known. docs/reference/json.md
//! describes it for users.

use std::collections::BTreeMap;

use netplumb_model::experiment::Idle;
use serde::Serialize;

use super::facts::Difference;
use super::sentence::sentence;
use super::{Change, ClassDiff, Diff, table};
use crate::diff::exact::Spread;
use crate::table::Value;

/// Version of the document.
pub const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    document: &'static str,
    before: SideOut<'a>,
    after: SideOut<'a>,
    differences: &'a [Difference],
    warnings: &'a [String],
    unpaired: &'a [String],
    classes: Vec<ClassOut<'a>>,
}

#[derive(Serialize)]
struct SideOut<'a> {
    name: &'a str,
    complete: bool,
    environment: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct ClassOut<'a> {
    class: String,
    class_before: String,
    arm: &'a str,
    arm_before: &'a str,
    sentence: String,
    could_not_act: &'a [Idle],
    verdict: &'static str,
    verdict_detail: &'static str,
    packets: Both<u64>,
    insns: ChangeOut,
    certain_change_per_packet: f64,
    smallest_change_seen_per_packet: Option<f64>,
    blocks: Both<BlocksOut>,
    contexts: Vec<PartOut>,
    layers: Vec<PartOut>,
    functions: Vec<Value>,
    moves: Vec<MoveOut<'a>>,
    calls_changed: Vec<BranchOut<'a>>,
}

#[derive(Serialize)]
struct Both<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct ChangeOut {
    before: u64,
    after: u64,
    change_per_packet: f64,
    change_percent: Option<f64>,
}

#[derive(Serialize)]
struct BlocksOut {
    insns: Vec<u64>,
    packets: Vec<u64>,
    apart: Vec<usize>,
}

#[derive(Serialize)]
struct PartOut {
    name: String,
    insns: ChangeOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
}

#[derive(Serialize)]
struct MoveOut<'a> {
    from: &'a str,
    to: &'a str,
    insns_per_packet: f64,
    why: &'a str,
}

#[derive(Serialize)]
struct BranchOut<'a> {
    caller: Option<&'a str>,
    callee: &'a str,
    calls: ChangeOut,
    inclusive_insns: ChangeOut,
}

impl From<&Change> for ChangeOut {
    fn from(change: &Change) -> ChangeOut {
        ChangeOut {
            before: change.before.sum,
            after: change.after.sum,
            change_per_packet: change.delta().value(),
            change_percent: change.percent(),
        }
    }
}

impl From<&Spread> for BlocksOut {
    fn from(spread: &Spread) -> BlocksOut {
        BlocksOut {
            insns: spread.blocks.iter().map(|b| b.sum).collect(),
            packets: spread.blocks.iter().map(|b| b.packets).collect(),
            apart: spread.odd.clone(),
        }
    }
}

/// The document, pretty-printed.
pub fn render(diff: &Diff<'_>) -> String {
    let side =
        |name, recording: &'_ netplumb_model::recording::Recording| (name, recording.complete);
    let (before, after) = (
        side(diff.sides.before_name, diff.sides.before),
        side(diff.sides.after_name, diff.sides.after),
    );
    let document = Document {
        schema: SCHEMA,
        document: "diff",
        before: SideOut {
            name: before.0,
            complete: before.1,
            environment: &diff.sides.before.environment,
        },
        after: SideOut {
            name: after.0,
            complete: after.1,
            environment: &diff.sides.after.environment,
        },
        differences: &diff.differences,
        warnings: &diff.warnings,
        unpaired: &diff.unpaired,
        classes: diff.classes.iter().map(|c| class_out(diff, c)).collect(),
    };
    // Strings, numbers and lists: nothing in it that JSON could not hold.
    crate::number::json_text(serde_json::to_string_pretty(&document).unwrap_or_default() + "\n")
}

fn class_out<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> ClassOut<'a> {
    let name = |id: u32| diff.functions.joints[id as usize].name.as_str();
    ClassOut {
        class: class.after.to_string(),
        class_before: class.before.to_string(),
        arm: &diff.sides.after.arms[class.arms.after].name,
        arm_before: &diff.sides.before.arms[class.arms.before].name,
        sentence: sentence(diff, class),
        could_not_act: &class.idle,
        verdict: class.verdict.as_str(),
        verdict_detail: class.verdict.key(),
        packets: Both {
            before: class.total.before.packets,
            after: class.total.after.packets,
        },
        insns: (&class.total).into(),
        certain_change_per_packet: class.certain.value(),
        smallest_change_seen_per_packet: class.blind(),
        blocks: Both {
            before: (&class.blocks_before).into(),
            after: (&class.blocks_after).into(),
        },
        contexts: class
            .contexts
            .iter()
            .map(|(context, change, verdict)| PartOut {
                name: context.to_string(),
                insns: change.into(),
                verdict: Some(verdict.as_str()),
            })
            .collect(),
        layers: class
            .layers
            .iter()
            .map(|(layer, change)| PartOut {
                name: layer.clone(),
                insns: change.into(),
                verdict: None,
            })
            .collect(),
        functions: table::json(diff, class),
        moves: class
            .moves
            .iter()
            .map(|m| MoveOut {
                from: name(m.from),
                to: name(m.to),
                insns_per_packet: m.insns_per_packet,
                why: &m.why,
            })
            .collect(),
        calls_changed: class
            .branches
            .iter()
            .map(|b| BranchOut {
                caller: b.caller.map(name),
                callee: name(b.callee),
                calls: (&b.calls).into(),
                inclusive_insns: (&b.inclusive_insns).into(),
            })
            .collect(),
    }
}
