//! What one of several instruments measured.

use std::borrow::Cow;

use netplumb_model::recording::Recording;
use netplumb_report::printable;

use crate::exit::Usage;

/// What one instrument measured of a recording.
///
/// # Errors
/// None of that name measured any of it.
pub(crate) fn chosen<'r>(
    recording: &'r Recording,
    clock: &str,
) -> anyhow::Result<Cow<'r, Recording>> {
    let instruments = recording.instruments();
    match instruments.contains(&clock) {
        true => Ok(recording.part(clock)),
        false => Err(Usage(format!(
            "nothing in the recording was measured by `{}`: it has {}",
            printable(clock, 80),
            list(&instruments)
        ))
        .into()),
    }
}

/// That one of several instruments has to be chosen.
pub(crate) fn several(instruments: &[&str]) -> anyhow::Error {
    Usage(format!(
        "the recording has figures of {}: choose one with `plumb report FILE --clock CLOCK`",
        list(instruments)
    ))
    .into()
}

/// Names of instruments, as far as they can be printed.
pub(crate) fn list(instruments: &[&str]) -> String {
    let names = instruments.iter().map(|name| printable(name, 80));
    names.collect::<Vec<_>>().join(", ")
}
