//! A table for a terminal.

use comfy_table::{Cell, CellAlignment, presets};

use super::{Column, Kind, Shade, Table, Value};
use crate::number::printable;

/// Modules are a word.
const MODULE_LETTERS: usize = 16;
/// A name is never cut to less.
const LEAST_LETTERS: usize = 8;

/// The available width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The terminal's columns.
    pub(crate) columns: usize,
    /// Letters of a name with its module.
    pub(crate) name: usize,
    /// Columns of a bar.
    pub(crate) bar: usize,
}

impl Room {
    /// Room where names are cut only to `name` letters, and no bars are drawn.
    pub(crate) fn new(columns: usize, name: usize) -> Room {
        Room { columns, name, bar: 0 }
    }
}

impl<R> Table<'_, R> {
    /// The table, indented by two blanks unless it is flush.
    pub(crate) fn terminal(&self, room: Room) -> String {
        let fits = |least: &usize| room.columns >= *least;
        let columns = self.placed(|c| c.terminal.filter(fits).map(|_| c.rank));
        let mut table = table(room.columns);
        if !self.headless {
            table.set_header((0..).zip(&columns).map(|(n, column)| {
                let title = match n {
                    0 => format!("{}{}", self.indent, column.title),
                    _ => column.title.to_string(),
                };
                placed(column, title)
            }));
        }
        for row in &self.rows {
            table.add_row((0..).zip(&columns).map(|(n, column)| {
                let text = text(column, row, room);
                let indent = if n == 0 { self.indent } else { "" };
                placed(column, format!("{indent}{text}"))
            }));
        }
        trimmed(&table)
    }
}

fn placed<R>(column: &Column<'_, R>, text: String) -> Cell {
    match column.kind {
        Kind::Figure => right(text),
        Kind::Code | Kind::Text | Kind::Drawn => Cell::new(text),
    }
}

fn text<R>(column: &Column<'_, R>, row: &R, room: Room) -> String {
    match (column.value)(row) {
        Value::Name(name, module) => {
            let module = module
                .map_or_else(String::new, |m| format!(" [{}]", printable(&m, MODULE_LETTERS)));
            let left = room.name.saturating_sub(module.chars().count());
            format!("{}{module}", printable(&name, left.max(LEAST_LETTERS)))
        }
        Value::Text(text) | Value::Formatted(text, _) => printable(&text, column.letters),
        // NaN becomes 0, as with a cast.
        Value::Bar(share, shade) => {
            let drawn = bar((share * 100.0).clamp(0.0, 100.0), room.bar);
            match shade {
                Shade::Full => drawn,
                Shade::Light => drawn.replace('█', "░"),
            }
        }
        value => value.cell_text(),
    }
}

fn table(columns: usize) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_width(columns.clamp(40, 200) as u16);
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// The table without the blanks at the ends of its lines.
fn trimmed(table: &comfy_table::Table) -> String {
    let mut out = String::new();
    for line in table.to_string().lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A share of a hundred as a bar.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share / 100.0 * width as f64 * 8.0).round() as usize;
    let mut out = "█".repeat((eighths / 8).min(width));
    if !eighths.is_multiple_of(8) && eighths / 8 < width {
        out.push(EIGHTHS[eighths % 8]);
    }
    out
}
