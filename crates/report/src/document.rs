//! Documents: what a recording shows, in sections.
//!
//! A shape of recording builds its [`Document`]; the terminal, Markdown, the page, CSV and JSON render any of them, and
//! have nothing of a shape.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use serde::{Serialize, Serializer};

use crate::claims::{self, Judged};
use crate::conclusions;
use crate::figures::{self, sweeps::Plotted};
use crate::footer::{self, Note};
use crate::html::{facts, title, titled, warnings};
use crate::json::{Common, pretty};
use crate::number::printable;
use crate::page::{Page, PageChart, SCHEMA};
use crate::section::{JsonValue, Section, placed};
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
    /// Its title on the page, if neither the recording nor its experiment has one.
    title: Option<&'static str>,
    /// The subject in sentences, above all sections.
    headline: Vec<String>,
    /// The results in sentences, for pages and Markdown.
    results: Vec<String>,
    /// What must be known before the figures are believed, for the page.
    warnings: Vec<String>,
    sections: Vec<Section<'r>>,
    /// The table for CSV, if it is not the first one.
    csv: Option<Section<'r>>,
    /// Makes charts for the page, if the experiment names none.
    charts: Box<dyn Fn() -> Vec<PageChart> + 'r>,
    judged: Vec<Judged>,
    trust: Vec<Note>,
}

impl<'r> Document<'r> {
    /// A document of some sections, whose claims are judged by scalars of blocks.
    pub(crate) fn new(
        recording: &'r Recording,
        experiment: Option<&'r Experiment>,
        kind: &'static str,
        sections: Vec<Section<'r>>,
        trust: Vec<Note>,
    ) -> Document<'r> {
        Document {
            recording,
            experiment,
            kind,
            title: None,
            headline: Vec::new(),
            results: Vec::new(),
            warnings: Vec::new(),
            sections,
            csv: None,
            charts: Box::new(Vec::new),
            judged: experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording)),
            trust,
        }
    }

    pub(crate) fn title(mut self, title: &'static str) -> Self {
        self.title = Some(title);
        self
    }

    pub(crate) fn headline(mut self, headline: Vec<String>) -> Self {
        self.headline = headline;
        self
    }

    pub(crate) fn results(mut self, results: Vec<String>) -> Self {
        self.results = results;
        self
    }

    pub(crate) fn warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    pub(crate) fn rows_of_csv(mut self, section: Section<'r>) -> Self {
        self.csv = Some(section);
        self
    }

    pub(crate) fn charts(mut self, charts: impl Fn() -> Vec<PageChart> + 'r) -> Self {
        self.charts = Box::new(charts);
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
        for section in &self.sections {
            let text = section.terminal(columns);
            if !text.is_empty() {
                let rule = if out.is_empty() { "" } else { "\n" };
                out.push_str(rule);
                out.push_str(&text);
            }
        }
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
        for line in self.headline.iter().chain(&self.results) {
            out.push_str(&format!("{}\n\n", prose(line, HEADLINE_LETTERS)));
        }
        for section in &self.sections {
            section.markdown(&mut out);
        }
        conclusions::markdown(self.experiment, &self.judged, &mut out);
        out.push_str("## How it was measured\n\n");
        out.push_str(&footer::markdown(&self.trust));
        out
    }

    /// As CSV (RFC 4180).
    pub fn csv(&self) -> String {
        let first = self.sections.iter().find(|section| section.has_rows());
        let rows = self.csv.as_ref().or(first);
        rows.map_or_else(String::new, Section::csv)
    }

    /// As JSON, with what each section has under its key. docs/reference/json.md describes it for users.
    pub fn json(&self) -> String {
        pretty(&DocumentJson {
            common: Common::new(
                self.recording,
                self.experiment,
                self.judged.clone(),
                self.trust.clone(),
            ),
            sections: Keyed(self.sections.iter().filter_map(Section::keyed).collect()),
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
        let headline = self.results.iter().chain(&self.headline).cloned();
        let mut warnings = warnings(self.recording);
        warnings.extend_from_slice(&self.warnings);
        Page {
            schema: SCHEMA,
            title: match self.title {
                Some(what) => titled(what, self.recording, self.experiment),
                None => title(self.recording, self.experiment),
            },
            question: printable(&question.replace('\n', " "), QUESTION_LETTERS),
            headline: self.conclusion().into_iter().chain(headline).collect(),
            warnings,
            facts: facts(self.recording),
            trust: self.trust.clone(),
            claims: claims::page(self.judged.clone()),
            figures: if figures.is_empty() { (self.charts)() } else { figures },
            sections: placed(&self.sections),
            ..Page::default()
        }
    }
}

#[derive(Serialize)]
struct DocumentJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    #[serde(flatten)]
    sections: Keyed<'a>,
}

/// What sections have under their keys, in order.
struct Keyed<'a>(Vec<(&'static str, JsonValue<'a>)>);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
