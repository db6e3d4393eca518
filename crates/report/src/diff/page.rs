//! A comparison as the page's data: one tree of the union for each context.

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
        functions: diff
            .functions
            .joints
            .iter()
            .map(|joint| PageFunction {
                name: joint.name.clone(),
                module: joint.module.clone(),
                layer: joint.layer.clone(),
                was: joint.was.clone(),
                source: joint
                    .after
                    .and_then(|f| lines::definition(diff.sides.after, f)),
            })
            .collect(),
        classes: diff.classes.iter().map(|c| class(diff, c)).collect(),
        timed: None,
        bench: None,
    }
}

fn class(diff: &Diff<'_>, class: &ClassDiff) -> PageClass {
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
        packets: class.total.after.packets,
        packets_before: class.total.before.packets,
        contexts: class.trees.iter().map(tree).collect(),
        published: None,
        moves: class
            .moves
            .iter()
            .map(|m| PageMove {
                from: m.from,
                to: m.to,
                insns_per_packet: m.insns_per_packet,
                why: m.why.clone(),
            })
            .collect(),
        ..PageClass::default()
    }
}

fn tree(tree: &UnionTree) -> PageTree {
    let column = |of: fn(&UnionNode) -> u64| tree.nodes.iter().map(of).collect();
    PageTree {
        context: tree.context.to_string(),
        parent: tree
            .nodes
            .iter()
            .map(|n| n.parent.map_or(-1, i64::from))
            .collect(),
        function: tree.nodes.iter().map(|n| n.function).collect(),
        calls: column(|n| n.after.calls),
        self_insns: column(|n| n.after.self_insns),
        calls_before: column(|n| n.before.calls),
        self_insns_before: column(|n| n.before.self_insns),
    }
}
