//! The page of a report: a recording's classes, each with a calling-context tree
//! for each context.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use netplumb_model::class::Context;
use netplumb_model::experiment::Experiment;
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{NodeId, Recording, env};

use super::figure::figure;
use super::places::{Costs, Places, rows};
use crate::analysis::{ClassView, NO_LAYER, name_beside_unit, quantity, unit};
use crate::claims;
use crate::conclusions;
use crate::disks;
use crate::layers;
use crate::network::Network;
use crate::number::{counted, percent, printable};
use crate::page::{
    Fact, Page, PageClass, PageFunction, PagePart, PagePublished, PageSection, PageTree, SCHEMA,
};
use crate::per::Per;
use crate::sampled;
use crate::section::placed;
use crate::shares;
use crate::source;
use crate::summary::{self, label, sent};
use crate::terminal::bottleneck;
use crate::together::CrossQuantity;
use crate::trace;
use crate::trust::{footer, is_of_commands};
use crate::{all_classes, asm};

/// A longer symbol is not a function's name.
const NAME_LETTERS: usize = 500;
const TEXT_LETTERS: usize = 4_000;
/// Up to this many classes each have a sentence of their own at the top. More are
/// only in a table.
const MOST_SENTENCES: usize = 4;

/// The page of a recording: the selected classes, and the results across all quantities.
pub fn report_page(
    recording: &Recording,
    views: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
) -> Page {
    let costs = costs(recording);
    let places = Places::from_recording(recording, views, &costs);
    Page {
        schema: SCHEMA,
        views: Vec::new(),
        diff: false,
        title: title(recording, experiment),
        question: experiment
            .map_or_else(String::new, |e| printable(e.question.trim(), TEXT_LETTERS)),
        headline: conclusions::conclusions(recording, views, experiment)
            .into_iter()
            .chain(headline(recording, views))
            .collect(),
        warnings: warnings(recording),
        unit: unit(recording),
        facts: facts(recording),
        trust: footer(recording, views),
        claims: experiment
            .map_or_else(Vec::new, |e| claims::page(claims::judge_all(e, recording, views))),
        figures: experiment.map_or_else(Vec::new, |experiment| figure(experiment, views)),
        functions: functions(recording),
        summary: summary::page(views),
        classes: views.iter().map(|view| page_class(view, &costs, experiment)).collect(),
        sections: sections(recording, views, experiment, together, &places),
    }
}

/// What is beside the classes.
fn sections(
    recording: &Recording,
    views: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
    places: &Places,
) -> Vec<PageSection> {
    let traced = trace::page::page_traces(recording, experiment);
    let traced = traced.into_iter().map(PagePart::Traced).collect();
    let functions = asm::page::page(views);
    let code = (!functions.is_empty()).then_some(PagePart::Code { functions });
    let threads = together.threads(recording).map(|threads| threads.page(places));
    let mut sections: Vec<PageSection> = Vec::new();
    let calls = PageSection::new("traced", "Calls", traced);
    sections.extend(calls.map(|calls| PageSection { leads: true, ..calls }));
    sections.extend(PageSection::new("code", "Source", code.into_iter().collect()));
    sections.extend(placed(disks::section(recording, views).as_slice()));
    let threads = threads.map(PagePart::Threads).into_iter().collect();
    sections.extend(PageSection::new("threads", "Threads", threads));
    sections.extend(placed(&shares::sections(&together.shares)));
    let sampled = sampled::of_part(recording, &together.sampled);
    sections.extend(placed(&sampled::sections(sampled)));
    sections
}

/// Every function of a recording, by its id.
pub(crate) fn functions(recording: &Recording) -> Vec<PageFunction> {
    recording
        .functions
        .iter()
        .map(|function| PageFunction {
            name: printable(&function.name, NAME_LETTERS),
            module: function.module.as_deref().map(|m| printable(m, NAME_LETTERS)),
            layer: function
                .layer
                .as_deref()
                .map_or_else(|| NO_LAYER.into(), |layer| printable(layer, 40)),
            was: None,
            source: function.source.map(|s| source::place(recording, s)),
        })
        .collect()
}

/// The title: the experiment's, or else the name of its figures.
pub(crate) fn title(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let each = match is_of_commands(recording) {
        true => "run",
        false => "packet",
    };
    titled(&format!("What a {each} costs"), recording, experiment)
}

