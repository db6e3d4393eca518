//! A table as the page's data: its columns, and the cells of each row.

use super::{Column, Kind, Page, Table, Value};
use crate::number::printable;
use crate::page::{PageCell, PageColumn, PageTable};

/// Letters of a name, or of words.
const NAME_LETTERS: usize = 500;
/// And of a caption.
const CAPTION_LETTERS: usize = 200;

impl<R> Table<'_, R> {
    /// The table, for the page to draw as it is.
    pub(crate) fn page(&self, caption: &str) -> PageTable {
        PageTable {
            caption: printable(caption, CAPTION_LETTERS),
            columns: self.page_columns(),
            rows: self.page_rows(),
        }
    }

    /// The columns that the page has, as people see them from left to right.
    pub(crate) fn page_columns(&self) -> Vec<PageColumn> {
        let columns = self.placed(|c| c.page.is_some().then_some(c.rank));
        columns.into_iter().filter_map(column).collect()
    }

    /// Their cells of each row, except cells that the page draws by itself.
    pub(crate) fn page_rows(&self) -> Vec<Vec<PageCell>> {
        let is_cell = |c: &Column<'_, R>| matches!(c.page, Some(Page::Cell(_)));
        let columns = self.placed(|c| is_cell(c).then_some(c.rank));
        let cells = |row: &R| columns.iter().map(|c| cell(&(c.value)(row), (c.off)(row))).collect();
        self.rows.iter().map(cells).collect()
    }
}

fn column<R>(column: &Column<'_, R>) -> Option<PageColumn> {
    let (key, own) = match column.page.as_ref()? {
        Page::Cell(key) => (key, false),
        Page::Own(key) => (key, true),
    };
    Some(PageColumn {
        key: key.clone().into(),
        title: column.title.clone().into(),
        hint: column.hint.clone().into(),
        unit: column.unit.clone().into(),
        code: column.kind == Kind::Code,
        words: column.kind != Kind::Figure,
        own,
    })
}

fn cell(value: &Value, off: bool) -> PageCell {
    PageCell {
        text: printable(&value.cell_text(), NAME_LETTERS),
        value: value.figure().map(shortened),
        off,
    }
}

/// Nine digits are enough, and make a small file.
fn shortened(figure: f64) -> f64 {
    format!("{figure:.8e}").parse().unwrap_or(figure)
}
