//! The part of a recording of some threads, and below a function.

use std::borrow::Cow;

use anyhow::Context;
use netplumb_model::chain;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use super::named::{named, unknown};
use crate::args::below::BelowArgs;
use crate::exit::Usage;

/// The part of a recording that was asked for, or all of it. Errors begin with `file`.
///
/// # Errors
/// A recording without costs of functions, or without that function or thread.
pub(crate) fn below<'r>(
    args: &BelowArgs,
    recording: &'r Recording,
    file: &str,
) -> anyhow::Result<Cow<'r, Recording>> {
    let whole = recording;
    let [recording] = of_threads(args, [whole], file)?;
    let Some(name) = &args.below else {
        return Ok(recording);
    };
    let recording = recording.as_ref();
    check(recording)?;
    for function in chain::names(name) {
        named(recording, function).with_context(|| file.to_string())?;
    }
    if !has(recording, name) {
        return Err(none(file, name));
    }
    Ok(Cow::Owned(recording.below(name)))
}

/// The parts of two recordings that were asked for, or all of them, each with the name of its file. A
/// function that only one of them has costs nothing in the other.
///
/// # Errors
/// A recording without costs of functions, or neither has that function.
pub(crate) fn below_both<'r>(
    args: &BelowArgs,
    recordings: [&'r Recording; 2],
    files: [&str; 2],
) -> anyhow::Result<[Cow<'r, Recording>; 2]> {
    let parts = of_threads(args, recordings, &files.join(", "))?;
    let Some(name) = &args.below else {
        return Ok(parts);
    };
    let recordings = parts.each_ref().map(Cow::as_ref);
    for recording in recordings {
        check(recording)?;
    }
    let files = files.join(", ");
    for function in chain::names(name) {
        let unknown_to = |r: &&Recording| chain::functions(r, function).is_empty();
        if recordings.iter().all(unknown_to) {
            return Err(unknown(&recordings, function)).with_context(|| files.clone());
        }
    }
    if !recordings.iter().any(|recording| has(recording, name)) {
        return Err(none(&files, name));
    }
    Ok(recordings.map(|recording| Cow::Owned(recording.below(name))))
}

/// The parts of recordings of the threads that were asked for, or all of them. Threads that are in only one of them
/// cost nothing in the other.
fn of_threads<'r, const N: usize>(
    args: &BelowArgs,
    recordings: [&'r Recording; N],
    files: &str,
) -> anyhow::Result<[Cow<'r, Recording>; N]> {
    let (what, name) = match (&args.thread, &args.process) {
        (Some(name), _) => ("thread", name),
        (None, Some(name)) => ("process", name),
        (None, None) => return Ok(recordings.map(Cow::Borrowed)),
    };
    if recordings.iter().any(|recording| recording.samples.is_empty()) {
        return Err(Usage(format!(
            "{files}: --{what} needs samples with threads, which `plumb profile` and `plumb import` record"
        ))
        .into());
    }
    let threads = recordings.map(|recording| match what {
        "thread" => recording.threads_named(name),
        _ => recording.processes_named(name),
    });
    let name = printable(name, 80);
    if threads.iter().all(Vec::is_empty) {
        return Err(Usage(format!(
            "{files}: no {what} `{name}` in the recording; plumb report FILE --threads lists them"
        ))
        .into());
    }
    let called = format!("{what} {name}");
    let mut threads = threads.into_iter();
    Ok(recordings.map(|recording| {
        let threads = threads.next().unwrap_or_default();
        Cow::Owned(recording.of_threads(&threads, &called))
    }))
}

fn check(recording: &Recording) -> anyhow::Result<()> {
    match shape(recording) {
        Shape::Rates => Err(Usage(
            "--below can't be used with a bench, which measures rates and no functions".into(),
        )
        .into()),
        // Who caused them is a call graph.
        Shape::Counts if !recording.costs.is_empty() => Ok(()),
        Shape::Counts => Err(Usage(
            "--below can't be used with counts of events, which have no functions".into(),
        )
        .into()),
        Shape::Hosts => Err(Usage(
            "--below can't be used with a recording of two hosts, which has no functions".into(),
        )
        .into()),
        Shape::Costs | Shape::Times => Ok(()),
    }
}

/// Whether anything is below a chain of functions.
fn has(recording: &Recording, chain: &str) -> bool {
    chain::below(recording, chain).contains(&true)
}

fn none(files: &str, chain: &str) -> anyhow::Error {
    Usage(format!(
        "{files}: no call of {} in the recording",
        printable(&chain::chain_text(chain), 200)
    ))
    .into()
}
