//! Prints documents.

use std::process::ExitCode;

use netplumb_model::recording::Recording;
use netplumb_report::document::Document;
use netplumb_report::openmetrics;

use super::print::{columns, print};
use crate::args::formats::Format;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::files::Out;

/// What refusals say of a recording that is no profile.
pub(super) struct NoProfile {
    /// Its subject, and that it has no functions.
    pub(super) subject: &'static str,
    /// Why it has no format of a profile, and what to use.
    pub(super) why: &'static str,
    /// Whether OpenMetrics has its figures.
    pub(super) has_metrics: bool,
}

/// Print a document of a recording in the requested format.
///
/// # Errors
/// An option or a format that is about functions.
pub(super) fn show(
    recording: &Recording,
    document: &Document<'_>,
    args: &ShowArgs,
    no_profile: &NoProfile,
) -> anyhow::Result<ExitCode> {
    args.check_without_functions(no_profile.subject)?;
    if let Some((format, out)) = args.formats.chosen() {
        let text = match format {
            Format::Markdown => document.markdown(),
            Format::OpenMetrics if no_profile.has_metrics => {
                openmetrics::render(recording, &[], &[])
            }
            _ => return Err(Usage(no_profile.why.into()).into()),
        };
        Out::from_path(out)?.write(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&match (args.json, args.csv) {
        (true, _) => document.json(),
        (_, true) => document.csv(),
        _ => document.terminal(columns()),
    })
}
