//! `plumb tune`: search settings for a goal, between two hosts in virtual time or two namespaces of this machine, or
//! on an interface of this machine.
//!
//! `tune/search.rs` judges what `netplumb_stats::halving` proposes, at a `Place`: `tune/hosts.rs` or `tune/nic.rs`.
//! What is tried is in `netplumb_model::tune`.

mod hosts;
mod nic;
mod search;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::experiment::{Lab, Time};
use netplumb_model::tune::{Goal, Hold, Tuned};
use netplumb_report::tune as report;

use crate::args::guard::GuardArgs;
use crate::args::heading;
use crate::args::knobs::{KnobArgs, OfHosts};
use crate::args::run::RunOptions;
use crate::exit::{Usage, WORSE};
use crate::files::Out;
use crate::output::print::{columns, print};

/// Arguments of `plumb tune`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::SEARCH)]
pub(crate) struct TuneArgs {
    /// Goal: throughput of a stream, latency of a request, or CPU time per byte
    #[arg(long, value_name = "GOAL", value_parser = goal())]
    goal: Goal,
    /// Condition to meet, like latency<200us, throughput>900M or busy<50%; may be repeated
    #[arg(long, value_name = "CONDITION", value_parser = |text: &str| text.parse::<Hold>())]
    hold: Vec<Hold>,
    /// Time limit of the search
    ///
    /// After it, no other combination is tried; the best one is measured once more.
    #[arg(long, value_name = "TIME", default_value = "5m")]
    budget: Time,
    /// Number of combinations to begin with
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=200))]
    candidates: u32,
    /// Number of hosts: two guests connected by a wire, or two namespaces
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = heading::LAB, value_parser = clap::value_parser!(u32).range(2..=2))]
    hosts: u32,
    /// Lab to run in
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = labs(), help_heading = heading::LAB)]
    lab: Lab,
    /// Tune this interface of this machine while COMMAND runs, instead of two hosts
    ///
    /// COMMAND must transfer the same data over the interface each time. All settings are restored.
    #[arg(long, value_name = "NIC", value_parser = interface, help_heading = heading::LAB, requires = "command", conflicts_with_all = ["lab", "hosts"])]
    nic: Option<String>,
    /// With --nic: measure latency by ICMP echoes to this machine
    ///
    /// Without --peer, latency is the run time of COMMAND.
    #[arg(long, value_name = "ADDRESS", help_heading = heading::LAB, requires = "nic")]
    peer: Option<IpAddr>,
    /// With --nic: leave the best settings in place, if they are better
    ///
    /// The command lines that undo the changes are printed.
    #[arg(long, help_heading = heading::LAB, requires = "nic")]
    keep: bool,
    #[command(flatten)]
    knobs: KnobArgs<OfHosts>,
    #[command(flatten)]
    guard: GuardArgs,
    /// Recording to write [default: tune.plumb]
    ///
    /// An existing recording is renamed to tune.plumb.old, or tune.plumb.old.1 and so on.
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,
    /// Interface name in the printed command lines, with two hosts
    #[arg(long, value_name = "NAME", default_value = "eth0", value_parser = interface, help_heading = heading::OUTPUT, conflicts_with = "nic")]
    print_nic: String,
    /// Also write the unbeaten settings as an experiment, for plumb run
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT, conflicts_with = "nic")]
    experiment: Option<PathBuf>,
    /// Overwrite an existing file of --experiment
    #[arg(long, help_heading = heading::OUTPUT, requires = "experiment")]
    overwrite: bool,
    /// Print JSON
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
    /// Timeout in seconds for booting a guest, and for running a combination
    #[arg(long, value_name = "SECONDS", default_value_t = 120, help_heading = heading::EXECUTION, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Don't print progress
    #[arg(short, long, help_heading = heading::OUTPUT)]
    quiet: bool,
    /// Command that loads the interface of --nic, like iperf3 -c ADDRESS -n 1G
    #[arg(last = true, value_name = "COMMAND", help_heading = None)]
    command: Vec<String>,
}

impl TuneArgs {
    /// A search is one run, of which each combination is measured as others are.
    fn options(&self) -> RunOptions {
        RunOptions {
            output: self.output.clone(),
            timeout: self.timeout,
            quiet: self.quiet,
            ..RunOptions::plain()
        }
    }
}

fn goal() -> impl TypedValueParser<Value = Goal> {
    PossibleValuesParser::new(Goal::WORDS).try_map(|name| name.parse())
}

fn labs() -> impl TypedValueParser<Value = Lab> {
    let labs = [
        (Lab::Vm, "Two QEMU guests connected by a wire, in virtual time"),
        (Lab::Netns, "Two network namespaces of this machine, connected by veth, by its clock"),
    ];
    let values = labs.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Lab>())
}

/// A name that may be part of a command line.
fn interface(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !text.is_empty() && text.len() < 16 && text.chars().all(is_good) {
        true => Ok(text.into()),
        false => Err("expected the name of an interface, like eth0".into()),
    }
}

/// Search, and print what was found.
///
/// # Errors
/// The measurement failed.
pub(crate) fn run(args: TuneArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.nic.is_none() && !args.command.is_empty() {
        let why = "COMMAND makes the load of an interface: name it (--nic NIC); two hosts have a load of their own";
        return Err(Usage(why.into()).into());
    }
    let file = match &args.experiment {
        Some(path) => {
            let out = Out::from_path(path)?.only_new(args.overwrite)?;
            out.try_out()?;
            Some(out)
        }
        None => None,
    };
    let (tuned, recording) = match &args.nic {
        Some(name) => nic::run(&args, name, cache)?,
        None => hosts::run(&args, cache, file.as_ref())?,
    };
    print(&match args.json {
        true => report::json(&tuned, Some(&recording)),
        false => report::terminal(&tuned, Some(&recording), columns()),
    })?;
    Ok(code(&tuned))
}

fn code(tuned: &Tuned) -> ExitCode {
    match tuned.missed() {
        true => ExitCode::from(WORSE),
        false => ExitCode::SUCCESS,
    }
}
