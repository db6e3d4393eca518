//! `plumb bench stream`, `plumb bench request`, `plumb bench ping` and `plumb bench http`: two hosts and a
//! wire between them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use netplumb_model::class::{Direction, Proto};
use netplumb_model::experiment::{Blocks, Experiment, FileSize, Kind, Knobs, Lab, Vary, Workload};
use netplumb_model::hosts;
use netplumb_model::timing::INSTRUCTIONS;

use crate::args::formats::FormatArgs;
use crate::args::knobs::{KnobArgs, OfHosts, OfWeb, Shows};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::{ShowArgs, TOP};
use crate::exit::Usage;
use crate::experiment::{self, How, Shown};

/// What all have. Each combination of the lists is an arm.
#[derive(Debug, Args)]
pub(crate) struct HostsArgs<S: Shows = OfHosts> {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=2))]
    hosts: u32,
    #[command(flatten)]
    knobs: KnobArgs<S>,
    /// Number of blocks per arm, one after the other in the same guests
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: u32,
    /// Also count the instructions of every kernel function, of both hosts
    #[arg(long)]
    exact: bool,
    /// Print CSV, one row per arm
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON, with all that was measured
    #[arg(long)]
    json: bool,
    /// Write Markdown, for a cover letter or a comment
    #[arg(long, value_name = "OUT", num_args = 0..=1, default_missing_value = "-", conflicts_with_all = ["csv", "json"])]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// Arguments of `plumb bench stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Bytes of each block, like 4M
    #[arg(long, value_name = "BYTES", default_value = "4M")]
    bytes: FileSize,
    /// Bytes given to each write(), like 64K
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
pub(crate) struct RequestArgs {
    /// Requests of each block, each sent when the one before was answered
    #[arg(long, value_name = "N", default_value_t = 100)]
    turns: u32,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// Arguments of `plumb bench ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Echoes of each block, each sent when the one before was answered
    #[arg(long, value_name = "N", default_value_t = 100)]
    turns: u32,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
}

/// Arguments of `plumb bench http`.
#[derive(Debug, Args)]
pub(crate) struct HttpArgs {
    /// Requests of each block, of all connections
    #[arg(long, value_name = "N", default_value_t = 400)]
    requests: u32,
    /// Number of connections, each of which asks for a file when it has the one before
    #[arg(long, value_name = "N", default_value_t = 16)]
    connections: u32,
    /// Number of directories of files, each with 36 files of 5 MB in all
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
        let alone = |key: &str| given.iter().filter(|(other, _)| other == key).count() == 1;
        let (fixed, vary): (Vec<_>, Vec<_>) =
            given.iter().cloned().partition(|(key, _)| alone(key));
        Ok(Experiment {
            name: name.into(),
            lab: Lab::Vm,
            hosts: Some(self.hosts),
            instruments: self
                .exact
                .then(|| vec![hosts::INSTRUMENT.into(), INSTRUCTIONS.instrument.into()]),
            workload,
            blocks: Blocks {
                count: Some(self.blocks),
                seeds: self.options.seeds,
                ..Blocks::default()
            },
            knobs: Knobs::of(fixed).map_err(Usage)?,
            vary: Vary::of(vary).map_err(Usage)?,
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
            bytes: Some(self.bytes),
            write_bytes: Some(self.write_bytes),
            connections: Some(self.connections),
            ..Workload::of(Kind::Stream)
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
        let workload = Workload {
            turns: Some(self.turns),
            ..Workload::of(Kind::Request)
        };
        self.hosts.experiment("bench-request", None, workload)
    }
}

impl PingArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let workload = Workload {
            turns: Some(self.turns),
            ..Workload::of(Kind::Request)
        };
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
            requests: Some(self.requests),
            connections: Some(self.connections),
            directories: Some(self.directories),
            ..Workload::of(Kind::Http)
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
    let show = ShowArgs {
        top: TOP,
        ..ShowArgs::of_no_functions(args.csv, args.json, formats)
    };
    let directions: [Direction; 0] = [];
    let how = How {
        text: "",
        folder: Path::new(""),
        shown: Shown::Report(&show, &directions),
        page: &args.page,
        clock: None,
        options: args.options,
        watch: false,
        stdin: false,
        yes_change: &[],
        even_default_route: false,
    };
    experiment::run(experiment, how, cache)
}
