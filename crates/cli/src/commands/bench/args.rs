//! Arguments of benches, and the experiments that they are short for.

use std::path::PathBuf;

use clap::Args;
use netplumb_model::bench::{Bench, DataPath};
use netplumb_model::experiment::{
    Blocks, Experiment, Kind, Knob, Knobs, Lab, Nics, Time, Vary, Workload,
};

use crate::args::heading;
use crate::args::knobs::{ALL, KnobArgs, OfFrames, Shows};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::RatesFormat;
use crate::exit::Usage;

/// Arguments of a bench. Each combination of the lists is an arm; the blocks of all arms run
/// in shuffled order.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) knobs: KnobArgs<OfFrames>,
    /// Lab to run in
    ///
    /// Rates in guests are comparable only with each other.
    #[arg(
        long,
        value_name = "LAB",
        value_enum,
        default_value = "netns",
        conflicts_with = "nic",
        help_heading = heading::LAB
    )]
    pub(super) lab: BenchLab,
    #[command(flatten)]
    pub(super) nics: NicArgs,
    /// Search for the highest rate without loss (RFC 9971)
    ///
    /// With --latency, also measure latency at 10, 50 and 90 % of that rate. --time is the duration
    /// of the longest trial.
    #[arg(long, help_heading = heading::MEASUREMENT, conflicts_with = "rate")]
    pub(super) search: bool,
    /// Measure each arm twice, as two arms (A/A test); their differences are noise
    #[arg(long, help_heading = heading::MEASUREMENT)]
    pub(super) twice: bool,
    /// Number of blocks per arm
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = heading::MEASUREMENT, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) blocks: u32,
    /// Measuring time per block, like 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = heading::MEASUREMENT)]
    pub(super) time: Time,
    /// Warm-up time before each block, not measured
    #[arg(long, value_name = "TIME", default_value = "300ms", help_heading = heading::MEASUREMENT)]
    pub(super) warmup: Time,
    /// Explain differences: also count instructions and sample CPU time
    ///
    /// Counts instructions per packet in guests, samples CPU time on this machine, and lists the
    /// functions that differ.
    #[arg(long, help_heading = heading::MEASUREMENT)]
    pub(super) explain: bool,
    #[command(flatten)]
    pub(super) out: OutArgs,
}

/// Interfaces of this machine, or of the network namespace that plumb runs in.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::LAB)]
pub(super) struct NicArgs {
    /// Measure on interfaces of this machine: NIC receives the packets
    #[arg(long, value_name = "NIC", requires = "from", conflicts_with_all = ["link", "plant"])]
    pub(super) nic: Option<String>,
    /// Interface that sends the packets, cabled to --nic
    #[arg(long, value_name = "NIC", requires = "nic")]
    pub(super) from: Option<String>,
    /// Interface that forwards the packets (bench forward only)
    #[arg(long, value_name = "NIC", requires_all = ["nic", "sink"])]
    pub(super) to: Option<String>,
    /// Interface that receives the forwarded packets, cabled to --to (bench forward only)
    #[arg(long, value_name = "NIC", requires = "to")]
    pub(super) sink: Option<String>,
    /// Allow changes to these interfaces; without it, only print the changes
    #[arg(long, value_name = "NIC,NIC", value_delimiter = ',', requires = "nic")]
    pub(super) yes_change: Vec<String>,
    /// Allow changes to an interface of the default route or of your SSH session
    #[arg(long, requires = "nic")]
    pub(super) even_default_route: bool,
}

impl NicArgs {
    fn nics(&self, bench: Bench) -> anyhow::Result<Option<Nics>> {
        if bench == Bench::Drop && self.to.is_some() {
            return Err(
                Usage("--to and --sink can only be used with `bench forward`".into()).into()
            );
        }
        let (Some(nic), Some(from)) = (&self.nic, &self.from) else {
            return Ok(None);
        };
        Ok(Some(Nics {
            nic: nic.clone(),
            from: from.clone(),
            to: self.to.clone(),
            sink: self.sink.clone(),
        }))
    }
}

/// Where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum BenchLab {
    /// Network namespaces on this machine, connected by veth
    Netns,
    /// Network namespaces in a QEMU guest that boots the kernel given by --kernel
    Vm,
}

/// Knobs of a replacement under load.
#[derive(Debug, Clone)]
pub(crate) struct OfSwaps;

impl Shows for OfSwaps {
    fn shows(knob: &Knob) -> bool {
        ["path", "cores"].contains(&knob.key)
    }

    fn default_of(knob: &Knob) -> Option<String> {
        (knob.key == "path").then(|| DataPath::Xdp.as_str().into())
    }
}

