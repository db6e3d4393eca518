//! A comparison as the page's data: one tree of the union for each context, and every row with
//! its verdict where blocks are a sample.

use std::collections::BTreeMap;

use netplumb_model::recording::env;

use super::sentence::{sentence, words};
use super::terminal::{left_out, two_clocks};
use super::tree::{UnionNode, UnionTree};
use super::trust::trust;
use super::{ClassDiff, Diff, DiffRow, Judge, mixed, table, tree_of, with_trees};
use crate::footer::Note;
use crate::interval;
use crate::number::printable;
use crate::page::{
    Fact, Page, PageCell, PageClass, PageCompared, PageFunction, PageMove, PageTimes, PageTree,
    SCHEMA,
};
use crate::source::definition;

/// The data of a comparison's page.
pub fn page(diff: &Diff<'_>) -> Page {
    match diff.judge {
        Judge::Exact => of_trees(diff, diff),
        Judge::Statistical => of_samples(diff),
    }
}

/// Of figures that vary. Trees are subtracted as for instructions; verdicts are by
/// blocks.
fn of_samples(diff: &Diff<'_>) -> Page {
    let mut page = with_trees(diff, |trees| of_trees(diff, trees));
    page.unit = diff.classes.first().map_or("ns".into(), |c| c.unit.clone());
    // The start time and the time to attach are not differences of the sides.
    for fact in &mut page.facts {
        if fact.key == env::STARTED || fact.key.starts_with("probes.attach") {
            fact.before = None;
        }
    }
    if let Some(text) = two_clocks(diff) {
        page.headline.insert(0, text.into());
    }
    page.classes.extend(diff.both.iter().map(|both| {
        let caption = format!(
            "Functions of {} that both instruments saw, per {}; own time includes functions below \
             that were not timed",
            both.class, both.per
        );
        PageClass {
            class: both.class.to_string(),
            per: both.per.into(),
            sentence: format!("{}: what both instruments saw", words(both.class)),
            times: Some(PageTimes {
                both: Some(mixed::table(both, 0).page(&caption)),
                ..PageTimes::default()
            }),
            ..PageClass::default()
        }
    }));
    if page.classes.iter().any(|c| !c.contexts.is_empty()) {
        page.trust.push(Note::new(
            "trees",
            "layers, contexts and graphs are means of all blocks, without a verdict; negative own time is drawn \
             as zero",
        ));
    }
    page
}

/// The whole page, with the trees of an exact comparison.
fn of_trees(diff: &Diff<'_>, trees: &Diff<'_>) -> Page {
    let after = trees.sides.after;
    let unit = after.environment.get(env::UNIT);
    let mut headline: Vec<String> = diff.with_sums().into_iter().map(sentence).collect();
    headline.extend(diff.unpaired.iter().cloned());
    let mut warnings: Vec<String> = diff.differences.iter().map(ToString::to_string).collect();
    warnings.extend(diff.warnings.iter().cloned());
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| printable(n, 200));
    let mut title = match was == is {
        true => format!("The arms of {is}"),
        false => format!("{was} → {is}"),
    };
    if let Some(root) = after.root() {
        title.push_str(&format!(" below {}", printable(root, 80)));
    }
    if let Some(name) = diff.quantity() {
        title.push_str(&format!(" ({name})"));
    }
    let (functions, numbers) = functions(trees);
    let classes = diff.classes.iter();
    Page {
        schema: SCHEMA,
        diff: true,
        title,
        question: "What changed?".into(),
        headline,
        warnings,
        unit: unit.cloned().unwrap_or_else(|| "instructions".into()),
        facts: facts(trees),
        trust: trust(diff),
        functions,
        summary: table::summary(diff),
        classes: classes.map(|c| class(diff, trees, c, tree_of(trees, c), &numbers)).collect(),
        ..Page::default()
    }
}

/// The facts of either side.
fn facts(diff: &Diff<'_>) -> Vec<Fact> {
    let [before, after] = diff.environments();
    let gone = before.keys().filter(|k| !after.contains_key(*k));
    let fact = |key: &String| {
        let (was, is) = (before.get(key), after.get(key));
        let none = || "(not recorded)".to_string();
        Fact {
            key: key.clone(),
            value: is.cloned().unwrap_or_else(none),
            before: (was != is).then(|| was.cloned().unwrap_or_else(none)),
        }
    };
    after.keys().chain(gone).map(fact).collect()
}

