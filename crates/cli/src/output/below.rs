//! The part of a recording below a function.

use std::borrow::Cow;

use anyhow::Context;
use netplumb_model::chain;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use super::named::named;
use crate::args::below::BelowArgs;
use crate::exit::Usage;

/// The part of a recording that was asked for, or all of it. Errors begin with `file`.
///
/// # Errors
/// A recording without costs of functions, or without that function.
pub(crate) fn below<'r>(
    args: &BelowArgs,
    recording: &'r Recording,
    file: &str,
) -> anyhow::Result<Cow<'r, Recording>> {
    let Some(name) = &args.below else {
        return Ok(Cow::Borrowed(recording));
    };
    if shape(recording) == Shape::Rates {
        return Err(Usage(
            "--below can't be used with a bench, which measures rates and no functions".into(),
        )
        .into());
    }
    for function in chain::names(name) {
        named(recording, function).with_context(|| file.to_string())?;
    }
    let part = recording.below(name);
    if part.nodes.is_empty() {
        return Err(Usage(format!(
            "{file}: no call of {} in the recording",
            printable(&chain::told(name), 200)
        ))
        .into());
    }
    Ok(Cow::Owned(part))
}
