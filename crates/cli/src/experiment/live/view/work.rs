//! Counts and samples of work: events with their rates, functions with their shares, and how both
//! were in the latest blocks.

use netplumb_model::events::INSTRUMENT;
use netplumb_model::recording::Recording;
use netplumb_report::analysis::classes;
use netplumb_report::printable;
use netplumb_report::watched::{self, Unit, Watched};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Letters of a name: the least, and in a wide terminal.
const NAME: (usize, usize) = (30, 60);
/// Columns of a row apart from its name and its history.
const FIGURES: usize = 40;
/// The most of a history that is shown.
const HISTORY: usize = 60;
/// Eighths of a bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Rows of a line, without a terminal.
const IN_LINE: usize = 4;

/// A table of the watched work.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sheet {
    heading: &'static str,
    rows: Vec<Watched>,
    /// The line above it.
    pub(super) summary: Option<String>,
}

/// The tables of a recording of work.
pub(super) fn sheets(recording: &Recording, top: usize) -> Vec<Sheet> {
    let counts = recording.blocks.iter().any(|b| b.instrument == INSTRUMENT);
    if counts {
        let missing = recording.not_measured.get(INSTRUMENT).map_or(0, |all| all.len());
        return vec![Sheet {
            heading: "event",
            rows: watched::events(recording),
            summary: (missing > 0)
                .then(|| format!("{missing} not counted: the report has the reason for each")),
        }];
    }
    let classes = classes(recording);
    let sheet = classes.first().map(|class| {
        let seconds: f64 = (class.blocks.iter())
            .filter_map(|block| recording.blocks.get(*block as usize))
            .map(|block| block.duration_ns as f64 / 1e9)
            .sum();
        let busy = match class.quantity.unit.as_str() {
            "ns" if seconds > 0.0 => Some(format!(
                "{} {:.2} CPUs",
                class.quantity.name,
                class.total as f64 / 1e9 / seconds
            )),
            _ => None,
        };
        Sheet { heading: "function", rows: watched::functions(class, top), summary: busy }
    });
    sheet.into_iter().collect()
}

/// A figure in its unit, short.
fn value_text(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => format!("{:.1}%", value * 100.0),
        Unit::Cpus => format!("{value:.2} CPUs"),
        Unit::PerSecond => match value {
            v if v >= 999_950.0 => format!("{:.2}M/s", v / 1e6),
            v if v >= 9_999.5 => format!("{:.1}k/s", v / 1e3),
            v if v >= 99.95 || v == 0.0 => format!("{v:.0}/s"),
            v => format!("{v:.1}/s"),
        },
    }
}

/// Half the width of an interval, as a part of the figure.
fn reach(row: &Watched) -> String {
    match row.interval {
        Some((low, high)) if row.figure > 0.0 => {
            let half = (high - low) / 2.0 / row.figure * 100.0;
            match half {
                h if h < 9.95 => format!("±{h:.1}%"),
                h if h < 999.5 => format!("±{h:.0}%"),
                _ => ">±999%".into(),
            }
        }
        _ => "-".into(),
    }
}

/// A bar for each of the latest blocks, relative to the highest one shown; blank for 0.
fn history(values: &[f64], room: usize) -> String {
    let shown = &values[values.len().saturating_sub(room.min(HISTORY))..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match *value > 0.0 && most > 0.0 {
        true => {
            let step = (value / most * BARS.len() as f64).ceil() as usize;
            BARS[step.clamp(1, BARS.len()) - 1]
        }
        false => ' ',
    };
    shown.iter().map(bar).collect()
}

impl Sheet {
    /// Whether there is nothing in it yet.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its lines in a terminal of this width and height.
    pub(super) fn lines(&self, width: u16, height: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let width = usize::from(width);
        let name = (width.saturating_sub(FIGURES) / 2).clamp(NAME.0, NAME.1);
        let room = width.saturating_sub(name + FIGURES);
        let mut lines = Vec::new();
        lines.extend(self.summary.clone().map(Line::raw));
        lines.push(Line::styled(
            format!(
                "  {:<name$} {:>11} {:>7} {:>11}   {}",
                self.heading,
                "mean",
                "95%",
                "latest",
                if room > 7 { "history" } else { "" }
            ),
            bold,
        ));
        // Omissions are noted.
        let fits = height.saturating_sub(lines.len());
        let shown = match self.rows.len() <= fits {
            true => self.rows.len(),
            false => fits.saturating_sub(1),
        };
        lines.extend(self.rows.iter().take(shown).map(|row| {
            Line::from(vec![
                Span::raw(format!(
                    "  {:<name$} {:>11} {:>7} {:>11}   ",
                    printable(&row.name, name),
                    value_text(row.figure, row.unit),
                    reach(row),
                    value_text(row.latest(), row.unit)
                )),
                Span::raw(history(&row.history, room)),
            ])
        }));
        if shown < self.rows.len() {
            let more = self.rows.len() - shown;
            lines.push(Line::styled(
                format!("  {more} more: see the report, or a larger terminal"),
                dim,
            ));
        }
        lines
    }

    /// Its first rows, in a line.
    pub(super) fn line(&self) -> String {
        let rows = self.rows.iter().take(IN_LINE);
        let rows = rows.map(|row| {
            let figure = value_text(row.latest(), row.unit);
            format!("{} {figure}", printable(&row.name, NAME.0))
        });
        let rows: Vec<String> = rows.collect();
        rows.join(", ")
    }
}

#[cfg(test)]
mod tests;
