//! Labels of several comparisons: the levels in which a pair's arms differ, and the
//! shared levels that other pairs have otherwise. No two of a list are equal.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Proto;

use super::Sides;
use super::arms::{ARCH, ArmPair, Key, Levels, OneArm, differing};
use crate::number::printable;

/// Names and levels in a label are cut to this.
const LEVEL_LIMIT: usize = 40;
const NAME_LIMIT: usize = 60;
/// A longer label is less clear than the arms' names.
const LABEL_LIMIT: usize = 160;

/// A label for each pair.
pub fn labels(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<String> {
    let all: Vec<PairArms<'_>> = pairs.iter().map(|pair| sides.arms_of(*pair)).collect();
    let varying = varying(&all);
    let mut labels: Vec<String> =
        all.iter().map(|pair| by_levels(*pair, &varying[&protocols(*pair)])).collect();
    let twice = |labels: &[String], n: usize| {
        let same = |(other, label): (usize, &String)| {
            other != n && *label == labels[n] && protocols(all[other]) == protocols(all[n])
        };
        labels.iter().enumerate().any(same)
    };
    // Arms of one kind are labelled by their names, and equal names by their order.
    let more: [&dyn Fn(usize) -> String; 2] =
        [&|n| names(all[n]), &|n| format!("{}, pair {}", names(all[n]), n + 1)];
    for other in more {
        let unclear: Vec<usize> = (0..labels.len()).filter(|n| twice(&labels, *n)).collect();
        for n in unclear {
            labels[n] = other(n);
        }
    }
    labels
}

/// The same, but empty for a pair that is alone in its protocol: the class identifies
/// it.
pub fn where_needed(sides: Sides<'_>, pairs: &[ArmPair]) -> Vec<String> {
    let protocol = |p: &ArmPair| sides.before.arms[p.before].proto;
    let shared = pairs.iter().enumerate().any(|(n, p)| {
        let earlier = &pairs[..n];
        earlier.iter().any(|other| protocol(other) == protocol(p))
    });
    match shared {
        true => labels(sides, pairs),
        false => vec![String::new(); pairs.len()],
    }
}

/// The arms of a pair.
type PairArms<'r> = [OneArm<'r>; 2];

fn protocols([before, after]: PairArms<'_>) -> (Proto, Proto) {
    (before.arm().proto, after.arm().proto)
}

fn names(both: PairArms<'_>) -> String {
    let [before, after] = both.map(|one| &one.arm().name);
    let [was, is] = [before, after].map(|name| printable(name, NAME_LIMIT));
    match before == after {
        true => was,
        false => format!("{was} → {is}"),
    }
}

/// The keys that are not the same in all pairs, by their protocols.
fn varying(pairs: &[PairArms<'_>]) -> BTreeMap<(Proto, Proto), BTreeSet<Key>> {
    let mut of: BTreeMap<(Proto, Proto), Vec<Levels>> = BTreeMap::new();
    for pair in pairs {
        let levels = of.entry(protocols(*pair)).or_default();
        levels.extend(pair.map(Levels::from_arm));
    }
    let differs = |all: &[Levels], key: &Key| all.iter().any(|l| l.get(key) != all[0].get(key));
    of.into_iter()
        .map(|(protocols, all)| {
            let keys = Levels::keys(&all).into_iter();
            // The class has the protocol.
            let keys = keys.filter(|key| key.1 != "protocol" && differs(&all, key));
            (protocols, keys.collect())
        })
        .collect()
}

/// "link lo → veth; 1024 bytes": the differences, and shared levels that are not the
/// same in all pairs of its protocols. For arms of one kind, their names.
fn by_levels(pair: PairArms<'_>, varying: &BTreeSet<Key>) -> String {
    let differences = differing(pair[0], pair[1]);
    if differences.is_empty() {
        return names(pair);
    }
    let texts: Vec<String> = differences
        .iter()
        .map(|(what, was, is)| {
            let [what, was, is] = [what, was, is].map(|t| printable(t, LEVEL_LIMIT));
            format!("{what} {was} → {is}")
        })
        .collect();
    let own = Levels::from_arm(pair[0]);
    let mut shared = Vec::new();
    for key in varying {
        let level = own.get(key);
        let said = differences.iter().any(|(what, ..)| *what == key.1);
        // A pair without a level needs no label: pairs with one have it. An architecture that no arm sets is
        // the kernel's, and needs none either.
        let is_shown = key.1 != ARCH || pair[0].level(ARCH).is_some();
        if !said && level.is_set() && is_shown {
            shared.push(in_words(&key.1, &level.called));
        }
    }
    let mut label = texts.join(", ");
    if !shared.is_empty() {
        label = format!("{label}; {}", shared.join(", "));
    }
    match label.chars().count() > LABEL_LIMIT {
        true => names(pair),
        false => label,
    }
}

/// A level that both arms have.
fn in_words(what: &str, level: &str) -> String {
    let level = printable(level, LEVEL_LIMIT);
    match what {
        "IP" | "link" => level,
        "bytes" if level == "1" => "1 byte".into(),
        "bytes" => format!("{level} bytes"),
        _ => format!("{} {level}", printable(what, LEVEL_LIMIT)),
    }
}
