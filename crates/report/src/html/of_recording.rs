//! The page of a report: a recording's classes, each with a calling-context tree
//! for each context.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use netplumb_model::class::{Context, Direction};
use netplumb_model::experiment::Experiment;
use netplumb_model::quantity::Of;
use netplumb_model::recording::{NodeId, Recording, env};

use super::figure::figure;
use crate::analysis::{ClassView, NO_LAYER, name_beside_unit, quantity, unit};
use crate::asm;
use crate::claims;
use crate::conclusions;
use crate::disks;
use crate::layers;
use crate::lines;
use crate::network::Network;
use crate::number::{counted, percent, printable};
use crate::page::{Fact, Page, PageClass, PageFunction, PagePublished, PageTree, SCHEMA};
use crate::per::Per;
use crate::sampled;
use crate::shares;
use crate::summary::{self, label, sent};
use crate::terminal::bottleneck;
use crate::together::Together;
use crate::trace;
use crate::trust::{footer, is_of_commands};

/// A symbol of more than this is no name of a function.
const NAME_LETTERS: usize = 500;
const TEXT_LETTERS: usize = 4_000;
/// Up to so many classes each have a sentence of their own at the top. More of
/// them are a table, which is on the page too.
const MOST_SENTENCES: usize = 4;

/// By arm and direction, and then by context: calls and own instructions of nodes.
type Costs = HashMap<(usize, Direction), BTreeMap<Context, BTreeMap<NodeId, (u64, u64)>>>;

/// The page of a recording: of those classes of it that are to be shown, and what all quantities say
/// together.
pub fn report_page(
    recording: &Recording,
    views: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    together: &Together<'_>,
) -> Page {
    let costs = costs(recording);
    let places = Places::of(recording, views, &costs);
    Page {
        schema: SCHEMA,
        views: Vec::new(),
        diff: false,
        title: title(recording, experiment),
        question: experiment
            .map_or_else(String::new, |e| printable(e.question.trim(), TEXT_LETTERS)),
        headline: conclusions::of(recording, views, experiment)
            .into_iter()
            .chain(headline(views))
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
        sampled: sampled::page(sampled::of_part(recording, &together.sampled)),
        shares: shares::page(&together.shares),
        threads: together.threads(recording).map(|threads| threads.page(&places)),
        traced: trace::page::of(recording, experiment),
        code: asm::page::page(views),
        events: disks::page(recording, views).into_iter().collect(),
        events_called: String::new(),
        heat: None,
        timed: None,
        bench: None,
    }
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
            source: function.source.map(|s| lines::place(recording, s)),
        })
        .collect()
}

/// The title: the experiment's, or else what its figures are.
pub(crate) fn title(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let each = match is_of_commands(recording) {
        true => "run",
        false => "packet",
    };
    titled(&format!("What a {each} costs"), recording, experiment)
}

/// The same, where the figures are other ones.
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

fn headline(views: &[ClassView<'_>]) -> Vec<String> {
    if views.len() <= MOST_SENTENCES {
        return views.iter().map(sentence).collect();
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
        least.told(least.total),
        label(least),
        most.told(most.total),
        label(most),
        unit(most.recording),
        most.per.word()
    )]
}

/// A class in a sentence: what it costs, and where most of that is.
fn sentence(view: &ClassView<'_>) -> String {
    let mut text =
        format!("{}: {} per {}", label(view), view.with_unit(view.total), view.per.word());
    if let Some((layer, insns)) = view.layers.iter().find(|(layer, _)| layer != NO_LAYER) {
        text.push_str(&format!(
            "; most in layer {} with {} ({:.0}%)",
            printable(layer, 40),
            view.told(*insns),
            percent(*insns, view.total)
        ));
    }
    if let Some(top) = view.functions.first() {
        text.push_str(&format!(
            ", in function {} with {} ({:.1}%)",
            printable(view.name(top.function), 60),
            view.told(top.self_insns),
            percent(top.self_insns, view.total)
        ));
    }
    if let Some(network) = Network::of(view) {
        text.push_str(&format!("; {}", network.told(view)));
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

/// Facts, those of arms under their names, and figures of the run.
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
    for scalar in recording.scalars.iter().filter(|s| s.of == Of::Run) {
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

/// All costs in one pass, for there may be hundreds of arms.
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
            Per::Packet(_) | Per::Run(_) => None,
        },
        contexts,
        layers: Some(layers::page(view)),
        published,
        columns,
        rows,
        ..PageClass::default()
    }
}

/// What was sent, over what, and what that costs.
fn described(view: &ClassView<'_>) -> String {
    let contexts: Vec<String> = view
        .contexts
        .iter()
        .map(|(context, insns)| format!("{context} {}", view.told(*insns)))
        .collect();
    let each = view.per.word();
    format!(
        "{}; {} per {each} ({}), over {}.",
        sent(view.arm()),
        view.with_unit(view.total),
        contexts.join(" + "),
        match view.per {
            Per::Packet(n) | Per::Run(n) => counted(n as usize, each),
            Per::Second(seconds) => format!("{seconds:.1} s"),
        }
    )
}

/// Where in the page's trees the costs of nodes are.
#[derive(Debug, Default)]
pub(crate) struct Places {
    trees: HashMap<(usize, Direction, Context), Rows>,
}

/// Index of a class and of a context in it, and the nodes of that tree by its rows.
type Rows = (usize, usize, Vec<NodeId>);

impl Places {
    fn of(recording: &Recording, views: &[ClassView<'_>], costs: &Costs) -> Places {
        let mut trees = HashMap::new();
        // Only samples are asked for by their threads.
        let views = views.iter().enumerate().filter(|_| !recording.samples.is_empty());
        for (class, view) in views {
            let direction = view.class.direction;
            let contexts = costs.get(&(view.arm, direction)).into_iter().flatten();
            for (index, (context, nodes)) in contexts.enumerate() {
                let rows = rows(recording, nodes).into_iter().collect();
                trees.insert((view.arm, direction, *context), (class, index, rows));
            }
        }
        Places { trees }
    }

    /// A class, a context in it, and a row of its tree; none for what is on no page.
    pub(crate) fn of_node(
        &self,
        arm: usize,
        direction: Direction,
        context: Context,
        node: NodeId,
    ) -> Option<(usize, usize, usize)> {
        let (class, index, rows) = self.trees.get(&(arm, direction, context))?;
        Some((*class, *index, rows.binary_search(&node).ok()?))
    }
}

/// The nodes of a tree, by its rows: those with a cost, and their ancestors.
fn rows(recording: &Recording, nodes: &BTreeMap<NodeId, (u64, u64)>) -> BTreeSet<NodeId> {
    let mut rows: BTreeSet<NodeId> = nodes.keys().copied().collect();
    for id in nodes.keys() {
        let mut above = recording.nodes[*id as usize].parent;
        while let Some(id) = above.filter(|id| rows.insert(*id)) {
            above = recording.nodes[id as usize].parent;
        }
    }
    rows
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