/// The same, for other figures.
pub(crate) fn titled(what: &str, recording: &Recording, experiment: Option<&Experiment>) -> String {
    let name = || {
        let name = recording.environment.get(env::NAME).map_or("", |n| n.as_str());
        let arms: Vec<&str> = recording.arms.iter().map(|arm| arm.name.as_str()).collect();
        match (name, arms.as_slice()) {
            ("" | "path", [_, ..]) if arms.len() <= 4 => format!("{what}: {}", arms.join(", ")),
            ("" | "path", _) => what.into(),
            (name, _) => name.into(),
        }
    };
    let text = experiment
        .map(|e| e.title.clone())
        .filter(|title| !title.trim().is_empty())
        .unwrap_or_else(name);
    let mut title = printable(text.trim(), NAME_LETTERS);
    if let Some(root) = recording.root() {
        title.push_str(&format!(" below {}", printable(root, 80)));
    }
    if let Some(name) = name_beside_unit(&quantity(recording)) {
        title.push_str(&format!(" ({})", printable(name, 80)));
    }
    title
}

fn headline(recording: &Recording, views: &[ClassView<'_>]) -> Vec<String> {
    if views.len() <= MOST_SENTENCES {
        let sums = all_classes::sums(recording, views);
        let sums = sums.iter().map(|sum| format!("{}.", sum.sentence()));
        return views.iter().map(sentence).chain(sums).collect();
    }
    let cost = |view: &&ClassView<'_>| view.total as f64 / view.packets.max(1) as f64;
    let by_cost = |a: &&ClassView<'_>, b: &&ClassView<'_>| cost(a).total_cmp(&cost(b));
    let (Some(least), Some(most)) = (views.iter().min_by(by_cost), views.iter().max_by(by_cost))
    else {
        return Vec::new();
    };
    let arms: BTreeSet<usize> = views.iter().map(|view| view.arm).collect();
    vec![format!(
        "{}, {}: from {} ({}) to {} ({}) {} per {}",
        counted(arms.len(), "arm"),
        counted(views.len(), "class"),
        least.cost_text(least.total),
        label(least),
        most.cost_text(most.total),
        label(most),
        unit(most.recording),
        most.per.word()
    )]
}

/// A class in a sentence: its cost, and where most of that is.
fn sentence(view: &ClassView<'_>) -> String {
    let mut text =
        format!("{}: {} per {}", label(view), view.with_unit(view.total), view.per.word());
    if let Some((layer, insns)) = view.layers.iter().find(|(layer, _)| layer != NO_LAYER) {
        text.push_str(&format!(
            "; most in layer {} with {} ({:.0}%)",
            printable(layer, 40),
            view.cost_text(*insns),
            percent(*insns, view.total)
        ));
    }
    if let Some(top) = view.functions.first() {
        text.push_str(&format!(
            ", in function {} with {} ({:.1}%)",
            printable(view.name(top.function), 60),
            view.cost_text(top.self_insns),
            percent(top.self_insns, view.total)
        ));
    }
    if let Some(network) = Network::from_class(view) {
        text.push_str(&format!("; {}", network.shares_text(view)));
    }
    text
}

pub(crate) fn warnings(recording: &Recording) -> Vec<String> {
    let mut warnings = Vec::new();
    if !recording.complete {
        warnings.push(
            "The run was cut short: what is here is whole blocks, and others are missing.".into(),
        );
    }
    let open = recording.blocks.iter().filter(|b| !b.ledger.closes()).count();
    if open > 0 {
        warnings.push(format!(
            "Invalid: {open} of {}, in which not every packet is accounted for.",
            counted(recording.blocks.len(), "block")
        ));
    }
    if recording.environment.get(env::QUICK).map(String::as_str) == Some("yes") {
        warnings.push("Quick mode: counts are right within some tenths of a percent.".into());
    }
    warnings
}

/// Facts, with arms' facts under the arms' names, and figures of the run.
pub(crate) fn facts(recording: &Recording) -> Vec<Fact> {
    let fact = |key: &str, value: &str| Fact {
        key: printable(key, 80),
        value: printable(value, TEXT_LETTERS),
        before: None,
    };
    let mut facts: Vec<Fact> =
        (recording.environment.iter()).map(|(key, value)| fact(key, value)).collect();
    for (arm, notes) in &recording.notes {
        let name = recording.arms.get(*arm as usize).map_or("?", |a| &a.name);
        let of_arm = notes.facts.iter();
        facts.extend(of_arm.map(|(key, value)| fact(&format!("{name}: {key}"), value)));
    }
    for scalar in recording.scalars.iter().filter(|s| s.of == Subject::Run) {
        let Some(quantity) = recording.quantities.get(scalar.quantity as usize) else {
            continue;
        };
        let key = match &scalar.item.label {
            Some(label) => format!("{}: {label}", quantity.name),
            None => quantity.name.clone(),
        };
        facts.push(fact(&key, &format!("{} {}", scalar.value, quantity.unit)));
    }
    facts
}

/// All costs in one pass, since there may be hundreds of arms.
fn costs(recording: &Recording) -> Costs {
    let mut costs = Costs::new();
    for cost in &recording.costs {
        let arm = recording.blocks[cost.block as usize].arm as usize;
        let node = costs
            .entry((arm, cost.direction))
            .or_default()
            .entry(cost.context)
            .or_default()
            .entry(cost.node)
            .or_default();
        node.0 += cost.calls;
        node.1 += cost.own;
    }
    costs
}

fn page_class(view: &ClassView<'_>, costs: &Costs, experiment: Option<&Experiment>) -> PageClass {
    let contexts = costs
        .get(&(view.arm, view.class.direction))
        .into_iter()
        .flatten()
        .map(|(context, nodes)| tree(view.recording, *context, nodes))
        .collect();
    let published = experiment.and_then(|experiment| {
        let published =
            experiment.published.iter().find(|published| published.class == view.class)?;
        Some(PagePublished {
            figure: printable(&published.figure, 40),
            layer: experiment.layer.clone(),
            total_us: published.total_us,
            top_function: printable(&published.top_function, NAME_LETTERS),
            top_us: published.top_us,
        })
    });
    let (columns, rows) = crate::functions::page(view);
    PageClass {
        arm: printable(&view.arm().name, NAME_LETTERS),
        class: view.class.to_string(),
        per: view.per.word().into(),
        sentence: format!("{} {}", described(view), bottleneck(view, None)),
        packets: view.packets,
        count: match view.per {
            Per::Second(seconds) => Some(seconds),
            Per::Packet(_) | Per::Connection(_) | Per::Run(_) => None,
        },
        contexts,
        layers: Some(layers::page(view)),
        published,
        columns,
        rows,
        ..PageClass::default()
    }
}

/// The workload, the link, and the cost.
fn described(view: &ClassView<'_>) -> String {
    let contexts: Vec<String> = view
        .contexts
        .iter()
        .map(|(context, insns)| format!("{context} {}", view.cost_text(*insns)))
        .collect();
    let each = view.per.word();
    format!(
        "{}; {} per {each} ({}), over {}.",
        sent(view.arm()),
        view.with_unit(view.total),
        contexts.join(" + "),
        match view.per {
            Per::Packet(n) | Per::Connection(n) | Per::Run(n) => counted(n as usize, each),
            Per::Second(seconds) => format!("{seconds:.1} s"),
        }
    )
}

/// The tree of one context. Ancestors without a cost of their own are in it.
fn tree(recording: &Recording, context: Context, nodes: &BTreeMap<NodeId, (u64, u64)>) -> PageTree {
    let mut tree = PageTree { context: context.to_string(), ..PageTree::default() };
    // A parent's id is below its children's, so its row is known when theirs come.
    let mut rows_of: HashMap<NodeId, i64> = HashMap::new();
    for (row, id) in rows(recording, nodes).into_iter().enumerate() {
        let node = recording.nodes[id as usize];
        let (calls, self_insns) = nodes.get(&id).copied().unwrap_or_default();
        let parent = node.parent.and_then(|parent| rows_of.get(&parent)).copied();
        rows_of.insert(id, row as i64);
        tree.parent.push(parent.unwrap_or(-1));
        tree.function.push(node.function);
        tree.calls.push(calls);
        tree.self_insns.push(self_insns);
    }
    tree
}
