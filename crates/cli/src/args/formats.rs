//! The formats of other tools: which was asked for, and where it goes.

use std::path::{Path, PathBuf};

use clap::Args;

/// Instead of tables, something for another program. OUT is a file; without it, or
/// as `-`, the standard output.
#[derive(Debug, Default, Args)]
#[group(
    id = "format",
    multiple = false,
    conflicts_with_all = ["csv", "json", "tree", "focus"]
)]
pub(crate) struct FormatArgs {
    /// Folded stacks, for flamegraph.pl, inferno or speedscope
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    folded: Option<PathBuf>,
    /// A callgrind profile, for KCachegrind and callgrind_annotate
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    callgrind: Option<PathBuf>,
    /// A pprof profile, for `go tool pprof`
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    pprof: Option<PathBuf>,
    /// JSON for speedscope.app
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    speedscope: Option<PathBuf>,
    /// Figures for a paper, as SVG
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    svg: Option<PathBuf>,
    /// Markdown, for a patch's cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    markdown: Option<PathBuf>,
    /// Of times: histograms as OpenMetrics text
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = "Other formats")]
    openmetrics: Option<PathBuf>,
    /// Of packets told one by one: a trace, for ui.perfetto.dev and chrome://tracing
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
    /// What was asked for, if anything was.
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

    /// Whether one is asked for.
    pub(crate) fn wanted(&self) -> bool {
        self.chosen().is_some()
    }
}
