//! `plumb topology`: the namespaces and devices that packets run through.

use std::process::ExitCode;

use clap::Subcommand;
use netplumb_model::topology::{TopologySpec, preset_text, presets};
use netplumb_report::printable;

use crate::exit::Usage;
use crate::output::columns::write_columns;
use crate::output::print::print;

/// What to do with the topologies.
#[derive(Debug, Subcommand)]
pub(crate) enum TopologyCommand {
    /// List the presets, with their ways
    List,
    /// Print the file of a preset, as a start for one of your own (--topology FILE.toml)
    Show {
        /// Preset, as listed
        name: String,
    },
}

/// Run it.
///
/// # Errors
/// There is no such preset.
pub(crate) fn run(command: TopologyCommand) -> anyhow::Result<ExitCode> {
    match command {
        TopologyCommand::List => {
            let mut rows = vec![vec!["TOPOLOGY".to_string(), "DESCRIPTION".to_string()]];
            for spec in presets().filter_map(TopologySpec::preset) {
                for (n, way) in spec.ways.iter().enumerate() {
                    let name = match way.name.as_str() {
                        "" => spec.name.clone(),
                        way => format!("{}:{way}", spec.name),
                    };
                    let about = match (spec.ways.len(), n) {
                        (1, _) => spec.about.clone(),
                        (_, 0) => format!("{}: {}", spec.about, way.about),
                        (_, _) => format!("  {}", way.about),
                    };
                    rows.push(vec![name, about]);
                }
            }
            let mut text = Vec::new();
            write_columns(&rows, &[], &mut text)?;
            print(&String::from_utf8_lossy(&text))
        }
        TopologyCommand::Show { name } => match preset_text(&name) {
            Some(text) => print(text),
            None => {
                let known: Vec<&str> = presets().collect();
                Err(Usage(format!(
                    "unknown topology `{}`; expected one of {}",
                    printable(&name, 80),
                    known.join(", ")
                ))
                .into())
            }
        },
    }
}
