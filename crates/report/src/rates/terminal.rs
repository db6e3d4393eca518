//! A bench for a terminal: a table of its arms, the failures of each, and notes on the
//! results.

mod details;
mod footer;
mod search;
mod summary;

use netplumb_model::recording::Recording;

use super::{ArmRates, arms, explain, latency};
use crate::number::printable;
use crate::table::Room;
use crate::text::continued;

pub(super) use footer::footer;
pub use search::Goal;
pub(super) use search::goals;

/// Names of arms are cut to this.
const NAME_LIMIT: usize = 44;
/// Arms that one line names.
const NAMED: usize = 4;

/// A bench: a table of its arms, losses first, and their causes. Details are for arms that
/// lost packets or are invalid; with `all`, for every arm and without limit.
pub fn render(recording: &Recording, columns: usize, all: bool) -> String {
    let arms = arms(recording);
    let (shown, absent): (Vec<_>, Vec<_>) = arms.iter().partition(|a| a.failed.is_none());
    let mut out = String::new();
    if let Some(setting) = recording.environment.get("bench.setting") {
        out.push_str(&paragraph(&printable(setting, 400), columns));
        out.push_str("\n\n");
    }
    // In a search, blocks are trials, and lose packets on purpose.
    let (searched, shown): (Vec<_>, Vec<_>) =
        (shown.into_iter()).partition(|a| !a.goals.is_empty());
    if !shown.is_empty() {
        out.push_str(&summary::rates(&shown, columns));
    }
    out.push_str(&details::invalid(&searched, columns, all));
    out.push_str(&details::details(&shown, columns, all));
    out.push_str(&search::found(&arms, columns));
    let with_latency: Vec<&ArmRates<'_>> =
        (shown.iter().copied()).filter(|a| a.latency().is_some()).collect();
    if !with_latency.is_empty() {
        out.push_str(&format!("\n{}\n", latency::HEADING));
        let room = Room::new(columns, NAME_LIMIT);
        out.push_str(&latency::table(&with_latency).flush().terminal(room));
    }
    let without: Vec<&str> =
        (shown.iter()).filter(|a| a.lacks_latency()).map(|a| a.arm.name.as_str()).collect();
    if !without.is_empty() {
        let line = format!("  {}: {}", names(&without), latency::ABSENT);
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out.push_str(&explain::render(recording, columns, all));
    if !absent.is_empty() {
        out.push_str("\nunavailable:\n");
        out.push_str(&details::unavailable(&absent, columns));
    }
    out.push('\n');
    let notes = footer(recording, &arms);
    out.push_str(&crate::footer::terminal(&notes, columns));
    out
}

/// A line that goes on below its third character.
fn paragraph(line: &str, columns: usize) -> String {
    let text = continued(&format!("  {line}"), 2, columns);
    text.trim_start().to_string()
}

/// Arms by name: the first few, and how many more.
fn names(arms: &[&str]) -> String {
    let named = arms.iter().take(NAMED);
    let mut text = (named.map(|name| printable(name, NAME_LIMIT))).collect::<Vec<_>>().join(", ");
    if arms.len() > NAMED {
        text.push_str(&format!(" and {} more", arms.len() - NAMED));
    }
    text
}
