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

use crate::experiment::{self, How, PrintWhat};
use args::{BenchArgs, OutArgs, SwapArgs};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the rate at which a data path drops packets
    ///
    /// Every combination of the values in lists is measured, as an arm. The blocks of all arms run in
    /// random order.
    Drop(BenchArgs),
    /// Measure the rate at which a data path forwards packets, to the same NIC or another one
    ///
    /// Every combination of the values in lists is measured, as an arm. The blocks of all arms run in
    /// random order.
    Forward(BenchArgs),
    /// Replace an XDP program under load, and check that no packet is lost
    ///
    /// Each packet must be handled by exactly one program.
    Swap(SwapArgs),
    /// Measure TCP throughput and CPU use between two hosts
    ///
    /// By default, the hosts are two guests connected by a wire, in virtual time. Every combination of
    /// the values in lists is measured, as an arm.
    Stream(hosts::StreamArgs),
    /// Measure the latency of requests between two hosts
    ///
    /// By default, the hosts are two guests connected by a wire, in virtual time. Every combination of
    /// the values in lists is measured, as an arm.
    Request(hosts::RequestArgs),
    /// Measure the round-trip time of ICMP echoes between two hosts
    ///
    /// By default, the hosts are two guests connected by a wire, in virtual time. Every combination of
    /// the values in lists is measured, as an arm.
    Ping(hosts::PingArgs),
    /// Measure the request rate and CPU use of a web server (nginx) on one of two hosts
    ///
    /// The other host requests files over several connections, in the proportions of SPECweb99. Every
    /// combination of the values in lists is measured, as an arm.
    Http(hosts::HttpArgs),
    /// Load BPF programs, and print the verifier's errors with source lines
    Verify {
        /// BPF object file [default: a built-in program that the verifier must reject]
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
    How::new(PrintWhat::Rates(out.format()), &out.page, out.options())
}
