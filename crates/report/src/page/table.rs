//! Tables on the page.

use serde::Serialize;

/// A column, as it is declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageColumn {
    /// The key by which the page identifies it; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The heading of the column.
    pub title: String,
    /// An explanation of the column, in a line.
    pub hint: String,
    /// Its unit; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether its cells are names, shown as code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub code: bool,
    /// Whether its cells are words, not figures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Whether the page draws it by itself, and rows have no cell of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// A cell, as shown and as sorted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCell {
    /// The text shown.
    pub text: String,
    /// The figure to sort by; none for words, which sort by their text.
    pub value: Option<f64>,
}

/// The row of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageRow {
    /// Index of the function.
    pub function: u32,
    /// A cell for each column that the page does not draw by itself.
    pub cells: Vec<PageCell>,
}

/// A table that the page draws as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageTable {
    /// What it shows.
    pub caption: String,
    /// One for each cell of a row, and those that the page draws by itself.
    pub columns: Vec<PageColumn>,
    /// By row, a cell for each column that the page does not draw by itself.
    pub rows: Vec<Vec<PageCell>>,
}

/// A table and sentences below it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageSection {
    /// The table, whose caption is the heading.
    pub table: PageTable,
    /// What is to be concluded from it.
    pub sentences: Vec<String>,
}
