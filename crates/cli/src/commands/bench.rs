//! `plumb bench`: packet rates by data path.

mod args;
mod hosts;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use netplumb_model::bench::Bench;
#[cfg(test)]
use netplumb_model::experiment::Experiment;

use crate::experiment::{self, How, Shown};
use args::{BenchArgs, OutArgs, SwapArgs};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure how many packets per second a data path drops
    Drop(BenchArgs),
    /// Measure how many packets per second a data path forwards, to the same NIC or another one
    Forward(BenchArgs),
    /// Replace an XDP program under load, and check that no packet is lost and each is handled
    /// by exactly one program
    Swap(SwapArgs),
    /// Measure the throughput of TCP between two hosts, and how busy their CPUs are: two guests and a
    /// wire, in virtual time
    Stream(hosts::StreamArgs),
    /// Measure how long requests to another host take: two guests and a wire, in virtual time
    Request(hosts::RequestArgs),
    /// Measure the round trip of ICMP echoes between two hosts: two guests and a wire, in virtual time
    Ping(hosts::PingArgs),
    /// Measure how many files a web server sends, and how busy its CPU is: nginx on one of two hosts, and
    /// connections from the other that ask for files in the shares of SPECweb99
    Http(hosts::HttpArgs),
    /// Load BPF programs, and print the verifier's errors with their source lines
    Verify {
        /// BPF object file [default: a built-in program that the verifier has to reject]
        file: Option<PathBuf>,
    },
}

/// Measure and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(command: BenchCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Drop(args) => measure(Bench::Drop, &args, cache),
        BenchCommand::Forward(args) => measure(Bench::Forward, &args, cache),
        BenchCommand::Swap(args) => swap(&args, cache),
        BenchCommand::Stream(args) => hosts::run(&args.experiment()?, args.hosts, cache),
        BenchCommand::Request(args) => hosts::run(&args.experiment()?, args.hosts, cache),
        BenchCommand::Ping(args) => hosts::run(&args.experiment()?, args.hosts, cache),
        BenchCommand::Http(args) => hosts::run(&args.experiment()?, args.hosts, cache),
        BenchCommand::Verify { file: Some(file) } => verify::file(&file),
        BenchCommand::Verify { file: None } => verify::refusal(),
    }
}

#[cfg(test)]
impl BenchCommand {
    /// As an experiment; none for the verifier.
    pub(crate) fn experiment(&self) -> Option<anyhow::Result<Experiment>> {
        match self {
            BenchCommand::Drop(args) => Some(args.experiment(Bench::Drop)),
            BenchCommand::Forward(args) => Some(args.experiment(Bench::Forward)),
            BenchCommand::Swap(args) => Some(args.experiment()),
            BenchCommand::Stream(args) => Some(args.experiment()),
            BenchCommand::Request(args) => Some(args.experiment()),
            BenchCommand::Ping(args) => Some(args.experiment()),
            BenchCommand::Http(args) => Some(args.experiment()),
            BenchCommand::Verify { .. } => None,
        }
    }
}

fn measure(bench: Bench, args: &BenchArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let experiment = args.experiment(bench)?;
    let nics = &args.nics;
    let how = How {
        yes_change: &nics.yes_change,
        even_default_route: nics.even_default_route,
        ..how(&args.out)
    };
    experiment::run(&experiment, how, cache)
}

/// Replace programs under load.
fn swap(args: &SwapArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.experiment()?, how(&args.out), cache)
}

fn how(out: &OutArgs) -> How<'_> {
    How::new(Shown::Rates(out.format()), &out.page, out.options())
}
