//! Where the work is that `plumb between` and `plumb stat` measure: on this machine, or packets and
//! commands in a lab.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::experiment::{Blocks, Experiment, Kind, Knobs, Lab, Vary, Workload};

use super::command::CommandArgs;
use super::guard::GuardArgs;
use super::heading;
use super::knobs::{KnobArgs, OfPlaces, levels};
use crate::exit::Usage;

/// The lab, its knobs, and what runs there.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct PlaceArgs {
    /// Packets per block [default: 200]
    ///
    /// For packets sent by plumb. In the netns lab, blocks have a duration instead.
    #[arg(long, value_name = "N", help_heading = heading::WORKLOAD, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    packets: Option<u32>,
    /// Lab to run in
    #[arg(long, value_name = "LAB", default_value = "host", value_parser = labs(), help_heading = heading::LAB)]
    pub(crate) lab: Lab,
    /// Warm-up packets before the first block, not measured [default: 200]
    ///
    /// With a command in a guest: connections to open before the command runs [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warmup: Option<u32>,
    /// Number of runs of COMMAND, or of blocks of packets
    ///
    /// With COMMAND: number of runs, each a block [default: 1]. With packets: blocks per arm
    /// [default: 5; in the netns lab 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    #[command(flatten)]
    knobs: KnobArgs<OfPlaces>,
    #[command(flatten)]
    guard: GuardArgs,
    #[command(flatten)]
    command: CommandArgs,
}

/// Labs by name, each with a line of help.
fn labs() -> impl TypedValueParser<Value = Lab> {
    let labs = [
        (Lab::Host, "This machine: all its work, or a process, a cgroup or COMMAND"),
        (Lab::Netns, "Packets or COMMAND in network namespaces of this machine, connected by veth"),
        (Lab::Vm, "Packets or COMMAND in a QEMU guest"),
    ];
    let values = labs.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Lab>())
}

impl PlaceArgs {
    /// What makes the work.
    fn kind(&self) -> Kind {
        match (self.lab, self.command.is_empty()) {
            (Lab::Host, _) => Kind::Work,
            (_, true) => Kind::Packets,
            (_, false) => Kind::Command,
        }
    }

    /// Whether COMMAND gets plumb's standard input.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.command.takes_stdin()
    }

    /// The disks and interfaces of this machine whose settings are given, which allows to change them.
    pub(crate) fn of_machine(&self) -> Vec<String> {
        self.knobs.of_machine()
    }

    /// Whether that includes an interface of the default route.
    pub(crate) fn even_default_route(&self) -> bool {
        self.guard.even_default_route
    }

    /// Whether a knob was given.
    pub(crate) fn has(&self, knob: &str) -> bool {
        self.knobs.has(knob)
    }

    /// The parts of an experiment that it determines.
    ///
    /// # Errors
    /// An invalid level of a knob, or an option that is for other work.
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let kind = self.kind();
        let sends = kind.sends();
        for (flag, given, why) in [
            (
                "--packets",
                self.packets.is_some() && !sends,
                "it is for packets that plumb sends: --lab netns or vm, without a command",
            ),
            (
                "--warmup",
                self.warmup.is_some() && !sends && self.lab != Lab::Vm,
                "it is for packets that plumb sends, and for commands in guests: --lab vm",
            ),
            (
                "--stdin",
                self.takes_stdin() && self.lab != Lab::Vm,
                "it is for commands in guests: --lab vm; others have plumb's standard input",
            ),
        ] {
            if given {
                return Err(Usage(format!("{flag}: {why}")).into());
            }
        }
        let (knobs, vary) = match kind {
            // There is nothing to set: existing work is measured.
            Kind::Work if self.knobs.given().is_empty() => (Knobs::default(), Vary::default()),
            kind => levels(&self.knobs, kind, self.lab).map_err(Usage)?,
        };
        Ok(Experiment {
            lab: self.lab,
            workload: Workload {
                packets: self.packets,
                warmup_packets: self.warmup.filter(|_| sends),
                command: self.command.words().to_vec(),
                with: self.command.with_files().to_vec(),
                peer: self.command.peer().map(String::from),
                connections: self.warmup.filter(|_| !sends),
                ..Workload::from_kind(kind)
            },
            blocks: Blocks { count: self.blocks, ..Blocks::default() },
            setup: self.command.setup().map_err(Usage)?,
            knobs,
            vary,
            ..Experiment::default()
        })
    }
}
