//! Sections of the page. The page draws each by the kinds of its parts.

use serde::Serialize;

use super::{
    Page, PageChart, PageCode, PageCosts, PageFlow, PageHeat, PageLedger, PageRates, PageTable,
    PageThreads, PageTraced,
};

/// A section of the page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageSection {
    /// Its anchor.
    pub id: String,
    /// Its heading, and its name among the links.
    pub title: String,
    /// Whether it comes before the classes.
    pub leads: bool,
    /// What is in it, in order.
    pub parts: Vec<PagePart>,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PagePart {
    /// What is to be known, or concluded.
    Sentences {
        /// In order.
        sentences: Vec<String>,
    },
    /// A table, drawn as it is.
    Table(PageTable),
    /// Rates of arms: bars, and a table of the same.
    Rates(PageRates),
    /// Figures.
    Charts {
        /// In the order in which they are shown.
        charts: Vec<PageChart>,
    },
    /// The cost of a packet along paths.
    Costs(PageCosts),
    /// Packets from hop to hop.
    Flows {
        /// A picture each.
        flows: Vec<PageFlow>,
    },
    /// What workloads sent and received.
    Ledgers {
        /// By arm.
        ledgers: Vec<PageLedger>,
    },
    /// Times between events, by when they occurred.
    Heat(PageHeat),
    /// Samples by thread, and over time.
    Threads(PageThreads),
    /// Source lines and instructions of the functions that cost most.
    Code {
        /// Each function of an arm.
        functions: Vec<PageCode>,
    },
    /// Traced calls of a block.
    Traced(PageTraced),
}

impl Page {
    /// The parts of all sections.
    pub fn parts(&self) -> impl Iterator<Item = &PagePart> {
        self.sections.iter().flat_map(|section| &section.parts)
    }
}

impl PageSection {
    /// A section below the classes; none without parts.
    pub(crate) fn new(id: &str, title: &str, parts: Vec<PagePart>) -> Option<PageSection> {
        (!parts.is_empty()).then(|| PageSection {
            id: id.into(),
            title: title.into(),
            leads: false,
            parts,
        })
    }
}
