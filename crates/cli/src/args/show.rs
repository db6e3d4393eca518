//! How a recording is to be shown.

use clap::Args;
use netplumb_kernel::layers::LAYERS;

use super::formats::FormatArgs;
use crate::exit::Usage;

/// How to show a recording.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// One layer only: syscall, socket, transport, network ...
    #[arg(long, value_name = "LAYER")]
    pub(crate) layer: Option<String>,
    /// Functions in a table, 0 for all
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) top: usize,
    /// The call graph with its costs
    #[arg(long)]
    pub(crate) tree: bool,
    /// One function's callers and callees
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) focus: Option<String>,
    /// What each source line of a function of the command cost
    #[arg(long, value_name = "FUNCTION", conflicts_with = "focus")]
    pub(crate) lines: Option<String>,
    /// One line for each function, as CSV
    #[arg(long, conflicts_with_all = ["json", "tree", "focus", "lines"])]
    pub(crate) csv: bool,
    /// Everything, as JSON
    #[arg(long, conflicts_with_all = ["tree", "focus", "lines"])]
    pub(crate) json: bool,
    /// Of a bench: details of every arm, not only of those that lost packets or are invalid
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(crate) all: bool,
    /// Only the arms of this name; several with several `--arm`
    #[arg(long, value_name = "ARM")]
    pub(crate) arm: Vec<String>,
    #[command(flatten)]
    pub(crate) formats: FormatArgs,
}

impl ShowArgs {
    /// The layer that is to be shown, if only one is.
    pub(crate) fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }

    /// As what a bench is to be shown.
    pub(crate) fn bench_format(&self) -> RatesFormat {
        RatesFormat::of(self.csv, self.json, self.all)
    }

    /// What is asked for that benches alone have.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_others(&self) -> anyhow::Result<()> {
        match self.all {
            false => Ok(()),
            true => Err(Usage(
                "--all is for benches, which have arms to tell of; --top 0 shows all functions"
                    .into(),
            )
            .into()),
        }
    }

    /// Whether what is shown is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        self.json || self.csv
    }

    /// What is asked for that is of functions, by its flag: a bench has none.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_bench(&self) -> anyhow::Result<()> {
        let flags = [
            ("--layer", self.layer.is_some()),
            ("--tree", self.tree),
            ("--focus", self.focus.is_some()),
            ("--lines", self.lines.is_some()),
            ("--arm", !self.arm.is_empty()),
            ("a file for another program", self.formats.wanted()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Usage(format!(
                "{flag}: a bench has rates, and no functions to show; --csv and --json have all \
                 its blocks"
            ))
            .into()),
        }
    }

    /// What can be said to be wrong before anything is measured.
    ///
    /// # Errors
    /// A layer that there is not, or an output that can't be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.layer {
            Some(layer) if !LAYERS.contains(&layer.as_str()) => Err(Usage(format!(
                "`{layer}` is no layer: they are {}",
                LAYERS.join(", ")
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

/// As what a bench is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RatesFormat {
    /// A table; details of every arm, or of those that lost packets or are invalid.
    Text {
        /// Of every arm.
        all: bool,
    },
    /// A line for each block.
    Csv,
    /// Everything.
    Json,
}

impl RatesFormat {
    /// What flags ask for.
    pub(crate) fn of(csv: bool, json: bool, all: bool) -> RatesFormat {
        match (csv, json) {
            (true, _) => RatesFormat::Csv,
            (_, true) => RatesFormat::Json,
            _ => RatesFormat::Text { all },
        }
    }
}
