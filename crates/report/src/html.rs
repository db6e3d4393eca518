//! The HTML page: any [`Page`] as one file that opens with no network.
//!
//! The page itself is built from `web/` and embedded. Added here: the data, as base64
//! of gzip of JSON, whose letters can't end an element; and, escaped, its title and
//! the text for readers without scripts.

mod comparisons;
mod figure;
mod of_recording;
pub(crate) mod places;

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

pub use comparisons::comparisons;
pub use of_recording::report_page;
pub(crate) use of_recording::{facts, functions, title, titled, warnings};

use crate::footer::Note;
use crate::number::printable;
use crate::page::{Page, PagePart};

const TEMPLATE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.html"));

/// The template's placeholders, in this order.
const TITLE: &str = "PLUMB_TITLE";
const NOSCRIPT: &str = "PLUMB_NOSCRIPT";
const DATA: &str = "PLUMB_DATA";

const TITLE_LETTERS: usize = 200;
const LINE_LETTERS: usize = 1_000;
/// The most lines of the headline, without scripts.
const MOST_LINES: usize = 20;
/// The most arms of a bench, without scripts.
const MOST_ARMS: usize = 200;

/// A page as one HTML file.
pub fn render(page: &Page) -> String {
    file(page, packed(page))
}

/// Several named pages as one HTML file, which shows one at a time, beginning with the first. Empty
/// without pages.
pub fn render_all(mut pages: Vec<(String, Page)>) -> String {
    let names = pages.iter().map(|(name, _)| name.clone()).collect();
    let Some((_, first)) = pages.first_mut() else {
        return String::new();
    };
    first.views = names;
    let packed: Vec<String> = pages.iter().map(|(_, page)| packed(page)).collect();
    file(&pages[0].1, packed.join("\n"))
}

/// A file of packed data, with the words of a page.
fn file(page: &Page, data: String) -> String {
    let mut out = String::with_capacity(TEMPLATE.len() + data.len() + 4096);
    let mut rest = TEMPLATE;
    let title = escaped(&printable(&page.title, TITLE_LETTERS));
    for (marker, text) in
        [(TITLE, title.as_str()), (NOSCRIPT, noscript(page).as_str()), (DATA, data.as_str())]
    {
        // The template has one of each: a test checks that.
        let (before, after) = rest.split_once(marker).unwrap_or((rest, ""));
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn packed(page: &Page) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to a Vec does not fail, and all keys of a Page are strings; a page
    // whose data end early shows an error.
    let written = serde_json::to_writer(std::io::BufWriter::new(&mut gzip), page)
        .map_err(std::io::Error::from)
        .and_then(|()| gzip.flush())
        .and_then(|()| gzip.finish());
    STANDARD.encode(written.unwrap_or_default())
}

/// The words of the page without its figures, for readers without scripts.
fn noscript(page: &Page) -> String {
    let mut out = format!(
        "<main><h1>{}</h1><p>The figures need a browser with JavaScript; nothing is fetched.</p>",
        escaped(&printable(&page.title, TITLE_LETTERS))
    );
    let rates = page.parts().filter_map(|part| match part {
        PagePart::Rates(rates) => Some(&rates.arms),
        _ => None,
    });
    let rates = rates.flatten();
    for arm in rates.take(MOST_ARMS) {
        // The name comes first, and a note, if there is one, last.
        let cells = arm.cells.iter().skip(1).map(|cell| cell.text.as_str());
        let cells: Vec<&str> = cells.filter(|text| !text.is_empty()).collect();
        let line = format!("{}: {}", arm.name, cells.join(", "));
        out.push_str(&format!("<p>{}</p>", escaped(&printable(line.trim(), LINE_LETTERS))));
    }
    let lines = page.headline.iter().chain(&page.warnings).cloned();
    let lines = lines.chain(page.trust.iter().map(Note::line));
    for line in lines.take(MOST_LINES) {
        out.push_str(&format!("<p>{}</p>", escaped(&printable(&line, LINE_LETTERS))));
    }
    out.push_str("</main>");
    out
}

/// Text for HTML, in an element or in a quoted attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests;
