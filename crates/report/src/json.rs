//! A recording's figures as JSON. docs/reference/json.md describes it for users;
//! `schema` is raised with any change that would break a reader.

use std::collections::BTreeMap;

use netplumb_model::experiment::Experiment;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Quantity, Repeats};
use netplumb_model::recording::{Arm, Block, Recording};
use netplumb_stats::welch::Mean;
use serde::Serialize;

use crate::all_classes::{ArmSum, sums};
use crate::analysis::{ClassView, has_ancestor, other_work, quantity};
use crate::claims::{self, Judged};
use crate::conclusions::conclusion;
use crate::drift::{self, Drift};
use crate::footer::Note;
use crate::network::Network;
use crate::number::json_text;
use crate::sampled;
use crate::scalars::{self, NotesOut, ScalarOut};
use crate::shape::{Shape, shape};
use crate::shares;
use crate::table::{Column, Table, Value};
use crate::together::CrossQuantity;
use crate::trace::json::{TraceOut, traces};
use crate::{functions, layers, trust};

/// Version of the document.
pub const SCHEMA: u32 = 4;

/// The keys of every document of a recording, whatever was measured.
#[derive(Serialize)]
pub(crate) struct Common<'a> {
    schema: u32,
    complete: bool,
    environment: &'a BTreeMap<String, String>,
    notes: Vec<NotesOut<'a>>,
    not_tried: &'a BTreeMap<String, String>,
    not_measured: BTreeMap<&'a str, &'a str>,
    over_budget: Vec<&'a str>,
    scalars: Vec<ScalarOut<'a>>,
    losses: Vec<&'a Loss>,
    /// Single traces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traces: Vec<TraceOut<'a>>,
    claims: Vec<Judged>,
    /// The conclusion of an experiment that has claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<String>,
    /// What drifted over a long run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    drift: Vec<Drift>,
    trust: Vec<Note>,
}

impl<'a> Common<'a> {
    pub(crate) fn new(
        recording: &'a Recording,
        experiment: Option<&Experiment>,
        claims: Vec<Judged>,
        trust: Vec<Note>,
    ) -> Common<'a> {
        Common {
            schema: SCHEMA,
            complete: recording.complete,
            environment: &recording.environment,
            notes: scalars::notes(recording),
            not_tried: &recording.not_tried,
            not_measured: recording.all_not_measured(),
            over_budget: recording.all_over_budget(),
            scalars: match shape(recording) {
                // Their blocks have their own scalars.
                Shape::Rates => scalars::of_no_block(recording),
                Shape::Costs | Shape::Times | Shape::Counts | Shape::Hosts => {
                    scalars::all(recording)
                }
            },
            losses: recording.all_losses().collect(),
            traces: traces(recording),
            conclusion: experiment.and_then(|e| conclusion(e, &claims)),
            claims,
            drift: drift::drifts(recording),
            trust,
        }
    }
}

/// A document, pretty-printed.
pub(crate) fn pretty(document: &impl Serialize) -> String {
    // Strings, numbers and lists: nothing that serialization could fail on.
    json_text(serde_json::to_string_pretty(document).unwrap_or_default() + "\n")
}

#[derive(Serialize)]
struct CostsJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    quantity: QuantityOut,
    arms: &'a [Arm],
    blocks: Vec<Value>,
    classes: Vec<Value>,
    /// All classes of each arm together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sums: Vec<ArmSum>,
    apart: Vec<Apart>,
    /// The samples that a timer would take of each arm, where guests were sampled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampled: Vec<Value>,
    /// Shares that the experiment asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares: Vec<Value>,
    /// Where single samples were kept: by thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<Vec<Value>>,
}

/// The quantity of costs: keys of figures don't name it.
#[derive(Serialize)]
pub(crate) struct QuantityOut {
    name: String,
    unit: String,
}

impl From<&Quantity> for QuantityOut {
    fn from(quantity: &Quantity) -> QuantityOut {
        QuantityOut { name: quantity.name.clone(), unit: quantity.unit.clone() }
    }
}

/// Work for no packet in an arm's windows.
#[derive(Serialize)]
struct Apart {
    arm: String,
    contexts: BTreeMap<String, u64>,
}

/// The document, pretty-printed, with the results across all quantities.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
) -> String {
    let claims = experiment.map_or_else(Vec::new, |e| claims::judge(e, classes));
    let trust = trust::footer(recording, classes);
    pretty(&CostsJson {
        common: Common::new(recording, experiment, claims, trust),
        quantity: (&quantity(recording)).into(),
        arms: &recording.arms,
        blocks: blocks(recording),
        classes: self::classes(recording, classes),
        sums: sums(recording, classes),
        apart: (0..recording.arms.len())
            .map(|arm| Apart {
                arm: recording.arms[arm].name.clone(),
                contexts: named(&other_work(recording, arm)),
            })
            .collect(),
        sampled: sampled::json(sampled::of_part(recording, &together.sampled)),
        shares: shares::json(&together.shares),
        threads: together.threads(recording).map(|threads| threads.section(0).json()),
    })
}

fn named<K: ToString, V: Copy>(map: &BTreeMap<K, V>) -> BTreeMap<String, V> {
    map.iter().map(|(k, v)| (k.to_string(), *v)).collect()
}

