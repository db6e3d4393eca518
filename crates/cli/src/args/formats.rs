//! Formats for other programs: the format, and its output file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::heading;

/// Instead of tables, a format for another program. OUT is a file; without it, or with `-`,
/// it is written to standard output.
#[derive(Debug, Default, Args)]
#[group(
    id = "format",
    multiple = false,
    conflicts_with_all = ["csv", "json", "tree", "focus"]
)]
#[command(next_help_heading = heading::FORMATS)]
pub(crate) struct FormatArgs {
    /// Write folded stacks to OUT or standard output, for flamegraph.pl, inferno or speedscope
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    folded: Option<PathBuf>,
    /// Write a callgrind profile, for KCachegrind and callgrind_annotate
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    callgrind: Option<PathBuf>,
    /// Write a pprof profile, for `go tool pprof`
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    pprof: Option<PathBuf>,
    /// Write a profile for speedscope.app
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    speedscope: Option<PathBuf>,
    /// Write charts as SVG
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    svg: Option<PathBuf>,
    /// Write Markdown, for a cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    markdown: Option<PathBuf>,
    /// Write OpenMetrics text
    ///
    /// It has latency histograms, event counts, or the most expensive functions.
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
    openmetrics: Option<PathBuf>,
    /// Write traces of calls or packets, for ui.perfetto.dev and chrome://tracing
    ///
    /// Traces come from `plumb trace` (calls) and --one-packet (packets).
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-")]
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
