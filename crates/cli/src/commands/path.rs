//! `plumb path`: what a packet's path costs.

mod check;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use netplumb_model::class::Direction;
use netplumb_model::experiment::{
    Blocks, Experiment, Filter, Functions, Kind, Knob, Knobs, Lab, Probes, Time, Vary, Workload,
};

use crate::args::command::CommandArgs;
use crate::args::knobs::{KnobArgs, OfPackets};
use crate::args::live::{EXACT, LiveArgs};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::{self, How, Shown};
use check::{check, check_exact};

/// Arguments of `plumb path`.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    pub(crate) knobs: KnobArgs<OfPackets>,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    pub(crate) direction: Vec<Direction>,
    /// Packets in a block [default: 200; in the lab netns a block is over by time]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) packets: Option<u32>,
    /// Packets before the first block, not counted [default: 200]; before a command in a guest,
    /// connections of the guest's own [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,
    /// Blocks of each kind [default: 5, of a command 1, in the lab netns 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
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

/// How long packets go in all in the lab netns where nothing is said.
const DURATION: Duration = Duration::from_secs(5);

impl PathArgs {
    /// What a command's packets are not asked.
    fn check_command(&self) -> Result<(), Usage> {
        // Of a clock of time they are a filter, and choose tables.
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
                    "{option} is for packets that plumb sends: a command in the lab vm has its \
                     own; leave out one or the other"
                )));
            }
        }
        Ok(())
    }

    /// What the knobs are in every arm, and what varies. An arm is called after what is sent
    /// where nothing else tells it.
    fn levels(&self, kind: Kind, lab: Lab) -> Result<(Knobs, Vary), String> {
        let (mut fixed, mut vary) = (Vec::new(), Vec::new());
        let given = self.knobs.given();
        if kind == Kind::Packets && !self.knobs.has("proto") {
            vary.push(("proto".to_string(), "udp".to_string()));
        }
        for (key, level) in given {
            // Of what others send these two are a filter.
            let filters = (key == "family" && lab == Lab::Host) || key == "proto";
            if filters && kind != Kind::Packets {
                continue;
            }
            let alone = given.iter().filter(|(other, _)| other == key).count() == 1;
            let level = (key.clone(), level.clone());
            match alone && key != "proto" {
                true => fixed.push(level),
                false => vary.push(level),
            }
        }
        Ok((Knobs::of(fixed)?, Vary::of(vary)?))
    }

    /// What is asked, as an experiment.
    ///
    /// # Errors
    /// A level that a knob does not take.
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
        // A stream's arms are called as those of single packets.
        let (knobs, vary) = self.levels(if sends { Kind::Packets } else { kind }, lab)?;
        let is_guests_command = kind == Kind::Command && lab == Lab::Vm;
        let mut experiment = Experiment {
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
                duration: live.duration.filter(|_| !sends),
                window: None,
            },
            blocks: Blocks {
                count: self.blocks,
                seeds: self.options.seeds,
                ..Blocks::default()
            },
            filter: self.filter(),
            functions: Functions {
                names: live.functions.clone(),
                discover: live.discover,
                recorded: live
                    .from_recording
                    .as_ref()
                    .map(|path| path.display().to_string()),
                most: live.max_functions,
            },
            probes: Probes {
                max_overhead: live.max_overhead,
                measure_cost: live.measure_cost,
                one_packet: live.one_packet,
            },
            knobs,
            vary,
            ..Experiment::default()
        };
        // All blocks share what they are given together.
        if sends && self.packets.is_none() && live.wanted() {
            let of_all = match lab {
                Lab::Vm => 1,
                _ => experiment.arms().len() as u32,
            };
            let instruments = match lab {
                Lab::Vm => 1,
                _ => experiment.instruments.as_ref().map_or(1, Vec::len) as u32,
            };
            let turns = instruments + u32::from(live.measure_cost);
            let each = of_all * experiment.block_count() * turns;
            let whole = match (live.duration, lab) {
                (None, Lab::Vm) => None,
                (None, _) => Some(DURATION),
                (Some(Time(duration)), _) => Some(duration),
            };
            experiment.blocks.time = whole.map(|whole| Time(whole / each.max(1)));
        }
        Ok(experiment)
    }

    /// Which packets are watched: of a clock of time those that are asked for.
    fn filter(&self) -> Filter {
        let live = &self.live;
        if !live.wanted() {
            return Filter::default();
        }
        let words = |key: &str| self.knobs.levels(key).into_iter();
        let families: Vec<&str> = words("family").collect();
        // Where all is counted as well, the arms say it.
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
/// What kept it from measuring.
pub(crate) fn run(args: PathArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.live.lab == Lab::Host && args.knobs.has("qdisc") {
        return Err(Usage(
            "--qdisc: the lab host leaves this machine's devices as they are: use --lab netns, or \
             set it with tc yourself"
                .into(),
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
    let experiment = args.experiment().map_err(Usage)?;
    if experiment.workload.kind == Kind::Command
        && let Some(knob) = experiment.vary.compared()
    {
        return Err(several(knob).into());
    }
    let how = How {
        text: "",
        shown: Shown::Report(&args.show, &args.direction),
        page: &args.page,
        options: args.options,
        watch: args.live.watch,
        stdin: args.command.takes_stdin(),
        yes_change: &[],
        even_default_route: false,
    };
    experiment::run(&experiment, how, cache)
}

/// That a command has one level of each knob.
fn several(knob: &Knob) -> Usage {
    let flag = knob.flag.name().unwrap_or(knob.key);
    Usage(format!(
        "--{flag}: a command runs once, over one link in one kernel: give one level, and compare \
         recordings"
    ))
}
