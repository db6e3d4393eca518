//! Options that select what is shown of a recording.

use std::path::PathBuf;

use clap::Args;
use netplumb_kernel::layers::LAYERS;

use super::formats::FormatArgs;
use super::heading;
use crate::exit::Usage;

/// Functions that are listed, if no other number is asked for.
pub(crate) const TOP: usize = 12;

/// What refusals say of a bench.
pub(crate) const BENCH_SUBJECT: &str =
    "a bench, which measures rates and no functions; use --csv or --json for its blocks";

/// How to show a recording.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::REPORT)]
pub(crate) struct ShowArgs {
    /// Show only this layer: syscall, socket, transport, network, ...
    #[arg(long, value_name = "LAYER")]
    pub(crate) layer: Option<String>,
    /// Functions to list in each table; 0 for all
    #[arg(long, value_name = "N", default_value_t = TOP)]
    pub(crate) top: usize,
    /// Show the call graph
    #[arg(long)]
    pub(crate) tree: bool,
    /// Show the samples by thread
    #[arg(long, conflicts_with_all = ["json", "tree", "focus", "lines", "layer"])]
    pub(crate) threads: bool,
    /// Show the callers and callees of FUNCTION
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) focus: Option<String>,
    /// Show the cost of each source line of FUNCTION
    ///
    /// FUNCTION is a function of the measured program.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "focus")]
    pub(crate) lines: Option<String>,
    /// With --lines: show the function's instructions with execution counts, and its jumps
    #[arg(long, requires = "lines")]
    pub(crate) asm: bool,
    /// With --lines: show the text of source lines
    #[arg(long, requires = "lines")]
    pub(crate) source: bool,
    /// With --lines: add the time of the same lines, from a recording of `plumb profile`
    #[arg(long, requires = "lines", value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    /// Show the traced call of this number in full; may be repeated
    #[arg(long, value_name = "N", conflicts_with_all = ["csv", "json", "tree", "focus", "lines", "threads", "layer"])]
    pub(crate) call: Vec<u64>,
    /// Print CSV, one row per function; for a bench, one per block
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["json", "tree", "focus", "lines"])]
    pub(crate) csv: bool,
    /// Print JSON, with everything measured
    ///
    /// With --lines, it has what --lines, --asm and --source select.
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["tree", "focus"])]
    pub(crate) json: bool,
    /// Show details of every arm (benches only)
    ///
    /// By default, only arms that lost packets or are invalid have details.
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(crate) all: bool,
    /// Show only this arm; may be repeated
    #[arg(long, value_name = "ARM")]
    pub(crate) arm: Vec<String>,
    #[command(flatten)]
    pub(crate) formats: FormatArgs,
}

impl ShowArgs {
    /// Of a command without functions: as CSV, JSON or Markdown, or else as tables.
    pub(crate) fn of_no_functions(csv: bool, json: bool, formats: FormatArgs) -> ShowArgs {
        ShowArgs {
            layer: None,
            top: 0,
            tree: false,
            threads: false,
            focus: None,
            lines: None,
            asm: false,
            source: false,
            beside: None,
            call: Vec::new(),
            csv,
            json,
            all: false,
            arm: Vec::new(),
            formats,
        }
    }

    /// The layer to show, if only one.
    pub(crate) fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }

    /// The format of a bench.
    pub(crate) fn bench_format(&self) -> RatesFormat {
        RatesFormat::from_flags(self.csv, self.json, self.all)
    }

    /// Check that no option is given that only benches support.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_others(&self) -> anyhow::Result<()> {
        match self.all {
            false => Ok(()),
            true => Err(Usage(
                "--all is for recordings of benches; use --top 0 to list all functions".into(),
            )
            .into()),
        }
    }

    /// Whether the output is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        self.json || self.csv
    }

    /// Check that no option is given that a bench doesn't support while it runs.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_bench(&self) -> anyhow::Result<()> {
        if self.formats.wanted() {
            return Err(
                Usage(format!("formats of profiles can't be used with {BENCH_SUBJECT}")).into()
            );
        }
        self.check_without_functions(BENCH_SUBJECT)
    }

    /// Check that no option is given that needs functions, which `what` doesn't have.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_without_functions(&self, what: &str) -> anyhow::Result<()> {
        let flags = [
            ("--layer", self.layer.is_some()),
            ("--tree", self.tree),
            ("--threads", self.threads),
            ("--focus", self.focus.is_some()),
            ("--lines", self.lines.is_some()),
            ("--call", !self.call.is_empty()),
            ("--arm", !self.arm.is_empty()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Usage(format!("{flag} can't be used with {what}")).into()),
        }
    }

    /// Check what can be checked before anything is measured.
    ///
    /// # Errors
    /// An unknown layer.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.layer {
            Some(layer) if !LAYERS.contains(&layer.as_str()) => Err(Usage(format!(
                "invalid layer `{layer}`; expected one of {}",
                LAYERS.join(", ")
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

/// How a bench is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RatesFormat {
    /// A table; details of every arm, or of those that lost packets or are invalid.
    Text {
        /// Details of every arm.
        all: bool,
    },
    /// One row per block.
    Csv,
    /// Everything.
    Json,
}

impl RatesFormat {
    /// By its flags.
    pub(crate) fn from_flags(csv: bool, json: bool, all: bool) -> RatesFormat {
        match (csv, json) {
            (true, _) => RatesFormat::Csv,
            (_, true) => RatesFormat::Json,
            _ => RatesFormat::Text { all },
        }
    }
}
