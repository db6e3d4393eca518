//! A table's columns, for the reference of columns.

use super::Column;
use crate::page::PageColumn;

/// A column in the reference.
pub(crate) struct Entry {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) hint: String,
    /// The outputs that show it: "terminal from 80 columns, Markdown, page, CSV `share`".
    pub(crate) shown: String,
}

/// The columns for people, with their names for programs.
pub(crate) fn entries<R>(columns: &[Column<'_, R>]) -> Vec<Entry> {
    let titled = columns.iter().filter(|c| !c.title.is_empty());
    titled
        .map(|c| {
            let places = [
                c.terminal.map(|columns| match columns {
                    0 => "terminal".into(),
                    columns => format!("terminal from {columns} columns"),
                }),
                c.markdown.map(|_| "Markdown".into()),
                c.page.as_ref().map(|_| "page".into()),
                c.csv.as_ref().map(|key| format!("CSV `{key}`")),
                c.json.as_ref().map(|key| format!("JSON `{key}`")),
            ];
            Entry {
                title: c.title.to_string(),
                unit: c.unit.to_string(),
                hint: c.hint.to_string(),
                shown: places.into_iter().flatten().collect::<Vec<_>>().join(", "),
            }
        })
        .filter(|entry| !entry.shown.is_empty())
        .collect()
}

/// The same for a table that only the page has.
pub(crate) fn of_page(columns: &[PageColumn]) -> Vec<Entry> {
    let titled = columns.iter().filter(|c| !c.title.is_empty());
    let entry = |c: &PageColumn| Entry {
        title: c.title.clone(),
        unit: c.unit.clone(),
        hint: c.hint.clone(),
        shown: "page".into(),
    };
    titled.map(entry).collect()
}
