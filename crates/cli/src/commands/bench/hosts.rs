//! `plumb bench stream`, `plumb bench request`, `plumb bench ping` and `plumb bench http`: two hosts and a
//! wire between them, or two namespaces of this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netplumb_model::class::{Direction, Proto};
use netplumb_model::experiment::{Blocks, Experiment, FileSize, Kind, Knobs, Lab, Vary, Workload};
use netplumb_model::hosts;
use netplumb_model::timing::INSTRUCTIONS;

use crate::args::formats::FormatArgs;
use crate::args::heading;
use crate::args::knobs::{KnobArgs, OfHosts, OfWeb, Shows};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::{ShowArgs, TOP};
use crate::exit::Usage;
use crate::experiment::{self, How, PrintWhat};

/// Two guests do the same every time, but for what a run begins with.
const BLOCKS: u32 = 3;
const BLOCKS_IN_NETNS: u32 = 10;

/// Where two hosts can be.
fn lab() -> impl TypedValueParser<Value = Lab> {
    PossibleValuesParser::new([Lab::Vm.as_str(), Lab::Netns.as_str()]).try_map(|name| name.parse())
}

/// What all have. Each combination of the lists is an arm.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(crate) struct HostsArgs<S: Shows = OfHosts> {
    /// Lab to run in
    ///
    /// In lab vm, the hosts are two guests connected by a wire, in virtual time. In lab netns, they
    /// are two namespaces of this machine, measured by its clock.
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = lab(), help_heading = heading::LAB)]
    lab: Lab,
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = heading::LAB, value_parser = clap::value_parser!(u32).range(2..=2))]
    hosts: u32,
    /// Number of blocks per arm [default: 3, or 10 in lab netns]
    ///
    /// In lab vm, blocks run one after the other in the same guests; in lab netns, the arms take
    /// turns.
    #[arg(long, value_name = "N", help_heading = heading::MEASUREMENT, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    /// Also count the instructions of every kernel function, on both hosts
    #[arg(long, help_heading = heading::MEASUREMENT)]
    exact: bool,
    #[command(flatten)]
    knobs: KnobArgs<S>,
    /// Print CSV, one row per arm
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, with everything measured
    #[arg(long)]
    json: bool,
    /// Write Markdown, for a cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", help_heading = heading::FORMATS, conflicts_with_all = ["csv", "json"])]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// Arguments of `plumb bench stream`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::WORKLOAD)]
pub(crate) struct StreamArgs {
    /// Bytes per block, like 4M [default: 4M, or 256M in lab netns]
    #[arg(long, value_name = "BYTES")]
    bytes: Option<FileSize>,
    /// Bytes per write(2), like 64K
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    write_bytes: FileSize,
    /// Number of connections that share the bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u32,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// Arguments of `plumb bench request`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::WORKLOAD)]
pub(crate) struct RequestArgs {
    /// Requests per block [default: 100, or 6400 in lab netns]
    ///
    /// Each request is sent when the previous one has been answered.
    #[arg(long, value_name = "N")]
    turns: Option<u32>,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// Arguments of `plumb bench ping`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::WORKLOAD)]
pub(crate) struct PingArgs {
    /// Echoes per block [default: 100, or 6400 in lab netns]
    ///
    /// Each echo is sent when the previous one has been answered.
    #[arg(long, value_name = "N")]
    turns: Option<u32>,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// Arguments of `plumb bench http`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::WORKLOAD)]
pub(crate) struct HttpArgs {
    /// Requests per block, over all connections [default: 400, or 25600 in lab netns]
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// Number of connections
    ///
    /// Each connection requests a file when it has received the previous one.
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: u32,
    /// Number of directories, each with 36 files, 5 MB in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    directories: u32,
    #[command(flatten)]
    pub(super) hosts: HostsArgs<OfWeb>,
}

impl<S: Shows> HostsArgs<S> {
    fn experiment(
        &self,
        name: &str,
        proto: Option<Proto>,
        workload: Workload,
    ) -> anyhow::Result<Experiment> {
        let mut given = self.knobs.given().to_vec();
        given.extend(proto.map(|proto| ("proto".to_string(), proto.as_str().to_string())));
        let blocks = match self.lab {
            Lab::Netns => BLOCKS_IN_NETNS,
            _ => BLOCKS,
        };
        let alone = |key: &str| given.iter().filter(|(other, _)| other == key).count() == 1;
        let (fixed, vary): (Vec<_>, Vec<_>) =
            given.iter().cloned().partition(|(key, _)| alone(key));
        Ok(Experiment {
            name: name.into(),
            lab: self.lab,
            hosts: Some(self.hosts),
            instruments: self
                .exact
                .then(|| vec![hosts::INSTRUMENT.into(), INSTRUCTIONS.instrument.into()]),
            workload,
            blocks: Blocks {
                count: Some(self.blocks.unwrap_or(blocks)),
                seeds: self.options.seeds,
                ..Blocks::default()
            },
            knobs: Knobs::from_pairs(fixed).map_err(Usage)?,
            vary: Vary::from_pairs(vary).map_err(Usage)?,
            ..Experiment::default()
        })
    }
}

impl StreamArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let workload = Workload {
            bytes: self.bytes,
            write_bytes: Some(self.write_bytes),
            connections: Some(self.connections),
            ..Workload::from_kind(Kind::Stream)
        };
        self.hosts.experiment("bench-stream", None, workload)
    }
}

impl RequestArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let workload = Workload { turns: self.turns, ..Workload::from_kind(Kind::Request) };
        self.hosts.experiment("bench-request", None, workload)
    }
}

impl PingArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let workload = Workload { turns: self.turns, ..Workload::from_kind(Kind::Request) };
        (self.hosts).experiment("bench-ping", Some(Proto::Raw), workload)
    }
}

impl HttpArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let workload = Workload {
            requests: self.requests,
            connections: Some(self.connections),
            directories: Some(self.directories),
            ..Workload::from_kind(Kind::Http)
        };
        self.hosts.experiment("bench-http", None, workload)
    }
}

/// Measure and show.
///
/// # Errors
/// The measurement failed.
pub(super) fn run<S: Shows>(
    experiment: &Experiment,
    args: HostsArgs<S>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let formats = FormatArgs::of_counts(args.markdown, None);
    let show = ShowArgs { top: TOP, ..ShowArgs::of_no_functions(args.csv, args.json, formats) };
    let directions: [Direction; 0] = [];
    let how = How::new(PrintWhat::Report(&show, &directions), &args.page, args.options);
    experiment::run(experiment, how, cache)
}
