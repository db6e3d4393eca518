//! Arguments of `plumb diff`.

use std::ffi::OsString;

use clap::Args;
use netplumb_model::class::{Direction, Proto};

use crate::args::below::BelowArgs;
use crate::args::heading;
use crate::args::page::PageArgs;

/// Arguments of `plumb diff`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::REPORT)]
pub(crate) struct DiffArgs {
    /// Baseline: a recording, or FILE:ARM
    #[arg(value_name = "BEFORE", help_heading = None)]
    pub(super) before: OsString,
    /// Recording, or FILE:ARM, to compare with the baseline [default: the arms of BEFORE]
    ///
    /// Without AFTER, the arms of BEFORE are compared with each other.
    #[arg(value_name = "AFTER", help_heading = None)]
    pub(super) after: Option<OsString>,
    /// Compare only these protocols: raw, udp, tcp; comma-separated list
    #[arg(long, value_name = "PROTO", help_heading = heading::FILTERS, value_delimiter = ',')]
    pub(super) proto: Vec<Proto>,
    /// Compare only these directions: tx, rx, forward, echo, ack, drop
    ///
    /// The list is comma-separated.
    #[arg(long, value_name = "DIRECTION", help_heading = heading::FILTERS, value_delimiter = ',')]
    pub(super) direction: Vec<Direction>,
    /// Compare only the results of this instrument
    #[arg(long, value_name = "CLOCK", help_heading = heading::FILTERS)]
    pub(super) clock: Option<String>,
    /// Show only this layer: syscall, socket, transport, network, ...
    #[arg(long, value_name = "LAYER")]
    pub(super) layer: Option<String>,
    /// Functions to list in each table; 0 for all
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) top: usize,
    /// Show the call graphs of both sides
    #[arg(long)]
    pub(super) tree: bool,
    #[command(flatten)]
    pub(super) below: BelowArgs,
    /// Print CSV, one row per class, context and function
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["json", "markdown", "tree"])]
    pub(super) csv: bool,
    /// Print JSON, with all differences
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["markdown", "tree"])]
    pub(super) json: bool,
    /// Print Markdown, for a comment
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with = "tree")]
    pub(super) markdown: bool,
    /// Print plain text, for a cover letter on a mailing list
    ///
    /// Lines have at most 72 columns, where names allow.
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with_all = ["csv", "json", "markdown", "tree"])]
    pub(super) mail: bool,
    #[command(flatten)]
    pub(super) page: PageArgs,
    /// Exit with code 4 if a class is worse by more than LIMIT: 0.5%, 10insns or 10ns
    ///
    /// The total of all classes of an arm counts, too. If one side of an arm lacks a class, only the
    /// total decides.
    #[arg(long, value_name = "LIMIT", help_heading = heading::OUTPUT)]
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
