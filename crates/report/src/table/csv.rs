//! A table as CSV.

use super::{Table, Value};
use crate::sheet::Sheet;

impl<R> Table<'_, R> {
    /// The table, with a heading.
    pub(crate) fn csv(&self) -> String {
        let columns: Vec<_> =
            (self.columns.iter()).filter_map(|c| Some((c, c.csv.as_deref()?))).collect();
        let mut sheet = Sheet::new(columns.iter().map(|(_, key)| key));
        for row in &self.rows {
            let cells = columns.iter().map(|(c, _)| cell(&(c.value)(row), c.digits));
            sheet.row(cells);
        }
        sheet.finish()
    }
}

/// A figure in full, and words unchanged: [`Sheet`] guards against spreadsheets'
/// formulas.
fn cell(value: &Value, digits: Option<usize>) -> String {
    match value {
        Value::Text(text) | Value::Name(text, _) => text.clone(),
        Value::Sum(word) => (*word).into(),
        Value::Flag(flag) => flag.to_string(),
        Value::Count(count) => count.to_string(),
        value => match (value.figure(), digits) {
            (None, _) => String::new(),
            (Some(figure), None) => figure.to_string(),
            (Some(figure), Some(digits)) => format!("{figure:.digits$}"),
        },
    }
}
