//! `plumb path`: what a packet costs.

mod check;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use netplumb_model::class::Direction;
use netplumb_model::experiment::{
    Blocks, Experiment, Filter, Functions, Kind, Knob, Lab, Probes, Workload,
};

use crate::args::command::CommandArgs;
use crate::args::knobs::{KnobArgs, OfPackets, levels};
use crate::args::live::{EXACT, LiveArgs, SAMPLES};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, Shown};
use check::{check, check_exact};

/// Arguments of `plumb path`.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    pub(crate) knobs: KnobArgs<OfPackets>,
    /// Show only these directions: tx, rx, forward, echo, ack, drop; comma-separated list
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    pub(crate) direction: Vec<Direction>,
    /// Packets per block [default: 200; in the netns lab blocks have a duration instead]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) packets: Option<u32>,
    /// Warm-up packets before the first block, not measured [default: 200]; with a command in a
    /// guest: connections to open before it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,
    /// Number of blocks per arm [default: 5; with a command 1; in the netns lab 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) blocks: Option<u32>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

impl PathArgs {
    /// Check that no option is given that a command in a guest does not have.
    fn check_command(&self) -> Result<(), Usage> {
        // With instruments that measure time, directions are a filter, and select tables.
        let exact = !self.live.wanted();
        let knobs = &self.knobs;
        for (option, given) in [
            ("--proto", exact && knobs.has("proto")),
            ("--size", knobs.has("size_bytes")),
            ("--mtu", knobs.has("mtu_bytes")),
            ("--qdisc", knobs.has("qdisc")),
            ("--direction", exact && !self.direction.is_empty()),
            ("--packets", self.packets.is_some()),
            ("--rate", self.live.rate.is_some()),
            ("--stream", self.live.stream),
            ("--resume", self.options.resume),
            ("--bridge", knobs.has("bridge")),
            ("--queues", knobs.has("queues")),
            ("--offload", knobs.has("offload")),
        ] {
            if given {
                return Err(Usage(format!(
                    "{option} can't be used with a command in the vm lab: it is for packets that \
                     plumb sends"
                )));
            }
        }
        Ok(())
    }

    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob.
    pub(crate) fn experiment(&self) -> Result<Experiment, String> {
        let live = &self.live;
        let (lab, command) = (live.lab, self.command.words());
        let kind = match (command.is_empty(), lab) {
            (false, _) => Kind::Command,
            (true, Lab::Host) => Kind::Traffic,
            (true, _) if live.stream => Kind::Stream,
            (true, _) => Kind::Packets,
        };
        let sends = matches!(kind, Kind::Packets | Kind::Stream);
        // Arms of a stream have the same names as those of single packets.
        let (knobs, vary) = levels(&self.knobs, if sends { Kind::Packets } else { kind }, lab)?;
        let is_guests_command = kind == Kind::Command && lab == Lab::Vm;
        Ok(Experiment {
            name: "path".into(),
            instruments: live.instruments(),
            lab,
            layer: self.show.layer().map(String::from),
            workload: Workload {
                kind,
                packets: self.packets.filter(|_| sends),
                warmup_packets: self.warmup.filter(|_| sends),
                rate: live.rate.filter(|_| sends),
                command: command.to_vec(),
                with: self.command.with_files().to_vec(),
                peer: self.command.peer().map(String::from),
                connections: self.warmup.filter(|_| is_guests_command),
                duration: live.duration,
                ..Workload::default()
            },
            blocks: Blocks { count: self.blocks, seeds: self.options.seeds, ..Blocks::default() },
            filter: self.filter(),
            functions: Functions {
                names: live.functions.clone(),
                discover: live.discover,
                recorded: live.from_recording.as_ref().map(|path| path.display().to_string()),
                most: live.max_functions,
            },
            probes: Probes {
                max_overhead: live.max_overhead,
                measure_cost: live.measure_cost,
                one_packet: live.one_packet,
            },
            samples: live.samples(),
            setup: self.command.setup()?,
            knobs,
            vary,
            ..Experiment::default()
        })
    }

    /// Whether it is a long run.
    fn is_long(&self) -> bool {
        let experiment = self.experiment().ok();
        experiment.is_some_and(|experiment| experiment.long().is_some())
    }

    /// The packets to measure, for instruments that measure time.
    fn filter(&self) -> Filter {
        let live = &self.live;
        if !live.wanted() {
            return Filter::default();
        }
        let words = |key: &str| self.knobs.levels(key).into_iter();
        let families: Vec<&str> = words("family").collect();
        // With `exact` as well, it is a knob of the arms.
        let counts = live.lab == Lab::Vm && live.asks(EXACT);
        Filter {
            proto: words("proto")
                .filter(|_| !counts)
                .filter_map(|word| word.parse().ok())
                .collect(),
            family: match families[..] {
                [one] if !counts => one.parse().ok(),
                _ => None,
            },
            port: live.port,
            address: live.address,
            interface: live.interface.clone(),
            netns: live.netns.clone(),
            pid: live.pid,
            cgroup: (live.cgroup.as_ref()).map(|path| path.display().to_string()),
        }
    }
}

/// Measure and show.
///
/// # Errors
/// The measurement failed.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.live.lab == Lab::Host && args.knobs.has("qdisc") {
        return Err(Usage(
            "--qdisc can't be used with --lab host, which changes no interface; use --lab netns, or \
             set it with tc"
                .into(),
        )
        .into());
    }
    let samples = args.live.samples();
    let sampled = args.live.lab == Lab::Vm && args.live.asks(SAMPLES);
    if !samples.is_empty() && !sampled {
        return Err(Usage(
            "--sample-period and --sample-seed need --clock samples in the vm lab".into(),
        )
        .into());
    }
    match args.live.wanted() {
        true => check(&args)?,
        false => check_exact(&args)?,
    }
    if !args.command.is_empty() && args.live.lab == Lab::Vm {
        args.check_command()?;
    }
    let mut experiment = args.experiment().map_err(Usage)?;
    if experiment.workload.kind == Kind::Command
        && experiment.lab != Lab::Vm
        && let Some(knob) = experiment.vary.compared()
    {
        return Err(several(knob).into());
    }
    if args.knobs.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    let how = How {
        watch: args.live.watch,
        stdin: args.command.takes_stdin(),
        ..How::new(Shown::Report(&args.show, &args.direction), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}

/// Outside of guests, a command runs with one level of each knob.
fn several(knob: &Knob) -> Usage {
    let flag = knob.flag.name().unwrap_or(knob.key);
    Usage(format!(
        "--{flag}: only one value can be given with a command; measure it once for each value, and \
         compare the recordings with plumb diff"
    ))
}
