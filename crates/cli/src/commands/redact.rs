//! `plumb redact`: a recording without what identifies people and machines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_store::{Output, Writer};

use crate::args::redact::KeepArgs;
use crate::output::print::print;

/// Texts of a kind that are listed, unless all are wanted.
const LISTED: usize = 20;
const TEXT_LETTERS: usize = 200;

/// Arguments of `plumb redact`.
#[derive(Debug, Args)]
pub(crate) struct RedactArgs {
    /// Recording to read
    file: PathBuf,
    /// Recording to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    keep: KeepArgs,
    /// List all texts that are left, however many
    #[arg(long)]
    all: bool,
}

/// Write the recording without secrets, and print which texts it has left.
///
/// # Errors
/// The file is not a recording, or the other can't be written.
pub(crate) fn run(args: &RedactArgs) -> anyhow::Result<ExitCode> {
    let recording = netplumb_store::read(&args.file)?;
    let output = Output::claim(&args.output)?;
    let redacted = recording.redacted(&args.keep.redaction());
    let writer = Writer::begin(output, &redacted).map_err(|(error, _)| error)?;
    eprintln!("wrote {}", args.output.display());
    if let Some(kept) = writer.kept() {
        eprintln!("renamed the existing recording to {}", kept.display());
    }
    if !recording.experiment_toml.is_empty() && redacted.experiment_toml.is_empty() {
        eprintln!("the experiment file is left out: without secrets it is none");
    }
    print(&left(&redacted, args.all))?;
    Ok(ExitCode::SUCCESS)
}

/// What is left: texts by their kind. Functions of the kernel are the same for everyone, and only counted.
fn left(recording: &Recording, all: bool) -> String {
    let mut by_kind: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (kind, text) in recording.texts() {
        by_kind.entry(kind).or_default().insert(text);
    }
    let facts = recording.environment.iter();
    by_kind.insert("fact", facts.map(|(key, value)| format!("{key} = {value}")).collect());
    if !recording.experiment_toml.is_empty() {
        let lines = recording.experiment_toml.lines();
        let lines = lines.filter(|line| !line.trim().is_empty());
        by_kind.insert("experiment", lines.map(String::from).collect());
    }
    let mut out = String::from("What is left:\n");
    for (kind, texts) in &by_kind {
        let limit = match *kind {
            _ if all => usize::MAX,
            "function" => 0,
            "fact" => usize::MAX,
            _ => LISTED,
        };
        let plural = if texts.len() == 1 { "" } else { "s" };
        out.push_str(&format!("\n{} {kind}{plural}\n", texts.len()));
        for text in texts.iter().take(limit) {
            out.push_str(&format!("  {}\n", printable(text, TEXT_LETTERS)));
        }
        if texts.len() > limit {
            out.push_str(&format!("  and {} more: --all lists them\n", texts.len() - limit));
        }
    }
    out
}
