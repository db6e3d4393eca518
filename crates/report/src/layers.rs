//! The table of a class's layers, whatever its costs are of.

use crate::analysis::ClassView;
use crate::page::PageTable;
use crate::table::{Column, Room, Shade, Table, Value};

/// A layer is a word.
const WORD_LETTERS: usize = 16;

/// A layer of a class, as a row of its table.
pub(crate) struct LayerRow {
    pub(crate) layer: String,
    /// Its share of one packet, run or second.
    pub(crate) each: Value,
    /// All of it.
    pub(crate) sum: Value,
    /// Its share of the whole, from 0 to 1.
    pub(crate) share: f64,
}

/// The layers of a class, the largest first.
pub(crate) fn rows(class: &ClassView<'_>) -> Vec<LayerRow> {
    let layers = class.layers.iter();
    let row = |(layer, sum): &(String, u64)| LayerRow {
        layer: layer.clone(),
        each: class.each(*sum),
        sum: Value::Count(*sum),
        share: *sum as f64 / class.total.max(1) as f64,
    };
    layers.map(row).collect()
}

/// Its columns, of costs in a unit.
pub(crate) fn columns(unit: &str) -> Vec<Column<'static, LayerRow>> {
    vec![
        Column::text("layer", |r: &LayerRow| r.layer.clone())
            .hint("the part of the network stack")
            .json("layer")
            .people(0)
            .letters(WORD_LETTERS)
            .page("layer"),
        Column::figure("self", |r: &LayerRow| r.each.clone())
            .hint("of its functions, together")
            .unit(unit.to_string())
            .people(1)
            .page("self"),
        Column::machine(|r: &LayerRow| r.sum.clone()).json("self"),
        Column::figure("share", |r: &LayerRow| Value::Share(r.share))
            .hint("of the path")
            .json("share")
            .people(2)
            .page("share"),
        Column::bars(|r: &LayerRow| Value::Bar(r.share, Shade::Full)),
    ]
}

fn table(rows: Vec<LayerRow>, unit: &str) -> Table<'static, LayerRow> {
    Table::new(columns(unit), rows)
}

/// For a terminal, with bars.
pub(crate) fn terminal(rows: Vec<LayerRow>, columns: usize) -> String {
    // A layer, a count and a share are before it.
    let bar = columns.saturating_sub(40).clamp(20, 30);
    let room = Room { bar, ..Room::new(columns, 0) };
    table(rows, "").headless().terminal(room)
}

/// The layers of a class as JSON.
pub(crate) fn json(class: &ClassView<'_>) -> Vec<Value> {
    of_class(class).json()
}

/// The same for the page.
pub(crate) fn page(class: &ClassView<'_>) -> PageTable {
    let (unit, per) = (&class.quantity.unit, class.per.word());
    of_class(class).page(&format!("Layers of {}, {unit} per {per}", class.class))
}

fn of_class(class: &ClassView<'_>) -> Table<'static, LayerRow> {
    table(rows(class), &class.quantity.unit)
}
