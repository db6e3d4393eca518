//! Writes formats for other programs.

use std::io::{self, IsTerminal};

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};
use netplumb_report::analysis::ClassView;
use netplumb_report::shape::{Shape, shape};
use netplumb_report::times::{self, TimedClass};
use netplumb_report::together::CrossQuantity;
use netplumb_report::view::View;
use netplumb_report::{callgrind, folded, markdown, openmetrics, pprof, speedscope, svg, trace};

use crate::args::formats::{Format, FormatArgs};
use crate::exit::Usage;
use crate::files::Out;

/// Check what can be checked before anything is measured.
///
/// # Errors
/// A binary format on a terminal, or a file that can't be written.
pub(super) fn check(args: &FormatArgs) -> anyhow::Result<()> {
    let Some((format, out)) = args.chosen() else {
        return Ok(());
    };
    let out = Out::from_path(out)?;
    if out.is_stdout() && format == Format::Pprof && io::stdout().is_terminal() {
        return Err(Usage(
            "--pprof: a profile is binary, and standard output is a terminal: give a file, as in \
                 `--pprof out.pb.gz`, or a pipe"
                .into(),
        )
        .into());
    }
    out.try_out()
}

/// The recording to write, and its views.
pub(super) struct ShownRecording<'a> {
    /// The recording; one of times as costs.
    pub(super) recording: &'a Recording,
    /// The requested classes of the recording.
    pub(super) views: &'a [ClassView<'a>],
    /// The recording's experiment, if it has one.
    pub(super) experiment: Option<&'a Experiment>,
    /// The classes of a recording of times.
    pub(super) times: &'a [TimedClass<'a>],
    /// What all quantities show together.
    pub(super) together: &'a CrossQuantity<'a>,
}

/// Write the requested format; false if there is none.
///
/// # Errors
/// It can't be written.
pub(super) fn write(
    args: &FormatArgs,
    of: &ShownRecording<'_>,
    view: &View,
) -> anyhow::Result<bool> {
    let Some((format, out)) = args.chosen() else {
        return Ok(false);
    };
    let ShownRecording { recording, views, experiment, times, together } = *of;
    can_be(format, recording, views)?;
    let layer = view.layer.as_deref();
    let bytes = match format {
        Format::Folded => folded::render(views).into_bytes(),
        Format::Callgrind => callgrind::render(recording, views).into_bytes(),
        Format::Pprof => pprof::render(recording, views),
        Format::Speedscope => {
            let name = recording.environment.get(env::NAME);
            let title = match experiment.map(|e| e.title.as_str()) {
                Some(title) if !title.is_empty() => title,
                _ => name.map_or("plumb", |n| n),
            };
            speedscope::render(views, title, env!("CARGO_PKG_VERSION")).into_bytes()
        }
        Format::Svg => svg::render(recording, views, experiment, layer).into_bytes(),
        Format::Markdown if shape(recording) == Shape::Times => {
            times::markdown::render(recording, times, experiment, view).into_bytes()
        }
        Format::Markdown => {
            markdown::render(recording, views, experiment, view, together).into_bytes()
        }
        Format::OpenMetrics => openmetrics::render(recording, views, times).into_bytes(),
        Format::Perfetto => trace::perfetto::render(recording).into_bytes(),
    };
    Out::from_path(out)?.write(&bytes)?;
    Ok(true)
}
/// Check that the recording has what a format needs.
fn can_be(format: Format, recording: &Recording, views: &[ClassView<'_>]) -> anyhow::Result<()> {
    let timed = shape(recording) == Shape::Times;
    let why = match format {
        Format::Perfetto if recording.traces.is_empty() => {
            "the recording has no traces; record them with `plumb trace FUNCTION`, or with `plumb path \
             --one-packet`"
        }
        Format::Folded | Format::Callgrind | Format::Pprof | Format::Speedscope | Format::Svg
            if timed && views.is_empty() =>
        {
            "the recording has no calls of functions, only stages; use --openmetrics, --markdown, --csv \
             or --json"
        }
        _ => return Ok(()),
    };
    Err(Usage(why.into()).into())
}
