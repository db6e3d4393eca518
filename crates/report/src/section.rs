//! Sections of documents: rows or a picture with their heading, and sentences below them.

use erased_serde::Serialize;

use crate::number::printable;
use crate::page::{PagePart, PageSection, PageTable};
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

/// What a section shows, above its sentences.
enum Content<'r> {
    /// Nothing: the sentences are all.
    None,
    /// A table for each reader; terminals cut names to `name_letters`.
    Rows { of: Box<dyn Fn(Reader) -> Box<dyn Rows + 'r> + 'r>, name_letters: usize },
    /// A picture of letters, for terminals alone.
    Text(Box<dyn Fn(usize) -> String + 'r>),
    /// What only JSON has.
    Data(Box<dyn Serialize + 'r>),
}

/// Where a section is on the page: its anchor, and a heading for it and for those beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
}

/// A section of a document.
pub struct Section<'r> {
    /// Its key in JSON; without one, programs don't get its rows.
    key: Option<&'static str>,
    place: Place,
    heading: String,
    caption: String,
    content: Content<'r>,
    /// What the page draws in place of the rows and sentences.
    drawn: Option<Box<dyn Fn() -> Vec<PagePart> + 'r>>,
    sentences: Vec<String>,
    /// Sentences in place of a column, on terminals that are narrower than this.
    narrow: (usize, Vec<String>),
}

impl<'r> Section<'r> {
    fn from_content(content: Content<'r>) -> Section<'r> {
        Section {
            key: None,
            place: Place { id: "tables", title: "Tables" },
            heading: String::new(),
            caption: String::new(),
            content,
            drawn: None,
            sentences: Vec::new(),
            narrow: (0, Vec::new()),
        }
    }

    /// A table; terminals cut its names to `name_letters`.
    pub(crate) fn rows<R: 'r>(
        name_letters: usize,
        of: impl Fn(Reader) -> Table<'r, R> + 'r,
    ) -> Section<'r> {
        let of = Box::new(move |reader| Box::new(of(reader)) as Box<dyn Rows + 'r>);
        Section::from_content(Content::Rows { of, name_letters })
    }

