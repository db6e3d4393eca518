//! Tables on the page.

use serde::Serialize;

/// A column, as it is declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageColumn {
    /// Its key, for what the page draws of it; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Its heading.
    pub title: String,
    /// What it is.
    pub hint: String,
    /// Its unit; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether it has names, shown as code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub code: bool,
    /// Whether it has words, not figures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Whether the page draws it by itself, and rows have no cell of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// A cell.
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
    /// Its columns.
    pub columns: Vec<PageColumn>,
    /// By row, a cell for each column that the page does not draw by itself.
    pub rows: Vec<Vec<PageCell>>,
}
