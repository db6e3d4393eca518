//! A comparison as the page's data: one tree of the union for each context.

use std::collections::BTreeMap;

use netplumb_model::recording::env;

use super::facts::trust;
use super::sentence::sentence;
use super::tree::{UnionNode, UnionTree};
use super::{ClassDiff, Diff};
use crate::lines;
use crate::number::printable;
use crate::page::{Fact, Page, PageClass, PageFunction, PageMove, PageTree, SCHEMA};

/// What the page is given.
pub fn page(diff: &Diff<'_>) -> Page {
    let (before, after) = (diff.sides.before, diff.sides.after);
    let unit = after.environment.get(env::UNIT);
    let mut headline: Vec<String> = diff.classes.iter().map(|c| sentence(diff, c)).collect();
    headline.extend(diff.unpaired.iter().cloned());
    let mut warnings: Vec<String> = diff.differences.iter().map(ToString::to_string).collect();
    warnings.extend(diff.warnings.iter().cloned());
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| printable(n, 200));
    let (functions, numbers) = functions(diff);
    Page {
        schema: SCHEMA,
        diff: true,
        title: if was == is {
            format!("The arms of {is}")
        } else {
            format!("{was} → {is}")
        },
        question: "What changed?".into(),
        headline,
        warnings,
        unit: unit.cloned().unwrap_or_else(|| "instructions".into()),
        facts: after
            .environment
            .keys()
            .chain(
                before
                    .environment
                    .keys()
                    .filter(|k| !after.environment.contains_key(*k)),
            )
            .map(|key| {
                let was = before.environment.get(key);
                let is = after.environment.get(key);
                let none = || "(not recorded)".to_string();
                Fact {
                    key: key.clone(),
                    value: is.cloned().unwrap_or_else(none),
                    before: (was != is).then(|| was.cloned().unwrap_or_else(none)),
                }
            })
            .collect(),
        trust: trust(diff),
        claims: Vec::new(),
        figures: Vec::new(),
        functions,
        classes: diff
            .classes
            .iter()
            .map(|c| class(diff, c, &numbers))
            .collect(),
        timed: None,
        bench: None,
    }
}

/// The functions of all pairs of arms, each once, and the number there of each joint.
fn functions(diff: &Diff<'_>) -> (Vec<PageFunction>, Vec<u32>) {
    let mut known = BTreeMap::new();
    let mut functions = Vec::new();
    let numbers = diff.functions.joints.iter().map(|joint| {
        let same = (
            &joint.name,
            &joint.module,
            &joint.was,
            &joint.before,
            &joint.after,
        );
        *known.entry(same).or_insert_with(|| {
            functions.push(PageFunction {
                name: joint.name.clone(),
                module: joint.module.clone(),
                layer: joint.layer.clone(),
                was: joint.was.clone(),
                source: joint
                    .after
                    .first()
                    .and_then(|&f| lines::definition(diff.sides.after, f)),
            });
            (functions.len() - 1) as u32
        })
    });
    let numbers = numbers.collect();
    (functions, numbers)
}

fn class(diff: &Diff<'_>, class: &ClassDiff, numbers: &[u32]) -> PageClass {
    let was = &diff.sides.before.arms[class.arms.before].name;
    let is = &diff.sides.after.arms[class.arms.after].name;
    PageClass {
        arm: if was == is {
            is.clone()
        } else {
            format!("{was} → {is}")
        },
        class: class.class(),
        per: class.after.proto.unit().into(),
        sentence: sentence(diff, class),
        could_not_act: class.idle.iter().map(ToString::to_string).collect(),
        packets: class.total.after.packets,
        packets_before: class.total.before.packets,
        contexts: class.trees.iter().map(|t| tree(t, numbers)).collect(),
        published: None,
        moves: class
            .moves
            .iter()
            .map(|m| PageMove {
                from: numbers[m.from as usize],
                to: numbers[m.to as usize],
                insns_per_packet: m.insns_per_packet,
                why: m.why.clone(),
            })
            .collect(),
        ..PageClass::default()
    }
}

fn tree(tree: &UnionTree, numbers: &[u32]) -> PageTree {
    let column = |of: fn(&UnionNode) -> u64| tree.nodes.iter().map(of).collect();
    PageTree {
        context: tree.context.to_string(),
        parent: tree
            .nodes
            .iter()
            .map(|n| n.parent.map_or(-1, i64::from))
            .collect(),
        function: tree
            .nodes
            .iter()
            .map(|n| numbers[n.function as usize])
            .collect(),
        calls: column(|n| n.after.calls),
        self_insns: column(|n| n.after.self_insns),
        calls_before: column(|n| n.before.calls),
        self_insns_before: column(|n| n.before.self_insns),
    }
}
