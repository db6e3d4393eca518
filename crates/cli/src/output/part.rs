//! The part of a recording that one instrument measured, or one of its quantities.

use std::borrow::Cow;

use netplumb_model::recording::Recording;
use netplumb_report::printable;

use crate::exit::Usage;

/// The part of a recording of an instrument or quantity, or all of it if none is named.
///
/// # Errors
/// The recording has nothing of it.
pub(crate) fn of_clock<'r>(
    recording: &'r Recording,
    clock: Option<&str>,
) -> anyhow::Result<Cow<'r, Recording>> {
    match clock {
        Some(clock) => chosen(recording, clock),
        None => Ok(Cow::Borrowed(recording)),
    }
}

/// The part of a recording that one instrument measured.
///
/// # Errors
/// The recording has nothing of this instrument.
pub(crate) fn chosen<'r>(
    recording: &'r Recording,
    clock: &str,
) -> anyhow::Result<Cow<'r, Recording>> {
    match recording.part_named(clock) {
        Some(part) => Ok(recording.part(part)),
        None => Err(Usage(format!(
            "no such instrument in the recording: `{}`; it has {}",
            printable(clock, 80),
            list(&recording.parts())
        ))
        .into()),
    }
}

/// The error that asks to choose an instrument.
pub(crate) fn several(instruments: &[&str]) -> anyhow::Error {
    Usage(format!(
        "the recording has several instruments ({}): choose one with `plumb report FILE --clock \
         CLOCK`",
        list(instruments)
    ))
    .into()
}

/// Names of instruments, printable.
pub(crate) fn list(instruments: &[&str]) -> String {
    let names = instruments.iter().map(|name| printable(name, 80));
    names.collect::<Vec<_>>().join(", ")
}
