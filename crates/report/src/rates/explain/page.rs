//! The cost of a packet along each path, on the page.

use std::collections::BTreeMap;
use std::rc::Rc;

use netplumb_model::recording::Recording;

use super::{Explained, Unit, heading};
use crate::number::printable;
use crate::page::{PageCostPart, PageCosts, PagePart, PageTable};
use crate::table::{Column, Table, Value};

const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 600;
/// The most functions on the page; cheap ones on every path are left out.
const MOST_FUNCTIONS: usize = 300;

/// The costs of paths that were measured in one unit; none without any.
pub(super) fn costs(
    recording: &Recording,
    unit: Unit,
    paths: &[Rc<Explained>],
) -> Option<PagePart> {
    let paths: Vec<&Explained> = paths.iter().map(|path| &**path).collect();
    (!paths.is_empty()).then(|| PagePart::Costs(of_unit(recording, unit, &paths)))
}

fn of_unit(recording: &Recording, unit: Unit, paths: &[&Explained]) -> PageCosts {
    let title = printable(&heading(recording, unit), TEXT_LETTERS);
    let mut layers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut functions: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (at, path) in paths.iter().enumerate() {
        for (layer, own) in &path.layers {
            let each = layers.entry(layer).or_insert_with(|| vec![0.0; paths.len()]);
            each[at] += own;
        }
        for f in &path.functions {
            let key = (f.name.as_str(), f.layer.as_str());
            let each = functions.entry(key).or_insert_with(|| vec![0.0; paths.len()]);
            each[at] += f.own;
        }
    }
    let mut functions: Vec<PageCostPart> =
        (functions.into_iter()).map(|((name, layer), each)| part(name, layer, each)).collect();
    let most = |f: &PageCostPart| f.each.iter().copied().fold(0.0, f64::max);
    functions.sort_by(|a, b| most(b).total_cmp(&most(a)));
    functions.truncate(MOST_FUNCTIONS);
    let of = |name: &str, of: fn(&Explained) -> f64| {
        part(name, "", paths.iter().map(|path| of(path)).collect())
    };
    let others = [
        of("generator", |path| path.generator),
        of("no packet's", |path| path.other),
        of("user code", |path| path.user),
    ];
    let parts: Vec<PageCostPart> =
        (layers.into_iter()).map(|(layer, each)| part(layer, layer, each)).chain(others).collect();
    let unit = match unit {
        Unit::Instructions => "instructions",
        Unit::Nanoseconds => "ns",
    };
    let paths: Vec<String> =
        (paths.iter()).map(|path| printable(&path.path, NAME_LETTERS)).collect();
    with_tables(title, unit, paths, parts, &functions)
}

/// With tables of the same.
pub(in crate::rates) fn with_tables(
    title: String,
    unit: &str,
    paths: Vec<String>,
    parts: Vec<PageCostPart>,
    functions: &[PageCostPart],
) -> PageCosts {
    PageCosts {
        title,
        layers: table(false, &paths, unit, &parts),
        functions: table(true, &paths, unit, functions),
        unit: unit.into(),
        paths,
        parts,
    }
}

pub(in crate::rates) fn part(name: &str, layer: &str, each: Vec<f64>) -> PageCostPart {
    PageCostPart {
        name: printable(name, NAME_LETTERS),
        layer: printable(layer, NAME_LETTERS),
        each,
    }
}

/// Layers or functions with a column for each path.
fn table(functions: bool, paths: &[String], unit: &str, parts: &[PageCostPart]) -> PageTable {
    type CostRow<'r> = &'r PageCostPart;
    let mut columns = match functions {
        true => vec![
            Column::code("function", |r: &CostRow<'_>| Value::Name(r.name.clone(), None))
                .hint("its symbol")
                .page("function"),
            Column::text("layer", |r: &CostRow<'_>| r.layer.clone())
                .hint("the part of the network stack that it is in")
                .page("layer"),
        ],
        false => vec![
            Column::text("layer", |r: &CostRow<'_>| r.name.clone())
                .hint("the part of the network stack, or what is not the path's")
                .page("layer"),
        ],
    };
    columns.extend(paths.iter().enumerate().map(|(at, path)| {
        Column::figure(path.clone(), move |r: &CostRow<'_>| {
            Value::Number(r.each.get(at).copied().unwrap_or(0.0))
        })
        .hint("own cost of each packet along the path")
        .unit(unit.to_string())
        .page("path")
    }));
    let by = if functions { "function" } else { "layer" };
    Table::new(columns, parts).page(&format!("By {by}, {unit} of each packet"))
}