/// Each block's figures in the quantity of its costs. Its duration is left out where the clock
/// does not measure time.
fn blocks(recording: &Recording) -> Vec<Value> {
    let quantity = quantity(recording);
    let exact = quantity.repeats == Repeats::Exactly;
    let ledger = |block: &&Block| {
        let dropped = block.ledger.dropped.iter();
        let dropped = dropped.map(|(cause, count)| (cause.clone(), Value::Count(*count)));
        Value::object([
            ("offered", Value::Count(block.ledger.offered)),
            ("delivered", Value::Count(block.ledger.delivered)),
            ("dropped", Value::object(dropped)),
        ])
    };
    let columns = vec![
        Column::machine(|b: &&Block| Value::Count(b.arm.into())).json("arm"),
        Column::machine(|b: &&Block| Value::Count(b.index.into())).json("index"),
        Column::machine(ledger).json("ledger"),
        Column::machine(|b: &&Block| Value::Flag(b.ledger.closes())).json("valid"),
        Column::machine(|b: &&Block| Value::Count(b.kernel())).json("kernel"),
        Column::machine(|b: &&Block| Value::Count(b.user())).json("user"),
        Column::machine(|b: &&Block| Value::Count(b.entered)).json("entered"),
        Column::machine(|b: &&Block| Value::Count(b.returned)).json("returned"),
        Column::machine(|b: &&Block| match exact {
            true => Value::Absent,
            false => Value::Count(b.duration_ns),
        })
        .json("duration_ns"),
    ];
    Table::new(columns, &recording.blocks).json()
}

fn classes(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<Value> {
    let quantity = quantity(recording);
    let counts = |all: &[u64]| Value::List(all.iter().copied().map(Value::Count).collect());
    let contexts = |c: &ClassView<'_>| {
        let contexts = c.contexts.iter();
        let contexts = contexts.map(|(context, sum)| (context.to_string(), Value::Count(*sum)));
        // By name.
        Value::object(contexts.collect::<BTreeMap<_, _>>())
    };
    let mut columns: Vec<Column<'_, &ClassView<'_>>> = vec![
        Column::machine(|c: &&ClassView<'_>| Value::Text(c.arm().name.clone())).json("arm"),
        Column::machine(|c: &&ClassView<'_>| Value::Text(c.class.to_string())).json("class"),
        Column::machine(|c: &&ClassView<'_>| Value::Count(c.packets)).json("packets"),
    ];
    let total = Column::machine(|c: &&ClassView<'_>| Value::Count(c.total)).json("total");
    match quantity.repeats {
        Repeats::Exactly => columns.extend([
            total,
            Column::machine(|c: &&ClassView<'_>| Value::Each(c.total, c.packets)).json("each"),
        ]),
        Repeats::Statistically => {
            let end = |c: &ClassView<'_>, end: fn(&Mean) -> Option<f64>| {
                let mean = c.mean(&c.by_block);
                mean.as_ref().and_then(end).map_or(Value::Missing, Value::Number)
            };
            columns.extend([
                Column::machine(|c: &&ClassView<'_>| Value::Text(c.per.word().into())).json("per"),
                Column::machine(|c: &&ClassView<'_>| Value::Number(c.per.count()))
                    .json("per_count"),
                total,
                Column::machine(|c: &&ClassView<'_>| Value::Number(c.per.each(c.total as f64)))
                    .json("each"),
                Column::machine(move |c: &&ClassView<'_>| end(c, |m| m.low)).json("each_low"),
                Column::machine(move |c: &&ClassView<'_>| end(c, |m| m.high)).json("each_high"),
            ]);
        }
    }
    columns.extend([
        Column::machine(move |c: &&ClassView<'_>| counts(&c.by_block)).json("by_block"),
        Column::machine(move |c: &&ClassView<'_>| contexts(c)).json("contexts"),
        Column::machine(|c: &&ClassView<'_>| Value::List(layers::json(c))).json("layers"),
        Column::machine(|c: &&ClassView<'_>| network(c, |of| of.all())).json("network"),
        Column::machine(|c: &&ClassView<'_>| network(c, |of| of.calls)).json("network_calls"),
        Column::machine(|c: &&ClassView<'_>| network(c, |of| of.softirqs)).json("network_softirqs"),
        Column::machine(|c: &&ClassView<'_>| Value::List(functions::json(c))).json("functions"),
        Column::machine(|c: &&ClassView<'_>| Value::List(edges(c))).json("edges"),
    ]);
    Table::new(columns, classes).json()
}

/// A part of the network's share of a profile.
fn network(class: &ClassView<'_>, of: fn(&Network) -> u64) -> Value {
    Network::from_class(class).map_or(Value::Absent, |network| Value::Count(of(&network)))
}

/// A caller, a callee; calls, and their inclusive cost.
type Edge<'a> = (Option<&'a str>, &'a str, u64, u64);

fn edges(class: &ClassView<'_>) -> Vec<Value> {
    let mut edges: BTreeMap<(Option<u32>, u32), (u64, u64)> = BTreeMap::new();
    for (id, view) in &class.nodes {
        let node = class.recording.nodes[*id as usize];
        let caller = node.parent.map(|p| class.recording.nodes[p as usize].function);
        let edge = edges.entry((caller, node.function)).or_default();
        edge.0 += view.calls;
        // As for a function: recursion counts once, where it began.
        if !has_ancestor(class.recording, *id, node.function) {
            edge.1 += view.inclusive_insns;
        }
    }
    let rows = edges.into_iter().map(|((caller, callee), (calls, cost))| {
        let caller = caller.map(|f| class.name(f));
        (caller, class.name(callee), calls, cost)
    });
    let columns = vec![
        Column::machine(|e: &Edge<'_>| Value::words(e.0)).json("caller"),
        Column::machine(|e: &Edge<'_>| Value::Text(e.1.into())).json("callee"),
        Column::machine(|e: &Edge<'_>| Value::Count(e.2)).json(class.quantity.calls.title()),
        Column::machine(|e: &Edge<'_>| Value::Count(e.3)).json("inclusive"),
    ];
    Table::new(columns, rows).json()
}
