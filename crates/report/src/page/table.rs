//! Tables on the page.

use serde::Serialize;

/// A column, as it is declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageColumn {
    /// What the data call it; empty where the page makes nothing of it by itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Its heading.
    pub title: String,
    /// What it is.
    pub hint: String,
    /// Of what it has so many; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether it is of names: code.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub code: bool,
    /// Whether it is of words, not figures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Whether the page draws it by itself, and rows have no cell of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PageCell {
    /// As it is shown.
    pub text: String,
    /// What it is sorted by; words by themselves.
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
