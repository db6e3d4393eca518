//! A comparison as JSON, with everything that is known: a document for each judge, and one of
//! benches. docs/reference/json.md describes them for users.

use std::collections::BTreeMap;

use netplumb_model::class::Class;
use netplumb_model::experiment::Idle;
use netplumb_model::recording::Recording;
use serde::Serialize;

use super::exact::{Delta, Spread};
use super::facts::Difference;
use super::mixed::ClassBoth;
use super::sentence::sentence;
use super::table::object;
use super::terminal::is_bench;
use super::trust::trust;
use super::{ClassDiff, Diff, ExactVerdict, Judge, Judged, Seeds, Split, table};
use crate::analysis::quantity;
use crate::footer::Note;
use crate::json::QuantityOut;
use crate::number::json_text;
use crate::table::Value;

/// Version of the document.
pub const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct DiffJson<'a> {
    schema: u32,
    document: &'static str,
    quantity: QuantityOut,
    before: SideOut<'a>,
    after: SideOut<'a>,
    differences: &'a [Difference],
    warnings: &'a [String],
    unpaired: &'a [String],
    classes: Vec<ClassOut<'a>>,
    /// All classes of a pair of arms together.
    sums: Vec<ClassOut<'a>>,
    trust: Vec<Note>,
}

/// The document for figures that vary.
#[derive(Serialize)]
struct Samples<'a> {
    schema: u32,
    before: &'a str,
    after: &'a str,
    differences: &'a [Difference],
    warnings: &'a [String],
    one_clock: bool,
    times: Vec<SampleOut<'a>>,
    /// All classes of a pair of arms together.
    sums: Vec<SampleOut<'a>>,
    side_by_side: &'a [ClassBoth],
    unpaired: &'a [String],
    trust: Vec<Note>,
}

#[derive(Serialize)]
struct SampleOut<'a> {
    class_before: String,
    class_after: String,
    label: &'a str,
    sentence: String,
    could_not_act: &'a [Idle],
    per: &'static str,
    unit: &'a str,
    whole: Option<Value>,
    functions: Vec<Value>,
    /// Of samples: functions with all that they call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inclusive: Vec<Value>,
    stages: Vec<Value>,
    too_small_to_rank: usize,
    /// Whether the sides took turns.
    interleaved: bool,
    timed_on_one_side: &'a [String],
}

/// The document for benches.
#[derive(Serialize)]
struct Rates<'a> {
    schema: u32,
    document: &'static str,
    clock: &'static str,
    differences: &'a [Difference],
    warnings: &'a [String],
    rates: Vec<Value>,
    trust: Vec<Note>,
}

#[derive(Serialize)]
struct SideOut<'a> {
    name: &'a str,
    complete: bool,
    environment: BTreeMap<String, String>,
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
    packets: BeforeAfter<u64>,
    total: Value,
    certain_change_per_packet: f64,
    /// What `per_packet` means: "packet", "packet sent", "run", "KiB".
    per: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeds: Option<SeedsOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<CodeOut>,
    smallest_change_seen_per_packet: Option<f64>,
    blocks: BeforeAfter<BlocksOut>,
    contexts: Vec<Value>,
    layers: Vec<Value>,
    functions: Vec<Value>,
    moves: Vec<Value>,
    calls_changed: Vec<Value>,
}

/// The change per packet under other random seeds.
#[derive(Serialize)]
struct SeedsOut {
    changes: Vec<f64>,
    median: f64,
    /// How much of the change all of them confirm.
    certain: f64,
}

impl From<&(Seeds, f64)> for SeedsOut {
    fn from((seeds, certain): &(Seeds, f64)) -> SeedsOut {
        SeedsOut {
            changes: seeds.deltas().iter().map(Delta::value).collect(),
            median: seeds.range()[1].value(),
            certain: *certain,
        }
    }
}

/// Of two kernels: where the change is.
#[derive(Serialize)]
struct CodeOut {
    functions_with_other_code: usize,
    change_in_other_code: f64,
    change_in_same_code: f64,
    only_placement: bool,
}

impl From<&Split> for CodeOut {
    fn from(split: &Split) -> CodeOut {
        CodeOut {
            functions_with_other_code: split.on_path,
            change_in_other_code: split.other.1.value(),
            change_in_same_code: split.same.1.value(),
            only_placement: split.is_placement(),
        }
    }
}

#[derive(Serialize)]
struct BeforeAfter<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct BlocksOut {
    total: Vec<u64>,
    packets: Vec<u64>,
    apart: Vec<usize>,
}

impl From<&Spread> for BlocksOut {
    fn from(spread: &Spread) -> BlocksOut {
        BlocksOut {
            total: spread.blocks.iter().map(|b| b.sum).collect(),
            packets: spread.blocks.iter().map(|b| b.packets).collect(),
            apart: spread.odd.clone(),
        }
    }
}

