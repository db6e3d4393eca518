//! A table as Markdown, padded, so that it can be read without rendering.

use super::{Column, Kind, Table, Value};
use crate::number::printable;
use crate::text::{code, prose};

/// Letters of a symbol, with its module.
const NAME_LETTERS: usize = 60;
const MODULE_LETTERS: usize = 20;

impl<R> Table<'_, R> {
    /// The table, with a heading and an empty line after it.
    pub(crate) fn markdown(&self, out: &mut String) {
        let columns = self.placed(|c| c.markdown);
        let heading = columns.iter().map(|c| prose(&c.title, c.letters)).collect();
        let mut lines: Vec<Vec<String>> = vec![heading];
        for row in &self.rows {
            lines.push(columns.iter().map(|c| cell(c, row)).collect());
        }
        let widths: Vec<usize> = (0..columns.len())
            .map(|n| {
                let cells = lines.iter().map(|line| line[n].chars().count());
                cells.max().unwrap_or(0).max(3)
            })
            .collect();
        for (n, line) in lines.iter().enumerate() {
            out.push('|');
            for ((cell, width), column) in line.iter().zip(&widths).zip(&columns) {
                let pad = " ".repeat(width - cell.chars().count());
                match column.kind {
                    Kind::Figure => out.push_str(&format!(" {pad}{cell} |")),
                    _ => out.push_str(&format!(" {cell}{pad} |")),
                }
            }
            out.push('\n');
            if n == 0 {
                out.push('|');
                for (width, column) in widths.iter().zip(&columns) {
                    let end = match column.kind {
                        Kind::Figure => ':',
                        _ => '-',
                    };
                    out.push_str(&format!(" {}{end} |", "-".repeat(width - 1)));
                }
                out.push('\n');
            }
        }
        out.push('\n');
    }
}

fn cell<R>(column: &Column<'_, R>, row: &R) -> String {
    match (column.value)(row) {
        Value::Name(name, Some(module)) => {
            let module = printable(&module, MODULE_LETTERS);
            code(&format!("{name} [{module}]"), NAME_LETTERS)
        }
        Value::Sum(word) => format!("**{word}**"),
        Value::Name(name, None) => code(&name, NAME_LETTERS),
        Value::Text(text) => prose(&text, column.letters),
        Value::Formatted(text, _) if column.kind == Kind::Text => prose(&text, column.letters),
        value => value.cell_text(),
    }
}
