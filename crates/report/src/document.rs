//! Documents: what a recording shows, in sections.
//!
//! A shape of recording builds its [`Document`]; the terminal, Markdown, the page, CSV and JSON render any of them, and
//! have nothing of a shape.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Recording};
use serde::{Serialize, Serializer};

use crate::claims::{self, Judged};
use crate::conclusions;
use crate::figures::{self, sweeps::Plotted};
use crate::footer::{self, Note};
use crate::html::{facts, title, warnings};
use crate::json::{Common, pretty};
use crate::number::printable;
use crate::page::{Page, PageChart, SCHEMA};
use crate::section::Section;
use crate::table::Value;
use crate::text::{continued, prose};

/// Letters of a sentence of the headline in Markdown.
const HEADLINE_LETTERS: usize = 400;
/// Letters of a question on the page.
const QUESTION_LETTERS: usize = 600;

/// What a recording shows.
pub struct Document<'r> {
    recording: &'r Recording,
    experiment: Option<&'r Experiment>,
    /// Its kind, as the heading of Markdown.
    kind: &'static str,
    /// The subject in sentences, above all sections.
    headline: Vec<String>,
    sections: Vec<Section<'r>>,
    /// The heading of the tables on the page, unless they are counts of events.
    tables: &'static str,
    /// Makes charts for the page, if the experiment names none.
    charts: Box<dyn Fn() -> Vec<PageChart> + 'r>,
    /// Draws call graphs for terminals, below the tables.
    trees: Box<dyn Fn() -> String + 'r>,
    judged: Vec<Judged>,
    trust: Vec<Note>,
}

impl<'r> Document<'r> {
    /// A document of some sections, whose claims are judged by scalars of blocks.
    pub(crate) fn new(
        recording: &'r Recording,
        experiment: Option<&'r Experiment>,
        kind: &'static str,
        headline: Vec<String>,
        sections: Vec<Section<'r>>,
        trust: Vec<Note>,
    ) -> Document<'r> {
        Document {
            recording,
            experiment,
            kind,
            headline,
            sections,
            tables: "",
            charts: Box::new(Vec::new),
            trees: Box::new(String::new),
            judged: experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording)),
            trust,
        }
    }

    pub(crate) fn tables(mut self, tables: &'static str) -> Self {
        self.tables = tables;
        self
    }

    pub(crate) fn charts(mut self, charts: impl Fn() -> Vec<PageChart> + 'r) -> Self {
        self.charts = Box::new(charts);
        self
    }

    pub(crate) fn trees(mut self, trees: impl Fn() -> String + 'r) -> Self {
        self.trees = Box::new(trees);
        self
    }

    /// The experiment's own conclusion: without one, it would repeat the list of claims.
    fn conclusion(&self) -> Option<String> {
        let experiment = self.experiment.filter(|e| e.conclusion.is_some());
        experiment.and_then(|e| conclusions::conclusion(e, &self.judged))
    }

    /// For a terminal of this width.
    pub fn terminal(&self, columns: usize) -> String {
        let mut out = String::new();
        for line in &self.headline {
            out.push_str(&continued(line, 3, columns));
            out.push('\n');
        }
        for section in self.sections.iter().filter(|section| !section.is_empty()) {
            out.push('\n');
            out.push_str(&section.terminal(columns));
        }
        out.push_str(&(self.trees)());
        out.push('\n');
        if let Some(experiment) = self.experiment {
            out.push_str(&figures::sweeps::render(experiment, self.recording, columns));
            out.push_str(&claims::render(&self.judged, columns));
            if let Some(text) = self.conclusion() {
                out.push_str(&conclusions::in_short(&text, columns));
            }
        }
        out.push_str(&footer::terminal(&self.trust, columns));
        out
    }

    /// As GitHub-flavoured Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.kind);
        for line in &self.headline {
            out.push_str(&format!("{}\n\n", prose(line, HEADLINE_LETTERS)));
        }
        for section in self.sections.iter().filter(|section| !section.is_empty()) {
            section.markdown(&mut out);
        }
        conclusions::markdown(self.experiment, &self.judged, &mut out);
        out.push_str("## How it was measured\n\n");
        out.push_str(&footer::markdown(&self.trust));
        out
    }

    /// As CSV (RFC 4180): the rows of the first section.
    pub fn csv(&self) -> String {
        self.sections.first().map_or_else(String::new, Section::csv)
    }

    /// As JSON, with the rows of each section under its key. docs/reference/json.md describes it for users.
    pub fn json(&self) -> String {
        pretty(&DocumentJson {
            common: Common::new(
                self.recording,
                self.experiment,
                self.judged.clone(),
                self.trust.clone(),
            ),
            arms: &self.recording.arms,
            sections: Keyed(self.sections.iter().map(|s| (s.key(), s.json())).collect()),
        })
    }

    /// The page.
    pub fn page(&self) -> Page {
        let of_file = self.experiment.into_iter().flat_map(|file| {
            let figures = file.figures.iter();
            figures.map(move |figure| Plotted::from_figure(file, figure))
        });
        let figures: Vec<PageChart> =
            of_file.map(|plotted| figures::charts::figure(&plotted, self.recording)).collect();
        let question = self.experiment.map_or("", |e| e.question.trim());
        let sections = self.sections.iter().filter(|section| !section.is_empty());
        Page {
            schema: SCHEMA,
            title: title(self.recording, self.experiment),
            question: printable(question, QUESTION_LETTERS),
            headline: self.conclusion().into_iter().chain(self.headline.clone()).collect(),
            warnings: warnings(self.recording),
            facts: facts(self.recording),
            trust: self.trust.clone(),
            claims: claims::page(self.judged.clone()),
            figures: if figures.is_empty() { (self.charts)() } else { figures },
            events: sections.map(|section| section.page().table).collect(),
            events_called: self.tables.into(),
            ..Page::default()
        }
    }
}

#[derive(Serialize)]
struct DocumentJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    arms: &'a [Arm],
    #[serde(flatten)]
    sections: Keyed,
}

/// Rows of sections under their keys, in order.
struct Keyed(Vec<(&'static str, Vec<Value>)>);

impl Serialize for Keyed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, rows)| (key, rows)))
    }
}
