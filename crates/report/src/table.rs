//! Tables: rows, and columns that are declared once.
//!
//! A [`Column`] has everything that a backend needs: its names for programs and for people,
//! its meaning, its cell of a row, and the backends that show it. The terminal, CSV, JSON,
//! Markdown and the page are backends, and independent of a table's subject. Names in a
//! table are up to the recording's author: each backend makes them harmless in its own way,
//! and nothing else has to.
//!
//! Columns are declared in `functions.rs`, `sampled.rs`, `summary.rs`, `times/table.rs`, `times/beside.rs`,
//! `rates/columns.rs` and `diff/table/`; the backends are in `table/`.

mod csv;
mod json;
mod markdown;
mod page;
#[cfg(test)]
pub(crate) mod reference;
mod terminal;

use std::borrow::Cow;

pub(crate) use terminal::{Room, bar};

use crate::number::{per_packet, thousands};
use crate::times::{ns, rounded};

/// The content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Not measured, or not applicable. JSON has `null`.
    Missing,
    /// Not applicable, and JSON leaves the key out.
    Absent,
    /// Words.
    Text(String),
    /// A symbol, and the module that it is in.
    Name(String, Option<String>),
    /// The name of a row of sums.
    Sum(&'static str),
    /// Yes or no.
    Flag(bool),
    /// A number of things.
    Count(u64),
    /// A figure without a unit of its own.
    Number(f64),
    /// Nanoseconds.
    Ns(f64),
    /// A range of nanoseconds.
    NsRange(f64, f64),
    /// A sum, and the number of packets that it is divided by.
    Each(u64, u64),
    /// A part of a whole, from 0 to 1.
    Share(f64),
    /// A figure with the text that people see.
    Formatted(String, Option<f64>),
    /// A part of a whole, from 0 to 1, drawn. Only on a terminal.
    Bar(f64, Shade),
    /// Several. Only in JSON.
    List(Vec<Value>),
    /// Several under names. Only in JSON.
    Object(Vec<(Cow<'static, str>, Value)>),
}

/// How a bar is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shade {
    Full,
    /// For waiting.
    Light,
}

impl Value {
    /// Words, if there are any.
    pub(crate) fn words(text: Option<&str>) -> Value {
        text.map_or(Value::Missing, |text| Value::Text(text.into()))
    }

    /// Several under names.
    pub(crate) fn object<K: Into<Cow<'static, str>>>(
        all: impl IntoIterator<Item = (K, Value)>,
    ) -> Value {
        Value::Object(all.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The text for people, unless it is words from a recording.
    pub(crate) fn cell_text(&self) -> String {
        match self {
            Value::Missing | Value::Absent => "-".into(),
            Value::Text(text) | Value::Name(text, _) | Value::Formatted(text, _) => text.clone(),
            Value::Sum(word) => (*word).into(),
            Value::Flag(true) => "yes".into(),
            Value::Flag(false) => "no".into(),
            Value::Count(count) => thousands(*count),
            Value::Number(number) => rounded(*number),
            Value::Ns(value) => ns(*value),
            Value::NsRange(low, high) => format!("{} to {}", ns(*low), ns(*high)),
            Value::Each(sum, packets) => per_packet(*sum, *packets),
            Value::Share(share) if share.is_finite() => format!("{:.1}%", share * 100.0),
            Value::Share(_) => "-".into(),
            Value::Bar(..) | Value::List(_) | Value::Object(_) => String::new(),
        }
    }

    /// The figure, if it is one.
    fn figure(&self) -> Option<f64> {
        let figure = match self {
            Value::Count(count) => Some(*count as f64),
            Value::Number(value) | Value::Ns(value) | Value::Share(value) => Some(*value),
            Value::Each(sum, packets) => Some(*sum as f64 / (*packets).max(1) as f64),
            Value::NsRange(low, high) => Some(high - low),
            Value::Formatted(_, value) => *value,
            _ => None,
        };
        figure.filter(|value| value.is_finite())
    }
}

/// The kind of cells in a column: decides its alignment, and its form on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Names: code.
    Code,
    /// Words.
    Text,
    /// Figures.
    Figure,
    /// Drawn by the page, such as a bar.
    Drawn,
}

/// How the page fills a column.
enum Page {
    /// From the cells of rows.
    Cell(Cow<'static, str>),
    /// Drawn by the page itself: from the shown part of a tree, or a picture.
    Own(Cow<'static, str>),
}

/// Letters of words in a cell, unless a column has its own.
const TEXT_LETTERS: usize = 60;

/// A column, declared once for all backends.
pub(crate) struct Column<'t, R> {
    kind: Kind,
    title: Cow<'static, str>,
    hint: Cow<'static, str>,
    unit: Cow<'static, str>,
    csv: Option<Cow<'static, str>>,
    json: Option<Cow<'static, str>>,
    page: Option<Page>,
    /// The least width of a terminal that shows it; none for no terminal.
    terminal: Option<usize>,
    /// Its place in Markdown, from left to right by size.
    markdown: Option<u8>,
    /// Its place on terminals and the page.
    rank: u8,
    digits: Option<usize>,
    letters: usize,
    value: Box<dyn Fn(&R) -> Value + 't>,
    /// Whether the page marks its cell of a row as wrong.
    off: fn(&R) -> bool,
}

impl<'t, R> Column<'t, R> {
    fn new(kind: Kind, title: Cow<'static, str>, value: Box<dyn Fn(&R) -> Value + 't>) -> Self {
        Column {
            kind,
            title,
            hint: "".into(),
            unit: "".into(),
            csv: None,
            json: None,
            page: None,
            terminal: None,
            markdown: None,
            rank: 0,
            digits: None,
            letters: TEXT_LETTERS,
            value,
            off: |_| false,
        }
    }

    /// A column of names, shown as code.
    pub(crate) fn code(
        title: impl Into<Cow<'static, str>>,
        value: impl Fn(&R) -> Value + 't,
    ) -> Self {
        Column::new(Kind::Code, title.into(), Box::new(value))
    }

    /// A column of words.
    pub(crate) fn text(
        title: impl Into<Cow<'static, str>>,
        value: impl Fn(&R) -> String + 't,
    ) -> Self {
        let value = move |row: &R| Value::Text(value(row));
        Column::new(Kind::Text, title.into(), Box::new(value))
    }

    /// A column of figures.
    pub(crate) fn figure(
        title: impl Into<Cow<'static, str>>,
        value: impl Fn(&R) -> Value + 't,
    ) -> Self {
        Column::new(Kind::Figure, title.into(), Box::new(value))
    }

    /// For programs alone.
    pub(crate) fn machine(value: impl Fn(&R) -> Value + 't) -> Self {
        Column::new(Kind::Figure, "".into(), Box::new(value))
    }

    /// A column of bars.
    pub(crate) fn bars(value: impl Fn(&R) -> Value + 't) -> Self {
        let mut column = Column::new(Kind::Drawn, "".into(), Box::new(value));
        column.terminal = Some(0);
        column.rank = u8::MAX;
        column
    }

    /// Its heading for people, if it has another one.
    pub(crate) fn title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.title = title.into();
        self
    }

    /// Aligned as words, where people see it.
    pub(crate) fn words(mut self) -> Self {
        self.kind = Kind::Text;
        self
    }

    /// Its meaning, in a line.
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The unit of its figures, shown in its heading.
    pub(crate) fn unit(mut self, unit: impl Into<Cow<'static, str>>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Its name in CSV and JSON.
    pub(crate) fn key(self, key: impl Into<Cow<'static, str>>) -> Self {
        let key = key.into();
        self.csv(key.clone()).json(key)
    }

    /// Its name in CSV.
    pub(crate) fn csv(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.csv = Some(key.into());
        self
    }

    /// Its name in JSON.
    pub(crate) fn json(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.json = Some(key.into());
        self
    }

    /// Its name in the page's data.
    pub(crate) fn page(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.page = Some(Page::Cell(key.into()));
        self
    }

    /// The same, where the page draws it by itself.
    pub(crate) fn page_own(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.page = Some(Page::Own(key.into()));
        self
    }

    /// The same, for a column that already has a name on the page.
    pub(crate) fn drawn_by_page(mut self) -> Self {
        self.page = self.page.map(|page| match page {
            Page::Cell(key) | Page::Own(key) => Page::Own(key),
        });
        self
    }

    /// Take it off the page, unless it is one of these there.
    pub(crate) fn page_only(mut self, keys: &[&str]) -> Self {
        self.page = self.page.filter(|page| match page {
            Page::Cell(key) | Page::Own(key) => keys.contains(&&**key),
        });
        self
    }

    /// For people, on terminals and in Markdown, in the order of `rank`.
    pub(crate) fn people(mut self, rank: u8) -> Self {
        self.terminal = Some(self.terminal.unwrap_or(0));
        self.markdown = Some(rank);
        self.rank = rank;
        self
    }

    /// Its place among columns for people, if it is only on the page.
    pub(crate) fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }

    /// On terminals at least this wide.
    pub(crate) fn from(mut self, columns: usize) -> Self {
        self.terminal = Some(columns);
        self
    }

    /// A place in Markdown that differs from the one on terminals.
    pub(crate) fn markdown_rank(mut self, rank: u8) -> Self {
        self.markdown = Some(rank);
        self
    }

    /// Not in Markdown.
    pub(crate) fn not_in_markdown(mut self) -> Self {
        self.markdown = None;
        self
    }

    /// Decimals in CSV; by default as many as there are.
    pub(crate) fn digits(mut self, digits: usize) -> Self {
        self.digits = Some(digits);
        self
    }

    /// Which rows have a wrong figure here, which the page marks.
    pub(crate) fn off(mut self, off: fn(&R) -> bool) -> Self {
        self.off = off;
        self
    }

    /// Letters of words.
    pub(crate) fn letters(mut self, letters: usize) -> Self {
        self.letters = letters;
        self
    }
}

/// Rows of columns.
pub(crate) struct Table<'t, R> {
    columns: Vec<Column<'t, R>>,
    rows: Vec<R>,
    headless: bool,
    indent: &'static str,
}

impl<'t, R> Table<'t, R> {
    pub(crate) fn new(columns: Vec<Column<'t, R>>, rows: impl IntoIterator<Item = R>) -> Self {
        Table { columns, rows: rows.into_iter().collect(), headless: false, indent: "  " }
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// On a terminal, without a heading.
    pub(crate) fn headless(mut self) -> Self {
        self.headless = true;
        self
    }

    /// On a terminal, from the first column on.
    pub(crate) fn flush(mut self) -> Self {
        self.indent = "";
        self
    }

    /// The columns with a place in an output, from left to right.
    fn placed(&self, place: impl Fn(&Column<'t, R>) -> Option<u8>) -> Vec<&Column<'t, R>> {
        let columns = self.columns.iter();
        let mut columns: Vec<_> = columns.filter_map(|c| Some((place(c)?, c))).collect();
        columns.sort_by_key(|(place, _)| *place);
        columns.into_iter().map(|(_, column)| column).collect()
    }
}

#[cfg(test)]
mod tests;