    /// Sentences without a table.
    pub(crate) fn words(sentences: Vec<String>) -> Section<'r> {
        Section::from_content(Content::None).sentences(sentences)
    }

    /// A picture of letters, for terminals of a width.
    pub(crate) fn text(of: impl Fn(usize) -> String + 'r) -> Section<'r> {
        Section::from_content(Content::Text(Box::new(of)))
    }

    /// What only JSON has, under this key.
    pub(crate) fn data(key: &'static str, of: impl Serialize + 'r) -> Section<'r> {
        Section::from_content(Content::Data(Box::new(of))).key(key)
    }

    /// Its key in JSON, with all of its rows.
    pub(crate) fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Its place on the page.
    pub(crate) fn place(mut self, id: &'static str, title: &'static str) -> Self {
        self.place = Place { id, title };
        self
    }

    /// What the page draws in place of it.
    pub(crate) fn drawn(mut self, parts: impl Fn() -> Vec<PagePart> + 'r) -> Self {
        self.drawn = Some(Box::new(parts));
        self
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

    /// Whether it is a table.
    pub(crate) fn has_rows(&self) -> bool {
        matches!(self.content, Content::Rows { .. })
    }

    /// The rows for a reader, if it has a table and that has any.
    fn table(&self, reader: Reader) -> Option<Box<dyn Rows + 'r>> {
        match &self.content {
            Content::Rows { of, .. } => Some(of(reader)).filter(|rows| !rows.is_empty()),
            Content::None | Content::Text(_) | Content::Data(_) => None,
        }
    }

    /// For a terminal of this width; empty if there is nothing in it.
    pub fn terminal(&self, columns: usize) -> String {
        let body = match &self.content {
            Content::Rows { name_letters, .. } => {
                let rows = self.table(Reader::People);
                rows.map(|rows| rows.terminal(Room::new(columns, *name_letters)))
            }
            Content::Text(of) => Some(of(columns)).filter(|text| !text.is_empty()),
            Content::None => (!self.sentences.is_empty()).then(String::new),
            Content::Data(_) => None,
        };
        let Some(body) = body else {
            return String::new();
        };
        let mut out = String::new();
        if !self.heading.is_empty() {
            out.push_str(&continued(&printable(&self.heading, HEADING_LETTERS), 2, columns));
            out.push('\n');
        }
        out.push_str(&body);
        let mut add = |text: &str, indent: usize| {
            out.push_str(&continued(text, indent, columns));
            out.push('\n');
        };
        let (least, narrow) = &self.narrow;
        for sentence in narrow.iter().filter(|_| columns < *least) {
            add(&format!("   {}", printable(sentence, SENTENCE_LETTERS)), 5);
        }
        for sentence in &self.sentences {
            add(&format!("  {}", printable(sentence, SENTENCE_LETTERS)), 2);
        }
        out
    }

    /// As GitHub-flavoured Markdown.
    pub(crate) fn markdown(&self, out: &mut String) {
        let rows = self.table(Reader::People);
        let only_words = matches!(self.content, Content::None) && !self.sentences.is_empty();
        if rows.is_none() && !only_words {
            return;
        }
        if !self.heading.is_empty() {
            out.push_str(&format!("## {}\n\n", prose(&self.heading, HEADING_LETTERS)));
        }
        if let Some(rows) = rows {
            rows.markdown(out);
        }
        for sentence in &self.sentences {
            out.push_str(&format!("- {}\n", prose(sentence.trim(), SENTENCE_LETTERS)));
        }
        if !self.sentences.is_empty() {
            out.push('\n');
        }
    }

    /// All rows as CSV (RFC 4180); empty without a table.
    pub fn csv(&self) -> String {
        match &self.content {
            Content::Rows { of, .. } => of(Reader::Program).csv(),
            Content::None | Content::Text(_) | Content::Data(_) => String::new(),
        }
    }

    /// All rows as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        match &self.content {
            Content::Rows { of, .. } => of(Reader::Program).json(),
            Content::None | Content::Text(_) | Content::Data(_) => Vec::new(),
        }
    }

    /// Its key in JSON and what is under it, if programs get it.
    pub(crate) fn keyed(&self) -> Option<(&'static str, JsonValue<'_>)> {
        let value = match &self.content {
            Content::Data(of) => JsonValue::Data(&**of),
            _ => JsonValue::Rows(self.json()),
        };
        Some((self.key?, value))
    }

    /// Its place on the page, and its parts there.
    pub(crate) fn page(&self) -> (Place, Vec<PagePart>) {
        if let Some(drawn) = &self.drawn {
            return (self.place, drawn());
        }
        let rows = self.table(Reader::Page);
        let mut parts: Vec<PagePart> =
            rows.map(|rows| PagePart::Table(rows.page(&self.caption))).into_iter().collect();
        let alone = matches!(self.content, Content::None);
        if !self.sentences.is_empty() && (alone || !parts.is_empty()) {
            parts.push(PagePart::Sentences { sentences: self.sentences.clone() });
        }
        (self.place, parts)
    }
}

/// The page's sections: neighbours with the same place are joined.
pub(crate) fn placed(sections: &[Section<'_>]) -> Vec<PageSection> {
    let mut placed: Vec<PageSection> = Vec::new();
    for (place, parts) in sections.iter().map(Section::page) {
        match placed.last_mut().filter(|last| last.id == place.id) {
            Some(last) => last.parts.extend(parts),
            None => placed.extend(PageSection::new(place.id, place.title, parts)),
        }
    }
    placed
}

/// What a section has in JSON.
#[derive(serde::Serialize)]
#[serde(untagged)]
pub(crate) enum JsonValue<'s> {
    Rows(Vec<Value>),
    Data(#[serde(serialize_with = "erased_serde::serialize")] &'s (dyn Serialize + 's)),
}
