//! `plumb trace`: single calls of a function, as trees.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use netplumb_model::class::Direction;
use netplumb_model::condition::Condition;
use netplumb_model::experiment::{
    Blocks, Experiment, Filter, Kind, Knobs, Lab, Time, Trace, Vary, Workload,
};

use crate::args::command::CommandArgs;
use crate::args::heading;
use crate::args::knobs::{KnobArgs, OfPackets, levels};
use crate::args::live::{CALLS, EXACT};
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::exit::Usage;
use crate::experiment::modules::Names;
use crate::experiment::{self, How, PrintWhat};

/// Arguments of `plumb trace`.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::MEASUREMENT)]
pub(crate) struct TraceArgs {
    /// Function of the kernel or of COMMAND
    ///
    /// FILE:FUNCTION selects a function of COMMAND's program or library FILE, even if the kernel has a
    /// function of that name.
    #[arg(value_name = "FUNCTION", help_heading = None)]
    function: String,
    /// Maximum depth: 1 is the function alone [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    depth: Option<u32>,
    /// Calls to keep per block, the most expensive ones [default: 10]
    ///
    /// The first call is kept as well.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slowest: Option<u32>,
    /// Show arguments and return values of calls
    ///
    /// They are decoded with the kernel's types (BTF) and the program's debug information.
    #[arg(long)]
    args: bool,
    /// Keep only calls that meet a condition, like 'insns > 10K && retval < 0'
    ///
    /// It compares insns, self, switches, retval, or an argument of the function, by name, with a
    /// number. For timed calls, it compares dur, elapsed or switches, like 'dur > 1ms'.
    #[arg(long = "if", value_name = "CONDITION")]
    only: Option<Condition>,
    /// Time calls with the function_graph tracer, instead of counting instructions
    ///
    /// Calls are always timed in labs other than vm.
    #[arg(long)]
    time: bool,
    /// Tracing time in the lab host, like 10s
    ///
    /// [default: until Ctrl-C, or until COMMAND or the process ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// Number of blocks per arm [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: Option<u32>,
    /// Warm-up packets before the first block, not measured [default: 200]
    ///
    /// With a command: connections to open before the command runs [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    warmup: Option<u32>,
    /// Only calls from this process, and from its future children; in the lab host
    #[arg(long, value_name = "PID", help_heading = heading::FILTERS, conflicts_with = "command")]
    pid: Option<u32>,
    /// Packets per block [default: 20]
    #[arg(long, value_name = "N", help_heading = heading::WORKLOAD, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    packets: Option<u32>,
    /// Lab to run in
    #[arg(long, value_name = "LAB", default_value = "vm", value_parser = labs(), help_heading = heading::LAB)]
    lab: Lab,
    #[command(flatten)]
    knobs: KnobArgs<OfPackets>,
    #[command(flatten)]
    command: CommandArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// Packets of a block, by default: each may have many calls.
const PACKETS: u32 = 20;

/// Labs by name, each with a line of help.
fn labs() -> impl TypedValueParser<Value = Lab> {
    let labs = [
        (Lab::Vm, "Packets or COMMAND in a QEMU guest"),
        (Lab::Netns, "Packets or COMMAND in network namespaces of this machine; calls are timed"),
        (
            Lab::Host,
            "This machine: all calls, or calls of a process or of COMMAND; calls are timed",
        ),
    ];
    let values = labs.map(|(lab, help)| PossibleValue::new(lab.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Lab>())
}

impl TraceArgs {
    /// As an experiment.
    ///
    /// # Errors
    /// An invalid level of a knob.
    pub(crate) fn experiment(&self) -> Result<Experiment, String> {
        let kind = match (self.lab, self.command.is_empty()) {
            (Lab::Host, _) => Kind::Work,
            (_, true) => Kind::Packets,
            (_, false) => Kind::Command,
        };
        let packets = kind == Kind::Packets;
        let (knobs, vary) = match kind {
            // There is nothing to set: existing work is measured.
            Kind::Work if self.knobs.given().is_empty() => (Knobs::default(), Vary::default()),
            kind => levels(&self.knobs, kind, self.lab)?,
        };
        let timed = self.time || self.lab != Lab::Vm;
        Ok(Experiment {
            name: "trace".into(),
            title: format!("Calls of {}", self.function),
            instruments: Some(vec![if timed { CALLS } else { EXACT }.into()]),
            lab: self.lab,
            workload: Workload {
                packets: packets.then(|| self.packets.unwrap_or(PACKETS)),
                warmup_packets: self.warmup.filter(|_| packets),
                command: self.command.words().to_vec(),
                with: self.command.with_files().to_vec(),
                peer: self.command.peer().map(String::from),
                connections: self.warmup.filter(|_| kind == Kind::Command),
                duration: self.duration,
                ..Workload::from_kind(kind)
            },
            filter: Filter { pid: self.pid, ..Filter::default() },
            blocks: Blocks {
                count: (kind != Kind::Work).then_some(self.blocks.unwrap_or(1)),
                seeds: self.options.seeds,
                ..Blocks::default()
            },
            trace: Some(Trace {
                function: self.function.clone(),
                depth: self.depth,
                slowest: self.slowest,
                steps: None,
                args: self.args,
                only: self.only.clone(),
            }),
            setup: self.command.setup()?,
            knobs,
            vary,
            ..Experiment::default()
        })
    }
}

/// Trace and show.
///
/// # Errors
/// It can't be traced here, there is no such function, or the run failed.
pub(crate) fn run(args: TraceArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let of_host = [
        ("--pid", args.pid.is_some(), "it needs --lab host"),
        ("--duration", args.duration.is_some(), "it needs --lab host"),
    ];
    let of_others = [
        (
            "--packets",
            args.packets.is_some(),
            "it can't be used with --lab host, which sends nothing",
        ),
        (
            "--warmup",
            args.warmup.is_some(),
            "it can't be used with --lab host, which sends nothing",
        ),
        (
            "--blocks",
            args.blocks.is_some(),
            "it can't be used with --lab host, which has one block",
        ),
    ];
    let wrong = match args.lab {
        Lab::Host => &of_others[..],
        _ => &of_host[..],
    };
    if let Some((flag, _, why)) = wrong.iter().find(|(_, given, _)| *given) {
        return Err(Usage(format!("{flag}: {why}")).into());
    }
    if !args.command.is_empty() && args.packets.is_some() {
        return Err(Usage(
            "--packets can't be used with a command: it is for packets that plumb sends".into(),
        )
        .into());
    }
    let mut experiment = args.experiment().map_err(Usage)?;
    experiment::topologies::read(&mut experiment, Names::Typed)?;
    experiment::topologies::find_objects(&mut experiment, Names::Typed)?;
    if args.knobs.has("module") {
        experiment.check().map_err(|(_, why)| Usage(why))?;
        experiment::modules::prepare(&mut experiment, Names::Typed, cache)?;
    }
    // The report needs to know what was traced.
    let text = experiment.to_toml()?;
    let directions: [Direction; 0] = [];
    let how = How {
        text: &text,
        stdin: args.command.takes_stdin(),
        ..How::new(PrintWhat::Report(&args.show, &directions), &args.page, args.options)
    };
    experiment::run(&experiment, how, cache)
}
