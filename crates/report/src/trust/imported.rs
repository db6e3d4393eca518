//! The footer under samples that another program took: their meaning, and what they lack.

use netplumb_model::class::Direction;
use netplumb_model::quantity::Quantity;
use netplumb_model::recording::{Block, Recording, env};

use super::blocks::{blocks, intervals};
use super::common::{kernel, lost};
use super::layers;
use crate::analysis::ClassView;
use crate::footer::Note;
use crate::number::{percent, printable, thousands};

/// Letters of a name, and of a command line.
const NAME: usize = 60;
const LINE: usize = 200;

/// Notes under a result. `classes` are the shown ones.
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
    notes.extend(idle(recording));
    notes.push(names(recording));
    notes.extend(foreign(recording));
    notes.extend(stacks(recording));
    let line = recording.environment.get(env::IMPORTED_LINE);
    notes.extend(line.map(|line| Note::new("recorded", printable(line, LINE))));
    notes.push(Note::new("blocks", blocks(recording, classes)));
    notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
    notes.push(layers(classes, "cost"));
    notes.extend(lost(
        recording,
        "none: all samples of the file are here, and have names",
        "the file was not read to its end: later samples are missing",
    ));
    notes
}

/// A note on idle time, which no share includes.
fn idle(recording: &Recording) -> Option<Note> {
    let calls = |idle: bool| -> u64 {
        let costs = recording.costs.iter();
        let costs = costs.filter(|c| (c.direction == Direction::Other) == idle);
        costs.map(|c| c.calls).sum()
    };
    let (idle, busy) = (calls(true), calls(false));
    (idle > 0).then(|| {
        let text = format!(
            "{} more samples ({:.1}% of all) found CPUs idle: shares are of the time that they were busy",
            thousands(idle),
            percent(idle, idle + busy)
        );
        Note::new("idle", text)
    })
}

/// A note if the samples' architecture is not the importing machine's.
fn foreign(recording: &Recording) -> Option<Note> {
    let fact = |key: &str| recording.environment.get(key).map(|text| printable(text, NAME));
    let (arch, on) = (fact(env::IMPORTED_ARCH)?, fact(env::IMPORTED_ON)?);
    (arch != on).then(|| {
        let text = format!(
            "{arch}, imported on {on}: names are only of files that --kallsyms and --symfs gave, or with \
             the same build ID"
        );
        Note::warning("machine", text)
    })
}

/// Where names come from, which may be another machine than the samples.
fn names(recording: &Recording) -> Note {
    let fact = |key: &str| recording.environment.get(key);
    let known = [env::IMPORTED_HOST, env::IMPORTED_ARCH].map(fact);
    let known: Vec<String> =
        (known.into_iter().flatten()).map(|text| printable(text, NAME)).collect();
    let host = match known.is_empty() {
        false => format!("sampled on {}; ", known.join(", ")),
        true => String::new(),
    };
    let kernel = match fact(env::IMPORTED_SYMBOLS) {
        Some(from) => format!("the kernel's by {}", printable(from, LINE)),
        None => "none of the kernel's, which is another one".into(),
    };
    let files = match fact(env::IMPORTED_FILES) {
        Some(files) => format!("; files of programs: {}", printable(files, LINE)),
        None => String::new(),
    };
    Note::new("names", format!("{host}{kernel}{files}"))
}

/// A note if there are no stacks.
fn stacks(recording: &Recording) -> Option<Note> {
    let none = recording.environment.get(env::IMPORTED_STACKS);
    let none = none.is_some_and(|stacks| stacks == "no");
    none.then(|| {
        Note::warning(
            "call graph",
            "none: samples have no stacks, so inclusive costs are own costs; record with `perf \
             record -g`",
        )
    })
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

/// The number of samples, and their event.
fn samples(recording: &Recording) -> String {
    let busy = recording.costs.iter();
    let busy = busy.filter(|c| c.direction != Direction::Other);
    let samples: u64 = busy.map(|c| c.calls).sum();
    let sum = |of: fn(&Block) -> u64| -> u64 { recording.blocks.iter().map(of).sum() };
    let (kernel, user) = (sum(Block::kernel), sum(Block::user));
    format!(
        "{}; {:.1}% of what they stand for in the kernel, {:.1}% in programs",
        thousands(samples),
        percent(kernel, kernel + user),
        percent(user, kernel + user)
    )
}