/// The functions of all pairs of arms, each once, and each joint's index among them.
fn functions(diff: &Diff<'_>) -> (Vec<PageFunction>, Vec<u32>) {
    let mut known = BTreeMap::new();
    let mut functions = Vec::new();
    let numbers = diff.functions.joints.iter().map(|joint| {
        let same = (&joint.name, &joint.module, &joint.was, &joint.before, &joint.after);
        *known.entry(same).or_insert_with(|| {
            functions.push(PageFunction {
                name: joint.name.clone(),
                module: joint.module.clone(),
                layer: joint.layer.clone(),
                was: joint.was.clone(),
                source: joint.after.first().and_then(|&f| definition(diff.sides.after, f)),
            });
            (functions.len() - 1) as u32
        })
    });
    let numbers = numbers.collect();
    (functions, numbers)
}

fn class(
    diff: &Diff<'_>,
    trees: &Diff<'_>,
    class: &ClassDiff,
    counted: Option<&ClassDiff>,
    numbers: &[u32],
) -> PageClass {
    let total = counted.and_then(|c| c.counted.as_ref()).map(|c| c.total);
    let moves = class.counted.iter().flat_map(|c| &c.moves);
    PageClass {
        arm: printable(&table::arm(diff, class), 200),
        class: class.class(),
        per: class.per.into(),
        sentence: sentence(class),
        could_not_act: class.idle.iter().map(ToString::to_string).collect(),
        packets: total.map_or(0, |t| t.after.packets),
        packets_before: total.map_or(0, |t| t.before.packets),
        contexts: counted
            .map_or_else(Vec::new, |c| c.trees.iter().map(|t| tree(t, numbers)).collect()),
        layers: counted.map(|c| table::all_layers(trees, c)),
        columns: match class.counted {
            Some(_) => table::from_trees(diff),
            None => Vec::new(),
        },
        moves: moves
            .map(|m| PageMove {
                from: numbers[m.from as usize],
                to: numbers[m.to as usize],
                insns_per_packet: m.insns_per_packet,
                why: m.why.clone(),
            })
            .collect(),
        times: class.counted.is_none().then(|| compared(diff, class)),
        ..PageClass::default()
    }
}

fn compared(diff: &Diff<'_>, class: &ClassDiff) -> PageTimes {
    let mut notes = left_out(class, &|name| name.into());
    let judged = class.rows().filter_map(|r| Some((r.name.as_str(), r.judged.statistically()?)));
    notes.extend(interval::noise(judged, class.apart));
    let rows: Vec<&DiffRow> = class.rows().chain(&class.inclusive).collect();
    let table = table::rows(diff, class, ("function", "layer"), &rows);
    let whole = class.way.iter().len() + class.total.iter().len();
    let own = rows.len() - class.inclusive.len();
    let kind = |n: usize| match n {
        n if n >= own => "inclusive",
        n if n < whole => "whole",
        n if n < whole + class.stages.len() => "stage",
        _ => "function",
    };
    let cells = (0..).zip(&rows).zip(table.page_rows());
    PageTimes {
        compared: cells.map(|((n, r), cells)| row(kind(n), r, cells)).collect(),
        columns: table.page_columns(),
        stage_columns: table::rows(diff, class, ("stage", "kind"), &[]).page_columns(),
        notes,
        ..PageTimes::default()
    }
}

fn row(what: &str, row: &DiffRow, cells: Vec<PageCell>) -> PageCompared {
    let sample = row.judged.statistically();
    PageCompared {
        what: what.into(),
        ratio: sample
            .and_then(|s| s.ratio)
            .map(|r| [r.value, r.low, r.high])
            .filter(|r| r.iter().all(|v| v.is_finite())),
        way: match (row.judged.differs(), row.judged.is_worse()) {
            (false, _) => "",
            (true, false) => "less",
            (true, true) => "more",
        }
        .into(),
        cells,
    }
}

fn tree(tree: &UnionTree, numbers: &[u32]) -> PageTree {
    let column = |of: fn(&UnionNode) -> u64| tree.nodes.iter().map(of).collect();
    PageTree {
        context: tree.context.to_string(),
        parent: tree.nodes.iter().map(|n| n.parent.map_or(-1, i64::from)).collect(),
        function: tree.nodes.iter().map(|n| numbers[n.function as usize]).collect(),
        calls: column(|n| n.after.calls),
        self_insns: column(|n| n.after.self_insns),
        calls_before: column(|n| n.before.calls),
        self_insns_before: column(|n| n.before.self_insns),
    }
}
