//! Arguments of `plumb path`, as an experiment.

use clap::Args;
use netplumb_model::class::Direction;
use netplumb_model::experiment::{
    Blocks, Experiment, Filter, Functions, Kind, Lab, Probes, Workload,
};

use crate::args::command::CommandArgs;
use crate::args::heading;
use crate::args::knobs::{KnobArgs, OfPackets, levels};
use crate::args::live::{EXACT, LiveArgs};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;

/// Arguments of `plumb path`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct PathArgs {
    /// Packets per block [default: 200]
    ///
    /// In the netns lab, blocks have a duration instead.
    #[arg(long, value_name = "N", help_heading = heading::WORKLOAD, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) packets: Option<u32>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Warm-up packets before the first block, not measured [default: 200]
    ///
    /// With a command in a guest: connections to open before the command runs [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,
    /// Number of blocks per arm [default: 5; with a command 1; in the netns lab 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) blocks: Option<u32>,
    #[command(flatten)]
    pub(crate) knobs: KnobArgs<OfPackets>,
    /// Show only these directions: tx, rx, forward, echo, ack, drop; comma-separated list
    #[arg(long, value_name = "DIRECTION", help_heading = heading::REPORT, value_delimiter = ',')]
    pub(crate) direction: Vec<Direction>,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    /// Show a live view (labs host and netns); q ends the measurement
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

impl PathArgs {
    /// Check that no option is given that a command in a guest does not have.
    pub(super) fn check_command(&self) -> Result<(), Usage> {
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
        // A stream's arms are named like a single packet's.
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
    pub(super) fn is_long(&self) -> bool {
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
        // Together with `exact`, it is a knob of the arms.
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