/// The document, pretty-printed.
pub fn render(diff: &Diff<'_>) -> String {
    match diff.judge {
        _ if is_bench(diff) => pretty(&Rates {
            schema: SCHEMA,
            document: "diff",
            clock: "rates",
            differences: &diff.differences,
            warnings: &diff.warnings,
            rates: table::wholes(diff).json(),
            trust: trust(diff),
        }),
        Judge::Exact => exact(diff),
        Judge::Statistical => pretty(&Samples {
            schema: SCHEMA,
            before: diff.sides.before_name,
            after: diff.sides.after_name,
            differences: &diff.differences,
            warnings: &diff.warnings,
            one_clock: diff.one_clock,
            times: diff.classes.iter().map(|c| sample_out(diff, c)).collect(),
            sums: diff.sums.iter().map(|c| sample_out(diff, c)).collect(),
            side_by_side: &diff.both,
            unpaired: &diff.unpaired,
            trust: trust(diff),
        }),
    }
}

fn pretty(document: &impl Serialize) -> String {
    // Strings, numbers and lists: nothing that could fail to serialize.
    json_text(serde_json::to_string_pretty(document).unwrap_or_default() + "\n")
}

fn exact(diff: &Diff<'_>) -> String {
    let sides = diff.sides;
    let [was, is] = diff.environments();
    let side = |name, recording: &Recording, environment| SideOut {
        name,
        complete: recording.complete,
        environment,
    };
    pretty(&DiffJson {
        schema: SCHEMA,
        document: "diff",
        quantity: (&quantity(diff.sides.after)).into(),
        before: side(sides.before_name, sides.before, was),
        after: side(sides.after_name, sides.after, is),
        differences: &diff.differences,
        warnings: &diff.warnings,
        unpaired: &diff.unpaired,
        classes: classes_out(diff, &diff.classes),
        sums: classes_out(diff, &diff.sums),
        trust: trust(diff),
    })
}

fn sample_out<'a>(diff: &'a Diff<'_>, class: &'a ClassDiff) -> SampleOut<'a> {
    SampleOut {
        class_before: class_name(class.of_classes, class.before),
        class_after: class_name(class.of_classes, class.after),
        label: &class.label,
        sentence: sentence(class),
        could_not_act: &class.idle,
        per: class.per,
        unit: &class.unit,
        whole: table::json(diff, class, class.whole()).pop(),
        functions: table::json(diff, class, &class.functions),
        inclusive: table::json(diff, class, &class.inclusive),
        stages: table::json(diff, class, &class.stages),
        too_small_to_rank: class.small,
        interleaved: !class.apart,
        timed_on_one_side: &class.one_side,
    }
}

/// Layers and contexts; the latter with their verdicts.
fn parts(rows: &[super::DiffRow], verdicts: bool) -> Vec<Value> {
    let out = |row: &super::DiffRow| match &row.judged {
        Judged::Exactly(change, verdict) => {
            let name = ("name", Value::Text(row.name.clone()));
            let mut part = vec![name, ("self", object(Some(*change)))];
            if verdicts {
                part.push(("verdict", Value::Text(verdict.as_str().into())));
            }
            Some(Value::object(part))
        }
        Judged::Statistically(_) => None,
    };
    rows.iter().filter_map(out).collect()
}

fn classes_out<'a>(diff: &'a Diff<'_>, classes: &'a [ClassDiff]) -> Vec<ClassOut<'a>> {
    let all = classes.iter();
    all.filter_map(|c| Some(class_out(diff, c, c.counted.as_ref()?))).collect()
}

/// The name of a class for programs: "udp tx", or "udp" for all together.
fn class_name(all: usize, class: Class) -> String {
    match all {
        0 => class.to_string(),
        _ => class.proto.to_string(),
    }
}

fn class_out<'a>(
    diff: &'a Diff<'_>,
    class: &'a ClassDiff,
    counted: &'a ExactVerdict,
) -> ClassOut<'a> {
    let name = |id: u32| Value::Text(diff.functions.joints[id as usize].name.clone());
    ClassOut {
        class: class_name(class.of_classes, class.after),
        class_before: class_name(class.of_classes, class.before),
        arm: &diff.sides.after.arms[class.arms.after].name,
        arm_before: &diff.sides.before.arms[class.arms.before].name,
        sentence: sentence(class),
        could_not_act: &class.idle,
        verdict: counted.verdict.as_str(),
        verdict_detail: counted.verdict.key(),
        packets: BeforeAfter {
            before: counted.total.before.packets,
            after: counted.total.after.packets,
        },
        total: object(Some(counted.total)),
        certain_change_per_packet: counted.certain.value(),
        per: class.per,
        seeds: counted.seeds.as_ref().map(SeedsOut::from),
        code: counted.code.as_ref().map(CodeOut::from),
        smallest_change_seen_per_packet: counted.blind(),
        blocks: BeforeAfter {
            before: (&counted.blocks[0]).into(),
            after: (&counted.blocks[1]).into(),
        },
        contexts: parts(&class.contexts, true),
        layers: parts(&class.layers, false),
        functions: table::json(diff, class, &class.functions),
        moves: (counted.moves.iter())
            .map(|m| {
                Value::object([
                    ("from", name(m.from)),
                    ("to", name(m.to)),
                    ("per_packet", Value::Number(m.insns_per_packet)),
                    ("why", Value::Text(m.why.clone())),
                ])
            })
            .collect(),
        calls_changed: (counted.branches.iter())
            .map(|b| {
                Value::object([
                    ("caller", b.caller.map_or(Value::Missing, name)),
                    ("callee", name(b.callee)),
                    ("calls", object(Some(b.calls))),
                    ("inclusive", object(Some(b.inclusive_insns))),
                ])
            })
            .collect(),
    }
}