/// Arguments of a replacement under load.
#[derive(Debug, Args)]
pub(crate) struct SwapArgs {
    /// Replacements of the program per block
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = heading::WORKLOAD, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) swaps: u32,
    #[command(flatten)]
    pub(super) knobs: KnobArgs<OfSwaps>,
    /// Number of blocks
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = heading::MEASUREMENT, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) blocks: u32,
    /// Measuring time per block
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = heading::MEASUREMENT)]
    pub(super) time: Time,
    #[command(flatten)]
    pub(super) out: OutArgs,
}

/// The recording and the output.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::OUTPUT)]
pub(crate) struct OutArgs {
    /// Show details of every arm
    ///
    /// By default, only arms that lost packets or are invalid have details.
    #[arg(long, help_heading = heading::REPORT, conflicts_with_all = ["csv", "json"])]
    pub(super) all: bool,
    /// Recording to write [default: bench-NAME.plumb]
    ///
    /// NAME is drop, forward or swap. An existing recording is renamed to bench-NAME.plumb.old.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Print CSV, one row per block
    #[arg(long, conflicts_with = "json")]
    pub(super) csv: bool,
    /// Print JSON, with everything measured
    #[arg(long)]
    pub(super) json: bool,
    /// Don't print progress
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) page: PageArgs,
}

impl OutArgs {
    pub(super) fn format(&self) -> RatesFormat {
        RatesFormat::from_flags(self.csv, self.json, self.all)
    }

    pub(super) fn options(&self) -> RunOptions {
        RunOptions { output: self.output.clone(), quiet: self.quiet, ..RunOptions::plain() }
    }
}

/// The experiment of frames that each bench starts from.
fn frames(name: &str, bench: Bench) -> Experiment {
    Experiment {
        name: name.into(),
        lab: Lab::Netns,
        workload: Workload::from_kind(Kind::Frames),
        knobs: Knobs::from_pairs([("bench", bench.as_str())]).unwrap_or_default(),
        ..Experiment::default()
    }
}

impl BenchArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self, bench: Bench) -> anyhow::Result<Experiment> {
        let nics = self.nics.nics(bench)?;
        let mut vary = Vary::default();
        let mut paths = self.knobs.levels("path");
        if paths.is_empty() {
            paths.push(ALL);
        }
        for path in paths {
            let possible = DataPath::for_bench(bench).iter().map(|path| path.as_str());
            let named: Vec<&str> = match path {
                ALL => possible.collect(),
                path => vec![path],
            };
            for path in named {
                vary.push("path", path).map_err(Usage)?;
            }
        }
        for (key, level) in self.knobs.given().iter().filter(|(key, _)| key != "path") {
            vary.push(key, level).map_err(Usage)?;
        }
        if self.twice {
            for level in ["off", "on"] {
                vary.push("again", level).map_err(Usage)?;
            }
        }
        Ok(Experiment {
            lab: match (self.lab, &nics) {
                (BenchLab::Vm, _) => Lab::Vm,
                (BenchLab::Netns, Some(_)) => Lab::Host,
                (BenchLab::Netns, None) => Lab::Netns,
            },
            explain: self.explain,
            blocks: Blocks {
                count: Some(self.blocks),
                time: Some(self.time),
                warmup: Some(self.warmup),
                search: self.search,
                ..Blocks::default()
            },
            nics,
            vary,
            ..frames(&format!("bench-{bench}"), bench)
        })
    }
}

/// How long packets are sent before a program is replaced.
const BEFORE_SWAPS: std::time::Duration = std::time::Duration::from_millis(100);

impl SwapArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// Levels that can't be together.
    pub(super) fn experiment(&self) -> anyhow::Result<Experiment> {
        let path = self.knobs.levels("path").first().copied();
        let path = path.unwrap_or(DataPath::Xdp.as_str());
        let forwards =
            |bench: &&Bench| DataPath::for_bench(**bench).iter().any(|p| p.as_str() == path);
        let bench = Bench::ALL.iter().find(forwards).copied();
        let mut experiment = Experiment {
            blocks: Blocks {
                count: Some(self.blocks),
                time: Some(self.time),
                warmup: Some(Time(BEFORE_SWAPS)),
                ..Blocks::default()
            },
            ..frames("bench-swap", bench.unwrap_or(Bench::Drop))
        };
        for (key, level) in self.knobs.given() {
            experiment.vary.push(key, level).map_err(Usage)?;
        }
        let swaps = self.swaps.to_string();
        experiment.knobs.set("swaps", &swaps).map_err(Usage)?;
        Ok(experiment)
    }
}
