//! Formats for other programs: the format, and its output file.

use std::path::{Path, PathBuf};

use clap::Args;

/// Instead of tables, a format for another program. OUT is a file; without it, or with `-`,
/// it is written to standard output.
#[derive(Debug, Default, Args)]
#[group(
    id = "format",
    multiple = false,
    conflicts_with_all = ["csv", "json", "tree", "focus"]
)]
pub(crate) struct FormatArgs {
    /// Write folded stacks, for flamegraph.pl, inferno or speedscope, to OUT or standard output
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    folded: Option<PathBuf>,
    /// Write a callgrind profile, for KCachegrind and callgrind_annotate
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    callgrind: Option<PathBuf>,
    /// Write a pprof profile, for `go tool pprof`
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    pprof: Option<PathBuf>,
    /// Write a profile for speedscope.app
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    speedscope: Option<PathBuf>,
    /// Write charts as SVG
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    svg: Option<PathBuf>,
    /// Write Markdown, for a cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    markdown: Option<PathBuf>,
    /// Write OpenMetrics text: latency histograms, counts of events, or the most expensive functions
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    openmetrics: Option<PathBuf>,
    /// Write traces of calls (`plumb trace`) or packets (--one-packet), for ui.perfetto.dev and chrome://tracing
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    perfetto: Option<PathBuf>,
}

/// One of the formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Folded,
    Callgrind,
    Pprof,
    Speedscope,
    Svg,
    Markdown,
    OpenMetrics,
    Perfetto,
}

impl FormatArgs {
    /// Those of counts, if they are wanted.
    pub(crate) fn of_counts(markdown: Option<PathBuf>, openmetrics: Option<PathBuf>) -> FormatArgs {
        FormatArgs { markdown, openmetrics, ..FormatArgs::default() }
    }

    /// The requested format, if any.
    pub(crate) fn chosen(&self) -> Option<(Format, &Path)> {
        [
            (Format::Folded, &self.folded),
            (Format::Callgrind, &self.callgrind),
            (Format::Pprof, &self.pprof),
            (Format::Speedscope, &self.speedscope),
            (Format::Svg, &self.svg),
            (Format::Markdown, &self.markdown),
            (Format::OpenMetrics, &self.openmetrics),
            (Format::Perfetto, &self.perfetto),
        ]
        .into_iter()
        .find_map(|(format, out)| Some((format, out.as_deref()?)))
    }

    /// Whether a format was requested.
    pub(crate) fn wanted(&self) -> bool {
        self.chosen().is_some()
    }
}
