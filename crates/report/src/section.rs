//! A section of a document: a table with its heading, and sentences below it.

use crate::number::printable;
use crate::page::{PageSection, PageTable};
use crate::table::{Room, Table, Value};
use crate::text::{continued, prose};

const HEADING_LETTERS: usize = 400;
const SENTENCE_LETTERS: usize = 1_000;

/// Who reads a table: decides how many rows it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// People at a terminal, or of Markdown.
    People,
    /// People with the page.
    Page,
    /// Programs, which get all rows.
    Program,
}

/// Rows of any subject.
pub(crate) trait Rows {
    /// Whether there are none.
    fn is_empty(&self) -> bool;
    /// For a terminal.
    fn terminal(&self, room: Room) -> String;
    /// As Markdown.
    fn markdown(&self, out: &mut String);
    /// For the page.
    fn page(&self, caption: &str) -> PageTable;
    /// As JSON.
    fn json(&self) -> Vec<Value>;
    /// As CSV.
    fn csv(&self) -> String;
}

impl<R> Rows for Table<'_, R> {
    fn is_empty(&self) -> bool {
        Table::is_empty(self)
    }

    fn terminal(&self, room: Room) -> String {
        Table::terminal(self, room)
    }

    fn markdown(&self, out: &mut String) {
        Table::markdown(self, out);
    }

    fn page(&self, caption: &str) -> PageTable {
        Table::page(self, caption)
    }

    fn json(&self) -> Vec<Value> {
        Table::json(self)
    }

    fn csv(&self) -> String {
        Table::csv(self)
    }
}

/// A table and what is to be read with it.
pub struct Section<'r> {
    key: &'static str,
    heading: String,
    caption: String,
    name_letters: usize,
    rows: Box<dyn Fn(Reader) -> Box<dyn Rows + 'r> + 'r>,
    sentences: Vec<String>,
    /// Sentences in place of a column, on terminals that are narrower than this.
    narrow: (usize, Vec<String>),
}

impl<'r> Section<'r> {
    /// A table under this key in JSON; terminals cut its names to `name_letters`.
    pub(crate) fn new<R: 'r>(
        key: &'static str,
        name_letters: usize,
        rows: impl Fn(Reader) -> Table<'r, R> + 'r,
    ) -> Section<'r> {
        Section {
            key,
            heading: String::new(),
            caption: String::new(),
            name_letters,
            rows: Box::new(move |reader| Box::new(rows(reader))),
            sentences: Vec::new(),
            narrow: (0, Vec::new()),
        }
    }

    /// Its heading in every format.
    pub(crate) fn heading(mut self, heading: impl Into<String>) -> Self {
        self.heading = heading.into();
        self.caption.clone_from(&self.heading);
        self
    }

    /// Its heading on the page, where other formats need none.
    pub(crate) fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Sentences below the table.
    pub(crate) fn sentences(mut self, sentences: Vec<String>) -> Self {
        self.sentences = sentences;
        self
    }

    /// Sentences in place of a column that terminals narrower than this have no room for.
    pub(crate) fn narrow(mut self, columns: usize, sentences: Vec<String>) -> Self {
        self.narrow = (columns, sentences);
        self
    }

    pub(crate) fn key(&self) -> &'static str {
        self.key
    }

    pub(crate) fn is_empty(&self) -> bool {
        (self.rows)(Reader::People).is_empty()
    }

    /// For a terminal of this width.
    pub fn terminal(&self, columns: usize) -> String {
        let mut out = String::new();
        if !self.heading.is_empty() {
            out.push_str(&continued(&printable(&self.heading, HEADING_LETTERS), 2, columns));
            out.push('\n');
        }
        out.push_str(&(self.rows)(Reader::People).terminal(Room::new(columns, self.name_letters)));
        let (least, narrow) = &self.narrow;
        for sentence in narrow.iter().filter(|_| columns < *least) {
            let sentence = printable(sentence, SENTENCE_LETTERS);
            out.push_str(&continued(&format!("   {sentence}"), 5, columns));
            out.push('\n');
        }
        for sentence in &self.sentences {
            let sentence = printable(sentence, SENTENCE_LETTERS);
            out.push_str(&continued(&format!("  {sentence}"), 2, columns));
            out.push('\n');
        }
        out
    }

    /// As GitHub-flavoured Markdown.
    pub(crate) fn markdown(&self, out: &mut String) {
        if !self.heading.is_empty() {
            out.push_str(&format!("## {}\n\n", prose(&self.heading, HEADING_LETTERS)));
        }
        (self.rows)(Reader::People).markdown(out);
        for sentence in &self.sentences {
            out.push_str(&format!("- {}\n", prose(sentence, SENTENCE_LETTERS)));
        }
        if !self.sentences.is_empty() {
            out.push('\n');
        }
    }

    /// As CSV (RFC 4180).
    pub fn csv(&self) -> String {
        (self.rows)(Reader::Program).csv()
    }

    /// All rows as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        (self.rows)(Reader::Program).json()
    }

    /// For the page.
    pub(crate) fn page(&self) -> PageSection {
        PageSection {
            table: (self.rows)(Reader::Page).page(&self.caption),
            sentences: self.sentences.clone(),
        }
    }
}
