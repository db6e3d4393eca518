//! Dependence on random numbers: the same arms under other random seeds.

use std::collections::BTreeMap;

use netplumb_model::experiment::ONLY_ARM;
use netplumb_model::recording::{Arm, Recording, env};

use crate::analysis::ClassView;
use crate::analysis::functions;
use crate::number::printable;
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Functions named for each class.
const TOP: usize = 6;

/// The name of an arm, or of the one that it repeats.
pub(crate) fn name(arm: &Arm) -> &str {
    arm.repeats().unwrap_or(&arm.name)
}

/// Whether an arm has this name in its experiment: a recording's only arm may be called by its command.
pub(crate) fn is_called(recording: &Recording, arm: &Arm, name: &str) -> bool {
    let is_only = || recording.arms.iter().all(|other| self::name(other) == self::name(arm));
    self::name(arm) == name || (name == ONLY_ARM && is_only())
}

/// The view of every arm and class under the seed with the median cost: the typical one,
/// where a single seed may be a lucky one. Without repeats, all views unchanged.
pub fn typical<'r>(classes: &[ClassView<'r>]) -> Vec<ClassView<'r>> {
    // The hundreds of arms of a scan have no repeats.
    if !classes.iter().any(|view| view.arm().repeats().is_some()) {
        return classes.to_vec();
    }
    let cost = |view: &ClassView<'_>| view.total as f64 / view.packets.max(1) as f64;
    let key = |view: &ClassView<'r>| (name(view.arm()).to_string(), view.class);
    let mut typical: Vec<ClassView<'r>> = Vec::new();
    for view in classes {
        if typical.iter().any(|t| key(t) == key(view)) {
            continue;
        }
        let mut seeds: Vec<&ClassView<'r>> =
            classes.iter().filter(|v| key(v) == key(view)).collect();
        seeds.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        if let Some(middle) = seeds.get((seeds.len().max(1) - 1) / 2) {
            typical.push((*middle).clone());
        }
    }
    typical
}

/// One class of one arm, over all seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The arm, and the class.
    pub of: String,
    /// Instructions per packet under each seed, sorted.
    pub costs: Vec<f64>,
    /// Functions that differ: the name, the least and the most per packet, the widest
    /// first.
    pub functions: Vec<(String, f64, f64)>,
}

impl Spread {
    fn at(&self, share: f64) -> f64 {
        let last = self.costs.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.costs.get(at).copied().unwrap_or(0.0)
    }
}

/// The spreads of all classes that were repeated.
pub fn spreads(classes: &[ClassView<'_>]) -> Vec<Spread> {
    let mut spreads = Vec::new();
    for first in classes.iter().filter(|view| view.arm().repeats().is_none()) {
        let mut views = vec![first];
        views.extend(classes.iter().filter(|view| {
            view.class == first.class && view.arm().repeats() == Some(&first.arm().name)
        }));
        if views.len() < 2 {
            continue;
        }
        let mean = |insns: u64, view: &ClassView<'_>| insns as f64 / view.packets.max(1) as f64;
        let mut costs: Vec<f64> = views.iter().map(|v| mean(v.total, v)).collect();
        costs.sort_by(f64::total_cmp);
        let of_seeds: Vec<BTreeMap<&str, u64>> = views.iter().map(|v| functions(v)).collect();
        let names: std::collections::BTreeSet<&str> =
            of_seeds.iter().flat_map(|f| f.keys().copied()).collect();
        let mut differing: Vec<(String, f64, f64)> = names
            .into_iter()
            .filter_map(|name| {
                let costs = of_seeds
                    .iter()
                    .zip(&views)
                    .map(|(functions, view)| mean(functions.get(name).copied().unwrap_or(0), view));
                let least = costs.clone().fold(f64::MAX, f64::min);
                let most = costs.fold(f64::MIN, f64::max);
                (most > least).then(|| (name.to_string(), least, most))
            })
            .collect();
        differing.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)).then(a.0.cmp(&b.0)));
        spreads.push(Spread { of: crate::summary::label(first), costs, functions: differing });
    }
    spreads
}

/// The spreads as text; nothing if no arm was repeated.
pub fn render(recording: &Recording, classes: &[ClassView<'_>], columns: usize) -> String {
    let spreads = spreads(classes);
    let Some(seeds) = spreads.iter().map(|s| s.costs.len()).max() else {
        return String::new();
    };
    let wanted = recording.environment.get(env::SEEDS);
    let cut = match wanted.and_then(|w| w.parse::<usize>().ok()) {
        Some(wanted) if wanted > seeds => format!(" of {wanted}"),
        _ => String::new(),
    };
    let mut out = format!("Instructions per packet under {seeds}{cut} random seeds\n");
    let tenths = |value: f64| Value::Formatted(format!("{value:.1}"), Some(value));
    let all = vec![
        Column::text("class", |s: &&Spread| s.of.clone()).people(0),
        Column::figure("least", |s: &&Spread| tenths(s.at(0.0))).people(1),
        Column::figure("median", |s: &&Spread| tenths(s.at(0.5))).people(2),
        Column::figure("most", |s: &&Spread| tenths(s.at(1.0))).people(3),
        Column::figure("spread", |s: &&Spread| {
            let (least, most) = (s.at(0.0), s.at(1.0));
            let percent = (most - least) * 100.0 / least.max(1.0);
            Value::Formatted(format!("{percent:.2}%"), Some(percent))
        })
        .people(4),
    ];
    out.push_str(&Table::new(all, &spreads).terminal(Room::new(columns, 0)));
    for spread in &spreads {
        let of = printable(&spread.of, 60);
        let line = match spread.functions.as_slice() {
            [] => format!("  - {of}: nothing depends on the seed"),
            functions => {
                let names: Vec<String> = functions
                    .iter()
                    .take(TOP)
                    .map(|(name, least, most)| {
                        format!("{} {least:.1} to {most:.1}", printable(name, 60))
                    })
                    .collect();
                let more = match functions.len().saturating_sub(TOP) {
                    0 => String::new(),
                    n => format!(", and {n} more by less"),
                };
                format!("  - {of} depends on the seed in {}{more}", names.join(", "))
            }
        };
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out.push('\n');
    out
}
