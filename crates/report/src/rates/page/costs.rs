//! What a packet costs along each path, on the page.

use std::collections::BTreeMap;

use netplumb_model::recording::Recording;

use super::{NAME_LETTERS, TEXT_LETTERS};
use crate::number::printable;
use crate::page::{PageCostFunction, PageCostPart, PageCosts};
use crate::rates::explain::{Explained, Unit, explained, heading};

/// Functions that the page has; those that cost little on every path are left out.
const MOST_FUNCTIONS: usize = 300;

/// In instructions, and in nanoseconds: what there is of these.
pub(super) fn costs(recording: &Recording) -> Vec<PageCosts> {
    let all = explained(recording);
    [Unit::Instructions, Unit::Nanoseconds]
        .into_iter()
        .filter_map(|unit| {
            let paths = all.iter().filter(|p| p.unit == unit && p.packets > 0);
            let paths: Vec<&Explained> = paths.collect();
            (!paths.is_empty()).then(|| of_unit(recording, unit, &paths))
        })
        .collect()
}

fn of_unit(recording: &Recording, unit: Unit, paths: &[&Explained]) -> PageCosts {
    let mut layers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut functions: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (at, path) in paths.iter().enumerate() {
        for (layer, own) in &path.layers {
            let each = layers
                .entry(layer)
                .or_insert_with(|| vec![0.0; paths.len()]);
            each[at] += own;
        }
        for f in &path.functions {
            let key = (f.name.as_str(), f.layer.as_str());
            let each = functions
                .entry(key)
                .or_insert_with(|| vec![0.0; paths.len()]);
            each[at] += f.own;
        }
    }
    let mut functions: Vec<PageCostFunction> = (functions.into_iter())
        .map(|((name, layer), each)| PageCostFunction {
            name: printable(name, NAME_LETTERS),
            layer: printable(layer, NAME_LETTERS),
            each,
        })
        .collect();
    let most = |f: &PageCostFunction| f.each.iter().copied().fold(0.0, f64::max);
    functions.sort_by(|a, b| most(b).total_cmp(&most(a)));
    functions.truncate(MOST_FUNCTIONS);
    let of = |name: &str, of: fn(&Explained) -> f64| PageCostPart {
        name: name.into(),
        layer: String::new(),
        each: paths.iter().map(|path| of(path)).collect(),
    };
    let others = [
        of("generator", |path| path.generator),
        of("no packet's", |path| path.other),
        of("user code", |path| path.user),
    ];
    PageCosts {
        title: printable(&heading(recording, unit), TEXT_LETTERS),
        unit: match unit {
            Unit::Instructions => "instructions".into(),
            Unit::Nanoseconds => "ns".into(),
        },
        paths: (paths.iter())
            .map(|path| printable(&path.path, NAME_LETTERS))
            .collect(),
        parts: (layers.into_iter())
            .map(|(layer, each)| PageCostPart {
                name: printable(layer, NAME_LETTERS),
                layer: printable(layer, NAME_LETTERS),
                each,
            })
            .chain(others)
            .collect(),
        functions,
    }
}
