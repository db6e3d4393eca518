//! Arguments of `plumb diff`.

use std::ffi::OsString;

use clap::Args;
use netplumb_model::class::{Direction, Proto};

use crate::args::below::BelowArgs;
use crate::args::page::PageArgs;

/// Arguments of `plumb diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Baseline: a recording, or FILE:ARM
    #[arg(value_name = "BEFORE")]
    pub(super) before: OsString,
    /// Recording, or FILE:ARM, to compare with the baseline; without it, the arms of BEFORE are
    /// compared with each other
    #[arg(value_name = "AFTER")]
    pub(super) after: Option<OsString>,
    /// Compare only these protocols: raw, udp, tcp; comma-separated list
    #[arg(long, value_name = "PROTO", value_delimiter = ',')]
    pub(super) proto: Vec<Proto>,
    /// Compare only these directions: tx, rx, forward, echo, ack, drop; comma-separated list
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    pub(super) direction: Vec<Direction>,
    /// Show only this layer: syscall, socket, transport, network, ...
    #[arg(long, value_name = "LAYER")]
    pub(super) layer: Option<String>,
    /// Functions to list in each table; 0 for all
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) top: usize,
    /// Show the call graphs of both sides
    #[arg(long)]
    pub(super) tree: bool,
    /// Print CSV, one row per class, context and function
    #[arg(long, conflicts_with_all = ["json", "markdown", "tree"])]
    pub(super) csv: bool,
    /// Print JSON, with all differences
    #[arg(long, conflicts_with_all = ["markdown", "tree"])]
    pub(super) json: bool,
    /// Print Markdown, for a comment
    #[arg(long, conflicts_with = "tree")]
    pub(super) markdown: bool,
    /// Print plain text of at most 72 columns where names allow, for a cover letter on a mailing list
    #[arg(long, conflicts_with_all = ["csv", "json", "markdown", "tree"])]
    pub(super) mail: bool,
    /// Compare only what this instrument measured
    #[arg(long, value_name = "CLOCK")]
    pub(super) clock: Option<String>,
    #[command(flatten)]
    pub(super) below: BelowArgs,
    #[command(flatten)]
    pub(super) page: PageArgs,
    /// Exit with code 4 if any class, or all classes of an arm together, got worse by more than LIMIT: 0.5%, 10insns or
    /// 10ns; of an arm with a class that one side lacks, all together decide
    #[arg(long, value_name = "LIMIT")]
    pub(super) fail_if_worse: Option<Limit>,
}

/// By how much a class may get worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limit {
    Percent(f64),
    Insns(f64),
    Ns(f64),
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, limit): (&str, fn(f64) -> Limit) =
            match (text.strip_suffix("insns"), text.strip_suffix("ns")) {
                (Some(number), _) => (number, Limit::Insns),
                (None, Some(number)) => (number, Limit::Ns),
                (None, None) => (text.strip_suffix('%').unwrap_or(text), Limit::Percent),
            };
        match number.trim().parse::<f64>() {
            Ok(n) if n.is_finite() && n >= 0.0 => Ok(limit(n)),
            _ => Err(format!("invalid limit `{text}`; expected like 0.5%, 10insns or 10ns")),
        }
    }
}
