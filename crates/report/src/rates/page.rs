//! The HTML page of benches, with constructors of its charts and flows.

mod arms;
mod costs;
mod of_recording;

use netplumb_model::bench::Hop;

pub use of_recording::of_recording;

use crate::footer::Note;
use crate::number::printable;
use crate::page::{
    Fact, Page, PageAxis, PageBench, PageChart, PageFlow, PageHop, PagePoint, PageSeries,
    PageSeriesKind, SCHEMA,
};

const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 600;
/// Causes of a hop that are listed; the others are added up.
const MOST_CAUSES: usize = 8;

/// The text around the charts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Around {
    /// The page's heading.
    pub title: String,
    /// The question that was asked; may be empty.
    pub question: String,
    /// The results in sentences.
    pub headline: Vec<String>,
    /// What must be known before the figures are believed.
    pub warnings: Vec<String>,
    /// Where and how it was measured.
    pub facts: Vec<Fact>,
    /// The trust footer.
    pub trust: Vec<Note>,
}

/// A page of benches alone.
pub fn page(around: Around, bench: PageBench) -> Page {
    Page {
        schema: SCHEMA,
        title: around.title,
        question: around.question,
        headline: around.headline,
        warnings: around.warnings,
        unit: "packets/s".into(),
        facts: around.facts,
        trust: around.trust,
        bench: Some(bench),
        ..Page::default()
    }
}

/// An axis on a plain scale.
pub fn axis(label: &str, unit: &str) -> PageAxis {
    PageAxis {
        label: printable(label, NAME_LETTERS),
        unit: printable(unit, NAME_LETTERS),
        log: false,
        names: Vec::new(),
    }
}

/// The same on a logarithmic scale.
pub fn log_axis(label: &str, unit: &str) -> PageAxis {
    PageAxis { log: true, ..axis(label, unit) }
}

/// A chart with an x and a y axis.
pub fn chart(title: &str, note: &str, axes: [PageAxis; 2], series: Vec<PageSeries>) -> PageChart {
    let [x, y] = axes;
    PageChart {
        title: printable(title, TEXT_LETTERS),
        note: printable(note, TEXT_LETTERS),
        x,
        y,
        series,
    }
}

/// A series. Points that are not numbers are left out: they have no place.
pub fn series(
    name: &str,
    kind: PageSeriesKind,
    points: impl IntoIterator<Item = PagePoint>,
) -> PageSeries {
    let mut points: Vec<PagePoint> = points
        .into_iter()
        .filter(|p| p.x.is_finite() && p.y.is_finite())
        .map(|p| PagePoint {
            low: p.low.filter(|low| low.is_finite()),
            high: p.high.filter(|high| high.is_finite()),
            label: printable(&p.label, NAME_LETTERS),
            ..p
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    PageSeries { name: printable(name, NAME_LETTERS), kind, points }
}

/// A point with its interval.
pub fn point(x: f64, y: f64, interval: Option<(f64, f64)>) -> PagePoint {
    PagePoint {
        x,
        y,
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        label: String::new(),
    }
}

/// A published point, with its label.
pub fn published(x: f64, y: f64, label: &str) -> PagePoint {
    PagePoint { label: label.into(), ..point(x, y, None) }
}

/// Ideal scaling of a rate at one core to other numbers of cores.
pub fn ideal(name: &str, at_one: f64, cores: &[u32]) -> PageSeries {
    let points = cores.iter().map(|cores| {
        let cores = f64::from(*cores);
        point(cores, at_one * cores, None)
    });
    series(name, PageSeriesKind::Ideal, points)
}

/// A ledger as a flow. `invalid` is the reason if it is not a valid measurement.
pub fn flow(title: &str, invalid: &str, hops: &[Hop]) -> PageFlow {
    PageFlow {
        title: printable(title, TEXT_LETTERS),
        invalid: printable(invalid, TEXT_LETTERS),
        hops: hops.iter().map(hop).collect(),
    }
}

fn hop(hop: &Hop) -> PageHop {
    let causes = hop.dropped.iter().filter(|(_, count)| **count > 0);
    let mut dropped: Vec<(String, u64)> =
        causes.map(|(cause, count)| (printable(cause, NAME_LETTERS), *count)).collect();
    dropped.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if dropped.len() > MOST_CAUSES {
        let rest = dropped.split_off(MOST_CAUSES - 1);
        let name = format!("{} other causes", rest.len());
        dropped.push((name, rest.iter().map(|(_, count)| count).sum()));
    }
    PageHop {
        name: printable(&hop.name, NAME_LETTERS),
        entered: hop.entered,
        left: hop.left,
        dropped,
        missing: hop.missing(),
    }
}

#[cfg(test)]
mod tests;
