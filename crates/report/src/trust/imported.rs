//! The footer under samples that another program took: what they are, and what they lack.

use netplumb_model::quantity::Quantity;
use netplumb_model::recording::{Block, Recording, env};

use super::common::{kernel, lost};
use super::layers;
use super::varying::{blocks, intervals};
use crate::analysis::ClassView;
use crate::footer::Note;
use crate::number::{percent, printable, thousands};

/// Letters of a name, and of a command line.
const NAME: usize = 60;
const LINE: usize = 200;

/// Notes for under a result. `classes` are those that were shown.
pub(super) fn footer(
    recording: &Recording,
    quantity: &Quantity,
    classes: &[ClassView<'_>],
) -> Vec<Note> {
    let mut notes = vec![
        Note::new("clock", clock(recording, quantity)),
        kernel(recording),
        Note::new("samples", samples(recording)),
    ];
    let line = recording.environment.get(env::IMPORTED_LINE);
    notes.extend(line.map(|line| Note::new("recorded", printable(line, LINE))));
    notes.push(Note::new(
        "blocks",
        match quantity.unit.as_str() {
            "ns" => blocks(recording, classes),
            _ => slices(recording),
        },
    ));
    notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
    notes.push(layers(classes, "cost"));
    notes.extend(lost(
        recording,
        "none: all samples of the file are here, and have names",
    ));
    notes
}

fn clock(recording: &Recording, quantity: &Quantity) -> String {
    let by = recording.environment.get(env::IMPORTED);
    let by = by.map_or("another program", String::as_str);
    format!(
        "{}, in {}, by samples of {}: each stands for its period; a function that no sample found \
         is in no table",
        printable(&quantity.name, NAME),
        printable(&quantity.unit, NAME),
        printable(by, NAME)
    )
}

/// How the time was cut, for quantities that are not times.
fn slices(recording: &Recording) -> String {
    let ns: f64 = recording.blocks.iter().map(|b| b.duration_ns as f64).sum();
    let count = recording.blocks.len();
    format!("{count} of equal time, {:.1} s in all", ns / 1e9)
}

/// How many there are, and of what.
fn samples(recording: &Recording) -> String {
    let samples: u64 = recording.costs.iter().map(|c| c.calls).sum();
    let sum = |of: fn(&Block) -> u64| -> u64 { recording.blocks.iter().map(of).sum() };
    let (kernel, user) = (sum(Block::kernel), sum(Block::user));
    format!(
        "{}; {:.1}% of what they stand for in the kernel, {:.1}% in programs",
        thousands(samples),
        percent(kernel, kernel + user),
        percent(user, kernel + user)
    )
}
