//! Tables on the page.

use serde::Serialize;

/// A column, as it is declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageColumn {
    /// The key by which the page identifies it; may be empty.
    pub key: String,
    /// The heading of the column.
    pub title: String,
    /// An explanation of the column, in a line.
    pub hint: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Whether its cells are names, shown as code.
    pub code: bool,
    /// Whether its cells are words, not figures.
    pub words: bool,
    /// Whether the page draws it by itself, and rows have no cell of it.
    pub own: bool,
}

/// A cell, as shown and as sorted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCell {
    /// The text shown.
    pub text: String,
    /// The figure to sort by; none for words, which sort by their text.
    pub value: Option<f64>,
    /// Whether it is marked as wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub off: bool,
}

/// The row of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageRow {
    /// Index of the function.
    pub function: u32,
    /// A cell for each column that the page does not draw by itself.
    pub cells: Vec<PageCell>,
}

/// A table that the page draws as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageTable {
    /// What it shows.
    pub caption: String,
    /// One for each cell of a row, and those that the page draws by itself.
    pub columns: Vec<PageColumn>,
    /// By row, a cell for each column that the page does not draw by itself.
    pub rows: Vec<Vec<PageCell>>,
}
