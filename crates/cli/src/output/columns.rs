//! Plain columns, of commands that show no recording.

use std::io::{self, Write};

use netplumb_report::printable_lines;

/// Columns as wide as their contents; the columns in `right`, from 0, are right-aligned.
pub(crate) fn write_columns(
    rows: &[Vec<String>],
    right: &[usize],
    out: &mut dyn Write,
) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (text, &width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            if right.contains(&column) {
                line.push_str(&format!("{text:>width$}"));
            } else {
                line.push_str(&format!("{text:<width$}"));
            }
        }
        writeln!(out, "{}", printable_lines(line.trim_end()))?;
    }
    Ok(())
}
